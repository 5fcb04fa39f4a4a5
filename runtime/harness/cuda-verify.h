/* Compares every element of a kernel's output with a reference's bounds, and checks the guards around the output. */

/* Device memory for checking elements of one tensor. */
struct Checked {
  const Argument& output;
  const std::vector<void*>& tensors; /* the output, then the inputs */
  void* written; /* where the kernel writes the elements that are checked */
  double *low, *high;
  Wrong* wrong;
  double* one;
};

/* The bounds of a set's answers. They stay on the device from request to request while most of its memory is free. */
struct Bounds {
  double *low = nullptr, *high = nullptr;
  bool are_found = false;
  /* Of their bits, since a kernel that writes where it should not may have changed them. */
  unsigned long long sum = 0;
};

static void draw_inputs(const Request& r, Set set, const std::vector<void*>& tensors, cudaStream_t stream) {
  for (size_t t = 1; t < tensors.size(); t++) {
    const Argument& a = r.arguments[t];
    if (!a.file.empty()) {
      const std::vector<unsigned char> data = read_file(a.file, a.bytes());
      check_device(cudaMemcpy(tensors[t], data.data(), a.bytes(), cudaMemcpyHostToDevice), "cudaMemcpy of an input");
      continue;
    }
    const double most = most_of(set, type_of(a.dtype));
    start(0, draw, BLOCKS, THREADS, stream, tensors[t], a.elements, type_of(a.dtype), a.dtype == "tf32", set, r.seed * 1000 + set * 100 + t, -most, most);
  }
  check_device(cudaStreamSynchronize(stream), "drawing inputs");
}

/* The file of a set's bounds, and whether it is there. */
static std::string kept_bounds(const Request& r, const InputSet& set) {
  if (r.bounds.empty()) return "";
  return r.bounds + "." + set.name + (set.output ? "." + std::to_string(set.output) : "");
}
static bool are_kept(const std::string& file) { return !file.empty() && access(file.c_str(), R_OK) == 0; }

__global__ void add_bits(const uint64_t* words, size_t count, unsigned long long* sum) {
  unsigned long long own = 0;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) own += mixed(words[i] ^ mixed(i));
  atomicAdd(sum, own);
}

static unsigned long long sum_of(const Bounds& bounds, size_t elements, unsigned long long* place, cudaStream_t stream) {
  unsigned long long sum = 0;
  check_device(cudaMemcpy(place, &sum, sizeof sum, cudaMemcpyHostToDevice), "cudaMemcpy");
  for (const double* half : {bounds.low, bounds.high}) start(0, add_bits, BLOCKS, THREADS, stream, (const uint64_t*)half, elements, place);
  check_device(cudaStreamSynchronize(stream), "adding up bounds");
  check_device(cudaMemcpy(&sum, place, sizeof sum, cudaMemcpyDeviceToHost), "cudaMemcpy");
  return sum;
}

/* The bounds, from the reference or from a file that another process wrote. */
static void find_bounds(const Request& r, const InputSet& set, void* reference, const Checked& at, cudaStream_t stream) {
  const size_t bytes = at.output.elements * sizeof(double);
  const std::string kept = kept_bounds(r, set);
  if (are_kept(kept)) {
    const std::vector<unsigned char> data = read_file(kept, 2 * bytes);
    check_device(cudaMemcpy(at.low, data.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy of bounds");
    check_device(cudaMemcpy(at.high, data.data() + bytes, bytes, cudaMemcpyHostToDevice), "cudaMemcpy of bounds");
  } else {
    ReferenceCall call = symbol<ReferenceCall>(reference, "automap_reference");
    check_device(cudaMemset(at.low, POISON, bytes), "cudaMemset");
    check_device(cudaMemset(at.high, POISON, bytes), "cudaMemset");
    int error = call(at.tensors.data(), at.low, at.high, set.name == "exact", stream);
    if (error == 0) error = cudaStreamSynchronize(stream);
    if (error != 0) refuse(std::string("the reference fails: ") + cudaGetErrorString((cudaError_t)error));
    if (!kept.empty()) {
      std::vector<unsigned char> data(2 * bytes);
      check_device(cudaMemcpy(data.data(), at.low, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy of bounds");
      check_device(cudaMemcpy(data.data() + bytes, at.high, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy of bounds");
      /* Written under another name and renamed, so that a file is always complete. On failure it is computed again. */
      const std::string part = kept + "." + std::to_string(getpid());
      FILE* file = fopen(part.c_str(), "wb");
      const bool written = file && fwrite(data.data(), 1, data.size(), file) == data.size();
      if (file && fclose(file) == 0 && written) rename(part.c_str(), kept.c_str());
      else remove(part.c_str());
    }
  }
}

/* Calls the kernel and checks the guards, and with a reference (`bounded`) every element. @returns whether all pass */
static bool passes(int k, int call, const char* set, const Loaded& kernel, bool bounded, const Checked& at, cudaStream_t stream) {
  const Argument& output = at.output;
  const Type type = type_of(output.dtype);
  unsigned char* whole = (unsigned char*)at.written - GUARD_BYTES;
  check(k, cudaMemsetAsync(whole, POISON, output.bytes() + 2 * GUARD_BYTES, stream), "cudaMemsetAsync");
  check(k, (cudaError_t)kernel.launch(kernel.workspace, at.tensors.data(), stream), "launch");
  check(k, cudaStreamSynchronize(stream), "the kernel");
  Wrong found = {0, ~0ull};
  check(k, cudaMemcpy(at.wrong, &found, sizeof found, cudaMemcpyHostToDevice), "cudaMemcpy");
  if (bounded) start(k, compare, BLOCKS, THREADS, stream, at.written, type, output.elements, at.low, at.high, at.wrong);
  check(k, cudaStreamSynchronize(stream), "comparing");
  check(k, cudaMemcpy(&found, at.wrong, sizeof found, cudaMemcpyDeviceToHost), "cudaMemcpy");
  unsigned char guards[2 * GUARD_BYTES];
  check(k, cudaMemcpy(guards, whole, GUARD_BYTES, cudaMemcpyDeviceToHost), "cudaMemcpy");
  check(k, cudaMemcpy(guards + GUARD_BYTES, whole + GUARD_BYTES + output.bytes(), GUARD_BYTES, cudaMemcpyDeviceToHost), "cudaMemcpy");
  const bool outside = std::any_of(guards, guards + sizeof guards, [](unsigned char b) { return b != POISON; });
  if (outside) answer("out-of-bounds %d it writes beside its output, on %s inputs", k, set);
  else if (found.count > 0) {
    double bounds[2], value;
    start(k, one_element, 1, 1, stream, at.written, type, found.first, at.one);
    check(k, cudaStreamSynchronize(stream), "reading");
    check(k, cudaMemcpy(&value, at.one, sizeof value, cudaMemcpyDeviceToHost), "cudaMemcpy");
    check(k, cudaMemcpy(&bounds[0], at.low + found.first, sizeof(double), cudaMemcpyDeviceToHost), "cudaMemcpy");
    check(k, cudaMemcpy(&bounds[1], at.high + found.first, sizeof(double), cudaMemcpyDeviceToHost), "cudaMemcpy");
    answer("wrong %d %llu of %zu elements differ on %s inputs, call %d: element %llu of %s is %.9g, expected %.9g to %.9g", k,
           found.count, output.elements, set, call + 1, found.first, output.name.c_str(), value, bounds[0], bounds[1]);
  }
  return !outside && found.count == 0;
}

/* Checks two calls on every set that distinguishes wrong answers. A kernel that fails is not timed. */
static void verify(const Request& r, std::vector<Loaded>& kernels, cudaStream_t stream, const std::vector<void*>& tensors) {
  static std::vector<Bounds> all(r.sets.size());
  static Wrong* const wrong = (Wrong*)device_memory(sizeof(Wrong), "cudaMalloc");
  static double* const one = (double*)device_memory(sizeof(double), "cudaMalloc");
  static void* const reference = r.reference.empty() ? nullptr : open_library(r.reference);
  size_t left_out = 0;
  for (size_t s = 0; s < r.sets.size(); s++) {
    const InputSet& set = r.sets[s];
    const std::string& name = set.name;
    Bounds& bounds = all[s];
    const Argument& output = r.arguments[set.output];
    draw_inputs(r, name == "exact" ? EXACT : name == "random" ? RANDOM : EXTREME, tensors, stream);
    answer("at 0 reference on %s inputs", name.c_str());
    const bool bounded = reference || are_kept(kept_bounds(r, set));
    for (double** half : {&bounds.low, &bounds.high})
      if (!*half) *half = (double*)device_memory(output.elements * sizeof(double), "cudaMalloc of bounds");
    const Checked at = {output, tensors, tensors[set.output], bounds.low, bounds.high, wrong, one};
    if (bounded) {
      if (!bounds.are_found || sum_of(bounds, output.elements, &wrong->count, stream) != bounds.sum) {
        find_bounds(r, set, reference, at, stream);
        bounds.sum = sum_of(bounds, output.elements, &wrong->count, stream);
        bounds.are_found = true;
      }
      if (!tells(at.low, at.high)) {
        answer("left-out 0 %s", name.c_str());
        left_out++;
        continue;
      }
    }
    for (int k = 0; k < (int)kernels.size(); k++) {
      Loaded& kernel = kernels[k];
      if (kernel.failed) continue;
      current_kernel = k;
      answer("at %d call on %s inputs", k, name.c_str());
      check_asked(k, (cudaError_t)kernel.prepare(kernel.workspace, at.tensors.data(), stream));
      /* Twice: a call must neither need nor suffer from what the previous one left behind. */
      for (int call = 0; call < 2 && !kernel.failed; call++) kernel.failed = !passes(k, call, name.c_str(), kernel, bounded, at, stream);
    }
    if (is_memory_short()) {
      for (double* half : {bounds.low, bounds.high}) check_device(cudaFree(half), "cudaFree of bounds");
      bounds = Bounds();
    }
  }
  if (left_out > 0 && left_out == r.sets.size()) {
    answer("unverifiable");
    _exit(0);
  }
}
