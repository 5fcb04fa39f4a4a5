/*
 * What the host's part of a CUDA kernel calls, where that part is compiled without CUDA's headers (runtime/run/cuda-parts.ts): functions of the
 * runtime, by way of the driver, which the measuring process has loaded. Kernels and constants are known by their names in the code, which is
 * the file CODE. Declarations: CUDA driver API and CUDA runtime API.
 */

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

typedef int CUresult;
typedef int cudaError_t;
typedef struct CUstream_st* cudaStream_t;
typedef struct CUfunc_st* CUfunction;
typedef struct CUmod_st* CUmodule;
typedef unsigned long long CUdeviceptr;
typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;
typedef struct { alignas(128) uint64_t opaque[16]; } CUtensorMap;

enum : int {
  CUDA_SUCCESS = 0,
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMisalignedAddress = 716,
  cudaErrorNotSupported = 801,
  cudaEnableDefault = 0,
  cudaMemcpyDefault = 4,
};
typedef int cudaDriverEntryPointQueryResult;
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaLaunchAttributeID { cudaLaunchAttributeClusterDimension = 4, cudaLaunchAttributeProgrammaticStreamSerialization = 6 };
enum CUtensorMapDataType { CU_TENSOR_MAP_DATA_TYPE_UINT8 = 0, CU_TENSOR_MAP_DATA_TYPE_UINT16 = 1, CU_TENSOR_MAP_DATA_TYPE_UINT32 = 2 };
enum CUtensorMapInterleave { CU_TENSOR_MAP_INTERLEAVE_NONE = 0 };
enum CUtensorMapSwizzle {
  CU_TENSOR_MAP_SWIZZLE_NONE = 0, CU_TENSOR_MAP_SWIZZLE_32B = 1, CU_TENSOR_MAP_SWIZZLE_64B = 2, CU_TENSOR_MAP_SWIZZLE_128B = 3
};
enum CUtensorMapL2promotion { CU_TENSOR_MAP_L2_PROMOTION_L2_256B = 3 };
enum CUtensorMapFloatOOBfill { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0 };

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  alignas(8) union {
    char pad[64];
    struct { unsigned x, y, z; } clusterDim;
    int programmaticStreamSerializationAllowed;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim = 1, blockDim = 1;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};
struct CUlaunchConfig {
  dim3 grid, block;
  unsigned sharedMemBytes;
  cudaStream_t hStream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

extern "C" {
CUresult cuModuleLoadData(CUmodule* module, const void* image);
CUresult cuModuleUnload(CUmodule module);
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name);
CUresult cuModuleGetGlobal_v2(CUdeviceptr* at, size_t* bytes, CUmodule module, const char* name);
CUresult cuFuncSetAttribute(CUfunction function, cudaFuncAttribute attribute, int value);
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** arguments, void** extra);
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, cudaStream_t stream);
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, cudaStream_t stream);
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* tensor, const cuuint64_t* extents,
                                const cuuint64_t* pitches, const cuuint32_t* box, const cuuint32_t* steps, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill);
CUresult cuTensorMapEncodeIm2col(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* tensor, const cuuint64_t* extents,
                                 const cuuint64_t* pitches, const int* first, const int* last, cuuint32_t columns, cuuint32_t count,
                                 const cuuint32_t* steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                 CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill);
}

/* Values of a function that a driver lacks: cudaErrorNotSupported. */
template <class F> static F in_driver(F, const char* name) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  return driver ? (F)dlsym(driver, name) : nullptr;
}
template <class R, class... P, class... A> static R asked(R (*function)(P...), A... arguments) {
  return function ? function(arguments...) : cudaErrorNotSupported;
}
#define DRIVER(name, ...) asked([] { static const auto found = in_driver((decltype(&name))nullptr, #name); return found; }(), __VA_ARGS__)

/* The code of the device, where the toolkit's own programs look for it. */
extern "C" __attribute__((visibility("hidden"))) const unsigned char automap_code[];
asm(".section .nv_fatbin, \"a\"\n.balign 8\n.globl automap_code\n.hidden automap_code\nautomap_code:\n.incbin \"" CODE "\"\n.text");
static CUmodule module_of_code = nullptr;
static cudaError_t load_code() { return module_of_code ? cudaSuccess : DRIVER(cuModuleLoadData, &module_of_code, (const void*)automap_code); }
__attribute__((destructor)) static void unload_code() {
  if (module_of_code) DRIVER(cuModuleUnload, module_of_code);
}
/* A kernel by its name, which is looked up once. */
static cudaError_t find_kernel(CUfunction* function, const void* name) {
  static struct { const void* name; CUfunction function; } known[16];
  static unsigned count = 0;
  for (unsigned i = 0; i < count; i++)
    if (known[i].name == name) return *function = known[i].function, cudaSuccess;
  cudaError_t error = load_code();
  if (!error) error = DRIVER(cuModuleGetFunction, function, module_of_code, (const char*)name);
  if (!error && count < 16) known[count++] = {name, *function};
  return error;
}

[[maybe_unused]] static cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  CUfunction function = nullptr;
  const cudaError_t error = find_kernel(&function, kernel);
  return error ? error : DRIVER(cuFuncSetAttribute, function, attribute, value);
}
[[maybe_unused]] static cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** arguments) {
  CUfunction function = nullptr;
  const cudaError_t error = find_kernel(&function, kernel);
  const CUlaunchConfig own = {config->gridDim, config->blockDim, (unsigned)config->dynamicSmemBytes, config->stream, config->attrs, config->numAttrs};
  return error ? error : DRIVER(cuLaunchKernelEx, &own, function, arguments, (void**)nullptr);
}
[[maybe_unused]] static cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared, cudaStream_t stream) {
  const cudaLaunchConfig_t config = {grid, block, shared, stream, nullptr, 0};
  return cudaLaunchKernelExC(&config, kernel, arguments);
}
[[maybe_unused]] static cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return DRIVER(cuMemsetD8Async, (CUdeviceptr)to, (unsigned char)value, bytes, stream);
}
[[maybe_unused]] static cudaError_t cudaMemcpyToSymbolAsync(const void* constant, const void* from, size_t bytes, size_t offset, int, cudaStream_t stream) {
  CUdeviceptr at = 0;
  size_t size = 0;
  cudaError_t error = load_code();
  if (!error) error = DRIVER(cuModuleGetGlobal_v2, &at, &size, module_of_code, (const char*)constant);
  return error ? error : DRIVER(cuMemcpyAsync, at + offset, (CUdeviceptr)from, bytes, stream);
}
[[maybe_unused]] static cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** found, unsigned, unsigned long long, int*) {
  *found = (void*)in_driver((void (*)())nullptr, name);
  return *found ? cudaSuccess : cudaErrorNotSupported;
}
