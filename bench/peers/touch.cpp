/*
 * A lower bound on a call's time by its memory: every input byte read once, every output byte written once, repeatedly.
 *
 *     g++ -O3 -march=native touch.cpp -o touch && ./touch 2097152:393216 921600:245760
 *
 * prints the seconds of a cycle (in a chain of additions), then for each OUT:IN of the fastest of four ways: stores of
 * a register, `rep stosb`, non-temporal stores, and stores between reads. A kernel does more on the same memory.
 */
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef long long line __attribute__((vector_size(64)));

static double now(void) {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC_RAW, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static line sum;

static void read_lines(const line* in, size_t from, size_t to) {
  line a = sum, b = sum;
  size_t i = from;
  for (; i + 1 < to; i += 2) a |= in[i], b |= in[i + 1];
  if (i < to) a |= in[i];
  sum = a | b;
}

static void write_lines(line* out, size_t from, size_t to) {
  for (size_t i = from; i < to; i++) out[i] = line{};
  asm volatile("" ::: "memory");
}

static void call(int way, line* out, size_t outs, const line* in, size_t ins) {
  if (way < 3) read_lines(in, 0, ins);
  switch (way) {
    case 0: return write_lines(out, 0, outs);
    case 1: {
      void* to = out;
      size_t bytes = 64 * outs;
      asm volatile("rep stosb" : "+D"(to), "+c"(bytes) : "a"(0) : "memory");
      return;
    }
    case 2:
      for (size_t i = 0; i < outs; i++)
        for (int j = 0; j < 8; j++) _mm_stream_si64((long long*)(out + i) + j, 0);
      _mm_sfence();
      return;
    default:
      for (size_t i = 0; i < 64; i++) {
        read_lines(in, ins * i / 64, ins * (i + 1) / 64);
        write_lines(out, outs * i / 64, outs * (i + 1) / 64);
      }
  }
}

/* A thousand dependent additions. The operand is in a register, since the compiler merges additions of constants. */
static double cycle(void) {
  double fastest = 1e9;
  for (int batch = 0; batch < 2000; batch++) {
    long x = batch, one = 1;
    double began = now();
    for (int i = 0; i < 125; i++) {
#define ADD asm volatile("add %1, %0" : "+r"(x) : "r"(one));
      ADD ADD ADD ADD ADD ADD ADD ADD
    }
    double seconds = (now() - began) / 1000;
    if (seconds < fastest) fastest = seconds;
  }
  return fastest;
}

int main(int count, char** texts) {
  printf("%.9g\n", cycle());
  for (int n = 1; n < count; n++) {
    size_t out_bytes = 0, in_bytes = 0;
    if (sscanf(texts[n], "%zu:%zu", &out_bytes, &in_bytes) != 2) return 2;
    size_t outs = (out_bytes + 63) / 64, ins = (in_bytes + 63) / 64;
    line* out = (line*)aligned_alloc(4096, (64 * outs + 4095) / 4096 * 4096);
    line* in = (line*)aligned_alloc(4096, (64 * ins + 4096) / 4096 * 4096);
    memset(out, 1, 64 * outs);
    memset(in, 1, 64 * ins);
    double fastest = 1e9;
    for (int way = 0; way < 4; way++) {
      double ends = now() + 0.01;
      for (int batch = 0; batch < 8 || now() < ends; batch++) {
        double began = now();
        for (int i = 0; i < 4; i++) call(way, out, outs, in, ins);
        double seconds = (now() - began) / 4;
        if (seconds < fastest) fastest = seconds;
      }
    }
    printf("%.9g\n", fastest);
    free(out);
    free(in);
  }
  return ((volatile line&)sum)[0] == 42;
}
