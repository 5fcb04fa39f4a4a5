// Verifies and times the kernels of cases.h; one line of JSON a kernel. Written to a folder by cuda-ssam.ts.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#ifdef WITH_NPP
#include <npp.h>
#endif

struct Tap { int y, x, weight; };
struct Variant {
  const char* label;
  int (*prepare)(void*, const void* const*, cudaStream_t);
  int (*launch)(void*, void* const*, cudaStream_t);
};
struct Case {
  const char* name;
  int side;
  int npp;  // side of a full filter, which NPP has; 0 for a stencil
  const Tap* taps;
  int tap_count, weight_count;
  const Variant* variants;
  int variant_count;
};
#include "cases.h"

static const int ROUNDS = 30, WARM = 3;

static void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  exit(1);
}

__global__ void naive(float* out, const float* in, const float* w, const Tap* taps, int count, int side) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
  if (x >= side) return;
  float sum = 0;
  for (int t = 0; t < count; t++) {
    const int i = y + taps[t].y, j = x + taps[t].x;
    if (i >= 0 && i < side && j >= 0 && j < side) sum += in[(size_t)i * side + j] * w[taps[t].weight];
  }
  out[(size_t)y * side + x] = sum;
}

__global__ void copy(float4* out, const float4* in, size_t count) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) out[i] = in[i];
}

__global__ void differences(const float* a, const float* b, size_t count, unsigned long long* wrong) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
    if (!(a[i] == b[i])) atomicAdd(wrong, 1ull);
}

/// As `differences`, at least `border` places inside: NPP repeats the edge where automap has 0.
__global__ void interior_differences(const float* a, const float* b, int side, int border, unsigned long long* wrong) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
  if (x < border || x >= side - border || y < border || y >= side - border) return;
  const size_t i = (size_t)y * side + x;
  if (!(a[i] == b[i])) atomicAdd(wrong, 1ull);
}

struct Times {
  std::vector<float> ms;
  float at(double q) {
    std::sort(ms.begin(), ms.end());
    return ms.empty() ? 0 : ms[(size_t)(q * (ms.size() - 1))];
  }
};

template <class F> static float timed(F work) {
  static cudaEvent_t begin = nullptr, end = nullptr;
  if (!begin) { cudaEventCreate(&begin); cudaEventCreate(&end); }
  cudaEventRecord(begin);
  work();
  cudaEventRecord(end);
  check(cudaEventSynchronize(end), "a timed kernel");
  float ms = 0;
  cudaEventElapsedTime(&ms, begin, end);
  return ms;
}

/// Counts the elements that differ between two images on the device.
template <class F> static unsigned long long count_wrong(F compare) {
  static unsigned long long* wrong = nullptr;
  if (!wrong) cudaMalloc(&wrong, sizeof *wrong);
  cudaMemset(wrong, 0, sizeof *wrong);
  compare(wrong);
  unsigned long long result = 0;
  check(cudaMemcpy(&result, wrong, sizeof result, cudaMemcpyDeviceToHost), "a comparison");
  return result;
}

static void run(const Case& c) {
  const size_t n = (size_t)c.side * c.side;
  // 1. Small integers: sums are exact in any order.
  std::vector<float> in(n), w(c.weight_count), back(n);
  unsigned state = 1;
  auto next = [&] { state = state * 1664525u + 1013904223u; return (float)((int)(state >> 24) % 7 - 3); };
  for (float& x : in) x = next();
  for (float& x : w) x = next();
  float *d_in, *d_w, *d_out, *d_want;
  Tap* d_taps;
  void* workspace;
  check(cudaMalloc(&workspace, 4096), "memory");
  check(cudaMalloc(&d_in, n * 4), "memory"); check(cudaMalloc(&d_out, n * 4), "memory"); check(cudaMalloc(&d_want, n * 4), "memory");
  check(cudaMalloc(&d_w, w.size() * 4), "memory"); check(cudaMalloc(&d_taps, c.tap_count * sizeof(Tap)), "memory");
  cudaMemcpy(d_in, in.data(), n * 4, cudaMemcpyHostToDevice);
  cudaMemcpy(d_w, w.data(), w.size() * 4, cudaMemcpyHostToDevice);
  cudaMemcpy(d_taps, c.taps, c.tap_count * sizeof(Tap), cudaMemcpyHostToDevice);

  // 2. The naive kernel against the CPU: the first and last 64 rows and 64 between.
  const dim3 grid((c.side + 255) / 256, c.side);
  naive<<<grid, 256>>>(d_want, d_in, d_w, d_taps, c.tap_count, c.side);
  check(cudaMemcpy(back.data(), d_want, n * 4, cudaMemcpyDeviceToHost), "the naive kernel");
  std::vector<int> rows;
  for (int i = 0; i < 64; i++) {
    rows.push_back(i % c.side);
    rows.push_back(std::max(0, c.side - 1 - i));
    rows.push_back((int)((long long)i * c.side / 64));
  }
  long long bad = 0;
#pragma omp parallel for reduction(+ : bad)
  for (size_t r = 0; r < rows.size(); r++)
    for (int x = 0; x < c.side; x++) {
      double sum = 0;
      for (int t = 0; t < c.tap_count; t++) {
        const int i = rows[r] + c.taps[t].y, j = x + c.taps[t].x;
        if (i >= 0 && i < c.side && j >= 0 && j < c.side) sum += (double)in[(size_t)i * c.side + j] * w[c.taps[t].weight];
      }
      bad += back[(size_t)rows[r] * c.side + x] != (float)sum;
    }
  if (bad) { printf("{\"case\":\"%s\",\"kernel\":\"naive\",\"status\":\"wrong\",\"elements\":%lld}\n", c.name, bad); exit(1); }

  // 3. Each kernel once, on poisoned output.
  void* tensors[] = {d_out, d_in, d_w};
  std::vector<unsigned long long> wrong(c.variant_count);
  for (int v = 0; v < c.variant_count; v++) {
    cudaMemset(d_out, 0xff, n * 4);
    check((cudaError_t)c.variants[v].prepare(workspace, tensors, nullptr), "prepare");
    check((cudaError_t)c.variants[v].launch(workspace, tensors, nullptr), "launch");
    wrong[v] = count_wrong([&](unsigned long long* count) { differences<<<1024, 256>>>(d_out, d_want, n, count); });
    check(cudaGetLastError(), c.variants[v].label);
  }

  // 4. In turns.
  std::vector<Times> times(c.variant_count);
  Times copied, memcpied, npp, loops;
#ifdef WITH_NPP
  int npp_status = 0;
  NppStreamContext ctx{};
  cudaDeviceProp p;
  cudaGetDevice(&ctx.nCudaDeviceId);
  cudaGetDeviceProperties(&p, ctx.nCudaDeviceId);
  ctx.nMultiProcessorCount = p.multiProcessorCount;
  ctx.nMaxThreadsPerMultiProcessor = p.maxThreadsPerMultiProcessor;
  ctx.nMaxThreadsPerBlock = p.maxThreadsPerBlock;
  ctx.nSharedMemPerBlock = p.sharedMemPerBlock;
  ctx.nCudaDevAttrComputeCapabilityMajor = p.major;
  ctx.nCudaDevAttrComputeCapabilityMinor = p.minor;
  // NPP flips the filter: reversed weights, and for even filters the other centre, give our result inside the border.
  float* d_npp_w = nullptr;
  const NppiSize full{c.side, c.side};
  int anchor = 0;
  bool npp_right = false;
  auto filter = [&] {
    npp_status = nppiFilterBorder_32f_C1R_Ctx(d_in, c.side * 4, full, NppiPoint{0, 0}, d_out, c.side * 4, full, d_npp_w, NppiSize{c.npp, c.npp},
                                              NppiPoint{anchor, anchor}, NPP_BORDER_REPLICATE, ctx);
  };
  if (c.npp) {
    check(cudaMalloc(&d_npp_w, w.size() * 4), "memory");
    for (int way = 0; way < 4 && !npp_right; way++) {
      std::vector<float> turned = w;
      if (way % 2) std::reverse(turned.begin(), turned.end());
      anchor = way / 2 ? c.npp - 1 - c.npp / 2 : c.npp / 2;
      cudaMemcpy(d_npp_w, turned.data(), turned.size() * 4, cudaMemcpyHostToDevice);
      filter();
      npp_right = count_wrong([&](unsigned long long* count) { interior_differences<<<grid, 256>>>(d_out, d_want, c.side, c.npp, count); }) == 0;
    }
  }
#endif
  for (int round = -WARM; round < ROUNDS; round++) {
    auto keep = [&](Times& t, float ms) { if (round >= 0) t.ms.push_back(ms); };
    for (int v = 0; v < c.variant_count; v++) keep(times[v], timed([&] { c.variants[v].launch(workspace, tensors, nullptr); }));
    keep(copied, timed([&] { copy<<<132 * 16, 512>>>((float4*)d_out, (const float4*)d_in, n / 4); }));
    keep(memcpied, timed([&] { cudaMemcpyAsync(d_out, d_in, n * 4, cudaMemcpyDeviceToDevice); }));
    if (round < 3) keep(loops, timed([&] { naive<<<grid, 256>>>(d_want, d_in, d_w, d_taps, c.tap_count, c.side); }));
#ifdef WITH_NPP
    if (c.npp) keep(npp, timed(filter));
#endif
  }
  const float best_copy = std::min(copied.at(0.5), memcpied.at(0.5));
  auto line = [&](const char* kernel, const char* status, Times& t) {
    const float ms = t.at(0.5);
    printf("{\"case\":\"%s\",\"side\":%d,\"taps\":%d,\"kernel\":\"%s\",\"status\":\"%s\",\"ms\":%.4f,\"quartiles\":[%.4f,%.4f],\"gcells\":%.1f,\"gflops\":%.0f,\"of_copy\":%.3f}\n",
           c.name, c.side, c.tap_count, kernel, status, ms, t.at(0.25), t.at(0.75), n / ms * 1e-6, 2.0 * c.tap_count * n / ms * 1e-6, best_copy / ms);
  };
  for (int v = 0; v < c.variant_count; v++) line(c.variants[v].label, wrong[v] ? "wrong" : "ok", times[v]);
  line("device copy", "ok", best_copy == copied.at(0.5) ? copied : memcpied);
  line("naive loops", "ok", loops);
#ifdef WITH_NPP
  if (c.npp) line("NPP filterBorder", npp_status != 0 ? "refused" : npp_right ? "ok" : "unverified", npp);
  cudaFree(d_npp_w);
#endif
  fflush(stdout);
  int best = -1;
  for (int v = 0; v < c.variant_count; v++)
    if (!wrong[v] && (best < 0 || times[v].at(0.5) < times[best].at(0.5))) best = v;
  fprintf(stderr, "%-10s best %-24s %.4f ms  copy %.4f  naive %.3f", c.name, best < 0 ? "none" : c.variants[best].label, best < 0 ? 0.f : times[best].at(0.5), best_copy, loops.at(0.5));
  if (!npp.ms.empty() && best >= 0) fprintf(stderr, "  NPP %.4f (%.2fx)", npp.at(0.5), npp.at(0.5) / times[best].at(0.5));
  for (int v = 0; v < c.variant_count; v++) if (wrong[v]) fprintf(stderr, "  WRONG %s: %llu elements", c.variants[v].label, wrong[v]);
  fprintf(stderr, "\n");
  cudaFree(d_in); cudaFree(d_out); cudaFree(d_want); cudaFree(d_w); cudaFree(d_taps); cudaFree(workspace);
}

int main() {
  cudaDeviceProp p;
  check(cudaGetDeviceProperties(&p, 0), "no GPU");
  int runtime = 0;
  cudaRuntimeGetVersion(&runtime);
  printf("{\"device\":\"%s\",\"multiprocessors\":%d,\"cuda\":%d,\"rounds\":%d}\n", p.name, p.multiProcessorCount, runtime, ROUNDS);
  for (const Case& c : CASES) run(c);
}
