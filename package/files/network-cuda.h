/* What runs a network on a GPU: memory, its steps captured into graphs, and a look inside. The same for all networks. */

struct Code {
  unsigned long (*workspace_bytes)(void);
  int (*allow)(void);
  int (*prepare)(void* workspace, const void* const* tensors, cudaStream_t stream);
  int (*launch)(void* workspace, void* const* tensors, cudaStream_t stream);
};
enum Kind { ARENA, WEIGHTS, INPUT, OUTPUT };
/* Where a tensor lies: an offset into a block, or the number of an argument. */
struct Place {
  Kind kind;
  unsigned long at;
};
template <int MOST> struct StepOf {
  const char* name;
  int code, count; /* the code of a step that is computed with a later one is -1 */
  Place places[MOST], kept[MOST];
  unsigned long bytes;
};
/* An output that no step makes for itself. */
struct Moved {
  int to;
  Place from;
  unsigned long bytes;
};
/* Of a network: its sizes and tables. */
template <int MOST> struct Tables {
  const Code* codes;
  const StepOf<MOST>* steps;
  const Moved* moves;
  int count, moved, inputs, outputs;
  unsigned long arena, kept, weight_bytes;
  const unsigned char* weights;
  const unsigned long* argument_bytes; /* inputs, then outputs */
};
enum { OK = 0, NO_MEMORY, IS_NULL, UNSUPPORTED, NOT_KEPT, NO_STEP, CUDA_ERRORS = 1000 };
static const char* const MESSAGES[] = {"ok", "no memory", "a pointer is null", "this GPU cannot run the kernels", "the network was made without the flag KEEP", "there is no such step"};
enum { GRAPHS = 8, ALIGNMENT = 256, LAUNCHES = 20, TIMED = 9 };

static int told(int error) {
  if (error == cudaSuccess) return OK;
  if (error == cudaErrorMemoryAllocation) return NO_MEMORY;
  if (error == cudaErrorNoKernelImageForDevice) return UNSUPPORTED;
  return CUDA_ERRORS + error;
}
static unsigned long aligned(unsigned long bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

/* The steps for one set of arguments. */
struct Graph {
  void** pointers;
  cudaGraphExec_t exec;
  unsigned long used;
};

template <int MOST> struct Network {
  const Tables<MOST>& tables;
  bool keep = false;
  int device = 0;
  unsigned long runs = 0;
  unsigned char *arena = nullptr, *weights = nullptr;
  void** workspaces = nullptr;
  /* The device's memory for arguments on the host; null where none was given. */
  void** own = nullptr;
  void** last = nullptr;
  cudaStream_t stream = nullptr;
  Graph graphs[GRAPHS] = {};

  explicit Network(const Tables<MOST>& given) : tables(given) {}
  int arguments() const { return tables.inputs + tables.outputs; }

  void* placed(const Place& place, void* const* pointers) const {
    switch (place.kind) {
      case ARENA: return arena + place.at;
      case WEIGHTS: return weights + place.at;
      case INPUT: return pointers[place.at];
      default: return pointers[tables.inputs + place.at];
    }
  }
  void collect(const StepOf<MOST>& step, void* const* pointers, void** tensors) const {
    for (int i = 0; i < step.count; i++) tensors[i] = placed((keep ? step.kept : step.places)[i], pointers);
  }

  int make(bool keeps) {
    keep = keeps;
    if (int error = cudaGetDevice(&device)) return told(error);
    int major = 0, minor = 0;
    if (int error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device)) return told(error);
    if (int error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device)) return told(error);
    const int capability = 10 * major + minor;
    if (ONLY ? capability != LEAST : capability < LEAST) return UNSUPPORTED;
    const Tables<MOST>& t = tables;
    workspaces = (void**)calloc(t.count, sizeof(void*));
    own = (void**)calloc(arguments(), sizeof(void*));
    last = (void**)calloc(arguments(), sizeof(void*));
    if (!workspaces || !own || !last) return NO_MEMORY;
    for (Graph& graph : graphs)
      if (!(graph.pointers = (void**)calloc(arguments(), sizeof(void*)))) return NO_MEMORY;
    const unsigned long values = aligned(keep ? t.kept : t.arena);
    unsigned long bytes = values + ALIGNMENT;
    for (int i = 0; i < t.count; i++)
      if (t.steps[i].code >= 0) bytes += aligned(t.codes[t.steps[i].code].workspace_bytes());
    if (int error = cudaMalloc((void**)&arena, bytes)) return told(error);
    if (int error = cudaMalloc((void**)&weights, t.weight_bytes)) return told(error);
    if (int error = cudaMemcpy(weights, t.weights, t.weight_bytes, cudaMemcpyHostToDevice)) return told(error);
    if (int error = cudaStreamCreate(&stream)) return told(error);
    unsigned char* next = arena + values;
    for (int i = 0; i < t.count; i++) {
      if (t.steps[i].code < 0) continue;
      const Code& code = t.codes[t.steps[i].code];
      workspaces[i] = next;
      next += aligned(code.workspace_bytes());
      /* Constants are packed; arguments of a run are not there yet. */
      void* tensors[MOST] = {};
      collect(t.steps[i], own, tensors);
      if (int error = code.allow()) return told(error);
      if (int error = code.prepare(workspaces[i], (const void* const*)tensors, stream)) return told(error);
    }
    return told(cudaStreamSynchronize(stream));
  }

  void end() {
    for (Graph& graph : graphs) {
      if (graph.used) cudaGraphExecDestroy(graph.exec);
      free(graph.pointers);
    }
    for (int i = 0; own && i < arguments(); i++)
      if (own[i]) cudaFree(own[i]);
    if (stream) cudaStreamDestroy(stream);
    if (arena) cudaFree(arena);
    if (weights) cudaFree(weights);
    free(workspaces), free(own), free(last);
  }

  int launch(int step, void* const* pointers) {
    if (tables.steps[step].code < 0) return OK;
    void* tensors[MOST] = {};
    collect(tables.steps[step], pointers, tensors);
    return tables.codes[tables.steps[step].code].launch(workspaces[step], tensors, stream);
  }

  /* Some steps as a graph. */
  int captured(int from, int to, int times, void* const* pointers, cudaGraphExec_t* exec) {
    if (int error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal)) return told(error);
    int bad = 0;
    for (int again = 0; again < times; again++)
      for (int i = from; i < to && !bad; i++) bad = launch(i, pointers);
    for (int i = 0; to == tables.count && from == 0 && i < tables.moved && !bad; i++) {
      const Moved& move = tables.moves[i];
      bad = cudaMemcpyAsync(pointers[tables.inputs + move.to], placed(move.from, pointers), move.bytes, cudaMemcpyDeviceToDevice, stream);
    }
    cudaGraph_t graph = nullptr;
    const int ended = cudaStreamEndCapture(stream, &graph);
    if (bad || ended) {
      if (graph) cudaGraphDestroy(graph);
      cudaGetLastError();
      return told(bad ? bad : ended);
    }
    const int made = cudaGraphInstantiate(exec, graph, 0);
    cudaGraphDestroy(graph);
    return told(made);
  }

  /* One launch. Arguments that were given lately have their graph; else the one that was used longest ago goes. */
  int run(void* const* pointers, cudaStream_t on) {
    for (int i = 0; i < arguments(); i++)
      if (!pointers[i]) return IS_NULL;
    Graph* graph = graphs;
    bool known = false;
    for (Graph& one : graphs) {
      known = one.used && !memcmp(one.pointers, pointers, arguments() * sizeof(void*));
      if (known || one.used < graph->used) graph = &one;
      if (known) break;
    }
    if (!known) {
      if (graph->used) {
        /* It may run still. */
        if (int error = cudaDeviceSynchronize()) return told(error);
        cudaGraphExecDestroy(graph->exec);
        graph->used = 0;
      }
      if (int bad = captured(0, tables.count, 1, pointers, &graph->exec)) return bad;
      memcpy(graph->pointers, pointers, arguments() * sizeof(void*));
    }
    graph->used = ++runs;
    memcpy(last, pointers, arguments() * sizeof(void*));
    return told(cudaGraphLaunch(graph->exec, on));
  }

  int run_host(void* const* pointers) {
    for (int i = 0; i < arguments(); i++) {
      if (!pointers[i]) return IS_NULL;
      if (!own[i])
        if (int error = cudaMalloc(&own[i], tables.argument_bytes[i])) return told(error);
      if (i >= tables.inputs) continue;
      if (int error = cudaMemcpyAsync(own[i], pointers[i], tables.argument_bytes[i], cudaMemcpyHostToDevice, stream)) return told(error);
    }
    if (int bad = run(own, stream)) return bad;
    for (int i = tables.inputs; i < arguments(); i++)
      if (int error = cudaMemcpyAsync(pointers[i], own[i], tables.argument_bytes[i], cudaMemcpyDeviceToHost, stream)) return told(error);
    return told(cudaStreamSynchronize(stream));
  }

  /* What the last run left as the output of a step. */
  int step_output(int step, void* to) {
    if (step < 0 || step >= tables.count) return NO_STEP;
    if (!keep || !runs) return NOT_KEPT;
    if (int error = cudaDeviceSynchronize()) return told(error);
    return told(cudaMemcpy(to, placed(tables.steps[step].kept[0], last), tables.steps[step].bytes, cudaMemcpyDeviceToHost));
  }

  /* Of one launch of a step among others of itself, the least of some graphs: its operands are in the last cache. Values of the last run are lost. A step
   * that is computed with a later one takes none of its own. */
  int step_seconds(int step, double* seconds) {
    if (step < 0 || step >= tables.count) return NO_STEP;
    if (!runs) return NOT_KEPT;
    *seconds = 0;
    if (tables.steps[step].code < 0) return OK;
    cudaGraphExec_t exec = nullptr;
    if (int bad = captured(step, step + 1, LAUNCHES, last, &exec)) return bad;
    cudaEvent_t begin = nullptr, done = nullptr;
    int error = cudaEventCreate(&begin);
    if (!error) error = cudaEventCreate(&done);
    for (int i = 0; i < TIMED && !error; i++) {
      float ms = 0;
      error = cudaEventRecord(begin, stream);
      if (!error) error = cudaGraphLaunch(exec, stream);
      if (!error) error = cudaEventRecord(done, stream);
      if (!error) error = cudaEventSynchronize(done);
      if (!error) error = cudaEventElapsedTime(&ms, begin, done);
      if (i == 0 || ms * 1e-3 / LAUNCHES < *seconds) *seconds = ms * 1e-3 / LAUNCHES;
    }
    if (begin) cudaEventDestroy(begin);
    if (done) cudaEventDestroy(done);
    cudaGraphExecDestroy(exec);
    return told(error);
  }
};
