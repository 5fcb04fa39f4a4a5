/**
 * @file 512-bit vectors: fused multiply-add (f32, f64, f16), byte dot products (VNNI), bf16 dot products.
 *
 *     avx512.vpdpbusd           c[n] += s32(a[k]) * s32(b[k,n])      four `a` bytes to every lane, zmm[4*n + k]
 *     avx512.vpdpbusd.lanes     c[n] += s32(a[n,k]) * s32(b[n,k])    lane by lane
 *     avx512.vpdpbusds          c[n] sat+= ...                       the sum clamps once, at the end
 */

import { defineIntrinsic, type Intrinsic } from "../abstraction/intrinsic.ts";
import { unitCost } from "../abstraction/machine.ts";
import { REFERENCE_CPU } from "../targets/x86.ts";

/**
 * The instruction as inline assembly: g++ 12 copies every accumulator of `_mm512_dpbusd_epi32` to the stack once some twenty are live.
 * Measured 2026-11-21, 28 accumulators, Zen 5: 320 G operations a second with the intrinsic, 969 with this; clang 16 reaches 957 with either.
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

/** For the same reason. */
const WORDS_PRELUDE = `#include <immintrin.h>
static inline __m512i dot_words(__m512i c, __m512i a, __m512i b) {
  asm("vpdpwssd %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
  return c;
}
`;

/**
 * As inline assembly for the same reason: of unrolled steps g++ 12 moves multiply-adds past one another and spills accumulators.
 * Measured 2026-11-21, 28 accumulators, four steps unrolled, Xeon with AVX-512: 22 spills and 18 % more time with `_mm512_fmadd_ps`, none with this.
 * Broadcasts are volatile: with r or s unrolled g++ kept those of one step for the next in memory (28 accumulators, 12 steps unrolled,
 * same day and machine, shared: 3.2 ms against 1.2 ms).
 */
const FMA_PRELUDE = `#include <immintrin.h>
static inline __m512 add_product(__m512 c, __m512 a, __m512 b) {
  asm("vfmadd231ps %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
  return c;
}
/* volatile: g++ would keep what one step has broadcast for the next, in memory. */
static inline __m512 broadcast_element(const float* element) {
  __m512 all;
  asm volatile("vbroadcastss %1, %0" : "=v"(all) : "m"(*element));
  return all;
}
`;

/** Two FMA a cycle. */
const FMA_COST = unitCost(REFERENCE_CPU, "fma");
/** Two a cycle. */
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

const F32 = { load: "{reg} = _mm512_loadu_ps({ptr});" };
const F64 = { load: "{reg} = _mm512_loadu_pd({ptr});" };
const F16 = { load: "{reg} = _mm512_loadu_ph({ptr});" };
const BF16 = { load: "{reg} = (__m512bh)_mm512_loadu_si512({ptr});" };
const BF16_256 = { load: "{reg} = (__m256bh)_mm256_loadu_si256((const __m256i*)({ptr}));" };
const BYTES = { load: "{reg} = _mm512_loadu_si512({ptr});" };
const BYTES_256 = { load: "{reg} = _mm256_loadu_si256((const __m256i*)({ptr}));" };

export const avx512FmaF32 = defineIntrinsic({
  name: "avx512.fma.f32",
  family: "fma",
  isa: "avx512f",
  language: "c++",
  summary: "Sixteen f32 multiply-adds, lane by lane.",
  compute: "c[i] += a[i] * b[i]",
  extents: { i: 16 },
  operands: {
    a: { dtype: "f32", storage: "zmm[i]", ...F32 },
    b: { dtype: "f32", storage: "zmm[i]", ...F32 },
    c: { dtype: "f32", storage: "zmm[i]", ...F32, store: "_mm512_storeu_ps({ptr}, {reg});" },
  },
  prelude: FMA_PRELUDE,
  emit: "{c} = add_product({c}, {a}, {b});",
  cost: FMA_COST,
  mnemonic: "vfmadd132ps",
  source: "Intel SDM vol. 2, VFMADD132PS/VFMADD213PS/VFMADD231PS (EVEX.512)",
});

export const avx512FmaF32Broadcast = defineIntrinsic({
  name: "avx512.fma.f32.broadcast",
  family: "fma",
  isa: "avx512f",
  language: "c++",
  summary: "Sixteen f32 multiply-adds with one factor common to all lanes.",
  compute: "c[n] += a[] * b[n]",
  extents: { n: 16 },
  operands: {
    a: { dtype: "f32", storage: "zmm[n]", load: "{reg} = broadcast_element((const float*)({ptr}));" },
    b: { dtype: "f32", storage: "zmm[n]", ...F32 },
    c: { dtype: "f32", storage: "zmm[n]", ...F32, store: "_mm512_storeu_ps({ptr}, {reg});" },
  },
  prelude: FMA_PRELUDE,
  emit: "{c} = add_product({c}, {a}, {b});",
  cost: FMA_COST,
  mnemonic: "vfmadd132ps",
  source: "Intel SDM vol. 2, VFMADD132PS/VFMADD213PS/VFMADD231PS (EVEX.512); VBROADCASTSS",
});

/** Four groups of a grouped convolution at once: channel 4*i + c of a pixel goes to the four lanes of group i. */
export const avx512FmaF32Groups4 = defineIntrinsic({
  name: "avx512.fma.f32.groups4",
  family: "fma",
  isa: "avx512f",
  language: "c++",
  summary: "Sixteen f32 multiply-adds; four factors four elements apart, each common to four lanes.",
  compute: "c[i,n] += a[i] * b[i,n]",
  extents: { i: 4, n: 4 },
  operands: {
    a: {
      dtype: "f32",
      storage: "zmm[4*i + n]",
      load: "{reg} = _mm512_permute_ps(_mm512_maskz_loadu_ps(0x1111, {ptr}), 0);",
    },
    b: { dtype: "f32", storage: "zmm[4*i + n]", ...F32 },
    c: { dtype: "f32", storage: "zmm[4*i + n]", ...F32, store: "_mm512_storeu_ps({ptr}, {reg});" },
  },
  prelude: FMA_PRELUDE,
  emit: "{c} = add_product({c}, {a}, {b});",
  cost: FMA_COST,
  mnemonic: "vfmadd132ps",
  source: "Intel SDM vol. 2, VFMADD132PS/VFMADD213PS/VFMADD231PS (EVEX.512); VPERMILPS",
});

/** Two groups of eight channels. */
export const avx512FmaF32Groups8 = defineIntrinsic({
  name: "avx512.fma.f32.groups8",
  family: "fma",
  isa: "avx512f",
  language: "c++",
  summary: "Sixteen f32 multiply-adds; two factors eight elements apart, each common to eight lanes.",
  compute: "c[i,n] += a[i] * b[i,n]",
  extents: { i: 2, n: 8 },
  operands: {
    a: {
      dtype: "f32",
      storage: "zmm[8*i + n]",
      load: "{reg} = _mm512_mask_broadcastss_ps(_mm512_set1_ps(*(const float*)({ptr})), 0xff00, _mm_load_ss((const float*)({ptr}) + 8));",
    },
    b: { dtype: "f32", storage: "zmm[8*i + n]", ...F32 },
    c: { dtype: "f32", storage: "zmm[8*i + n]", ...F32, store: "_mm512_storeu_ps({ptr}, {reg});" },
  },
  prelude: FMA_PRELUDE,
  emit: "{c} = add_product({c}, {a}, {b});",
  cost: FMA_COST,
  mnemonic: "vfmadd132ps",
  source: "Intel SDM vol. 2, VFMADD132PS/VFMADD213PS/VFMADD231PS (EVEX.512); VBROADCASTSS",
});

export const avx512FmaF64 = defineIntrinsic({
  name: "avx512.fma.f64",
  family: "fma",
  isa: "avx512f",
  language: "c++",
  summary: "Eight f64 multiply-adds, lane by lane.",
  compute: "c[i] += a[i] * b[i]",
  extents: { i: 8 },
  operands: {
    a: { dtype: "f64", storage: "zmm[i]", ...F64 },
    b: { dtype: "f64", storage: "zmm[i]", ...F64 },
    c: { dtype: "f64", storage: "zmm[i]", ...F64, store: "_mm512_storeu_pd({ptr}, {reg});" },
  },
  emit: "{c} = _mm512_fmadd_pd({a}, {b}, {c});",
  cost: FMA_COST,
  mnemonic: "vfmadd132pd",
  source: "Intel SDM vol. 2, VFMADD132PD/VFMADD213PD/VFMADD231PD (EVEX.512)",
});

export const avx512FmaF64Broadcast = defineIntrinsic({
  name: "avx512.fma.f64.broadcast",
  family: "fma",
  isa: "avx512f",
  language: "c++",
  summary: "Eight f64 multiply-adds with one factor common to all lanes.",
  compute: "c[n] += a[] * b[n]",
  extents: { n: 8 },
  operands: {
    a: { dtype: "f64", storage: "zmm[n]", load: "{reg} = _mm512_set1_pd(*(const double*)({ptr}));" },
    b: { dtype: "f64", storage: "zmm[n]", ...F64 },
    c: { dtype: "f64", storage: "zmm[n]", ...F64, store: "_mm512_storeu_pd({ptr}, {reg});" },
  },
  emit: "{c} = _mm512_fmadd_pd({a}, {b}, {c});",
  cost: FMA_COST,
  mnemonic: "vfmadd132pd",
  source: "Intel SDM vol. 2, VFMADD132PD/VFMADD213PD/VFMADD231PD (EVEX.512); VBROADCASTSD",
});

/** f16 times f16 into f16: the sum overflows beyond 65504 and keeps 11 significant bits. */
export const avx512FmaF16 = defineIntrinsic({
  name: "avx512.fma.f16",
  family: "fma",
  isa: "avx512_fp16",
  language: "c++",
  summary: "Thirty-two f16 multiply-adds, lane by lane.",
  compute: "c[i] += a[i] * b[i]",
  extents: { i: 32 },
  operands: {
    a: { dtype: "f16", storage: "zmm[i]", ...F16 },
    b: { dtype: "f16", storage: "zmm[i]", ...F16 },
    c: { dtype: "f16", storage: "zmm[i]", ...F16, store: "_mm512_storeu_ph({ptr}, {reg});" },
  },
  emit: "{c} = _mm512_fmadd_ph({a}, {b}, {c});",
  cost: FMA_COST,
  mnemonic: "vfmadd132ph",
  source: "Intel SDM vol. 2, VFMADD132PH/VFMADD213PH/VFMADD231PH (AVX512-FP16)",
});

export const avx512FmaF16Broadcast = defineIntrinsic({
  name: "avx512.fma.f16.broadcast",
  family: "fma",
  isa: "avx512_fp16",
  language: "c++",
  summary: "Thirty-two f16 multiply-adds with one factor common to all lanes.",
  compute: "c[n] += a[] * b[n]",
  extents: { n: 32 },
  operands: {
    a: { dtype: "f16", storage: "zmm[n]", load: "{reg} = _mm512_set1_ph(*(const _Float16*)({ptr}));" },
    b: { dtype: "f16", storage: "zmm[n]", ...F16 },
    c: { dtype: "f16", storage: "zmm[n]", ...F16, store: "_mm512_storeu_ph({ptr}, {reg});" },
  },
  emit: "{c} = _mm512_fmadd_ph({a}, {b}, {c});",
  cost: FMA_COST,
  mnemonic: "vfmadd132ph",
  source: "Intel SDM vol. 2, VFMADD132PH/VFMADD213PH/VFMADD231PH (AVX512-FP16)",
});

/** The four `a` bytes go to every lane; `b` holds four consecutive k side by side. The products fit 32 bits: their order is free. */
export const avx512Vpdpbusd = defineIntrinsic({
  name: "avx512.vpdpbusd",
  family: "vnni",
  isa: "avx512_vnni",
  language: "c++",
  summary: "Sixteen dot products of four bytes, u8 times s8, the u8 common to all lanes.",
  compute: "c[n] += s32(a[k]) * s32(b[k,n])",
  extents: { n: 16, k: 4 },
  operands: {
    a: { dtype: "u8", storage: "zmm[4*n + k]", load: "{reg} = _mm512_broadcastd_epi32(_mm_loadu_si32({ptr}));" },
    b: { dtype: "s8", storage: "zmm[4*n + k]", ...BYTES },
    c: { dtype: "s32", storage: "zmm[n]", ...BYTES, store: "_mm512_storeu_si512({ptr}, {reg});" },
  },
  prelude: VNNI_PRELUDE,
  emit: "{c} = dot_bytes({c}, {a}, {b});",
  cost: VNNI_COST,
  mnemonic: "vpdpbusd",
  source: "Intel SDM vol. 2, VPDPBUSD (EVEX.512.66.0F38.W0 50)",
});

export const avx512VpdpbusdLanes = defineIntrinsic({
  name: "avx512.vpdpbusd.lanes",
  family: "vnni",
  isa: "avx512_vnni",
  language: "c++",
  summary: "Sixteen dot products of four bytes, u8 times s8, lane by lane.",
  compute: "c[n] += s32(a[n,k]) * s32(b[n,k])",
  extents: { n: 16, k: 4 },
  operands: {
    a: { dtype: "u8", storage: "zmm[4*n + k]", ...BYTES },
    b: { dtype: "s8", storage: "zmm[4*n + k]", ...BYTES },
    c: { dtype: "s32", storage: "zmm[n]", ...BYTES, store: "_mm512_storeu_si512({ptr}, {reg});" },
  },
  prelude: VNNI_PRELUDE,
  emit: "{c} = dot_bytes({c}, {a}, {b});",
  cost: VNNI_COST,
  mnemonic: "vpdpbusd",
  source: "Intel SDM vol. 2, VPDPBUSD (EVEX.512.66.0F38.W0 50)",
});

/** The sum of the four products and the old value is clamped once, not after each product. */
export const avx512Vpdpbusds = defineIntrinsic({
  name: "avx512.vpdpbusds",
  family: "vnni",
  isa: "avx512_vnni",
  language: "c++",
  summary: "Sixteen saturating dot products of four bytes, u8 times s8, the u8 common to all lanes.",
  compute: "c[n] sat+= s32(a[k]) * s32(b[k,n])",
  extents: { n: 16, k: 4 },
  operands: {
    a: { dtype: "u8", storage: "zmm[4*n + k]", load: "{reg} = _mm512_broadcastd_epi32(_mm_loadu_si32({ptr}));" },
    b: { dtype: "s8", storage: "zmm[4*n + k]", ...BYTES },
    c: { dtype: "s32", storage: "zmm[n]", ...BYTES, store: "_mm512_storeu_si512({ptr}, {reg});" },
  },
  prelude: VNNI_PRELUDE,
  emit: "{c} = dot_bytes_saturating({c}, {a}, {b});",
  cost: VNNI_COST,
  mnemonic: "vpdpbusds",
  source: "Intel SDM vol. 2, VPDPBUSDS (EVEX.512.66.0F38.W0 51)",
});

export const avx512VpdpbusdsLanes = defineIntrinsic({
  name: "avx512.vpdpbusds.lanes",
  family: "vnni",
  isa: "avx512_vnni",
  language: "c++",
  summary: "Sixteen saturating dot products of four bytes, u8 times s8, lane by lane.",
  compute: "c[n] sat+= s32(a[n,k]) * s32(b[n,k])",
  extents: { n: 16, k: 4 },
  operands: {
    a: { dtype: "u8", storage: "zmm[4*n + k]", ...BYTES },
    b: { dtype: "s8", storage: "zmm[4*n + k]", ...BYTES },
    c: { dtype: "s32", storage: "zmm[n]", ...BYTES, store: "_mm512_storeu_si512({ptr}, {reg});" },
  },
  prelude: VNNI_PRELUDE,
  emit: "{c} = dot_bytes_saturating({c}, {a}, {b});",
  cost: VNNI_COST,
  mnemonic: "vpdpbusds",
  source: "Intel SDM vol. 2, VPDPBUSDS (EVEX.512.66.0F38.W0 51)",
});

/** Half the width, for tails and for CPUs that run 256 bits faster; needs AVX512VL, which every CPU with AVX512-VNNI has. */
export const avx512Vpdpbusd256 = defineIntrinsic({
  name: "avx512.vpdpbusd.256",
  family: "vnni",
  isa: "avx512_vnni",
  language: "c++",
  summary: "Eight dot products of four bytes, u8 times s8, the u8 common to all lanes.",
  compute: "c[n] += s32(a[k]) * s32(b[k,n])",
  extents: { n: 8, k: 4 },
  operands: {
    a: { dtype: "u8", storage: "ymm[4*n + k]", load: "{reg} = _mm256_broadcastd_epi32(_mm_loadu_si32({ptr}));" },
    b: { dtype: "s8", storage: "ymm[4*n + k]", ...BYTES_256 },
    c: { dtype: "s32", storage: "ymm[n]", ...BYTES_256, store: "_mm256_storeu_si256((__m256i*)({ptr}), {reg});" },
  },
  emit: "{c} = _mm256_dpbusd_epi32({c}, {a}, {b});",
  mnemonic: "vpdpbusd",
  source: "Intel SDM vol. 2, VPDPBUSD (EVEX.256.66.0F38.W0 50)",
});

export const avx512Vpdpbusd256Lanes = defineIntrinsic({
  name: "avx512.vpdpbusd.256.lanes",
  family: "vnni",
  isa: "avx512_vnni",
  language: "c++",
  summary: "Eight dot products of four bytes, u8 times s8, lane by lane.",
  compute: "c[n] += s32(a[n,k]) * s32(b[n,k])",
  extents: { n: 8, k: 4 },
  operands: {
    a: { dtype: "u8", storage: "ymm[4*n + k]", ...BYTES_256 },
    b: { dtype: "s8", storage: "ymm[4*n + k]", ...BYTES_256 },
    c: { dtype: "s32", storage: "ymm[n]", ...BYTES_256, store: "_mm256_storeu_si256((__m256i*)({ptr}), {reg});" },
  },
  emit: "{c} = _mm256_dpbusd_epi32({c}, {a}, {b});",
  mnemonic: "vpdpbusd",
  source: "Intel SDM vol. 2, VPDPBUSD (EVEX.256.66.0F38.W0 50)",
});

/** Two bf16 products a lane into f32: the odd k first, each by a fused multiply-add, round to nearest even, MXCSR ignored. */
export const avx512Vdpbf16ps = defineIntrinsic({
  name: "avx512.vdpbf16ps",
  family: "bf16",
  isa: "avx512_bf16",
  language: "c++",
  summary: "Sixteen dot products of two bf16, the left pair common to all lanes.",
  compute: "c[n] += f32(a[k]) * f32(b[k,n])",
  extents: { n: 16, k: 2 },
  operands: {
    a: {
      dtype: "bf16",
      storage: "zmm[2*n + k]",
      load: "{reg} = (__m512bh)_mm512_broadcastd_epi32(_mm_loadu_si32({ptr}));",
    },
    b: { dtype: "bf16", storage: "zmm[2*n + k]", ...BF16 },
    c: { dtype: "f32", storage: "zmm[n]", ...F32, store: "_mm512_storeu_ps({ptr}, {reg});" },
  },
  emit: "{c} = _mm512_dpbf16_ps({c}, {a}, {b});",
  subnormals: "flushed",
  cost: BF16_COST,
  mnemonic: "vdpbf16ps",
  source: "Intel SDM vol. 2, VDPBF16PS: subnormal inputs are zero, subnormal results are flushed",
});

export const avx512Vdpbf16psLanes = defineIntrinsic({
  name: "avx512.vdpbf16ps.lanes",
  family: "bf16",
  isa: "avx512_bf16",
  language: "c++",
  summary: "Sixteen dot products of two bf16, lane by lane.",
  compute: "c[n] += f32(a[n,k]) * f32(b[n,k])",
  extents: { n: 16, k: 2 },
  operands: {
    a: { dtype: "bf16", storage: "zmm[2*n + k]", ...BF16 },
    b: { dtype: "bf16", storage: "zmm[2*n + k]", ...BF16 },
    c: { dtype: "f32", storage: "zmm[n]", ...F32, store: "_mm512_storeu_ps({ptr}, {reg});" },
  },
  emit: "{c} = _mm512_dpbf16_ps({c}, {a}, {b});",
  subnormals: "flushed",
  cost: BF16_COST,
  mnemonic: "vdpbf16ps",
  source: "Intel SDM vol. 2, VDPBF16PS: subnormal inputs are zero, subnormal results are flushed",
});

/** A bf16 is the upper half of an f32. */
function widened(halves: string): string {
  return `_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)${halves}), 16))`;
}

/** What depthwise convolutions of bf16 take: widened, then the multiply-add of f32, exact in each product. */
export const avx512FmaBf16 = defineIntrinsic({
  name: "avx512.fma.bf16",
  family: "fma",
  isa: "avx512f",
  language: "c++",
  summary: "Sixteen multiply-adds of bf16 widened to f32 on the way, lane by lane.",
  compute: "c[i] += f32(a[i]) * f32(b[i])",
  extents: { i: 16 },
  operands: {
    a: { dtype: "bf16", storage: "ymm[i]", ...BF16_256 },
    b: { dtype: "bf16", storage: "ymm[i]", ...BF16_256 },
    c: { dtype: "f32", storage: "zmm[i]", ...F32, store: "_mm512_storeu_ps({ptr}, {reg});" },
  },
  prelude: FMA_PRELUDE,
  emit: `{c} = add_product({c}, ${widened("{a}")}, ${widened("{b}")});`,
  cost: FMA_COST,
  mnemonic: "vfmadd231ps",
  source: "Intel SDM vol. 2, VPMOVZXWD, VPSLLD, VFMADD231PS (EVEX.512)",
});

/** What depthwise convolutions of bytes take. The upper word of a u8 is zero, so the dot product of two words has one product. */
export const avx512Vpdpwssd = defineIntrinsic({
  name: "avx512.vpdpwssd.u8s8",
  family: "vnni",
  isa: "avx512_vnni",
  language: "c++",
  summary: "Sixteen multiply-adds of u8 and s8 widened on the way, lane by lane.",
  compute: "c[i] += s32(a[i]) * s32(b[i])",
  extents: { i: 16 },
  operands: {
    a: {
      dtype: "u8",
      storage: "xmm[i]",
      load: "{reg} = _mm_loadu_si128((const __m128i*)({ptr}));",
    },
    b: {
      dtype: "s8",
      storage: "xmm[i]",
      load: "{reg} = _mm_loadu_si128((const __m128i*)({ptr}));",
    },
    c: { dtype: "s32", storage: "zmm[i]", ...BYTES, store: "_mm512_storeu_si512({ptr}, {reg});" },
  },
  prelude: WORDS_PRELUDE,
  emit: "{c} = dot_words({c}, _mm512_cvtepu8_epi32({a}), _mm512_cvtepi8_epi32({b}));",
  cost: VNNI_COST,
  mnemonic: "vpdpwssd",
  source: "Intel SDM vol. 2, VPMOVZXBD, VPMOVSXBD, VPDPWSSD (EVEX.512.66.0F38.W0 52)",
});

export const AVX512: readonly Intrinsic[] = [
  avx512FmaF32,
  avx512FmaF32Broadcast,
  avx512FmaF32Groups4,
  avx512FmaF32Groups8,
  avx512FmaF64,
  avx512FmaF64Broadcast,
  avx512FmaF16,
  avx512FmaF16Broadcast,
  avx512Vpdpbusd,
  avx512VpdpbusdLanes,
  avx512Vpdpbusds,
  avx512VpdpbusdsLanes,
  avx512Vpdpbusd256,
  avx512Vpdpbusd256Lanes,
  avx512Vdpbf16ps,
  avx512Vdpbf16psLanes,
  avx512FmaBf16,
  avx512Vpdpwssd,
];
