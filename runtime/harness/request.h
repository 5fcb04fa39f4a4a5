// ---------------------------------------------------------------------------------------------------- request

enum class DType { u8, s8, u16, s16, u32, s32, f16, bf16, f32, f64 };

struct Argument {
  DType dtype;
  std::string name;
  size_t elements, element_bytes;
  size_t bytes() const { return elements * element_bytes; }
};

/** A file mapped for reading. */
struct File {
  const char* data = nullptr;
  size_t bytes = 0;
};

struct InputSet {
  std::string name;
  /** Answers and bounds as doubles; or answers as they lie in memory, and one bound for all. */
  File expected, tolerance, stored, checked;
  double within = 0;
  std::vector<File> inputs;
};

struct Request {
  int threads = 1;
  std::vector<int> cpus;
  size_t memory = size_t(1) << 30;
  size_t files = 0;
  bool flushed = false, baseline = false, race = false;
  double batch = 200e-6, budget = 0.3;
  int least_batches = 5, most_batches = 200;
  /** Seconds of a call that kernels of a race are to beat: given, then the least median of those before. */
  double goal = INFINITY;
  std::vector<Argument> arguments;
  std::vector<InputSet> sets;
  std::vector<std::string> kernels;
};

[[noreturn]] static void refuse(const std::string& message) {
  answer("refused " + message);
  _exit(96);
}

static File open_file(const std::string& path) {
  int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat about;
  if (file < 0 || fstat(file, &about)) fault("environment", format("%s cannot be opened: %s", path.c_str(), strerror(errno)).c_str());
  File result;
  result.bytes = about.st_size;
  if (result.bytes > 0) {
    void* map = mmap(nullptr, result.bytes, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0);
    if (map == MAP_FAILED) fault("environment", format("%s cannot be read: %s", path.c_str(), strerror(errno)).c_str());
    result.data = static_cast<const char*>(map);
  }
  close(file);
  return result;
}

static DType dtype_of(const std::string& word) {
  static const std::pair<const char*, DType> WORDS[] = {
      {"u8", DType::u8},   {"s8", DType::s8},   {"u16", DType::u16}, {"s16", DType::s16},   {"u32", DType::u32}, {"s32", DType::s32},
      {"f16", DType::f16}, {"bf16", DType::bf16}, {"f32", DType::f32}, {"tf32", DType::f32}, {"f64", DType::f64}};
  for (auto [known, dtype] : WORDS)
    if (word == known) return dtype;
  refuse("unknown type " + word);
}

static size_t bytes_of(DType dtype) {
  switch (dtype) {
    case DType::u8: case DType::s8: return 1;
    case DType::u16: case DType::s16: case DType::f16: case DType::bf16: return 2;
    case DType::u32: case DType::s32: case DType::f32: return 4;
    case DType::f64: break;
  }
  return 8;
}

/** @param starter the process that started this one */
static Request read_request(pid_t starter) {
  Request r;
  std::string line;
  while (std::getline(std::cin, line) && line != "go") {
    std::istringstream words(line);
    std::string keyword;
    words >> keyword;
    std::string rest = line.size() > keyword.size() ? line.substr(keyword.size() + 1) : "";
    if (keyword == "parent") {
      int parent = 0;
      words >> parent;
      if (starter != parent) _exit(95);
    } else if (keyword == "threads") words >> r.threads;
    else if (keyword == "cpus") for (int cpu; words >> cpu;) r.cpus.push_back(cpu);
    else if (keyword == "memory") words >> r.memory;
    else if (keyword == "files") words >> r.files;
    else if (keyword == "cache") r.flushed = rest == "flushed";
    else if (keyword == "batch") words >> r.batch;
    else if (keyword == "budget") words >> r.budget;
    else if (keyword == "batches") words >> r.least_batches >> r.most_batches;
    else if (keyword == "baseline") r.baseline = true;
    else if (keyword == "race") r.race = true;
    else if (keyword == "goal") words >> r.goal;
    else if (keyword == "argument") {
      Argument a;
      std::string dtype;
      words >> dtype >> a.elements >> a.name;
      a.dtype = dtype_of(dtype);
      a.element_bytes = bytes_of(a.dtype);
      r.arguments.push_back(a);
    } else if (keyword == "set") {
      r.sets.emplace_back();
      r.sets.back().name = rest;
    } else if (keyword == "kernel") r.kernels.push_back(rest);
    else if (r.sets.empty()) refuse("unknown keyword " + keyword);
    else if (keyword == "expected") r.sets.back().expected = open_file(rest);
    else if (keyword == "tolerance") r.sets.back().tolerance = open_file(rest);
    else if (keyword == "stored") r.sets.back().stored = open_file(rest);
    else if (keyword == "within") words >> r.sets.back().within;
    else if (keyword == "checked") r.sets.back().checked = open_file(rest);
    else if (keyword == "input") r.sets.back().inputs.push_back(open_file(rest));
    else refuse("unknown keyword " + keyword);
  }
  if (line != "go") _exit(95);
  if (!r.baseline && (r.sets.empty() || r.arguments.empty())) refuse("kernels need arguments and a set of inputs");
  for (const InputSet& set : r.sets) {
    if (set.inputs.size() + 1 != r.arguments.size()) refuse("a set needs a file for every input");
    size_t elements = r.arguments[0].elements;
    const bool in_doubles = set.expected.bytes == 8 * elements && set.tolerance.bytes == 8 * elements;
    if (set.stored.data ? set.stored.bytes != r.arguments[0].bytes() : !in_doubles) refuse("expected and tolerance are not of the output's size");
    if (set.checked.bytes != 0 && set.checked.bytes != elements) refuse("checked is not of the output's size");
    for (size_t i = 0; i < set.inputs.size(); i++)
      if (set.inputs[i].bytes != r.arguments[i + 1].bytes()) refuse("input " + r.arguments[i + 1].name + " is not of its size");
  }
  return r;
}

