/**
 * @file Dot products of s8 by s8 on x86, which has instructions for u8 by s8 (VPDPBUSD) and s16 by s16 (VPMADDWD).
 *
 *     avx2.vpmaddwd.s8        c[n] += s32(a[k]) * s32(b[k,n])      two bytes, widened to words
 *     avxvnni.vpdpbusd.s8     c[n] += s32(a[k]) * s32(b[k,n])      four bytes, (a + 128) * b - 128 * b
 *     avx512.vpdpbusd.s8      the same in 512 bits
 *
 * Each with the left bytes common to all lanes, and lane by lane (`.lanes`).
 */

import { type Cost, type Intrinsic, tableRow } from "../abstraction/intrinsic.ts";

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

/** Vectors of one width: a lane of s32 takes the products of some bytes. */
interface Vectors {
  readonly name: string;
  readonly family: string;
  readonly isa: string;
  readonly lanes: 8 | 16;
  /** Products of one lane. */
  readonly products: 2 | 4;
  /** The register file of the factors, and that of the sums. */
  readonly factors: "xmm" | "ymm" | "zmm";
  readonly sums: "ymm" | "zmm";
  /** Loads the bytes of one lane into all lanes. */
  readonly loadShared: string;
  /** Loads the bytes of every lane. */
  readonly loadOwn: string;
  readonly loadSums: string;
  readonly storeSums: string;
  readonly prelude: string;
  readonly cost: Cost;
  readonly mnemonic: string;
  readonly source: string;
}

const LOAD_256 = "{reg} = _mm256_loadu_si256((const __m256i*)({ptr}));";
const STORE_256 = "_mm256_storeu_si256((__m256i*)({ptr}), {reg});";
const LOAD_512 = "{reg} = _mm512_loadu_si512({ptr});";

const WORDS: Vectors = {
  name: "avx2.vpmaddwd.s8",
  family: "madd",
  isa: "avx2",
  lanes: 8,
  products: 2,
  factors: "xmm",
  sums: "ymm",
  loadShared: "{reg} = _mm_broadcastw_epi16(_mm_loadu_si16({ptr}));",
  loadOwn: "{reg} = _mm_loadu_si128((const __m128i*)({ptr}));",
  loadSums: LOAD_256,
  storeSums: STORE_256,
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

const MOVED_256: Vectors = {
  name: "avxvnni.vpdpbusd.s8",
  family: "vnni",
  isa: "avx_vnni",
  lanes: 8,
  products: 4,
  factors: "ymm",
  sums: "ymm",
  loadShared: "{reg} = _mm256_broadcastd_epi32(_mm_loadu_si32({ptr}));",
  loadOwn: LOAD_256,
  loadSums: LOAD_256,
  storeSums: STORE_256,
  prelude: MOVED_PRELUDE_256,
  cost: MOVED_COST,
  mnemonic: "vpdpbusd",
  source: "Intel SDM vol. 2, VPDPBUSD (VEX.256.66.0F38.W0 50), VPSUBD",
};

const MOVED_512: Vectors = {
  name: "avx512.vpdpbusd.s8",
  family: "vnni",
  isa: "avx512_vnni",
  lanes: 16,
  products: 4,
  factors: "zmm",
  sums: "zmm",
  loadShared: "{reg} = _mm512_broadcastd_epi32(_mm_loadu_si32({ptr}));",
  loadOwn: LOAD_512,
  loadSums: LOAD_512,
  storeSums: "_mm512_storeu_si512({ptr}, {reg});",
  prelude: MOVED_PRELUDE_512,
  cost: MOVED_COST,
  mnemonic: "vpdpbusd",
  source: "Intel SDM vol. 2, VPDPBUSD (EVEX.512.66.0F38.W0 50), VPSUBD",
};

const LANES = { 8: "Eight", 16: "Sixteen" } as const;
const PRODUCTS = { 2: "two", 4: "four" } as const;

/** @param shared whether the bytes of `a` are common to all lanes */
function signedDot(vectors: Vectors, shared: boolean): Intrinsic {
  const { lanes, products, factors, sums } = vectors;
  const factor = { dtype: "s8", storage: `${factors}[${products}*n + k]` } as const;
  const compute: string = shared ? "c[n] += s32(a[k]) * s32(b[k,n])" : "c[n] += s32(a[n,k]) * s32(b[n,k])";
  return tableRow({
    name: shared ? vectors.name : `${vectors.name}.lanes`,
    family: vectors.family,
    isa: vectors.isa,
    language: "c++",
    summary: `${LANES[lanes]} dot products of ${PRODUCTS[products]} bytes, s8 times s8, ${shared ? "the left bytes common to all lanes" : "lane by lane"}.`,
    compute,
    extents: { n: lanes, k: products },
    operands: {
      a: { ...factor, load: shared ? vectors.loadShared : vectors.loadOwn },
      b: { ...factor, load: vectors.loadOwn },
      c: { dtype: "s32", storage: `${sums}[n]`, load: vectors.loadSums, store: vectors.storeSums },
    },
    prelude: vectors.prelude,
    emit: "{c} = dot_signed_bytes({c}, {a}, {b});",
    cost: vectors.cost,
    mnemonic: vectors.mnemonic,
    source: vectors.source,
  });
}

const both = (vectors: Vectors): readonly Intrinsic[] => [signedDot(vectors, true), signedDot(vectors, false)];

/** Rows for CPUs with AVX2 or AVX-VNNI. */
export const AVX2_SIGNED: readonly Intrinsic[] = [WORDS, MOVED_256].flatMap(both);

/** Rows for CPUs with AVX512-VNNI. */
export const AVX512_SIGNED: readonly Intrinsic[] = both(MOVED_512);
