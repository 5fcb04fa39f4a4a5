/*
 * Shared memory, copies between it, global memory and registers, and conversions, for cuda.h. codegen/cuda/cuda-helpers.ts
 * writes the functions below `as generated sources call them` in PTX for a GPU.
 *
 * Shared memory is poisoned when a block begins. An asynchronous copy arrives at once (early) or when its thread waits
 * for it (late), and until then its destination is poisoned: a kernel must be right either way.
 */
#ifndef AUTOMAP_EMULATION_CUDA_MEMORY_H
#define AUTOMAP_EMULATION_CUDA_MEMORY_H

#include <vector>

namespace emulation {

/* CUDA C++ Programming Guide, Technical Specifications: 227 KiB a block on compute capability 9.0. */
enum { MOST_SHARED_BYTES = 232448, UNUSABLE = 0xff /* NaN, or -1 */ };
enum Arrival { EARLY, LATE };

static Arrival arrival = EARLY;
static unsigned char* static_shared; /* of the kernel that runs; null where it is not known */
static size_t static_shared_bytes;
/* The blocks of a cluster in sequence, `block_bytes` apart. */
alignas(1024) static unsigned char dynamic_memory[MAX_CLUSTER * MOST_SHARED_BYTES];
alignas(1024) static unsigned char seen_memory[MAX_CLUSTER * MOST_SHARED_BYTES]; /* by instructions that read by themselves */
static size_t dynamic_bytes, block_bytes; /* of all blocks of a cluster, and of one */

/* Sets how the next kernels run: 0 to 2 as in Order, plus 16 for copies that arrive late. */
static inline void take_turns(uint32_t how, uint32_t seed) {
  order = (Order)(how % 16), arrival = how / 16 % 2 ? LATE : EARLY;
  random_state = 0x9e3779b97f4a7c15ull ^ seed;
}
static inline void use_static_shared(char* begin, char* end) {
  static_shared = (unsigned char*)begin, static_shared_bytes = end - begin;
}

static inline bool holds(const unsigned char* memory, size_t size, const void* p, size_t bytes) {
  return memory && (const unsigned char*)p >= memory && (const unsigned char*)p + bytes <= memory + size;
}
static inline void check_shared(const void* p, size_t bytes, const char* what) {
  if ((uintptr_t)p % bytes != 0) misuse(what);
  if (static_shared == nullptr && dynamic_bytes == 0) return;
  if (!holds(static_shared, static_shared_bytes, p, bytes) && !holds(dynamic_memory, dynamic_bytes, p, bytes)) misuse(what);
}

struct PendingCopy {
  void* to;
  const void* from;
  unsigned bytes, taken, group;
};
static std::vector<PendingCopy> pending[MAX_THREADS];
static unsigned committed[MAX_THREADS]; /* groups of each thread */

static void arrive(const PendingCopy& c) {
  memcpy(c.to, c.from, c.taken);
  memset((char*)c.to + c.taken, 0, c.bytes - c.taken);
}

static void begin_issues(unsigned threads); /* cuda-group.h */
static void begin_arrivals();               /* cuda-engine.h */

static void begin_cluster(unsigned threads) {
  if (static_shared) memset(static_shared, UNUSABLE, static_shared_bytes);
  memset(dynamic_memory, UNUSABLE, dynamic_bytes), memset(seen_memory, UNUSABLE, dynamic_bytes);
  begin_issues(threads), begin_arrivals();
  for (unsigned t = 0; t < threads; t++) pending[t].clear(), committed[t] = 0;
}

/* Runs the blocks or clusters of a grid one after another, in the order chosen for threads. */
static void run_grid(dim3 grid, dim3 block, size_t shared, void (*run)(void*), void* with, unsigned cluster = 1) {
  const unsigned threads = block.x * block.y * block.z, blocks = grid.x * grid.y * grid.z / cluster;
  gridDim = grid, blockDim = block, body = run, argument = with, blocks_of_cluster = cluster;
  block_bytes = cluster == 1 ? shared : (shared + 1023) / 1024 * 1024, dynamic_bytes = block_bytes * cluster;
  std::vector<unsigned> turns(blocks);
  for (unsigned i = 0; i < blocks; i++) turns[i] = order == REVERSED ? blocks - 1 - i : i;
  for (unsigned i = blocks; order == SHUFFLED && i > 1; i--) std::swap(turns[i - 1], turns[next_random() % i]);
  for (unsigned b : turns) {
    begin_cluster(threads * cluster);
    run_cluster(b * cluster, threads);
  }
}

}  // namespace emulation

/* ---- as generated sources call them ------------------------------------------------------------------------------ */

static inline unsigned char* dynamic_shared() { return emulation::dynamic_memory + emulation::own_block() * emulation::block_bytes; }
template <class T> static inline T* in_block(T* own, unsigned block) {
  using namespace emulation;
  if (block >= blocks_of_cluster || !holds(dynamic_memory, dynamic_bytes, own, sizeof(T))) misuse("a block of the cluster has no such memory");
  return (T*)((unsigned char*)own + ((long)block - (long)own_block()) * (long)block_bytes);
}

/* PTX ISA, cp.async: bytes beyond `src-size` are zero. */
namespace emulation {
template <int BYTES> static void begin_copy(void* to, const void* from, bool inside) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async moves 4, 8 or 16 bytes");
  check_shared(to, BYTES, "cp.async wants shared memory, aligned to its size");
  if ((uintptr_t)from % BYTES != 0) misuse("cp.async wants its source aligned to its size");
  const PendingCopy copy = {to, from, BYTES, inside ? BYTES : 0u, committed[running]};
  if (arrival == EARLY) return arrive(copy);
  memset(to, UNUSABLE, BYTES);
  pending[running].push_back(copy);
}
}  // namespace emulation

/* A prefetch changes no value; it must name an address that may be read. */
static inline void prefetch_line(const void* p) { (void)*(const volatile unsigned char*)p; }
template <int BYTES> static inline void copy_async(void* to, const void* from) { emulation::begin_copy<BYTES>(to, from, true); }
template <int BYTES, class T> static inline void copy_async_where(bool inside, void* to, const T* tensor, long at) {
  emulation::begin_copy<BYTES>(to, inside ? tensor + at : tensor, inside);
}
static inline void commit_copies() { emulation::committed[emulation::running]++; }
/* PTX ISA, cp.async.wait_group: waits for all but this thread's newest groups. Uncommitted copies are in no group. */
template <int NEWEST> static inline void wait_for_copies() {
  using namespace emulation;
  auto& own = pending[running];
  size_t left = 0;
  for (const PendingCopy& c : own)
    if (c.group + NEWEST < committed[running]) arrive(c);
    else own[left++] = c;
  own.resize(left);
}

/* PTX ISA, ldmatrix: lane 8*i + j names row j of matrix i; lane l receives 32 bits of row (.trans: column) l/4. */
namespace emulation {
template <int COUNT, bool TRANSPOSED> static void load_matrices(const void* row, unsigned* (&registers)[COUNT]) {
  const unsigned self = lane();
  if (self < 8 * COUNT) check_shared(row, 16, "ldmatrix wants rows in shared memory, aligned to 16 bytes");
  exchange(row, [&](auto other) {
    for (int i = 0; i < COUNT; i++) {
      if (!TRANSPOSED) memcpy(registers[i], (const char*)other(8 * i + self / 4) + 4 * (self % 4), 4);
      else
        for (int half = 0; half < 2; half++)
          memcpy((char*)registers[i] + 2 * half, (const char*)other(8 * i + 2 * (self % 4) + half) + 2 * (self / 4), 2);
    }
    return 0;
  });
}
}  // namespace emulation
#define AUTOMAP_LDMATRIX(form, transposed)                                                                            \
  static inline void load_1_matrix##form(unsigned& a, const void* row) {                                              \
    unsigned* all[] = {&a};                                                                                           \
    emulation::load_matrices<1, transposed>(row, all);                                                                \
  }                                                                                                                   \
  static inline void load_2_matrices##form(unsigned& a, unsigned& b, const void* row) {                               \
    unsigned* all[] = {&a, &b};                                                                                       \
    emulation::load_matrices<2, transposed>(row, all);                                                                \
  }                                                                                                                   \
  static inline void load_4_matrices##form(unsigned& a, unsigned& b, unsigned& c, unsigned& d, const void* row) {     \
    unsigned* all[] = {&a, &b, &c, &d};                                                                               \
    emulation::load_matrices<4, transposed>(row, all);                                                                \
  }
AUTOMAP_LDMATRIX(, false)
AUTOMAP_LDMATRIX(_transposed, true)

/* PTX ISA, stmatrix: the same reversed; lane l gives 32 bits of row l/4 of each matrix. */
namespace emulation {
template <int COUNT> static void store_matrices(void* row, const unsigned (&words)[COUNT]) {
  const unsigned self = lane();
  if (self < 8 * COUNT) check_shared(row, 16, "stmatrix wants rows in shared memory, aligned to 16 bytes");
  for (int i = 0; i < COUNT; i++)
    exchange(row, [&](auto other) {
      memcpy((char*)other(8 * i + self / 4) + 4 * (self % 4), &words[i], 4);
      return 0;
    });
}
}  // namespace emulation
static inline void store_2_matrices(void* row, unsigned a, unsigned b) { emulation::store_matrices(row, {a, b}); }
static inline void store_4_matrices(void* row, unsigned a, unsigned b, unsigned c, unsigned d) { emulation::store_matrices(row, {a, b, c, d}); }

template <class T> static inline T held(T place) { return place; }
static inline void use_behind(float&, float) {}

/* Conversions round to nearest, ties to even; a NaN stays a NaN. */
static inline uint16_t to_f16(float f) {
  _Float16 h = (_Float16)f;
  uint16_t bits;
  memcpy(&bits, &h, 2);
  return f == f ? bits : 0x7fff;
}
static inline float from_f16(uint16_t bits) {
  _Float16 h;
  memcpy(&h, &bits, 2);
  return (float)h;
}
static inline uint16_t to_bf16(float f) {
  uint32_t bits;
  memcpy(&bits, &f, 4);
  return f == f ? (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16) : 0x7fff;
}

/* Pairs of f16 in a word: half2. Products and sums of doubles are rounded once more, to f16. */
namespace emulation {
static inline _Float16 half_at(uint32_t pair, int i) {
  const uint16_t bits = (uint16_t)(pair >> 16 * i);
  _Float16 h;
  memcpy(&h, &bits, 2);
  return h;
}
template <class F> static inline uint32_t each_half(F f) {
  uint32_t pair = 0;
  for (int i = 0; i < 2; i++) {
    const _Float16 h = (_Float16)f(i);
    uint16_t bits;
    memcpy(&bits, &h, 2);
    pair |= (uint32_t)bits << 16 * i;
  }
  return pair;
}
}  // namespace emulation
static inline uint32_t spread_half(uint16_t x) { return x * 0x10001u; }
template <unsigned BYTES> static inline uint32_t joined_halves(uint32_t a, uint32_t b) {
  const uint64_t all = (uint64_t)b << 32 | a;
  uint32_t y = 0;
  for (int i = 0; i < 4; i++) y |= (uint32_t)(all >> 8 * (BYTES >> 4 * i & 7) & 255) << 8 * i;
  return y;
}
template <unsigned MASK> static inline uint32_t small_halves(uint32_t a) { return (a & MASK) | 0x64006400u; }
static inline uint32_t fma_halves(uint32_t a, uint32_t b, uint32_t c) {
  using emulation::half_at;
  return emulation::each_half([&](int i) { return (double)half_at(a, i) * (double)half_at(b, i) + (double)half_at(c, i); });
}
static inline uint32_t multiplied_halves(uint32_t a, uint32_t b) {
  return emulation::each_half([&](int i) { return (double)emulation::half_at(a, i) * (double)emulation::half_at(b, i); });
}
static inline uint32_t added_halves(uint32_t a, uint32_t b) {
  return emulation::each_half([&](int i) { return (double)emulation::half_at(a, i) + (double)emulation::half_at(b, i); });
}

#endif
