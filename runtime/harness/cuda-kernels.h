/* Libraries of kernels: loading, launching, calling in graphs, timing. */
typedef unsigned long (*WorkspaceBytes)(void);
typedef int (*Prepare)(void* workspace, const void* const* tensors, cudaStream_t stream);
typedef int (*Launch)(void* workspace, void* const* tensors, cudaStream_t stream);
/* Fills in the bounds of every element of the output; `exact` means that the inputs are small integers. */
typedef int (*ReferenceCall)(void* const* tensors, double* low, double* high, int exact, cudaStream_t stream);

struct Loaded {
  void* library;
  WorkspaceBytes workspace_bytes;
  Prepare prepare;
  Launch launch;
  void* workspace;
  bool failed;
  cudaGraphExec_t graph;
  int calls;    /* of a graph */
  int launches; /* of the graph in a batch */
  std::vector<double> samples;
  double spent;  /* in batches, in seconds */
  double lost_to; /* seconds of a call, once it has dropped out of a race */
};

template <class F> static F symbol(void* library, const char* name) {
  F found = (F)dlsym(library, name);
  if (!found) refuse(std::string("no function ") + name);
  return found;
}

static void* open_library(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) refuse(std::string("cannot load ") + path + ": " + dlerror());
  return library;
}

static Loaded load(int k, const std::string& path) {
  void* library = open_library(path);
  Loaded kernel = {library, symbol<WorkspaceBytes>(library, "automap_workspace_bytes"), symbol<Prepare>(library, "automap_prepare"),
                   symbol<Launch>(library, "automap_launch"), nullptr, false, nullptr, 1, 1, {}, 0, 0};
  check(k, cudaMalloc(&kernel.workspace, kernel.workspace_bytes()), "cudaMalloc of the workspace");
  return kernel;
}

static void unload(int k, Loaded& kernel) {
  if (kernel.graph) check(k, cudaGraphExecDestroy(kernel.graph), "cudaGraphExecDestroy");
  check(k, cudaFree(kernel.workspace), "cudaFree of the workspace");
  dlclose(kernel.library);
}

template <class... P, class... A>
static void start(int k, void (*kernel)(P...), int blocks, int threads, cudaStream_t stream, A... arguments) {
  check(k, start_with(kernel, blocks, threads, stream, std::tuple<P...>(arguments...), std::index_sequence_for<P...>()), "cudaLaunchKernel");
}

static std::vector<unsigned char> read_file(const std::string& path, size_t bytes) {
  std::vector<unsigned char> data(bytes);
  FILE* file = fopen(path.c_str(), "rb");
  if (!file || fread(data.data(), 1, bytes, file) != bytes) refuse("cannot read " + path);
  fclose(file);
  return data;
}

static Type type_of(const std::string& dtype) {
  const char* names[] = {"u8", "s8", "u16", "s16", "u32", "s32", "f16", "bf16", "f32", "f64", "e4m3", "e5m2"};
  for (int i = 0; i < 12; i++)
    if (dtype == names[i]) return (Type)i;
  if (dtype == "tf32") return F32;
  refuse("unknown type " + dtype);
}

static constexpr int CALLS_OF_A_GRAPH = 20;

/* A graph of this many calls. */
template <class Call> static cudaGraphExec_t graph_of(int k, int calls, cudaStream_t stream, Call call) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  check(k, cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  for (int i = 0; i < calls; i++) call();
  check(k, cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  check(k, cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
  check(k, cudaGraphDestroy(graph), "cudaGraphDestroy");
  return exec;
}

/* Times work on a device. */
struct Stopwatch {
  cudaStream_t stream;
  cudaEvent_t begin, end;
  explicit Stopwatch(cudaStream_t stream) : stream(stream) {
    check_device(cudaEventCreate(&begin), "cudaEventCreate");
    check_device(cudaEventCreate(&end), "cudaEventCreate");
  }
  Stopwatch(const Stopwatch&) = delete;
  ~Stopwatch() { cudaEventDestroy(begin), cudaEventDestroy(end); }
  template <class Work> double timed(int k, Work work, const char* what = "the kernel") {
    float ms = 0;
    check(k, cudaEventRecord(begin, stream), "cudaEventRecord");
    work();
    check(k, cudaEventRecord(end, stream), "cudaEventRecord");
    check(k, cudaEventSynchronize(end), what);
    check(k, cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    return ms / 1000.0;
  }
};
