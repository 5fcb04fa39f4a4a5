/*
 * Runs kernels, checks every element they write, and times them. Compiled once a compiler; one process answers one request.
 *
 * The request comes on stdin, a keyword and the rest of its line each:
 *
 *     parent 4711                      the process that asks: this one ends with it
 *     threads 2                        parts of a call, one pinned thread each
 *     cpus 0 1                         where they are pinned
 *     memory 1073741824                bytes the kernels may allocate
 *     alignment 64                     of every tensor's first element
 *     cache warm                       or `flushed`: out of every cache before each call
 *     batch 0.0002                     least seconds of a batch of calls
 *     budget 0.3                       seconds of batches for each kernel
 *     batches 5 200                    least and most batches
 *     argument f32 1024 out            the output, then the inputs: type, elements, name
 *     set random                       a set of inputs with its answer; then one file a line:
 *     expected PATH                      f64, in the output's memory order
 *     tolerance PATH                     f64, largest |got - want| that passes
 *     checked PATH                       u8, 0 where memory holds no element; left out when all do
 *     input PATH                         bytes of each input, in the order of the arguments
 *     kernel PATH                      shared objects; with several, batches alternate A B A B
 *     baseline                         time the fixed loop below instead, to see the machine drift
 *     go                               the request is complete
 *
 * Answers go to descriptor 3, so that what a kernel prints cannot be taken for one:
 *
 *     at 0 call 1 on random inputs     kernel 0 has come this far; also a sign of life
 *     wrong 0 MESSAGE                  refused: `wrong`, or `out-of-bounds`
 *     fault 0 STATUS MESSAGE           the process ends here
 *     samples 0 1.2e-05 ...            seconds of one call, one number a batch
 *     tick 2.1e-08                     seconds: smallest step seen of CLOCK_MONOTONIC_RAW
 *     done
 */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
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
#include <vector>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

// ---------------------------------------------------------------------------------------------------- answers

static constexpr int ANSWERS = 3;

static void write_all(const char* text, size_t length) {
  while (length > 0) {
    ssize_t written = write(ANSWERS, text, length);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) _exit(97);
    text += written;
    length -= written;
  }
}

static void answer(const std::string& line) { write_all((line + "\n").c_str(), line.size() + 1); }

__attribute__((format(printf, 1, 2))) static std::string format(const char* how, ...) {
  char text[1024];
  va_list values;
  va_start(values, how);
  vsnprintf(text, sizeof text, how, values);
  va_end(values);
  return text;
}

/** Which kernel is doing what; read by the signal handler. */
static int current_kernel = 0;

static void at(int kernel, const std::string& stage) {
  current_kernel = kernel;
  answer(format("at %d ", kernel) + stage);
}

/** Ends the process with a status of the kernel that was running. Safe in a signal handler. */
[[noreturn]] static void fault(const char* status, const char* message) {
  char line[512];
  int length = snprintf(line, sizeof line, "fault %d %s %s\n", current_kernel, status, message);
  write_all(line, std::min<size_t>(length, sizeof line - 1));
  _exit(98);
}

// ---------------------------------------------------------------------------------------------------- memory that was refused

/* A kernel whose allocation was refused by the limit mostly crashes next: on null, or by std::bad_alloc. The size tells why. */
static std::atomic<size_t> refused{0};

static void* noted(void* memory, size_t bytes) {
  if (!memory) refused = bytes;
  return memory;
}

#if defined(__GLIBC__)
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t bytes) noexcept { return noted(__libc_malloc(bytes), bytes); }
void* calloc(size_t count, size_t bytes) noexcept { return noted(__libc_calloc(count, bytes), count * bytes); }
void* realloc(void* old, size_t bytes) noexcept {
  void* memory = __libc_realloc(old, bytes);
  return bytes == 0 ? memory : noted(memory, bytes);
}
void* memalign(size_t alignment, size_t bytes) noexcept { return noted(__libc_memalign(alignment, bytes), bytes); }
void* aligned_alloc(size_t alignment, size_t bytes) noexcept { return noted(__libc_memalign(alignment, bytes), bytes); }
int posix_memalign(void** memory, size_t alignment, size_t bytes) noexcept {
  *memory = noted(__libc_memalign(alignment, bytes), bytes);
  return *memory ? 0 : ENOMEM;
}
void* mmap(void* where, size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
  long address = syscall(SYS_mmap, where, bytes, protection, flags, file, offset);
  if (address == -1 && errno == ENOMEM) refused = bytes;
  return reinterpret_cast<void*>(address);
}
}
#endif

// ---------------------------------------------------------------------------------------------------- buffers between guards

static constexpr size_t PAGE = 4096;
/** Unreadable memory on each side: a stray index by a whole row still lands in it. */
static constexpr size_t GUARD = 1 << 20;
static constexpr unsigned char CANARY = 0xc3;

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/** Where the data lies between its guards: against the one behind, against the one before, or off both, as memory mostly is. */
enum class Placement { end, start, spread };

struct Buffer {
  char name[64];
  char* map;
  size_t pages; /* bytes between the guards */
  char* data;
  size_t bytes;
  bool read_only;

  char* begin() const { return map + GUARD; }
  char* end() const { return begin() + pages; }
};

static Buffer buffers[64];
static int buffer_count = 0;

static Buffer& allocate(const std::string& name, size_t bytes, size_t alignment, Placement placement) {
  if (buffer_count == 64) fault("crashed", "the harness holds 64 buffers at most");
  Buffer& b = buffers[buffer_count];
  snprintf(b.name, sizeof b.name, "%s", name.c_str());
  // Tensors that all begin a page would evict each other: 320 bytes apart, they do not.
  size_t offset = placement == Placement::spread ? buffer_count * 320 % PAGE : 0;
  b.pages = round_up(std::max<size_t>(bytes + offset, 1), PAGE);
  b.bytes = bytes;
  b.read_only = false;
  void* map = mmap(nullptr, b.pages + 2 * GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED || mprotect(static_cast<char*>(map) + GUARD, b.pages, PROT_READ | PROT_WRITE))
    fault("out-of-memory", format("%zu bytes for %s were refused", bytes, b.name).c_str());
  b.map = static_cast<char*>(map);
  b.data = b.begin() + offset;
  if (placement == Placement::end) b.data = b.begin() + (b.pages - bytes) / alignment * alignment;
  memset(b.begin(), CANARY, b.pages);
  buffer_count++;
  return b;
}

static void release_all() {
  while (buffer_count > 0) {
    Buffer& b = buffers[--buffer_count];
    munmap(b.map, b.pages + 2 * GUARD);
  }
}

static void protect(Buffer& b) {
  mprotect(b.begin(), b.pages, PROT_READ);
  b.read_only = true;
}

/** What was written between the data and the guards, the farthest byte; empty when nothing. */
static std::string damage() {
  for (int i = 0; i < buffer_count; i++) {
    const Buffer& b = buffers[i];
    auto intact = [](const char* p) { return static_cast<unsigned char>(*p) == CANARY; };
    for (const char* p = b.begin(); p < b.data; p++)
      if (!intact(p)) return format("wrote %zd bytes before the start of %s", b.data - p, b.name);
    for (const char* p = b.end(); p-- > b.data + b.bytes;)
      if (!intact(p)) return format("wrote %zd bytes behind the end of %s", p - (b.data + b.bytes) + 1, b.name);
  }
  return "";
}

// ---------------------------------------------------------------------------------------------------- signals

#if defined(__x86_64__)
static bool is_write(const ucontext_t* context) { return context->uc_mcontext.gregs[REG_ERR] & 2; }
static const char* stack_pointer(const ucontext_t* context) {
  return reinterpret_cast<const char*>(context->uc_mcontext.gregs[REG_RSP]);
}
#else
static bool is_write(const ucontext_t*) { return false; }
static const char* stack_pointer(const ucontext_t*) { return nullptr; }
#endif

static void on_fault(int signal, siginfo_t* info, void* context) {
  const char* address = static_cast<const char*>(info->si_addr);
  const auto* state = static_cast<const ucontext_t*>(context);
  char text[256];
  if (signal == SIGILL) {
    snprintf(text, sizeof text, "the processor does not know the instruction at %p", info->si_addr);
    fault("illegal-instruction", text);
  }
  if (signal == SIGSEGV) {
    const char* verb = is_write(state) ? "wrote" : "read";
    for (int i = 0; i < buffer_count; i++) {
      const Buffer& b = buffers[i];
      if (address < b.map || address >= b.end() + GUARD) continue;
      if (address < b.data) snprintf(text, sizeof text, "%s %zd bytes before the start of %s", verb, b.data - address, b.name);
      else if (address >= b.data + b.bytes)
        snprintf(text, sizeof text, "%s %zd bytes behind the end of %s", verb, address - (b.data + b.bytes) + 1, b.name);
      else snprintf(text, sizeof text, "wrote to %s, byte %zd, which is an input", b.name, address - b.data);
      fault("out-of-bounds", text);
    }
  }
  if (refused > 0) {
    snprintf(text, sizeof text, "an allocation of %zu bytes was refused, then signal %d", refused.load(), signal);
    fault("out-of-memory", text);
  }
  const char* near = stack_pointer(state);
  if (signal == SIGSEGV && near && address > near - (1 << 16) && address < near + (1 << 16))
    snprintf(text, sizeof text, "the stack overflowed at %p", info->si_addr);
  else if (signal == SIGSEGV && info->si_code == SI_KERNEL)
    snprintf(text, sizeof text, "general protection: a misaligned access, or an address that cannot be");
  else if (signal == SIGSEGV) snprintf(text, sizeof text, "%s address %p", is_write(state) ? "wrote" : "read", info->si_addr);
  else snprintf(text, sizeof text, "signal %d (%s)", signal, strsignal(signal));
  fault("crashed", text);
}

/** Faults are told on a stack of their own: the kernel's may be what overflowed. */
static void use_fault_stack() {
  stack_t stack = {};
  stack.ss_size = 1 << 16;
  stack.ss_sp = mmap(nullptr, stack.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  sigaltstack(&stack, nullptr);
}

static void on_orphaned(int) { kill(0, SIGKILL); }

static void install_handlers() {
  use_fault_stack();
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS, SIGXFSZ}) sigaction(signal, &action, nullptr);
  // When automap dies, so does this process with all that a kernel may have started.
  struct sigaction orphaned = {};
  orphaned.sa_handler = on_orphaned;
  orphaned.sa_flags = SA_ONSTACK;
  sigaction(SIGTERM, &orphaned, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
}

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
  File expected, tolerance, checked;
  std::vector<File> inputs;
};

struct Request {
  int threads = 1;
  std::vector<int> cpus;
  size_t memory = size_t(1) << 30, alignment = 64;
  bool flushed = false, baseline = false;
  double batch = 200e-6, budget = 0.3;
  int least_batches = 5, most_batches = 200;
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
  if (file < 0 || fstat(file, &about)) refuse("cannot open " + path);
  File result;
  result.bytes = about.st_size;
  if (result.bytes > 0) {
    void* map = mmap(nullptr, result.bytes, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0);
    if (map == MAP_FAILED) refuse("cannot read " + path);
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

static Request read_request() {
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
      if (getppid() != parent) _exit(95);
    } else if (keyword == "threads") words >> r.threads;
    else if (keyword == "cpus") for (int cpu; words >> cpu;) r.cpus.push_back(cpu);
    else if (keyword == "memory") words >> r.memory;
    else if (keyword == "alignment") words >> r.alignment;
    else if (keyword == "cache") r.flushed = rest == "flushed";
    else if (keyword == "batch") words >> r.batch;
    else if (keyword == "budget") words >> r.budget;
    else if (keyword == "batches") words >> r.least_batches >> r.most_batches;
    else if (keyword == "baseline") r.baseline = true;
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
    else if (keyword == "checked") r.sets.back().checked = open_file(rest);
    else if (keyword == "input") r.sets.back().inputs.push_back(open_file(rest));
    else refuse("unknown keyword " + keyword);
  }
  if (line != "go") _exit(95);
  if (!r.baseline && (r.sets.empty() || r.arguments.empty())) refuse("kernels need arguments and a set of inputs");
  for (const InputSet& set : r.sets) {
    if (set.inputs.size() + 1 != r.arguments.size()) refuse("a set needs a file for every input");
    size_t elements = r.arguments[0].elements;
    if (set.expected.bytes != 8 * elements || set.tolerance.bytes != 8 * elements) refuse("expected and tolerance are not of the output's size");
    if (set.checked.bytes != 0 && set.checked.bytes != elements) refuse("checked is not of the output's size");
    for (size_t i = 0; i < set.inputs.size(); i++)
      if (set.inputs[i].bytes != r.arguments[i + 1].bytes()) refuse("input " + r.arguments[i + 1].name + " is not of its size");
  }
  return r;
}

// ---------------------------------------------------------------------------------------------------- elements

/** The number an element is: every type is exact in a double. */
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
    case DType::f16: break;
  }
  uint16_t bits = as(uint16_t());
  int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double magnitude = exponent == 31 ? (fraction ? NAN : INFINITY)
                                    : exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

/** How the output differs from what is wanted; empty when it does not. NaN differs from everything. */
static std::string compare(const Argument& output, const char* got_bytes, const InputSet& set) {
  const auto* want = reinterpret_cast<const double*>(set.expected.data);
  const auto* tolerance = reinterpret_cast<const double*>(set.tolerance.data);
  size_t bad = 0, first = 0, checked = 0;
  double worst = 0, first_got = 0;
  for (size_t i = 0; i < output.elements; i++) {
    if (set.checked.data && !set.checked.data[i]) continue;
    checked++;
    double got = element(output.dtype, got_bytes + i * output.element_bytes);
    double error = std::fabs(got - want[i]);
    if (got == want[i] || error <= tolerance[i]) continue;
    if (bad++ == 0) first = i, first_got = got;
    if (!(error <= worst)) worst = error;
  }
  if (bad == 0) return "";
  return format("%zu of %zu elements of %s differ; first at memory element %zu: got %.9g, want %.9g within %.3g; largest error %.3g",
                bad, checked, output.name.c_str(), first, first_got, want[first], tolerance[first], worst);
}

/** Whether two outputs have the same bits wherever there is an element. */
static bool same_bits(const Argument& output, const char* a, const char* b, const InputSet& set) {
  if (!set.checked.data) return memcmp(a, b, output.bytes()) == 0;
  for (size_t i = 0; i < output.elements; i++)
    if (set.checked.data[i] && memcmp(a + i * output.element_bytes, b + i * output.element_bytes, output.element_bytes)) return false;
  return true;
}

// ---------------------------------------------------------------------------------------------------- threads

static void pause_cpu() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

/** Spins, and yields when the wait is long: another program may have the core the other thread needs. */
template <class Condition> static void spin_until(Condition condition) {
  for (unsigned spins = 0; !condition(); spins++) {
    if (spins < 1 << 14) pause_cpu();
    else sched_yield();
  }
}

struct Barrier {
  int members = 1;
  alignas(64) std::atomic<int> arrived{0};
  alignas(64) std::atomic<unsigned> generation{0};

  void wait() {
    if (members == 1) return;
    unsigned now = generation.load(std::memory_order_acquire);
    if (arrived.fetch_add(1, std::memory_order_acq_rel) == members - 1) {
      arrived.store(0, std::memory_order_relaxed);
      generation.store(now + 1, std::memory_order_release);
    } else spin_until([&] { return generation.load(std::memory_order_acquire) != now; });
  }
};

struct Kernel {
  int number;
  unsigned long (*workspace_bytes)(void);
  void (*prepare)(void*, const void* const*);
  int (*phases)(void);
  void (*run)(void*, void* const*, int, int, int);
};

/** Calls that all threads make together. */
struct Job {
  const Kernel* kernel;
  void* workspace;
  void* const* tensors;
  int phases;
  long calls;
};

static Barrier barrier;
static Job job;
static std::atomic<unsigned> jobs_given{0};

static double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC_RAW, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

/** One thread's part of a job; seconds from the moment all have begun until all have ended. */
static double take_part(int part, int parts) {
  // A copy: thread 0 gives the next job as soon as it is through the last barrier, while others have still to leave their loops.
  const Job own = job;
  barrier.wait();
  double start = now();
  for (long call = 0; call < own.calls; call++)
    for (int phase = 0; phase < own.phases; phase++) {
      own.kernel->run(own.workspace, own.tensors, phase, part, parts);
      barrier.wait();
    }
  return now() - start;
}

static void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

static void start_threads(const Request& r) {
  barrier.members = r.threads;
  auto cpu = [&r](int part) { return r.cpus.empty() ? part : r.cpus[part % r.cpus.size()]; };
  for (int part = 1; part < r.threads; part++)
    std::thread([part, parts = r.threads, where = cpu(part)] {
      use_fault_stack();
      pin(where);
      for (unsigned done = 0;; done++) {
        spin_until([&] { return jobs_given.load(std::memory_order_acquire) != done; });
        take_part(part, parts);
      }
    }).detach();
  pin(cpu(0));
}

static double run_job(const Job& next, int threads) {
  job = next;
  jobs_given.fetch_add(1, std::memory_order_release);
  return take_part(0, threads);
}

// ---------------------------------------------------------------------------------------------------- loading, checking

static Kernel load(int number, const std::string& path) {
  at(number, "loading");
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) fault("crashed", dlerror());
  auto symbol = [library](const char* name) {
    void* found = dlsym(library, name);
    if (!found) fault("crashed", format("the kernel has no function %s", name).c_str());
    return found;
  };
  Kernel k;
  k.number = number;
  k.workspace_bytes = reinterpret_cast<decltype(k.workspace_bytes)>(symbol("automap_workspace_bytes"));
  k.prepare = reinterpret_cast<decltype(k.prepare)>(symbol("automap_prepare"));
  k.phases = reinterpret_cast<decltype(k.phases)>(symbol("automap_phases"));
  k.run = reinterpret_cast<decltype(k.run)>(symbol("automap_run"));
  return k;
}

/** Tensors in memory, inputs filled and read-only. */
static std::vector<void*> place_tensors(const Request& r, const InputSet& set, Placement placement) {
  std::vector<void*> tensors;
  for (size_t i = 0; i < r.arguments.size(); i++) {
    const Argument& a = r.arguments[i];
    Buffer& b = allocate(a.name, a.bytes(), r.alignment, placement);
    if (i > 0) {
      if (b.bytes > 0) memcpy(b.data, set.inputs[i - 1].data, b.bytes);
      protect(b);
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

/** Two patterns: an element that is never written cannot be right under both. The first is NaN to every float. */
static constexpr int POISON[] = {0xff, 0x5a};

/** Runs the kernel on every set, twice each. An answer line without the kernel's number, `wrong ...`; empty when all is right. */
static std::string verify(const Kernel& k, const Request& r) {
  const Argument& output = r.arguments[0];
  for (size_t s = 0; s < r.sets.size(); s++) {
    const InputSet& set = r.sets[s];
    Placement placement = s % 2 == 0 ? Placement::end : Placement::start;
    std::vector<void*> tensors = place_tensors(r, set, placement);
    at(k.number, "asking for its workspace");
    void* workspace = place_workspace(k, placement);
    char* out = static_cast<char*>(tensors[0]);
    at(k.number, "preparing on " + set.name + " inputs");
    memset(out, POISON[0], output.bytes());
    k.prepare(workspace, tensors.data());
    Job once = {&k, workspace, tensors.data(), k.phases(), 1};
    std::vector<char> before;
    for (int call = 0; call < 2; call++) {
      std::string where = format("call %d on %s inputs", call + 1, set.name.c_str());
      at(k.number, where);
      memset(out, POISON[call], output.bytes());
      run_job(once, r.threads);
      if (std::string harm = damage(); !harm.empty()) return "out-of-bounds " + where + ": " + harm;
      if (std::string difference = compare(output, out, set); !difference.empty()) return "wrong " + where + ": " + difference;
      if (call == 1 && !same_bits(output, before.data(), out, set))
        return "wrong " + where + ": the result differs from that of call 1 on the same inputs";
      before.assign(out, out + output.bytes());
    }
    release_all();
  }
  return "";
}

// ---------------------------------------------------------------------------------------------------- timing

static double clock_tick() {
  double least = 1;
  for (int i = 0; i < 1000; i++) {
    double start = now(), next = start;
    while (next == start) next = now();
    least = std::min(least, next - start);
  }
  return least;
}

static void flush_caches() {
#if defined(__x86_64__)
  for (int i = 0; i < buffer_count; i++)
    for (const char* line = buffers[i].begin(); line < buffers[i].end(); line += 64) _mm_clflush(line);
  _mm_mfence();
#else
  static std::vector<char> sweep(256 << 20);
  for (size_t i = 0; i < sweep.size(); i += 64) sweep[i]++;
#endif
}

/** Seconds of a batch. Flushed: the caches are emptied before every call, outside the clock. */
static double time_batch(const Request& r, Job batch) {
  if (!r.flushed) return run_job(batch, r.threads);
  double sum = 0;
  const long calls = batch.calls;
  batch.calls = 1;
  for (long call = 0; call < calls; call++) {
    flush_caches();
    sum += run_job(batch, r.threads);
  }
  return sum;
}

static void sign_of_life(int kernel) {
  static double last = 0;
  double time = now();
  if (time - last < 0.1) return;
  last = time;
  at(kernel, "timing");
}

static void answer_samples(int kernel, const std::vector<double>& samples) {
  std::string line = format("samples %d", kernel);
  for (double seconds : samples) line += format(" %.9g", seconds);
  answer(line);
}

/** Batches long enough for the clock; with several kernels in turn, in an order that rotates. */
static void time_kernels(const Request& r, const std::vector<Kernel>& kernels) {
  // Fractions rather than the exact set's small integers: the usual case.
  const InputSet& set = r.sets.size() > 1 && r.sets[0].name == "exact" ? r.sets[1] : r.sets[0];
  std::vector<void*> tensors = place_tensors(r, set, Placement::spread);
  double least = std::max(50 * clock_tick(), r.batch);
  std::vector<Job> jobs;
  std::vector<std::vector<double>> samples(kernels.size());

  // 1. Warm up, and find how many calls make a batch.
  double longest = 0;
  for (const Kernel& k : kernels) {
    void* workspace = place_workspace(k, Placement::spread);
    at(k.number, "timing");
    k.prepare(workspace, tensors.data());
    Job j = {&k, workspace, tensors.data(), k.phases(), 1};
    double spent = run_job(j, r.threads);
    for (;;) {
      sign_of_life(k.number);
      double seconds = time_batch(r, j);
      spent += seconds;
      if (seconds < least) j.calls = std::max<long>(j.calls + 1, std::min(1.1 * j.calls * least / std::max(seconds, 1e-9), 8.0 * j.calls));
      else if (spent >= 0.02) {
        longest = std::max(longest, seconds / j.calls);
        break;
      }
    }
    jobs.push_back(j);
  }

  // 2. Measure. One call that outlasts the budget is measured three times.
  int least_batches = longest > r.budget ? std::min(3, r.least_batches) : r.least_batches;
  double until = now() + r.budget * kernels.size();
  for (int round = 0; round < r.most_batches && (round < least_batches || now() < until); round++)
    for (size_t turn = 0; turn < jobs.size(); turn++) {
      size_t which = (round + turn) % jobs.size();
      sign_of_life(kernels[which].number);
      if (jobs.size() > 1 && !r.flushed) {
        // The kernel before has used the caches.
        Job warm = jobs[which];
        warm.calls = 1;
        run_job(warm, r.threads);
      }
      samples[which].push_back(time_batch(r, jobs[which]) / jobs[which].calls);
    }

  // 3. The last result still has to be right.
  for (size_t i = 0; i < kernels.size(); i++) {
    int number = kernels[i].number;
    memset(tensors[0], POISON[0], r.arguments[0].bytes());
    at(number, "call after timing");
    Job last = jobs[i];
    last.calls = 1;
    run_job(last, r.threads);
    std::string harm = damage();
    std::string difference = compare(r.arguments[0], static_cast<char*>(tensors[0]), set);
    if (!harm.empty()) answer(format("out-of-bounds %d after timing: ", number) + harm);
    else if (!difference.empty()) answer(format("wrong %d after timing: ", number) + difference);
    else answer_samples(number, samples[i]);
  }
}

/** 2^20 dependent steps of eight multiply-adds each: the same work on any day. */
static void time_baseline(const Request& r) {
  std::vector<double> samples;
  volatile double seed = 0.5;
  double until = now() + r.budget;
  for (int batch = 0; batch < r.most_batches && (batch < r.least_batches || now() < until); batch++) {
    double x[8], start = now();
    for (int i = 0; i < 8; i++) x[i] = seed + i;
    for (int step = 0; step < 1 << 20; step++)
      for (int i = 0; i < 8; i++) x[i] = x[i] * 0.999999 + 1e-6;
    for (int i = 0; i < 8; i++) seed = x[i];
    samples.push_back(now() - start);
    seed = 0.5;
  }
  answer_samples(0, samples);
}

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

/** Own needs first (tensors between guards, thread stacks and heaps), then what kernels may have. */
static void set_limits(const Request& r) {
  size_t own = address_space() + (size_t(64) << 20);
  for (const Argument& a : r.arguments) own += a.bytes() + 2 * GUARD + 2 * PAGE;
  own += r.arguments.empty() ? 0 : r.arguments[0].bytes();
  own += r.kernels.size() * 2 * GUARD;
  own += r.threads * (size_t(144) << 20);
  limit(RLIMIT_AS, own + r.memory);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_FSIZE, 0);
}

int main() {
  install_handlers();
  setvbuf(stdout, nullptr, _IOLBF, 0);  // what a kernel prints before it dies is in the log
  Request r = read_request();
  set_limits(r);
  answer(format("tick %.9g", clock_tick()));
  start_threads(r);
  if (r.baseline) time_baseline(r);
  std::vector<Kernel> right;
  for (size_t i = 0; i < r.kernels.size(); i++) {
    Kernel k = load(i, r.kernels[i]);
    std::string verdict = verify(k, r);
    if (verdict.empty()) right.push_back(k);
    else {
      // Answers name their kernel after the first word.
      release_all();
      size_t space = verdict.find(' ');
      answer(verdict.substr(0, space) + format(" %zu", i) + verdict.substr(space));
    }
  }
  if (!right.empty()) time_kernels(r, right);
  answer("done");
  _exit(0);
}
