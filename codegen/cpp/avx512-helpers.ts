/**
 * @file C++ helper functions on AVX-512 registers, included in a generated source that calls them: operations without a
 * single instruction.
 *
 *     calledIn([code`Z0 = @most_lanes(Z0, X0);`], AVX512_HELPERS)      the text of `most_lanes`, and nothing else
 *
 * On every lane, each helper gives the result of the scalar function in cpp-helpers.ts, including NaN, ties and the
 * ends of a range.
 */

import { code } from "../../abstraction/source-text.ts";
import type { Helpers } from "./cpp-helpers.ts";

/** Helpers of any registers: prefetching, and masks with one bit per lane that depend on loop counters. */
export const sharedHelpers: Helpers = {
  prefetch_from: code`/* The address is a number, since no pointer may leave its tensor by more than one element. */
template <class T> static inline void prefetch_from(const T* tensor, long at) {
  _mm_prefetch((const char*)((uintptr_t)tensor + sizeof(T) * at), _MM_HINT_T0);
}`,
  prefetch_distant: code`/* Into the second-level cache. */
template <class T> static inline void prefetch_distant(const T* tensor, long at) {
  _mm_prefetch((const char*)((uintptr_t)tensor + sizeof(T) * at), _MM_HINT_T1);
}`,
  lanes_below: code`/* A mask of the first n lanes. */
static inline unsigned lanes_below(long n) { return n <= 0 ? 0 : n >= 32 ? ~0u : (1u << n) - 1; }`,
  only_lane: code`static inline unsigned only_lane(long n) { return n < 0 || n >= 32 ? 0 : 1u << n; }`,
};

/** Their names differ from those in the preludes of instructions. */
export const AVX512_HELPERS: Helpers = {
  ...sharedHelpers,
  row_below: code`/* A mask of the first n elements. */
static inline unsigned long long row_below(long n) { return n <= 0 ? 0 : n >= 64 ? ~0ull : (1ull << n) - 1; }`,
  turn_registers: code`/* Word r of row n becomes word n of row r. */
static inline void turn_registers(__m512i r[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; j++) {
      r[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + j + 2]);
      r[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + j + 2]);
    }
  for (int j = 0; j < 4; j++) /* parts of four words: 0 and 2, then 1 and 3 */
    for (int i = 0; i < 16; i += 8) {
      t[i + j] = _mm512_shuffle_i32x4(r[i + j], r[i + j + 4], 0x88);
      t[i + j + 4] = _mm512_shuffle_i32x4(r[i + j], r[i + j + 4], 0xdd);
    }
  for (int j = 0; j < 8; j++) {
    r[j] = _mm512_shuffle_i32x4(t[j], t[j + 8], 0x88);
    r[j + 8] = _mm512_shuffle_i32x4(t[j], t[j + 8], 0xdd);
  }
}`,
  turn_words: code`/* 16 rows of 16 words, \`pitch\` bytes apart, become 16 adjacent rows. The mask counts elements of B bytes. */
template <int B> static inline void turn_words(void* to, const void* from, long pitch, unsigned long long mask) {
  __m512i r[16];
  for (int i = 0; i < 16; i++) {
    const void* const row = (const char*)from + i * pitch;
    r[i] = B == 1 ? _mm512_maskz_loadu_epi8(mask, row) : _mm512_maskz_loadu_epi16((__mmask32)mask, row);
  }
  @turn_registers(r);
  for (int i = 0; i < 16; i++) _mm512_storeu_si512((char*)to + 64 * i, r[i]);
}`,
  // One copy for all calls: to compile each takes 0.03 s of 0.19 for a kernel of conv2d u8s8 (g++ 12, 2026-11-23).
  turn_rows: code`/* \`rows\` rows of \`words\` words become \`words\` rows of \`rows\` words; pitches in bytes. */
static __attribute__((noinline)) void turn_rows(void* to, long to_pitch, const void* from, long pitch, long rows, long words) {
  for (long n = 0; n < rows; n += 16)
    for (long k = 0; k < words; k += 16) {
      const __mmask16 read = @lanes_below(words - k), written = @lanes_below(rows - n);
      __m512i r[16];
      for (int i = 0; i < 16; i++)
        r[i] = _mm512_maskz_loadu_epi32(n + i < rows ? read : 0, (const char*)from + (n + i) * pitch + 4 * k);
      @turn_registers(r);
      for (int i = 0; i < 16 && k + i < words; i++)
        _mm512_mask_storeu_epi32((char*)to + (k + i) * to_pitch + 4 * n, written, r[i]);
    }
}`,
  turn_columns: code`/* Words of 16 rows become rows of 16 words; pitches in bytes. Rows without a mask bit are not read, and their words are zero. */
static inline void turn_columns(void* to, long to_pitch, const void* from, long pitch, unsigned long long rows, long words) {
  for (long k = 0; k < words; k += 16) {
    const __mmask16 read = @lanes_below(words - k);
    __m512i r[16];
    for (int i = 0; i < 16; i++)
      r[i] = _mm512_maskz_loadu_epi32(rows >> i & 1 ? read : 0, (const char*)from + i * pitch + 4 * k);
    @turn_registers(r);
    for (int i = 0; i < 16 && k + i < words; i++) _mm512_storeu_si512((char*)to + (k + i) * to_pitch, r[i]);
  }
}`,
  mix_rows: code`/* Words of B-byte elements, each from another row of 16: \`words\` rows of 16 words; pitches in bytes. The mask counts elements. */
template <int B> static inline void mix_rows(void* to, long to_pitch, const void* from, long pitch, unsigned long long mask, long words) {
  const __mmask16 read = (__mmask16)mask;
  for (long k = 0; k < words; k++) {
    __m512i word = _mm512_setzero_si512();
    for (int q = 0; q < 4 / B; q++) {
      const char* const row = (const char*)from + (k * (4 / B) + q) * pitch;
      const __m512i one = B == 1 ? _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(read, row)) : _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(read, row));
      word = _mm512_or_si512(word, _mm512_slli_epi32(one, 8 * B * q));
    }
    _mm512_storeu_si512((char*)to + k * to_pitch, word);
  }
}`,
  lanes_from: code`/* The lanes of low:high that start at lane N. */
template <int N> static inline __m512 lanes_from(__m512 low, __m512 high) {
  return _mm512_castsi512_ps(_mm512_alignr_epi32(_mm512_castps_si512(high), _mm512_castps_si512(low), N));
}
template <int N> static inline __m512d lanes_from(__m512d low, __m512d high) {
  return _mm512_castsi512_pd(_mm512_alignr_epi64(_mm512_castpd_si512(high), _mm512_castpd_si512(low), N));
}
template <int N> static inline __m512i lanes_from(__m512i low, __m512i high) { return _mm512_alignr_epi32(high, low, N); }`,
  lane_of: code`static inline float lane_of(__m512 v, long n) { alignas(64) float lanes[16]; _mm512_store_ps(lanes, v); return lanes[n]; }
static inline double lane_of(__m512d v, long n) { alignas(64) double lanes[8]; _mm512_store_pd(lanes, v); return lanes[n]; }
static inline int32_t lane_of(__m512i v, long n) { alignas(64) int32_t lanes[16]; _mm512_store_si512(lanes, v); return lanes[n]; }`,
  even_lanes: code`/* Every second element; reads nothing beyond the last one. */
static inline __m512 even_lanes(const float* p) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  return _mm512_permutex2var_ps(_mm512_loadu_ps(p), even, _mm512_maskz_loadu_ps(0x7fff, p + 16));
}
static inline __m512d even_lanes(const double* p) {
  const __m512i even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
  return _mm512_permutex2var_pd(_mm512_loadu_pd(p), even, _mm512_maskz_loadu_pd(0x7f, p + 8));
}
static inline __m512i even_lanes(const int32_t* p) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  return _mm512_permutex2var_epi32(_mm512_loadu_si512(p), even, _mm512_maskz_loadu_epi32(0x7fff, p + 16));
}`,
  most_lanes: code`static inline __m512 most_lanes(__m512 a, __m512 b) { /* NaN wins */
  return _mm512_mask_mov_ps(_mm512_max_ps(a, b), _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), a);
}
static inline __m512d most_lanes(__m512d a, __m512d b) {
  return _mm512_mask_mov_pd(_mm512_max_pd(a, b), _mm512_cmp_pd_mask(a, a, _CMP_UNORD_Q), a);
}
static inline __m512i most_lanes(__m512i a, __m512i b) { return _mm512_max_epi32(a, b); }`,
  least_lanes: code`static inline __m512 least_lanes(__m512 a, __m512 b) { /* NaN wins */
  return _mm512_mask_mov_ps(_mm512_min_ps(a, b), _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), a);
}
static inline __m512d least_lanes(__m512d a, __m512d b) {
  return _mm512_mask_mov_pd(_mm512_min_pd(a, b), _mm512_cmp_pd_mask(a, a, _CMP_UNORD_Q), a);
}
static inline __m512i least_lanes(__m512i a, __m512i b) { return _mm512_min_epi32(a, b); }`,
  byte_dots: code`/* c + a*b over four bytes per lane, unsigned by signed. In assembly, because g++ 12 copies accumulators of the intrinsic to the stack. */
static inline __m512i byte_dots(__m512i c, __m512i a, __m512i b) {
  asm("vpdpbusd %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
  return c;
}`,
  word_dots: code`/* c + a*b over two words per lane. */
static inline __m512i word_dots(__m512i c, __m512i a, __m512i b) {
  asm("vpdpwssd %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
  return c;
}`,
  byte_windows: code`/* Lane l gets the four bytes that start at byte l; N bytes are read. */
template <int N> static inline __m512i byte_windows(const void* p) {
  const __m512i bytes = _mm512_castsi256_si512(_mm256_maskz_loadu_epi8((1u << N) - 1, p));
  const __m512i blocks = _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4), bytes);
  return _mm512_shuffle_epi8(blocks, _mm512_broadcast_i32x4(_mm_setr_epi32(0x03020100, 0x04030201, 0x05040302, 0x06050403)));
}`,
  word_windows: code`/* Lane l gets the two words that start at word l; N words are read. */
template <int N> static inline __m512i word_windows(const void* p) {
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i order = _mm512_add_epi32(_mm512_mullo_epi32(lanes, _mm512_set1_epi32(0x10001)), _mm512_set1_epi32(0x10000));
  return _mm512_permutexvar_epi16(order, _mm512_maskz_loadu_epi16((1u << N) - 1, p));
}`,
  word_of: code`/* B bytes, followed by zeros. */
template <int B> static inline int word_of(const void* p) {
  int word = 0;
  __builtin_memcpy(&word, p, B);
  return word;
}`,
  stream_lanes: code`/* Bypasses the caches where the address is aligned. */
static inline void stream_lanes(float* p, __m512 v) { if ((uintptr_t)p % 64 == 0) _mm512_stream_ps(p, v); else _mm512_storeu_ps(p, v); }
static inline void stream_lanes(double* p, __m512d v) { if ((uintptr_t)p % 64 == 0) _mm512_stream_pd(p, v); else _mm512_storeu_pd(p, v); }
static inline void stream_lanes(int32_t* p, __m512i v) { if ((uintptr_t)p % 64 == 0) _mm512_stream_si512((__m512i*)p, v); else _mm512_storeu_si512(p, v); }`,
  bf16_bits: code`/* To nearest, ties to even. */
static inline __m256i bf16_bits(__m512 x) {
#ifdef __AVX512BF16__
  if (__builtin_expect(_mm512_fpclass_ps_mask(x, 0x20) == 0, 1)) return (__m256i)_mm512_cvtneps_pbh(x); /* it takes denormals for zeros */
#endif
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  sum = _mm512_mask_or_epi32(sum, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), bits, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(sum, 16));
}`,
  bf16_lanes: code`static inline __m512 bf16_lanes(__m256i bits) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}`,
  number_lanes: code`static inline __m512 number_lanes(__m512 x) { /* 0 for NaN */
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, x, _CMP_ORD_Q), x);
}`,
  saturated_lanes: code`static inline __m512i saturated_lanes(__m512 x) { /* to 32 bits; NaN becomes 0 */
  const __m512i near = _mm512_maskz_cvttps_epi32(_mm512_cmp_ps_mask(x, x, _CMP_ORD_Q), x);
  return _mm512_mask_mov_epi32(near, _mm512_cmp_ps_mask(x, _mm512_set1_ps(2147483648.0f), _CMP_GE_OQ), _mm512_set1_epi32(0x7fffffff));
}`,
  wrapped_lanes: code`static inline __m512i wrapped_lanes(__m512 x) { /* the low 32 bits of 64 */
  const __m256i low = _mm512_cvtepi64_epi32(_mm512_cvttps_epi64(_mm512_castps512_ps256(x)));
  const __m256i high = _mm512_cvtepi64_epi32(_mm512_cvttps_epi64(_mm512_extractf32x8_ps(x, 1)));
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}`,
};
