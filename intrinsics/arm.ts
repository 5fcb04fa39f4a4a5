/**
 * @file Arm Advanced SIMD: dot products of bytes and of bf16, matrix products of 2x2 sums, multiply-adds, on 128-bit registers.
 *
 *     arm.sdot             c[i] += s32(a[i,j]) * s32(b[i,j])      four bytes a lane, v[4*i + j]
 *     arm.sdot.broadcast   c[n] += s32(a[k]) * s32(b[k,n])        four bytes for all lanes
 *     arm.sdot.lane        c[n] += s32(a[k]) * s32(b[k,n])        sixteen bytes; each of four instructions takes four of them for all lanes
 *     arm.smmla            c[m,n] += s32(a[m,k]) * s32(b[n,k])    both factors are rows of eight bytes
 *
 * The by-lane forms take `a` as sixteen contiguous bytes, and four registers of `b` that are packed as `vx4[16*(k/4) + 4*n + k%4]`.
 */

import { bytesOf } from "../abstraction/dtype.ts";
import { type Cost, type Intrinsic, type OperandSpec, tableRow } from "../abstraction/intrinsic.ts";
import {
  C,
  DOTS,
  type Dot,
  type Element,
  functionStem,
  MATRIX_PRODUCTS,
  type Products,
  subnormalsOf,
} from "./arm-forms.ts";

const MANUAL = "Arm Architecture Reference Manual for A-profile";
const GUIDES = "Arm's software optimisation guides of Cortex-A76 and Neoverse N1, two vector pipes";

/** Cost of a number of dependent instructions; `forward` is the cycles from one accumulation to the next on the same register. */
const cost = (instructions: number, forward: number): Cost => ({
  issueCycles: instructions / 2,
  latencyCycles: instructions * forward,
  source: `${GUIDES}: an accumulator is passed on after ${forward} cycle${forward > 1 ? "s" : ""}; not measured`,
});

/** An operand of one or more registers, or of half of one. */
function operand(dtype: Element, storage: string, registers: 0.5 | 1 | 2 | 4 = 1): OperandSpec {
  const form = registers === 0.5 ? `vld1_${dtype}` : `vld1q_${dtype}${registers > 1 ? `_x${registers}` : ""}`;
  return { dtype, storage, load: `{reg} = ${form}((const ${C[dtype]}*)({ptr}));` };
}

function sums(dtype: Element, storage: string): OperandSpec {
  return { ...operand(dtype, storage), store: `vst1q_${dtype}((${C[dtype]}*)({ptr}), {reg});` };
}

// ---- dot products -----------------------------------------------------------------------------------------------------------------

function dotRows({ name, family, feature, a, b, sum, byLane, forward }: Dot): Intrinsic[] {
  // Products per lane of 32 bits.
  const p = 4 / bytesOf(a);
  const some = p === 4 ? "four" : "two";
  const types = a === b ? a : `${a} with ${b}`;
  const common = { family, isa: feature ?? "asimddp", language: "c++", ...subnormalsOf(a) } as const;
  const each = `v${functionStem(name)}q_${sum}`;
  const word = { s8: "s32", u8: "u32", bf16: "u32" } as const;
  const kn = `c[n] += ${sum}(a[k]) * ${sum}(b[k,n])`;
  return [
    tableRow({
      ...common,
      name: `arm.${name}`,
      summary: `Four dot products of ${some} ${types}, lane by lane.`,
      compute: `c[i] += ${sum}(a[i,j]) * ${sum}(b[i,j])`,
      extents: { i: 4, j: p },
      operands: { a: operand(a, `v[${p}*i + j]`), b: operand(b, `v[${p}*i + j]`), c: sums(sum, "v[i]") },
      emit: `{c} = ${each}({c}, {a}, {b});`,
      cost: cost(1, forward),
      mnemonic: name,
      source: `${MANUAL}, ${name.toUpperCase()} (vector)`,
    }),
    tableRow({
      ...common,
      name: `arm.${name}.broadcast`,
      summary: `Four dot products of ${some} ${types}, the left ${some} common to all lanes.`,
      compute: kn,
      extents: { n: 4, k: p },
      operands: {
        a: {
          dtype: a,
          storage: `v[${p}*n + k]`,
          load: `{reg} = vreinterpretq_${a}_${word[a]}(vld1q_dup_${word[a]}((const ${C[word[a]]}*)({ptr})));`,
        },
        b: operand(b, `v[${p}*n + k]`),
        c: sums(sum, "v[n]"),
      },
      emit: `{c} = ${each}({c}, {a}, {b});`,
      cost: cost(1, forward),
      mnemonic: name,
      source: `${MANUAL}, ${name.toUpperCase()} (vector); LD1R`,
    }),
    tableRow({
      ...common,
      name: `arm.${name}.lane`,
      summary: `Four dot products of ${4 * p} ${types}, ${some} at a time, the left ones common to all lanes.`,
      compute: kn,
      extents: { n: 4, k: 4 * p },
      operands: {
        a: operand(a, "v[k]"),
        b: operand(b, `vx4[${4 * p}*(k/${p}) + ${p}*n + k%${p}]`, 4),
        c: sums(sum, "v[n]"),
      },
      emit: laneAfterLane(`v${functionStem(byLane)}q_laneq_${sum}`, 4),
      cost: cost(4, forward),
      mnemonic: byLane,
      source: `${MANUAL}, ${byLane.toUpperCase()} (by element)`,
    }),
  ];
}

/** `{c} = vdotq_laneq_s32({c}, {b}.val[0], {a}, 0); ...`: register i of `b` by lane i of `a`. */
function laneAfterLane(name: string, lanes: number): string {
  return Array.from({ length: lanes }, (_, i) => `{c} = ${name}({c}, {b}.val[${i}], {a}, ${i});`).join(" ");
}

// ---- u8 by s8 where no instruction mixes signs ------------------------------------------------------------------------------------

/** a*b = (a - 128)*b - b*(-128). SDOT computes the first product. The second depends on `b` alone, so issues that share `b` share it. */
const SHIFTED = `#include <arm_neon.h>
static inline int32x4_t dot_mixed(int32x4_t c, uint8x16_t a, int8x16_t b) {
  c = vdotq_s32(c, vreinterpretq_s8_u8(veorq_u8(a, vdupq_n_u8(128))), b);
  return vsubq_s32(c, vdotq_s32(vdupq_n_s32(0), b, vdupq_n_s8(-128)));
}
static inline int32x4_t dot_mixed(int32x4_t c, uint8x16_t a, int8x16x4_t b) {
  const int8x16_t shifted = vreinterpretq_s8_u8(veorq_u8(a, vdupq_n_u8(128))), most = vdupq_n_s8(-128);
  int32x4_t of_b = vdotq_s32(vdupq_n_s32(0), b.val[0], most);
  of_b = vdotq_s32(of_b, b.val[1], most);
  of_b = vdotq_s32(of_b, b.val[2], most);
  of_b = vdotq_s32(of_b, b.val[3], most);
  c = vdotq_laneq_s32(c, b.val[0], shifted, 0);
  c = vdotq_laneq_s32(c, b.val[1], shifted, 1);
  c = vdotq_laneq_s32(c, b.val[2], shifted, 2);
  c = vdotq_laneq_s32(c, b.val[3], shifted, 3);
  return vsubq_s32(c, of_b);
}
`;

const MIXED = {
  family: "mixed-dot",
  isa: "asimddp",
  language: "c++",
  compute: "c[n] += s32(a[k]) * s32(b[k,n])",
  prelude: SHIFTED,
  emit: "{c} = dot_mixed({c}, {a}, {b});",
  mnemonic: "sdot",
  source: `${MANUAL}, SDOT (vector, by element), EOR, SUB; exact, since sums of s32 wrap`,
} as const;

const sdotMixed = tableRow({
  ...MIXED,
  name: "arm.sdot.u8s8.broadcast",
  summary: "Four dot products of four u8 with four s8 by way of signed ones, the left four common to all lanes.",
  extents: { n: 4, k: 4 },
  operands: {
    a: {
      dtype: "u8",
      storage: "v[4*n + k]",
      load: "{reg} = vreinterpretq_u8_u32(vld1q_dup_u32((const uint32_t*)({ptr})));",
    },
    b: operand("s8", "v[4*n + k]"),
    c: sums("s32", "v[n]"),
  },
  cost: cost(3, 2),
});

const sdotMixedLane = tableRow({
  ...MIXED,
  name: "arm.sdot.u8s8.lane",
  summary:
    "Four dot products of sixteen u8 with sixteen s8 by way of signed ones, the left sixteen common to all lanes.",
  extents: { n: 4, k: 16 },
  operands: {
    a: operand("u8", "v[k]"),
    b: operand("s8", "vx4[16*(k/4) + 4*n + k%4]", 4),
    c: sums("s32", "v[n]"),
  },
  cost: cost(7, 1),
});

// ---- matrix products --------------------------------------------------------------------------------------------------------------

function matrixRow({ name, a, b, sum }: Products): Intrinsic {
  const k = 8 / bytesOf(a);
  return tableRow({
    name: `arm.${name}`,
    family: name === "bfmmla" ? "bfmmla" : "mmla",
    isa: name === "bfmmla" ? "bf16" : "i8mm",
    language: "c++",
    ...subnormalsOf(a),
    summary: `A 2x2x${k} matrix product of ${a === b ? a : `${a} by ${b}`}.`,
    compute: `c[m,n] += ${sum}(a[m,k]) * ${sum}(b[n,k])`,
    extents: { m: 2, n: 2, k },
    operands: { a: operand(a, `v[${k}*m + k]`), b: operand(b, `v[${k}*n + k]`), c: sums(sum, "v[2*m + n]") },
    emit: `{c} = v${functionStem(name)}q_${sum}({c}, {a}, {b});`,
    cost: cost(1, a === "bf16" ? 3 : 1),
    mnemonic: name,
    source: `${MANUAL}, ${name.toUpperCase()} (vector)`,
  });
}

// ---- multiply-adds ----------------------------------------------------------------------------------------------------------------

interface MultiplyAdd {
  readonly dtype: "f16" | "f32" | "f64";
  readonly lanes: 2 | 4 | 8;
  /** Lanes of the broadcast factor, and the register that holds it. */
  readonly k: 2 | 4;
  readonly file: "v" | "d";
  readonly lane: string;
}

const MULTIPLY_ADDS: readonly MultiplyAdd[] = [
  { dtype: "f32", lanes: 4, k: 4, file: "v", lane: "vfmaq_laneq_f32" },
  { dtype: "f64", lanes: 2, k: 2, file: "v", lane: "vfmaq_laneq_f64" },
  { dtype: "f16", lanes: 8, k: 4, file: "d", lane: "vfmaq_lane_f16" },
];

const NUMBERS = { 2: "Two", 4: "Four", 8: "Eight" } as const;

function multiplyAddRows({ dtype, lanes, k, file, lane }: MultiplyAdd): Intrinsic[] {
  const common = {
    family: "fma",
    isa: dtype === "f16" ? "asimdhp" : "asimd",
    language: "c++",
    mnemonic: "fmla",
  } as const;
  const vector = operand(dtype, "v[n]");
  const laneByLane = {
    ...common,
    extents: { n: lanes },
    emit: `{c} = vfmaq_${dtype}({c}, {a}, {b});`,
    cost: cost(1, 2),
  };
  return [
    tableRow({
      ...laneByLane,
      name: `arm.fmla.${dtype}`,
      summary: `${NUMBERS[lanes]} ${dtype} multiply-adds, lane by lane.`,
      compute: "c[n] += a[n] * b[n]",
      operands: { a: vector, b: vector, c: sums(dtype, "v[n]") },
      source: `${MANUAL}, FMLA (vector)`,
    }),
    tableRow({
      ...laneByLane,
      name: `arm.fmla.${dtype}.broadcast`,
      summary: `${NUMBERS[lanes]} ${dtype} multiply-adds with one factor common to all lanes.`,
      compute: "c[n] += a[] * b[n]",
      operands: {
        a: { dtype, storage: "v[n]", load: `{reg} = vld1q_dup_${dtype}((const ${C[dtype]}*)({ptr}));` },
        b: vector,
        c: sums(dtype, "v[n]"),
      },
      source: `${MANUAL}, FMLA (vector); LD1R`,
    }),
    tableRow({
      ...common,
      name: `arm.fmla.${dtype}.lane`,
      summary: `${NUMBERS[lanes]} sums of ${k} ${dtype} products, the left factors common to all lanes.`,
      compute: "c[n] += a[k] * b[k,n]",
      extents: { n: lanes, k },
      operands: {
        a: operand(dtype, `${file}[k]`, file === "d" ? 0.5 : 1),
        b: operand(dtype, `vx${k}[${lanes}*k + n]`, k),
        c: sums(dtype, "v[n]"),
      },
      emit: laneAfterLane(lane, k),
      cost: cost(k, 2),
      source: `${MANUAL}, FMLA (by element)`,
    }),
  ];
}

export const ARM: readonly Intrinsic[] = [
  ...DOTS.flatMap(dotRows),
  sdotMixed,
  sdotMixedLane,
  ...MATRIX_PRODUCTS.map(matrixRow),
  ...MULTIPLY_ADDS.flatMap(multiplyAddRows),
];
