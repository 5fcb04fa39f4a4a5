/* Probes of a device (perfmodel/gpu-probes.ts), each timed by itself. */
typedef int (*ProbeCount)(void);
typedef int (*ProbeForm)(int probe);
typedef int (*ProbeCall)(int probe, char* memory, long long* cycles, int times, cudaStream_t stream);

static constexpr double PROBE_SECONDS = 1e-3, SUSTAINED_SECONDS = 60e-3; /* of a sample; the second lets the clock settle */
static constexpr int PROBE_SAMPLES = 7, MOST_TIMES = 1 << 24;

/* Different bit patterns that are moderate numbers in every float type: zeros would draw less power. */
__global__ void fill_words(uint32_t* to, size_t words) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words; i += (size_t)gridDim.x * blockDim.x)
    to[i] = ((uint32_t)mixed(i) & 0x83ff83ffu) | 0x30003000u;
}

static void run_probes(const Request& r, cudaStream_t stream) {
  Stopwatch watch(stream);
  long long* cycles = nullptr;
  check_device(cudaMalloc((void**)&cycles, sizeof(long long)), "cudaMalloc");
  char* memory = nullptr;
  size_t held = 0;
  int number = 0;
  for (const std::string& path : r.probes) {
    void* library = open_library(path);
    const ProbeCall call = symbol<ProbeCall>(library, "automap_probe");
    const ProbeForm form_of = symbol<ProbeForm>(library, "automap_probe_form");
    const size_t bytes = symbol<WorkspaceBytes>(library, "automap_probe_bytes")();
    if (bytes > held) {
      check_device(cudaMalloc((void**)&memory, bytes), "cudaMalloc of what probes go through");
      held = bytes;
    }
    start(0, fill_words, BLOCKS, THREADS, stream, (uint32_t*)memory, std::min<size_t>(bytes / 4, (size_t)1 << 20));
    const int count = symbol<ProbeCount>(library, "automap_probes")();
    for (int p = 0; p < count; p++, number++) {
      current_kernel = number;
      const int form = form_of(p);
      answer("at %d probe %d of %s", number, p, path.c_str());
      auto once = [&](int times) { check(number, (cudaError_t)call(p, memory, cycles, times, stream), "a probe"); };
      const cudaGraphExec_t exec = form == 2 ? graph_of(number, CALLS_OF_A_GRAPH, stream, [&] { once(1); }) : nullptr;
      auto timed = [&](int times) {
        return watch.timed(number, [&] {
          if (exec) check(number, cudaGraphLaunch(exec, stream), "cudaGraphLaunch");
          else once(times);
        }, "a probe");
      };
      int times = exec ? CALLS_OF_A_GRAPH : 1;
      timed(times);
      const double least = form == 1 ? SUSTAINED_SECONDS : PROBE_SECONDS;
      for (double took; !exec && (took = timed(times)) < least && times < MOST_TIMES;)
        times = took < least / 8 ? times * 8 : (int)(times * 1.2 * least / took) + 1;
      std::vector<double> samples;
      for (int i = 0; i < PROBE_SAMPLES; i++) {
        const double seconds = timed(times);
        long long counted = 0;
        check(number, cudaMemcpy(&counted, cycles, sizeof counted, cudaMemcpyDeviceToHost), "cudaMemcpy");
        samples.push_back(seconds / times), samples.push_back((double)counted / times);
      }
      answer_samples(number, samples);
    }
  }
}
