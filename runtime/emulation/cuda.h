/*
 * One CUDA block on a CPU thread: each CUDA thread is a fiber that runs the kernel's own text; a collective (shuffle, matrix function,
 * barrier) hands over to the next fiber until all have come as far.
 *
 *     __global__ void shift(float* x) { x[threadIdx.x] = __shfl_down_sync(~0u, x[threadIdx.x], 1); }
 *     launch(shift, 1, 32, x);
 *
 * All threads of a warp must reach the same collectives in the same order. Semantics are written from the CUDA C++ Programming Guide
 * and the PTX ISA; how wmma fragments are spread over lanes is this file's own secret.
 */
#ifndef AUTOMAP_EMULATION_CUDA_H
#define AUTOMAP_EMULATION_CUDA_H
#define AUTOMAP_EMULATED_CUDA

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#include <utility>

#define __global__ static
#define __device__
#define __constant__
#define __shared__ static
#define __host__
#define __launch_bounds__(...)
#define __restrict__
#define __forceinline__ inline

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
static dim3 threadIdx(0, 0, 0), blockIdx(0, 0, 0), blockDim, gridDim;

/* ---- fibers ------------------------------------------------------------------------------------------------------------------- */

namespace emulation {

enum { STACK_BYTES = 256 * 1024, MAX_THREADS = 1024 };
static bool finished[MAX_THREADS];
static const void* offered[MAX_THREADS]; /* what each thread shows the others at a collective */
static unsigned running;
static void (*body)(void*);
static void* argument;

static void begin() {
  body(argument);
  finished[running] = true;
}

#if defined(__x86_64__)

/* Keeps what a called function must keep, and goes on where another stack left off: much faster than swapcontext, which asks the kernel. */
__attribute__((naked, noinline)) static void switch_stacks(void** /* left */, void* /* entered */) {
  __asm__ volatile(
      "push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
      "mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
      "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret");
}
static void *scheduler, *fibers[MAX_THREADS];
static void leave() { switch_stacks(&fibers[running], scheduler); }
static void enter(unsigned t) { switch_stacks(&scheduler, fibers[t]); }
static void first_step() {
  begin();
  leave();
}
static void prepare_fiber(unsigned t, char* stack) {
  void** top = (void**)(stack + STACK_BYTES) - 7; /* as after a call: 8 beyond a multiple of 16 */
  top[0] = nullptr; /* where the first function would return to */
  *--top = (void*)first_step;
  for (int kept = 0; kept < 6; kept++) *--top = nullptr;
  fibers[t] = top;
}

#else

static ucontext_t scheduler, fibers[MAX_THREADS];
static void leave() {
  unsigned self = running;
  swapcontext(&fibers[self], &scheduler);
}
static void enter(unsigned t) { swapcontext(&scheduler, &fibers[t]); }
static void prepare_fiber(unsigned t, char* stack) {
  getcontext(&fibers[t]);
  fibers[t].uc_stack.ss_sp = stack;
  fibers[t].uc_stack.ss_size = STACK_BYTES;
  fibers[t].uc_link = &scheduler;
  makecontext(&fibers[t], begin, 0);
}

#endif

/* Waits until every thread of the block has come here. */
static inline void hand_over() { leave(); }

static void run_block(unsigned threads) {
  static char* stacks = (char*)aligned_alloc(64, (size_t)STACK_BYTES * MAX_THREADS);
  for (unsigned t = 0; t < threads; t++) {
    finished[t] = false;
    prepare_fiber(t, stacks + (size_t)STACK_BYTES * t);
  }
  for (unsigned left = threads; left > 0;) {
    left = 0;
    for (unsigned t = 0; t < threads; t++) {
      if (finished[t]) continue;
      running = t;
      threadIdx = dim3(t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y));
      enter(t);
      if (!finished[t]) left++;
    }
  }
}

static inline unsigned lane() { return running % 32; }

/* Shows `mine` to the warp, runs `read` on what the others show, and lets go when all have read. */
template <class T, class F> static auto exchange(const T& mine, F read) {
  unsigned self = running;
  offered[self] = &mine;
  hand_over();
  auto result = read([self](unsigned other) -> const T& { return *(const T*)offered[self / 32 * 32 + other]; });
  hand_over();
  return result;
}

}  // namespace emulation

template <class A> static void launch(void (*kernel)(A), dim3 grid, dim3 block, A argument) {
  struct Call {
    void (*kernel)(A);
    A argument;
  } call = {kernel, argument};
  gridDim = grid, blockDim = block;
  emulation::body = [](void* c) { ((Call*)c)->kernel(((Call*)c)->argument); };
  emulation::argument = &call;
  for (blockIdx.z = 0; blockIdx.z < grid.z; blockIdx.z++)
    for (blockIdx.y = 0; blockIdx.y < grid.y; blockIdx.y++)
      for (blockIdx.x = 0; blockIdx.x < grid.x; blockIdx.x++) emulation::run_block(block.x * block.y * block.z);
}

/* ---- the runtime library's part that generated kernels call; memory of host and device is one ----------------------------------- */

typedef int cudaError_t;
typedef void* cudaStream_t;
enum { cudaSuccess = 0, cudaErrorInvalidConfiguration = 9 };
enum cudaMemcpyKind { cudaMemcpyDefault = 4 };

namespace emulation {
template <class... A, size_t... I> static void call(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
  kernel(*(A*)arguments[I]...);
}
}  // namespace emulation

template <class... A>
static cudaError_t cudaLaunchKernel(void (*kernel)(A...), dim3 grid, dim3 block, void** arguments, size_t, cudaStream_t) {
  struct Call {
    void (*kernel)(A...);
    void** arguments;
  } call = {kernel, arguments};
  if (block.x * block.y * block.z > emulation::MAX_THREADS) return cudaErrorInvalidConfiguration;
  gridDim = grid, blockDim = block;
  emulation::body = [](void* c) {
    emulation::call(((Call*)c)->kernel, ((Call*)c)->arguments, std::make_index_sequence<sizeof...(A)>());
  };
  emulation::argument = &call;
  for (blockIdx.z = 0; blockIdx.z < grid.z; blockIdx.z++)
    for (blockIdx.y = 0; blockIdx.y < grid.y; blockIdx.y++)
      for (blockIdx.x = 0; blockIdx.x < grid.x; blockIdx.x++) emulation::run_block(block.x * block.y * block.z);
  return cudaSuccess;
}
template <class T> static cudaError_t cudaMemcpyToSymbolAsync(T& symbol, const void* from, size_t bytes, size_t, cudaMemcpyKind, cudaStream_t) {
  memcpy((void*)&symbol, from, bytes);
  return cudaSuccess;
}
static inline cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  memset(to, value, bytes);
  return cudaSuccess;
}

static inline void __syncthreads() { emulation::hand_over(); }
static inline void __syncwarp(unsigned = ~0u) { emulation::hand_over(); }

/* ---- shuffles: a lane whose source is outside its segment keeps its own value --------------------------------------------------- */

namespace emulation {
template <class T> static T shuffle(T value, int source, bool inside) {
  return exchange(value, [&](auto other) { return inside ? other(source) : value; });
}
}  // namespace emulation

template <class T> static T __shfl_down_sync(unsigned, T value, unsigned delta, int width = 32) {
  int lane = emulation::lane(), last = lane / width * width + width - 1;
  return emulation::shuffle(value, lane + delta, lane + (int)delta <= last);
}
template <class T> static T __shfl_up_sync(unsigned, T value, unsigned delta, int width = 32) {
  int lane = emulation::lane(), first = lane / width * width;
  return emulation::shuffle(value, lane - delta, lane - (int)delta >= first);
}
template <class T> static T __shfl_xor_sync(unsigned, T value, int mask, int width = 32) {
  int lane = emulation::lane(), other = lane ^ mask;
  return emulation::shuffle(value, other, other < lane / width * width + width);
}
template <class T> static T __shfl_sync(unsigned, T value, int source, int width = 32) {
  int lane = emulation::lane();
  return emulation::shuffle(value, lane / width * width + source % width, true);
}

/* ---- byte dot products --------------------------------------------------------------------------------------------------------- */

namespace emulation {
template <class A, class B> static unsigned dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 32; i += 8) c += (unsigned)((int)(A)(a >> i) * (int)(B)(b >> i));
  return c;
}
}  // namespace emulation
static inline int __dp4a(int a, int b, int c) { return emulation::dp4a<int8_t, int8_t>(a, b, c); }
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) { return emulation::dp4a<uint8_t, uint8_t>(a, b, c); }
static inline int dp4a_u8s8(int a, int b, int c) { return emulation::dp4a<uint8_t, int8_t>(a, b, c); }

/* ---- element types -------------------------------------------------------------------------------------------------------------- */

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

/* Sums of a matrix product: f16 sums are kept in f32 and rounded once, integers wrap. */
namespace emulation {
template <class T> struct Sum { typedef T Type; };
template <> struct Sum<__half> { typedef float Type; };
template <> struct Sum<int> { typedef unsigned Type; };
template <class C, class A, class B, class GetA, class GetB> static C dot(C c, int k, GetA a, GetB b) {
  typedef typename Sum<C>::Type S;
  S sum = (S)c;
  for (int i = 0; i < k; i++) sum += (S)(A)a(i) * (S)(B)b(i);
  return (C)sum;
}
}  // namespace emulation

/* ---- wmma ------------------------------------------------------------------------------------------------------------------------ */

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

/* ---- mma.sync: PTX ISA, Matrix Fragments for mma.m16n8kK; groupID = lane / 4, threadID_in_group = lane % 4 --------------------------- */

template <class T, int N> static void load_fragment(T (&reg)[N], const void* tile) {
  memcpy(reg, (const char*)tile + emulation::lane() * sizeof reg, sizeof reg);
}
template <class T, int N> static void store_fragment(void* tile, const T (&reg)[N]) {
  memcpy((char*)tile + emulation::lane() * sizeof reg, reg, sizeof reg);
}

namespace emulation {

/* Row and column of element i of a lane, as the manual lists them: a16 for .f16 and .bf16, a8 for bytes, a32 for .tf32. */
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

/* One warp's 16 x 8 x K product; A and B are the factors' types, C the sums'. */
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

#endif
