/*
 * Runs CUDA kernels on a device, checks every element they write against a reference kernel, and times them. It is
 * compiled once for each machine. A process answers requests of one problem, one after another; inputs and bounds stay.
 *
 * A request comes on stdin. Each line is a keyword and its values:
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
 *     settle 0.1                       seconds of batches before the first that counts
 *     batches 5 200                    least and most batches
 *     race                             kernels clearly slower than the best are timed briefly
 *     goal 0.0002                      in a race: seconds of a call to beat
 *     kernel PATH                      shared objects as in abstraction/kernel.ts; the batches of several alternate
 *     probe PATH                       instead of kernels: libraries of probes (perfmodel/gpu-probes.ts), timed singly
 *     go                               the request is complete
 *
 * Answers go to descriptor 3 as in answers.h: at, wrong, fault, dropped, samples, done. Without a kernel, a request only finds the
 * bounds. `left-out 0 random` names a set that
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

/* Memory with guards around each tensor. */
static std::vector<void*> tensor_memory(const std::vector<Argument>& arguments) {
  std::vector<void*> tensors;
  for (const Argument& a : arguments) {
    unsigned char* memory = (unsigned char*)device_memory(a.bytes() + 2 * GUARD_BYTES, "cudaMalloc of a tensor");
    answer("at 0 taking memory");
    check_device(cudaMemset(memory, POISON, a.bytes() + 2 * GUARD_BYTES), "cudaMemset");
    tensors.push_back(memory + GUARD_BYTES);
  }
  return tensors;
}

int main() {
  report_faults();
  Request r;
  if (!read_request(r)) return 0;
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
  const std::string problem = r.problem;
  const std::vector<void*> tensors = tensor_memory(r.arguments);
  unsigned char* flush = nullptr;
  do {
    if (r.problem != problem) refuse("another problem than that of the first request");
    if (r.flushed && !flush) flush = (unsigned char*)device_memory(FLUSH_BYTES, "cudaMalloc of what flushes the cache");
    std::vector<Loaded> kernels;
    for (const std::string& path : r.kernels) kernels.push_back(load((int)kernels.size(), path));
    verify(r, kernels, stream, tensors);
    if (!kernels.empty()) time_kernels(r, kernels, stream, tensors, flush);
    for (int k = 0; k < (int)kernels.size(); k++) unload(k, kernels[k]);
    answer("done");
  } while (read_request(r));
  /* As any process ends: a sanitizer writes what it has found then. */
  return 0;
}
