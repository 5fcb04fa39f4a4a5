/*
 * The part of OpenCL C that the intrinsics table and generated kernels use, as C++: vectors, conversions, Arm's integer
 * dot products, Intel's sub-groups and matrix products. Written from the OpenCL C specification, cl_intel_subgroups,
 * cl_arm_integer_dot_product, cl_intel_subgroups_short and cl_intel_subgroup_matrix_multiply_accumulate.
 *
 * The lanes of a sub-group run one after another, forward or reversed, from one sub-group built-in to the next. The
 * program ends if lanes meet at different built-ins, or with different arguments where they must be equal.
 */
#ifndef AUTOMAP_EMULATION_OPENCL_H
#define AUTOMAP_EMULATION_OPENCL_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmath>
#include <type_traits>

#include "fibers.h"

#define AUTOMAP_EMULATED_LANES

#define __global
#define global
#define __kernel static
/* Generated sources declare memory with __local, and pointers to it with local. */
#define __local static
#define local
#define __private
#define __attribute__(attributes)
#define restrict
#define CLK_LOCAL_MEM_FENCE 1
#define CLK_GLOBAL_MEM_FENCE 2
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef _Float16 half;

/* ---- vectors ----------------------------------------------------------------------------------------------------- */

template <class T, int N> struct Components;
template <class T> struct Components<T, 2> { T s0, s1; };
template <class T> struct Components<T, 4> { T s0, s1, s2, s3; };
template <class T> struct Components<T, 8> { T s0, s1, s2, s3, s4, s5, s6, s7; };
template <class T> struct Components<T, 16> { T s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, sa, sb, sc, sd, se, sf; };

template <class T, int N> struct Vector : Components<T, N> {
  Vector() = default;
  /* A scalar fills a vector. Another vector needs a conversion by name. */
  Vector(T all) {
    for (int i = 0; i < N; i++) at(i) = all;
  }
  T& at(int i) { return ((T*)this)[i]; }
  const T& at(int i) const { return ((const T*)this)[i]; }
  Vector& operator+=(const Vector& other) { return *this = *this + other; }
};
template <class T, int N, class F> static inline Vector<T, N> each(const Vector<T, N>& a, const Vector<T, N>& b, F f) {
  Vector<T, N> c;
  for (int i = 0; i < N; i++) c.at(i) = (T)f(a.at(i), b.at(i));
  return c;
}
template <class T, int N> static inline Vector<T, N> operator+(const Vector<T, N>& a, const Vector<T, N>& b) {
  return each(a, b, [](T x, T y) { return x + y; });
}
template <class T, int N> static inline Vector<T, N> operator*(const Vector<T, N>& a, const Vector<T, N>& b) {
  return each(a, b, [](T x, T y) { return x * y; });
}

template <class T, int N> static inline Vector<T, N> fma(const Vector<T, N>& a, const Vector<T, N>& b, const Vector<T, N>& c) {
  Vector<T, N> d;
  for (int i = 0; i < N; i++) d.at(i) = std::fma(a.at(i), b.at(i), c.at(i));
  return d;
}

#define AUTOMAP_VECTORS(type, name)                                                                          \
  typedef Vector<type, 2> name##2;                                                                           \
  typedef Vector<type, 4> name##4;                                                                           \
  typedef Vector<type, 8> name##8;                                                                           \
  typedef Vector<type, 16> name##16;                                                                         \
  AUTOMAP_SAME_BITS(name) AUTOMAP_SAME_BITS(name##2) AUTOMAP_SAME_BITS(name##4) AUTOMAP_SAME_BITS(name##8)   \
  AUTOMAP_SAME_BITS(name##16)                                                                                \
  template <class T> static inline name##16 convert_##name##16(const Vector<T, 16>& from) {                  \
    name##16 to;                                                                                             \
    for (int i = 0; i < 16; i++) to.at(i) = (type)from.at(i);                                                \
    return to;                                                                                               \
  }
#define AUTOMAP_SAME_BITS(name)                                                 \
  template <class T> static inline name as_##name(const T& from) {              \
    static_assert(sizeof(name) == sizeof(T), "as_" #name " keeps every bit");   \
    name to;                                                                    \
    memcpy(&to, &from, sizeof to);                                              \
    return to;                                                                  \
  }
AUTOMAP_VECTORS(signed char, char)
AUTOMAP_VECTORS(uchar, uchar)
AUTOMAP_VECTORS(short, short)
AUTOMAP_VECTORS(ushort, ushort)
AUTOMAP_VECTORS(int, int)
AUTOMAP_VECTORS(uint, uint)
AUTOMAP_VECTORS(float, float)

#define AUTOMAP_LOADS(n)                                                                    \
  template <class T> static inline auto vload##n(size_t offset, const T* p) {               \
    Vector<std::conditional_t<std::is_same<T, char>::value, signed char, T>, n> v;          \
    memcpy(&v, p + n * offset, sizeof v);                                                   \
    return v;                                                                               \
  }                                                                                         \
  template <class T> static inline void vstore##n(const Vector<T, n>& v, size_t offset, T* p) { \
    memcpy(p + n * offset, &v, sizeof v);                                                   \
  }
AUTOMAP_LOADS(2)
AUTOMAP_LOADS(4)
AUTOMAP_LOADS(8)
AUTOMAP_LOADS(16)

static inline float vload_half(size_t offset, const half* p) { return (float)p[offset]; }
static inline void vstore_half_rte(float f, size_t offset, half* p) { p[offset] = (half)f; }

/* ---- Arm's integer dot products ---------------------------------------------------------------------------------- */

/* The low 32 bits of a product of numbers of 24 bits. */
static inline int mul24(int a, int b) {
  if (a < -(1 << 23) || a >= 1 << 23 || b < -(1 << 23) || b >= 1 << 23) {
    fprintf(stderr, "opencl.h: mul24 of a number that has more than 24 bits\n");
    abort();
  }
  return (int)((uint)a * (uint)b);
}

static inline int arm_dot(char4 a, char4 b) { return a.s0 * b.s0 + a.s1 * b.s1 + a.s2 * b.s2 + a.s3 * b.s3; }
static inline uint arm_dot(uchar4 a, uchar4 b) { return a.s0 * b.s0 + a.s1 * b.s1 + a.s2 * b.s2 + a.s3 * b.s3; }
static inline int arm_dot_acc(char4 a, char4 b, int c) { return (int)((uint)arm_dot(a, b) + (uint)c); }
static inline uint arm_dot_acc(uchar4 a, uchar4 b, uint c) { return arm_dot(a, b) + c; }
static inline int arm_dot_acc_sat(char4 a, char4 b, int c) {
  int64_t sum = (int64_t)arm_dot(a, b) + c;
  return sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : (int)sum;
}

/* ---- sub-groups -------------------------------------------------------------------------------------------------- */

namespace emulation {

enum { LANE_STACK_BYTES = 256 * 1024, MOST_LANES = 32 };
static Fiber scheduler, fibers[MOST_LANES];
static int lanes = 1, lane = 0, group = 0, groups = 1, finished = 0;
static bool reversed = false;
/* The built-in that each lane has reached, and its arguments. */
static const char* at[MOST_LANES];
static void* given[MOST_LANES];
static void (*body)(void*);
static void* argument;

[[noreturn]] static inline void misuse(const char* what) {
  fprintf(stderr, "opencl.h: lane %d of sub-group %d: %s\n", lane, group, what);
  abort();
}

static void first_step() {
  body(argument);
  at[lane] = nullptr;
  finished++;
  hand_over(fibers[lane], scheduler);
}

/* Waits until all lanes have arrived with their arguments; then `all` computes the results of each. */
template <class G, class F> static void meet(const char* name, G& mine, F all) {
  const int self = lane;
  at[self] = name, given[self] = &mine;
  hand_over(fibers[self], scheduler);
  /* The first lane to continue computes for all, while the arguments of the others still exist. */
  if (given[self] != nullptr) {
    G* arguments[MOST_LANES];
    for (int l = 0; l < lanes; l++) arguments[l] = (G*)given[l];
    all(arguments);
    for (int l = 0; l < lanes; l++) given[l] = nullptr;
  }
}

/* Runs a work-group of one sub-group. */
static inline void run_group(int of, void (*run)(void*), void* with) {
  static char* stacks = (char*)aligned_alloc(64, (size_t)LANE_STACK_BYTES * MOST_LANES);
  lanes = of, finished = 0, body = run, argument = with;
  for (int l = 0; l < lanes; l++) prepare_fiber(fibers[l], stacks + (size_t)LANE_STACK_BYTES * l, LANE_STACK_BYTES, first_step);
  while (finished < lanes) {
    for (int i = 0; i < lanes; i++) {
      lane = reversed ? lanes - 1 - i : i;
      hand_over(scheduler, fibers[lane]);
    }
    for (int l = 0; l < lanes; l++)
      if (at[l] != at[0]) lane = l, misuse("comes to another built-in of the sub-group than lane 0, or to none");
  }
}
template <class F> static inline void run_groups(int count, int of, bool backwards, F run) {
  groups = count, reversed = backwards;
  for (group = 0; group < groups; group++) run_group(of, [](void* f) { (*(F*)f)(); }, &run);
}

/* A kernel argument that is any pointer. */
struct Argument {
  void* pointer;
  template <class T> operator T*() const { return (T*)pointer; }
};

static inline void same_place(const char* name, const void* p) {
  meet(name, p, [](const void*** all) {
    for (int l = 0; l < lanes; l++)
      if (*all[l] != *all[0]) misuse("reads a block from another place than lane 0");
    if ((uintptr_t)*all[0] % 4 != 0) misuse("reads a block that begins at no multiple of four bytes");
  });
}

struct S8 { int8_t bits; float value() const { return bits; } };
struct U8 { uint8_t bits; float value() const { return bits; } };
struct F16 { half bits; float value() const { return (float)bits; } };
struct BF16 {
  uint16_t bits;
  float value() const {
    const uint32_t word = (uint32_t)bits << 16;
    float f;
    memcpy(&f, &word, sizeof f);
    return f;
  }
};
struct TF32 {
  uint32_t bits;
  float value() const {
    const uint32_t word = bits & ~0x1fffu;
    float f;
    memcpy(&f, &word, sizeof f);
    return f;
  }
};

template <class EA, class EB> static inline int multiply_add(int sum, const EA& a, const EB& b) {
  return (int)((uint32_t)sum + (uint32_t)(a.bits * b.bits));
}
template <class EA, class EB> static inline float multiply_add(float sum, const EA& a, const EB& b) { return sum + a.value() * b.value(); }

/* Component r of all lanes is a row of bytes. A row of A has k elements; B has as many in a row as fit a dword. */
template <class EA, class EB, int K, class A, class B, class T> static Vector<T, 8> matrix_mad(const char* name, A a, B b, Vector<T, 8> c) {
  struct Given { A a; B b; Vector<T, 8> c, result; } mine = {a, b, c, c};
  meet(name, mine, [](Given** all) {
    const int per = 4 / (int)sizeof(EB);
    unsigned char rows[8 * 128], columns[8 * 128];
    const int bytes_a = sizeof(((A*)nullptr)->s0), width_a = sizeof(A) / bytes_a;
    if ((int)sizeof(A) * lanes != 8 * K * (int)sizeof(EA)) misuse("a is no tile of this sub-group");
    if ((int)sizeof(B) * lanes != K * lanes * (int)sizeof(EB)) misuse("b is no tile of this sub-group");
    for (int r = 0; r < width_a; r++)
      for (int l = 0; l < lanes; l++) memcpy(rows + (r * lanes + l) * bytes_a, (const char*)&all[l]->a + r * bytes_a, bytes_a);
    for (int r = 0; r < 8; r++)
      for (int l = 0; l < lanes; l++) memcpy(columns + (r * lanes + l) * 4, (const char*)&all[l]->b + r * 4, 4);
    const EA* left = (const EA*)rows;
    const EB* right = (const EB*)columns;
    for (int n = 0; n < lanes; n++)
      for (int m = 0; m < 8; m++) {
        T sum = all[n]->c.at(m);
        for (int k = 0; k < K; k++) sum = multiply_add(sum, left[K * m + k], right[lanes * per * (k / per) + per * n + k % per]);
        all[n]->result.at(m) = sum;
      }
  });
  return mine.result;
}

}  // namespace emulation

static inline size_t get_group_id(uint) { return emulation::group; }
static inline size_t get_num_groups(uint dimension) { return dimension == 0 ? emulation::groups : 1; }
static inline uint get_sub_group_local_id() { return emulation::lane; }
/* A work-group is one sub-group. */
static inline size_t get_local_id(uint dimension) { return dimension == 0 ? emulation::lane : 0; }
static inline void barrier(int flags) {
  emulation::meet("barrier", flags, [](int**) {});
}
static inline void sub_group_barrier(int flags) {
  emulation::meet("sub_group_barrier", flags, [](int**) {});
}

/* cl_khr_subgroup_shuffle, cl_khr_subgroup_shuffle_relative: undefined beyond the sub-group. */
namespace emulation {
template <class T, class F> static inline T shuffled(const char* name, T value, uint given, bool alike, F from) {
  struct Mine { T value, result; uint given; } mine = {value, value, given};
  meet(name, mine, [&](Mine** all) {
    for (int l = 0; l < lanes; l++) {
      if (alike && all[l]->given != all[0]->given) misuse("shuffles by another distance than lane 0");
      const long other = from(l, (long)all[l]->given);
      if (other >= 0 && other < lanes) all[l]->result = all[other]->value;
      else memset((void*)&all[l]->result, 0xff, sizeof(T));
    }
  });
  return mine.result;
}
}  // namespace emulation
template <class T> static inline T sub_group_shuffle(T x, uint lane) {
  return emulation::shuffled("sub_group_shuffle", x, lane, false, [](long, long from) { return from; });
}
template <class T> static inline T sub_group_shuffle_xor(T x, uint mask) {
  return emulation::shuffled("sub_group_shuffle_xor", x, mask, true, [](long l, long m) { return l ^ m; });
}
template <class T> static inline T sub_group_shuffle_up(T x, uint delta) {
  return emulation::shuffled("sub_group_shuffle_up", x, delta, true, [](long l, long d) { return l - d; });
}
template <class T> static inline T sub_group_shuffle_down(T x, uint delta) {
  return emulation::shuffled("sub_group_shuffle_down", x, delta, true, [](long l, long d) { return l + d; });
}

static inline uint intel_sub_group_block_read(const uint* p) {
  emulation::same_place("intel_sub_group_block_read", p);
  return p[emulation::lane];
}
static inline ushort intel_sub_group_block_read_us(const ushort* p) {
  emulation::same_place("intel_sub_group_block_read_us", p);
  return p[emulation::lane];
}
#define AUTOMAP_BLOCK_READ(name, type, n)                                                          \
  static inline Vector<type, n> name##n(const type* p) {                                           \
    emulation::same_place(#name #n, p);                                                            \
    Vector<type, n> tile;                                                                          \
    for (int r = 0; r < n; r++) tile.at(r) = p[r * emulation::lanes + emulation::lane];            \
    return tile;                                                                                   \
  }
AUTOMAP_BLOCK_READ(intel_sub_group_block_read, uint, 4)
AUTOMAP_BLOCK_READ(intel_sub_group_block_read, uint, 8)
AUTOMAP_BLOCK_READ(intel_sub_group_block_read_us, ushort, 8)

#define AUTOMAP_MATRIX_MAD(left, right, EA, EB, K)                                                                            \
  template <class A, class B, class T>                                                                                        \
  static inline Vector<T, 8> intel_sub_group_##left##_##right##_matrix_mad_k##K(A a, B b, Vector<T, 8> c) {                   \
    return emulation::matrix_mad<emulation::EA, emulation::EB, K>("intel_sub_group_" #left "_" #right "_matrix_mad", a, b, c); \
  }
AUTOMAP_MATRIX_MAD(i8, i8, S8, S8, 32)
AUTOMAP_MATRIX_MAD(i8, u8, S8, U8, 32)
AUTOMAP_MATRIX_MAD(u8, i8, U8, S8, 32)
AUTOMAP_MATRIX_MAD(u8, u8, U8, U8, 32)
AUTOMAP_MATRIX_MAD(f16, f16, F16, F16, 16)
AUTOMAP_MATRIX_MAD(bf16, bf16, BF16, BF16, 16)
AUTOMAP_MATRIX_MAD(tf32, tf32, TF32, TF32, 8)
/* The form of compilers older than the extension: a row of eight, in a component of two bytes for each lane. */
#define cl_intel_subgroup_matrix_multiply_accumulate_tf32 1
static inline Vector<float, 8> intel_sub_group_tf32_tf32_matrix_mad_k8_f32(Vector<short, 8> a, Vector<int, 8> b, Vector<float, 8> c) {
  return emulation::matrix_mad<emulation::TF32, emulation::TF32, 8>("intel_sub_group_tf32_tf32_matrix_mad_k8_f32", a, b, c);
}

#endif
