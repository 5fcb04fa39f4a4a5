/*
 * Matrix functions of a warp, for cuda.h: wmma and mma.sync, from the CUDA C++ Programming Guide and the PTX ISA.
 * The distribution of wmma fragments over lanes is private to this file.
 */
#ifndef AUTOMAP_EMULATION_CUDA_MATRIX_H
#define AUTOMAP_EMULATION_CUDA_MATRIX_H

/* ---- element types ----------------------------------------------------------------------------------------------- */

typedef _Float16 __half;
typedef __half half;
struct __nv_bfloat16 {
  uint16_t bits;
  operator float() const {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
  }
};

struct __nv_fp8_e5m2 {
  uint8_t bits;
  operator float() const {
    const uint16_t wide = (uint16_t)(bits << 8);
    __half value;
    memcpy(&value, &wide, sizeof value);
    return value;
  }
};
/* Fewer exponents than a half has, with another bias, and one NaN of each sign. */
struct __nv_fp8_e4m3 {
  uint8_t bits;
  operator float() const {
    const uint16_t wide = (uint16_t)((bits & 0x80) << 8 | (bits & 0x7f) << 7 | ((bits & 0x7f) == 0x7f ? 0x7c00 : 0));
    __half value;
    memcpy(&value, &wide, sizeof value);
    return 256 * (float)value;
  }
};

/* Sums of a matrix product: f16 sums are kept in f32 and rounded once, integers wrap. */
namespace emulation {
template <class T> struct Sum { typedef T Type; };
template <> struct Sum<__half> { typedef float Type; };
template <> struct Sum<int> { typedef unsigned Type; };

/* As tensor cores add products of floats of one byte: in units of the largest term, of 13 fraction bits; what is below a unit is cut off. */
template <class GetTerm> static float cut_off_sum(float c, int k, GetTerm term) {
  constexpr int SUM_BITS = 13;
  double largest = fabs((double)c), plain = c, sum = 0;
  for (int i = 0; i < k; i++) plain += term(i), largest = fmax(largest, fabs(term(i)));
  if (plain - plain != 0 || largest == 0) return (float)plain; /* infinities and NaN, or zeros */
  const double unit = ldexp(1, ilogb(largest) - SUM_BITS);
  sum = trunc(c / unit);
  for (int i = 0; i < k; i++) sum += trunc(term(i) / unit);
  if (sum == 0) return 0;
  const double last = ldexp(1, ilogb(sum) - SUM_BITS);
  return (float)(trunc(sum / last) * last * unit);
}
template <class T> struct IsByte { enum { value = false }; };
template <> struct IsByte<__nv_fp8_e4m3> { enum { value = true }; };
template <> struct IsByte<__nv_fp8_e5m2> { enum { value = true }; };
template <class C, class A, class B, class GetA, class GetB> static C dot(C c, int k, GetA a, GetB b) {
  if (IsByte<A>::value) return (C)cut_off_sum((float)c, k, [&](int i) { return (double)(float)a(i) * (double)(float)b(i); });
  typedef typename Sum<C>::Type S;
  S sum = (S)c;
  for (int i = 0; i < k; i++) sum += (S)(A)a(i) * (S)(B)b(i);
  return (C)sum;
}
}  // namespace emulation

/* ---- wmma -------------------------------------------------------------------------------------------------------- */

namespace nvcuda {
namespace wmma {
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };
namespace precision {
struct tf32 {};
}  // namespace precision

template <class T> struct Element { typedef T Type; };
template <> struct Element<precision::tf32> { typedef float Type; };

/* Element e of lane l is element 32*e + l of the row-major matrix. */
template <int ROWS, int COLUMNS, class T> struct Spread {
  enum { rows = ROWS, columns = COLUMNS, num_elements = ROWS * COLUMNS / 32 };
  typedef typename Element<T>::Type Stored;
  Stored x[num_elements];
};
template <class Use, int M, int N, int K, class T, class Layout = void> struct fragment;
template <int M, int N, int K, class T, class L> struct fragment<matrix_a, M, N, K, T, L> : Spread<M, K, T> {};
template <int M, int N, int K, class T, class L> struct fragment<matrix_b, M, N, K, T, L> : Spread<K, N, T> {};
template <int M, int N, int K, class T> struct fragment<accumulator, M, N, K, T, void> : Spread<M, N, T> {};

template <class F> static int place_of(const F&, int e, unsigned stride, bool row) {
  int flat = 32 * e + emulation::lane();
  int i = flat / F::columns, j = flat % F::columns;
  return row ? i * stride + j : j * stride + i;
}
template <class Use, int M, int N, int K, class T, class P>
static void load_matrix_sync(fragment<Use, M, N, K, T, row_major>& f, const P* from, unsigned stride) {
  for (int e = 0; e < f.num_elements; e++) f.x[e] = from[place_of(f, e, stride, true)];
}
template <class Use, int M, int N, int K, class T, class P>
static void load_matrix_sync(fragment<Use, M, N, K, T, col_major>& f, const P* from, unsigned stride) {
  for (int e = 0; e < f.num_elements; e++) f.x[e] = from[place_of(f, e, stride, false)];
}
template <int M, int N, int K, class T, class P>
static void load_matrix_sync(fragment<accumulator, M, N, K, T>& f, const P* from, unsigned stride, layout_t layout) {
  for (int e = 0; e < f.num_elements; e++) f.x[e] = from[place_of(f, e, stride, layout == mem_row_major)];
}
template <int M, int N, int K, class T, class P>
static void store_matrix_sync(P* to, const fragment<accumulator, M, N, K, T>& f, unsigned stride, layout_t layout) {
  for (int e = 0; e < f.num_elements; e++) to[place_of(f, e, stride, layout == mem_row_major)] = f.x[e];
}
template <class F, class V> static void fill_fragment(F& f, const V& value) {
  for (int e = 0; e < f.num_elements; e++) f.x[e] = value;
}
template <int M, int N, int K, class T, class L> static typename Element<T>::Type element(const fragment<matrix_a, M, N, K, T, L>& f, int e) { return f.x[e]; }

template <int M, int N, int K, class A, class LA, class B, class LB, class C>
static void mma_sync(fragment<accumulator, M, N, K, C>& d, const fragment<matrix_a, M, N, K, A, LA>& a,
                     const fragment<matrix_b, M, N, K, B, LB>& b, const fragment<accumulator, M, N, K, C>& c) {
  typedef typename Element<A>::Type TA;
  typedef typename Element<B>::Type TB;
  struct Mine {
    const TA* a;
    const TB* b;
  } mine = {a.x, b.x};
  auto result = emulation::exchange(mine, [&](auto other) {
    fragment<accumulator, M, N, K, C> sums;
    for (int e = 0; e < sums.num_elements; e++) {
      int flat = 32 * e + emulation::lane(), m = flat / N, n = flat % N;
      auto left = [&](int k) { return other((m * K + k) % 32).a[(m * K + k) / 32]; };
      auto right = [&](int k) { return other((k * N + n) % 32).b[(k * N + n) / 32]; };
      sums.x[e] = emulation::dot<C, TA, TB>(c.x[e], K, left, right);
    }
    return sums;
  });
  d = result;
}
}  // namespace wmma
}  // namespace nvcuda
using namespace nvcuda;

/* ---- mma.sync: PTX ISA, Matrix Fragments for mma.m16n8kK; groupID = lane / 4, threadID_in_group = lane % 4 ------- */

template <class T, int N> static void load_fragment(T (&reg)[N], const void* tile) {
  memcpy(reg, (const char*)tile + emulation::lane() * sizeof reg, sizeof reg);
}
template <class T, int N> static void store_fragment(void* tile, const T (&reg)[N]) {
  memcpy((char*)tile + emulation::lane() * sizeof reg, reg, sizeof reg);
}

namespace emulation {

/* Row and column of a lane's element i, as in the manual: a16 for .f16 and .bf16, a8 for bytes, a32 for .tf32. */
struct At {
  int row, column;
};
template <int BYTES> struct Fragments;
template <> struct Fragments<2> {
  static At a(int group, int thread, int i) {
    bool upper = i < 2 || (4 <= i && i < 6);
    return {upper ? group : group + 8, thread * 2 + (i & 1) + (i >= 4 ? 8 : 0)};
  }
  static At b(int group, int thread, int i) { return {thread * 2 + (i & 1) + (i >= 2 ? 8 : 0), group}; }
};
template <> struct Fragments<1> {
  static At a(int group, int thread, int i) {
    bool upper = (0 <= i && i < 4) || (8 <= i && i < 12);
    return {upper ? group : group + 8, thread * 4 + (i & 3) + (i >= 8 ? 16 : 0)};
  }
  static At b(int group, int thread, int i) { return {thread * 4 + (i & 3) + (i >= 4 ? 16 : 0), group}; }
};
template <> struct Fragments<4> {
  static At a(int group, int thread, int i) { return {i == 0 || i == 2 ? group : group + 8, i < 2 ? thread : thread + 4}; }
  static At b(int group, int thread, int i) { return {i == 0 ? thread : thread + 4, group}; }
};

/* A warp's 16 x 8 x K product; A and B are the types of the factors, C of the sums. */
template <class A, class B, class C, int K, class RC, int NC, int NA, int NB>
static void mma(RC (&c)[NC], const unsigned (&a)[NA], const unsigned (&b)[NB]) {
  struct Mine {
    const unsigned *a, *b;
  } mine = {a, b};
  C sums[4];
  static_assert(sizeof sums == sizeof c, "four sums a lane");
  memcpy(sums, c, sizeof c);
  exchange(mine, [&](auto other) {
    A left[16][K];
    B right[K][8];
    for (int lane = 0; lane < 32; lane++) {
      const A* own_a = (const A*)other(lane).a;
      const B* own_b = (const B*)other(lane).b;
      for (unsigned i = 0; i < sizeof a / sizeof(A); i++) {
        At at = Fragments<sizeof(A)>::a(lane / 4, lane % 4, i);
        memcpy(&left[at.row][at.column], own_a + i, sizeof(A));
      }
      for (unsigned i = 0; i < sizeof b / sizeof(B); i++) {
        At at = Fragments<sizeof(B)>::b(lane / 4, lane % 4, i);
        memcpy(&right[at.row][at.column], own_b + i, sizeof(B));
      }
    }
    for (int i = 0; i < 4; i++) {
      int row = lane() / 4 + (i < 2 ? 0 : 8), column = lane() % 4 * 2 + (i & 1);
      sums[i] = dot<C, A, B>(sums[i], K, [&](int k) { return left[row][k]; }, [&](int k) { return right[k][column]; });
    }
    return 0;
  });
  memcpy(c, sums, sizeof c);
}

}  // namespace emulation

#define AUTOMAP_MMA(name, K, A, B, C, RC, NC, NA, NB)                                                    \
  static inline void name(RC (&c)[NC], const unsigned (&a)[NA], const unsigned (&b)[NB]) { \
    emulation::mma<A, B, C, K>(c, a, b);                                                              \
  }
AUTOMAP_MMA(mma_m16n8k8_f32_f16, 8, __half, __half, float, float, 4, 2, 1)
AUTOMAP_MMA(mma_m16n8k8_f16_f16, 8, __half, __half, __half, unsigned, 2, 2, 1)
AUTOMAP_MMA(mma_m16n8k16_f32_f16, 16, __half, __half, float, float, 4, 4, 2)
AUTOMAP_MMA(mma_m16n8k16_f16_f16, 16, __half, __half, __half, unsigned, 2, 4, 2)
AUTOMAP_MMA(mma_m16n8k8_f32_bf16, 8, __nv_bfloat16, __nv_bfloat16, float, float, 4, 2, 1)
AUTOMAP_MMA(mma_m16n8k16_f32_bf16, 16, __nv_bfloat16, __nv_bfloat16, float, float, 4, 4, 2)
AUTOMAP_MMA(mma_m16n8k4_f32_tf32, 4, float, float, float, float, 4, 2, 1)
AUTOMAP_MMA(mma_m16n8k8_f32_tf32, 8, float, float, float, float, 4, 4, 2)
AUTOMAP_MMA(mma_m16n8k32_s32_s8, 32, int8_t, int8_t, int, int, 4, 4, 2)
AUTOMAP_MMA(mma_m16n8k32_s32_u8, 32, uint8_t, uint8_t, int, int, 4, 4, 2)
AUTOMAP_MMA(mma_m16n8k32_s32_u8s8, 32, uint8_t, int8_t, int, int, 4, 4, 2)
AUTOMAP_MMA(mma_m16n8k32_s32_s8u8, 32, int8_t, uint8_t, int, int, 4, 4, 2)
AUTOMAP_MMA(mma_m16n8k32_f32_e4m3, 32, __nv_fp8_e4m3, __nv_fp8_e4m3, float, float, 4, 4, 2)
AUTOMAP_MMA(mma_m16n8k32_f32_e4m3e5m2, 32, __nv_fp8_e4m3, __nv_fp8_e5m2, float, float, 4, 4, 2)
AUTOMAP_MMA(mma_m16n8k32_f32_e5m2e4m3, 32, __nv_fp8_e5m2, __nv_fp8_e4m3, float, float, 4, 4, 2)
AUTOMAP_MMA(mma_m16n8k32_f32_e5m2, 32, __nv_fp8_e5m2, __nv_fp8_e5m2, float, float, 4, 4, 2)

#endif
