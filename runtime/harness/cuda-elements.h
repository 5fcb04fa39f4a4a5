/*
 * Data for checks on a device, in the harness and in packages' self-tests: draws inputs, and compares every element of
 * an output with a reference kernel's bounds (runtime/reference/reference-cuda.ts). Also runs under emulation.
 */

#include <cstdint>
#include <cstring>
#include <tuple>
#include <utility>

enum Type { U8, S8, U16, S16, U32, S32, F16, BF16, F32, F64, E4M3, E5M2 };

__host__ __device__ static float half_to_float(uint16_t x) {
  uint32_t sign = (uint32_t)(x & 0x8000) << 16, exponent = x >> 10 & 31, fraction = x & 0x3ff, bits;
  if (exponent == 31) bits = sign | 0x7f800000 | fraction << 13;
  else if (exponent != 0) bits = sign | (exponent + 112) << 23 | fraction << 13;
  else {
    float small = (float)fraction * 5.9604644775390625e-8f; /* 2^-24 */
    memcpy(&bits, &small, 4);
    bits |= sign;
  }
  float f;
  memcpy(&f, &bits, 4);
  return f;
}

__host__ __device__ static uint16_t float_to_half(float f) { /* to nearest, ties to even */
  uint32_t bits;
  memcpy(&bits, &f, 4);
  uint32_t sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
  if (rest >= 0x7f800000) return (uint16_t)(sign | 0x7c00 | (rest > 0x7f800000 ? 0x200 : 0));
  if (rest >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
  if (rest < 0x38800000) { /* below 2^-14: multiples of 2^-24 */
    float magic = 0.5f, small;
    memcpy(&small, &rest, 4);
    small += magic;
    uint32_t sum, base;
    memcpy(&sum, &small, 4);
    memcpy(&base, &magic, 4);
    return (uint16_t)(sign | (sum - base));
  }
  return (uint16_t)(sign | ((rest + 0xfff + (rest >> 13 & 1) - 0x38000000) >> 13));
}

/* A float of one byte: exponent and fraction of an f16, moved; 2^8 and 1 make up for another bias. */
__host__ __device__ static float byte_to_float(uint8_t x, Type type) {
  if (type == E5M2) return half_to_float((uint16_t)(x << 8));
  const uint16_t nan = (x & 0x7f) == 0x7f ? 0x7c00 : 0;
  return half_to_float((uint16_t)((x & 0x80) << 8 | (x & 0x7f) << 7 | nan)) * 256;
}

__host__ __device__ static uint8_t float_to_byte(float f, Type type) { /* the nearest, of equally near ones the even one */
  const float size = f < 0 ? -f : f;
  int least = 0, most = type == E5M2 ? 0x7b : 0x7e;
  while (least < most) { /* the first whose midpoint with the next is not below */
    const int bits = (least + most) / 2;
    const float between = (byte_to_float((uint8_t)bits, type) + byte_to_float((uint8_t)(bits + 1), type)) / 2;
    if (size < between || (size == between && bits % 2 == 0)) most = bits;
    else least = bits + 1;
  }
  uint32_t word;
  memcpy(&word, &f, 4);
  return (uint8_t)((word >> 24 & 0x80) | least);
}

__device__ static double element(const void* at, size_t i, Type type) {
  switch (type) {
    case U8: return ((const uint8_t*)at)[i];
    case S8: return ((const int8_t*)at)[i];
    case U16: return ((const uint16_t*)at)[i];
    case S16: return ((const int16_t*)at)[i];
    case U32: return ((const uint32_t*)at)[i];
    case S32: return ((const int32_t*)at)[i];
    case F16: return half_to_float(((const uint16_t*)at)[i]);
    case BF16: {
      uint32_t bits = (uint32_t)((const uint16_t*)at)[i] << 16;
      float f;
      memcpy(&f, &bits, 4);
      return f;
    }
    case E4M3:
    case E5M2: return byte_to_float(((const uint8_t*)at)[i], type);
    case F32: return ((const float*)at)[i];
    default: return ((const double*)at)[i];
  }
}

__device__ static uint64_t mixed(uint64_t x) { /* splitmix64 */
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

/*
 * exact      integers from `least` to `most`: small ones, so that every sum of products is exact
 * random     integers of the whole range, fractions between -1 and 1
 * extreme    the limits of integer types; floats of very unequal size, up to `most`
 */
enum Set { EXACT, RANDOM, EXTREME };
/* Tensor cores add products of floats of one byte exactly to 2^14 only. */
static inline double most_of(Set set, Type type) { return set == EXACT ? (type == E4M3 || type == E5M2 ? 1 : 3) : 16; }

__global__ void draw(void* to, size_t elements, Type type, bool tf32, Set set, uint64_t seed, double least, double most) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < elements; i += (size_t)gridDim.x * blockDim.x) {
    const uint64_t bits = mixed(mixed(seed) ^ i);
    const double unit = (double)(bits >> 11) * 0x1p-53; /* 0 <= unit < 1 */
    double value;
    bool whole = type <= S32;
    if (set == EXACT) {
      value = floor(unit * (most - least + 1)) + least;
      if (type == U8 || type == U16 || type == U32) value = fabs(value);
    } else if (whole) {
      const double low[] = {0, -128, 0, -32768, 0, -2147483648.0}, high[] = {255, 127, 65535, 32767, 4294967295.0, 2147483647.0};
      const int pick = (int)(unit * 10);
      if (set == RANDOM) value = low[type] + floor(unit * (high[type] - low[type] + 1));
      else value = pick < 4 ? high[type] : pick < 7 ? low[type] : pick == 7 ? high[type] - 1 : pick == 8 ? low[type] + 1 : 1;
    } else if (set == RANDOM) value = 2 * unit - 1;
    else {
      const double sizes[] = {most, most, 1, 0.015625, 0};
      value = sizes[(bits & 0xffff) % 5] * (0.5 + unit / 2) * (bits >> 20 & 1 ? 1 : -1);
    }
    switch (type) {
      case U8: ((uint8_t*)to)[i] = (uint8_t)value; break;
      case S8: ((int8_t*)to)[i] = (int8_t)value; break;
      case U16: ((uint16_t*)to)[i] = (uint16_t)value; break;
      case S16: ((int16_t*)to)[i] = (int16_t)value; break;
      case U32: ((uint32_t*)to)[i] = (uint32_t)value; break;
      case S32: ((int32_t*)to)[i] = (int32_t)value; break;
      case F16: ((uint16_t*)to)[i] = float_to_half((float)value); break;
      case BF16:
      case F32: {
        float f = (float)value;
        uint32_t word;
        memcpy(&word, &f, 4);
        if (tf32) word = (word + 0xfff + (word >> 13 & 1)) & ~0x1fffu;
        if (type == F32) ((uint32_t*)to)[i] = word;
        else ((uint16_t*)to)[i] = (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
        break;
      }
      case E4M3:
      case E5M2: ((uint8_t*)to)[i] = float_to_byte((float)value, type); break;
      default: ((double*)to)[i] = value;
    }
  }
}

struct Wrong {
  unsigned long long count, first;
};

/* Bounds are NaN where memory holds no element. A NaN element never passes. */
__global__ void compare(const void* got, Type type, size_t elements, const double* low, const double* high, Wrong* wrong) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < elements; i += (size_t)gridDim.x * blockDim.x) {
    if (low[i] != low[i]) continue;
    const double value = element(got, i, type);
    if (value >= low[i] && value <= high[i]) continue;
    atomicAdd(&wrong->count, 1ull);
    atomicMin(&wrong->first, (unsigned long long)i);
  }
}

__global__ void one_element(const void* got, Type type, size_t i, double* to) { *to = element(got, i, type); }

static constexpr size_t GUARD_BYTES = 256; /* on both sides of the output: what is written there is out of bounds */
static constexpr int POISON = 0xff; /* a NaN in every float type */

#ifdef AUTOMAP_EMULATED_CUDA
static constexpr int BLOCKS = 1, THREADS = 1;
#else
static constexpr int BLOCKS = 1024, THREADS = 256;
#endif

/* Whether inputs distinguish wrong answers from right ones. If not, the reference gives bounds that nothing passes. */
static bool tells(const double* low, const double* high) {
  double least = 0, most = 0;
  cudaMemcpy(&least, low, sizeof least, cudaMemcpyDeviceToHost);
  cudaMemcpy(&most, high, sizeof most, cudaMemcpyDeviceToHost);
  return !(least > most);
}

/* Starts a kernel like kernel<<<blocks, threads, 0, stream>>>(arguments...). */
template <class... P, size_t... I>
static cudaError_t start_with(void (*kernel)(P...), int blocks, int threads, cudaStream_t stream, std::tuple<P...> values,
                              std::index_sequence<I...>) {
  void* arguments[] = {(void*)&std::get<I>(values)...};
  return cudaLaunchKernel(kernel, dim3(blocks), dim3(threads), arguments, 0, stream);
}
