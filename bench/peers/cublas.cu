/*
 * cuBLAS with the interface of automap's kernels, so that it is checked and timed in turns with them:
 * c[M][N] = a[M][K] b[K][N], or b[N][K] if it is transposed, with f32 sums. Of e4m3, c is bf16, b is transposed, and cuBLASLt
 * computes with fast accumulation: sums that stay in the tensor cores, as automap's do; its first choice of algorithm. With BLOCKS, each row
 * and group of 128 of a and each block of 128 x 128 of b has a scale, rows of a innermost.
 *
 *     nvcc -shared -Xcompiler -fPIC -DM=4096 -DN=4096 -DK=4096 -DTYPE=CUDA_R_16F -DTRANSPOSED=0 -o cublas.so cublas.cu -lcublas
 *     nvcc -shared -Xcompiler -fPIC -DM=4096 -DN=4096 -DK=4096 -DE4M3 -o cublas.so cublas.cu -lcublasLt        -DBLOCKS
 */

#include <cuda_runtime.h>

static const unsigned long WORKSPACE = 32ul << 20; /* what NVIDIA recommends for Hopper */

extern "C" unsigned long automap_workspace_bytes(void) { return WORKSPACE; }

/* Column-major order: this is the product of b and a. */
#ifdef E4M3
#include <cublasLt.h>

static cublasLtHandle_t handle;
static cublasLtMatmulDesc_t product;
static cublasLtMatrixLayout_t left, right, result;
static cublasLtMatmulHeuristicResult_t chosen;

#ifdef BLOCKS
static bool scaled(const void* ofRows, const void* ofBlocks) {
  const cublasLtMatmulMatrixScale_t blocks = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F, rows = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
  const cublasStatus_t all[] = {
      cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &blocks, sizeof blocks),
      cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &rows, sizeof rows),
      cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &ofBlocks, sizeof ofBlocks),
      cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &ofRows, sizeof ofRows),
  };
  for (const cublasStatus_t status : all)
    if (status != CUBLAS_STATUS_SUCCESS) return false;
  return true;
}
static const int8_t fast = 0;
#else
static bool scaled(const void*, const void*) { return true; }
static const int8_t fast = 1;
#endif

/* The heuristic does not read the scales: any place will do. */
static const void* const SOMEWHERE = (const void*)256;

static bool made() {
  const cublasOperation_t transposed = CUBLAS_OP_T;
  const size_t workspace = WORKSPACE;
  cublasLtMatmulPreference_t preference;
  int found = 0;
  const cublasStatus_t all[] = {
      cublasLtCreate(&handle),
      cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
      cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
      cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast),
      scaled(SOMEWHERE, SOMEWHERE) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED,
      cublasLtMatrixLayoutCreate(&left, CUDA_R_8F_E4M3, K, N, K),
      cublasLtMatrixLayoutCreate(&right, CUDA_R_8F_E4M3, K, M, K),
      cublasLtMatrixLayoutCreate(&result, CUDA_R_16BF, N, M, N),
      cublasLtMatmulPreferenceCreate(&preference),
      cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace),
      cublasLtMatmulAlgoGetHeuristic(handle, product, left, right, result, result, preference, 1, &chosen, &found),
  };
  for (const cublasStatus_t status : all)
    if (status != CUBLAS_STATUS_SUCCESS) return false;
  return found == 1;
}

extern "C" int automap_prepare(void*, const void* const*, cudaStream_t) {
  static const bool ready = made();
  return ready ? cudaSuccess : cudaErrorInitializationError;
}

extern "C" int automap_launch(void* workspace, void* const* tensors, cudaStream_t stream) {
  const float one = 1, zero = 0;
#ifdef BLOCKS
  if (!scaled(tensors[3], tensors[4])) return cudaErrorInvalidValue;
#endif
  const cublasStatus_t status =
      cublasLtMatmul(handle, product, &one, tensors[2], left, tensors[1], right, &zero, tensors[0], result, tensors[0], result,
                     &chosen.algo, workspace, WORKSPACE, stream);
  return status == CUBLAS_STATUS_SUCCESS ? cudaSuccess : cudaErrorUnknown;
}
#else
#include <cublas_v2.h>

static cublasHandle_t handle;

extern "C" int automap_prepare(void* workspace, const void* const*, cudaStream_t) {
  if (!handle && cublasCreate(&handle) != CUBLAS_STATUS_SUCCESS) return cudaErrorInitializationError;
  return cublasSetWorkspace(handle, workspace, WORKSPACE) == CUBLAS_STATUS_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

extern "C" int automap_launch(void* workspace, void* const* tensors, cudaStream_t stream) {
  const float one = 1, zero = 0;
  if (cublasSetStream(handle, stream) != CUBLAS_STATUS_SUCCESS) return cudaErrorInvalidValue;
  if (cublasSetWorkspace(handle, workspace, WORKSPACE) != CUBLAS_STATUS_SUCCESS) return cudaErrorInvalidValue;
  const cublasStatus_t status =
      cublasGemmEx(handle, TRANSPOSED ? CUBLAS_OP_T : CUBLAS_OP_N, CUBLAS_OP_N, N, M, K, &one, tensors[2], TYPE, TRANSPOSED ? K : N,
                   tensors[1], TYPE, K, &zero, tensors[0], TYPE, N, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  return status == CUBLAS_STATUS_SUCCESS ? cudaSuccess : cudaErrorUnknown;
}
#endif
