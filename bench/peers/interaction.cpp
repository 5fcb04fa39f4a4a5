/*
 * A recommendation model's pairwise products in one kernel and as the sequence cat, product, index, cat: run in turns,
 * with the side that starts alternating, and every element checked.
 *
 *     interaction FUSED.so PRODUCT.so SAMPLES CHUNK ROUNDS     a round prints `fused SECONDS`, `cat0 ...` to `cat1 ...`
 *
 * Both kernels take CHUNK samples and are called chunk by chunk; each step of the sequence takes all samples. Elements
 * are floats, or bits of bf16 with -DBF16.
 */

#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { VECTORS = 27, WIDTH = 128, PAIRS = VECTORS * (VECTORS - 1) / 2, OUT = WIDTH + PAIRS };

#ifdef BF16
typedef uint16_t Element;
static float value(Element e) { uint32_t bits = (uint32_t)e << 16; float x; memcpy(&x, &bits, 4); return x; }
static Element element(float x) { uint32_t bits; memcpy(&bits, &x, 4); return (Element)((bits + 0x7fff + (bits >> 16 & 1)) >> 16); }
static const double STEP = 1.0 / 128;
#else
typedef float Element;
static float value(Element e) { return e; }
static Element element(float x) { return x; }
static const double STEP = 0;
#endif

struct Kernel {
  void (*run)(void*, void* const*, int, int, int);
  int phases;
  void* workspace;
};

static Kernel kernelIn(const char* file) {
  void* const library = dlopen(file, RTLD_NOW);
  if (!library) { fprintf(stderr, "%s\n", dlerror()); exit(1); }
  const unsigned long bytes = ((unsigned long (*)())dlsym(library, "automap_workspace_bytes"))();
  Kernel k = {(void (*)(void*, void* const*, int, int, int))dlsym(library, "automap_run"), ((int (*)())dlsym(library, "automap_phases"))(), aligned_alloc(64, (bytes + 127) / 64 * 64)};
  ((void (*)(void*, const void* const*))dlsym(library, "automap_prepare"))(k.workspace, nullptr);
  return k;
}

static void call(const Kernel& k, void* const* tensors) {
  for (int phase = 0; phase < k.phases; phase++) k.run(k.workspace, tensors, phase, 0, 1);
}

static double now() { timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + 1e-9 * t.tv_nsec; }

static Element* elements(long count) {
  Element* const memory = (Element*)aligned_alloc(64, (count * sizeof(Element) + 127) / 64 * 64);
  if (!memory) { fprintf(stderr, "no memory\n"); exit(6); }
  memset(memory, 0, count * sizeof(Element));
  return memory;
}

static void check(const char* what, const Element* z, const Element* dense, const Element* rows, long samples) {
  for (long b = 0; b < samples; b++) {
    const auto row = [&](int i) { return i == 0 ? dense + b * WIDTH : rows + (b * (VECTORS - 1) + i - 1) * WIDTH; };
    const Element* const out = z + b * OUT;
    bool right = memcmp(out, row(0), WIDTH * sizeof(Element)) == 0;
    for (int i = 1, at = WIDTH; i < VECTORS; i++)
      for (int j = 0; j < i; j++, at++) {
        double sum = 0, size = 0;
        for (int k = 0; k < WIDTH; k++) {
          const double term = (double)value(row(i)[k]) * value(row(j)[k]);
          sum += term, size += fabs(term);
        }
        /* The error bound of f32 summation in any order (Higham, section 4.2), and one rounding to the element. */
        right = right && fabs(value(out[at]) - sum) <= (WIDTH + 2) * ldexp(1, -23) * size + STEP * fabs(sum);
      }
    if (!right) { fprintf(stderr, "%s: sample %ld is wrong\n", what, b); exit(1); }
  }
}

int main(int, char** words) {
  const Kernel fused = kernelIn(words[1]), product = kernelIn(words[2]);
  const long samples = atol(words[3]), chunk = atol(words[4]), rounds = atol(words[5]);
  Element *dense = elements(samples * WIDTH), *rows = elements(samples * (VECTORS - 1) * WIDTH), *z = elements(samples * OUT), *other = elements(samples * OUT);
  Element *x = elements(samples * VECTORS * WIDTH), *squares = elements(samples * VECTORS * VECTORS), *pairs = elements(samples * PAIRS);
  uint32_t state = 1;
  const auto draw = [&] { state = state * 1664525u + 1013904223u; return element((float)(int32_t)state * 0x1p-31f); };
  for (long i = 0; i < samples * WIDTH; i++) dense[i] = draw();
  for (long i = 0; i < samples * (VECTORS - 1) * WIDTH; i++) rows[i] = draw();
  int lower[PAIRS];
  for (int i = 1, at = 0; i < VECTORS; i++) for (int j = 0; j < i; j++) lower[at++] = i * VECTORS + j;

  for (long round = 0; round <= rounds; round++) {
    double t[5], began = 0, took = 0;
    const auto runFused = [&] {
      began = now();
      for (long b = 0; b < samples; b += chunk) {
        void* const tensors[] = {z + b * OUT, rows + b * (VECTORS - 1) * WIDTH, dense + b * WIDTH};
        call(fused, tensors);
      }
      took = now() - began;
    };
    if (round % 2 == 0) runFused();
    t[0] = now();
    for (long b = 0; b < samples; b++) {
      memcpy(x + b * VECTORS * WIDTH, dense + b * WIDTH, WIDTH * sizeof(Element));
      memcpy(x + (b * VECTORS + 1) * WIDTH, rows + b * (VECTORS - 1) * WIDTH, (VECTORS - 1) * WIDTH * sizeof(Element));
    }
    t[1] = now();
    for (long b = 0; b < samples; b += chunk) {
      void* const tensors[] = {squares + b * VECTORS * VECTORS, x + b * VECTORS * WIDTH};
      call(product, tensors);
    }
    t[2] = now();
    for (long b = 0; b < samples; b++)
      for (int p = 0; p < PAIRS; p++) pairs[b * PAIRS + p] = squares[b * VECTORS * VECTORS + lower[p]];
    t[3] = now();
    for (long b = 0; b < samples; b++) {
      memcpy(other + b * OUT, dense + b * WIDTH, WIDTH * sizeof(Element));
      memcpy(other + b * OUT + WIDTH, pairs + b * PAIRS, PAIRS * sizeof(Element));
    }
    t[4] = now();
    if (round % 2 == 1) runFused();
    if (round == 0) { /* the first touches memory */
      check("fused", z, dense, rows, samples);
      check("sequence", other, dense, rows, samples);
      continue;
    }
    printf("fused %.9f cat0 %.9f product %.9f index %.9f cat1 %.9f\n", took, t[1] - t[0], t[2] - t[1], t[3] - t[2], t[4] - t[3]);
  }
}
