// ---------------------------------------------------------------------------------------------------- request

enum class DType { u8, s8, u16, s16, u32, s32, f16, bf16, f32, f64, e4m3, e5m2 };

struct Argument {
  DType dtype;
  std::string name;
  size_t elements = 0, element_bytes;
  size_t bytes() const { return elements * element_bytes; }
};

/** A file mapped for reading. */
struct File {
  const char* data = nullptr;
  size_t bytes = 0;
};

struct InputSet {
  std::string name;
  /** Answers and bounds as doubles, or answers in the output's type with one bound for all. */
  File expected, tolerance, looser, stored, checked;
  double within = 0, loosely = -1;
  /** The argument that the answers are of. */
  size_t output = 0;
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
  /** This many batches suffice once they have taken this long. */
  int enough_batches = INT_MAX;
  double enough_seconds = 0;
  /** Seconds of a call that kernels of a race must beat: the given goal, then the least median so far. */
  double goal = INFINITY;
  std::vector<Argument> arguments;
  std::vector<InputSet> sets;
  std::vector<std::string> kernels;
  /** Whether each computes another form of the equation. */
  std::vector<bool> forms;
  /** Whether a kernel may write an argument: some set has answers of it. */
  bool is_written(size_t argument) const {
    return argument == 0 || std::any_of(sets.begin(), sets.end(), [=](const InputSet& set) { return set.output == argument; });
  }
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
      {"f16", DType::f16}, {"bf16", DType::bf16}, {"f32", DType::f32}, {"tf32", DType::f32}, {"f64", DType::f64},
      {"e4m3", DType::e4m3}, {"e5m2", DType::e5m2}};
  for (auto [known, dtype] : WORDS)
    if (word == known) return dtype;
  refuse("unknown type " + word);
}

static size_t bytes_of(DType dtype) {
  switch (dtype) {
    case DType::u8: case DType::s8: case DType::e4m3: case DType::e5m2: return 1;
    case DType::u16: case DType::s16: case DType::f16: case DType::bf16: return 2;
    case DType::u32: case DType::s32: case DType::f32: return 4;
    case DType::f64: break;
  }
  return 8;
}

/** Splits a line into words. Uses C's library: compiling C++ streams takes a third of a second. */
class Words {
  std::string line;
  const char* next = nullptr;

 public:
  /** Reads a line from stdin. @returns whether there was one */
  bool read() {
    static char* text = nullptr;
    static size_t room = 0;
    ssize_t length = getline(&text, &room, stdin);
    if (length > 0 && text[length - 1] == '\n') length--;
    if (length < 0) return false;
    line.assign(text, length);
    next = line.c_str();
    return true;
  }

  /** The rest of the line. */
  std::string rest() const { return *next == ' ' ? next + 1 : next; }

  std::string word() {
    while (*next == ' ') next++;
    const char* begin = next;
    while (*next && *next != ' ') next++;
    return std::string(begin, next);
  }

  /** Reads a number if there is one, else keeps the value. @returns whether there was one */
  bool number(double& value) { return take(value, strtod); }
  bool number(size_t& value) { return take(value, [](const char* from, char** end) { return strtoull(from, end, 10); }); }
  bool number(int& value) { return take(value, [](const char* from, char** end) { return strtol(from, end, 10); }); }

 private:
  template <class T, class Read> bool take(T& value, Read read) {
    char* end = nullptr;
    T found = read(next, &end);
    if (end == next) return false;
    next = end;
    value = found;
    return true;
  }
};

/** @param starter the process that started this one */
static Request read_request(pid_t starter) {
  Request r;
  Words words;
  bool is_whole = false;
  while (words.read()) {
    const std::string keyword = words.word(), rest = words.rest();
    if ((is_whole = keyword == "go")) break;
    if (keyword == "parent") {
      int parent = 0;
      words.number(parent);
      if (starter != parent) _exit(95);
    } else if (keyword == "threads") words.number(r.threads);
    else if (keyword == "cpus") for (int cpu = 0; words.number(cpu);) r.cpus.push_back(cpu);
    else if (keyword == "memory") words.number(r.memory);
    else if (keyword == "files") words.number(r.files);
    else if (keyword == "cache") r.flushed = rest == "flushed";
    else if (keyword == "batch") words.number(r.batch);
    else if (keyword == "budget") words.number(r.budget);
    else if (keyword == "batches") words.number(r.least_batches), words.number(r.most_batches);
    else if (keyword == "enough") words.number(r.enough_batches), words.number(r.enough_seconds);
    else if (keyword == "baseline") r.baseline = true;
    else if (keyword == "race") r.race = true;
    else if (keyword == "goal") words.number(r.goal);
    else if (keyword == "argument") {
      Argument a;
      a.dtype = dtype_of(words.word());
      words.number(a.elements);
      a.name = words.word();
      a.element_bytes = bytes_of(a.dtype);
      r.arguments.push_back(a);
    } else if (keyword == "set") {
      r.sets.emplace_back();
      r.sets.back().name = rest;
    } else if (keyword == "kernel" || keyword == "form") {
      r.kernels.push_back(rest);
      r.forms.push_back(keyword == "form");
    }
    else if (r.sets.empty()) refuse("unknown keyword " + keyword);
    else if (keyword == "output") words.number(r.sets.back().output);
    else if (keyword == "expected") r.sets.back().expected = open_file(rest);
    else if (keyword == "tolerance") r.sets.back().tolerance = open_file(rest);
    else if (keyword == "looser") r.sets.back().looser = open_file(rest);
    else if (keyword == "loosely") words.number(r.sets.back().loosely);
    else if (keyword == "stored") r.sets.back().stored = open_file(rest);
    else if (keyword == "within") words.number(r.sets.back().within);
    else if (keyword == "checked") r.sets.back().checked = open_file(rest);
    else if (keyword == "input") r.sets.back().inputs.push_back(open_file(rest));
    else refuse("unknown keyword " + keyword);
  }
  if (!is_whole) _exit(95);
  if (!r.baseline && (r.sets.empty() || r.arguments.empty())) refuse("kernels need arguments and a set of inputs");
  for (const InputSet& set : r.sets) {
    if (set.inputs.size() + 1 != r.arguments.size()) refuse("a set needs a file for every input");
    if (set.output >= r.arguments.size()) refuse("a set has answers of no argument");
    const Argument& output = r.arguments[set.output];
    size_t elements = output.elements;
    const bool in_doubles = set.expected.bytes == 8 * elements && set.tolerance.bytes == 8 * elements;
    if (set.stored.data ? set.stored.bytes != output.bytes() : !in_doubles) refuse("expected and tolerance are not of the output's size");
    if (set.looser.data && set.looser.bytes != 8 * elements) refuse("looser is not of the output's size");
    if (set.checked.bytes != 0 && set.checked.bytes != elements) refuse("checked is not of the output's size");
    for (size_t i = 0; i < set.inputs.size(); i++)
      if (set.inputs[i].bytes != r.arguments[i + 1].bytes()) refuse("input " + r.arguments[i + 1].name + " is not of its size");
  }
  return r;
}

