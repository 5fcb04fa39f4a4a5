/**
 * @file C++ helper functions on lanes of 16 bits, included in a generated source that calls them: words (s16) in ZMM and
 * YMM registers, halves (f16) in ZMM registers.
 *
 *     calledIn([code`Z0 = @words_from<31>(Z0, Z0);`], WORD_HELPERS.words512)      the text of `words_from`, and nothing else
 *
 * Halves are __m512h where AVX512-FP16 computes, and 16 bits in memory and in scalar C. Source: Intel SDM vol. 2.
 */

import { type Code, code } from "../../abstraction/source-text.ts";
import { sharedHelpers } from "./avx512-helpers.ts";
import type { Helpers } from "./cpp-helpers.ts";

/** The words of a helper's text that depend on the register. */
interface Words {
  /** The register, and what helpers call its lanes. */
  readonly v: Code;
  readonly called: "words" | "halves";
  /** The C type of an element. */
  readonly t: Code;
  readonly lanes: 16 | 32;
}

/** Lanes one by one, through memory: where a border is tested, or where no instruction moves 16 bits. */
const oneByOne = ({ v, called, t, lanes }: Words): Helpers => ({
  [`lane_of_${called}`]: code`static inline ${t} lane_of_${called}(${v} v, long n) { ${t} x[${lanes}]; memcpy(x, &v, sizeof v); return x[n]; }`,
  [`listed_${called}`]: code`template <class... T> static inline ${v} listed_${called}(T... each) {
  const ${t} x[] = {(${t})each...};
  ${v} v;
  memcpy(&v, x, sizeof v);
  return v;
}`,
  [`scatter_${called}`]: code`/* Stores the lanes in the mask, each at its distance from p. */
template <class... N> static inline void scatter_${called}(${t}* p, unsigned mask, ${v} v, N... at) {
  const long to[] = {(long)at...};
  for (int n = 0; n < ${lanes}; n++) if (mask >> n & 1) p[to[n]] = @lane_of_${called}(v, n);
}`,
});

/** A fold of all lanes, and a fold of the lanes in a mask. */
function folds({ v, called, t, lanes }: Words): Helpers {
  const [held, value, bits] =
    called === "words"
      ? [code`int16_t`, code`@lane_of_words(v, n)`, code`sum`]
      : [code`float`, code`@from_f16(@lane_of_halves(v, n))`, code`@to_f16(sum)`];
  const fold = (how: "add" | "max" | "min", start: Code, pair: Code): Helpers => ({
    [`mask_reduce_${how}_${called}`]: code`static inline ${t} mask_reduce_${how}_${called}(unsigned mask, ${v} v) {
  ${held} sum = ${start};
  for (int n = 0; n < ${lanes}; n++) if (mask >> n & 1) { const ${held} x = ${value}; sum = ${pair}; }
  return ${bits};
}`,
    [`reduce_${how}_${called}`]: code`static inline ${t} reduce_${how}_${called}(${v} v) { return @mask_reduce_${how}_${called}(~0u, v); }`,
  });
  const [least, most] =
    called === "words" ? [code`INT16_MIN`, code`INT16_MAX`] : [code`-__builtin_inff()`, code`__builtin_inff()`];
  const sum = called === "words" ? code`(int16_t)(sum + x)` : code`@from_f16(@to_f16(sum + x))`;
  return {
    ...fold("add", code`0`, sum),
    ...fold("max", least, code`sum > x || sum != sum ? sum : x`),
    ...fold("min", most, code`sum < x || sum != sum ? sum : x`),
  };
}

/** Words of a ZMM register, by AVX512BW. */
const WORDS_512 = {
  words_from: code`/* The words of low:high that start at word N. Between the 16 bytes of a part, and between parts. */
template <int N> static inline __m512i words_from(__m512i low, __m512i high) {
  if constexpr (N % 2 == 0) return _mm512_alignr_epi32(high, low, N / 2);
  const __m512i first = N < 8 ? low : _mm512_alignr_epi64(high, low, (N / 8 * 2) & 7);
  const __m512i next = N >= 24 ? high : _mm512_alignr_epi64(high, low, (N / 8 * 2 + 2) & 7);
  return _mm512_alignr_epi8(next, first, N % 8 * 2);
}`,
  even_words: code`/* Every second element; reads nothing beyond the last one. */
static inline __m512i even_words(const int16_t* p) {
  const __m512i even = @listed_words(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30,
                                    33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63);
  return _mm512_permutex2var_epi16(_mm512_loadu_si512(p), even, _mm512_loadu_si512(p + 31));
}`,
  spread_words: code`static inline __m512i spread_words(__m512i v, int lane) { return _mm512_permutexvar_epi16(_mm512_set1_epi16(lane), v); }`,
  most_words: code`static inline __m512i most_words(__m512i a, __m512i b) { return _mm512_max_epi16(a, b); }`,
  least_words: code`static inline __m512i least_words(__m512i a, __m512i b) { return _mm512_min_epi16(a, b); }`,
  stream_words: code`/* Bypasses the caches where the address is aligned. */
static inline void stream_words(int16_t* p, __m512i v) { if ((uintptr_t)p % 64 == 0) _mm512_stream_si512((__m512i*)p, v); else _mm512_storeu_si512(p, v); }`,
};

/** Words of a YMM register, by AVX2. */
const WORDS_256: Helpers = {
  word_mask: code`/* Expands a bit mask to all bits of each word. */
static inline __m256i word_mask(unsigned bits) {
  const __m256i each = _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, -32768);
  return _mm256_cmpeq_epi16(_mm256_and_si256(_mm256_set1_epi16((short)bits), each), each);
}`,
  mask_mov_words: code`/* b where the mask bit is set, a elsewhere. */
static inline __m256i mask_mov_words(__m256i a, unsigned mask, __m256i b) { return _mm256_blendv_epi8(a, b, @word_mask(mask)); }`,
  words_from: code`/* The words of low:high that start at word N. */
template <int N> static inline __m256i words_from(__m256i low, __m256i high) {
  if constexpr (N == 0) return low;
  const __m256i middle = _mm256_permute2x128_si256(low, high, 0x21);
  if constexpr (N < 8) return _mm256_alignr_epi8(middle, low, 2 * N);
  else return _mm256_alignr_epi8(high, middle, 2 * N - 16);
}`,
  even_words: code`/* Every second element; reads nothing beyond the last one. */
static inline __m256i even_words(const int16_t* p) {
  int16_t x[16];
  for (int n = 0; n < 16; n++) x[n] = p[2 * n];
  return _mm256_loadu_si256((const __m256i*)x);
}`,
  spread_words: code`static inline __m256i spread_words(__m256i v, int lane) { return _mm256_set1_epi16(@lane_of_words(v, lane)); }`,
  permutexvar_words: code`static inline __m256i permutexvar_words(__m256i order, __m256i v) {
  int16_t x[16];
  for (int n = 0; n < 16; n++) x[n] = @lane_of_words(v, @lane_of_words(order, n) & 15);
  return _mm256_loadu_si256((const __m256i*)x);
}`,
  most_words: code`static inline __m256i most_words(__m256i a, __m256i b) { return _mm256_max_epi16(a, b); }`,
  least_words: code`static inline __m256i least_words(__m256i a, __m256i b) { return _mm256_min_epi16(a, b); }`,
  compared_words: code`template <int OP> static inline unsigned compared_words(__m256i a, __m256i b) { /* OP and 4: the opposite */
  constexpr int kind = OP & 3; /* equal, less, less or equal */
  const __m256i words = kind == 0 ? _mm256_cmpeq_epi16(a, b) : kind == 1 ? _mm256_cmpgt_epi16(b, a) : _mm256_cmpgt_epi16(a, b);
  const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(words, _mm256_setzero_si256()), 0x08);
  const unsigned mask = (_mm256_movemask_epi8(bytes) & 0xffff) ^ (kind == 2 ? 0xffff : 0);
  return OP & 4 ? mask ^ 0xffff : mask;
}`,
  loadu_words: code`static inline __m256i loadu_words(const int16_t* p) { return _mm256_loadu_si256((const __m256i*)p); }`,
  mask_loadu_words: code`/* Lanes without a mask bit come from \`otherwise\`. No instruction of AVX2 masks words in memory. */
static inline __m256i mask_loadu_words(__m256i otherwise, unsigned mask, const int16_t* p) {
  if ((mask & 0xffff) == 0xffff) return _mm256_loadu_si256((const __m256i*)p);
  int16_t x[16];
  _mm256_storeu_si256((__m256i*)x, otherwise);
  for (int n = 0; n < 16; n++) if (mask >> n & 1) x[n] = p[n];
  return _mm256_loadu_si256((const __m256i*)x);
}`,
  maskz_loadu_words: code`static inline __m256i maskz_loadu_words(unsigned mask, const int16_t* p) { return @mask_loadu_words(_mm256_setzero_si256(), mask, p); }`,
  storeu_words: code`static inline void storeu_words(int16_t* p, __m256i v) { _mm256_storeu_si256((__m256i*)p, v); }`,
  mask_storeu_words: code`static inline void mask_storeu_words(int16_t* p, unsigned mask, __m256i v) {
  if ((mask & 0xffff) == 0xffff) return _mm256_storeu_si256((__m256i*)p, v);
  for (int n = 0; n < 16; n++) if (mask >> n & 1) p[n] = @lane_of_words(v, n);
}`,
  stream_words: code`/* Bypasses the caches where the address is aligned. */
static inline void stream_words(int16_t* p, __m256i v) { if ((uintptr_t)p % 32 == 0) _mm256_stream_si256((__m256i*)p, v); else _mm256_storeu_si256((__m256i*)p, v); }`,
};

/** Halves of a ZMM register: 16 bits move as words do. */
const HALVES_512: Helpers = {
  words_from: WORDS_512.words_from,
  halves_from: code`/* The halves of low:high that start at half N. */
template <int N> static inline __m512h halves_from(__m512h low, __m512h high) { return (__m512h)@words_from<N>((__m512i)low, (__m512i)high); }`,
  set1_halves: code`static inline __m512h set1_halves(uint16_t bits) { return (__m512h)_mm512_set1_epi16((short)bits); }`,
  even_halves: code`/* Every second element; reads nothing beyond the last one. */
static inline __m512h even_halves(const uint16_t* p) {
  const __m512h even = @listed_halves(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30,
                                     33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63);
  return (__m512h)_mm512_permutex2var_epi16(_mm512_loadu_si512(p), (__m512i)even, _mm512_loadu_si512(p + 31));
}`,
  permutexvar_halves: code`static inline __m512h permutexvar_halves(__m512h order, __m512h v) { return (__m512h)_mm512_permutexvar_epi16((__m512i)order, (__m512i)v); }`,
  spread_halves: code`static inline __m512h spread_halves(__m512h v, int lane) { return (__m512h)_mm512_permutexvar_epi16(_mm512_set1_epi16(lane), (__m512i)v); }`,
  mask_mov_halves: code`/* b where the mask bit is set, a elsewhere. */
static inline __m512h mask_mov_halves(__m512h a, __mmask32 mask, __m512h b) { return (__m512h)_mm512_mask_mov_epi16((__m512i)a, mask, (__m512i)b); }`,
  most_halves: code`static inline __m512h most_halves(__m512h a, __m512h b) { /* NaN wins */
  return @mask_mov_halves(_mm512_max_ph(a, b), _mm512_cmp_ph_mask(a, a, _CMP_UNORD_Q), a);
}`,
  least_halves: code`static inline __m512h least_halves(__m512h a, __m512h b) { /* NaN wins */
  return @mask_mov_halves(_mm512_min_ph(a, b), _mm512_cmp_ph_mask(a, a, _CMP_UNORD_Q), a);
}`,
  maskz_loadu_halves: code`static inline __m512h maskz_loadu_halves(__mmask32 mask, const uint16_t* p) { return (__m512h)_mm512_maskz_loadu_epi16(mask, p); }`,
  mask_loadu_halves: code`static inline __m512h mask_loadu_halves(__m512h otherwise, __mmask32 mask, const uint16_t* p) {
  return (__m512h)_mm512_mask_loadu_epi16((__m512i)otherwise, mask, p);
}`,
  mask_storeu_halves: code`static inline void mask_storeu_halves(uint16_t* p, __mmask32 mask, __m512h v) { _mm512_mask_storeu_epi16(p, mask, (__m512i)v); }`,
  stream_halves: code`/* Bypasses the caches where the address is aligned. */
static inline void stream_halves(uint16_t* p, __m512h v) { if ((uintptr_t)p % 64 == 0) _mm512_stream_si512((__m512i*)p, (__m512i)v); else _mm512_storeu_si512(p, (__m512i)v); }`,
};

/** Lists are of one register's lanes, so each begins with what reads a lane. */
const listed = (words: Words, own: Helpers): Helpers => ({
  ...sharedHelpers,
  ...oneByOne(words),
  ...own,
  ...folds(words),
});

/** By register. */
export const WORD_HELPERS = {
  words512: listed({ v: code`__m512i`, called: "words", t: code`int16_t`, lanes: 32 }, WORDS_512),
  words256: listed({ v: code`__m256i`, called: "words", t: code`int16_t`, lanes: 16 }, WORDS_256),
  halves512: listed({ v: code`__m512h`, called: "halves", t: code`uint16_t`, lanes: 32 }, HALVES_512),
} as const;
