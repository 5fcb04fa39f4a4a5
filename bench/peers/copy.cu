/*
 * A copy on the device as a kernel of automap's interface, so that it is checked and timed as generated ones are: the bound of what reads and
 * writes every element once.
 *
 *     nvcc -shared -Xcompiler -fPIC -O3 -DBYTES=268435456 [-DBY_KERNEL] -o copy.so copy.cu
 *
 * By the runtime's own copy, or by a kernel that moves 16 bytes a thread.
 */

#include <cuda_runtime.h>

__global__ void copy(float4* out, const float4* in, unsigned long count) {
  for (unsigned long i = blockIdx.x * (unsigned long)blockDim.x + threadIdx.x; i < count; i += (unsigned long)gridDim.x * blockDim.x)
    out[i] = in[i];
}

extern "C" unsigned long automap_workspace_bytes(void) { return 64; }

extern "C" int automap_prepare(void*, const void* const*, cudaStream_t) { return cudaSuccess; }

extern "C" int automap_launch(void*, void* const* tensors, cudaStream_t stream) {
#ifdef BY_KERNEL
  copy<<<BYTES / 16 / 256, 256, 0, stream>>>((float4*)tensors[0], (const float4*)tensors[1], BYTES / 16);
  return cudaGetLastError();
#else
  return cudaMemcpyAsync(tensors[0], tensors[1], BYTES, cudaMemcpyDeviceToDevice, stream);
#endif
}
