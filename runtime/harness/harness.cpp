// ---------------------------------------------------------------------------------------------------- limits

static size_t address_space() {
  size_t pages = 0;
  if (FILE* file = fopen("/proc/self/statm", "r")) {
    if (fscanf(file, "%zu", &pages) != 1) pages = 0;
    fclose(file);
  }
  return pages * PAGE;
}

static void limit(int resource, size_t most) {
  rlimit value = {most, most};
  setrlimit(resource, &value);
}

/** Fails if the shell's limits allow less than is needed. */
static void limit_space(size_t most) {
  rlimit value = {};
  getrlimit(RLIMIT_AS, &value);
  if (value.rlim_max < most)
    fault("environment", format("this shell allows %zu bytes of address space (ulimit -v), measuring needs %zu", size_t(value.rlim_max), most).c_str());
  limit(RLIMIT_AS, std::min<size_t>(value.rlim_max, most + MOST_SPARE_BYTES));
  most_space = most;
  add_spare_bytes(0);
}

/** The harness's needs (tensors between guards, thread stacks and heaps), then the kernels' allowance. */
static void set_limits(const Request& r) {
  size_t own = address_space() + (size_t(64) << 20);
  for (const Argument& a : r.arguments) own += a.bytes() + 2 * GUARD + 2 * PAGE;
  own += r.arguments.empty() ? 0 : r.arguments[0].bytes();
  own += r.kernels.size() * 2 * GUARD;
  own += r.threads * (size_t(144) << 20);
  limit_space(own + r.memory);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_FSIZE, r.files);
}

int main() {
  const pid_t starter = getppid();
  current_process = getpid();
  supervise(starter);
  install_handlers();
  setvbuf(stdout, nullptr, _IOLBF, 0);  // what a kernel prints before it dies is in the log
  Request r = read_request(starter);
  set_limits(r);
  answer(format("tick %.9g", clock_tick()));
  start_threads(r);
  if (r.baseline) time_baseline(r);
  else if (r.race) race(r);
  else take_turns(r);
  answer("done");
  _exit(0);
}
