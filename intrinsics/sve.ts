/**
 * @file Arm's Scalable Vector Extension at stated lengths of 128, 256 and 512 bits: dot products, matrix products and multiply-adds by lane.
 *
 *     sve256.sdot      c[n] += s32(a[k]) * s32(b[k,n])       eight sums; each 128 bits hold the sixteen bytes of `a`
 *
 * A row works on vectors of its length and on longer ones: a predicate of its lanes (`SV_VL32`) governs loads and stores, so results in lanes beyond
 * them are never stored. On shorter vectors the predicate is empty, so the feature (targets/arm.ts) requires the length.
 */

import { upTo } from "../abstraction/collections.ts";
import { bitsOf, bytesOf } from "../abstraction/dtype.ts";
import { type Cost, type Intrinsic, type OperandSpec, tableRow } from "../abstraction/intrinsic.ts";
import { SVE_BITS, type SveBits } from "../targets/arm.ts";
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

const MANUAL = "Arm Architecture Reference Manual Supplement, the Scalable Vector Extension";

/** Two pipes of scalable vectors. */
const cost = (instructions: number, forward: number): Cost => ({
  issueCycles: instructions / 2,
  latencyCycles: instructions * forward,
  source: `Arm Neoverse V1 Software Optimization Guide: pipes V0 and V1, an accumulator passed on after ${forward} cycle${forward > 1 ? "s" : ""}; not measured`,
});

/** Lanes of a type in vectors of a given length. */
const lanesIn = (bits: SveBits, dtype: Element): number => bits / 8 / bytesOf(dtype);
const predicate = (bits: SveBits, dtype: Element): string =>
  `svptrue_pat_b${bitsOf(dtype)}(SV_VL${lanesIn(bits, dtype)})`;

/** Contiguous vectors in memory. */
function vectors(bits: SveBits, dtype: Element, storage: string, registers: 1 | 2 | 4 = 1): OperandSpec {
  const load = (i: number): string =>
    `svld1_${dtype}(${predicate(bits, dtype)}, (const ${C[dtype]}*)({ptr}) + ${i * lanesIn(bits, dtype)})`;
  const all = upTo(registers).map((i) => load(i));
  const text = registers === 1 ? load(0) : `svcreate${registers}_${dtype}(${all.join(", ")})`;
  return { dtype, storage: `z${bits}${registers > 1 ? `x${registers}` : ""}[${storage}]`, load: `{reg} = ${text};` };
}

/** The same 16 bytes in each 128 bits; of f16 four for all lanes, which are repeated in each 64 bits. */
function repeated(bits: SveBits, dtype: Element, storage: string): OperandSpec {
  return {
    dtype,
    storage: `z${bits}[${storage}]`,
    load:
      dtype === "f16"
        ? "{ uint64_t four; memcpy(&four, {ptr}, 8); {reg} = svreinterpret_f16_u64(svdup_u64(four)); }"
        : `{reg} = svld1rq_${dtype}(svptrue_b${bitsOf(dtype)}(), (const ${C[dtype]}*)({ptr}));`,
  };
}

function sums(bits: SveBits, dtype: Element, storage: string): OperandSpec {
  return {
    ...vectors(bits, dtype, storage),
    store: `svst1_${dtype}(${predicate(bits, dtype)}, (${C[dtype]}*)({ptr}), {reg});`,
  };
}

interface ByLane extends Pick<Dot, "name" | "byLane" | "forward"> {
  readonly family: string;
  /** Feature needed besides vectors of the length. */
  readonly feature?: string;
  readonly a: Element;
  readonly b: Element;
  readonly sum: Element;
  readonly instruction: string;
}

const BY_LANE: readonly ByLane[] = [
  ...DOTS.map((dot) => ({ ...dot, instruction: `sv${functionStem(dot.byLane)}_lane_${dot.sum}` })),
  ...(["f32", "f64", "f16"] as const).map(
    (dtype): ByLane => ({
      name: `fmla.${dtype}`,
      family: "fma",
      a: dtype,
      b: dtype,
      sum: dtype,
      forward: 2,
      instruction: `svmla_lane_${dtype}`,
      byLane: "fmla",
    }),
  ),
];

/** Register i of `b` by lane i of each 128 bits of `a`. */
function laneRow(bits: SveBits, { name, family, feature, a, b, sum, instruction, byLane, forward }: ByLane): Intrinsic {
  const n = lanesIn(bits, sum);
  // `p` is the number of factors per sum in one instruction; there are as many instructions as 128 bits hold sums, of f16 as 64 bits do.
  const p = bytesOf(sum) / bytesOf(a);
  const steps = bytesOf(sum) === 8 ? 2 : 4;
  const k = p * steps;
  const cast = (text: string): string => (a === sum ? text : `${sum}(${text})`);
  const compute: string = `c[n] += ${cast("a[k]")} * ${cast("b[k,n]")}`;
  const get = (i: number): string => `svget${steps}_${b}({b}, ${i})`;
  const lines = upTo(steps).map((i) => `{c} = ${instruction}({c}, ${get(i)}, {a}, ${i});`);
  return tableRow({
    name: `sve${bits}.${name}`,
    family,
    isa: `sve${bits}`,
    ...(feature !== undefined && { features: [feature] }),
    language: "c++",
    prelude: "#include <arm_sve.h>\n",
    ...subnormalsOf(a),
    summary: `${n} sums of ${k} products, ${a === b ? a : `${a} with ${b}`}, the left factors common to all lanes.`,
    compute,
    extents: { n, k },
    operands: {
      a: repeated(bits, a, `${k}*(n/${steps}) + k`),
      b: vectors(bits, b, p === 1 ? `${n}*k + n` : `${p * n}*(k/${p}) + ${p}*n + k%${p}`, steps),
      c: sums(bits, sum, "n"),
    },
    emit: lines.join(" "),
    cost: cost(steps, forward),
    mnemonic: byLane,
    source: `${MANUAL}, ${byLane.toUpperCase()} (indexed), ${a === "f16" ? "LD1RD" : "LD1RQ"}`,
  });
}

/** Each 128 bits hold a product of two rows by two columns: the rows of `a` are repeated in each, the columns of `b` lie side by side. */
function matrixRow(bits: SveBits, { name, a, b, sum }: Products): Intrinsic {
  const k = 8 / bytesOf(a);
  const n = bits / 64;
  return tableRow({
    name: `sve${bits}.${name}`,
    family: a === "bf16" ? "bfmmla" : "mmla",
    isa: `sve${bits}`,
    features: [a === "bf16" ? "bf16" : "i8mm"],
    language: "c++",
    prelude: "#include <arm_sve.h>\n",
    ...subnormalsOf(a),
    summary: `A 2x${n}x${k} matrix product of ${a === b ? a : `${a} by ${b}`}.`,
    compute: `c[m,n] += ${sum}(a[m,k]) * ${sum}(b[n,k])`,
    extents: { m: 2, n, k },
    operands: {
      a: repeated(bits, a, `${2 * k}*(n/2) + ${k}*m + k`),
      b: vectors(bits, b, `${k}*n + k`),
      c: sums(bits, sum, "4*(n/2) + 2*m + n%2"),
    },
    emit: `{c} = sv${functionStem(name)}_${sum}({c}, {a}, {b});`,
    cost: cost(1, a === "bf16" ? 3 : 1),
    mnemonic: name,
    source: `${MANUAL}, ${name.toUpperCase()}, LD1RQ`,
  });
}

export const SVE: readonly Intrinsic[] = SVE_BITS.flatMap((bits) => [
  ...BY_LANE.map((form) => laneRow(bits, form)),
  ...MATRIX_PRODUCTS.map((form) => matrixRow(bits, form)),
]);
