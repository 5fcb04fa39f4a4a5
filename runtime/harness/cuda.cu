/*
 * Runs CUDA kernels on a device, checks every element they write against a reference kernel, and times them. It is
 * compiled once for each machine, and one process answers one request.
 *
 * The request comes on stdin. Each line is a keyword and its values:
 *
 *     parent 4711                      the requesting process; this one ends when it does
 *     device 0
 *     argument f32 1024 out            the output, then the inputs: type, elements of memory, name
 *     fixed in PATH                    bytes of an input that is not drawn
 *     seed 1                           seed of the inputs
 *     set exact                        small integers with exact sums; or `random`, `extreme`: see draw()
 *     set random 1                     the answers are of the argument 1, which the kernel also writes
 *     reference PATH                   shared object with automap_reference: bounds of each element
 *     bounds PREFIX                    keeps these bounds for other processes, a file for each set
 *     cache warm                       or `flushed`: the last cache is emptied before each call
 *     batch 0.0005                     least seconds of a batch of calls
 *     budget 0.1                       seconds of batches for each kernel
 *     batches 5 200                    least and most batches
 *     kernel PATH                      shared objects as in abstraction/kernel.ts; the batches of several alternate
 *     probe PATH                       instead of kernels: libraries of probes (perfmodel/gpu-probes.ts), timed singly
 *     go                               the request is complete
 *
 * Answers go to descriptor 3 as in answers.h: at, wrong, fault, samples, done. `left-out 0 random` names a set that
 * cannot reveal wrong answers; `unverifiable` means that no set can, and ends the process. `clock 0 1755 1` is the
 * median clock in MHz while a kernel was timed, and a bit for each reason that limited it. A probe's samples are pairs:
 * the seconds and the cycles of one repetition.
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

  // 1. Memory: guards around the output, drawn inputs.
  std::vector<void*> tensors;
  for (const Argument& a : r.arguments) {
    unsigned char* memory = nullptr;
    check_device(cudaMalloc((void**)&memory, a.bytes() + 2 * GUARD_BYTES), "cudaMalloc of a tensor");
    answer("at 0 taking memory");
    check_device(cudaMemset(memory, POISON, a.bytes() + 2 * GUARD_BYTES), "cudaMemset");
    tensors.push_back(memory + GUARD_BYTES);
  }
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

  // 3. Check every element of every set, then time.
  verify(r, kernels, stream, tensors);
  time_kernels(r, kernels, stream, tensors, flush);
  answer("done");
  return 0;
}
