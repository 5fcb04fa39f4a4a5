/*
 * A lower bound on a call's time by its products: those a computation needs, the loads, stores and packed tiles that no
 * kernel avoids, every input byte read, every output byte written, and nothing else.
 *
 *     g++ -O3 -march=native products.cpp -o products
 *     ./products 8,1,64,36864,0 0:4 0:5,4     bits of a factor, repetitions, elements of an output row, input bytes,
 *                                             packed tiles; then for every 32 output rows: the first computed column,
 *                                             and the steps of each block of 32 columns from there on
 *
 * prints the seconds of the fastest call. Output elements have 4 bytes. With 8-bit or 16-bit factors a step is the four
 * products of a 2 x 2 block of 16 x 16 tiles (AMX), with 32 bits four times 24 multiply-adds of 16 elements (AVX-512).
 *
 * Excluded: operands fetched more than once from beyond the nearest cache, and masks. Included:
 *
 *   - four loads in a step of tiles: no block in 8 registers needs fewer for each product, since p x q accumulators
 *     leave 8 - p*q registers for the step's p + q operands
 *   - ten loads for 24 multiply-adds (4 of rows, 6 of an element): the least for a block in 32 registers with operands
 *   - loads walk through the inputs once, so most find their line in the nearest cache
 *   - a packed tile (`t` transposes it, `c` copies it: 40t, 12c) is read from the user's memory and written for loading
 *   - computed results are stored; the rest of the output is written as lines of zeros
 *
 * Variants: zeros are written before or after a row's products, after each block, or within its steps in address order;
 * packed tiles before their row's products or spread over its blocks; results are stored directly or through a buffer
 * in the nearest cache; the next input lines are prefetched or not.
 */
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#define ORDERED asm volatile("" ::: "memory")

static double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC_RAW, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void configure() {
  struct {
    unsigned char palette, start_row, reserved[14];
    unsigned short row_bytes[16];
    unsigned char rows[16];
  } tiles = {};
  tiles.palette = 1;
  for (int t = 0; t < 8; t++) tiles.row_bytes[t] = 64, tiles.rows[t] = 16;
  ORDERED;
  _tile_loadconfig(&tiles);
}

/* The fastest variants, which are measured longer. */
static const int LONGER = 4;

/* Two rows of tiles: the steps of each 2 x 2 block from column `from` on; zeros elsewhere. */
struct Rows {
  long from = 0, to = 0;
  std::vector<int> steps;
};

enum Zeros { BEFORE, BEHIND, AFTER_BLOCK, WITHIN_STEPS, ZEROS };

struct Call {
  int bits, repetitions;
  long columns, input_bytes, packed;
  bool turned;
  std::vector<Rows> rows;
  int32_t* out;
  char* in;
  /* Tiles to pack, in the user's memory. */
  const char* raw;
};

struct Way {
  Zeros zeros;
  bool spread, spilled, ahead;
};

/* The address of the next line of zeros. */
struct Cursor {
  const Call& call;
  int repetition = 0;
  size_t pair = 0;
  int row = 0;
  long column = 0;

  void lines(long count) {
    while (count > 0 && repetition < call.repetitions) {
      const Rows& r = call.rows[pair];
      if (column == r.from) column = r.to;
      if (column >= call.columns) {
        column = 0;
        if (++row == 32) row = 0, pair++;
        if (pair == call.rows.size()) pair = 0, repetition++;
        continue;
      }
      const long end = column < r.from ? r.from : call.columns;
      int32_t* line = call.out + ((repetition * call.rows.size() + pair) * 32 + row) * call.columns;
      for (; column < end && count > 0; column += 16, count--) _mm512_storeu_si512(line + column, _mm512_setzero_si512());
    }
    ORDERED;
  }
};

/* Walks through the inputs, repeating pieces if loads outnumber them. In integers, since the vector unit is busy. */
struct Walk {
  const char* in;
  /* In units of 2^-24 pieces. */
  long pace;
  bool ahead;
  long at = 0;

  /* @param loads that start here: one of a whole piece, or several of a line each */
  template <int LINES>
  const char* next(int loads = 1) {
    const long before = at >> 24;
    const char* piece = in + 64 * LINES * before;
    at += pace * loads;
    if (ahead && at >> 24 != before)
      for (int line = 0; line < LINES; line++) _mm_prefetch(piece + 64 * (LINES + line), _MM_HINT_T0);
    return piece;
  }
};

/* Transposes 16 rows of 16 words. */
static void turn(char* to, const char* from) {
  __m512i a[16], b[16];
  for (int q = 0; q < 4; q++)
    for (int r = 0; r < 4; r++) {
      __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i*)(from + 64 * r + 16 * q)));
      v = _mm512_mask_broadcast_i32x4(v, 0x00f0, _mm_loadu_si128((const __m128i*)(from + 64 * (r + 4) + 16 * q)));
      v = _mm512_mask_broadcast_i32x4(v, 0x0f00, _mm_loadu_si128((const __m128i*)(from + 64 * (r + 8) + 16 * q)));
      a[4 * q + r] = _mm512_mask_broadcast_i32x4(v, 0xf000, _mm_loadu_si128((const __m128i*)(from + 64 * (r + 12) + 16 * q)));
    }
  for (int q = 0; q < 16; q += 4) {
    b[q] = _mm512_unpacklo_epi32(a[q], a[q + 1]), b[q + 1] = _mm512_unpackhi_epi32(a[q], a[q + 1]);
    b[q + 2] = _mm512_unpacklo_epi32(a[q + 2], a[q + 3]), b[q + 3] = _mm512_unpackhi_epi32(a[q + 2], a[q + 3]);
    _mm512_storeu_si512(to + 64 * q, _mm512_unpacklo_epi64(b[q], b[q + 2]));
    _mm512_storeu_si512(to + 64 * (q + 1), _mm512_unpackhi_epi64(b[q], b[q + 2]));
    _mm512_storeu_si512(to + 64 * (q + 2), _mm512_unpacklo_epi64(b[q + 1], b[q + 3]));
    _mm512_storeu_si512(to + 64 * (q + 3), _mm512_unpackhi_epi64(b[q + 1], b[q + 3]));
  }
}

/* The packed tiles: the last part of the inputs in load order. */
struct Packing {
  const Call& call;
  long at = 0;

  void tiles(long count) {
    char* to = call.in + (call.input_bytes & ~1023l) - 1024 * call.packed;
    for (const long end = at + count < call.packed ? at + count : call.packed; at < end; at++) {
      if (call.turned) turn(to + 1024 * at, call.raw + 1024 * at);
      else
        for (int line = 0; line < 16; line++)
          _mm512_storeu_si512(to + 1024 * at + 64 * line, _mm512_loadu_si512(call.raw + 1024 * at + 64 * line));
    }
    ORDERED;
  }
};

static long zero_lines(const Call& call, const Rows& r) { return 2 * (call.columns - (r.to - r.from)); }

/* Registers for a block of 32 x 32 results. */
template <int BITS>
struct Block {
  static const int LOADS = 4, LINES = 16;

  void clear() {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }

  void step(Walk& walk) {
    ORDERED;
    _tile_loadd(4, walk.next<LINES>(), 64);
    ORDERED;
    _tile_loadd(5, walk.next<LINES>(), 64);
    ORDERED;
    _tile_loadd(6, walk.next<LINES>(), 64);
    ORDERED;
    _tile_loadd(7, walk.next<LINES>(), 64);
    if (BITS == 8) {
      _tile_dpbusd(0, 4, 6);
      _tile_dpbusd(2, 5, 6);
      _tile_dpbusd(1, 4, 7);
      _tile_dpbusd(3, 5, 7);
    } else {
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(3, 5, 7);
    }
  }

  void store(int32_t* to, long below, long beside, long pitch) {
    ORDERED;
    _tile_stored(0, to, 4 * pitch);
    ORDERED;
    _tile_stored(1, to + beside, 4 * pitch);
    ORDERED;
    _tile_stored(2, to + below, 4 * pitch);
    ORDERED;
    _tile_stored(3, to + below + beside, 4 * pitch);
    ORDERED;
  }
};

template <>
struct Block<32> {
  static const int ROUNDS = 4, LOADS = 10 * ROUNDS, LINES = 1;
  __m512 sums[6][4];

  void clear() {
#pragma GCC unroll 6
    for (int m = 0; m < 6; m++)
#pragma GCC unroll 4
      for (int n = 0; n < 4; n++) sums[m][n] = _mm512_setzero_ps();
  }

  void step(Walk& walk) {
    /* In the written order: g++ would reorder loads until registers run out. */
    const char* in = walk.next<LINES>(LOADS);
#pragma GCC unroll 4
    for (int round = 0; round < ROUNDS; round++, in += 640) {
      __m512 b[4];
#pragma GCC unroll 4
      for (int n = 0; n < 4; n++) asm volatile("vmovups %1, %0" : "=v"(b[n]) : "m"(*(const __m512*)(in + 64 * n)));
#pragma GCC unroll 6
      for (int m = 0; m < 6; m++) {
        __m512 a;
        asm volatile("vbroadcastss %1, %0" : "=v"(a) : "m"(*(const float*)(in + 64 * (4 + m))));
#pragma GCC unroll 4
        for (int n = 0; n < 4; n++) asm volatile("vfmadd231ps %2, %1, %0" : "+v"(sums[m][n]) : "v"(a), "v"(b[n]));
      }
    }
  }

  /* Stores 64 lines, as a block has, so each sum more than once. */
  void store(int32_t* to, long below, long beside, long pitch) {
#pragma GCC unroll 16
    for (int m = 0; m < 16; m++) {
      _mm512_storeu_ps(to + m * pitch, sums[m % 6][0]);
      _mm512_storeu_ps(to + m * pitch + beside, sums[m % 6][1]);
      _mm512_storeu_ps(to + m * pitch + below, sums[m % 6][2]);
      _mm512_storeu_ps(to + m * pitch + below + beside, sums[m % 6][3]);
    }
    ORDERED;
  }
};

template <int BITS>
static void run(const Call& call, Way way) {
  alignas(64) static int32_t buffer[1024];
  long lines = 0, blocks = 0, steps = 0;
  for (const Rows& r : call.rows) {
    lines += zero_lines(call, r), blocks += (long)r.steps.size();
    for (int n : r.steps) steps += n;
  }
  const auto shared = [](long all, long among) { return among ? (all + among - 1) / among : 0; };
  const long zeros_a_block = shared(lines, blocks), zeros_a_step = shared(lines, steps);
  const long packed_a_row = shared(call.packed, (long)call.rows.size() * call.repetitions);
  const long packed_a_block = shared(call.packed, blocks * call.repetitions);
  using Here = Block<BITS>;
  const double loads = (double)Here::LOADS * (double)steps * call.repetitions;
  Walk walk{call.in, loads > 0 ? (long)(0x1p24 * (double)(call.input_bytes / (64 * Here::LINES)) / loads) : 0, way.ahead};
  Cursor cursor{call};
  Packing packing{call};
  if (BITS < 32) configure();
  int32_t* row = call.out;
  for (int repetition = 0; repetition < call.repetitions; repetition++)
    for (const Rows& r : call.rows) {
      if (!way.spread) packing.tiles(packed_a_row);
      if (way.zeros == BEFORE) cursor.lines(zero_lines(call, r));
      int32_t* to = row + r.from;
      for (int count : r.steps) {
        if (way.spread) packing.tiles(packed_a_block);
        Here block;
        block.clear();
        for (int k = 0; k < count; k++) {
          block.step(walk);
          if (way.zeros == WITHIN_STEPS) cursor.lines(zeros_a_step);
        }
        if (way.zeros == AFTER_BLOCK) cursor.lines(zeros_a_block);
        if (way.spilled) {
          block.store(buffer, 512, 256, 16);
          for (int m = 0; m < 32; m++)
            for (int beside = 0; beside < 2; beside++)
              _mm512_storeu_si512(to + m * call.columns + 16 * beside,
                                  _mm512_load_si512(buffer + 16 * m + 256 * (m / 16) + 256 * beside));
        } else {
          block.store(to, 16 * call.columns, 16, call.columns);
        }
        to += 32;
      }
      if (way.zeros == BEHIND) cursor.lines(zero_lines(call, r));
      row += 32 * call.columns;
    }
  packing.tiles(call.packed);
  cursor.lines(lines * call.repetitions);
  if (BITS < 32) _tile_release();
}

static void call_once(const Call& call, Way way) {
  if (call.bits == 8) run<8>(call, way);
  else if (call.bits == 16) run<16>(call, way);
  else run<32>(call, way);
}

/* Seconds of the fastest call within a time budget. Short calls are timed in fours, to reduce the clock's noise. */
static double seconds_of(const Call& call, Way way, double budget) {
  double fastest = 1e9, ends = now() + budget;
  int together = 1;
  for (int batch = 0; batch < 3 || now() < ends; batch++) {
    double began = now();
    for (int i = 0; i < together; i++) call_once(call, way);
    double seconds = (now() - began) / together;
    if (seconds < fastest) fastest = seconds;
    if (seconds < 2e-5) together = 4;
  }
  return fastest;
}

/* `32:5,4` */
static bool parse(char* text, Rows& rows) {
  rows.from = strtol(text, &text, 10);
  while (*text == ':' || *text == ',') rows.steps.push_back((int)strtol(text + 1, &text, 10));
  rows.to = rows.from + 32 * (long)rows.steps.size();
  return *text == 0;
}

int main(int count, char** texts) {
  Call call{};
  char packing = 'c';
  if (count < 3 || sscanf(texts[1], "%d,%d,%ld,%ld,%ld%c", &call.bits, &call.repetitions, &call.columns, &call.input_bytes, &call.packed, &packing) < 5)
    return 2;
  if (call.bits < 32 && syscall(SYS_arch_prctl, 0x1023, 18)) return 3; /* ARCH_REQ_XCOMP_PERM, tile data */
  call.turned = packing == 't';
  for (int n = 2; n < count; n++) {
    Rows rows;
    if (!parse(texts[n], rows) || rows.to > call.columns) return 2;
    call.rows.push_back(rows);
  }
  if (1024 * call.packed > call.input_bytes) return 2;
  const auto filled = [](size_t bytes, int with) {
    const size_t pages = (bytes + 8191) / 4096 * 4096;
    return (char*)memset(aligned_alloc(4096, pages), with, pages);
  };
  call.out = (int32_t*)filled(128 * (size_t)call.columns * call.rows.size() * call.repetitions, 1);
  call.in = filled(call.input_bytes + 4096, 0);
  call.raw = filled(1024 * call.packed, 0);

  std::vector<std::pair<double, Way>> ways;
  for (int zeros = 0; zeros < ZEROS; zeros++)
    for (int n = 0; n < 8; n++) {
      const Way way{(Zeros)zeros, (n & 1) != 0, (n & 2) != 0, (n & 4) != 0};
      if (call.packed > 0 || !way.spread) ways.emplace_back(seconds_of(call, way, 0.001), way);
    }
  std::sort(ways.begin(), ways.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  double fastest = ways[0].first;
  for (int n = 0; n < LONGER; n++) fastest = std::min(fastest, seconds_of(call, ways[n].second, 0.008));
  printf("%.9g\n", fastest);
}
