/*
 * cuBLAS with the interface of automap's kernels, so that it is checked and timed in turns with them:
 * c[M][N] = a[M][K] b[K][N], or b[N][K] if it is transposed, with f32 sums.
 *
 *     nvcc -shared -Xcompiler -fPIC -DM=4096 -DN=4096 -DK=4096 -DTYPE=CUDA_R_16F -DTRANSPOSED=0 -o cublas.so cublas.cu -lcublas
 */

#include <cublas_v2.h>
#include <cuda_runtime.h>

static cublasHandle_t handle;
static const unsigned long WORKSPACE = 32ul << 20; /* what NVIDIA recommends for Hopper */

extern "C" unsigned long automap_workspace_bytes(void) { return WORKSPACE; }

extern "C" int automap_prepare(void* workspace, const void* const*, cudaStream_t) {
  if (!handle && cublasCreate(&handle) != CUBLAS_STATUS_SUCCESS) return cudaErrorInitializationError;
  return cublasSetWorkspace(handle, workspace, WORKSPACE) == CUBLAS_STATUS_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

extern "C" int automap_launch(void* workspace, void* const* tensors, cudaStream_t stream) {
  const float one = 1, zero = 0;
  if (cublasSetStream(handle, stream) != CUBLAS_STATUS_SUCCESS) return cudaErrorInvalidValue;
  if (cublasSetWorkspace(handle, workspace, WORKSPACE) != CUBLAS_STATUS_SUCCESS) return cudaErrorInvalidValue;
  /* In column-major order this is the product of b and a. */
  const cublasStatus_t status =
      cublasGemmEx(handle, TRANSPOSED ? CUBLAS_OP_T : CUBLAS_OP_N, CUBLAS_OP_N, N, M, K, &one, tensors[2], TYPE, TRANSPOSED ? K : N,
                   tensors[1], TYPE, K, &zero, tensors[0], TYPE, N, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  return status == CUBLAS_STATUS_SUCCESS ? cudaSuccess : cudaErrorUnknown;
}
