/**
 * @file Computations whose arrays are known from papers and slides, on boxes large enough to show every symmetry.
 */

import { type Computation, defineComputation } from "../../abstraction/computation.ts";
import { arrayPass } from "../../mapper/space-time/derive.ts";
import type { ArrayProblem } from "../../mapper/space-time/problem.ts";

const f32 = (equation: string, extents: Readonly<Record<string, number>>, inputs: readonly string[]): Computation =>
  defineComputation({ equation, extents, tensors: Object.fromEntries(inputs.map((name) => [name, "f32"] as const)) });

/** A tile of 16 outputs and a filter of 5, as in the published table. */
export const conv1d = (stride = 1, extents = { c: 16, q: 5 }): Computation =>
  f32(stride === 1 ? "z[c] += x[c+q] * w[q]" : `z[c] += x[c*${stride}+q] * w[q]`, extents, ["x", "w"]);

export const gemm = (extent = 16): Computation =>
  f32("c[i,j] += a[i,k] * b[k,j]", { i: extent, j: extent, k: extent }, ["a", "b"]);

/** One row of outputs of a 2-D convolution: c output column, p filter row, q filter column. */
export const conv2d = (p = 5, q = 5, c = 16): Computation => f32("z[c] += x[p,c+q] * w[p,q]", { c, p, q }, ["x", "w"]);

export const problemOf = (computation: Computation): ArrayProblem =>
  arrayPass(computation, { loops: computation.axes.map((a) => a.name) }).problem;

/** Sums formed in the order they are written in. */
export const inOrder = (problem: ArrayProblem): ArrayProblem => ({
  ...problem,
  operands: problem.operands.map((o) => (o.role === "output" ? { ...o, order: "fixed" as const } : o)),
});
