/*
 * Threads of a block, or of a cluster's blocks side by side, as fibers for cuda.h. A thread runs until it waits for its
 * warp or its block. Then the chosen order decides which one goes on, since a kernel must be right in all of them:
 *
 *     forward     the ready thread with the lowest number: the first warp runs ahead as far as barriers allow
 *     reversed    the one with the highest
 *     shuffled    any, by a seed; blocks run in any order too
 *
 * If no thread of a block can go on, the program ends and says who waits for whom.
 */
#ifndef AUTOMAP_EMULATION_CUDA_THREADS_H
#define AUTOMAP_EMULATION_CUDA_THREADS_H

#include "fibers.h"

namespace emulation {

enum { STACK_BYTES = 256 * 1024, MAX_BLOCK = 1024, MAX_CLUSTER = 8, MAX_THREADS = 4096, WARP_LANES = 32, GROUP_LANES = 128 };
enum Order { FORWARD, REVERSED, SHUFFLED };
enum State { READY, AT_WARP, AT_GROUP, AT_BLOCK, AT_CLUSTER, AT_ARRIVAL, FINISHED };

static Order order = FORWARD;
static uint64_t random_state = 1;
static State states[MAX_THREADS];
static uint64_t ready[MAX_THREADS / 64];           /* a bit for each ready thread */
static unsigned waiting_warp[MAX_THREADS / WARP_LANES]; /* lanes that wait for their warp */
static unsigned living_warp[MAX_THREADS / WARP_LANES];  /* lanes that have not finished */
static unsigned waiting_group[MAX_THREADS / GROUP_LANES], living_group[MAX_THREADS / GROUP_LANES]; /* the same of four warps */
static unsigned waiting_block[MAX_CLUSTER], living_block[MAX_CLUSTER];
static unsigned threads_of_block, block_stride; /* a block's first thread is the first of a group: numbers between blocks stand for none */
static unsigned waiting_cluster, living_cluster, blocks_of_cluster = 1;
static const void* offered[MAX_THREADS]; /* what each thread shows the others at a collective */
static unsigned running;
static void (*body)(void*);
static void* argument;

[[noreturn]] static inline void misuse(const char* what) {
  fprintf(stderr, "cuda.h: thread %u of block %u: %s\n", running, blockIdx.x, what);
  abort();
}

/* xorshift64* */
static inline uint32_t next_random() {
  random_state ^= random_state >> 12, random_state ^= random_state << 25, random_state ^= random_state >> 27;
  return (uint32_t)((random_state * 0x2545f4914f6cdd1dull) >> 32);
}

/* ---- resuming and suspending ------------------------------------------------------------------------------------- */

static Fiber scheduler, fibers[MAX_THREADS];
static void leave() { hand_over(fibers[running], scheduler); }
static void enter(unsigned t) { hand_over(scheduler, fibers[t]); }

static void finish();
static void begin() {
  body(argument);
  finish();
  leave();
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

static void set_state(unsigned t, State state) {
  states[t] = state;
  if (state == READY) ready[t / 64] |= 1ull << t % 64;
  else ready[t / 64] &= ~(1ull << t % 64);
}
static void release(unsigned from, unsigned to, State waiting) {
  for (unsigned t = from; t < to; t++)
    if (states[t] == waiting) set_state(t, READY);
}
static unsigned all_threads() { return block_stride * blocks_of_cluster; }
static void release_complete(unsigned warp) {
  if (waiting_warp[warp] > 0 && waiting_warp[warp] == living_warp[warp]) {
    waiting_warp[warp] = 0;
    unsigned last = (warp + 1) * WARP_LANES;
    release(warp * WARP_LANES, last < all_threads() ? last : all_threads(), AT_WARP);
  }
  const unsigned group = warp * WARP_LANES / GROUP_LANES;
  if (waiting_group[group] > 0 && waiting_group[group] == living_group[group]) {
    waiting_group[group] = 0;
    unsigned last = (group + 1) * GROUP_LANES;
    release(group * GROUP_LANES, last < all_threads() ? last : all_threads(), AT_GROUP);
  }
  const unsigned block = warp * WARP_LANES / block_stride;
  if (waiting_block[block] > 0 && waiting_block[block] == living_block[block]) {
    waiting_block[block] = 0;
    release(block * block_stride, (block + 1) * block_stride, AT_BLOCK);
  }
  if (waiting_cluster > 0 && waiting_cluster == living_cluster) {
    waiting_cluster = 0;
    release(0, all_threads(), AT_CLUSTER);
  }
}
static inline unsigned own_block() { return running / block_stride; }
static void finish() {
  set_state(running, FINISHED);
  living_warp[running / WARP_LANES]--, living_group[running / GROUP_LANES]--, living_block[own_block()]--, living_cluster--;
  release_complete(running / WARP_LANES);
}

/* Waits until every living lane of the warp arrives here. */
static inline void wait_for_warp() {
  set_state(running, AT_WARP);
  waiting_warp[running / WARP_LANES]++;
  release_complete(running / WARP_LANES);
  leave();
}
/* Waits until every living thread of the four warps arrives here. */
static inline void wait_for_group() {
  set_state(running, AT_GROUP);
  waiting_group[running / GROUP_LANES]++;
  release_complete(running / WARP_LANES);
  leave();
}
/* Waits until every living thread of the block arrives here. */
static inline void wait_for_block() {
  set_state(running, AT_BLOCK);
  waiting_block[own_block()]++;
  release_complete(running / WARP_LANES);
  leave();
}
/* Waits until every living thread of the cluster arrives here. */
static inline void wait_for_cluster() {
  set_state(running, AT_CLUSTER);
  waiting_cluster++;
  release_complete(running / WARP_LANES);
  leave();
}

/* The next ready thread in the chosen order; MAX_THREADS if there is none. */
static unsigned next_thread() {
  const int words = (all_threads() + 63) / 64, first = order == SHUFFLED ? (int)(next_random() % words) : 0;
  for (int i = 0; i < words; i++) {
    const int word = order == REVERSED ? words - 1 - i : (first + i) % words;
    uint64_t bits = ready[word];
    if (bits == 0) continue;
    if (order == REVERSED) return word * 64 + 63 - __builtin_clzll(bits);
    if (order == SHUFFLED)
      for (unsigned skipped = next_random() % __builtin_popcountll(bits); skipped > 0; skipped--) bits &= bits - 1;
    return word * 64 + __builtin_ctzll(bits);
  }
  return MAX_THREADS;
}

[[noreturn]] static void deadlock() {
  fprintf(stderr, "cuda.h: block %u: nobody can go on:", blockIdx.x);
  for (unsigned t = 0; t < all_threads(); t++)
    if (states[t] != FINISHED && (t == 0 || states[t] != states[t - 1]))
      fprintf(stderr, " thread %u waits for its %s;", t, states[t] == AT_WARP ? "warp" : states[t] == AT_GROUP ? "warpgroup" : states[t] == AT_BLOCK ? "block" : states[t] == AT_CLUSTER ? "cluster" : "copies");
  fprintf(stderr, "\n");
  abort();
}

/* Runs the blocks of a cluster, whose first block has number `first` in the grid. */
static void run_cluster(unsigned first, unsigned threads) {
  static char* stacks = (char*)aligned_alloc(64, (size_t)STACK_BYTES * MAX_THREADS);
  threads_of_block = threads, block_stride = (threads + GROUP_LANES - 1) / GROUP_LANES * GROUP_LANES;
  waiting_cluster = 0, living_cluster = threads * blocks_of_cluster;
  for (unsigned b = 0; b < blocks_of_cluster; b++) living_block[b] = threads, waiting_block[b] = 0;
  memset(waiting_group, 0, sizeof waiting_group), memset(living_group, 0, sizeof living_group);
  memset(waiting_warp, 0, sizeof waiting_warp), memset(living_warp, 0, sizeof living_warp), memset(ready, 0, sizeof ready);
  for (unsigned t = 0; t < all_threads(); t++) {
    const bool is_one = t % block_stride < threads;
    set_state(t, is_one ? READY : FINISHED);
    if (!is_one) continue;
    living_warp[t / WARP_LANES]++, living_group[t / GROUP_LANES]++;
    prepare_fiber(fibers[t], stacks + (size_t)STACK_BYTES * t, STACK_BYTES, begin);
  }
  while (living_cluster > 0) {
    running = next_thread();
    if (running == MAX_THREADS) deadlock();
    const unsigned t = running % block_stride, b = first + own_block();
    threadIdx = dim3(t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y));
    blockIdx = dim3(b % gridDim.x, b / gridDim.x % gridDim.y, b / (gridDim.x * gridDim.y));
    enter(running);
  }
}

static inline unsigned lane() { return running % WARP_LANES; }

/* Shows `mine` to the warp, runs `read` on what the others show, and returns when all have read. */
template <class T, class F> static auto exchange(const T& mine, F read) {
  unsigned self = running;
  offered[self] = &mine;
  wait_for_warp();
  auto result = read([self](unsigned other) -> const T& { return *(const T*)offered[self / WARP_LANES * WARP_LANES + other]; });
  wait_for_warp();
  return result;
}

}  // namespace emulation

static inline void __syncthreads() { emulation::wait_for_block(); }
static inline void barrier_of_group() { emulation::wait_for_group(); }
static inline void barrier_of_cluster() { emulation::wait_for_cluster(); }
static inline void cluster_has_begun() { emulation::wait_for_cluster(); }
static inline void __syncwarp(unsigned = ~0u) { emulation::wait_for_warp(); }

#endif
