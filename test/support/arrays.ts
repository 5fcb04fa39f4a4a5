/**
 * @file Computations whose arrays are known from papers and slides, on boxes large enough to show every symmetry.
 */

import type { ArrayPlan } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import type { LoopNest } from "../../abstraction/loop-nest.ts";
import { arrayPass } from "../../mapper/space-time/derive.ts";
import { placeArray } from "../../mapper/space-time/lane-array.ts";
import { lowerPlaced } from "../../mapper/space-time/lower-array.ts";
import type { ArrayProblem } from "../../mapper/space-time/problem.ts";
import { stated } from "./subjects.ts";

/** A tile of 16 outputs and a filter of 5, as in the published table. */
export const conv1d = (stride = 1, { c, q } = { c: 16, q: 5 }): Computation =>
  stated(`z[c] += x[${stride === 1 ? "c" : `c*${stride}`}+q] * w[q] --c ${c} --q ${q}`);

export const gemm = (extent = 16): Computation =>
  stated(`c[i,j] += a[i,k] * b[k,j] --i ${extent} --j ${extent} --k ${extent}`);

/** One row of outputs of a 2-D convolution: c output column, p filter row, q filter column. */
export const conv2d = (p = 5, q = 5, c = 16): Computation =>
  stated(`z[c] += x[p,c+q] * w[p,q] --c ${c} --p ${p} --q ${q}`);

export const problemOf = (computation: Computation): ArrayProblem =>
  arrayPass(computation, { loops: computation.axes.map((a) => a.name) }).problem;

/** Sums formed in the order they are written in. */
export const inOrder = (problem: ArrayProblem): ArrayProblem => ({
  ...problem,
  operands: problem.operands.map((o) => (o.role === "output" ? { ...o, order: "fixed" as const } : o)),
});

/**
 * Lowers a design.
 * @param words whether lanes hold 16 bits
 * @throws Error if {@link placeArray} refuses the schedule
 */
export function lowerArray(computation: Computation, schedule: ArrayPlan, words = false): LoopNest {
  const placed = placeArray(computation, schedule);
  if (!placed.ok) throw new Error(`internal: ${placed.refusal.because}`);
  return lowerPlaced(computation, placed.array, schedule.inputs, words);
}
