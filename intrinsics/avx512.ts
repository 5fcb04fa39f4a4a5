/**
 * @file 512-bit vectors: fused multiply-add of f32, f64, f16, and of bf16 widened on the way. Dot products: avx512-dot.ts.
 *
 *     avx512.fma.f32              c[i] += a[i] * b[i]      lane by lane
 *     avx512.fma.f32.broadcast    c[i] += a[] * b[i]       one element to every lane
 */

import { type Intrinsic, tableRow } from "../abstraction/intrinsic.ts";
import { unitCost } from "../abstraction/machine.ts";
import { REFERENCE_CPU } from "../targets/x86.ts";

/**
 * Inline assembly, as for dot products (avx512-dot.ts): g++ 12 reorders the multiply-adds of unrolled steps and spills accumulators. Measured
 * 2026-11-21, 28 accumulators, four steps unrolled, Xeon with AVX-512: 22 spills and 18 % more time with `_mm512_fmadd_ps`, none with this.
 * Broadcasts are volatile, because with r or s unrolled g++ kept the broadcasts of one step in memory for the next (28 accumulators, 12 steps
 * unrolled, same day and machine, shared: 3.2 ms against 1.2 ms).
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

/** Two FMAs per cycle. */
const FMA_COST = unitCost(REFERENCE_CPU, "fma");
const F32 = { load: "{reg} = _mm512_loadu_ps({ptr});" };
const F64 = { load: "{reg} = _mm512_loadu_pd({ptr});" };
const S32 = { load: "{reg} = _mm512_loadu_si512({ptr});" };
const F16 = { load: "{reg} = _mm512_loadu_ph({ptr});" };
const BF16_256 = { load: "{reg} = (__m256bh)_mm256_loadu_si256((const __m256i*)({ptr}));" };
const avx512FmaF32 = tableRow({
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

const avx512FmaF32Broadcast = tableRow({
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
const avx512FmaF32Groups4 = tableRow({
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
const avx512FmaF32Groups8 = tableRow({
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

const avx512FmaF64 = tableRow({
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

const avx512FmaF64Broadcast = tableRow({
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
const avx512FmaF16 = tableRow({
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

const avx512FmaF16Broadcast = tableRow({
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

/** A bf16 is the upper half of an f32. */
function widened(halves: string): string {
  return `_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)${halves}), 16))`;
}

/** For depthwise convolutions of bf16: factors are widened, then multiplied and added in f32, where each product is exact. */
export const avx512FmaBf16 = tableRow({
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

/**
 * Integer product for designs on lanes, which add the products separately. No mapping uses it, because the dot products of bytes and words do more in
 * one instruction.
 */
export const avx512Vpmulld = tableRow({
  name: "avx512.vpmulld",
  family: "mulld",
  isa: "avx512f",
  language: "c++",
  summary: "Sixteen products of s32 added to a sum, lane by lane.",
  compute: "c[i] += a[i] * b[i]",
  extents: { i: 16 },
  operands: {
    a: { dtype: "s32", storage: "zmm[i]", ...S32 },
    b: { dtype: "s32", storage: "zmm[i]", ...S32 },
    c: { dtype: "s32", storage: "zmm[i]", ...S32, store: "_mm512_storeu_si512({ptr}, {reg});" },
  },
  prelude: "#include <immintrin.h>\n",
  emit: "{c} = _mm512_add_epi32({c}, _mm512_mullo_epi32({a}, {b}));",
  cost: {
    issueCycles: 1.5,
    latencyCycles: 11,
    source: "LLVM's scheduling model of Sapphire Rapids: two operations of port 0, and an addition",
  },
  mnemonic: "vpmulld",
  source: "Intel SDM vol. 2, PMULLD (EVEX.512), PADDD",
});

/** Products and sums of s16 keep their low 16 bits. For lanes. */
export const avx512Vpmullw = tableRow({
  name: "avx512.vpmullw",
  family: "mullw",
  isa: "avx512f",
  language: "c++",
  summary: "Thirty-two products of s16 added to a sum of s16, lane by lane.",
  compute: "c[i] += a[i] * b[i]",
  extents: { i: 32 },
  operands: {
    a: { dtype: "s16", storage: "zmm[i]", ...S32 },
    b: { dtype: "s16", storage: "zmm[i]", ...S32 },
    c: { dtype: "s16", storage: "zmm[i]", ...S32, store: "_mm512_storeu_si512({ptr}, {reg});" },
  },
  prelude: "#include <immintrin.h>\n",
  emit: "{c} = _mm512_add_epi16({c}, _mm512_mullo_epi16({a}, {b}));",
  cost: {
    issueCycles: 1,
    latencyCycles: 6,
    source: "LLVM's scheduling model of Sapphire Rapids: one operation of either vector port, and an addition",
  },
  mnemonic: "vpmullw",
  source: "Intel SDM vol. 2, PMULLW (EVEX.512), PADDW",
});

export const AVX512_FMA: readonly Intrinsic[] = [
  avx512FmaF32,
  avx512FmaF32Broadcast,
  avx512FmaF32Groups4,
  avx512FmaF32Groups8,
  avx512FmaF64,
  avx512FmaF64Broadcast,
  avx512FmaF16,
  avx512FmaF16Broadcast,
];
