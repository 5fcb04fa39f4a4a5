/* Kernels that compute bounds, one thread for each point. Needs arithmetic.h. */

template <class... P> static int launch(void (*kernel)(P...), Int threads, cudaStream_t stream, P... given) {
  void* arguments[] = {(void*)&given...};
  const int block = threads < 256 ? int(threads) : 256;
  return (int)cudaLaunchKernel(kernel, dim3((unsigned)((threads + block - 1) / block)), dim3(block), arguments, 0, stream);
}

static __device__ Int own_point() { return (Int)blockIdx.x * blockDim.x + threadIdx.x; }

/* Writes the bounds of each element of a part of a computation. */
template <class Part> __global__ void bounds(Part part, double* low, double* high, int exact) {
  const Int point = own_point();
  if (point < Part::points) part.bound(point, low, high, exact);
}
