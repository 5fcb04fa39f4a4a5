/*
 * The part of C for Metal that the intrinsics table and generated kernels use: register vectors, buffers, dot products,
 * DPAS. Written from the CM language specification; all operands are read before the destination is written. It accepts
 * no more than Intel's headers do: lengths are uint, so a template over int deduces none; offsets of scattered access
 * are variables; cm_group_id exists only in thread groups.
 */
#ifndef AUTOMAP_EMULATION_CM_H
#define AUTOMAP_EMULATION_CM_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <type_traits>
#include <unordered_set>

typedef _Float16 half;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned uint;
struct bf16 {
  uint16_t bits;
};

template <class T, uint N> class vector;

namespace emulation {
[[noreturn]] static inline void misuse(const char* what) {
  fprintf(stderr, "cm.h: %s\n", what);
  abort();
}
static inline void check_region(int from, int size, int stride, int of) {
  if (from < 0 || from + (size - 1) * stride >= of) misuse("select() reaches beyond the vector");
}
}  // namespace emulation

/* Elements of a vector, `stride` apart. An assignment reads all elements before it writes any. */
template <class T, uint N> class vector_ref {
  typedef T __attribute__((may_alias)) Element; /* format() sees the same bytes as another type */
  Element* first;
  int stride;

 public:
  vector_ref(T* first, int stride) : first((Element*)first), stride(stride) {}
  vector_ref(vector<T, N>& whole);
  Element& operator()(int i) const { return first[i * stride]; }
  template <uint SIZE, uint STRIDE> vector_ref<T, SIZE> select(int from = 0) const {
    static_assert(STRIDE > 0 && (SIZE - 1) * STRIDE < N, "select() stays inside");
    emulation::check_region(from, SIZE, STRIDE, N);
    return vector_ref<T, SIZE>((T*)first + from * stride, stride * STRIDE);
  }
  template <class B> const vector_ref& operator=(const vector<B, N>& other) const {
    const vector<B, N> read = other;
    for (int i = 0; i < N; i++) first[i * stride] = (T)read(i);
    return *this;
  }
  const vector_ref& operator=(const vector_ref& other) const { return *this = vector<T, N>(other); }
  const vector_ref& operator=(T fill) const { return *this = vector<T, N>(fill); }
};

template <class T, uint N> class vector {
  T values[N];

 public:
  /* Unwritten elements are NaN. */
  vector() { memset((void*)values, 0xff, sizeof values); }
  vector(T fill) { *this = fill; }
  vector(const vector_ref<T, N>& part) {
    for (int i = 0; i < N; i++) values[i] = part(i);
  }
  template <class B> vector(const vector<B, N>& other) {
    for (int i = 0; i < N; i++) values[i] = (T)other(i);
  }
  template <class B> explicit vector(const B (&from)[N]) {
    for (int i = 0; i < N; i++) values[i] = (T)from[i];
  }
  T operator()(int i) const { return values[i]; }
  T& operator()(int i) { return values[i]; }
  vector& operator=(T fill) {
    for (int i = 0; i < N; i++) values[i] = fill;
    return *this;
  }
  template <class B> vector& operator+=(const vector<B, N>& other) { return *this = *this + other; }
  vector& operator+=(T fill) { return *this = *this + vector(fill); }
  vector operator-() const {
    vector result;
    for (int i = 0; i < N; i++) result(i) = -values[i];
    return result;
  }
  template <uint SIZE, uint STRIDE> vector_ref<T, SIZE> select(int from = 0) {
    static_assert(STRIDE > 0 && (SIZE - 1) * STRIDE < N, "select() stays inside");
    emulation::check_region(from, SIZE, STRIDE, N);
    return vector_ref<T, SIZE>(values + from, STRIDE);
  }
  template <class I, uint SIZE> vector<T, SIZE> iselect(const vector<I, SIZE>& index) const {
    vector<T, SIZE> taken;
    for (int i = 0; i < SIZE; i++)
      if (index(i) >= 0 && index(i) < N) taken(i) = values[index(i)];
    return taken;
  }
  template <uint TIMES> vector<T, N * TIMES> replicate() const {
    vector<T, N * TIMES> repeated;
    for (int i = 0; i < N * TIMES; i++) repeated(i) = values[i % N];
    return repeated;
  }
  /* x where the mask's lowest bit is set, else y. */
  void merge(const vector& x, const vector& y, const vector<ushort, N>& mask) {
    for (int i = 0; i < N; i++) values[i] = mask(i) & 1 ? x(i) : y(i);
  }
  void merge(const vector& x, const vector<ushort, N>& mask) { merge(x, vector(*this), mask); }
  bool any() const {
    for (int i = 0; i < N; i++)
      if (values[i]) return true;
    return false;
  }
  /* A reference to the same bytes as elements of another type; writes go through it. */
  template <class T2> vector_ref<T2, N * sizeof(T) / sizeof(T2)> format() {
    static_assert(N * sizeof(T) % sizeof(T2) == 0, "format() keeps the bytes");
    return vector_ref<T2, N * sizeof(T) / sizeof(T2)>((T2*)values, 1);
  }
};

template <class T, uint N> vector_ref<T, N>::vector_ref(vector<T, N>& whole) : first(&whole(0)), stride(1) {}

/* Element by element, with scalars broadcast. Comparisons give 0 or 1. */
namespace emulation {
template <class T> struct IsScalar { enum { value = __is_class(T) ? 0 : 1 }; };
template <bool> struct If {};
template <> struct If<true> { typedef int Type; };
}  // namespace emulation

#define AUTOMAP_CM_OPERATOR(op, Result)                                                                                  \
  template <class A, class B, uint N> static auto operator op(const vector<A, N>& a, const vector<B, N>& b) {             \
    typedef decltype(A() op B()) Own;                                                                                    \
    vector<Result, N> result;                                                                                            \
    for (int i = 0; i < N; i++) result(i) = (Result)(a(i) op b(i));                                                      \
    return result;                                                                                                       \
  }                                                                                                                      \
  template <class A, class B, uint N, typename emulation::If<emulation::IsScalar<B>::value>::Type = 0>                    \
  static auto operator op(const vector<A, N>& a, B b) { return a op vector<B, N>(b); }                                   \
  template <class A, class B, uint N, typename emulation::If<emulation::IsScalar<A>::value>::Type = 0>                    \
  static auto operator op(A a, const vector<B, N>& b) { return vector<A, N>(a) op b; }
AUTOMAP_CM_OPERATOR(+, Own)
AUTOMAP_CM_OPERATOR(-, Own)
AUTOMAP_CM_OPERATOR(*, Own)
AUTOMAP_CM_OPERATOR(/, Own)
AUTOMAP_CM_OPERATOR(%, Own)
AUTOMAP_CM_OPERATOR(&, Own)
AUTOMAP_CM_OPERATOR(|, Own)
AUTOMAP_CM_OPERATOR(<<, Own)
AUTOMAP_CM_OPERATOR(>>, Own)
AUTOMAP_CM_OPERATOR(<, ushort)
AUTOMAP_CM_OPERATOR(<=, ushort)
AUTOMAP_CM_OPERATOR(>, ushort)
AUTOMAP_CM_OPERATOR(>=, ushort)
AUTOMAP_CM_OPERATOR(==, ushort)
AUTOMAP_CM_OPERATOR(!=, ushort)

/* ---- functions of vectors ---------------------------------------------------------------------------------------- */

template <class T, uint N> static vector<T, N> cm_max(const vector<T, N>& a, const vector<T, N>& b) {
  vector<T, N> result;
  for (int i = 0; i < N; i++) result(i) = a(i) > b(i) ? a(i) : b(i);
  return result;
}
template <class T, uint N> static vector<T, N> cm_min(const vector<T, N>& a, const vector<T, N>& b) {
  vector<T, N> result;
  for (int i = 0; i < N; i++) result(i) = a(i) < b(i) ? a(i) : b(i);
  return result;
}
template <class T, uint N> static vector<T, N> cm_abs(const vector<T, N>& a) {
  vector<T, N> result;
  for (int i = 0; i < N; i++) result(i) = a(i) < 0 ? -a(i) : a(i);
  return result;
}
/* Rounds to the nearest whole number, ties to even. */
template <class T, uint N> static vector<T, N> cm_rnde(const vector<T, N>& a) {
  vector<T, N> result;
  for (int i = 0; i < N; i++) result(i) = (T)__builtin_rint(a(i));
  return result;
}
/* Rounds down, and up. */
template <class T, uint N> static vector<T, N> cm_rndd(const vector<T, N>& a) {
  vector<T, N> result;
  for (int i = 0; i < N; i++) result(i) = (T)__builtin_floor(a(i));
  return result;
}
template <class T, uint N> static vector<T, N> cm_rndu(const vector<T, N>& a) {
  vector<T, N> result;
  for (int i = 0; i < N; i++) result(i) = (T)__builtin_ceil(a(i));
  return result;
}
template <class T, uint N> static T cm_sum(const vector<T, N>& a) {
  T sum = 0;
  for (int i = 0; i < N; i++) sum += a(i);
  return sum;
}
template <class T, uint N> static T cm_reduced_max(const vector<T, N>& a) {
  T most = a(0);
  for (int i = 1; i < N; i++) most = a(i) > most ? a(i) : most;
  return most;
}
template <class T, uint N> static T cm_reduced_min(const vector<T, N>& a) {
  T least = a(0);
  for (int i = 1; i < N; i++) least = a(i) < least ? a(i) : least;
  return least;
}

/* ---- threads, and SIMD control flow, in which scattered writes are masked --------------------------------------- */

#define _GENX_MAIN_
#define _GENX_
namespace emulation {
static int group = -1; /* -1: not in thread groups */
static const ushort* active; /* nullptr: all channels */
static int groups = 1;
}  // namespace emulation
static inline uint cm_group_id(uint dimension) {
  if (emulation::group < 0) emulation::misuse("cm_group_id outside thread groups: the host must start the kernel with a thread group space");
  return dimension == 0 ? emulation::group : 0;
}
static inline uint cm_group_count(uint dimension) { return dimension == 0 ? emulation::groups : 1; }
namespace emulation {
/* The current group's shared local memory, and what its thread wrote without a fence: reading that is undefined. */
enum { SLM_BYTES = 64 * 1024 };
static unsigned char slm[SLM_BYTES];
static uint slm_bytes, slm_given;
static std::unordered_set<uintptr_t> unfenced, unfenced_slm;

static inline void wrote(std::unordered_set<uintptr_t>& dwords, const void* at, uint bytes) {
  for (uintptr_t p = (uintptr_t)at / 4; p <= ((uintptr_t)at + bytes - 1) / 4; p++) dwords.insert(p);
}
static inline void about_to_read(const std::unordered_set<uintptr_t>& dwords, const void* at, uint bytes) {
  if (dwords.empty()) return;
  for (uintptr_t p = (uintptr_t)at / 4; p <= ((uintptr_t)at + bytes - 1) / 4; p++)
    if (dwords.count(p)) misuse("what the thread wrote is read with no fence between");
}
/* The host's launch: this many thread groups of one thread, in any order. */
template <class F> void run_groups(int count, F kernel, bool reversed = false) {
  groups = count;
  for (int i = 0; i < count; i++) {
    group = reversed ? count - 1 - i : i;
    memset(slm, 0xff, sizeof slm);
    slm_bytes = slm_given = 0;
    unfenced.clear(), unfenced_slm.clear();
    kernel();
  }
  group = -1;
}
}  // namespace emulation

#define SIMD_IF_BEGIN(condition)                   \
  {                                                \
    const auto simd_condition = condition;         \
    ushort simd_active[sizeof simd_condition / 2]; \
    memcpy(simd_active, (const void*)&simd_condition, sizeof simd_active); \
    emulation::active = simd_active;
#define SIMD_IF_END          \
  emulation::active = nullptr; \
  }

/* ---- buffers: reads outside give 0, writes outside are dropped --------------------------------------------------- */

struct SurfaceIndex {
  unsigned char* memory;
  unsigned bytes;
};
enum CmBufferAttrib { GENX_NONE = 0, GENX_DWALIGNED = 3 };
#define DWALIGNED(surface) surface, GENX_DWALIGNED

namespace emulation {
static inline SurfaceIndex surface_over(unsigned char* memory) { return {memory, ~0u}; } /* of one row of the table */
template <class T> T fetch(SurfaceIndex s, uint64_t at) {
  T value = 0;
  if (at + sizeof(T) <= s.bytes) memcpy(&value, s.memory + at, sizeof(T));
  return value;
}
template <class T> void put(SurfaceIndex s, uint64_t at, T value) {
  if (at + sizeof(T) <= s.bytes) memcpy(s.memory + at, &value, sizeof(T));
}
static inline void check_block(unsigned bytes, unsigned offset, unsigned alignment) {
  if (bytes != 16 && bytes != 32 && bytes != 64 && bytes != 128) misuse("a block is 1, 2, 4 or 8 owords");
  if (offset % alignment != 0) misuse("a block that is not aligned");
  if (active) misuse("a block under SIMD control flow");
}
}  // namespace emulation

/* Reads a block of owords at an offset in bytes, a multiple of 16 (of 4 if DWALIGNED). */
template <class T, uint N> static void read(SurfaceIndex surface, CmBufferAttrib attribute, int offset, vector_ref<T, N> to) {
  emulation::check_block(N * sizeof(T), (unsigned)offset, attribute == GENX_DWALIGNED ? 4 : 16);
  for (uint i = 0; i < N; i++) to(i) = emulation::fetch<T>(surface, (unsigned)offset + (uint64_t)i * sizeof(T));
}
template <class T, uint N> static void read(SurfaceIndex surface, CmBufferAttrib attribute, int offset, vector<T, N>& to) {
  read(surface, attribute, offset, vector_ref<T, N>(to));
}
template <class T, uint N> static void write(SurfaceIndex surface, int offset, const vector<T, N>& from) {
  emulation::check_block(N * sizeof(T), (unsigned)offset, 16);
  for (uint i = 0; i < N; i++) emulation::put<T>(surface, (unsigned)offset + (uint64_t)i * sizeof(T), from(i));
}
/* Scattered dwords. Offsets are in elements and must be a variable, neither a constant nor an expression. */
template <class T, uint N>
static void read(SurfaceIndex surface, uint global, vector<uint, N>& offsets, vector_ref<T, N> to) {
  static_assert(sizeof(T) == 4 && (N == 8 || N == 16), "8 or 16 dwords");
  for (uint i = 0; i < N; i++)
    if (!emulation::active || emulation::active[i]) to(i) = emulation::fetch<T>(surface, 4 * (uint64_t)(global + offsets(i)));
}
template <class T, uint N>
static void write(SurfaceIndex surface, uint global, vector<uint, N>& offsets, const vector<T, N>& from) {
  static_assert(sizeof(T) == 4 && (N == 8 || N == 16), "8 or 16 dwords");
  for (uint i = 0; i < N; i++)
    if (!emulation::active || emulation::active[i]) emulation::put<T>(surface, 4 * (uint64_t)(global + offsets(i)), from(i));
}

/* ---- load and store messages of Xe-HPG and later: offsets in bytes ----------------------------------------------- */

enum class VectorSize : unsigned char { N1 = 1 };
enum CmFenceMask { CM_GLOBAL_COHERENT_FENCE = 1 };
static inline void cm_fence(unsigned char = 0) { emulation::unfenced.clear(); }
static inline void cm_slm_fence(unsigned char) { emulation::unfenced_slm.clear(); }
static inline void cm_slm_init(uint bytes) {
  if (bytes > emulation::SLM_BYTES) emulation::misuse("more shared local memory than a thread group is given");
  emulation::slm_bytes = bytes;
}
static inline uint cm_slm_alloc(uint bytes) {
  if (emulation::slm_given > 0) emulation::misuse("cm_slm_alloc is called once; buffers are parts of one allocation");
  const uint at = emulation::slm_given;
  emulation::slm_given += bytes;
  if (emulation::slm_given > emulation::slm_bytes) emulation::misuse("cm_slm_alloc takes more than cm_slm_init was told");
  return at;
}

namespace emulation {
static inline SurfaceIndex own_memory() { return {slm, slm_given}; }
template <class T> static inline T* element_at(SurfaceIndex s, uint at) {
  if (at % sizeof(T) != 0) misuse("an element at no multiple of its size");
  if ((uint64_t)at + sizeof(T) > s.bytes) misuse("an element beyond the memory");
  return (T*)(s.memory + at);
}
template <class T, int N> static inline void check_lsc_block(SurfaceIndex s, uint at) {
  static_assert(sizeof(T) == 4, "blocks are of dwords");
  static_assert(N == 1 || N == 2 || N == 3 || N == 4 || N == 8 || N == 16 || N == 32 || N == 64, "no such block");
  if (at % 4 != 0) misuse("a block that is not aligned");
  if ((uint64_t)at + N * sizeof(T) > s.bytes) misuse("a block beyond the memory");
  if (active) misuse("a block under SIMD control flow");
}
template <class T, uint N> static vector<T, N> load_lanes(const std::unordered_set<uintptr_t>& dwords, SurfaceIndex s, const vector<uint, N>& at, const vector<ushort, N>& lanes) {
  static_assert(sizeof(T) <= 4 && N == 16, "sixteen lanes are what both Xe-HPG and Xe-HPC take");
  vector<T, N> result; /* of a lane that is off nothing is known */
  for (uint i = 0; i < N; i++)
    if (lanes(i)) {
      T* from = element_at<T>(s, at(i));
      about_to_read(dwords, from, sizeof(T));
      memcpy((void*)&result(i), from, sizeof(T));
    }
  return result;
}
template <class T, uint N> static void store_lanes(std::unordered_set<uintptr_t>& dwords, SurfaceIndex s, const vector<uint, N>& at, const vector<T, N>& from, const vector<ushort, N>& lanes) {
  static_assert(sizeof(T) <= 4 && N == 16, "sixteen lanes are what both Xe-HPG and Xe-HPC take");
  for (uint i = 0; i < N; i++)
    if (lanes(i)) {
      T* to = element_at<T>(s, at(i));
      T value = from(i);
      memcpy(to, &value, sizeof(T));
      wrote(dwords, to, sizeof(T));
    }
}
template <class T, int N> static vector<T, N> load_block(const std::unordered_set<uintptr_t>& dwords, SurfaceIndex s, uint at) {
  check_lsc_block<T, N>(s, at);
  about_to_read(dwords, s.memory + at, N * sizeof(T));
  vector<T, N> result;
  memcpy((void*)&result(0), s.memory + at, N * sizeof(T));
  return result;
}
template <class T, int N> static void store_block(std::unordered_set<uintptr_t>& dwords, SurfaceIndex s, uint at, const vector<T, N>& from) {
  check_lsc_block<T, N>(s, at);
  memcpy(s.memory + at, (const void*)&from, N * sizeof(T));
  wrote(dwords, s.memory + at, N * sizeof(T));
}
}  // namespace emulation

/* Loads an element for each lane. */
template <class T, VectorSize VS = VectorSize::N1, uint N>
static vector<T, N> cm_load(SurfaceIndex surface, const vector<uint, N>& offsets, const vector<ushort, N>& lanes = 1) {
  return emulation::load_lanes<T, N>(emulation::unfenced, surface, offsets, lanes);
}
template <class T, VectorSize VS = VectorSize::N1, uint N>
static void cm_store(SurfaceIndex surface, const vector<uint, N>& offsets, const vector<T, N>& from, const vector<ushort, N>& lanes = 1) {
  emulation::store_lanes<T, N>(emulation::unfenced, surface, offsets, from, lanes);
}
template <class T, VectorSize VS = VectorSize::N1, uint N>
static vector<T, N> cm_load_slm(const vector<uint, N>& offsets, const vector<ushort, N>& lanes = 1) {
  return emulation::load_lanes<T, N>(emulation::unfenced_slm, emulation::own_memory(), offsets, lanes);
}
template <class T, VectorSize VS = VectorSize::N1, uint N>
static void cm_store_slm(const vector<uint, N>& offsets, const vector<T, N>& from, const vector<ushort, N>& lanes = 1) {
  emulation::store_lanes<T, N>(emulation::unfenced_slm, emulation::own_memory(), offsets, from, lanes);
}
/* Scattered dwords of shared local memory before Xe: offsets are variables, in elements from a byte on. */
template <class T, uint N> static void cm_slm_read(uint from, vector<ushort, N>& offsets, vector<T, N>& to) {
  static_assert(sizeof(T) == 4 && (N == 8 || N == 16), "8 or 16 dwords");
  for (uint i = 0; i < N; i++) {
    if (emulation::active && !emulation::active[i]) continue;
    T* element = emulation::element_at<T>(emulation::own_memory(), from + 4 * offsets(i));
    emulation::about_to_read(emulation::unfenced_slm, element, 4);
    to(i) = *element;
  }
}
template <class T, uint N> static void cm_slm_write(uint from, vector<ushort, N>& offsets, const vector<T, N>& lanes) {
  static_assert(sizeof(T) == 4 && (N == 8 || N == 16), "8 or 16 dwords");
  for (uint i = 0; i < N; i++) {
    if (emulation::active && !emulation::active[i]) continue;
    T* element = emulation::element_at<T>(emulation::own_memory(), from + 4 * offsets(i));
    *element = lanes(i);
    emulation::wrote(emulation::unfenced_slm, element, 4);
  }
}
/* Loads a block of dwords, at a multiple of four bytes. */
template <class T, int N> static vector<T, N> cm_load(SurfaceIndex surface, uint offset) {
  return emulation::load_block<T, N>(emulation::unfenced, surface, offset);
}
template <class T, int N> static void cm_store(SurfaceIndex surface, uint offset, const vector<T, N>& from) {
  emulation::store_block<T, N>(emulation::unfenced, surface, offset, from);
}
template <class T, int N> static vector<T, N> cm_load_slm(uint offset) {
  return emulation::load_block<T, N>(emulation::unfenced_slm, emulation::own_memory(), offset);
}
template <class T, int N> static void cm_store_slm(uint offset, const vector<T, N>& from) {
  emulation::store_block<T, N>(emulation::unfenced_slm, emulation::own_memory(), offset, from);
}

namespace emulation {
template <class T> static constexpr bool is_dword() { return std::is_same<T, int>::value || std::is_same<T, uint>::value; }
static inline int byte_of(int word, int k) { return (signed char)((unsigned)word >> 8 * k); }
static inline int byte_of(uint word, int k) { return (uchar)(word >> 8 * k); }
}  // namespace emulation

/* The dot product of each group of four, stored in all four elements of the group. */
template <class T, uint N> static vector<T, N> cm_dp4(const vector<T, N>& a, const vector<T, N>& b) {
  vector<T, N> d;
  for (int g = 0; g < N; g += 4) {
    T sum = 0;
    for (int j = 0; j < 4; j++) sum += a(g + j) * b(g + j);
    for (int r = 0; r < 4; r++) d(g + r) = sum;
  }
  return d;
}

/* Sums of products of the four bytes of each dword, signed where the dword is. Only dwords are taken. */
template <class RT, class T0, class T1, class T2, uint N>
static vector<RT, N> cm_dp4a(const vector<T0, N>& c, const vector<T1, N>& a, const vector<T2, N>& b) {
  using emulation::is_dword;
  static_assert(is_dword<RT>() && is_dword<T0>() && is_dword<T1>() && is_dword<T2>(), "cm_dp4a is of int and uint");
  vector<RT, N> d;
  for (int n = 0; n < N; n++) {
    unsigned sum = (unsigned)c(n);
    for (int k = 0; k < 4; k++) sum += (unsigned)(emulation::byte_of(a(n), k) * emulation::byte_of(b(n), k));
    d(n) = (RT)sum;
  }
  return d;
}

enum CmPrecisionType {
  CM_PRECISION_U8 = 3,
  CM_PRECISION_S8 = 7,
  CM_PRECISION_BF = 8,
  CM_PRECISION_HF = 9,
  CM_PRECISION_TF32 = 11,
};

namespace emulation {
template <CmPrecisionType P> struct Precision;
template <> struct Precision<CM_PRECISION_U8> {
  enum { bits = 8 };
  static int value(unsigned x) { return (uint8_t)x; }
};
template <> struct Precision<CM_PRECISION_S8> {
  enum { bits = 8 };
  static int value(unsigned x) { return (int8_t)x; }
};
template <> struct Precision<CM_PRECISION_HF> {
  enum { bits = 16 };
  static float value(unsigned x) {
    uint16_t low = (uint16_t)x;
    half h;
    memcpy(&h, &low, sizeof h);
    return h;
  }
};
template <> struct Precision<CM_PRECISION_BF> {
  enum { bits = 16 };
  static float value(unsigned x) {
    x <<= 16;
    float f;
    memcpy(&f, &x, sizeof f);
    return f;
  }
};
template <> struct Precision<CM_PRECISION_TF32> {
  enum { bits = 32 };
  static float value(unsigned x) {
    float f;
    memcpy(&f, &x, sizeof f);
    return f;
  }
};
static inline int multiply_add(int sum, int a, int b) { return (int)((unsigned)sum + (unsigned)a * (unsigned)b); }
static inline float multiply_add(float sum, float a, float b) { return sum + a * b; }
}  // namespace emulation

/*
 * acc[r][n] += sum over s < DEPTH, d < ops of A[r][s*ops + d] * B[s*ops + d][n]. A dword of A is [r*DEPTH + s], of B
 * [s*N + n], each with `ops` consecutive k from its low bits up. The precision of B (src1) comes first.
 */
template <CmPrecisionType PB, CmPrecisionType PA, uint DEPTH, uint REPEAT, class T, uint NT, uint NB, uint NA>
static vector<T, NT> cm_dpas(const vector<T, NT>& acc, const vector<int, NB>& b, const vector<int, NA>& a) {
  using namespace emulation;
  const int lanes = NT / REPEAT, widest = (int)Precision<PA>::bits > (int)Precision<PB>::bits ? Precision<PA>::bits : Precision<PB>::bits;
  const int ops = 32 / widest;
  static_assert(NA == REPEAT * DEPTH && NB == DEPTH * (NT / REPEAT), "one dword a step");
  vector<T, NT> result = acc;
  for (int r = 0; r < REPEAT; r++)
    for (int s = 0; s < DEPTH; s++)
      for (int n = 0; n < lanes; n++)
        for (int d = 0; d < ops; d++) {
          unsigned left = (unsigned)a(r * DEPTH + s) >> (widest * d % 32), right = (unsigned)b(s * lanes + n) >> (widest * d % 32);
          result(r * lanes + n) = multiply_add(result(r * lanes + n), (T)Precision<PA>::value(left), (T)Precision<PB>::value(right));
        }
  return result;
}

#endif
