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
 * Answers go to descriptor 3, in the words of harness.cpp: at, wrong, fault, samples, done; `left-out 0 random`, a set by which wrong answers
 * would not show; `unverifiable` where that is so of all sets, and the end; and `clock 0 1755 1`, the median clock in MHz while a
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

#include "cuda-answers.h"
#include "cuda-request.h"
#include "cuda-elements.h"
#include "cuda-kernels.h"
#include "cuda-clocks.h"
#include "cuda-probes.h"
#include "cuda-verify.h"
#include "cuda-times.h"

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
  std::vector<void*> tensors;
  for (const Argument& a : r.arguments) {
    unsigned char* memory = nullptr;
    check_device(cudaMalloc((void**)&memory, a.bytes() + 2 * GUARD_BYTES), "cudaMalloc of a tensor");
    answer("at 0 taking memory");
    check_device(cudaMemset(memory, POISON, a.bytes() + 2 * GUARD_BYTES), "cudaMemset");
    tensors.push_back(memory + GUARD_BYTES);
  }
  const Checked at(r.arguments[0], tensors);
  unsigned char* flush = nullptr;
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

  // 3. Every element of every set, then times.
  verify(r, kernels, stream, at);
  time_kernels(r, kernels, stream, tensors, flush);
  answer("done");
  return 0;
}
