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
/* Expands a bit mask to all bits of each lane. */
static inline __m256i lane_mask(unsigned bits) {
  const __m256i each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)bits), each), each);
}
static inline __m256i wide_mask(unsigned bits) { /* for lanes of 64 bits */
  const __m256i each = _mm256_setr_epi64x(1, 2, 4, 8);
  return _mm256_cmpeq_epi64(_mm256_and_si256(_mm256_set1_epi64x(bits), each), each);
}
/* The lanes of low:high that start at lane N. */
template <int BYTES> static inline __m256i bytes_from(__m256i low, __m256i high) {
  if constexpr (BYTES == 0) return low;
  const __m256i middle = _mm256_permute2x128_si256(low, high, 0x21);
  if constexpr (BYTES < 16) return _mm256_alignr_epi8(middle, low, BYTES);
  else return _mm256_alignr_epi8(high, middle, BYTES - 16);
}
template <int N> static inline __m256 lanes_from(__m256 low, __m256 high) {
  return _mm256_castsi256_ps(bytes_from<4 * N>(_mm256_castps_si256(low), _mm256_castps_si256(high)));
}
template <int N> static inline __m256d lanes_from(__m256d low, __m256d high) {
  return _mm256_castsi256_pd(bytes_from<8 * N>(_mm256_castpd_si256(low), _mm256_castpd_si256(high)));
}
template <int N> static inline __m256i lanes_from(__m256i low, __m256i high) { return bytes_from<4 * N>(low, high); }
static inline __m256 maskz_loadu_lanes(unsigned mask, const float* p) { return _mm256_maskload_ps(p, lane_mask(mask)); }
static inline __m256d maskz_loadu_lanes(unsigned mask, const double* p) { return _mm256_maskload_pd(p, wide_mask(mask)); }
static inline __m256i maskz_loadu_lanes(unsigned mask, const int32_t* p) { return _mm256_maskload_epi32((const int*)p, lane_mask(mask)); }
static inline void mask_storeu_lanes(float* p, unsigned mask, __m256 v) { _mm256_maskstore_ps(p, lane_mask(mask), v); }
static inline void mask_storeu_lanes(double* p, unsigned mask, __m256d v) { _mm256_maskstore_pd(p, wide_mask(mask), v); }
static inline void mask_storeu_lanes(int32_t* p, unsigned mask, __m256i v) { _mm256_maskstore_epi32((int*)p, lane_mask(mask), v); }

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
  __m256 X0_0 = {};
  __m256 X0_1 = {};
  __m256 Z0_0 = {};
  __m256 Z0_1 = {};
  for (long block = 9L * part / parts; block < 9L * (part + 1) / parts; block++) {
    X0_0 = _mm256_loadu_ps(x + 12 * block);
    X0_1 = maskz_loadu_lanes(lanes_below(96 - (12 * block)), x + 12 * block + 8);
    Z0_0 = _mm256_mul_ps(X0_0, _mm256_set1_ps(w[0]));
    Z0_1 = _mm256_mul_ps(X0_1, _mm256_set1_ps(w[0]));
    for (long q = 0; q < 4; q++) {
      {
        const auto part_0 = _mm256_fmadd_ps(X0_0, _mm256_set1_ps(w[q + 1]), lanes_from<7>(Z0_0, Z0_0));
        const auto part_1 = _mm256_fmadd_ps(X0_1, _mm256_set1_ps(w[q + 1]), lanes_from<7>(Z0_0, Z0_1));
        Z0_0 = part_0;
        Z0_1 = part_1;
      }
    }
    mask_storeu_lanes(out + 12 * block - 4, 0xf0, Z0_0);
    mask_storeu_lanes(out + 12 * block + 8 - 4, lanes_below(96 - (12 * block)), Z0_1);
  }
}

extern "C" void automap_run(void* workspace, void* const* tensors, int phase, int part, int parts) {
  switch (phase) {
    case 0: return phase_0(workspace, tensors, part, parts);
  }
}
