/*
 * The copy engine of an emulated block, for cuda.h: boxes of matrices into shared memory, and barriers that count their bytes. Semantics are
 * written from the PTX ISA, cp.async.bulk.tensor and mbarrier.
 *
 * What one thread sends for arrives at once (early) or when somebody waits for it (late); until then its place holds nothing usable.
 * Instructions that read shared memory by themselves see it.
 */
#ifndef AUTOMAP_EMULATION_CUDA_ENGINE_H
#define AUTOMAP_EMULATION_CUDA_ENGINE_H

#define __grid_constant__

struct CUtensorMap {
  const unsigned char* matrix;
  unsigned long width, height, pitch;
  unsigned bytes, box_width, box_height;
};

namespace emulation {

struct PendingBox {
  unsigned char* to;
  CUtensorMap map;
  int x, y;
};
struct StageArrival {
  const void* at;
  unsigned phase;
  bool declared; /* one thread has said how many bytes come */
  long bytes;    /* that are still to come */
  std::vector<PendingBox> boxes;
  std::vector<unsigned> waiting;
};
static std::vector<StageArrival> arrivals;

static void begin_arrivals() { arrivals.clear(); }

static StageArrival& arrival_at(const void* at) {
  for (StageArrival& a : arrivals)
    if (a.at == at) return a;
  misuse("a barrier is used that has not been initialised");
}

static void complete(StageArrival& a) {
  if (!a.declared || a.bytes != 0) return;
  a.phase++, a.declared = false;
  for (unsigned t : a.waiting) set_state(t, READY);
  a.waiting.clear();
}

/* Swizzled over the width of the box, on the absolute address. */
static void bring(const PendingBox& b) {
  const unsigned span = b.map.box_width * b.map.bytes;
  for (unsigned row = 0; row < b.map.box_height; row++)
    for (unsigned column = 0; column < b.map.box_width; column++) {
      const uintptr_t linear = (uintptr_t)b.to + row * span + column * b.map.bytes;
      unsigned char* at = (unsigned char*)(linear ^ ((linear >> 3) & (span - 16)));
      const long x = b.x + (long)column, y = b.y + (long)row;
      const bool inside = x >= 0 && y >= 0 && x < (long)b.map.width && y < (long)b.map.height;
      check_shared(at, b.map.bytes, "the engine wants shared memory");
      if (inside) memcpy(at, b.map.matrix + y * b.map.pitch + x * b.map.bytes, b.map.bytes);
      else memset(at, 0, b.map.bytes);
      memcpy(seen_memory + (at - dynamic_memory), at, b.map.bytes);
    }
}

static void deliver(StageArrival& a) {
  std::vector<PendingBox> boxes;
  boxes.swap(a.boxes);
  for (const PendingBox& b : boxes) bring(b), a.bytes -= b.map.bytes * b.map.box_width * b.map.box_height;
  complete(a);
}

}  // namespace emulation

/* ---- as generated sources call them -------------------------------------------------------------------------------------------- */

static inline int describe_box(CUtensorMap* map, const void* matrix, unsigned bytes, unsigned long width, unsigned long height,
                               unsigned long pitch, unsigned box_width, unsigned box_height) {
  const unsigned span = box_width * bytes;
  if ((uintptr_t)matrix % 16 || pitch % 16 || span % 16 || span > 128 || box_height > 256) return 1;
  *map = {(const unsigned char*)matrix, width, height, pitch, bytes, box_width, box_height};
  return 0;
}
static inline void init_arrivals(uint64_t* barriers, int count) {
  if (emulation::running == 0)
    for (int i = 0; i < count; i++) emulation::arrivals.push_back({&barriers[i], 0, false, 0, {}, {}});
  __syncthreads();
}
static inline void expect_bytes(uint64_t* barrier, unsigned bytes) {
  emulation::StageArrival& a = emulation::arrival_at(barrier);
  if (a.declared) emulation::misuse("a barrier is told of more bytes before its phase is complete");
  a.declared = true, a.bytes += bytes;
  emulation::complete(a);
}
static inline void copy_box(void* to, const CUtensorMap* map, int x, int y, uint64_t* barrier) {
  using namespace emulation;
  if ((uintptr_t)to % 128) misuse("the engine wants boxes at multiples of 128 bytes");
  StageArrival& a = arrival_at(barrier);
  if (arrival == LATE) memset(to, UNUSABLE, map->bytes * map->box_width * map->box_height);
  a.boxes.push_back({(unsigned char*)to, *map, x, y});
  if (arrival == EARLY || !a.waiting.empty()) deliver(a);
}
/* PTX ISA, mbarrier.try_wait.parity: the phase of this parity has been completed. */
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
