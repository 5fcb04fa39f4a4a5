// ---------------------------------------------------------------------------------------------------- threads

static void pause_cpu() {
#if defined(__x86_64__)
  _mm_pause();
#else
  sched_yield();
#endif
}

/** Spins, and yields during a long wait, because another program may occupy the other thread's core. */
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
  /** Null where the kernel uses no scratch. */
  unsigned long (*scratch_bytes)(void);
  void (*prepare)(void*, const void* const*);
  int (*phases)(void);
  void (*run)(void*, void* const*, int, int, int);
};

/** Calls made by all threads together. */
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

/** Seconds that a part ran by the clock and on its processor. A part never sleeps, so others used the difference. */
struct Spent {
  std::atomic<double> wall{0}, processor{0};
};
static Spent* spent;

static double seconds_of(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

static double now() { return seconds_of(CLOCK_MONOTONIC_RAW); }

/** One thread's part of a job. @returns seconds from when all have started until all have ended */
static double take_part(int part, int parts) {
  // A copy: thread 0 sets the next job right after the last barrier, while others are still in their loops.
  const Job own = job;
  const double begun = now(), worked = seconds_of(CLOCK_THREAD_CPUTIME_ID);
  barrier.wait();
  double start = now();
  for (long call = 0; call < own.calls; call++)
    for (int phase = 0; phase < own.phases; phase++) {
      own.kernel->run(own.workspace, own.tensors, phase, part, parts);
      barrier.wait();
    }
  const double end = now();
  // Only this part writes its sums; others read them. So no lock is needed, and no update is lost.
  auto add = [](std::atomic<double>& sum, double seconds) { sum.store(sum.load(std::memory_order_relaxed) + seconds, std::memory_order_relaxed); };
  add(spent[part].processor, seconds_of(CLOCK_THREAD_CPUTIME_ID) - worked);
  add(spent[part].wall, now() - begun);
  return end - start;
}

static void forget_spent(int parts) {
  for (int part = 0; part < parts; part++) spent[part].wall = 0, spent[part].processor = 0;
}

/** The largest share of a processor used by other programs since forget_spent. */
static double share_of_others(int parts) {
  double most = 0;
  for (int part = 0; part < parts; part++)
    if (double wall = spent[part].wall; wall > 0) most = std::max(most, 1 - spent[part].processor / wall);
  return std::min(most, 1.0);
}

static void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

/** A thread that takes part in every job; thread 0 takes part by itself. */
struct Part {
  int part, parts, cpu;
};

static void* take_parts(void* argument) {
  const Part own = *static_cast<Part*>(argument);
  use_fault_stack();
  pin(own.cpu);
  for (unsigned done = 0;; done++) {
    spin_until([&] { return jobs_given.load(std::memory_order_acquire) != done; });
    take_part(own.part, own.parts);
  }
}

static void start_threads(const Request& r) {
  barrier.members = r.threads;
  spent = new Spent[r.threads];
  auto cpu = [&r](int part) { return r.cpus.empty() ? part : r.cpus[part % r.cpus.size()]; };
  for (int part = 1; part < r.threads; part++) {
    pthread_t thread;
    if (int problem = pthread_create(&thread, nullptr, take_parts, new Part{part, r.threads, cpu(part)}))
      fault("environment", format("thread %d of %d could not be started: %s", part + 1, r.threads, strerror(problem)).c_str());
    pthread_detach(thread);
  }
  pin(cpu(0));
}

static double run_job(const Job& next, int threads) {
  job = next;
  jobs_given.fetch_add(1, std::memory_order_release);
  return take_part(0, threads);
}

