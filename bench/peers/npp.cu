/*
 * NPP's one-channel filters beside a copy of the same image, in turns: a line of JSON for each side from 2 to 20.
 *
 *     nvcc -O3 -arch=native -o npp npp.cu -lnppif -lnppc && ./npp 8192
 *
 * Results are compared with a plain kernel's away from the border, where NPP repeats the edge and automap has 0. Data
 * are small integers, so sums are exact in any order. Times are medians of 15.
 */

#include <npp.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

static const int ROUNDS = 15, WARM = 3;

static void require(bool holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "npp: %s failed: %s\n", what, cudaGetErrorString(cudaGetLastError()));
  exit(1);
}

__global__ void small_integers(float* to, size_t count) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
    to[i] = (float)((int)((i * 2654435761u >> 7) % 7) - 3);
}

/// Compares with a filter that is flipped or not (`turned`), centred on either middle of an even window (`anchor`).
__global__ void compare(const float* got, const float* in, const float* kernel, int k, int side, bool turned, int anchor, unsigned long long* wrong) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
  if (x < k || y < k || x >= side - k || y >= side - k) return;
  float sum = 0;
  for (int r = 0; r < k; r++)
    for (int s = 0; s < k; s++) {
      const int i = turned ? y + anchor - r : y + r - anchor, j = turned ? x + anchor - s : x + s - anchor;
      sum += in[(size_t)i * side + j] * kernel[r * k + s];
    }
  if (got[(size_t)y * side + x] != sum) atomicAdd(wrong, 1ull);
}

template <class F> static float milliseconds(F work) {
  static cudaEvent_t begin, end;
  static const bool made = cudaEventCreate(&begin) == cudaSuccess && cudaEventCreate(&end) == cudaSuccess;
  require(made, "an event");
  cudaEventRecord(begin);
  work();
  cudaEventRecord(end);
  require(cudaEventSynchronize(end) == cudaSuccess, "a timed call");
  float ms = 0;
  cudaEventElapsedTime(&ms, begin, end);
  return ms;
}

static float median(std::vector<float> ms) {
  std::sort(ms.begin(), ms.end());
  return ms[ms.size() / 2];
}

int main(int argc, char** argv) {
  const int side = argc > 1 ? atoi(argv[1]) : 8192, largest = 20;
  const size_t count = (size_t)side * side;
  float *in, *out, *kernel;
  unsigned long long* wrong;
  require(cudaMalloc(&in, count * 4) == cudaSuccess && cudaMalloc(&out, count * 4) == cudaSuccess &&
              cudaMalloc(&kernel, largest * largest * 4) == cudaSuccess && cudaMallocManaged(&wrong, sizeof *wrong) == cudaSuccess,
          "memory");
  small_integers<<<1024, 256>>>(in, count);
  small_integers<<<1, 256>>>(kernel, largest * largest);
  NppStreamContext context{};
  cudaDeviceProp device;
  require(cudaGetDeviceProperties(&device, 0) == cudaSuccess, "asking the device");
  context.nMultiProcessorCount = device.multiProcessorCount;
  context.nMaxThreadsPerMultiProcessor = device.maxThreadsPerMultiProcessor;
  context.nMaxThreadsPerBlock = device.maxThreadsPerBlock;
  context.nSharedMemPerBlock = device.sharedMemPerBlock;
  context.nCudaDevAttrComputeCapabilityMajor = device.major;
  context.nCudaDevAttrComputeCapabilityMinor = device.minor;
  const NppiSize image{side, side};
  for (int k = 2; k <= largest; k++) {
    NppStatus status = NPP_SUCCESS;
    auto filter = [&] {
      status = nppiFilterBorder_32f_C1R_Ctx(in, side * 4, image, NppiPoint{0, 0}, out, side * 4, image, kernel, NppiSize{k, k},
                                            NppiPoint{k / 2, k / 2}, NPP_BORDER_REPLICATE, context);
    };
    require(cudaMemset(out, 0xff, count * 4) == cudaSuccess, "a poisoned output");
    filter();
    unsigned long long differing = ~0ull;
    for (int way = 0; way < 4; way++) {
      *wrong = 0;
      const int anchor = way / 2 ? k - 1 - k / 2 : k / 2;
      compare<<<dim3((side + 255) / 256, side), 256>>>(out, in, kernel, k, side, way % 2 == 0, anchor, wrong);
      require(cudaDeviceSynchronize() == cudaSuccess, "a comparison");
      differing = std::min(differing, *wrong);
    }
    std::vector<float> filtered, copied;
    for (int i = 0; i < WARM + ROUNDS; i++) {
      const float own = milliseconds(filter);
      const float copy = milliseconds([&] { cudaMemcpyAsync(out, in, count * 4, cudaMemcpyDeviceToDevice); });
      if (i >= WARM) filtered.push_back(own), copied.push_back(copy);
    }
    printf("{\"kind\":\"npp\",\"case\":\"filter %d\",\"status\":%d,\"wrong\":%llu,\"ms\":%.5f,\"copyMs\":%.5f}\n", k, (int)status, differing,
           median(filtered), median(copied));
    fflush(stdout);
  }
}
