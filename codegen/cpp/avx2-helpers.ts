/**
 * @file C++ helper functions on AVX2 registers, included in a generated source that calls them: operations for which
 * only AVX-512 has an instruction.
 *
 *     calledIn([code`@maskz_loadu_lanes(0xf, x)`], AVX2_HELPERS)      the text of `maskz_loadu_lanes`, and of `lane_mask`, which it calls
 *
 * A mask is a number with one bit per lane, as in AVX-512. For a constant mask the compiler builds the vector that AVX2
 * instructions take. Lanes move between the halves of a register by VPERM2I128, and within them by VPALIGNR. Source:
 * Intel SDM vol. 2.
 */

import { type Code, code } from "../../abstraction/source-text.ts";
import { sharedHelpers } from "./avx512-helpers.ts";
import type { Helpers } from "./cpp-helpers.ts";

const MASKS: Helpers = {
  ...sharedHelpers,
  lane_mask: code`/* Expands a bit mask to all bits of each lane. */
static inline __m256i lane_mask(unsigned bits) {
  const __m256i each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)bits), each), each);
}`,
  wide_mask: code`static inline __m256i wide_mask(unsigned bits) { /* for lanes of 64 bits */
  const __m256i each = _mm256_setr_epi64x(1, 2, 4, 8);
  return _mm256_cmpeq_epi64(_mm256_and_si256(_mm256_set1_epi64x(bits), each), each);
}`,
  mask_mov_lanes: code`/* b where the mask bit is set, a elsewhere. */
static inline __m256 mask_mov_lanes(__m256 a, unsigned mask, __m256 b) {
  return _mm256_blendv_ps(a, b, _mm256_castsi256_ps(@lane_mask(mask)));
}
static inline __m256d mask_mov_lanes(__m256d a, unsigned mask, __m256d b) {
  return _mm256_blendv_pd(a, b, _mm256_castsi256_pd(@wide_mask(mask)));
}
static inline __m256i mask_mov_lanes(__m256i a, unsigned mask, __m256i b) { return _mm256_blendv_epi8(a, b, @lane_mask(mask)); }`,
};

const MOVES: Helpers = {
  lanes_from: code`/* The lanes of low:high that start at lane N. */
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
template <int N> static inline __m256i lanes_from(__m256i low, __m256i high) { return bytes_from<4 * N>(low, high); }`,
  permutexvar_lanes: code`static inline __m256 permutexvar_lanes(__m256i order, __m256 v) { return _mm256_permutevar8x32_ps(v, order); }
static inline __m256i permutexvar_lanes(__m256i order, __m256i v) { return _mm256_permutevar8x32_epi32(v, order); }
static inline __m256d permutexvar_lanes(__m128i order, __m256d v) { /* words 2n and 2n+1 */
  const __m256i low = _mm256_slli_epi64(_mm256_cvtepi32_epi64(order), 1);
  const __m256i words = _mm256_or_si256(low, _mm256_slli_epi64(_mm256_add_epi64(low, _mm256_set1_epi64x(1)), 32));
  return _mm256_castps_pd(_mm256_permutevar8x32_ps(_mm256_castpd_ps(v), words));
}`,
  lane_of: code`static inline float lane_of(__m256 v, long n) { alignas(32) float lanes[8]; _mm256_store_ps(lanes, v); return lanes[n]; }
static inline double lane_of(__m256d v, long n) { alignas(32) double lanes[4]; _mm256_store_pd(lanes, v); return lanes[n]; }
static inline int32_t lane_of(__m256i v, long n) { alignas(32) int32_t lanes[8]; _mm256_store_si256((__m256i*)lanes, v); return lanes[n]; }`,
  even_lanes: code`/* Every second element; reads nothing beyond the last one. */
static inline __m256 even_lanes(const float* p) {
  const __m256 pairs = _mm256_shuffle_ps(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 7), _MM_SHUFFLE(3, 1, 2, 0));
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(pairs), _MM_SHUFFLE(3, 1, 2, 0)));
}
static inline __m256i even_lanes(const int32_t* p) { return _mm256_castps_si256(even_lanes((const float*)p)); }
static inline __m256d even_lanes(const double* p) {
  return _mm256_permute4x64_pd(_mm256_shuffle_pd(_mm256_loadu_pd(p), _mm256_loadu_pd(p + 3), 0xa), _MM_SHUFFLE(3, 1, 2, 0));
}`,
};

const ARITHMETIC: Helpers = {
  most_lanes: code`static inline __m256 most_lanes(__m256 a, __m256 b) { /* NaN wins */
  return _mm256_blendv_ps(_mm256_max_ps(a, b), a, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}
static inline __m256d most_lanes(__m256d a, __m256d b) {
  return _mm256_blendv_pd(_mm256_max_pd(a, b), a, _mm256_cmp_pd(a, a, _CMP_UNORD_Q));
}
static inline __m256i most_lanes(__m256i a, __m256i b) { return _mm256_max_epi32(a, b); }`,
  least_lanes: code`static inline __m256 least_lanes(__m256 a, __m256 b) { /* NaN wins */
  return _mm256_blendv_ps(_mm256_min_ps(a, b), a, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}
static inline __m256d least_lanes(__m256d a, __m256d b) {
  return _mm256_blendv_pd(_mm256_min_pd(a, b), a, _mm256_cmp_pd(a, a, _CMP_UNORD_Q));
}
static inline __m256i least_lanes(__m256i a, __m256i b) { return _mm256_min_epi32(a, b); }`,
  compared_lanes: code`template <int OP> static inline unsigned compared_lanes(__m256 a, __m256 b) { return _mm256_movemask_ps(_mm256_cmp_ps(a, b, OP)); }
template <int OP> static inline unsigned compared_lanes(__m256d a, __m256d b) { return _mm256_movemask_pd(_mm256_cmp_pd(a, b, OP)); }
template <int OP> static inline unsigned compared_lanes(__m256i a, __m256i b) { /* OP and 4: the opposite */
  constexpr int kind = OP & 3; /* equal, less, less or equal */
  const __m256i not_all = kind == 0 ? _mm256_cmpeq_epi32(a, b) : kind == 1 ? _mm256_cmpgt_epi32(b, a) : _mm256_cmpgt_epi32(a, b);
  const unsigned mask = _mm256_movemask_ps(_mm256_castsi256_ps(not_all)) ^ (kind == 2 ? 0xff : 0);
  return OP & 4 ? mask ^ 0xff : mask;
}`,
  abs_lanes: code`static inline __m256 abs_lanes(__m256 a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
static inline __m256d abs_lanes(__m256d a) { return _mm256_andnot_pd(_mm256_set1_pd(-0.0), a); }
static inline __m256i abs_lanes(__m256i a) { return _mm256_abs_epi32(a); }`,
};

/** A fold of all lanes, and a fold of the lanes in a mask. */
const fold = (name: "add" | "max" | "min", pair: Code, start: { readonly f: Code; readonly i: Code }): Helpers => {
  const all = (register: Code, type: Code, lanes: number): Code =>
    code`static inline ${type} reduce_${name}_lanes(${register} v) {
  ${type} sum = @lane_of(v, 0);
  for (int n = 1; n < ${lanes}; n++) { const ${type} x = @lane_of(v, n); sum = ${pair}; }
  return sum;
}`;
  const some = (register: Code, type: Code, splat: Code): Code =>
    code`static inline ${type} mask_reduce_${name}_lanes(unsigned mask, ${register} v) { return @reduce_${name}_lanes(@mask_mov_lanes(${splat}, mask, v)); }`;
  const [ps, pd, si] = [
    [code`__m256`, code`float`],
    [code`__m256d`, code`double`],
    [code`__m256i`, code`int32_t`],
  ] as const;
  return {
    [`reduce_${name}_lanes`]: code`${all(...ps, 8)}\n${all(...pd, 4)}\n${all(...si, 8)}`,
    [`mask_reduce_${name}_lanes`]: code`${some(...ps, code`_mm256_set1_ps(${start.f})`)}
${some(...pd, code`_mm256_set1_pd(${start.f})`)}
${some(...si, code`_mm256_set1_epi32(${start.i})`)}`,
  };
};

const MEMORY: Helpers = {
  loadu_lanes: code`static inline __m256i loadu_lanes(const int32_t* p) { return _mm256_loadu_si256((const __m256i*)p); }`,
  maskz_loadu_lanes: code`static inline __m256 maskz_loadu_lanes(unsigned mask, const float* p) { return _mm256_maskload_ps(p, @lane_mask(mask)); }
static inline __m256d maskz_loadu_lanes(unsigned mask, const double* p) { return _mm256_maskload_pd(p, @wide_mask(mask)); }
static inline __m256i maskz_loadu_lanes(unsigned mask, const int32_t* p) { return _mm256_maskload_epi32((const int*)p, @lane_mask(mask)); }`,
  mask_loadu_lanes: code`/* Lanes without a mask bit come from \`otherwise\`. */
template <class V, class T> static inline V mask_loadu_lanes(V otherwise, unsigned mask, const T* p) {
  return @mask_mov_lanes(otherwise, mask, @maskz_loadu_lanes(mask, p));
}`,
  storeu_lanes: code`static inline void storeu_lanes(int32_t* p, __m256i v) { _mm256_storeu_si256((__m256i*)p, v); }`,
  mask_storeu_lanes: code`static inline void mask_storeu_lanes(float* p, unsigned mask, __m256 v) { _mm256_maskstore_ps(p, @lane_mask(mask), v); }
static inline void mask_storeu_lanes(double* p, unsigned mask, __m256d v) { _mm256_maskstore_pd(p, @wide_mask(mask), v); }
static inline void mask_storeu_lanes(int32_t* p, unsigned mask, __m256i v) { _mm256_maskstore_epi32((int*)p, @lane_mask(mask), v); }`,
  i32gather_lanes: code`/* Elements by their distance from p; their size is that of the type. */
static inline __m256 i32gather_lanes(__m256i at, const float* p, int) { return _mm256_i32gather_ps(p, at, 4); }
static inline __m256d i32gather_lanes(__m128i at, const double* p, int) { return _mm256_i32gather_pd(p, at, 8); }
static inline __m256i i32gather_lanes(__m256i at, const int32_t* p, int) { return _mm256_i32gather_epi32((const int*)p, at, 4); }`,
  mask_i32gather_lanes: code`static inline __m256 mask_i32gather_lanes(__m256 otherwise, unsigned mask, __m256i at, const float* p, int) {
  return _mm256_mask_i32gather_ps(otherwise, p, at, _mm256_castsi256_ps(@lane_mask(mask)), 4);
}
static inline __m256d mask_i32gather_lanes(__m256d otherwise, unsigned mask, __m128i at, const double* p, int) {
  return _mm256_mask_i32gather_pd(otherwise, p, at, _mm256_castsi256_pd(@wide_mask(mask)), 8);
}
static inline __m256i mask_i32gather_lanes(__m256i otherwise, unsigned mask, __m256i at, const int32_t* p, int) {
  return _mm256_mask_i32gather_epi32(otherwise, (const int*)p, at, @lane_mask(mask), 4);
}`,
  mask_i32scatter_lanes: code`/* AVX2 has no scatter instruction, so lanes are stored one by one. */
static inline void mask_i32scatter_lanes(float* p, unsigned mask, __m256i at, __m256 v, int) {
  alignas(32) int32_t n[8]; _mm256_store_si256((__m256i*)n, at);
  for (int l = 0; l < 8; l++) if (mask >> l & 1) p[n[l]] = @lane_of(v, l);
}
static inline void mask_i32scatter_lanes(double* p, unsigned mask, __m128i at, __m256d v, int) {
  alignas(16) int32_t n[4]; _mm_store_si128((__m128i*)n, at);
  for (int l = 0; l < 4; l++) if (mask >> l & 1) p[n[l]] = @lane_of(v, l);
}
static inline void mask_i32scatter_lanes(int32_t* p, unsigned mask, __m256i at, __m256i v, int) {
  alignas(32) int32_t n[8]; _mm256_store_si256((__m256i*)n, at);
  for (int l = 0; l < 8; l++) if (mask >> l & 1) p[n[l]] = @lane_of(v, l);
}`,
  i32scatter_lanes: code`template <class T, class N, class V> static inline void i32scatter_lanes(T* p, N at, V v, int size) { @mask_i32scatter_lanes(p, 0xff, at, v, size); }`,
  stream_lanes: code`/* Bypasses the caches where the address is aligned. */
static inline void stream_lanes(float* p, __m256 v) { if ((uintptr_t)p % 32 == 0) _mm256_stream_ps(p, v); else _mm256_storeu_ps(p, v); }
static inline void stream_lanes(double* p, __m256d v) { if ((uintptr_t)p % 32 == 0) _mm256_stream_pd(p, v); else _mm256_storeu_pd(p, v); }
static inline void stream_lanes(int32_t* p, __m256i v) { if ((uintptr_t)p % 32 == 0) _mm256_stream_si256((__m256i*)p, v); else _mm256_storeu_si256((__m256i*)p, v); }`,
};

export const AVX2_HELPERS: Helpers = {
  ...MASKS,
  ...MOVES,
  ...ARITHMETIC,
  ...fold("add", code`sum + x`, { f: code`0`, i: code`0` }),
  ...fold("max", code`sum > x || sum != sum ? sum : x`, { f: code`-__builtin_inff()`, i: code`INT32_MIN` }),
  ...fold("min", code`sum < x || sum != sum ? sum : x`, { f: code`__builtin_inff()`, i: code`INT32_MAX` }),
  ...MEMORY,
};
