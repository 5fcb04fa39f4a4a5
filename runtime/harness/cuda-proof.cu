/*
 * Compares outputs that a program left in files with a reference kernel's bounds on the inputs that it had, on a device. The file it is given has
 * one output in each line, by words separated by tabs:
 *
 *     REFERENCE  f16  1024  960  OUTPUT  INPUT ...     a shared object with automap_reference; type, elements of memory, elements of the tensor and
 *                                                      file of the output; files of the inputs
 *
 * Files hold the bytes of tensors as they lie in memory. For every line one is printed: `right`, `wrong COUNT FIRST VALUE LEAST MOST`, or
 * `unjudged COUNT` when so many elements have no bounds and the others are right.
 */

#ifdef AUTOMAP_EMULATED_CUDA
#include "cuda-runtime.h"
#else
#include <cuda_runtime.h>
#endif
#include <dlfcn.h>

#include <cfloat>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "cuda-elements.h"

typedef int (*Reference)(void* const* tensors, double* low, double* high, int exact, cudaStream_t stream);

[[noreturn]] static void fail(const std::string& why) {
  std::cerr << why << std::endl;
  exit(1);
}

static void check(int error, const std::string& what) {
  if (error != 0) fail(what + ": " + cudaGetErrorString((cudaError_t)error));
}

static void* memory(size_t bytes) {
  void* found = nullptr;
  check(cudaMalloc(&found, bytes + 1), "memory for " + std::to_string(bytes) + " bytes");
  return found;
}

static void* loaded(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> data((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) fail("cannot read " + path);
  void* to = memory(data.size());
  check(cudaMemcpy(to, data.data(), data.size(), cudaMemcpyHostToDevice), "copying " + path);
  return to;
}

static Type type_of(const std::string& dtype) {
  const char* names[] = {"u8", "s8", "u16", "s16", "u32", "s32", "f16", "bf16", "f32", "f64", "e4m3", "e5m2"};
  for (int i = 0; i < 12; i++)
    if (dtype == names[i]) return (Type)i;
  if (dtype == "tf32") return F32;
  fail("unknown type " + dtype);
}

template <class... P, class... A>
static void start(void (*kernel)(P...), int blocks, int threads, cudaStream_t stream, A... arguments) {
  check(start_with(kernel, blocks, threads, stream, std::tuple<P...>(arguments...), std::index_sequence_for<P...>()), "cudaLaunchKernel");
}

/* Elements with bounds. Those of other elements are NaN, or leave out no number. */
__global__ void count_bounded(const double* low, const double* high, size_t elements, unsigned long long* count) {
  unsigned long long own = 0;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < elements; i += (size_t)gridDim.x * blockDim.x)
    own += low[i] <= high[i] && !(low[i] < -DBL_MAX && high[i] > DBL_MAX);
  atomicAdd(count, own);
}

static double at(const double* bounds, unsigned long long i) {
  double value = 0;
  check(cudaMemcpy(&value, bounds + i, sizeof value, cudaMemcpyDeviceToHost), "reading a bound");
  return value;
}

static void judge(const std::vector<std::string>& words, cudaStream_t stream) {
  void* library = dlopen(words[0].c_str(), RTLD_NOW | RTLD_LOCAL);
  Reference reference = library ? (Reference)dlsym(library, "automap_reference") : nullptr;
  if (!reference) fail("no reference in " + words[0] + ": " + dlerror());
  const Type type = type_of(words[1]);
  const size_t elements = std::stoull(words[2]), bytes = elements * sizeof(double);
  const unsigned long long wanted = std::stoull(words[3]);
  std::vector<void*> tensors;
  for (size_t i = 4; i < words.size(); i++) tensors.push_back(loaded(words[i]));
  double *low = (double*)memory(bytes), *high = (double*)memory(bytes), *one = (double*)memory(sizeof(double));
  Wrong* wrong = (Wrong*)memory(sizeof(Wrong));
  check(cudaMemset(low, POISON, bytes), "cudaMemset");
  check(cudaMemset(high, POISON, bytes), "cudaMemset");
  check(reference(tensors.data(), low, high, 0, stream), "the reference");
  check(cudaStreamSynchronize(stream), "the reference");
  Wrong found = {0, ~0ull};
  check(cudaMemcpy(wrong, &found, sizeof found, cudaMemcpyHostToDevice), "cudaMemcpy");
  start(compare, BLOCKS, THREADS, stream, tensors[0], type, elements, low, high, wrong);
  check(cudaStreamSynchronize(stream), "comparing");
  check(cudaMemcpy(&found, wrong, sizeof found, cudaMemcpyDeviceToHost), "cudaMemcpy");
  const Wrong none = {0, ~0ull};
  unsigned long long bounded = 0;
  check(cudaMemcpy(wrong, &none, sizeof none, cudaMemcpyHostToDevice), "cudaMemcpy");
  start(count_bounded, BLOCKS, THREADS, stream, low, high, elements, &wrong->count);
  check(cudaStreamSynchronize(stream), "counting");
  check(cudaMemcpy(&bounded, &wrong->count, sizeof bounded, cudaMemcpyDeviceToHost), "cudaMemcpy");
  if (found.count == 0 && bounded == wanted) puts("right");
  else if (found.count == 0) printf("unjudged %lld\n", (long long)(wanted - bounded));
  else {
    start(one_element, 1, 1, stream, tensors[0], type, (size_t)found.first, one);
    check(cudaStreamSynchronize(stream), "reading an element");
    printf("wrong %llu %llu %.9g %.9g %.9g\n", found.count, found.first, at(one, 0), at(low, found.first), at(high, found.first));
  }
  for (void* tensor : tensors) cudaFree(tensor);
  for (void* own : {(void*)low, (void*)high, (void*)one, (void*)wrong}) cudaFree(own);
}

int main(int count, char** words) {
  if (count != 2) fail("give the file that lists the outputs");
  cudaStream_t stream;
  check(cudaStreamCreate(&stream), "cudaStreamCreate");
  std::ifstream list(words[1]);
  for (std::string line; std::getline(list, line);) {
    std::istringstream in(line);
    std::vector<std::string> parts;
    for (std::string part; std::getline(in, part, '\t');) parts.push_back(part);
    if (parts.size() < 5) fail("too few words in " + line);
    judge(parts, stream);
  }
  return 0;
}
