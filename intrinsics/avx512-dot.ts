/**
 * @file Dot products in 512-bit vectors: of bytes (VNNI), of words, of bf16.
 *
 *     avx512.vpdpbusd           c[n] += s32(a[k]) * s32(b[k,n])      four `a` bytes to every lane, zmm[4*n + k]
 *     avx512.vpdpbusd.lanes     c[n] += s32(a[n,k]) * s32(b[n,k])    lane by lane
 *     avx512.vpdpbusds          c[n] sat+= ...                       the sum clamps once, at the end
 *     avx512.vpdpwssd           c[n] += s32(a[k]) * s32(b[k,n])      two `a` words to every lane
 *     avx512.vpdpbusd.scaled    c[n] += f32(s32(a[k]) * s32(b[k,n])) * (s[n] * t[])      32 bytes of a group, summed in s32, then scaled
 */

import { type Intrinsic, type OperandSpec, tableRow } from "../abstraction/intrinsic.ts";
import {
  BYTE_DOTS,
  DOTS_256,
  DOTS_512,
  type DotForm,
  dots,
  FLOATS_256,
  FLOATS_512,
  INTEGERS_512,
} from "./vector-forms.ts";

/**
 * Inline assembly, because g++ 12 copies every accumulator of `_mm512_dpbusd_epi32` to the stack once about twenty are live. Measured 2026-11-21, 28
 * accumulators, Zen 5: 320 G operations a second with the intrinsic, 969 with this; clang 16 reaches 957 with either.
 */
const VNNI_PRELUDE = `#include <immintrin.h>
static inline __m512i dot_bytes(__m512i c, __m512i a, __m512i b) {
  asm("vpdpbusd %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
  return c;
}
static inline __m512i dot_bytes_saturating(__m512i c, __m512i a, __m512i b) {
  asm("vpdpbusds %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
  return c;
}
`;

/** Inline assembly for the same reason. */
const WORDS_PRELUDE = `#include <immintrin.h>
static inline __m512i dot_words(__m512i c, __m512i a, __m512i b) {
  asm("vpdpwssd %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
  return c;
}
`;

/** Two per cycle. */
const VNNI_COST = {
  issueCycles: 0.5,
  latencyCycles: 5,
  source:
    "measured 2026-11-21 on one core of a Xeon at 3.7 GHz: 970 G int8 operations a second from registers; " +
    "latency from Intel's manuals, not measured",
};
/** One every two cycles, half the rate of the f32 FMA. */
const BF16_COST = {
  issueCycles: 2,
  latencyCycles: 8,
  source: "measured 2026-11-21 on one core of a Xeon at 3.7 GHz: 120 G operations a second from registers, latency 8",
};

/** The four bytes of `a` go to every lane; `b` holds four consecutive k side by side. The products fit in 32 bits, so their order does not matter. */
const VPDPBUSD: DotForm = {
  ...BYTE_DOTS,
  ...DOTS_512,
  name: "avx512.vpdpbusd",
  isa: "avx512_vnni",
  summary: "Sixteen dot products of four bytes, u8 times s8",
  prelude: VNNI_PRELUDE,
  emit: "{c} = dot_bytes({c}, {a}, {b});",
  cost: VNNI_COST,
  source: "Intel SDM vol. 2, VPDPBUSD (EVEX.512.66.0F38.W0 50)",
};

const VPDPBUSDS: DotForm = {
  ...VPDPBUSD,
  name: "avx512.vpdpbusds",
  summary: "Sixteen saturating dot products of four bytes, u8 times s8",
  isSaturating: true,
  emit: "{c} = dot_bytes_saturating({c}, {a}, {b});",
  mnemonic: "vpdpbusds",
  source: "Intel SDM vol. 2, VPDPBUSDS (EVEX.512.66.0F38.W0 51)",
};

/** Half the width, for tails and for CPUs that run 256 bits faster; needs AVX512VL, which every CPU with AVX512-VNNI has. */
const VPDPBUSD_256: DotForm = {
  ...BYTE_DOTS,
  ...DOTS_256,
  name: "avx512.vpdpbusd.256",
  isa: "avx512_vnni",
  summary: "Eight dot products of four bytes, u8 times s8",
  emit: "{c} = _mm256_dpbusd_epi32({c}, {a}, {b});",
  source: "Intel SDM vol. 2, VPDPBUSD (EVEX.256.66.0F38.W0 50)",
};

/** The products of two words fit in 32 bits, and so does the sum of any two but of (-32768)^2 and itself, which wraps as the notation's sums do. */
const VPDPWSSD: DotForm = {
  ...DOTS_512,
  name: "avx512.vpdpwssd",
  family: "vnni",
  isa: "avx512_vnni",
  summary: "Sixteen dot products of two words",
  shared: "the left pair",
  a: "s16",
  b: "s16",
  sum: "s32",
  products: 2,
  prelude: WORDS_PRELUDE,
  emit: "{c} = dot_words({c}, {a}, {b});",
  cost: VNNI_COST,
  mnemonic: "vpdpwssd",
  source: "Intel SDM vol. 2, VPDPWSSD (EVEX.512.66.0F38.W0 52)",
};

/** Two bf16 products per lane, added to f32: the odd k first, each by a fused multiply-add, round to nearest even, MXCSR ignored. */
const VDPBF16PS: DotForm = {
  ...DOTS_512,
  name: "avx512.vdpbf16ps",
  family: "bf16",
  isa: "avx512_bf16",
  summary: "Sixteen dot products of two bf16",
  shared: "the left pair",
  a: "bf16",
  b: "bf16",
  sum: "f32",
  products: 2,
  loadShared: "{reg} = (__m512bh)_mm512_broadcastd_epi32(_mm_loadu_si32({ptr}));",
  loadOwn: "{reg} = (__m512bh)_mm512_loadu_si512({ptr});",
  moves: FLOATS_512,
  emit: "{c} = _mm512_dpbf16_ps({c}, {a}, {b});",
  subnormals: "flushed",
  cost: BF16_COST,
  mnemonic: "vdpbf16ps",
  source: "Intel SDM vol. 2, VDPBF16PS: subnormal inputs are zero, subnormal results are flushed",
};

/** Half the width, for groups of eight channels and for CPUs that run two of these a cycle. */
const VDPBF16PS_256: DotForm = {
  ...VDPBF16PS,
  ...DOTS_256,
  name: "avx512.vdpbf16ps.256",
  summary: "Eight dot products of two bf16",
  loadShared: "{reg} = (__m256bh)_mm256_broadcastd_epi32(_mm_loadu_si32({ptr}));",
  loadOwn: "{reg} = (__m256bh)_mm256_loadu_si256((const __m256i*)({ptr}));",
  moves: FLOATS_256,
  emit: "{c} = _mm256_dpbf16_ps({c}, {a}, {b});",
  cost: { ...BF16_COST, issueCycles: 1, source: "half the cycles of 512 bits, not measured on a Xeon" },
  source: "Intel SDM vol. 2, VDPBF16PS (EVEX.256): subnormal inputs are zero, subnormal results are flushed",
};

const bytes = (dtype: "u8" | "s8"): OperandSpec => ({
  dtype,
  storage: "xmm[i]",
  load: "{reg} = _mm_loadu_si128((const __m128i*)({ptr}));",
});

/** For depthwise convolutions of bytes. The upper word of a u8 is zero, so a dot product of two words computes a single product. */
export const avx512Vpdpwssd = tableRow({
  name: "avx512.vpdpwssd.u8s8",
  family: "vnni",
  isa: "avx512_vnni",
  language: "c++",
  summary: "Sixteen multiply-adds of u8 and s8 widened on the way, lane by lane.",
  compute: "c[i] += s32(a[i]) * s32(b[i])",
  extents: { i: 16 },
  operands: { a: bytes("u8"), b: bytes("s8"), c: { dtype: "s32", storage: "zmm[i]", ...INTEGERS_512 } },
  prelude: WORDS_PRELUDE,
  emit: "{c} = dot_words({c}, _mm512_cvtepu8_epi32({a}), _mm512_cvtepi8_epi32({b}));",
  cost: VNNI_COST,
  mnemonic: "vpdpwssd",
  source: "Intel SDM vol. 2, VPMOVZXBD, VPMOVSXBD, VPDPWSSD (EVEX.512.66.0F38.W0 52)",
});

/**
 * The weights are raised to u8, which adds 128 times the sum of `a`; all products that share `a` share that sum too. Not inline assembly: the
 * accumulators of a loop are the sums of f32, and g++ may put the bytes of `a` into the dot product as a broadcast from memory.
 */
const SCALED_PRELUDE = `#include <immintrin.h>
struct eight_vectors { __m512i at[8]; };
static inline eight_vectors load_eight(const void* from) {
  eight_vectors all;
  for (int i = 0; i < 8; i++) all.at[i] = _mm512_loadu_si512((const char*)from + 64 * i);
  return all;
}
static inline eight_vectors load_halves(const void* from) { /* two numbers a byte, from 0 to 15 */
  eight_vectors all;
  for (int i = 0; i < 4; i++) {
    const __m512i both = _mm512_loadu_si512((const char*)from + 64 * i);
    all.at[2 * i] = _mm512_and_si512(both, _mm512_set1_epi8(15));
    all.at[2 * i + 1] = _mm512_and_si512(_mm512_srli_epi16(both, 4), _mm512_set1_epi8(15));
  }
  return all;
}
static inline eight_vectors eight_times(__m512i one) { return {{one, one, one, one, one, one, one, one}}; }
static inline eight_vectors load_four_times(const void* from) { /* each of 16 bytes in the four of a lane */
  const __m512i all = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)from));
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return eight_times(_mm512_shuffle_epi8(all, _mm512_mullo_epi32(lanes, _mm512_set1_epi32(0x01010101))));
}
static inline eight_vectors operator+(const eight_vectors& a, const eight_vectors& b) {
  eight_vectors all;
  for (int i = 0; i < 8; i++) all.at[i] = _mm512_add_epi8(a.at[i], b.at[i]);
  return all;
}
static inline eight_vectors operator-(const eight_vectors& a, const eight_vectors& b) {
  eight_vectors all;
  for (int i = 0; i < 8; i++) all.at[i] = _mm512_sub_epi8(a.at[i], b.at[i]);
  return all;
}
static inline __m512 add_scaled_dots(__m512 c, const void* a, const eight_vectors& b, __m512 s, __m512 t) {
  const __m512i raise = _mm512_set1_epi8(-128);
  __m512i sum = _mm512_setzero_si512();
  __m512i extra = _mm512_setzero_si512();
  for (int i = 0; i < 8; i++) {
    const __m512i four = _mm512_broadcastd_epi32(_mm_loadu_si32((const char*)a + 4 * i));
    sum = _mm512_dpbusd_epi32(sum, _mm512_add_epi8(b.at[i], raise), four);
    extra = _mm512_dpbusd_epi32(extra, raise, four);
  }
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(sum, extra)), _mm512_mul_ps(s, t), c);
}
`;

/**
 * A sum in two levels: integers within a group, floats over groups. Groups are 32 numbers or a multiple of it; `s` belongs to a lane's weights and `t`
 * to the numbers of `a`. Both sums stay in registers.
 */
const scaledDots = tableRow({
  name: "avx512.vpdpbusd.scaled",
  family: "vnni",
  isa: "avx512_vnni",
  language: "c++",
  summary:
    "Sixteen dot products of 32 bytes, s8 times s8, the left bytes common to all lanes, that are scaled and added to sums of f32.",
  compute: "c[n] += f32(s32(a[k]) * s32(b[k,n])) * (s[n] * t[])",
  extents: { n: 16, k: 32 },
  operands: {
    a: { dtype: "s8", storage: "bytes[k]", load: "{reg} = (const void*)({ptr});" },
    b: { dtype: "s8", storage: "zmm8[64*(k/4) + 4*n + k%4]", load: "{reg} = load_eight({ptr});" },
    s: { dtype: "f32", storage: "zmm[n]", load: FLOATS_512.load },
    t: { dtype: "f32", storage: "zmm[n]", load: "{reg} = _mm512_set1_ps(*(const float*)({ptr}));" },
    c: { dtype: "f32", storage: "zmm[n]", ...FLOATS_512 },
  },
  prelude: SCALED_PRELUDE,
  emit: "{c} = add_scaled_dots({c}, {a}, {b}, {s}, {t});",
  cost: {
    issueCycles: 6,
    latencyCycles: 4,
    shared: { a: 4, b: 1 },
    source:
      "fitted to seven register blocks of 128 rows with 4096 x 4096 weights, Zen 5, 2026-11-30: eight VPDPBUSD, one every half cycle, and four " +
      "instructions that scale sums; eight VPDPBUSD of each 32 bytes of a, and eight VPADDB of each tile of b",
  },
  mnemonic: "vpdpbusd",
  source: "Intel SDM vol. 2, VPADDB, VPDPBUSD (EVEX.512.66.0F38.W0 50), VCVTDQ2PS, VFMADD231PS",
});

export const AVX512_DOT: readonly Intrinsic[] = [
  ...[VPDPBUSD, VPDPBUSDS, VPDPBUSD_256, VPDPWSSD, VDPBF16PS, VDPBF16PS_256].flatMap(dots),
  scaledDots,
];
