/*
 * The rest of CUDA's runtime library that harness/cuda.cu and packages call, without a GPU. Host and device share
 * memory, which ends at an inaccessible page; streams run at once. Graphs record nothing and take no time, unless
 * AUTOMAP_EMULATED_GRAPHS is defined: then a captured launch runs with its graph. Times have no meaning here.
 */
#ifndef AUTOMAP_EMULATION_CUDA_RUNTIME_H
#define AUTOMAP_EMULATION_CUDA_RUNTIME_H

#include "cuda.h"

#include <sys/mman.h>
#include <time.h>

typedef void* cudaGraph_t;
typedef void* cudaGraphExec_t;
typedef double* cudaEvent_t;
enum { cudaStreamCaptureModeThreadLocal = 1 };
static const cudaMemcpyKind cudaMemcpyHostToDevice = cudaMemcpyDefault, cudaMemcpyDeviceToHost = cudaMemcpyDefault,
                            cudaMemcpyDeviceToDevice = cudaMemcpyDefault;
/* CUDA Runtime API, Data types, enum cudaError: the ones that the harness distinguishes and cuda.h does not define. */
#define AUTOMAP_CUDA_ERRORS(E)                                                                                        \
  E(MemoryAllocation, 2) E(InsufficientDriver, 35) E(DevicesUnavailable, 46) E(InvalidDeviceFunction, 98) E(NoDevice, 100) \
  E(InvalidDevice, 101) E(NoKernelImageForDevice, 209) E(ECCUncorrectable, 214) E(NvlinkUncorrectable, 220)           \
  E(IllegalAddress, 700) E(LaunchOutOfResources, 701) E(LaunchTimeout, 702) E(HardwareStackError, 714)                \
  E(IllegalInstruction, 715) E(InvalidAddressSpace, 717) E(CooperativeLaunchTooLarge, 720) E(SystemNotReady, 802)     \
  E(SystemDriverMismatch, 803) E(CompatNotSupportedOnDevice, 804)
#define AUTOMAP_ENUMERATOR(name, number) cudaError##name = number,
enum { AUTOMAP_CUDA_ERRORS(AUTOMAP_ENUMERATOR) };
#undef AUTOMAP_ENUMERATOR

static inline const char* cudaGetErrorName(cudaError_t error) {
  switch ((int)error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
#define AUTOMAP_NAME(name, number) case number: return "cudaError" #name;
    AUTOMAP_CUDA_ERRORS(AUTOMAP_NAME)
#undef AUTOMAP_NAME
    default: return "cudaError";
  }
}
static inline const char* cudaGetErrorString(cudaError_t) { return "of the emulated device"; }
static inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
static inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
static inline cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
enum cudaDeviceAttr { cudaDevAttrComputeCapabilityMajor = 75, cudaDevAttrComputeCapabilityMinor = 76 };
/* Attributes of the emulated device as in runtime/run/cuda-device.ts. */
static inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int) {
  return *value = which == cudaDevAttrComputeCapabilityMajor ? 9 : 0, cudaSuccess;
}
static inline cudaError_t cudaStreamCreate(cudaStream_t* stream) { return *stream = nullptr, cudaSuccess; }
static inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
static inline cudaError_t cudaGetLastError() { return cudaSuccess; }

/* Like cudaMalloc's, the memory starts at a multiple of 256 bytes. Accesses up to the next multiple go unnoticed. */
static inline cudaError_t cudaMalloc(void** memory, size_t bytes) {
  const size_t page = 4096, aligned = (bytes + 255) / 256 * 256, whole = (aligned + page - 1) / page * page;
  char* at = (char*)mmap(nullptr, whole + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return cudaErrorMemoryAllocation;
  mprotect(at, page, PROT_NONE);
  mprotect(at + page + whole, page, PROT_NONE);
  *memory = at + page + whole - aligned;
  return cudaSuccess;
}
static inline cudaError_t cudaMemset(void* to, int value, size_t bytes) { return memset(to, value, bytes), cudaSuccess; }
static inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  return memcpy(to, from, bytes), cudaSuccess;
}

static inline cudaError_t cudaEventCreate(cudaEvent_t* event) { return *event = new double(0), cudaSuccess; }
static inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  *event = now.tv_sec * 1e3 + now.tv_nsec / 1e6;
  return cudaSuccess;
}
static inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
static inline cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
static inline cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  return *ms = (float)(*end - *begin), cudaSuccess;
}

static inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
static inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
static inline cudaError_t cudaFree(void*) { return cudaSuccess; }
static inline cudaError_t cudaMemGetInfo(size_t* free, size_t* all) { return *free = *all = (size_t)1 << 40, cudaSuccess; }
#ifdef AUTOMAP_EMULATED_GRAPHS
static inline cudaError_t cudaStreamBeginCapture(cudaStream_t, int) { return emulation::captured = emulation::Recorded::none(), cudaSuccess; }
static inline cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  *graph = emulation::captured;
  emulation::captured = nullptr;
  return cudaSuccess;
}
static inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, int) { return *exec = graph, cudaSuccess; }
static inline cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t) {
  for (auto* one = ((emulation::Recorded*)exec)->next; one; one = one->next)
    if (cudaError_t error = one->run(one->what)) return error;
  return cudaSuccess;
}
static inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t) {
  struct Move {
    void* to;
    const void* from;
    size_t bytes;
  };
  auto move = [](void* what) -> cudaError_t {
    const Move* m = (const Move*)what;
    return memcpy(m->to, m->from, m->bytes), cudaSuccess;
  };
  Move now = {to, from, bytes};
  return emulation::captured ? emulation::record(move, new Move(now)) : move(&now);
}
#else
static inline cudaError_t cudaStreamBeginCapture(cudaStream_t, int) { return cudaSuccess; }
static inline cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) { return *graph = nullptr, cudaSuccess; }
static inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t, int) { return *exec = nullptr, cudaSuccess; }
static inline cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
#endif
static inline cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
static inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }

template <class T> static T atomicAdd(T* at, T value) {
  const T old = *at;
  *at += value;
  return old;
}
template <class T> static T atomicMin(T* at, T value) {
  const T old = *at;
  if (value < old) *at = value;
  return old;
}

#endif
