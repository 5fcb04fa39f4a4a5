/**
 * @file Dot products of s8 by s8 on x86, which has instructions for u8 by s8 (VPDPBUSD) and s16 by s16 (VPMADDWD).
 *
 *     avx2.vpmaddwd.s8        c[n] += s32(a[k]) * s32(b[k,n])      two bytes, widened to words
 *     avxvnni.vpdpbusd.s8     c[n] += s32(a[k]) * s32(b[k,n])      four bytes, (a + 128) * b - 128 * b
 *     avx512.vpdpbusd.s8      the same in 512 bits
 *
 * Each with the left bytes common to all lanes, and lane by lane (`.lanes`).
 */

import type { Intrinsic } from "../abstraction/intrinsic.ts";
import { BYTE_DOTS, DOTS_256, DOTS_512, type DotForm, dots } from "./vector-forms.ts";

/** The subtraction is exact whatever overflows, because sums of s32 wrap. Both the moved `a` and 128 * b serve every instruction that reads them. */
const MOVED_PRELUDE_512 = `#include <immintrin.h>
static inline __m512i dot_signed_bytes(__m512i c, __m512i a, __m512i b) {
  const __m512i moved = _mm512_set1_epi8(-128);
  const __m512i extra = _mm512_dpbusd_epi32(_mm512_setzero_si512(), moved, b);
  __m512i raised = _mm512_xor_si512(a, moved);
  asm("vpdpbusd %2, %1, %0" : "+v"(c) : "v"(raised), "v"(b));
  return _mm512_sub_epi32(c, extra);
}
`;

const MOVED_PRELUDE_256 = `#include <immintrin.h>
static inline __m256i dot_signed_bytes(__m256i c, __m256i a, __m256i b) {
  const __m256i moved = _mm256_set1_epi8(-128);
  const __m256i extra = _mm256_dpbusd_avx_epi32(_mm256_setzero_si256(), moved, b);
  return _mm256_sub_epi32(_mm256_dpbusd_avx_epi32(c, _mm256_xor_si256(a, moved), b), extra);
}
`;

const WORDS_PRELUDE = `#include <immintrin.h>
static inline __m256i dot_signed_bytes(__m256i c, __m128i a, __m128i b) {
  return _mm256_add_epi32(c, _mm256_madd_epi16(_mm256_cvtepi8_epi16(a), _mm256_cvtepi8_epi16(b)));
}
`;

/** What all of them have in common. */
const SIGNED = {
  ...BYTE_DOTS,
  shared: "the left bytes",
  a: "s8",
  emit: "{c} = dot_signed_bytes({c}, {a}, {b});",
} as const;

const WORDS: DotForm = {
  ...SIGNED,
  ...DOTS_256,
  name: "avx2.vpmaddwd.s8",
  family: "madd",
  summary: "Eight dot products of two bytes, s8 times s8",
  isa: "avx2",
  products: 2,
  file: "xmm",
  loadShared: "{reg} = _mm_broadcastw_epi16(_mm_loadu_si16({ptr}));",
  loadOwn: "{reg} = _mm_loadu_si128((const __m128i*)({ptr}));",
  prelude: WORDS_PRELUDE,
  cost: {
    issueCycles: 0.75,
    latencyCycles: 6,
    source: "assumed: a VPMADDWD every half cycle, and an addition that shares its ports",
  },
  mnemonic: "vpmaddwd",
  source: "Intel SDM vol. 2, VPMOVSXBW, VPMADDWD (VEX.256.66.0F.WIG F5), VPADDD",
};

const MOVED_COST = {
  issueCycles: 0.75,
  latencyCycles: 6,
  source: "assumed: a VPDPBUSD every half cycle, and a subtraction that shares its ports",
};

const MOVED_256: DotForm = {
  ...SIGNED,
  ...DOTS_256,
  name: "avxvnni.vpdpbusd.s8",
  summary: "Eight dot products of four bytes, s8 times s8",
  isa: "avx_vnni",
  prelude: MOVED_PRELUDE_256,
  cost: MOVED_COST,
  source: "Intel SDM vol. 2, VPDPBUSD (VEX.256.66.0F38.W0 50), VPSUBD",
};

const MOVED_512: DotForm = {
  ...SIGNED,
  ...DOTS_512,
  name: "avx512.vpdpbusd.s8",
  summary: "Sixteen dot products of four bytes, s8 times s8",
  isa: "avx512_vnni",
  prelude: MOVED_PRELUDE_512,
  cost: MOVED_COST,
  source: "Intel SDM vol. 2, VPDPBUSD (EVEX.512.66.0F38.W0 50), VPSUBD",
};

/** Rows for CPUs with AVX2 or AVX-VNNI. */
export const AVX2_SIGNED: readonly Intrinsic[] = [WORDS, MOVED_256].flatMap(dots);

/** Rows for CPUs with AVX512-VNNI. */
export const AVX512_SIGNED: readonly Intrinsic[] = dots(MOVED_512);
