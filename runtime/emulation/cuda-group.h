/*
 * Matrix products of a warpgroup (four warps), for cuda.h. wgmma reads its factors from shared memory itself, or the first
 * from registers. Written from the PTX ISA, Asynchronous Warpgroup Level Matrix Instructions.
 *
 * The instruction sees shared memory as last published by a thread, and poison before. Its sums arrive at once (early)
 * or when waited for (late); until then their registers are poisoned. A group without a fence first ends the program.
 */
#ifndef AUTOMAP_EMULATION_CUDA_GROUP_H
#define AUTOMAP_EMULATION_CUDA_GROUP_H

namespace emulation {

/* A factor's descriptor. Absolute addresses are swizzled, so buffers start at multiples of 1,024 bytes. */
struct Described {
  const unsigned char* start;
  unsigned leading, stride, span;
  bool turned;
};

/* The address of an element; `kept` counts rows of a or columns of b. */
static const unsigned char* described_at(const Described& d, unsigned kept, unsigned sum, unsigned bytes) {
  const unsigned piece = 16 / bytes, row = d.turned ? sum : kept, column = d.turned ? kept : sum;
  uintptr_t at = (uintptr_t)d.start + row % 8 * d.span;
  if (d.span == 16) at += kept / 8 * d.stride + (d.turned ? sum / 8 : sum / piece) * d.leading + column % piece * bytes;
  else if (d.turned) at += row / 8 * d.stride + column / (d.span / bytes) * d.leading + column % (d.span / bytes) * bytes;
  else at += row / 8 * d.stride + column * bytes;
  return (const unsigned char*)(at ^ ((at >> 3) & (d.span - 16)));
}

/* The value that the instruction sees there. */
template <class T> static T seen_at(const Described& d, unsigned kept, unsigned sum) {
  const unsigned char* at = described_at(d, kept, sum, sizeof(T));
  T value;
  if (holds(dynamic_memory, dynamic_bytes, at, sizeof(T))) at = seen_memory + (at - dynamic_memory);
  else if (dynamic_bytes > 0 && !holds(static_shared, static_shared_bytes, at, sizeof(T))) misuse("wgmma reads beyond shared memory");
  memcpy(&value, at, sizeof(T));
  return value;
}

/* An instruction issued by one thread, and the later contents of its registers. `anew`: its sums replace them. `held`: the registers of the first factor, of this thread and of those of its quad. */
struct PendingIssue {
  void (*add)(void* sums, const PendingIssue& own);
  void* registers;
  Described a, b;
  const void* held[5];
  unsigned group;
  bool anew;
};
struct HeldSums {
  void* registers;
  std::vector<unsigned char> sums;
};
static std::vector<PendingIssue> issues[MAX_THREADS];
static std::vector<HeldSums> held_sums[MAX_THREADS];
static unsigned committed_issues[MAX_THREADS];
static bool fenced[MAX_THREADS];

static void begin_issues(unsigned threads) {
  for (unsigned t = 0; t < threads; t++) issues[t].clear(), held_sums[t].clear(), committed_issues[t] = 0, fenced[t] = false;
}

/* PTX ISA, register fragments for wgmma.mma_async: register i of thread t of 128. */
template <class C, class T, class U, int N, int K> static void add_product(void* sums, const PendingIssue& own) {
  const unsigned thread = running % GROUP_LANES, row = 16 * (thread / 32) + thread % 32 / 4;
  const Described &a = own.a, &b = own.b;
  T left[2][K];
  U right[K];
  for (int half = 0; half < 2; half++)
    for (int k = 0; k < K; k++)
      if (own.held[0]) memcpy(&left[half][k], (const T*)own.held[1 + k % 8 / 2] + 4 * (k / 8) + 2 * half + k % 2, sizeof(T));
      else left[half][k] = seen_at<T>(a, row + 8 * half, k);
  for (unsigned block = 0; block < N / 8; block++)
    for (unsigned j = 0; j < 2; j++) {
      for (int k = 0; k < K; k++) right[k] = seen_at<U>(b, 8 * block + 2 * (thread % 4) + j, k);
      for (unsigned half = 0; half < 2; half++) {
        char* at = (char*)sums + (4 * block + 2 * half + j) * sizeof(C);
        C sum;
        memcpy(&sum, at, sizeof(C));
        if (own.anew) sum = C(0);
        sum = dot<C, T, U>(sum, K, [&](int k) { return left[half][k]; }, [&](int k) { return right[k]; });
        memcpy(at, &sum, sizeof(C));
      }
    }
}

static bool alike(const Described& x, const Described& y) {
  return x.start == y.start && x.leading == y.leading && x.stride == y.stride && x.span == y.span && x.turned == y.turned;
}

template <class C, class T, class U, int N, int K> static void issue(void* registers, const Described& a, const void* held, const Described& b, bool adds = true) {
  for (const Described& d : {a, b})
    if ((uintptr_t)d.start % 16 || d.leading % 16 || d.stride % 16 || d.leading >> 18 || d.stride >> 18)
      misuse("wgmma counts starts and distances in 16 bytes, distances below 256 KiB");
  if ((a.turned || b.turned) && sizeof(T) != 2) misuse("wgmma turns factors of 16 bits only");
  if (!fenced[running]) misuse("a group of wgmma begins with a fence of registers");
  PendingIssue own = {add_product<C, T, U, N, K>, registers, a, b, {held}, committed_issues[running], !adds};
  offered[running] = &own;
  const unsigned self = running;
  wait_for_group();
  for (unsigned i = 0; i < 4; i++) own.held[1 + i] = ((const PendingIssue*)offered[self / 4 * 4 + i])->held[0];
  const PendingIssue& first = *(const PendingIssue*)offered[self / GROUP_LANES * GROUP_LANES];
  if (first.add != own.add || !alike(first.a, a) || !alike(first.b, b)) misuse("the threads of a warpgroup issue different wgmma");
  wait_for_group();
  if (arrival == EARLY) return own.add(registers, own);
  issues[self].push_back(own);
  for (const HeldSums& h : held_sums[self])
    if (h.registers == registers) return;
  const size_t bytes = N / 2 * sizeof(C);
  held_sums[self].push_back({registers, std::vector<unsigned char>((unsigned char*)registers, (unsigned char*)registers + bytes)});
  memset(registers, UNUSABLE, bytes);
}

static void end_issues(unsigned newest) {
  auto& own = issues[running];
  auto& held = held_sums[running];
  size_t left = 0;
  for (const PendingIssue& i : own) {
    if (i.group + newest >= committed_issues[running]) {
      own[left++] = i;
      continue;
    }
    for (HeldSums& h : held)
      if (h.registers == i.registers) i.add(h.sums.data(), i);
  }
  own.resize(left);
  size_t kept = 0;
  for (HeldSums& h : held) {
    bool flying = false;
    for (const PendingIssue& i : own) flying |= i.registers == h.registers;
    if (!flying) memcpy(h.registers, h.sums.data(), h.sums.size());
    else if (&held[kept++] != &h) held[kept - 1] = std::move(h);
  }
  held.resize(kept);
}

}  // namespace emulation

/* ---- as generated sources call them ------------------------------------------------------------------------------ */

template <bool TURNED> struct Matrix {
  emulation::Described described;
};
template <int SPAN, bool TURNED> static Matrix<TURNED> matrix_at(const void* start, unsigned leading, unsigned stride) {
  return {{(const unsigned char*)start, leading, stride, SPAN, TURNED}};
}
/* Publishes the writes of all threads, since it is not known here which thread wrote what. */
static inline void publish_shared() {
  const unsigned char* own = dynamic_shared();
  memcpy(emulation::seen_memory + (own - emulation::dynamic_memory), own, emulation::block_bytes);
}
static inline void wgmma_fence() { emulation::fenced[emulation::running] = true; }
static inline void wgmma_commit() {
  emulation::committed_issues[emulation::running]++;
  emulation::fenced[emulation::running] = false;
}
/* PTX ISA, wgmma.wait_group.sync.aligned: the threads of a warp wait together, so that one of them may speak for all. */
template <int NEWEST> static inline void wgmma_wait() {
  emulation::end_issues(NEWEST);
  emulation::wait_for_warp();
}
template <class T, int N> static void wgmma_arrived(T (&)[N]) {}

template <class T, int N> static void load_group_fragment(T (&reg)[N], const void* tile) {
  memcpy(reg, (const char*)tile + emulation::running % emulation::GROUP_LANES * sizeof reg, sizeof reg);
}
template <class T, int N> static void store_group_fragment(void* tile, const T (&reg)[N]) {
  memcpy((char*)tile + emulation::running % emulation::GROUP_LANES * sizeof reg, reg, sizeof reg);
}

/* The width follows from the sums' registers: type C in R, PER sums in each. */
#define AUTOMAP_WGMMA(name, K, T, C, R, PER) AUTOMAP_WGMMA_OF_TWO(name, K, T, T, C, R, PER)
#define AUTOMAP_WGMMA_OF_TWO(name, K, T, U, C, R, PER)                                                                  \
  template <int WORDS, bool TURNED_A, bool TURNED_B>                                                                \
  static inline void name(R (&c)[WORDS], const Matrix<TURNED_A>& a, const Matrix<TURNED_B>& b, unsigned adds = 1) { \
    emulation::issue<C, T, U, 2 * PER * WORDS, K>(c, a.described, nullptr, b.described, adds != 0);                 \
  }
#define AUTOMAP_WGMMA_HELD(name, T)                                                                                 \
  template <bool TURNED_B, int WORDS>                                                                               \
  static inline void name(float (&c)[WORDS], const unsigned (&a)[4], const Matrix<TURNED_B>& b) {                   \
    emulation::issue<float, T, T, 2 * WORDS, 16>(c, b.described, a, b.described);                                   \
  }
AUTOMAP_WGMMA_HELD(wgmma_f32_f16_rs, __half)
AUTOMAP_WGMMA_HELD(wgmma_f32_bf16_rs, __nv_bfloat16)
AUTOMAP_WGMMA(wgmma_f32_f16, 16, __half, float, float, 1)
AUTOMAP_WGMMA(wgmma_f16_f16, 16, __half, __half, unsigned, 2)
AUTOMAP_WGMMA(wgmma_f32_bf16, 16, __nv_bfloat16, float, float, 1)
AUTOMAP_WGMMA(wgmma_f32_tf32, 8, float, float, float, 1)
AUTOMAP_WGMMA(wgmma_s32_s8, 32, int8_t, int, int, 1)
AUTOMAP_WGMMA(wgmma_s32_u8, 32, uint8_t, int, int, 1)
AUTOMAP_WGMMA(wgmma_f32_e4m3, 32, __nv_fp8_e4m3, float, float, 1)
AUTOMAP_WGMMA_OF_TWO(wgmma_f32_e4m3e5m2, 32, __nv_fp8_e4m3, __nv_fp8_e5m2, float, float, 1)
AUTOMAP_WGMMA_OF_TWO(wgmma_f32_e5m2e4m3, 32, __nv_fp8_e5m2, __nv_fp8_e4m3, float, float, 1)
AUTOMAP_WGMMA(wgmma_f32_e5m2, 32, __nv_fp8_e5m2, float, float, 1)

#endif
