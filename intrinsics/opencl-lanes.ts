/**
 * @file Arithmetic on the lanes of an engine in OpenCL C: each work-item holds one element of a vector. Gen9 runs a sub-group of sixteen, Mali a
 * work-group of eight, which is a warp.
 *
 *     opencl.gen9.fma.f32.broadcast      c[n] += a[] * b[n]                    {c} = fma({a}, {b}, {c});               n is the lane
 *     mali.lanes.dot.s32.s8.broadcast    c[n] += s32(a[k]) * s32(b[k,n])       {c} = arm_dot_acc({a}, {b}, {c});       four bytes a lane
 */

import type { DType } from "../abstraction/dtype.ts";
import { type Cost, type Intrinsic, type IntrinsicSpec, type OperandSpec, tableRow } from "../abstraction/intrinsic.ts";
import { unitCost } from "../abstraction/machine.ts";
import { GEN9 } from "../targets/intel.ts";
import { BOTH, dotOf, multiplyAddOf, suffix, typesOf } from "./lane-forms.ts";

const TYPES = { s8: "char", u8: "uchar", s32: "int", f32: "float" } as const satisfies Partial<Record<DType, string>>;
type Type = keyof typeof TYPES;

/** Lanes that execute an instruction together, and how the language names one. */
interface Lanes {
  readonly isa: "gen9" | "mali_g76";
  readonly named: string;
  readonly count: 8 | 16;
  /** Register file of an element. */
  readonly file: string;
  readonly own: string;
  readonly source: string;
}

const GEN9_LANES: Lanes = {
  isa: "gen9",
  named: "opencl.gen9",
  count: 16,
  file: "eu_lane",
  own: "get_sub_group_local_id()",
  source: "OpenCL C specification, fma, mul24; OpenCL extension cl_intel_subgroups",
};
const G76_LANES: Lanes = {
  isa: "mali_g76",
  named: "mali.lanes",
  count: 8,
  file: "warp_lane",
  own: "get_local_id(0)",
  source: "OpenCL C specification, fma",
};

const GEN9_BYTES: Cost = {
  issueCycles: 4,
  latencyCycles: 28,
  source: "assumed: a product of 24 bits and a sum, each as an f32 instruction of sixteen lanes; not measured",
};
const G76_FLOATS: Cost = {
  issueCycles: 1,
  latencyCycles: 4,
  source: "Arm Community, Mali-G76: eight lanes an engine; latency assumed; not measured",
};

/** @param shared whether all lanes have the same element */
const operand = ({ file, own }: Lanes, dtype: Type, shared = false): OperandSpec => ({
  dtype,
  storage: `${file}[n]`,
  load: shared
    ? `{reg} = *({space} const ${TYPES[dtype]}*)({ptr});`
    : `{reg} = (({space} const ${TYPES[dtype]}*)({ptr}))[${own}];`,
});
const result = (lanes: Lanes, dtype: "f32" | "s32"): OperandSpec => ({
  ...operand(lanes, dtype),
  store: `(({space} ${TYPES[dtype]}*)({ptr}))[${lanes.own}] = {reg};`,
});

const side = (shared: boolean): string => (shared ? ", one factor common to all lanes" : "");

/** What all rows of some lanes say. */
const onLanes = ({ isa, source }: Lanes) =>
  ({ family: "lanes", isa, language: "opencl", scope: "subgroup", source }) as const;

/** A product in each lane. */
interface Product extends Pick<IntrinsicSpec, "name" | "summary" | "emit" | "cost"> {
  readonly a: Type;
  readonly b: Type;
  readonly sum: "f32" | "s32";
}

const floats = (cost: Cost): Product => ({
  name: "fma.f32",
  summary: "f32 multiply-adds on lanes",
  a: "f32",
  b: "f32",
  sum: "f32",
  emit: "{c} = fma({a}, {b}, {c});",
  cost,
});

/** Products of bytes, each a product of 24 bits. */
const bytes = (a: "u8" | "s8"): Product => ({
  name: `mad.s32.${typesOf(a, "s8")}`,
  summary: `products of ${a} by s8 on lanes, added to sums in s32`,
  a,
  b: "s8",
  sum: "s32",
  // Unsigned, because overflow of a signed sum is undefined.
  emit: "{c} = as_int(as_uint({c}) + as_uint(mul24({a}, {b})));",
  cost: GEN9_BYTES,
});

/** @param shared whether all lanes share one factor */
function multiplyAdd(lanes: Lanes, { name, summary, a, b, sum, ...facts }: Product, shared: boolean): Intrinsic {
  return tableRow({
    ...onLanes(lanes),
    ...facts,
    name: `${lanes.named}.${name}${suffix(shared)}`,
    summary: `${lanes.count} ${summary}${side(shared)}.`,
    compute: multiplyAddOf(sum, a, shared),
    extents: { n: lanes.count },
    operands: { a: operand(lanes, a, shared), b: operand(lanes, b), c: result(lanes, sum) },
  });
}

/** Four bytes for each lane. */
const fourBytes = ({ own }: Lanes, dtype: "u8" | "s8", shared: boolean): OperandSpec => ({
  dtype,
  storage: "warp_lane4[4*n + k]",
  load: `{reg} = vload4(${shared ? "0" : own}, ({space} const ${TYPES[dtype]}*)({ptr}));`,
});

/** u8 by s8 has no instruction: (u - 128) * s + 128 * s are two of s8. */
const MIXED =
  "{c} = as_int(as_uint(arm_dot_acc(as_char4(as_uint({a}) ^ 0x80808080u), {b}, {c})) - as_uint(arm_dot((char4)(-128), {b})));";

function dots(lanes: Lanes, a: "u8" | "s8", shared: boolean): Intrinsic {
  const isMixed = a === "u8";
  return tableRow({
    ...onLanes(lanes),
    name: `${lanes.named}.dot.s32.${typesOf(a, "s8")}${suffix(shared)}`,
    features: ["cl_arm_integer_dot_product_int8", "cl_arm_integer_dot_product_accumulate_int8"],
    summary: `${lanes.count} dot products of four ${a} by s8 on lanes, added to sums in s32${side(shared)}.`,
    compute: dotOf("s32", shared),
    extents: { n: lanes.count, k: 4 },
    operands: { a: fourBytes(lanes, a, shared), b: fourBytes(lanes, "s8", false), c: result(lanes, "s32") },
    emit: isMixed ? MIXED : "{c} = arm_dot_acc({a}, {b}, {c});",
    cost: isMixed
      ? { issueCycles: 4, latencyCycles: 16, source: "assumed: an exclusive or, two dot products and a subtraction" }
      : {
          issueCycles: 1,
          latencyCycles: 4,
          source: "assumed: a dot product of four bytes as often as an f32 multiply-add",
        },
    source: "OpenCL extension cl_arm_integer_dot_product_accumulate_int8, int arm_dot_acc(char4, char4, int)",
  });
}

export const GEN9_ROWS: readonly Intrinsic[] = BOTH.flatMap((shared) => [
  multiplyAdd(GEN9_LANES, floats(unitCost(GEN9, "fma")), shared),
  ...(["u8", "s8"] as const).map((a) => multiplyAdd(GEN9_LANES, bytes(a), shared)),
]);

export const MALI_LANES: readonly Intrinsic[] = BOTH.flatMap((shared) => [
  multiplyAdd(G76_LANES, floats(G76_FLOATS), shared),
  ...(["s8", "u8"] as const).map((a) => dots(G76_LANES, a, shared)),
]);
