/*
 * How fast tiles let a call be: the products that a computation needs, the loads and stores of tiles that no kernel does without, every input
 * byte read and every output byte written, and nothing else.
 *
 *     g++ -O3 -march=native tiles.cpp -o tiles
 *     ./tiles 8,1,64,36864 0:4 0:5,4     bits of a factor, repetitions, elements of a row of the output, bytes of the inputs; then for every
 *                                        32 rows of the output: the first column computed, and the steps of each block of 32 columns from there on
 *
 * prints the seconds of the fastest call. Output elements have 4 bytes. A step is the four products of a block of 2 by 2 tiles of 16 by 16.
 *
 * What is left out: packing; that an operand comes from beyond the nearest cache more than once; what a mask costs. What is done:
 *
 *   - one load a product, as in blocks of 2 by 2 tiles: no block that the 8 registers hold has fewer, since p by q accumulators leave 8 - p*q
 *     registers for the p + q operands of a step
 *   - loads walk through the inputs once, so that most of them find their tile in the nearest cache
 *   - tiles that are computed are stored, the rest of the output is written as lines of zeros
 *
 * Ways: zeros before the products of a row, behind them, after each block, and within its steps, in the order in which they lie; tiles
 * stored into the output, or by way of a buffer in the nearest cache; the next tile of the inputs fetched ahead, or when it is loaded.
 */
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

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

/* Two rows of tiles: blocks of 2 by 2 from column `from` on, the steps of each; zeros elsewhere. */
struct Rows {
  long from = 0, to = 0;
  std::vector<int> steps;
};

struct Call {
  int bits, repetitions;
  long columns, input_bytes;
  std::vector<Rows> rows;
  int32_t* out;
  const char* in;
};

enum Zeros { BEFORE, BEHIND, AFTER_BLOCK, WITHIN_STEPS, ZEROS };

/* Where the next line of zeros lies. */
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

/* The tiles of the inputs one after the other, each as often as there are more loads than tiles. */
struct Walk {
  const char* in;
  double pace;
  bool ahead;
  double at = 0;

  const char* next() {
    const char* tile = in + 1024 * (long)at;
    const long before = (long)at;
    at += pace;
    if (ahead && (long)at != before)
      for (int line = 0; line < 16; line++) _mm_prefetch(tile + 1024 + 64 * line, _MM_HINT_T0);
    return tile;
  }
};

static long zero_lines(const Call& call, const Rows& r) { return 2 * (call.columns - (r.to - r.from)); }

template <int BITS>
static inline void step(Walk& walk) {
  ORDERED;
  _tile_loadd(4, walk.next(), 64);
  ORDERED;
  _tile_loadd(5, walk.next(), 64);
  ORDERED;
  _tile_loadd(6, walk.next(), 64);
  ORDERED;
  _tile_loadd(7, walk.next(), 64);
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

static inline void store(int32_t* tiles, long below, long beside, long pitch) {
  ORDERED;
  _tile_stored(0, tiles, 4 * pitch);
  ORDERED;
  _tile_stored(1, tiles + beside, 4 * pitch);
  ORDERED;
  _tile_stored(2, tiles + below, 4 * pitch);
  ORDERED;
  _tile_stored(3, tiles + below + beside, 4 * pitch);
  ORDERED;
}

template <int BITS>
static void run(const Call& call, Zeros zeros, bool spilled, bool ahead) {
  alignas(64) static int32_t buffer[1024];
  long lines = 0, blocks = 0, steps = 0;
  for (const Rows& r : call.rows) {
    lines += zero_lines(call, r), blocks += (long)r.steps.size();
    for (int n : r.steps) steps += n;
  }
  const long per_block = blocks ? (lines + blocks - 1) / blocks : 0, per_step = steps ? (lines + steps - 1) / steps : 0;
  const double loads = 4.0 * (double)steps * call.repetitions;
  Walk walk{call.in, loads > 0 ? (double)(call.input_bytes / 1024) / loads : 0, ahead};
  Cursor cursor{call};
  configure();
  int32_t* row = call.out;
  for (int repetition = 0; repetition < call.repetitions; repetition++)
    for (const Rows& r : call.rows) {
      if (zeros == BEFORE) cursor.lines(zero_lines(call, r));
      int32_t* to = row + r.from;
      for (int count : r.steps) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int k = 0; k < count; k++) {
          step<BITS>(walk);
          if (zeros == WITHIN_STEPS) cursor.lines(per_step);
        }
        if (zeros == AFTER_BLOCK) cursor.lines(per_block);
        if (spilled) {
          store(buffer, 512, 256, 16);
          for (int m = 0; m < 32; m++)
            for (int beside = 0; beside < 2; beside++)
              _mm512_storeu_si512(to + m * call.columns + 16 * beside,
                                  _mm512_load_si512(buffer + 16 * m + 256 * (m / 16) + 256 * beside));
        } else {
          store(to, 16 * call.columns, 16, call.columns);
        }
        to += 32;
      }
      if (zeros == BEHIND) cursor.lines(zero_lines(call, r));
      row += 32 * call.columns;
    }
  cursor.lines(lines * call.repetitions);
  _tile_release();
}

static double seconds_of(const Call& call, Zeros zeros, bool spilled, bool ahead) {
  double fastest = 1e9, ends = now() + 0.01;
  for (int batch = 0; batch < 8 || now() < ends; batch++) {
    double began = now();
    for (int i = 0; i < 4; i++)
      if (call.bits == 8) run<8>(call, zeros, spilled, ahead);
      else run<16>(call, zeros, spilled, ahead);
    double seconds = (now() - began) / 4;
    if (seconds < fastest) fastest = seconds;
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
  if (syscall(SYS_arch_prctl, 0x1023, 18)) return 3; /* ARCH_REQ_XCOMP_PERM, tile data */
  Call call{};
  if (count < 3 || sscanf(texts[1], "%d,%d,%ld,%ld", &call.bits, &call.repetitions, &call.columns, &call.input_bytes) != 4) return 2;
  for (int n = 2; n < count; n++) {
    Rows rows;
    if (!parse(texts[n], rows) || rows.to > call.columns) return 2;
    call.rows.push_back(rows);
  }
  const size_t out_bytes = 128 * (size_t)call.columns * call.rows.size() * call.repetitions;
  const size_t in_bytes = call.input_bytes + 8192;
  call.out = (int32_t*)aligned_alloc(4096, (out_bytes + 4095) / 4096 * 4096);
  char* in = (char*)aligned_alloc(4096, in_bytes / 4096 * 4096);
  memset(call.out, 1, out_bytes);
  memset(in, 0, in_bytes / 4096 * 4096);
  call.in = in;
  double fastest = 1e9;
  for (int zeros = 0; zeros < ZEROS; zeros++)
    for (int way = 0; way < 4; way++) {
      const double seconds = seconds_of(call, (Zeros)zeros, way & 1, way & 2);
      if (seconds < fastest) fastest = seconds;
    }
  printf("%.9g\n", fastest);
}
