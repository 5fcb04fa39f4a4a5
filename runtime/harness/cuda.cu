/*
 * Runs CUDA kernels on a device, checks every element they write against a reference kernel, and times them. One process answers one
 * request; it is compiled once a machine.
 *
 * The request comes on stdin, a keyword and the rest of its line each:
 *
 *     parent 4711                      the process that asks: this one ends with it
 *     device 0
 *     argument f32 1024 out            the output, then the inputs: type, elements of memory, name
 *     fixed in PATH                    bytes of an input that is not drawn
 *     seed 1                           of the inputs
 *     set exact                        small integers, whose sums are exact; `random`, `extreme`: see draw() below
 *     reference PATH                   shared object with automap_reference: the lowest and highest value of each element that pass
 *     bounds PREFIX                    where what the reference says is kept for other processes, a file a set
 *     cache warm                       or `flushed`: out of the last cache before each call
 *     batch 0.0005                     least seconds of a batch of calls
 *     budget 0.1                       seconds of batches for each kernel
 *     batches 5 200                    least and most batches
 *     kernel PATH                      shared objects with the interface of abstraction/kernel.ts; with several, batches alternate
 *     probe PATH                       in place of kernels: libraries of probes (perfmodel/gpu-probes.ts), each timed by itself
 *     go                               the request is complete
 *
 * Answers go to descriptor 3, in the words of harness.cpp: at, wrong, fault, samples, done; and `clock 0 1755 1`, the median clock in MHz while a
 * kernel was timed and a bit for each reason that held it down. The samples of a probe are pairs, the seconds and
 * the cycles of one of the times that it was told.
 */

#ifdef AUTOMAP_EMULATED_CUDA
#include "cuda-runtime.h"
#else
#include <cuda_runtime.h>
#endif
#include <dlfcn.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

// ---------------------------------------------------------------------------------------------------- answers

static constexpr int ANSWERS = 3;

__attribute__((format(printf, 1, 2))) static void answer(const char* format, ...) {
  char line[2000];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(line, sizeof line - 1, format, arguments);
  va_end(arguments);
  length = std::min<int>(length, sizeof line - 2);
  for (int i = 0; i < length; i++)
    if (line[i] == '\n') line[i] = ' ';
  line[length++] = '\n';
  if (write(ANSWERS, line, length) != length) _exit(97);
}

static void answer_samples(int kernel, const std::vector<double>& samples) {
  std::string line = "samples " + std::to_string(kernel);
  char number[40];
  for (double s : samples) {
    snprintf(number, sizeof number, " %.9e", s);
    line += number;
  }
  line += '\n';
  for (size_t at = 0; at < line.size();) {
    ssize_t written = write(ANSWERS, line.data() + at, line.size() - at);
    if (written <= 0) _exit(97);
    at += written;
  }
}

[[noreturn]] static void refuse(const std::string& why) {
  answer("refused %s", why.c_str());
  _exit(2);
}

/* What is known of kernels when the machine fails is told before the end. */
static void (*tell_what_is_known)() = nullptr;

/* After an error the context may be lost for good: the process ends, and the kernels without a verdict start again in another. */
[[noreturn]] static void fault(int kernel, const char* status, const std::string& what) {
  if (tell_what_is_known && !strcmp(status, "environment")) tell_what_is_known();
  answer("fault %d %s %s", kernel, status, what.c_str());
  _exit(0);
}

/* The kernel that is being dealt with, for the handler of what ends the process. */
static volatile int current_kernel = 0;

static void on_fault(int number) {
  static const char* const names[] = {"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT"};
  static const int numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
  const char* name = "a signal";
  for (int i = 0; i < 5; i++)
    if (numbers[i] == number) name = names[i];
  char line[100];
  const int length = snprintf(line, sizeof line, "fault %d crashed killed by %s\n", current_kernel, name);
  if (write(ANSWERS, line, (size_t)length) != length) _exit(97);
  _exit(0);
}

/* On a stack of its own: that of the kernel may be what is lost. */
static void report_faults() {
  static char memory[64 * 1024];
  stack_t stack = {};
  stack.ss_sp = memory, stack.ss_size = sizeof memory;
  sigaltstack(&stack, nullptr);
  struct sigaction action = {};
  action.sa_handler = on_fault;
  action.sa_flags = SA_ONSTACK;
  for (int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) sigaction(number, &action, nullptr);
}

/* A fault of the machine is no kernel's, whichever call tells of it. */
static bool is_machine(cudaError_t error) {
  switch (error) {
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorSystemNotReady:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorHardwareStackError: return true;
    default: return false;
  }
}

static const char* status_of(cudaError_t error) {
  if (is_machine(error)) return "environment";
  switch (error) {
    case cudaErrorMemoryAllocation: return "out-of-memory";
    case cudaErrorLaunchOutOfResources:
    case cudaErrorCooperativeLaunchTooLarge: return "out-of-resources";
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace: return "out-of-bounds";
    case cudaErrorIllegalInstruction:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction: return "illegal-instruction";
    case cudaErrorLaunchTimeout: return "timed-out";
    default: return "crashed";
  }
}

static std::string told(cudaError_t error, const char* what) {
  return std::string(what) + ": " + cudaGetErrorName(error) + ", " + cudaGetErrorString(error);
}

static void check(int kernel, cudaError_t error, const char* what) {
  if (error != cudaSuccess) fault(kernel, status_of(error), told(error, what));
}

/* What no kernel has a part in. */
static void check_device(cudaError_t error, const char* what) {
  if (error != cudaSuccess) fault(0, "environment", told(error, what));
}

/* What a kernel asks for before it starts: shared memory that no block has is refused as an invalid value. */
static void check_asked(int kernel, cudaError_t error) {
  if (error == cudaErrorInvalidValue) fault(kernel, "out-of-resources", told(error, "more shared memory than a block has"));
  check(kernel, error, "prepare");
}

// ---------------------------------------------------------------------------------------------------- request

struct Argument {
  std::string dtype, name, file;
  size_t elements;
  size_t bytes() const { return elements * (size_t)width(); }
  int width() const {
    if (dtype == "u8" || dtype == "s8") return 1;
    if (dtype == "u16" || dtype == "s16" || dtype == "f16" || dtype == "bf16") return 2;
    return dtype == "f64" ? 8 : 4;
  }
};

struct Request {
  int device = 0;
  std::vector<Argument> arguments;
  std::vector<std::string> sets, kernels, probes;
  std::string reference, bounds;
  bool flushed = false;
  uint64_t seed = 1;
  double batch = 0.0005, budget = 0.1;
  int least = 5, most = 200;
};

static Request read_request() {
  Request r;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string word, rest;
    words >> word;
    if (word == "parent") {
      pid_t parent = 0;
      words >> parent;
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(0);
    } else if (word == "device") words >> r.device;
    else if (word == "argument") {
      Argument a;
      words >> a.dtype >> a.elements >> a.name;
      r.arguments.push_back(a);
    } else if (word == "fixed") {
      std::string name, file;
      words >> name >> std::ws;
      std::getline(words, file);
      for (Argument& a : r.arguments)
        if (a.name == name) a.file = file;
    } else if (word == "seed") words >> r.seed;
    else if (word == "cache") words >> rest, r.flushed = rest == "flushed";
    else if (word == "batch") words >> r.batch;
    else if (word == "budget") words >> r.budget;
    else if (word == "batches") words >> r.least >> r.most;
    else if (word == "set" || word == "kernel" || word == "probe" || word == "reference" || word == "bounds") {
      words >> std::ws;
      std::getline(words, rest);
      if (word == "reference") r.reference = rest;
      else if (word == "bounds") r.bounds = rest;
      else (word == "set" ? r.sets : word == "probe" ? r.probes : r.kernels).push_back(rest);
    } else if (word == "go") return r;
    else refuse("unknown word " + word);
  }
  refuse("the request ends without go");
}

// ---------------------------------------------------------------------------------------------------- elements

#include "cuda-elements.h"

static Type type_of(const std::string& dtype) {
  const char* names[] = {"u8", "s8", "u16", "s16", "u32", "s32", "f16", "bf16", "f32", "f64"};
  for (int i = 0; i < 10; i++)
    if (dtype == names[i]) return (Type)i;
  if (dtype == "tf32") return F32;
  refuse("unknown type " + dtype);
}

// ---------------------------------------------------------------------------------------------------- kernels

typedef unsigned long (*WorkspaceBytes)(void);
typedef int (*Prepare)(void* workspace, const void* const* tensors, cudaStream_t stream);
typedef int (*Launch)(void* workspace, void* const* tensors, cudaStream_t stream);
/* Fills the bounds of every element of the output's memory; `exact` says that inputs are small integers. */
typedef int (*ReferenceCall)(void* const* tensors, double* low, double* high, int exact, cudaStream_t stream);

struct Loaded {
  WorkspaceBytes workspace_bytes;
  Prepare prepare;
  Launch launch;
  void* workspace;
  bool failed;
  cudaGraphExec_t graph;
  int calls;    /* of a graph */
  int launches; /* of the graph in a batch */
  std::vector<double> samples;
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

template <class... P, class... A>
static void start(int k, void (*kernel)(P...), int blocks, int threads, cudaStream_t stream, A... arguments) {
  check(k, start_with(kernel, blocks, threads, stream, std::tuple<P...>(arguments...), std::index_sequence_for<P...>()), "cudaLaunchKernel");
}

static constexpr size_t FLUSH_BYTES = (size_t)256 << 20; /* several times the last cache of any device yet */
static constexpr int CALLS_OF_A_GRAPH = 20;

static std::vector<unsigned char> read_file(const std::string& path, size_t bytes) {
  std::vector<unsigned char> data(bytes);
  FILE* file = fopen(path.c_str(), "rb");
  if (!file || fread(data.data(), 1, bytes, file) != bytes) refuse("cannot read " + path);
  fclose(file);
  return data;
}

// ---------------------------------------------------------------------------------------------------- clocks

/*
 * What the driver says of the clock while kernels are timed, through its own library, which is asked for by name: without it nothing is said.
 * A thread of its own asks, so that no batch waits for the answer.
 */
struct ClockSample {
  int kernel;
  unsigned megahertz, reasons;
};
static volatile bool clocks_wanted = false;
static std::vector<ClockSample> clock_samples;
static constexpr unsigned CLOCK_PERIOD_US = 5000;

/* NVML API Reference, nvmlClocksEventReasons, in the order of THROTTLES in abstraction/trial.ts. */
static unsigned throttles(unsigned long long reasons) {
  const unsigned long long bits[] = {0x4 /* SwPowerCap */, 0x8 /* HwSlowdown */, 0x20 /* SwThermalSlowdown */,
                                     0x40 /* HwThermalSlowdown */, 0x80 /* HwPowerBrakeSlowdown */};
  unsigned found = 0;
  for (int i = 0; i < 5; i++)
    if (reasons & bits[i]) found |= 1u << i;
  return found;
}

static void watch_clocks() {
  typedef void* Device;
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return;
  const auto begin = (int (*)())dlsym(library, "nvmlInit_v2");
  const auto by_uuid = (int (*)(const char*, Device*))dlsym(library, "nvmlDeviceGetHandleByUUID");
  const auto clock = (int (*)(Device, int, unsigned*))dlsym(library, "nvmlDeviceGetClockInfo");
  const auto reasons = (int (*)(Device, unsigned long long*))dlsym(library, "nvmlDeviceGetCurrentClocksThrottleReasons");
  const char* uuid = getenv("CUDA_VISIBLE_DEVICES"); /* which the parent has set to the device's own */
  Device device = nullptr;
  if (!begin || !by_uuid || !clock || !reasons || !uuid || begin() != 0 || by_uuid(uuid, &device) != 0) return;
  for (; clocks_wanted; usleep(CLOCK_PERIOD_US)) {
    unsigned megahertz = 0;
    unsigned long long why = 0;
    if (clock(device, 1 /* NVML_CLOCK_SM */, &megahertz) != 0 || reasons(device, &why) != 0) return;
    clock_samples.push_back({current_kernel, megahertz, throttles(why)});
  }
}

/* Of a kernel's own batches; of all where no sample fell into them. */
static void answer_clock(int kernel) {
  std::vector<unsigned> clocks;
  unsigned reasons = 0;
  for (bool own : {true, false}) {
    for (const ClockSample& s : clock_samples)
      if (!own || s.kernel == kernel) clocks.push_back(s.megahertz), reasons |= s.reasons;
    if (!clocks.empty()) break;
  }
  if (clocks.empty()) return;
  std::nth_element(clocks.begin(), clocks.begin() + clocks.size() / 2, clocks.end());
  answer("clock %d %u %u", kernel, clocks[clocks.size() / 2], reasons);
}

// ---------------------------------------------------------------------------------------------------- probes

typedef int (*ProbeCount)(void);
typedef int (*ProbeForm)(int probe);
typedef int (*ProbeCall)(int probe, char* memory, long long* cycles, int times, cudaStream_t stream);

static constexpr double PROBE_SECONDS = 1e-3, SUSTAINED_SECONDS = 60e-3; /* of a sample; the second lets the clock settle */
static constexpr int PROBE_SAMPLES = 7, MOST_TIMES = 1 << 24;

/* Bits of which every float type makes numbers of moderate size, and no two alike: zeros would cost less power. */
__global__ void fill_words(uint32_t* to, size_t words) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words; i += (size_t)gridDim.x * blockDim.x)
    to[i] = ((uint32_t)mixed(i) & 0x83ff83ffu) | 0x30003000u;
}

static void run_probes(const Request& r, cudaStream_t stream) {
  cudaEvent_t begin, end;
  check_device(cudaEventCreate(&begin), "cudaEventCreate");
  check_device(cudaEventCreate(&end), "cudaEventCreate");
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
      cudaGraphExec_t exec = nullptr;
      if (form == 2) {
        cudaGraph_t graph;
        check(number, cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
        for (int i = 0; i < CALLS_OF_A_GRAPH; i++) once(1);
        check(number, cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
        check(number, cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
        check(number, cudaGraphDestroy(graph), "cudaGraphDestroy");
      }
      auto timed = [&](int times) {
        float ms = 0;
        check(number, cudaEventRecord(begin, stream), "cudaEventRecord");
        if (exec) check(number, cudaGraphLaunch(exec, stream), "cudaGraphLaunch");
        else once(times);
        check(number, cudaEventRecord(end, stream), "cudaEventRecord");
        check(number, cudaEventSynchronize(end), "a probe");
        check(number, cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
        return ms / 1000.0;
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

int main() {
  report_faults();
  const Request r = read_request();
  if (r.arguments.empty() && r.probes.empty()) refuse("no arguments");
  answer("at 0 starting the device");
  check_device(cudaSetDevice(r.device), "cudaSetDevice");
  cudaStream_t stream;
  check_device(cudaStreamCreate(&stream), "cudaStreamCreate");
  if (!r.probes.empty()) {
    run_probes(r, stream);
    answer("done");
    return 0;
  }

  // 1. Memory: guards around the output, inputs as drawn.
  const Argument& output = r.arguments[0];
  std::vector<void*> tensors;
  for (const Argument& a : r.arguments) {
    unsigned char* memory = nullptr;
    check_device(cudaMalloc((void**)&memory, a.bytes() + 2 * GUARD_BYTES), "cudaMalloc of a tensor");
    answer("at 0 taking memory");
    check_device(cudaMemset(memory, POISON, a.bytes() + 2 * GUARD_BYTES), "cudaMemset");
    tensors.push_back(memory + GUARD_BYTES);
  }
  double *low = nullptr, *high = nullptr;
  Wrong* wrong = nullptr;
  double* one = nullptr;
  unsigned char* flush = nullptr;
  check_device(cudaMalloc((void**)&low, output.elements * sizeof(double)), "cudaMalloc of bounds");
  check_device(cudaMalloc((void**)&high, output.elements * sizeof(double)), "cudaMalloc of bounds");
  check_device(cudaMalloc((void**)&wrong, sizeof(Wrong)), "cudaMalloc");
  check_device(cudaMalloc((void**)&one, sizeof(double)), "cudaMalloc");
  if (r.flushed) check_device(cudaMalloc((void**)&flush, FLUSH_BYTES), "cudaMalloc of what flushes the cache");

  // 2. Kernels.
  std::vector<Loaded> kernels;
  for (const std::string& path : r.kernels) {
    void* library = open_library(path);
    Loaded k = {symbol<WorkspaceBytes>(library, "automap_workspace_bytes"), symbol<Prepare>(library, "automap_prepare"),
                symbol<Launch>(library, "automap_launch"), nullptr, false, nullptr, 1, 1, {}};
    check((int)kernels.size(), cudaMalloc(&k.workspace, k.workspace_bytes()), "cudaMalloc of the workspace");
    kernels.push_back(k);
  }
  void* reference = r.reference.empty() ? nullptr : open_library(r.reference);

  // 3. Every element of every set.
  const Type type = type_of(output.dtype);
  for (const std::string& name : r.sets) {
    const Set set = name == "exact" ? EXACT : name == "random" ? RANDOM : EXTREME;
    for (size_t t = 1; t < tensors.size(); t++) {
      const Argument& a = r.arguments[t];
      if (!a.file.empty()) {
        const std::vector<unsigned char> data = read_file(a.file, a.bytes());
        check_device(cudaMemcpy(tensors[t], data.data(), a.bytes(), cudaMemcpyHostToDevice), "cudaMemcpy of an input");
        continue;
      }
      start(0, draw, BLOCKS, THREADS, stream, tensors[t], a.elements, type_of(a.dtype), a.dtype == "tf32", set, r.seed * 1000 + set * 100 + t, most_of(set));
    }
    check_device(cudaStreamSynchronize(stream), "drawing inputs");
    answer("at 0 reference on %s inputs", name.c_str());
    const size_t bytes = output.elements * sizeof(double);
    const std::string kept = r.bounds.empty() ? "" : r.bounds + "." + name;
    if (reference && !kept.empty() && access(kept.c_str(), R_OK) == 0) {
      const std::vector<unsigned char> data = read_file(kept, 2 * bytes);
      check_device(cudaMemcpy(low, data.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy of bounds");
      check_device(cudaMemcpy(high, data.data() + bytes, bytes, cudaMemcpyHostToDevice), "cudaMemcpy of bounds");
    } else if (reference) {
      ReferenceCall call = symbol<ReferenceCall>(reference, "automap_reference");
      check_device(cudaMemset(low, POISON, output.elements * sizeof(double)), "cudaMemset");
      check_device(cudaMemset(high, POISON, output.elements * sizeof(double)), "cudaMemset");
      int error = call(tensors.data(), low, high, set == EXACT, stream);
      if (error == 0) error = cudaStreamSynchronize(stream);
      if (error != 0) refuse(std::string("the reference fails: ") + cudaGetErrorString((cudaError_t)error));
      if (!kept.empty()) {
        std::vector<unsigned char> data(2 * bytes);
        check_device(cudaMemcpy(data.data(), low, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy of bounds");
        check_device(cudaMemcpy(data.data() + bytes, high, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy of bounds");
        /* Under another name first: a file that is there is whole. What cannot be kept is computed again. */
        const std::string part = kept + "." + std::to_string(getpid());
        FILE* file = fopen(part.c_str(), "wb");
        const bool written = file && fwrite(data.data(), 1, data.size(), file) == data.size();
        if (file && fclose(file) == 0 && written) rename(part.c_str(), kept.c_str());
        else remove(part.c_str());
      }
    }
    for (int k = 0; k < (int)kernels.size(); k++) {
      Loaded& kernel = kernels[k];
      if (kernel.failed) continue;
      current_kernel = k;
      answer("at %d call on %s inputs", k, name.c_str());
      check_asked(k, (cudaError_t)kernel.prepare(kernel.workspace, tensors.data(), stream));
      /* Twice: what a call leaves behind must not be needed, and must not hurt. */
      for (int call = 0; call < 2; call++) {
        unsigned char* whole = (unsigned char*)tensors[0] - GUARD_BYTES;
        check(k, cudaMemsetAsync(whole, POISON, output.bytes() + 2 * GUARD_BYTES, stream), "cudaMemsetAsync");
        check(k, (cudaError_t)kernel.launch(kernel.workspace, tensors.data(), stream), "launch");
        check(k, cudaStreamSynchronize(stream), "the kernel");
        Wrong found = {0, ~0ull};
        check(k, cudaMemcpy(wrong, &found, sizeof found, cudaMemcpyHostToDevice), "cudaMemcpy");
        if (reference) start(k, compare, BLOCKS, THREADS, stream, tensors[0], type, output.elements, low, high, wrong);
        check(k, cudaStreamSynchronize(stream), "comparing");
        check(k, cudaMemcpy(&found, wrong, sizeof found, cudaMemcpyDeviceToHost), "cudaMemcpy");
        unsigned char guards[2 * GUARD_BYTES];
        check(k, cudaMemcpy(guards, whole, GUARD_BYTES, cudaMemcpyDeviceToHost), "cudaMemcpy");
        check(k, cudaMemcpy(guards + GUARD_BYTES, whole + GUARD_BYTES + output.bytes(), GUARD_BYTES, cudaMemcpyDeviceToHost), "cudaMemcpy");
        const bool outside = std::any_of(guards, guards + sizeof guards, [](unsigned char b) { return b != POISON; });
        if (outside) answer("out-of-bounds %d it writes beside its output, on %s inputs", k, name.c_str());
        else if (found.count > 0) {
          double bounds[2], value;
          start(k, one_element, 1, 1, stream, tensors[0], type, found.first, one);
          check(k, cudaStreamSynchronize(stream), "reading");
          check(k, cudaMemcpy(&value, one, sizeof value, cudaMemcpyDeviceToHost), "cudaMemcpy");
          check(k, cudaMemcpy(&bounds[0], low + found.first, sizeof(double), cudaMemcpyDeviceToHost), "cudaMemcpy");
          check(k, cudaMemcpy(&bounds[1], high + found.first, sizeof(double), cudaMemcpyDeviceToHost), "cudaMemcpy");
          answer("wrong %d %llu of %zu elements differ on %s inputs, call %d: element %llu of %s is %.9g, expected %.9g to %.9g", k,
                 found.count, output.elements, name.c_str(), call + 1, found.first, output.name.c_str(), value, bounds[0], bounds[1]);
        }
        if (outside || found.count > 0) {
          kernel.failed = true;
          break;
        }
      }
    }
  }

  // 4. Times: graphs of calls, batches in turns.
  cudaEvent_t begin, end;
  check_device(cudaEventCreate(&begin), "cudaEventCreate");
  check_device(cudaEventCreate(&end), "cudaEventCreate");
  auto timed = [&](int k, auto&& work) {
    float ms = 0;
    check(k, cudaEventRecord(begin, stream), "cudaEventRecord");
    work();
    check(k, cudaEventRecord(end, stream), "cudaEventRecord");
    check(k, cudaEventSynchronize(end), "the kernel");
    check(k, cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    return ms / 1000.0;
  };
  for (int k = 0; k < (int)kernels.size(); k++) {
    Loaded& kernel = kernels[k];
    if (kernel.failed) continue;
    current_kernel = k;
    answer("at %d warming up", k);
    check_asked(k, (cudaError_t)kernel.prepare(kernel.workspace, tensors.data(), stream));
    auto call = [&] { check(k, (cudaError_t)kernel.launch(kernel.workspace, tensors.data(), stream), "launch"); };
    timed(k, call);
    const double once = timed(k, call);
    if (r.flushed) continue;
    const double wanted = std::max(1.0, std::ceil(r.batch / std::max(once, 1e-7)));
    kernel.calls = (int)std::min<double>(CALLS_OF_A_GRAPH, wanted);
    kernel.launches = (int)std::ceil(wanted / kernel.calls);
    cudaGraph_t graph;
    check(k, cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    for (int i = 0; i < kernel.calls; i++) call();
    check(k, cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    check(k, cudaGraphInstantiate(&kernel.graph, graph, 0), "cudaGraphInstantiate");
    check(k, cudaGraphDestroy(graph), "cudaGraphDestroy");
    timed(k, [&] { check(k, cudaGraphLaunch(kernel.graph, stream), "cudaGraphLaunch"); });
  }
  static std::vector<Loaded>* timed_kernels = nullptr;
  static size_t enough = 0;
  timed_kernels = &kernels, enough = (size_t)r.least;
  tell_what_is_known = [] {
    for (int k = 0; k < (int)timed_kernels->size(); k++)
      if ((*timed_kernels)[k].samples.size() >= enough) answer_samples(k, (*timed_kernels)[k].samples);
  };
  clocks_wanted = true;
  std::thread watcher(watch_clocks);
  std::vector<double> spent(kernels.size(), 0);
  std::vector<int> order;
  uint64_t shuffle = r.seed;
  for (int round = 0; round < r.most; round++) {
    order.clear();
    for (int k = 0; k < (int)kernels.size(); k++)
      if (!kernels[k].failed && (round < r.least || spent[k] < r.budget)) order.push_back(k);
    if (order.empty()) break;
    /* A random order: what ran before leaves the clock where it took it. */
    for (size_t i = order.size(); i > 1; i--) {
      shuffle = shuffle * 6364136223846793005ull + 1442695040888963407ull;
      std::swap(order[i - 1], order[(shuffle >> 33) % i]);
    }
    for (int k : order) {
      Loaded& kernel = kernels[k];
      current_kernel = k;
      answer("at %d batch %d", k, round);
      double seconds = 0;
      if (r.flushed) {
        check(k, cudaMemsetAsync(flush, round & 255, FLUSH_BYTES, stream), "cudaMemsetAsync");
        seconds = timed(k, [&] { check(k, (cudaError_t)kernel.launch(kernel.workspace, tensors.data(), stream), "launch"); });
      } else {
        auto batch = [&] {
          for (int i = 0; i < kernel.launches; i++) check(k, cudaGraphLaunch(kernel.graph, stream), "cudaGraphLaunch");
        };
        seconds = timed(k, batch) / (kernel.calls * kernel.launches);
      }
      kernel.samples.push_back(seconds);
      spent[k] += seconds * kernel.calls * kernel.launches;
    }
  }
  clocks_wanted = false;
  watcher.join();
  for (int k = 0; k < (int)kernels.size(); k++)
    if (!kernels[k].failed) answer_clock(k), answer_samples(k, kernels[k].samples);
  answer("done");
  return 0;
}
