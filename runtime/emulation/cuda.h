/*
 * CUDA blocks on a CPU thread. A CUDA thread is a fiber that runs the kernel's own text until it waits for others, in
 * the orders of cuda-threads.h. cuda-memory.h has shared memory and conversions, cuda-matrix.h the matrix functions.
 *
 *     __global__ void shift(float* x) { x[threadIdx.x] = __shfl_down_sync(~0u, x[threadIdx.x], 1); }
 *     launch(shift, 1, 32, x);
 *
 * All threads of a warp must reach the same collectives in the same order. Written from the CUDA C++ Programming Guide
 * and the PTX ISA.
 */
#ifndef AUTOMAP_EMULATION_CUDA_H
#define AUTOMAP_EMULATION_CUDA_H
#define AUTOMAP_EMULATED_CUDA

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <utility>

/* The section of a kernel's static shared memory. A program of several kernels names a section for each. */
#define AUTOMAP_SHARED_SECTION "automap_shared"

#define __global__
#define __device__
#define __constant__
#if defined(__ELF__)
#define __shared__ static __attribute__((section(AUTOMAP_SHARED_SECTION)))
#else
#define __shared__ static
#endif
#define __host__
#define __launch_bounds__(...)
#define __restrict__
#define __forceinline__ inline
#define __align__(bytes) __attribute__((aligned(bytes)))

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
static dim3 threadIdx(0, 0, 0), blockIdx(0, 0, 0), blockDim, gridDim;

#include "cuda-threads.h"

#include "cuda-memory.h"

template <class A> static void launch(void (*kernel)(A), dim3 grid, dim3 block, A argument) {
  struct Call {
    void (*kernel)(A);
    A argument;
  } call = {kernel, argument};
  emulation::run_grid(grid, block, 0, [](void* c) { ((Call*)c)->kernel(((Call*)c)->argument); }, &call);
}

/* ---- the runtime library's part that generated kernels call; memory of host and device is one -------------------- */

typedef int cudaError_t;
typedef void* cudaStream_t;
enum { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorInvalidConfiguration = 9, cudaErrorMisalignedAddress = 716 };
enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

namespace emulation {
template <class... A, size_t... I> static void call(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
  kernel(*(A*)arguments[I]...);
}

/* Limit of a kernel's dynamic shared memory: 48 KiB unless it asks for more. */
struct Allowed {
  const void* kernel;
  size_t bytes;
};
static Allowed allowed[1024];
static int allowed_count;
static size_t allowed_bytes(const void* kernel) {
  for (int i = 0; i < allowed_count; i++)
    if (allowed[i].kernel == kernel) return allowed[i].bytes;
  return 48 * 1024;
}
}  // namespace emulation

#ifdef AUTOMAP_EMULATED_GRAPHS
#include <tuple>
namespace emulation {
/* The launches of a graph, in order. The list begins with an entry that runs nothing. */
struct Recorded {
  cudaError_t (*run)(void* what);
  void* what;
  Recorded* next;
  static Recorded* none() { return new Recorded{nullptr, nullptr, nullptr}; }
};
/* Launches of the stream being captured, shared by all sources of a program. */
inline Recorded* captured = nullptr;
inline cudaError_t record(cudaError_t (*run)(void*), void* what) {
  Recorded* last = captured;
  while (last->next) last = last->next;
  last->next = new Recorded{run, what, nullptr};
  return cudaSuccess;
}
}  // namespace emulation
#endif

/* Nothing to do: kernels run one after another. */
static inline void begin_next_kernel() {}
static inline void await_kernel_ahead() {}

template <class... A> static cudaError_t cudaFuncSetAttribute(void (*kernel)(A...), cudaFuncAttribute, int bytes) {
  using namespace emulation;
  if (bytes < 0 || bytes > MOST_SHARED_BYTES || allowed_count == 1024) return cudaErrorInvalidValue;
  allowed[allowed_count].kernel = (const void*)kernel;
  allowed[allowed_count++].bytes = (size_t)bytes;
  return cudaSuccess;
}

template <class... A>
static cudaError_t launch_with(void (*kernel)(A...), unsigned cluster, int, dim3 grid, dim3 block, void** arguments, size_t shared, cudaStream_t) {
  struct Call {
    void (*kernel)(A...);
    void** arguments;
  } call = {kernel, arguments};
  const unsigned threads = block.x * block.y * block.z;
  if (threads > emulation::MAX_BLOCK || threads * cluster > emulation::MAX_THREADS || cluster > emulation::MAX_CLUSTER || grid.x % cluster) return cudaErrorInvalidConfiguration;
  if (shared > emulation::allowed_bytes((const void*)kernel)) return cudaErrorInvalidValue;
#ifdef AUTOMAP_EMULATED_GRAPHS
  if (emulation::captured) {
    struct Later {
      void (*kernel)(A...);
      unsigned cluster;
      dim3 grid, block;
      std::tuple<A...> values;
      size_t shared;
    };
    auto values = [&]<size_t... I>(std::index_sequence<I...>) { return std::tuple<A...>(*(A*)arguments[I]...); }(std::make_index_sequence<sizeof...(A)>());
    auto run = [](void* what) -> cudaError_t {
      Later* l = (Later*)what;
      return std::apply([&](A&... each) {
        void* pointers[] = {(void*)&each..., nullptr};
        return launch_with(l->kernel, l->cluster, 0, l->grid, l->block, pointers, l->shared, nullptr);
      }, l->values);
    };
    return emulation::record(run, new Later{kernel, cluster, grid, block, values, shared});
  }
#endif
  auto body = [](void* c) {
    emulation::call(((Call*)c)->kernel, ((Call*)c)->arguments, std::make_index_sequence<sizeof...(A)>());
  };
  emulation::run_grid(grid, block, shared, body, &call, cluster);
  return cudaSuccess;
}
template <class... A>
static cudaError_t cudaLaunchKernel(void (*kernel)(A...), dim3 grid, dim3 block, void** arguments, size_t shared, cudaStream_t stream) {
  return launch_with(kernel, 1, 0, grid, block, arguments, shared, stream);
}
template <class T> static cudaError_t cudaMemcpyToSymbolAsync(T& symbol, const void* from, size_t bytes, size_t, cudaMemcpyKind, cudaStream_t) {
  memcpy((void*)&symbol, from, bytes);
  return cudaSuccess;
}
static inline cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  memset(to, value, bytes);
  return cudaSuccess;
}

/* ---- shuffles: a lane whose source is outside its segment keeps its own value ------------------------------------ */

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

/* A multiprocessor's counter, in nanoseconds here. */
static inline long long clock64() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ll + now.tv_nsec;
}

/* ---- byte dot products ------------------------------------------------------------------------------------------- */

namespace emulation {
template <class A, class B> static unsigned dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 32; i += 8) c += (unsigned)((int)(A)(a >> i) * (int)(B)(b >> i));
  return c;
}
}  // namespace emulation
static inline int __dp4a(int a, int b, int c) { return emulation::dp4a<int8_t, int8_t>(a, b, c); }
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) { return emulation::dp4a<uint8_t, uint8_t>(a, b, c); }
static inline int dp4a_u8s8(int a, int b, int c) { return emulation::dp4a<uint8_t, int8_t>(a, b, c); }
static inline float widened_f16(uint16_t bits) { return from_f16(bits); }
static inline float widened_bf16(uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  float f;
  memcpy(&f, &wide, 4);
  return f;
}

#include "cuda-matrix.h"

#include "cuda-group.h"

#include "cuda-engine.h"

#endif
