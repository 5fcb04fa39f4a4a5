/*
 * The copy engine of an emulated block, for cuda.h: copies boxes and walks of tensors into shared memory, with barriers
 * that count their bytes. Written from the PTX ISA, cp.async.bulk.tensor (tile and im2col modes) and mbarrier.
 *
 * A copy arrives at once (early) or when somebody waits for it (late); until then its destination is poisoned.
 * Instructions that read shared memory themselves see the copied data.
 */
#ifndef AUTOMAP_EMULATION_CUDA_ENGINE_H
#define AUTOMAP_EMULATION_CUDA_ENGINE_H

#define __grid_constant__

/* A tensor, innermost dimension first, and the unit of its copies: a box, or rows that walk along middle dimensions. */
struct CUtensorMap {
  const unsigned char* tensor;
  unsigned bytes, rank;
  unsigned long extents[5], pitches[5]; /* pitches in bytes */
  unsigned columns, rows;
  unsigned box[5];
  bool walks;
  int first[5], last[5]; /* places of the first and of the last step of a walk */
  unsigned step[5];
};

namespace emulation {

struct PendingBox {
  unsigned char* to;
  CUtensorMap map;
  int at[5], offset[5];
};
struct StageArrival {
  const void* at;
  unsigned phase;
  unsigned arriving, missing; /* all that arrive in a phase, and those that have not yet */
  long bytes;                 /* that are still to come */
  std::vector<PendingBox> boxes;
  std::vector<unsigned> waiting;
};
static std::vector<StageArrival> arrivals;

static std::vector<std::vector<PendingBox>> stores[MAX_THREADS]; /* groups that have not been read yet, late as they may be; the last is open */

static void begin_arrivals() {
  arrivals.clear();
  for (auto& own : stores) {
    own.resize(own.empty() ? 1 : own.size());
    if (own.size() > 1 || !own.front().empty()) misuse("a block has ended before the engine has read what it stores");
  }
}

static StageArrival& arrival_at(const void* at) {
  for (StageArrival& a : arrivals)
    if (a.at == at) return a;
  misuse("a barrier is used that has not been initialised");
}

static void complete(StageArrival& a) {
  if (a.missing > 0 || a.bytes != 0) return;
  a.phase++, a.missing = a.arriving;
  for (unsigned t : a.waiting) set_state(t, READY);
  a.waiting.clear();
}

/* Advances to the next place of a walk or a box. */
static void advance(const CUtensorMap& map, const int (&begin)[5], int (&at)[5]) {
  for (unsigned d = 1; d < map.rank; d++) {
    if (map.walks && d < map.rank - 1) {
      if ((at[d] += map.step[d]) <= map.last[d]) return;
      at[d] = map.first[d];
    } else {
      at[d]++;
      if (map.walks || at[d] < begin[d] + (int)map.box[d]) return;
      at[d] = begin[d];
    }
  }
}

/* Copies a box, swizzled over the width of a row by the absolute address; or stores it, as far as it is inside, from what has been published. */
static void move(const PendingBox& b, bool stores) {
  const unsigned span = b.map.columns * b.map.bytes;
  int at[5];
  memcpy(at, b.at, sizeof at);
  for (unsigned row = 0; row < b.map.rows; row++, advance(b.map, b.at, at))
    for (unsigned column = 0; column < b.map.columns; column++) {
      const uintptr_t linear = (uintptr_t)b.to + row * span + column * b.map.bytes;
      unsigned char* to = (unsigned char*)(linear ^ ((linear >> 3) & (span - 16)));
      const unsigned char* from = b.map.tensor;
      bool inside = true;
      for (unsigned d = 0; d < b.map.rank; d++) {
        const long place = at[d] + (d == 0 ? (long)column : b.offset[d]);
        inside &= place >= 0 && place < (long)b.map.extents[d];
        from += place * (long)b.map.pitches[d];
      }
      check_shared(to, b.map.bytes, "the engine wants shared memory");
      const unsigned char* seen = seen_memory + (to - dynamic_memory);
      if (stores && inside) memcpy((unsigned char*)from, seen, b.map.bytes);
      if (stores) continue;
      if (inside) memcpy(to, from, b.map.bytes);
      else memset(to, 0, b.map.bytes);
      memcpy(seen_memory + (to - dynamic_memory), to, b.map.bytes);
    }
}

static void deliver(StageArrival& a) {
  std::vector<PendingBox> boxes;
  boxes.swap(a.boxes);
  for (const PendingBox& b : boxes) move(b, false), a.bytes -= b.map.bytes * b.map.columns * b.map.rows;
  complete(a);
}

static int describe(CUtensorMap* map, const void* tensor, unsigned bytes, int rank, const uint64_t* extents, const uint64_t* pitches,
                    unsigned columns) {
  *map = {};
  map->tensor = (const unsigned char*)tensor, map->bytes = bytes, map->rank = rank, map->columns = columns, map->rows = 1;
  for (int d = 0; d < rank; d++) {
    map->extents[d] = extents[d], map->pitches[d] = d == 0 ? bytes : pitches[d - 1];
    if (d > 0 && map->pitches[d] % 16) return 1;
  }
  const unsigned span = columns * bytes;
  return (uintptr_t)tensor % 16 || span % 16 || span > 128;
}

static void send(void* to, const CUtensorMap* map, const int* at, const int* offset, int offsets, uint64_t* barrier) {
  if ((uintptr_t)to % 128) misuse("the engine wants tiles at multiples of 128 bytes");
  if (at[0] * (int)map->bytes % 16) misuse("the engine begins at multiples of 16 bytes along the innermost dimension");
  for (unsigned d = 1; map->walks && d + 1 < map->rank; d++)
    if (at[d] < map->first[d] || at[d] > map->last[d]) misuse("the engine begins outside its walk");
  StageArrival& a = arrival_at(barrier);
  if (arrival == LATE) memset(to, UNUSABLE, map->bytes * map->columns * map->rows);
  PendingBox sent = {(unsigned char*)to, *map, {}, {}};
  for (unsigned d = 0; d < map->rank; d++) sent.at[d] = at[d];
  for (int d = 0; d < offsets; d++) sent.offset[d + 1] = offset[d];
  a.boxes.push_back(sent);
  if (arrival == EARLY || !a.waiting.empty()) deliver(a);
}

static void expect(uint64_t* barrier, unsigned bytes) {
  StageArrival& a = arrival_at(barrier);
  if (a.missing == 0) misuse("a barrier is told of more bytes before its phase is complete");
  a.missing--, a.bytes += bytes;
  complete(a);
}

static void store(const CUtensorMap* map, const int* at, const void* from) {
  if ((uintptr_t)from % 128) misuse("the engine wants tiles at multiples of 128 bytes");
  if (at[0] * (int)map->bytes % 16) misuse("the engine begins at multiples of 16 bytes along the innermost dimension");
  PendingBox sent = {(unsigned char*)from, *map, {}, {}};
  for (unsigned d = 0; d < map->rank; d++) sent.at[d] = at[d];
  stores[running].back().push_back(sent);
  if (arrival == EARLY) move(sent, true);
}

}  // namespace emulation

/* ---- as generated sources call them ------------------------------------------------------------------------------ */

template <int RANK>
static inline int describe_box(CUtensorMap* map, const void* tensor, unsigned bytes, const uint64_t (&extents)[RANK],
                               const uint64_t (&pitches)[RANK - 1], const unsigned (&box)[RANK]) {
  if (emulation::describe(map, tensor, bytes, RANK, extents, pitches, box[0])) return 1;
  for (int d = 1; d < RANK; d++) {
    if (box[d] < 1 || box[d] > 256) return 1;
    map->box[d] = box[d], map->rows *= box[d];
  }
  return 0;
}
template <int RANK>
static inline int describe_pixels(CUtensorMap* map, const void* tensor, unsigned bytes, const uint64_t (&extents)[RANK],
                                  const uint64_t (&pitches)[RANK - 1], const int (&first)[RANK - 2], const int (&last)[RANK - 2],
                                  const unsigned (&step)[RANK - 2], unsigned columns, unsigned count) {
  if (emulation::describe(map, tensor, bytes, RANK, extents, pitches, columns)) return 1;
  const int corner = 1 << (RANK == 3 ? 15 : RANK == 4 ? 7 : 4);
  for (int d = 1; d < RANK - 1; d++) {
    if (first[d - 1] < -corner || first[d - 1] >= corner || last[d - 1] < -corner || last[d - 1] >= corner) return 1;
    if (step[d - 1] < 1 || step[d - 1] > 8) return 1;
    map->first[d] = first[d - 1], map->last[d] = (int)extents[d] - 1 + last[d - 1], map->step[d] = step[d - 1];
  }
  map->walks = true, map->rows = count;
  return count > 1024;
}
static inline void init_arrivals(uint64_t* barriers, int count, unsigned arriving) {
  if (threadIdx.x == 0)
    for (int i = 0; i < count; i++) emulation::arrivals.push_back({&barriers[i], 0, arriving, arriving, 0, {}, {}});
}
static inline void publish_arrivals() { __syncthreads(); }
static inline void expect_bytes(uint64_t* barrier, unsigned bytes) { emulation::expect(barrier, bytes); }
static inline void arrive_at(uint64_t* barrier) {
  if (threadIdx.x % emulation::WARP_LANES == 0) emulation::expect(barrier, 0);
}
template <int RANK> static inline void copy_box(void* to, const CUtensorMap* map, const int (&at)[RANK], uint64_t* barrier) {
  if (map->walks || map->rank != RANK) emulation::misuse("a box is copied of what is none");
  emulation::send(to, map, at, nullptr, 0, barrier);
}
template <int RANK> static inline void store_box(const CUtensorMap* map, const int (&at)[RANK], const void* from) {
  if (map->walks || map->rank != RANK) emulation::misuse("a box is stored of what is none");
  emulation::store(map, at, from);
}
static inline void commit_stores() { emulation::stores[emulation::running].emplace_back(); }
template <unsigned PENDING> static inline void wait_for_stores() {
  using namespace emulation;
  auto& groups = stores[running];
  for (; groups.size() - 1 > PENDING; groups.erase(groups.begin()))
    for (const PendingBox& b : groups.front())
      if (arrival == LATE) move(b, true);
}
template <int RANK>
static inline void copy_pixels(void* to, const CUtensorMap* map, const int (&at)[RANK], const int (&offset)[RANK - 2], uint64_t* barrier) {
  if (!map->walks || map->rank != RANK) emulation::misuse("a walk is copied of what is none");
  emulation::send(to, map, at, offset, RANK - 2, barrier);
}
/* To the same place of every block of the cluster, for the same barrier of each. */
template <int RANK, int BLOCKS> static inline void share_box(void* to, const CUtensorMap* map, const int (&at)[RANK], uint64_t* barrier) {
  for (unsigned b = 0; b < BLOCKS; b++) copy_box(in_block((unsigned char*)to, b), map, at, in_block(barrier, b));
}
template <int RANK, int BLOCKS>
static inline void share_pixels(void* to, const CUtensorMap* map, const int (&at)[RANK], const int (&offset)[RANK - 2], uint64_t* barrier) {
  for (unsigned b = 0; b < BLOCKS; b++) copy_pixels(in_block((unsigned char*)to, b), map, at, offset, in_block(barrier, b));
}
template <int BLOCKS> static inline void arrive_in_blocks(uint64_t* barrier) {
  const unsigned block = threadIdx.x % emulation::WARP_LANES;
  if (block < BLOCKS) emulation::expect(in_block(barrier, block), 0);
}
/* PTX ISA, mbarrier.try_wait.parity: waits until the phase of this parity has completed. */
static inline void await_arrival(uint64_t* barrier, unsigned parity) {
  using namespace emulation;
  for (;;) {
    StageArrival& a = arrival_at(barrier);
    if ((a.phase ^ parity) & 1) return;
    deliver(a);
    if ((a.phase ^ parity) & 1) return;
    a.waiting.push_back(running);
    set_state(running, AT_ARRIVAL);
    leave();
  }
}

#endif
