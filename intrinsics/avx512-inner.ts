/**
 * @file Inner products in 512-bit vectors: lanes hold partial sums of one element, which are added up where it is stored.
 *
 *     avx512.fma.f32.inner      c[] += a[k] * b[k]       sixteen k side by side in `a` and in `b`
 *
 * Both factors are loaded as they lie when the summed axis is innermost in both, as in products of a matrix with its own transpose. A row that
 * broadcasts one factor needs the other one turned first.
 */

import { type Cost, type Intrinsic, tableRow } from "../abstraction/intrinsic.ts";
import { unitCost } from "../abstraction/machine.ts";
import { REFERENCE_CPU } from "../targets/x86.ts";

/**
 * The multiply-add is inline assembly, as in avx512.ts: g++ 12 reorders those of unrolled steps and spills accumulators. Lanes are added by halves, so
 * that only the first step is 512 bits wide.
 */
const PRELUDE = `#include <immintrin.h>
static inline __m512 add_products(__m512 c, __m512 a, __m512 b) {
  asm("vfmadd231ps %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
  return c;
}
static inline float sum_of_lanes(__m512 c) {
  __m256 half = _mm256_add_ps(_mm512_castps512_ps256(c), _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(c), 1)));
  __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  quarter = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
  return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_movehdup_ps(quarter)));
}
`;

/** Cycles to add up sixteen lanes and store the sum: four shuffles and four additions, two of each a cycle where they are 256 bits wide or less. */
const FOLD_CYCLES = 4;

const folded = (cost: Cost): Cost => ({ ...cost, storeCycles: FOLD_CYCLES });

/** A sum of lanes is no storage formula: only the load and the store know the register. The load begins with all of the sum in one lane. */
const SUM = {
  dtype: "f32",
  storage: "zmm",
  load: "{reg} = _mm512_maskz_loadu_ps(1, {ptr});",
  store: "*(float*)({ptr}) = sum_of_lanes({reg});",
} as const;

const F32 = { dtype: "f32", storage: "zmm[k]", load: "{reg} = _mm512_loadu_ps({ptr});" } as const;
const BF16 = { dtype: "bf16", storage: "zmm[k]", load: "{reg} = (__m512bh)_mm512_loadu_si512({ptr});" } as const;

export const AVX512_INNER: readonly Intrinsic[] = [
  tableRow({
    name: "avx512.fma.f32.inner",
    family: "fma",
    isa: "avx512f",
    language: "c++",
    summary: "Sixteen f32 products added to one element.",
    compute: "c[] += a[k] * b[k]",
    extents: { k: 16 },
    operands: { a: F32, b: F32, c: SUM },
    prelude: PRELUDE,
    emit: "{c} = add_products({c}, {a}, {b});",
    cost: folded(unitCost(REFERENCE_CPU, "fma")),
    mnemonic: "vfmadd132ps",
    source: "Intel SDM vol. 2, VFMADD132PS/VFMADD213PS/VFMADD231PS (EVEX.512)",
  }),
  tableRow({
    name: "avx512.vdpbf16ps.inner",
    family: "bf16",
    isa: "avx512_bf16",
    language: "c++",
    summary: "Thirty-two bf16 products added to one element.",
    compute: "c[] += f32(a[k]) * f32(b[k])",
    extents: { k: 32 },
    operands: { a: BF16, b: BF16, c: SUM },
    prelude: PRELUDE,
    emit: "{c} = _mm512_dpbf16_ps({c}, {a}, {b});",
    subnormals: "flushed",
    cost: folded({
      issueCycles: 2,
      latencyCycles: 8,
      source: "as avx512.vdpbf16ps: measured 2026-11-21 on one core of a Xeon at 3.7 GHz",
    }),
    mnemonic: "vdpbf16ps",
    source: "Intel SDM vol. 2, VDPBF16PS: subnormal inputs are zero, subnormal results are flushed",
  }),
];
