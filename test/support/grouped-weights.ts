/** @file Products by narrow weights that fall into groups with scales and zero points, lowered so that each load makes the weights. */

import type { Schedule } from "../../abstraction/candidate.ts";
import { type Computation, defineComputation, elementCount, tensorOf } from "../../abstraction/computation.ts";
import type { DType } from "../../abstraction/dtype.ts";
import { printExpr } from "../../abstraction/expression.ts";
import type { Inputs } from "../../abstraction/interpret.ts";
import type { LoopNest } from "../../abstraction/loop-nest.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { lowerSchedule } from "../../mapper/lower/scheduled.ts";
import { mappings } from "../../mapper/match/enumerate.ts";
import { smallInputs } from "./drawn/drawn.ts";
import { rowNamed } from "./subjects.ts";

const HALVES = "f32(select(j%2 == 0, w[n,g,j/2] % 16, w[n,g,j/2] / 16))";

const WEIGHTS = [
  { what: "bytes", weight: "(f32(w[n,g,j]) * s[n,g])", stored: "s8", tiles: "s8", bytes: 1 },
  {
    what: "bytes with a zero point",
    weight: "((f32(w[n,g,j]) - f32(z[n,g])) * s[n,g])",
    stored: "u8",
    tiles: "u8",
    bytes: 1,
  },
  { what: "bytes less a number", weight: "(f32(s32(w[n,g,j]) - 128) * s[n,g])", stored: "u8", tiles: "s8", bytes: 1 },
  { what: "half bytes", weight: `((${HALVES} - 8) * s[n,g])`, stored: "u8", tiles: "u8", bytes: 0.5 },
  { what: "half bytes without a scale", weight: HALVES, stored: "u8", tiles: "u8", bytes: 0.5 },
  {
    what: "half bytes with a zero point",
    weight: `((${HALVES} - f32(z[n,g])) * s[n,g])`,
    stored: "u8",
    tiles: "u8",
    bytes: 0.5,
  },
] as const;

const ROWS = ["avx512.fma.f32.inner", "avx512.fma.f32.broadcast", "avx2.fma.f32.broadcast"] as const;

/** Weights, the type and size in which they are packed, and an instruction that takes them. */
export const GROUPED_CASES = WEIGHTS.flatMap((one) => ROWS.map((row) => ({ ...one, row })));

interface Case {
  readonly weight: string;
  readonly stored: DType;
  readonly row: string;
  readonly group?: number;
}

/** @param more decisions that differ from a plain schedule's with tiles of both factors */
export function groupedNest(
  { weight, stored, row, group = 32 }: Case,
  more: Partial<Schedule> = {},
): {
  readonly computation: Computation;
  readonly mapping: Mapping;
  readonly nest: LoopNest;
  readonly inputs: Inputs;
} {
  const computation = defineComputation({
    name: "grouped",
    equation: `y[m,n] += x[m,${group}*g+j] * ${weight}`,
    extents: { m: 3, n: 40, g: 3, j: group },
    tensors: {
      x: { dtype: "f32" },
      w: { dtype: stored, constant: true },
      y: { dtype: "f32" },
      ...(weight.includes("s[") && { s: { dtype: "f32", constant: true } }),
      ...(weight.includes("z[") && { z: { dtype: "u8", constant: true } }),
    },
  });
  const mapping = madeMapping(computation, row);
  const nest = lowerSchedule(mapping, {
    order: ["m", "n", "g", "j"],
    block: { n: 2 },
    placement: { a: "tiled", b: "tiled" },
    threads: 1,
    ...more,
  });
  const w = Float64Array.from({ length: elementCount(tensorOf(computation, "w")) }, (_, i) =>
    stored === "s8" ? (i % 251) - 125 : (i * 37) % 256,
  );
  return { computation, mapping, nest, inputs: { ...smallInputs(computation, 3), w } };
}

/** The mapping onto an instruction whose `b` is made of all factors but x. */
export function madeMapping(computation: Computation, row: string): Mapping {
  const [intrinsic] = intrinsicsNamed(row);
  if (!intrinsic) throw new Error(`no ${row}`);
  const tensors = Object.keys(computation.tensors).filter((t) => t !== "y");
  const found = mappings(computation, intrinsic, { reasons: false }).valid.find(({ binding, matching }) => {
    const text = binding["b"] ? printExpr(binding["b"]) : "";
    const isPlain = Object.values(matching).every((loops) => loops.length <= 1);
    return isPlain && tensors.every((t) => text.includes(`${t}[`) === (t !== "x"));
  });
  if (!found) throw new Error(`${row} does not take the weights of ${printExpr(computation.equation.value)}`);
  return found;
}

export const SCALED_DOTS = rowNamed("avx512.vpdpbusd.scaled");

/** Sums of integers by group, scaled: half bytes less 8 or a zero point, times bytes that are read where they lie or from tiles. */
const ZEROS = [
  { what: "less 8", zero: "8" },
  { what: "less a zero point", zero: "s8(z[n,g])" },
] as const;
const SIZES = [
  { group: 32, read: "in-place" },
  { group: 64, read: "tiled" },
  { group: 128, read: "in-place" },
] as const;

export const SCALED_CASES = ZEROS.flatMap((zero) => SIZES.map((size) => ({ ...zero, ...size })));

export function scaledNest(
  { zero, group, read }: (typeof SCALED_CASES)[number],
  more: Partial<Schedule> = {},
): {
  readonly computation: Computation;
  readonly mapping: Mapping;
  readonly nest: LoopNest;
  readonly inputs: Inputs;
} {
  const groups = 2;
  const computation = defineComputation({
    name: "scaled",
    equation: `y[m,n] += f32(s32(x[m,${group}*g+2*b+h]) * s32(s8(select(h == 0, w[n,g,b] % 16, w[n,g,b] / 16)) - ${zero})) * (s[n,g] * t[m,g])`,
    extents: { m: 3, n: 40, g: groups, b: group / 2, h: 2 },
    tensors: {
      x: { dtype: "s8" },
      w: { dtype: "u8", constant: true },
      s: { dtype: "f32", constant: true },
      t: { dtype: "f32" },
      y: { dtype: "f32" },
      ...(zero !== "8" && { z: { dtype: "u8", constant: true } }),
    },
  });
  const [mapping] = mappings(computation, SCALED_DOTS, { reasons: false }).valid;
  if (!mapping) throw new Error("sums of integers by group map onto nothing");
  const nest = lowerSchedule(mapping, {
    order: ["m", "n", "g", "b_h"],
    block: { m: 2, n: 2 },
    placement: { a: read, b: "tiled", s: "tiled", t: read },
    threads: 1,
    ...more,
  });
  const filled = (tensor: string, at: (i: number) => number): Float64Array =>
    Float64Array.from({ length: elementCount(tensorOf(computation, tensor)) }, (_, i) => at(i));
  const inputs = {
    x: filled("x", (i) => ((i * 37) % 256) - 128),
    w: filled("w", (i) => (i * 89) % 256),
    s: filled("s", (i) => ((i % 7) + 1) / 64),
    t: filled("t", (i) => (i + 1) / 8),
    ...(zero !== "8" && { z: filled("z", (i) => (i * 5) % 16) }),
  };
  return { computation, mapping, nest, inputs };
}
