/**
 * @file The thread pool of a C library: each thread runs one part of every phase of a kernel.
 *
 *     pool->code = &code, pool->workspace = ..., pool->tensors = ...;
 *     for (int phase = 0; phase < phases; phase++) pool->run(phase);
 *
 * What includes it has a `struct Code` of a kernel's functions and a constant THREADS, 2 or more.
 */

import { code } from "../abstraction/source-text.ts";

/** Threads that wait for the parts of a phase. They spin briefly before they sleep. */
export const POOL = code`
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

namespace {
struct Pool {
  std::thread helpers[THREADS - 1];
  std::mutex mutex;
  std::condition_variable wake;
  std::atomic<long> turn{0};
  std::atomic<int> left{0};
  std::atomic<bool> ending{false};
  const Code* code = nullptr;
  void* workspace = nullptr;
  void* const* tensors = nullptr;
  int phase = 0;

  void help(int part) {
    for (long seen = 0;; seen++) {
      for (int spin = 0; turn.load(std::memory_order_acquire) == seen && spin < 20000; spin++) {}
      if (turn.load(std::memory_order_acquire) == seen) {
        std::unique_lock<std::mutex> lock(mutex);
        wake.wait(lock, [&] { return turn.load(std::memory_order_acquire) != seen; });
      }
      if (ending) return;
      code->run(workspace, tensors, phase, part, THREADS);
      left.fetch_sub(1, std::memory_order_release);
    }
  }
  void next() {
    { std::lock_guard<std::mutex> lock(mutex); turn.fetch_add(1, std::memory_order_release); }
    wake.notify_all();
  }
  void run(int which) {
    phase = which;
    left.store(THREADS - 1, std::memory_order_relaxed);
    next();
    code->run(workspace, tensors, phase, 0, THREADS);
    while (left.load(std::memory_order_acquire) > 0) std::this_thread::yield();
  }
  bool start() {
    try {
      for (int i = 0; i < THREADS - 1; i++) helpers[i] = std::thread([this, i] { help(i + 1); });
      return true;
    } catch (const std::system_error&) {
      return false;
    }
  }
  ~Pool() {
    ending = true;
    next();
    for (std::thread& helper : helpers) if (helper.joinable()) helper.join();
  }
};
} // namespace
`;
