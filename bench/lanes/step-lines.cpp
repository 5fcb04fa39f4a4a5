/*
 * One step of 3d7pt over rows in a second-level cache, in the forms that steps in time had and have: nanoseconds for 16 outputs.
 *
 *     g++ -O3 -march=native -mprefer-vector-width=512 -std=c++17 bench/lanes/step-lines.cpp -o /tmp/step-lines && /tmp/step-lines      seconds
 *
 * "loads" reads both neighbours of a vector off the lines of the cache, "shifts" has the lines of a row in registers; "over" writes a row of a
 * step over the row of the step before that it is the last to read. Tiles of rows of 512 f32, steps one plane behind another; KB are of rings of
 * three planes a step; of 12 runs the least.
 */
#include <immintrin.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

constexpr long COLUMNS = 512, PITCH = 528;

static double seconds() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

static __m512 left(__m512 low, __m512 high) {
  return _mm512_castsi512_ps(_mm512_alignr_epi32(_mm512_castps_si512(high), _mm512_castps_si512(low), 15));
}

static __m512 right(__m512 low, __m512 high) {
  return _mm512_castsi512_ps(_mm512_alignr_epi32(_mm512_castps_si512(high), _mm512_castps_si512(low), 1));
}

/* A row of the planes above, at and below; `row` has rows before and behind it. */
template <bool SHIFTS> static void step(const float* above, const float* row, const float* below, float* next) {
  __m512 before = _mm512_setzero_ps(), here = _mm512_load_ps(row);
  for (long k = 0; k < COLUMNS; k += 16) {
    const __m512 after = SHIFTS ? _mm512_load_ps(row + k + 16) : _mm512_load_ps(row + k);
    const __m512 center = SHIFTS ? here : after;
    __m512 sum = _mm512_add_ps(_mm512_load_ps(above + k), _mm512_load_ps(below + k));
    sum = _mm512_add_ps(sum, _mm512_load_ps(row + k - PITCH));
    sum = _mm512_add_ps(sum, _mm512_load_ps(row + k + PITCH));
    sum = _mm512_add_ps(sum, SHIFTS ? left(before, here) : _mm512_loadu_ps(row + k - 1));
    sum = _mm512_add_ps(sum, SHIFTS ? right(here, after) : _mm512_loadu_ps(row + k + 1));
    _mm512_store_ps(next + k, _mm512_fmadd_ps(sum, _mm512_set1_ps(0.1f), _mm512_mul_ps(center, _mm512_set1_ps(0.4f))));
    before = here;
    here = after;
  }
}

template <bool SHIFTS, bool OVER> static double run(long rows, long steps) {
  const long plane = (rows + 2) * PITCH, slots = OVER ? 2 * steps + 1 : 3 * (steps + 1), turns = 40;
  const size_t bytes = (slots * plane + 64) * sizeof(float);
  float* const memory = (float*)mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(memory, 0, bytes);
  /* Where a step has a row: the newest of one lies over what the one before it has done with. */
  const auto at = [&](long s, long row) {
    return memory + 16 + (OVER ? (row - s + 1000 * slots) % slots : 3 * s + (row + 3000) % 3) * plane;
  };
  double least = 1e9;
  for (int repeat = 0; repeat < 12; repeat++) {
    const double begin = seconds();
    for (long turn = 0; turn < turns; turn++)
      for (long s = 1; s <= steps; s++)
        for (long j = 1; j <= rows; j++)
          step<SHIFTS>(at(s - 1, turn - s - 1) + j * PITCH, at(s - 1, turn - s) + j * PITCH,
                       at(s - 1, turn - s + 1) + j * PITCH, at(s, turn - s) + j * PITCH);
    const double each = (seconds() - begin) / (double)(turns * steps * rows * (COLUMNS / 16));
    if (each < least) least = each;
  }
  munmap(memory, bytes);
  return 1e9 * least;
}

int main() {
  printf("| rows of a tile | steps | KB | loads | loads, over | shifts | shifts, over |\n|---|---|---|---|---|---|---|\n");
  static const long ROWS[] = {4, 24, 40, 64}, STEPS[] = {1, 3, 5};
  for (const long rows : ROWS)
    for (const long steps : STEPS)
      printf("| %ld | %ld | %ld | %.2f | %.2f | %.2f | %.2f |\n", rows, steps,
             3 * (steps + 1) * (rows + 2) * PITCH * (long)sizeof(float) / 1024, run<false, false>(rows, steps),
             run<false, true>(rows, steps), run<true, false>(rows, steps), run<true, true>(rows, steps));
}
