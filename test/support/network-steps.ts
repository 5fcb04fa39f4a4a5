/**
 * @file Computations as networks have them beside their products: windows, sums, functions of floats, moves,
 * comparisons.
 */

import { type Computation, defineComputation } from "../../abstraction/computation.ts";

/** Of f32 alone. @param shape of `x`, where it is not that of the loops */
export const f32 = (
  name: string,
  equation: string,
  extents: Readonly<Record<string, number>>,
  shape?: readonly number[],
): Computation =>
  defineComputation({
    name,
    equation,
    extents,
    tensors: Object.fromEntries(
      ["x", "b", "m"]
        .filter((t) => equation.includes(`${t}[`))
        .map((t) => [t, { dtype: "f32", ...(t === "x" && shape ? { shape } : {}) }]),
    ),
  });

/** Steps with an index that is read, of any number: what they read lies inside. */
export const INDEXED_STEPS: readonly Computation[] = [
  defineComputation({
    name: "indexed rows",
    equation: "y[i,h] = table[wrap(ids[i]),h] + b[i,h]",
    extents: { i: 11, h: 72 },
    tensors: { ids: "s32", table: { dtype: "f32", shape: [9, 72] }, b: "f32" },
  }),
  defineComputation({
    name: "indexed elements",
    equation: "y[i,j] = x[clamp(ids[i,j]),j]",
    extents: { i: 6, j: 70 },
    tensors: { ids: "s16", x: { dtype: "s8", shape: [5, 70] } },
  }),
  defineComputation({
    name: "indexed sums",
    equation: "y[i] += x[i,reflect(ids[j])] * f32(ids[j])",
    extents: { i: 7, j: 90 },
    tensors: { ids: "u8", x: { dtype: "f32", shape: [7, 12] } },
  }),
];

/** What networks compute beside their products. */
export const NETWORK_STEPS: readonly Computation[] = [
  f32(
    "largest of windows",
    "y[n,c,p,q] max= x[n,c,p*2+r-1,q*2+s-1]",
    { n: 2, c: 3, p: 7, q: 9, r: 3, s: 3 },
    [2, 3, 13, 17],
  ),
  f32(
    "mean of windows",
    "t[c,p,q] += x[c,p+r-1,q+s-1]; y[c,p,q] = t[c,p,q] / 9",
    { c: 5, p: 6, q: 150, r: 3, s: 3 },
    [5, 6, 150],
  ),
  f32("mean of images", "t[n,c] += x[n,c,h,w]; y[n,c] = t[n,c] / 49", { n: 2, c: 37, h: 7, w: 7 }),
  f32("largest of rows", "m[i] max= x[i,j]", { i: 9, j: 1001 }),
  f32("sums of powers", "s[i] += exp(x[i,j] - m[i])", { i: 9, j: 1001 }),
  f32("gelu", "y[i,j] = 0.5 * x[i,j] * (1 + erf(x[i,j] * 0.70710678))", { i: 13, j: 97 }),
  f32("sigmoid and tanh", "y[i] = tanh(x[i]) / (1 + exp(0 - x[i]))", { i: 5000 }),
  f32("logarithm", "y[i] = log(1.5 + x[i] * x[i]) + sqrt(x[i] * x[i])", { i: 777 }),
  f32("bias", "y[n,c,p,q] = max(x[n,c,p,q] + b[c], 0)", { n: 2, c: 7, p: 14, q: 14 }),
  f32("transposed", "y[i,j,k] = x[k,i,j]", { i: 17, j: 33, k: 5 }),
  f32("joined", "y[c,p] = select(c < 3, x[c,p], b[c-3,p])", { c: 5, p: 90 }),
  f32("joined along rows", "y[c,p] = select(p < 33, x[c,p], b[c,p-33])", { c: 5, p: 90 }),
  f32("positive alone", "y[i,j] = select(x[i,j] > 0, x[i,j], b[j] * x[i,j])", { i: 9, j: 130 }),
  f32("compared and placed", "y[i,j] = select(x[i,j] >= m[i] and j < 100, exp(b[j]), 0)", { i: 9, j: 130 }),
  defineComputation({
    name: "place of the largest",
    equation: "y[i] min= select(x[i,j] == m[i], j, 2147483647)",
    extents: { i: 40, j: 70 },
    tensors: { y: { dtype: "s32" }, x: { dtype: "s8" }, m: { dtype: "s8" } },
  }),
  defineComputation({
    name: "rows of a table",
    equation: "y[i,h] += select(ids[i] == v, table[v,h], 0)",
    extents: { i: 11, h: 70, v: 9 },
    tensors: { ids: { dtype: "s32" }, table: { dtype: "f32" } },
  }),
  ...INDEXED_STEPS,
  f32("shifted twice", "y[c,p] = x[c-1,p-1] + b[c,p+1]", { c: 5, p: 90 }),
  f32("padded", "y[i,j] = x[i-2,j-3]", { i: 20, j: 40 }, [16, 35]),
  defineComputation({
    name: "requantised",
    equation: "y[i,j] = sat_u8(round(f32(x[i,j]) * 0.0625))",
    extents: { i: 31, j: 70 },
    tensors: { x: "s32" },
  }),
  defineComputation({ name: "halves", equation: "y[i] = x[i] * x[i] + 1", extents: { i: 999 }, tensors: { x: "f16" } }),
  defineComputation({ name: "bytes", equation: "m[c] max= x[c,p]", extents: { c: 6, p: 300 }, tensors: { x: "s8" } }),
];
