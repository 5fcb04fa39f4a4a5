/**
 * @file 512-bit vectors: fused multiply-add of f32, f64, f16, and of bf16 widened on the way. Dot products: avx512-dot.ts.
 *
 *     avx512.fma.f32              c[i] += a[i] * b[i]      lane by lane
 *     avx512.fma.f32.broadcast    c[i] += a[] * b[i]       one element to every lane
 */

import { type Intrinsic, type OperandSpec, tableRow } from "../abstraction/intrinsic.ts";
import { unitCost } from "../abstraction/machine.ts";
import { REFERENCE_CPU } from "../targets/x86.ts";
import { FLOATS_512, INTEGERS_512, laneByLane, type MultiplyAddForm, multiplyAdds } from "./vector-forms.ts";

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

const FMA_F32 = {
  name: "avx512.fma.f32",
  isa: "avx512f",
  dtype: "f32",
  lanes: 16,
  file: "zmm",
  moves: FLOATS_512,
  loadShared: "{reg} = broadcast_element((const float*)({ptr}));",
  prelude: FMA_PRELUDE,
  emit: "{c} = add_product({c}, {a}, {b});",
  cost: FMA_COST,
  mnemonic: "vfmadd132ps",
  source: "Intel SDM vol. 2, VFMADD132PS/VFMADD213PS/VFMADD231PS (EVEX.512)",
  sharedBy: "VBROADCASTSS",
} as const satisfies MultiplyAddForm;

interface Groups {
  readonly channels: 4 | 8;
  readonly summary: string;
  readonly load: string;
  readonly loadedBy: string;
}

/** Groups of a grouped convolution at once: of four channels, channel 4*i + c of a pixel goes to the four lanes of group i. */
function groups({ channels, summary, load, loadedBy }: Groups): Intrinsic {
  const { isa, dtype, lanes, moves, prelude, emit, cost, mnemonic, source } = FMA_F32;
  const factor: OperandSpec = { dtype, storage: `zmm[${channels}*i + n]`, load: moves.load };
  return tableRow({
    name: `${FMA_F32.name}.groups${channels}`,
    family: "fma",
    isa,
    language: "c++",
    summary: `Sixteen f32 multiply-adds; ${summary} lanes.`,
    compute: "c[i,n] += a[i] * b[i,n]",
    extents: { i: lanes / channels, n: channels },
    operands: { a: { ...factor, load }, b: factor, c: { ...factor, ...moves } },
    prelude,
    emit,
    cost,
    mnemonic,
    source: `${source}; ${loadedBy}`,
  });
}

/** A bf16 is the upper half of an f32. */
function widened(halves: string): string {
  return `_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)${halves}), 16))`;
}

const BF16: OperandSpec = {
  dtype: "bf16",
  storage: "ymm[i]",
  load: "{reg} = (__m256bh)_mm256_loadu_si256((const __m256i*)({ptr}));",
};

/** For depthwise convolutions of bf16: factors are widened, then multiplied and added in f32, where each product is exact. */
export const avx512FmaBf16 = tableRow({
  name: "avx512.fma.bf16",
  family: "fma",
  isa: "avx512f",
  language: "c++",
  summary: "Sixteen multiply-adds of bf16 widened to f32 on the way, lane by lane.",
  compute: "c[i] += f32(a[i]) * f32(b[i])",
  extents: { i: 16 },
  operands: { a: BF16, b: BF16, c: { dtype: "f32", storage: "zmm[i]", ...FLOATS_512 } },
  prelude: FMA_PRELUDE,
  emit: `{c} = add_product({c}, ${widened("{a}")}, ${widened("{b}")});`,
  cost: FMA_COST,
  mnemonic: "vfmadd231ps",
  source: "Intel SDM vol. 2, VPMOVZXWD, VPSLLD, VFMADD231PS (EVEX.512)",
});

/**
 * Integer products for designs on lanes, which add the products separately. No mapping uses them, because the dot products of bytes and words do more
 * in one instruction.
 */
const PRODUCTS = { isa: "avx512f", file: "zmm", moves: INTEGERS_512, prelude: "#include <immintrin.h>\n" } as const;

export const avx512Vpmulld = laneByLane(
  {
    ...PRODUCTS,
    name: "avx512.vpmulld",
    dtype: "s32",
    lanes: 16,
    emit: "{c} = _mm512_add_epi32({c}, _mm512_mullo_epi32({a}, {b}));",
    cost: {
      issueCycles: 1.5,
      latencyCycles: 11,
      source: "LLVM's scheduling model of Sapphire Rapids: two operations of port 0, and an addition",
    },
    mnemonic: "vpmulld",
    source: "Intel SDM vol. 2, PMULLD (EVEX.512), PADDD",
  },
  { family: "mulld", summary: "Sixteen products of s32 added to a sum" },
);

/** Products and sums of s16 keep their low 16 bits. */
export const avx512Vpmullw = laneByLane(
  {
    ...PRODUCTS,
    name: "avx512.vpmullw",
    dtype: "s16",
    lanes: 32,
    emit: "{c} = _mm512_add_epi16({c}, _mm512_mullo_epi16({a}, {b}));",
    cost: {
      issueCycles: 1,
      latencyCycles: 6,
      source: "LLVM's scheduling model of Sapphire Rapids: one operation of either vector port, and an addition",
    },
    mnemonic: "vpmullw",
    source: "Intel SDM vol. 2, PMULLW (EVEX.512), PADDW",
  },
  { family: "mullw", summary: "Thirty-two products of s16 added to a sum of s16" },
);

export const AVX512_FMA: readonly Intrinsic[] = [
  ...multiplyAdds(FMA_F32),
  groups({
    channels: 4,
    summary: "four factors four elements apart, each common to four",
    load: "{reg} = _mm512_permute_ps(_mm512_maskz_loadu_ps(0x1111, {ptr}), 0);",
    loadedBy: "VPERMILPS",
  }),
  groups({
    channels: 8,
    summary: "two factors eight elements apart, each common to eight",
    load: "{reg} = _mm512_mask_broadcastss_ps(_mm512_set1_ps(*(const float*)({ptr})), 0xff00, _mm_load_ss((const float*)({ptr}) + 8));",
    loadedBy: "VBROADCASTSS",
  }),
  ...multiplyAdds({
    name: "avx512.fma.f64",
    isa: "avx512f",
    dtype: "f64",
    lanes: 8,
    file: "zmm",
    moves: { load: "{reg} = _mm512_loadu_pd({ptr});", store: "_mm512_storeu_pd({ptr}, {reg});" },
    loadShared: "{reg} = _mm512_set1_pd(*(const double*)({ptr}));",
    emit: "{c} = _mm512_fmadd_pd({a}, {b}, {c});",
    cost: FMA_COST,
    mnemonic: "vfmadd132pd",
    source: "Intel SDM vol. 2, VFMADD132PD/VFMADD213PD/VFMADD231PD (EVEX.512)",
    sharedBy: "VBROADCASTSD",
  }),
  // f16 times f16 into f16: the sum overflows beyond 65504 and keeps 11 significant bits.
  ...multiplyAdds({
    name: "avx512.fma.f16",
    isa: "avx512_fp16",
    dtype: "f16",
    lanes: 32,
    file: "zmm",
    moves: { load: "{reg} = _mm512_loadu_ph({ptr});", store: "_mm512_storeu_ph({ptr}, {reg});" },
    loadShared: "{reg} = _mm512_set1_ph(*(const _Float16*)({ptr}));",
    emit: "{c} = _mm512_fmadd_ph({a}, {b}, {c});",
    cost: FMA_COST,
    mnemonic: "vfmadd132ph",
    source: "Intel SDM vol. 2, VFMADD132PH/VFMADD213PH/VFMADD231PH (AVX512-FP16)",
  }),
];
