/* The proof of a package on a GPU: what is the same for all of them. Exit codes: 0 right, 4 wrong, 6 it could not be tried. */

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

enum Outcome { RIGHT = 0, WRONG = 4, NOT_TRIED = 6 };

struct Tensor {
  const char* name;
  Type type;
  bool tf32;
  size_t elements, bytes;
  size_t aligned; /* what it begins at a multiple of; 1 where nothing is asked */
  int least, most; /* of indices and counts, which are drawn between; equal for other tensors */
};

struct Package {
  const char* name;
  std::vector<Tensor> tensors; /* the output first */
  std::vector<Set> sets;
  size_t workspace_bytes;
  int (*supported)();
  int (*prepare)(void* const* tensors, void* workspace, size_t bytes, cudaStream_t stream); /* null where nothing is prepared */
  int (*run)(void* const* tensors, void* workspace, size_t bytes, cudaStream_t stream);
  const char* (*message)(int code);
  int (*reference)(void* const* tensors, double* low, double* high, int exact, cudaStream_t stream);
  int unsupported, null, workspace, misaligned; /* codes */
};

static const char* const SET_NAMES[] = {"exact", "random", "extreme"};

[[noreturn]] static void end(const Package& p, Outcome how, const char* what, const char* why) {
  printf("%s: %s: %s\n", p.name, what, why);
  fflush(stdout);
  _Exit(how);
}
/* An error of CUDA is the machine's before the kernel has run, and the kernel's after. */
static Outcome blame = NOT_TRIED;
static void must(const Package& p, cudaError_t error, const char* what) {
  if (error != cudaSuccess) end(p, error == cudaErrorMemoryAllocation ? NOT_TRIED : blame, what, cudaGetErrorString(error));
}
static void must_run(const Package& p, int code, const char* what) {
  if (code != 0) end(p, code == p.unsupported ? NOT_TRIED : WRONG, what, p.message(code));
}

/* Memory on the GPU with guards around it that nobody may write to. */
struct Guarded {
  unsigned char* whole = nullptr;
  size_t bytes = 0;
  void* data() const { return whole + GUARD_BYTES; }
  size_t all() const { return bytes + 2 * GUARD_BYTES; }
};
static Guarded guarded(const Package& p, size_t bytes) {
  Guarded made;
  made.bytes = bytes;
  must(p, cudaMalloc((void**)&made.whole, made.all()), "cudaMalloc");
  must(p, cudaMemset(made.whole, POISON, made.all()), "cudaMemset");
  return made;
}
static bool is_whole(const Package& p, const Guarded& memory) {
  unsigned char around[2 * GUARD_BYTES];
  must(p, cudaMemcpy(around, memory.whole, GUARD_BYTES, cudaMemcpyDeviceToHost), "cudaMemcpy");
  must(p, cudaMemcpy(around + GUARD_BYTES, memory.whole + GUARD_BYTES + memory.bytes, GUARD_BYTES, cudaMemcpyDeviceToHost), "cudaMemcpy");
  for (unsigned char byte : around)
    if (byte != POISON) return false;
  return true;
}

template <class... P, class... A>
static void start(const Package& p, void (*kernel)(P...), int blocks, int threads, cudaStream_t stream, A... arguments) {
  must(p, start_with(kernel, blocks, threads, stream, std::tuple<P...>(arguments...), std::index_sequence_for<P...>()), "cudaLaunchKernel");
}

/* What one caller has for itself. */
struct Caller {
  cudaStream_t stream = nullptr;
  Guarded output, workspace;
  std::vector<void*> tensors;
};
static Caller caller(const Package& p, const std::vector<void*>& inputs) {
  Caller made;
  must(p, cudaStreamCreate(&made.stream), "cudaStreamCreate");
  made.output = guarded(p, p.tensors[0].bytes);
  made.workspace = guarded(p, p.workspace_bytes);
  made.tensors = inputs;
  made.tensors[0] = made.output.data();
  return made;
}

/* One call into what remembers nothing: but for constants, which are prepared. */
static void call(const Package& p, const Caller& c) {
  must(p, cudaMemsetAsync(c.output.whole, POISON, c.output.all(), c.stream), "cudaMemsetAsync");
  if (!p.prepare) must(p, cudaMemsetAsync(c.workspace.whole, POISON, c.workspace.all(), c.stream), "cudaMemsetAsync");
  must_run(p, p.run(c.tensors.data(), c.workspace.data(), p.workspace_bytes, c.stream), "run");
}

struct Expected {
  double *low = nullptr, *high = nullptr, *one = nullptr;
  Wrong* wrong = nullptr;
};

/* Every element against its bounds, and what lies around. */
static void check(const Package& p, const Caller& c, const Expected& e, Set set, const char* how) {
  const Tensor& output = p.tensors[0];
  must(p, cudaStreamSynchronize(c.stream), how);
  Wrong found = {0, ~0ull};
  must(p, cudaMemcpy(e.wrong, &found, sizeof found, cudaMemcpyHostToDevice), "cudaMemcpy");
  start(p, compare, BLOCKS, THREADS, c.stream, c.output.data(), output.type, output.elements, e.low, e.high, e.wrong);
  must(p, cudaStreamSynchronize(c.stream), "comparing");
  must(p, cudaMemcpy(&found, e.wrong, sizeof found, cudaMemcpyDeviceToHost), "cudaMemcpy");
  if (!is_whole(p, c.output) || !is_whole(p, c.workspace)) end(p, WRONG, how, "something was written beside the output or the workspace");
  if (found.count == 0) return;
  double value, low, high;
  start(p, one_element, 1, 1, c.stream, c.output.data(), output.type, (size_t)found.first, e.one);
  must(p, cudaStreamSynchronize(c.stream), "reading");
  must(p, cudaMemcpy(&value, e.one, sizeof value, cudaMemcpyDeviceToHost), "cudaMemcpy");
  must(p, cudaMemcpy(&low, e.low + found.first, sizeof low, cudaMemcpyDeviceToHost), "cudaMemcpy");
  must(p, cudaMemcpy(&high, e.high + found.first, sizeof high, cudaMemcpyDeviceToHost), "cudaMemcpy");
  printf("%s: %s, %s data: %llu of %zu elements differ: element %llu of %s is %.9g, the equation gives %.9g", p.name, how, SET_NAMES[set],
         found.count, output.elements, found.first, output.name, value, low);
  if (low == high) printf("\n");
  else printf(" to %.9g\n", high);
  fflush(stdout);
  _Exit(WRONG);
}

/* What the package must refuse, and with which code. */
static void check_refusals(const Package& p, const Caller& c) {
  for (size_t t = 0; t < c.tensors.size(); t++) {
    std::vector<void*> tensors = c.tensors;
    tensors[t] = nullptr;
    if (p.run(tensors.data(), c.workspace.data(), p.workspace_bytes, c.stream) != p.null) end(p, WRONG, p.tensors[t].name, "a null pointer is not refused");
    const size_t element = p.tensors[t].bytes / p.tensors[t].elements;
    if (p.tensors[t].aligned <= element) continue;
    tensors[t] = (char*)c.tensors[t] + element;
    if (p.run(tensors.data(), c.workspace.data(), p.workspace_bytes, c.stream) != p.misaligned) end(p, WRONG, p.tensors[t].name, "a misaligned address is not refused");
  }
  if (p.workspace_bytes > 0 && p.run(c.tensors.data(), c.workspace.data(), p.workspace_bytes - 1, c.stream) != p.workspace)
    end(p, WRONG, "workspace", "one that is too small is not refused");
}

static int prove(const Package& p, uint64_t seed) {
  // 1. A GPU that can run it.
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) end(p, NOT_TRIED, "not tried", "there is no GPU here, or no driver for it");
  if (int code = p.supported()) end(p, NOT_TRIED, "not tried", p.message(code));

  // 2. Memory.
  std::vector<Guarded> held;
  std::vector<void*> inputs;
  for (size_t t = 0; t < p.tensors.size(); t++) {
    held.push_back(guarded(p, t == 0 ? 0 : p.tensors[t].bytes));
    inputs.push_back(held.back().data());
  }
  const Caller own = caller(p, inputs), other = caller(p, inputs);
  Expected e;
  const size_t bytes = p.tensors[0].elements * sizeof(double);
  must(p, cudaMalloc((void**)&e.low, bytes), "cudaMalloc");
  must(p, cudaMalloc((void**)&e.high, bytes), "cudaMalloc");
  must(p, cudaMalloc((void**)&e.one, sizeof(double)), "cudaMalloc");
  must(p, cudaMalloc((void**)&e.wrong, sizeof(Wrong)), "cudaMalloc");

  std::vector<Set> telling;
  for (Set set : p.sets) {
    // 3. Inputs, and what the equation makes of them.
    for (size_t t = 1; t < p.tensors.size(); t++) {
      const Tensor& tensor = p.tensors[t];
      const bool decides = tensor.least < tensor.most;
      const double most = decides ? tensor.most : most_of(set, tensor.type);
      start(p, draw, BLOCKS, THREADS, own.stream, inputs[t], tensor.elements, tensor.type, tensor.tf32, decides ? EXACT : set, seed * 1000 + set * 100 + t, decides ? tensor.least : -most, most);
    }
    must(p, cudaStreamSynchronize(own.stream), "drawing inputs");
    must(p, cudaMemset(e.low, POISON, bytes), "cudaMemset");
    must(p, cudaMemset(e.high, POISON, bytes), "cudaMemset");
    must(p, (cudaError_t)p.reference(own.tensors.data(), e.low, e.high, set == EXACT, own.stream), "the reference");
    must(p, cudaStreamSynchronize(own.stream), "the reference");
    if (!tells(e.low, e.high)) continue;
    telling.push_back(set);

    // 4. Called twice: what a call leaves behind must not be needed, and must not hurt.
    blame = WRONG;
    for (const Caller* c : {&own, &other}) {
      if (p.prepare) must_run(p, p.prepare(c->tensors.data(), c->workspace.data(), p.workspace_bytes, c->stream), "prepare");
      must(p, cudaStreamSynchronize(c->stream), "prepare");
    }
    for (const char* how : {"called", "called again"}) call(p, own), check(p, own, e, set, how);

    // 5. In a graph.
    cudaGraph_t graph;
    cudaGraphExec_t captured;
    must(p, cudaStreamBeginCapture(own.stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    call(p, own);
    must(p, cudaStreamEndCapture(own.stream, &graph), "cudaStreamEndCapture");
    must(p, cudaGraphInstantiate(&captured, graph, 0), "cudaGraphInstantiate");
    for (const char* how : {"in a graph", "in a graph again"}) {
      must(p, cudaGraphLaunch(captured, own.stream), "cudaGraphLaunch");
      check(p, own, e, set, how);
    }

    // 6. Two threads at once, each with a stream of its own; an emulated device serves one.
#ifndef AUTOMAP_EMULATED_CUDA
    auto repeat = [&p](const Caller& c) {
      for (int i = 0; i < 20; i++) call(p, c);
    };
    std::thread first(repeat, std::cref(own)), second(repeat, std::cref(other));
    first.join(), second.join();
    check(p, own, e, set, "beside another thread");
    check(p, other, e, set, "beside another thread");
#endif
    blame = NOT_TRIED;
  }

  check_refusals(p, own);
  std::string sets;
  if (telling.empty()) end(p, NOT_TRIED, "not verified", "rounding may differ by as much as the answers do");
  for (Set set : telling) sets += std::string(sets.empty() ? "" : set == telling.back() ? " and " : ", ") + SET_NAMES[set];
#ifdef AUTOMAP_EMULATED_CUDA
  const char* how = "called and in a graph, on an emulated device";
#else
  const char* how = "called, in a graph and from two threads";
#endif
  printf("%s: right on %s data, %s\n", p.name, sets.c_str(), how);
  return RIGHT;
}
