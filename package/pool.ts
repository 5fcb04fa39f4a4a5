/**
 * @file The thread pool of a C library: the caller and the pool's threads run the THREADS parts of each phase of a kernel.
 *
 *     pool->begin();
 *     pool->run(code, workspace, tensors);       as often as wanted: all phases of one kernel
 *     pool->end();
 *
 * Between begin and end the threads spin for the next phase, since waking one takes longer (50 to 150 us on a virtual machine)
 * than many steps of a network. What includes it has a `struct Code` of a kernel's functions and a constant THREADS, 2 or more.
 */

import { code } from "../abstraction/source-text.ts";

/**
 * A thread runs its own part of each phase, and then the parts that no thread has begun. So a call ends soon where other programs have the
 * processors, where there are fewer of these than threads, and where a fork left the threads behind.
 */
export const POOL = code`
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <sched.h>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace {
/* How long a thread spins without giving up its processor, and how long it waits within a call before it sleeps. */
constexpr std::chrono::microseconds SPIN{50}, WITHIN_CALL{2000};

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Waits until done() for at most limit(). Returns whether it is done. */
template <class Done, class Limit> bool spin_until(Done done, Limit limit) {
  const auto begun = std::chrono::steady_clock::now();
  for (unsigned count = 1; !done(); count++) {
    relax();
    if (count % 32) continue;
    const auto waited = std::chrono::steady_clock::now() - begun;
    if (waited > limit()) return false;
    if (waited > SPIN) std::this_thread::yield();
  }
  return true;
}

/* Processors that this process may use, at most THREADS. */
inline int processors() {
#ifdef __linux__
  cpu_set_t set;
  const int known = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
#else
  const int known = (int)std::thread::hardware_concurrency();
#endif
  return known > 0 && known < THREADS ? known : THREADS;
}

struct Pool {
  typedef unsigned long long Turn;
  /* The last turn in which somebody took this part. */
  struct alignas(64) Part { std::atomic<Turn> taken{0}; };
  Part parts[THREADS];
  /* Phases begun, and parts of the last one that have not ended. */
  alignas(64) std::atomic<Turn> turn{0};
  std::atomic<bool> within{false}, asleep{false}, ending{false};
  const Code* code = nullptr;
  void* workspace = nullptr;
  void* const* tensors = nullptr;
  int phase = 0;
  alignas(64) std::atomic<int> left{0};
  std::mutex mutex;
  std::condition_variable wake;
  std::thread helpers[THREADS - 1];
  /* The threads exist in this process only, not in those that it forks. */
  const pid_t owner = getpid();
  bool forked = false;

  bool take(int part, Turn now) {
    Turn before = parts[part].taken.load(std::memory_order_relaxed);
    return before < now && parts[part].taken.compare_exchange_strong(before, now, std::memory_order_relaxed);
  }
  void help(int part) {
    for (Turn seen = 0;;) {
      const auto begun = [&] { return turn.load(std::memory_order_acquire) != seen; };
      const auto limit = [&] { return within.load(std::memory_order_relaxed) ? WITHIN_CALL : SPIN; };
      if (!spin_until(begun, limit)) {
        std::unique_lock<std::mutex> lock(mutex);
        wake.wait(lock, [&] { asleep.store(true); return turn.load() != seen; });
      }
      if (ending.load(std::memory_order_relaxed)) return;
      seen = turn.load(std::memory_order_acquire);
      for (int i = 0; i < THREADS - 1; i++) {
        const int next = 1 + (part - 1 + i) % (THREADS - 1);
        if (!take(next, seen)) continue;
        code->run(workspace, tensors, phase, next, THREADS);
        left.fetch_sub(1, std::memory_order_release);
      }
    }
  }
  void next() {
    /* Each time before a thread looks at the turn and sleeps it says so, and this looks the other way round. */
    turn.store(turn.load(std::memory_order_relaxed) + 1);
    if (forked || !asleep.load() || !asleep.exchange(false)) return;
    { std::lock_guard<std::mutex> lock(mutex); }
    wake.notify_all();
  }
  void begin() {
    forked = getpid() != owner;
    within.store(true, std::memory_order_relaxed);
  }
  void end() { within.store(false, std::memory_order_relaxed); }
  void run(const Code& kernel, void* memory, void* const* arguments) {
    code = &kernel, workspace = memory, tensors = arguments;
    const int phases = kernel.phases();
    for (phase = 0; phase < phases; phase++) {
      left.store(THREADS - 1, std::memory_order_relaxed);
      next();
      kernel.run(memory, arguments, phase, 0, THREADS);
      for (int part = 1; part < THREADS; part++)
        if (take(part, turn.load(std::memory_order_relaxed))) {
          kernel.run(memory, arguments, phase, part, THREADS);
          left.fetch_sub(1, std::memory_order_relaxed);
        }
      spin_until([&] { return left.load(std::memory_order_acquire) == 0; }, [] { return std::chrono::nanoseconds::max(); });
    }
  }
  /* With fewer threads than THREADS each takes several parts. */
  bool start(int threads = processors()) {
    try {
      for (int i = 0; i < threads - 1; i++) helpers[i] = std::thread([this, i] { help(i + 1); });
      return true;
    } catch (const std::system_error&) {
      return false;
    }
  }
  /* In a forked process the memory is left: there is no thread to join. */
  static void destroy(Pool* pool) {
    if (pool && pool->owner == getpid()) delete pool;
  }
  ~Pool() {
    ending.store(true);
    next();
    { std::lock_guard<std::mutex> lock(mutex); }
    wake.notify_all();
    for (std::thread& helper : helpers) if (helper.joinable()) helper.join();
  }
};
} // namespace
`;
