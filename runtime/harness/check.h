// ---------------------------------------------------------------------------------------------------- elements

/** An element as a double, which is exact for every type. */
static double element(DType dtype, const char* p) {
  auto as = [p](auto value) {
    memcpy(&value, p, sizeof value);
    return value;
  };
  switch (dtype) {
    case DType::u8: return as(uint8_t());
    case DType::s8: return as(int8_t());
    case DType::u16: return as(uint16_t());
    case DType::s16: return as(int16_t());
    case DType::u32: return as(uint32_t());
    case DType::s32: return as(int32_t());
    case DType::f32: return as(float());
    case DType::f64: return as(double());
    case DType::bf16: {
      uint32_t bits = uint32_t(as(uint16_t())) << 16;
      float value;
      memcpy(&value, &bits, sizeof value);
      return value;
    }
    case DType::e4m3: {
      // One exponent more than a float of five bits of exponent has; its last number is NaN.
      const int bits = as(uint8_t()), exponent = bits >> 3 & 15, fraction = bits & 7;
      const double magnitude = (bits & 0x7f) == 0x7f ? NAN : exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
      return bits & 0x80 ? -magnitude : magnitude;
    }
    case DType::e5m2:
    case DType::f16: break;
  }
  // An e5m2 is the upper byte of the f16 of the same value.
  uint16_t bits = dtype == DType::e5m2 ? uint16_t(as(uint8_t()) << 8) : as(uint16_t());
  int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double magnitude = exponent == 31 ? (fraction ? NAN : INFINITY)
                                    : exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

/** Whether all elements are within one bound of the answers. The block length is known, so that compilers vectorise. */
template <class T> static bool all_within(const char* got_bytes, const char* want_bytes, size_t elements, double within) {
  constexpr size_t BLOCK = 1024;
  const T *got = reinterpret_cast<const T*>(got_bytes), *want = reinterpret_cast<const T*>(want_bytes);
  const auto is_off = [=](size_t i) { return !(std::fabs(double(got[i]) - double(want[i])) <= within); };
  size_t begin = 0;
  for (; begin + BLOCK <= elements; begin += BLOCK) {
    int off = 0;
    for (size_t i = begin; i < begin + BLOCK; i++) off |= is_off(i);
    if (off) return false;
  }
  for (; begin < elements; begin++)
    if (is_off(begin)) return false;
  return true;
}

/**
 * Describes the first wrong element; empty if there is none. NaN differs from every number.
 * @param of_form whether a kernel of another form made it
 */
static std::string compare(const Argument& output, const char* got_bytes, const InputSet& set, bool of_form) {
  const double within = of_form && set.loosely >= 0 ? set.loosely : set.within;
  if (set.stored.data && !set.checked.data) {
    if (memcmp(got_bytes, set.stored.data, output.bytes()) == 0) return "";
    const bool passes = output.dtype == DType::f32   ? all_within<float>(got_bytes, set.stored.data, output.elements, within)
                        : output.dtype == DType::f64 ? all_within<double>(got_bytes, set.stored.data, output.elements, within)
                                                     : false;
    if (passes) return "";
  }
  const auto* doubles = reinterpret_cast<const double*>(set.expected.data);
  const auto* tolerances = reinterpret_cast<const double*>((of_form && set.looser.data ? set.looser : set.tolerance).data);
  const auto want = [&](size_t i) { return doubles ? doubles[i] : element(output.dtype, set.stored.data + i * output.element_bytes); };
  const auto tolerance = [&](size_t i) { return tolerances ? tolerances[i] : within; };
  size_t bad = 0, first = 0, checked = 0;
  double worst = 0, first_got = 0;
  for (size_t i = 0; i < output.elements; i++) {
    if (set.checked.data && !set.checked.data[i]) continue;
    checked++;
    double got = element(output.dtype, got_bytes + i * output.element_bytes);
    double error = std::fabs(got - want(i));
    if (got == want(i) || error <= tolerance(i) || (std::isnan(got) && std::isnan(want(i)))) continue;
    if (bad++ == 0) first = i, first_got = got;
    if (!(error <= worst)) worst = error;
  }
  if (bad == 0) return "";
  return format("%zu of %zu elements of %s differ; first at memory element %zu: got %.9g, want %.9g within %.3g; largest error %.3g",
                bad, checked, output.name.c_str(), first, first_got, want(first), tolerance(first), worst);
}

/** Whether two outputs have equal bits in all elements. */
static bool same_bits(const Argument& output, const char* a, const char* b, const InputSet& set) {
  if (!set.checked.data) return memcmp(a, b, output.bytes()) == 0;
  for (size_t i = 0; i < output.elements; i++)
    if (set.checked.data[i] && memcmp(a + i * output.element_bytes, b + i * output.element_bytes, output.element_bytes)) return false;
  return true;
}

// --------------------------------------------------------------------------------------------------- loading, checking

static Kernel load(int number, const std::string& path) {
  at(number, "loading");
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    // A library linked with -z defs fails to load only if memory is short or its file is gone.
    const char* reason = dlerror();
    if (strstr(reason, "Cannot allocate memory")) fault("out-of-memory", reason);
    fault("environment", format("%s; delete it, and it is made again", reason).c_str());
  }
  auto symbol = [library](const char* name) {
    void* found = dlsym(library, name);
    if (!found) fault("crashed", format("the kernel has no function %s", name).c_str());
    return found;
  };
  Kernel k;
  k.number = number;
  k.workspace_bytes = reinterpret_cast<decltype(k.workspace_bytes)>(symbol("automap_workspace_bytes"));
  k.scratch_bytes = reinterpret_cast<decltype(k.scratch_bytes)>(dlsym(library, "automap_scratch_bytes"));
  k.prepare = reinterpret_cast<decltype(k.prepare)>(symbol("automap_prepare"));
  k.phases = reinterpret_cast<decltype(k.phases)>(symbol("automap_phases"));
  k.run = reinterpret_cast<decltype(k.run)>(symbol("automap_run"));
  return k;
}

/** Allocates the tensors, fills the inputs and makes them read-only. */
static std::vector<void*> place_tensors(const Request& r, const InputSet& set, Placement placement) {
  std::vector<void*> tensors;
  for (size_t i = 0; i < r.arguments.size(); i++) {
    const Argument& a = r.arguments[i];
    Buffer& b = allocate(a.name, a.bytes(), a.element_bytes, placement);
    if (i > 0) {
      if (b.bytes > 0) memcpy(b.data, set.inputs[i - 1].data, b.bytes);
      if (!r.is_written(i)) protect(b);
    }
    tensors.push_back(b.data);
  }
  return tensors;
}

static void* place_workspace(const Kernel& k, Placement placement) {
  Buffer& b = allocate("the workspace", k.workspace_bytes(), 64, placement);
  memset(b.data, 0xff, b.bytes);
  return b.data;
}

/** Allocates the memory of a call, and adds it to the tensors. */
static Buffer& add_scratch(const Kernel& k, std::vector<void*>& tensors, Placement placement) {
  Buffer& b = allocate("the scratch", k.scratch_bytes ? k.scratch_bytes() : 0, 64, placement);
  tensors.push_back(b.data);
  return b;
}

/** Two patterns, so that an unwritten element is wrong under at least one. The first is NaN in every float type. */
static constexpr int POISON[] = {0xff, 0x5a};

/** What running a kernel on every set said. */
struct Checked {
  /** An answer `wrong ...` without the kernel's number; empty if right. */
  std::string verdict;
  /** Seconds of its fastest call. */
  double fastest = INFINITY;
};

/**
 * Runs the kernel twice on every set.
 * @param slow seconds of a call after which it runs once on each: no later call would make it worth its time
 * @param lengthy seconds of a call after which it runs twice on the first set only
 */
static Checked verify(const Kernel& k, const Request& r, double slow = INFINITY, double lengthy = INFINITY) {
  double fastest = INFINITY;
  bool is_slow = false;
  for (size_t s = 0; s < r.sets.size(); s++) {
    const InputSet& set = r.sets[s];
    const Argument& output = r.arguments[set.output];
    // Data ends exactly at the guard behind it, then starts at the guard before it, aligned to its element type only.
    Placement placement = s % 2 == 0 ? Placement::end : Placement::start;
    std::vector<void*> tensors = place_tensors(r, set, placement);
    at(k.number, "asking for its workspace");
    kernels_ran = true;
    void* workspace = place_workspace(k, placement);
    const Buffer& scratch = add_scratch(k, tensors, placement);
    char* out = static_cast<char*>(tensors[set.output]);
    at(k.number, "preparing on " + set.name + " inputs");
    memset(out, POISON[0], output.bytes());
    k.prepare(workspace, tensors.data());
    Job once = {&k, workspace, tensors.data(), k.phases(), 1};
    static std::vector<char> before;
    int calls = is_slow || (s > 0 && fastest > lengthy) ? 1 : 2;
    for (int call = 0; call < calls; call++) {
      std::string where = format("call %d on %s inputs", call + 1, set.name.c_str());
      at(k.number, where);
      memset(out, POISON[(call + s) % 2], output.bytes());
      memset(scratch.data, POISON[(call + s) % 2], scratch.bytes);
      fastest = std::min(fastest, run_job(once, r.threads));
      if (std::string harm = damage(); !harm.empty()) return {"out-of-bounds " + where + ": " + harm};
      if (std::string difference = compare(output, out, set, r.forms[k.number]); !difference.empty()) return {"wrong " + where + ": " + difference};
      if (call == 1 && !same_bits(output, before.data(), out, set))
        return {"wrong " + where + ": the result differs from that of call 1 on the same inputs"};
      // Each of two sets begins with another poison.
      is_slow |= fastest > slow && r.sets.size() > 1;
      if (is_slow) calls = 1;
      if (call + 1 < calls) before.assign(out, out + output.bytes());
    }
    release_all();
  }
  // Something else delayed its first call.
  if (is_slow && fastest <= slow) return verify(k, r);
  return {"", fastest};
}

/** Inserts the kernel's number after the answer's first word. */
static void answer_failure(const Kernel& k, const std::string& verdict) {
  size_t space = verdict.find(' ');
  answer(verdict.substr(0, space) + format(" %d", k.number) + verdict.substr(space));
}
