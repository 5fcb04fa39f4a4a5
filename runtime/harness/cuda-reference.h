/* Kernels that compute bounds, one thread for each point. Needs arithmetic.h. */

/* Elements as they lie in memory, read as the numbers that the interpreter sees. */
template <class T, class Number> struct Stored {
  const T* data;
  AUTOMAP_FUNCTION Number operator[](Int at) const { return Number(data[at]); }
};
struct Half {
  uint16_t bits;
  AUTOMAP_FUNCTION explicit operator double() const {
    const int exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    const double size = exponent == 31 ? (fraction ? not_a_number : infinity)
        : exponent == 0 ? __builtin_ldexp(double(fraction), -24) : __builtin_ldexp(double(fraction + 1024), exponent - 25);
    return bits & 0x8000 ? -size : size;
  }
};
/* A float of one byte, F of arithmetic.h. */
template <class F> struct Byte {
  uint8_t bits;
  AUTOMAP_FUNCTION explicit operator double() const { return F::decoded(bits); }
};
struct Brain {
  uint16_t bits;
  AUTOMAP_FUNCTION explicit operator double() const {
    union { uint32_t word; float value; } both = {(uint32_t)bits << 16};
    return double(both.value);
  }
};

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
