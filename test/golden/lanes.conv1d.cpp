/*
 * out[c] += x[c+q] * w[q]
 * out: f32[c 100], element at c
 * x: f32[d0 104], element at d0
 * w: f32[q 5], element at q, packed ahead of time
 * vectors X: 1 x f32[16]
 * vectors Z: 1 x f32[16]
 * for parallel block in 0..9
 *   for lanes lane in 0..16
 *     X[0,lane] = x[12*block+lane]
 *     Z[0,lane] = X[0,lane] * w[0]
 *   for q in 0..4
 *     for lanes lane in 0..16
 *       Z[0,lane] = Z[0,lane-1] + X[0,lane] * w[q+1]
 *   for lanes lane in 0..16
 *     out[12*block+lane-4] = Z[0,lane] where lane >= 4
 * design SBM: lanes hold x, sums move
 */
#include <stdint.h>
#include <string.h>
#include <immintrin.h>
/* A mask of the first n lanes. */
static inline unsigned lanes_below(long n) { return n <= 0 ? 0 : n >= 32 ? ~0u : (1u << n) - 1; }
/* The lanes of low:high that start at lane N. */
template <int N> static inline __m512 lanes_from(__m512 low, __m512 high) {
  return _mm512_castsi512_ps(_mm512_alignr_epi32(_mm512_castps_si512(high), _mm512_castps_si512(low), N));
}
template <int N> static inline __m512d lanes_from(__m512d low, __m512d high) {
  return _mm512_castsi512_pd(_mm512_alignr_epi64(_mm512_castpd_si512(high), _mm512_castpd_si512(low), N));
}
template <int N> static inline __m512i lanes_from(__m512i low, __m512i high) { return _mm512_alignr_epi32(high, low, N); }

extern "C" unsigned long automap_workspace_bytes(void) { return 64; }
extern "C" unsigned long automap_scratch_bytes(void) { return 0; }
extern "C" int automap_phases(void) { return 1; }

extern "C" void automap_prepare(void* workspace, const void* const* tensors) {
  memset(workspace, 0, automap_workspace_bytes());
  (void)tensors;
}

static void phase_0(void* workspace, void* const* tensors, int part, int parts) {
  (void)workspace, (void)tensors, (void)part, (void)parts;
  float* const out = (float*)tensors[0];
  const float* const x = (const float*)tensors[1];
  const float* const w = (const float*)tensors[2];
  __m512 X0 = {};
  __m512 Z0 = {};
  for (long block = 9L * part / parts; block < 9L * (part + 1) / parts; block++) {
    X0 = _mm512_maskz_loadu_ps(lanes_below(104 - (12 * block)), x + 12 * block);
    Z0 = _mm512_mul_ps(X0, _mm512_set1_ps(w[0]));
    for (long q = 0; q < 4; q++) {
      Z0 = _mm512_fmadd_ps(X0, _mm512_set1_ps(w[q + 1]), lanes_from<15>(Z0, Z0));
    }
    _mm512_mask_storeu_ps(out + 12 * block - 4, (lanes_below(104 - (12 * block)) & 0xfff0), Z0);
  }
}

extern "C" void automap_run(void* workspace, void* const* tensors, int phase, int part, int parts) {
  switch (phase) {
    case 0: return phase_0(workspace, tensors, part, parts);
  }
}
