/*
 * The part of SYCL 2020 that generated kernels use, on one host thread: one-dimensional ND-ranges, groups, sub-groups,
 * local memory, group algorithms, and the joint matrices of sycl_ext_oneapi_matrix. Written from the SYCL 2020
 * specification (revision 9) and that extension's text.
 *
 * A group's work-items run one after another, forward or reversed, from one group function to the next. Undefined
 * behaviour ends the program: a group function that not all items reach from one call site, with equal arguments where
 * required; local memory accessed out of bounds; a command that does not wait for the previous one. A call site is
 * the return addresses on the stack, so programs are compiled unoptimised. Rounds of a loop are not distinguished.
 */
#ifndef AUTOMAP_EMULATION_SYCL_HPP
#define AUTOMAP_EMULATION_SYCL_HPP

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <stdexcept>
#include <system_error>
#include <type_traits>

#include "../fibers.h"

#define AUTOMAP_EMULATED_LANES

#ifdef __OPTIMIZE__
#error "sycl.hpp tells calls apart by their frames: compile with -O0"
#endif

namespace emulation {

enum { ITEM_STACK_BYTES = 256 * 1024, MOST_ITEMS = 1024, LOCAL_BYTES = 128 * 1024 };
static Fiber scheduler, fibers[MOST_ITEMS];
/* The running ND-range: items of a group and of a sub-group, whose size the kernel requires. */
static int items = 1, lanes = 1, required_lanes = 1, group = 0, groups = 1, current = 0, lane = 0;
static bool reversed = false;
static void (*body)(void*);
static void* argument;

enum State { READY, WAITING, FINISHED };
static State state[MOST_ITEMS];
/* For each item: the function at which it waits, its call site, its partners and its arguments. */
static const char* at[MOST_ITEMS];
static size_t called_from[MOST_ITEMS];
static char* stacks;
static int partners[MOST_ITEMS];
static void* given[MOST_ITEMS];

static unsigned char local_memory[LOCAL_BYTES];
static bool runs = false;

[[noreturn]] static inline void misuse(const char* what, const char* name = "") {
  fprintf(stderr, "sycl.hpp: work-item %d of group %d: %s%s%s\n", current, group, name, *name ? " " : "", what);
  abort();
}

static void enter(int item) {
  current = item, lane = item % lanes;
  hand_over(scheduler, fibers[item]);
}
static void first_step() {
  body(argument);
  state[current] = FINISHED;
  hand_over(fibers[current], scheduler);
}

/* A hash of the return addresses on an item's stack. On x86 and Arm a frame starts with the caller's frame address. */
static size_t calls_of(int item) {
  const char *from = stacks + (size_t)ITEM_STACK_BYTES * item, *to = from + ITEM_STACK_BYTES;
  size_t sum = 0;
  void** frame = (void**)__builtin_frame_address(0);
  while ((const char*)frame >= from && (const char*)(frame + 2) <= to) {
    sum = sum * 1099511628211u + (size_t)frame[1];
    void** const around = (void**)frame[0];
    if (around <= frame) break;
    frame = around;
  }
  return sum;
}

/* Waits until all items of a group of `count` have arrived; then `all` computes the results of each. */
template <class G, class F> static void meet(const char* name, int count, G& mine, F all) {
  if (!runs) misuse("is called outside of a kernel", name);
  const int self = current, first = self / count * count;
  at[self] = name, partners[self] = count, given[self] = &mine, state[self] = WAITING;
  called_from[self] = calls_of(self);
  hand_over(fibers[self], scheduler);
  /* The first item to continue computes for all, while the arguments of the others still exist. */
  if (given[self] != nullptr) {
    G* arguments[MOST_ITEMS];
    for (int i = 0; i < count; i++) arguments[i] = (G*)given[first + i];
    all(arguments);
    for (int i = 0; i < count; i++) given[first + i] = nullptr;
  }
}

/* Resumes groups whose items have all arrived at one place. */
static bool release() {
  bool any = false;
  for (int first = 0; first < items; first++) {
    if (state[first] != WAITING || first % partners[first] != 0) continue;
    const int count = partners[first];
    bool here = true;
    for (int i = first; i < first + count; i++) here = here && state[i] == WAITING && at[i] == at[first] && called_from[i] == called_from[first] && partners[i] == count;
    if (!here) continue;
    for (int i = first; i < first + count; i++) state[i] = READY;
    any = true;
  }
  return any;
}

template <class K> static void run_group(const K& kernel) {
  if (!stacks) stacks = (char*)aligned_alloc(64, (size_t)ITEM_STACK_BYTES * MOST_ITEMS);
  struct Call {
    const K* kernel;
  } call = {&kernel};
  body = [](void* c) { (*((Call*)c)->kernel)(); };
  argument = &call;
  memset(local_memory, 0xff, sizeof local_memory);
  for (int i = 0; i < items; i++) {
    state[i] = READY;
    prepare_fiber(fibers[i], stacks + (size_t)ITEM_STACK_BYTES * i, ITEM_STACK_BYTES, first_step);
  }
  for (;;) {
    for (int i = 0; i < items; i++) {
      const int item = reversed ? items - 1 - i : i;
      if (state[item] == READY) enter(item);
    }
    if (release()) continue;
    for (int i = 0; i < items; i++)
      if (state[i] == WAITING) current = i, misuse("waits for items that come to another group function, from another place, or to none", at[i]);
    return;
  }
}

}  // namespace emulation

namespace sycl {

/* ---- types and functions ----------------------------------------------------------------------------------------- */

class half {
 public:
  half() = default;
  half(float f) : bits((_Float16)f) {}
  operator float() const { return (float)bits; }

 private:
  _Float16 bits;
};

template <class To, class From> static inline To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast keeps every bit");
  To to;
  memcpy((void*)&to, (const void*)&from, sizeof to);
  return to;
}

static inline float fma(float a, float b, float c) { return std::fma(a, b, c); }
static inline double fma(double a, double b, double c) { return std::fma(a, b, c); }
#define AUTOMAP_MATH(name)                                        \
  static inline float name(float x) { return std::name(x); }      \
  static inline double name(double x) { return std::name(x); }
AUTOMAP_MATH(fabs)
AUTOMAP_MATH(rint)
AUTOMAP_MATH(exp)
AUTOMAP_MATH(log)
AUTOMAP_MATH(sqrt)
AUTOMAP_MATH(tanh)
AUTOMAP_MATH(erf)
AUTOMAP_MATH(floor)
AUTOMAP_MATH(ceil)
static inline float fmod(float x, float y) { return std::fmod(x, y); }
static inline double fmod(double x, double y) { return std::fmod(x, y); }
static inline float pow(float x, float y) { return std::pow(x, y); }
static inline double pow(double x, double y) { return std::pow(x, y); }

template <class T = void> using plus = std::plus<T>;
template <class T = void> struct maximum {
  T operator()(const T& x, const T& y) const { return x < y ? y : x; }
};
template <class T = void> struct minimum {
  T operator()(const T& x, const T& y) const { return y < x ? y : x; }
};

template <int D> struct range {
  size_t extent;
  range(size_t n) : extent(n) { static_assert(D == 1, "one dimension"); }
  size_t operator[](int) const { return extent; }
};
template <int D> struct nd_range {
  range<D> all, local;
  nd_range(range<D> global, range<D> of_group) : all(global), local(of_group) {}
};

/* ---- groups ------------------------------------------------------------------------------------------------------ */

enum class memory_scope { work_item, sub_group, work_group, device, system };

struct sub_group {
  static constexpr memory_scope fence_scope = memory_scope::sub_group;
  uint32_t get_local_linear_id() const { return emulation::current % emulation::lanes; }
  uint32_t get_local_linear_range() const { return emulation::lanes; }
  uint32_t get_group_linear_id() const { return emulation::current / emulation::lanes; }
  uint32_t get_group_linear_range() const { return emulation::items / emulation::lanes; }
  int size() const { return emulation::lanes; }
};
template <int D> struct group {
  static constexpr memory_scope fence_scope = memory_scope::work_group;
  size_t get_group_id(int) const { return emulation::group; }
  size_t get_local_linear_id() const { return emulation::current; }
  int size() const { return emulation::items; }
};
template <int D> struct nd_item {
  size_t get_group(int dimension) const { return emulation::group; }
  sycl::group<D> get_group() const { return {}; }
  size_t get_group_range(int) const { return emulation::groups; }
  size_t get_local_id(int) const { return emulation::current; }
  size_t get_local_range(int) const { return emulation::items; }
  size_t get_global_id(int) const { return (size_t)emulation::group * emulation::items + emulation::current; }
  sycl::sub_group get_sub_group() const { return {}; }
};

template <class G> static inline void group_barrier(G g, memory_scope scope = G::fence_scope) {
  emulation::meet("group_barrier", g.size(), scope, [&](memory_scope** all) {
    for (int i = 0; i < g.size(); i++)
      if (*all[i] != *all[0]) emulation::misuse("differs in its scope", "group_barrier");
  });
}

namespace detail {
/* Each lane receives the value of one lane. If there is no such lane, the value is unspecified. */
template <class T, class I, class F> static inline T exchanged(const char* name, T value, I given, bool alike, F from) {
  struct Mine {
    T value, result;
    I given;
  } mine = {value, value, given};
  emulation::meet(name, emulation::lanes, mine, [&](Mine** all) {
    for (int l = 0; l < emulation::lanes; l++) {
      if (alike && all[l]->given != all[0]->given) emulation::misuse("differs in its distance", name);
      const long other = from(l, (long)all[l]->given);
      const bool is = other >= 0 && other < emulation::lanes;
      if (is) all[l]->result = all[other]->value;
      else memset((void*)&all[l]->result, 0xff, sizeof(T)); /* unspecified */
    }
  });
  return mine.result;
}
}  // namespace detail

template <class T> static inline T shift_group_left(sub_group, T x, uint32_t delta = 1) {
  return detail::exchanged("shift_group_left", x, delta, true, [](long l, long d) { return l + d; });
}
template <class T> static inline T shift_group_right(sub_group, T x, uint32_t delta = 1) {
  return detail::exchanged("shift_group_right", x, delta, true, [](long l, long d) { return l - d; });
}
template <class T> static inline T permute_group_by_xor(sub_group, T x, uint32_t mask) {
  return detail::exchanged("permute_group_by_xor", x, mask, true, [](long l, long m) { return l ^ m; });
}
template <class T> static inline T select_from_group(sub_group, T x, uint32_t from) {
  return detail::exchanged("select_from_group", x, from, false, [](long, long f) { return f; });
}
template <class T> static inline T group_broadcast(sub_group, T x, uint32_t from) {
  return detail::exchanged("group_broadcast", x, from, true, [](long, long f) { return f; });
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

namespace access {
enum class address_space { global_space, local_space, private_space, generic_space };
enum class decorated { no, yes, legacy };
}  // namespace access

namespace detail {
/* Local memory may be accessed only within one accessor. */
struct Bounds {
  const unsigned char *from = nullptr, *to = nullptr;
};
enum { MOST_ACCESSORS = 64 };
static Bounds accessors[MOST_ACCESSORS];
static int accessor_count = 0;
static inline bool is_local(const void* p) {
  const unsigned char* at = (const unsigned char*)p;
  return at >= emulation::local_memory && at < emulation::local_memory + emulation::LOCAL_BYTES;
}
static inline Bounds bounds_of(const void* p) {
  for (int i = 0; i < accessor_count; i++)
    if (p >= accessors[i].from && p < accessors[i].to) return accessors[i];
  emulation::misuse("points to local memory of no accessor");
}
}  // namespace detail

template <class T, access::address_space Space, access::decorated Decorated> class multi_ptr {
 public:
  explicit multi_ptr(T* p, detail::Bounds within = {}) : pointer(p), bounds(within) {}
  T& operator[](std::ptrdiff_t i) const {
    const unsigned char* at = (const unsigned char*)(pointer + i);
    if (bounds.from && (at < bounds.from || at + sizeof(T) > bounds.to)) emulation::misuse("points beyond the elements of an accessor");
    return pointer[i];
  }
  T& operator*() const { return (*this)[0]; }
  multi_ptr operator+(std::ptrdiff_t n) const { return multi_ptr(pointer + n, bounds); }
  T* get() const { return pointer; }

 private:
  T* pointer;
  detail::Bounds bounds;
};
template <access::address_space Space, access::decorated Decorated, class T> static inline multi_ptr<T, Space, Decorated> address_space_cast(T* p) {
  const bool local = detail::is_local(p);
  if (local != (Space == access::address_space::local_space)) emulation::misuse("points to another address space", "address_space_cast");
  return multi_ptr<T, Space, Decorated>(p, local ? detail::bounds_of(p) : detail::Bounds{});
}

class handler;
template <class T, int D> class local_accessor {
 public:
  local_accessor(range<D> n, handler&);
  T& operator[](size_t i) const {
    if (i >= count) emulation::misuse("is beyond its elements", "an accessor's element");
    return ((T*)(emulation::local_memory + offset))[i];
  }
  template <access::decorated Decorated> multi_ptr<T, access::address_space::local_space, Decorated> get_multi_ptr() const {
    unsigned char* from = emulation::local_memory + offset;
    return multi_ptr<T, access::address_space::local_space, Decorated>((T*)from, {from, from + count * sizeof(T)});
  }
  size_t size() const { return count; }

 private:
  size_t offset, count;
};

/* ---- commands ---------------------------------------------------------------------------------------------------- */

namespace detail {
/* The last command submitted, and the last one waited for. */
static int submitted = 0, awaited = 0;
}  // namespace detail

class event {
 public:
  event() = default;
  explicit event(int n) : number(n) {}
  void wait() {
    if (number > detail::awaited) detail::awaited = number;
  }
  int number = 0;
};

class handler {
 public:
  void depends_on(event e) {
    if (e.number > behind) behind = e.number;
  }
  template <class K> void parallel_for(nd_range<1> range, const K& kernel) {
    const size_t all = range.all[0], local = range.local[0];
    if (local == 0 || local > emulation::MOST_ITEMS || all % local != 0) emulation::misuse("is no multiple of its work-groups", "an nd_range");
    if (local % emulation::required_lanes != 0) emulation::misuse("is no multiple of the required sub-group", "a work-group");
    emulation::items = local, emulation::lanes = emulation::required_lanes, emulation::groups = all / local;
    emulation::runs = true;
    const auto run = [&] { kernel(nd_item<1>()); };
    for (emulation::group = 0; emulation::group < emulation::groups; emulation::group++) emulation::run_group(run);
    emulation::runs = false;
  }
  size_t local_bytes = 0;
  int behind = 0;
};

template <class T, int D> local_accessor<T, D>::local_accessor(range<D> n, handler& h) : offset(h.local_bytes), count(n[0]) {
  h.local_bytes += (count * sizeof(T) + 63) / 64 * 64;
  if (h.local_bytes > emulation::LOCAL_BYTES) emulation::misuse("is more than a work-group has", "local memory");
  if (detail::accessor_count == detail::MOST_ACCESSORS) emulation::misuse("are too many", "accessors");
  const unsigned char* from = emulation::local_memory + offset;
  detail::accessors[detail::accessor_count++] = {from, from + count * sizeof(T)};
}

enum class errc { success, runtime, kernel, accessor, nd_range, event, kernel_argument, build, invalid };
static inline std::error_code make_error_code(errc e) noexcept { return std::error_code((int)e, std::generic_category()); }
class exception : public std::runtime_error {
 public:
  exception(std::error_code e, const char* what) : std::runtime_error(what), held(e) {}
  const std::error_code& code() const noexcept { return held; }

 private:
  std::error_code held;
};

namespace property::queue {
class in_order {};
}  // namespace property::queue

class queue {
 public:
  queue() = default;
  explicit queue(property::queue::in_order) : ordered(true) {}
  bool is_in_order() const { return ordered; }
  template <class F> event submit(F command) {
    handler h;
    detail::accessor_count = 0;
    command(h);
    return submitted(h.behind);
  }
  event memset(void* p, int value, size_t bytes) {
    ::memset(p, value, bytes);
    return submitted(detail::submitted);
  }
  void wait() { detail::awaited = detail::submitted; }

 private:
  /* Unless a queue is in order, a command may run at any time after its dependencies. */
  bool ordered = false;
  event submitted(int behind) {
    if (!ordered && behind < detail::submitted && detail::awaited < detail::submitted) emulation::misuse("depends on nothing that ends behind the one before", "a command");
    return event(++detail::submitted);
  }
};

/* ---- sycl_ext_oneapi_bfloat16, sycl_ext_oneapi_matrix ------------------------------------------------------------ */

namespace ext::oneapi {

class bfloat16 {
 public:
  bfloat16() = default;
  operator float() const { return bit_cast<float>((uint32_t)bits << 16); }

 private:
  uint16_t bits;
};

namespace experimental::matrix {

enum class use { a, b, accumulator };
enum class layout { row_major, col_major, ext_intel_packed, dynamic };
namespace precision {
class tf32 {};
}

namespace detail {
template <class T> struct Held {
  typedef T type;
};
template <> struct Held<precision::tf32> {
  typedef float type;
};
template <class T> constexpr bool is_byte = std::is_same<T, int8_t>::value || std::is_same<T, uint8_t>::value;
template <class T> constexpr bool is_half = std::is_same<T, half>::value || std::is_same<T, bfloat16>::value;
}  // namespace detail

/* Element i belongs to work-item i % lanes. The standard leaves this open, so kernels must not rely on it. */
template <class G, class T, use U, size_t R, size_t C, layout L = layout::dynamic> struct joint_matrix {
  typedef typename detail::Held<T>::type Element;
  static_assert(std::is_same<G, sub_group>::value, "matrices of sub-groups");
  static_assert((U == use::accumulator) == (L == layout::dynamic), "factors have a layout, sums have none");
  joint_matrix() = default;
  joint_matrix(const joint_matrix&) = delete;
  joint_matrix& operator=(const joint_matrix&) = delete;
  Element own[R * C];
};

namespace detail {
/* Calls `each` with the matrices and arguments of all lanes, whose pointers must be equal. */
template <class M, class F> static inline void together(const char* name, M& m, const void* place, size_t stride, F each) {
  struct Mine {
    M* matrix;
    const void* place;
    size_t stride;
  } mine = {&m, place, stride};
  emulation::meet(name, emulation::lanes, mine, [&](Mine** all) {
    for (int l = 0; l < emulation::lanes; l++)
      if (all[l]->place != place || all[l]->stride != stride) emulation::misuse("differs in its place", name);
    M* matrices[emulation::MOST_ITEMS];
    for (int l = 0; l < emulation::lanes; l++) matrices[l] = all[l]->matrix;
    each(matrices);
  });
}
template <class M, class P, class F> static inline void moved(const char* name, M& m, const P& from, size_t stride, size_t rows, size_t columns, F element) {
  if (stride < columns) emulation::misuse("has a stride below its columns", name);
  together(name, m, from.get(), stride, [&](M** all) {
    for (size_t r = 0; r < rows; r++)
      for (size_t c = 0; c < columns; c++) element(all[(r * columns + c) % emulation::lanes]->own[r * columns + c], from[r * stride + c]);
  });
}
}  // namespace detail

template <class G, class T, use U, size_t R, size_t C, layout L, class V> static inline void joint_matrix_fill(G, joint_matrix<G, T, U, R, C, L>& m, V value) {
  detail::together("joint_matrix_fill", m, nullptr, 0, [&](auto** all) {
    for (size_t i = 0; i < R * C; i++) all[i % emulation::lanes]->own[i] = value;
  });
}
template <class G, class T, use U, size_t R, size_t C, layout L, class S, access::address_space A, access::decorated D>
static inline void joint_matrix_load(G, joint_matrix<G, T, U, R, C, L>& m, multi_ptr<S, A, D> from, size_t stride) {
  typedef joint_matrix<G, T, U, R, C, L> M;
  static_assert(U != use::accumulator, "sums are loaded with a layout");
  static_assert(L == layout::row_major, "no other layout is emulated");
  static_assert(std::is_same<std::remove_const_t<S>, typename M::Element>::value, "memory holds elements of the matrix");
  detail::moved<M>("joint_matrix_load", m, from, stride, R, C, [](auto& own, auto& in) { own = in; });
}
template <class G, class T, size_t R, size_t C, class S, access::address_space A, access::decorated D>
static inline void joint_matrix_load(G, joint_matrix<G, T, use::accumulator, R, C>& m, multi_ptr<S, A, D> from, size_t stride, layout as) {
  static_assert(std::is_same<std::remove_const_t<S>, T>::value, "memory holds elements of the matrix");
  if (as != layout::row_major) emulation::misuse("has a layout that is not emulated", "joint_matrix_load");
  detail::moved<joint_matrix<G, T, use::accumulator, R, C>>("joint_matrix_load", m, from, stride, R, C, [](auto& own, auto& in) { own = in; });
}
template <class G, class T, size_t R, size_t C, access::address_space A, access::decorated D>
static inline void joint_matrix_store(G, joint_matrix<G, T, use::accumulator, R, C>& m, multi_ptr<T, A, D> to, size_t stride, layout as) {
  if (as != layout::row_major) emulation::misuse("has a layout that is not emulated", "joint_matrix_store");
  detail::moved<joint_matrix<G, T, use::accumulator, R, C>>("joint_matrix_store", m, to, stride, R, C, [](auto& own, auto& in) { in = own; });
}

namespace detail {
/* Intel XMX, "supported combinations per hardware": sub-groups of 8 on DG2, of 16 on PVC. */
template <class TA, class TB, class TC, size_t M, size_t N, size_t K> static inline bool is_supported() {
  const size_t lanes = emulation::lanes;
  const bool is_thin = M <= 8 && N == lanes;
  if (is_byte<TA> && is_byte<TB>) return std::is_same<TC, int32_t>::value && is_thin && K == 32;
  if (is_half<TA> && std::is_same<TA, TB>::value) {
    if (!std::is_same<TC, float>::value || K != 16) return false;
    return is_thin || (lanes == 8 ? M == 32 && N == 32 : (M == 16 && N == 16) || (M == 1 && N == 64) || (M == 32 && N == 64));
  }
  if (std::is_same<TA, precision::tf32>::value && std::is_same<TB, TA>::value) return std::is_same<TC, float>::value && is_thin && lanes == 16 && K == 8;
  return false;
}
static inline int32_t multiply_add(int32_t sum, int32_t a, int32_t b) { return (int32_t)((uint32_t)sum + (uint32_t)(a * b)); }
static inline float multiply_add(float sum, float a, float b) { return sum + a * b; }
template <class T> static inline float number(const T& x) { return (float)x; }
static inline int32_t number(const int8_t& x) { return x; }
static inline int32_t number(const uint8_t& x) { return x; }
}  // namespace detail

template <class G, class TD, class TA, class TB, class TC, size_t M, size_t K, size_t N, layout LA, layout LB>
static inline void joint_matrix_mad(G, joint_matrix<G, TD, use::accumulator, M, N>& d, const joint_matrix<G, TA, use::a, M, K, LA>& a,
                                    const joint_matrix<G, TB, use::b, K, N, LB>& b, const joint_matrix<G, TC, use::accumulator, M, N>& c) {
  static_assert(std::is_same<TD, TC>::value, "sums of one type");
  if (!detail::is_supported<TA, TB, TC, M, N, K>()) emulation::misuse("has no such combination on sub-groups of this size", "joint_matrix_mad");
  struct Mine {
    joint_matrix<G, TD, use::accumulator, M, N>* d;
    const joint_matrix<G, TA, use::a, M, K, LA>* a;
    const joint_matrix<G, TB, use::b, K, N, LB>* b;
    const joint_matrix<G, TC, use::accumulator, M, N>* c;
  } mine = {&d, &a, &b, &c};
  emulation::meet("joint_matrix_mad", emulation::lanes, mine, [](Mine** all) {
    const int lanes = emulation::lanes;
    for (size_t m = 0; m < M; m++)
      for (size_t n = 0; n < N; n++) {
        const size_t i = m * N + n;
        TC sum = all[i % lanes]->c->own[i];
        for (size_t k = 0; k < K; k++) {
          const size_t left = m * K + k, right = k * N + n;
          sum = detail::multiply_add(sum, detail::number(all[left % lanes]->a->own[left]), detail::number(all[right % lanes]->b->own[right]));
        }
        all[i % lanes]->d->own[i] = sum;
      }
  });
}

}  // namespace experimental::matrix
}  // namespace ext::oneapi
}  // namespace sycl

#endif
