/*
 * A recommendation model's pairwise products in one kernel and as the sequence cat, product, index, cat: run in turns,
 * with the side that starts alternating, and every element checked.
 *
 *     interaction FUSED.so PRODUCT.so SAMPLES CHUNK ROUNDS     a round prints `fused SECONDS`, `cat0 ...` to `cat1 ...`
 *
 * Both kernels take CHUNK samples and are called chunk by chunk; each step of the sequence takes all samples. Elements
 * are floats, or bits of bf16 with -DBF16. With -DONEDNN a third side runs that sequence with oneDNN's primitives and
 * prints `onednn-cat0 ...` to `onednn-cat1 ...`. Sides take turns in going first.
 */

#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <functional>
#include <string>
#include <vector>

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

#ifdef ONEDNN
#include "interaction-onednn.h"
#endif

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

  const auto gather = [&] {
    for (long b = 0; b < samples; b++)
      for (int p = 0; p < PAIRS; p++) pairs[b * PAIRS + p] = squares[b * VECTORS * VECTORS + lower[p]];
  };
  /* Each step of a side, with the name it is printed by. */
  struct Step { const char* name; std::function<void()> run; };
  std::vector<std::vector<Step>> sides = {
    {{"fused", [&] {
      for (long b = 0; b < samples; b += chunk) {
        void* const tensors[] = {z + b * OUT, rows + b * (VECTORS - 1) * WIDTH, dense + b * WIDTH};
        call(fused, tensors);
      }
    }}},
    {{"cat0", [&] {
      for (long b = 0; b < samples; b++) {
        memcpy(x + b * VECTORS * WIDTH, dense + b * WIDTH, WIDTH * sizeof(Element));
        memcpy(x + (b * VECTORS + 1) * WIDTH, rows + b * (VECTORS - 1) * WIDTH, (VECTORS - 1) * WIDTH * sizeof(Element));
      }
    }}, {"product", [&] {
      for (long b = 0; b < samples; b += chunk) {
        void* const tensors[] = {squares + b * VECTORS * VECTORS, x + b * VECTORS * WIDTH};
        call(product, tensors);
      }
    }}, {"index", gather}, {"cat1", [&] {
      for (long b = 0; b < samples; b++) {
        memcpy(other + b * OUT, dense + b * WIDTH, WIDTH * sizeof(Element));
        memcpy(other + b * OUT + WIDTH, pairs + b * PAIRS, PAIRS * sizeof(Element));
      }
    }}},
  };
  std::vector<const Element*> answers = {z, other};
#ifdef ONEDNN
  Element* const third = elements(samples * OUT);
  OneDnn onednn(samples, dense, rows, x, squares, pairs, third);
  sides.push_back({
    {"onednn-cat0", [&] { onednn.concatenate(); }},
    {"onednn-product", [&] { onednn.multiply(); }},
    {"onednn-index", gather},
    {"onednn-cat1", [&] { onednn.append(); }},
  });
  answers.push_back(third);
#endif

  for (long round = 0; round <= rounds; round++) {
    std::string line;
    for (size_t turn = 0; turn < sides.size(); turn++) {
      const size_t side = (round + turn) % sides.size();
      for (const auto& [name, run] : sides[side]) {
        const double began = now();
        run();
        char text[64];
        snprintf(text, sizeof text, "%s %.9f ", name, now() - began);
        line += text;
      }
      /* The first round touches memory. Each side is checked before the next one reuses buffers that both have. */
      if (round == 0) check(sides[side][0].name, answers[side], dense, rows, samples);
    }
    if (round > 0) puts(line.c_str());
  }
}
