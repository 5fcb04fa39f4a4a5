/* The request of a process that runs CUDA kernels; its keywords are in cuda.cu. */
struct Argument {
  std::string dtype, name, file;
  size_t elements;
  size_t bytes() const { return elements * (size_t)width(); }
  int width() const {
    if (dtype == "u8" || dtype == "s8" || dtype == "e4m3" || dtype == "e5m2") return 1;
    if (dtype == "u16" || dtype == "s16" || dtype == "f16" || dtype == "bf16") return 2;
    return dtype == "f64" ? 8 : 4;
  }
};

/* Inputs, and answers of one argument. */
struct InputSet {
  std::string name;
  size_t output = 0;
};

struct Request {
  int device = 0;
  std::vector<Argument> arguments;
  std::vector<InputSet> sets;
  std::vector<std::string> kernels, probes;
  std::string reference, bounds;
  bool flushed = false, race = false;
  double goal = INFINITY;
  uint64_t seed = 1;
  double batch = 0.0005, budget = 0.1, settle = 0;
  int least = 5, most = 200;
  /* The lines of all but the kernels and how they are timed: what stays from one request of a process to the next. */
  std::string problem;
};

static bool is_of_problem(const std::string& word) {
  for (const char* known : {"device", "argument", "fixed", "seed", "set", "reference", "bounds"})
    if (word == known) return true;
  return false;
}

/* @returns whether there was a request; none ends the process */
static bool read_request(Request& r) {
  r = Request();
  std::string line;
  bool is_begun = false;
  while (std::getline(std::cin, line)) {
    is_begun = true;
    std::istringstream words(line);
    std::string word, rest;
    words >> word;
    if (is_of_problem(word)) r.problem += line + "\n";
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
    else if (word == "settle") words >> r.settle;
    else if (word == "batches") words >> r.least >> r.most;
    else if (word == "race") r.race = true;
    else if (word == "goal") words >> r.goal;
    else if (word == "set") {
      InputSet set;
      words >> set.name >> set.output;
      if (set.output >= r.arguments.size()) refuse("a set has answers of no argument");
      r.sets.push_back(set);
    } else if (word == "kernel" || word == "probe" || word == "reference" || word == "bounds") {
      words >> std::ws;
      std::getline(words, rest);
      if (word == "reference") r.reference = rest;
      else if (word == "bounds") r.bounds = rest;
      else (word == "probe" ? r.probes : r.kernels).push_back(rest);
    } else if (word == "go") return true;
    else refuse("unknown word " + word);
  }
  if (is_begun) refuse("the request ends without go");
  return false;
}
