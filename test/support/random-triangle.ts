/**
 * @file Random triangular and banded computations: products, attention scores, convolutions, under conditions that tie their loops.
 *
 *     randomTriangle(random)     c[h,i,j] += f32(q[h,i,k]) * f32(p[h,j,k]) where i - j <= 5 and j - i <= 6     on avx512.vdpbf16ps
 */

import { type Computation, defineComputation } from "../../abstraction/computation.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import { pick, type Random, randomInteger } from "../../abstraction/random.ts";
import { rowNamed } from "./subjects.ts";

/** Kept and summed loops by their largest extent. */
interface Base {
  readonly target: string;
  readonly factors: readonly [string, string];
  readonly kept: Readonly<Record<string, number>>;
  readonly summed: Readonly<Record<string, number>>;
}

const BASES: readonly Base[] = [
  { target: "c[i,j]", factors: ["x[i,k]", "y[k,j]"], kept: { i: 40, j: 40 }, summed: { k: 12 } },
  { target: "c[i,j]", factors: ["x[i,k]", "y[j,k]"], kept: { i: 40, j: 40 }, summed: { k: 20 } },
  { target: "c[h,i,j]", factors: ["x[h,i,k]", "y[h,j,k]"], kept: { h: 2, i: 33, j: 33 }, summed: { k: 8 } },
  { target: "c[j,i]", factors: ["x[i,k]", "y[k,j]"], kept: { i: 40, j: 40 }, summed: { k: 12 } },
  { target: "c[i,j+1]", factors: ["x[i,k]", "y[k,j]"], kept: { i: 20, j: 36 }, summed: { k: 6 } },
  { target: "c[i]", factors: ["x[i,k]", "y[k]"], kept: { i: 40 }, summed: { k: 40 } },
  { target: "c[i,j]", factors: ["x[i,k,l]", "y[l,k,j]"], kept: { i: 20, j: 36 }, summed: { k: 8, l: 5 } },
  {
    target: "c[p,q,k]",
    factors: ["x[p+r,q+s,z]", "y[k,r,s,z]"],
    kept: { p: 7, q: 9, k: 18 },
    summed: { r: 3, s: 2, z: 6 },
  },
];

/** Instructions whose tiles are cut from computations in many ways: vectors, dot products, tiles, one of the tests. */
export const CUTTING = [
  "avx512.fma.f32.broadcast",
  "avx512.fma.f32",
  "avx512.vpdpbusd",
  "avx512.vpdpbusd.lanes",
  "avx512.vdpbf16ps",
  "amx.tdpbusd",
  "toy.2x2x2",
];

export function randomTriangle(random: Random): { readonly computation: Computation; readonly intrinsic: Intrinsic } {
  const { target, factors, kept, summed } = pick(random, BASES);
  const intrinsic = rowNamed(pick(random, CUTTING));
  const [c, a, b] = intrinsic.operands.map((o) => o.dtype);
  if (c === undefined || a === undefined || b === undefined) throw new Error(`${intrinsic.name} is no product`);
  const value = factors.map((f) => (a === c ? f : `${c}(${f})`)).join(" * ");
  const where = randomTie(random, Object.keys(kept), Object.keys(summed));
  const covers = !target.includes("+");
  const ending = covers && random() < 0.2 ? `; res${target.slice(1)} = max(${target} + 3, 1)` : "";
  const most = { ...kept, ...summed };
  const computation = defineComputation({
    name: "triangle",
    equation: `${target} += ${value} where ${where}${ending}`,
    extents: Object.fromEntries(Object.entries(most).map(([l, extent]) => [l, randomInteger(random, 1, extent)])),
    tensors: { x: { dtype: a, constant: random() < 0.2 }, y: { dtype: b, constant: random() < 0.2 }, c: { dtype: c } },
  });
  return { computation, intrinsic };
}

/** Mostly comparisons of two kept loops; summed ones, remainders and choices among them. */
export function randomTie(random: Random, kept: readonly string[], summed: readonly string[]): string {
  const all = [...kept, ...summed];
  const one = (): string => {
    const pool = random() < 0.6 && kept.length > 1 ? kept : all;
    const a = pick(random, pool);
    const b = pick(random, pool);
    const some = randomInteger(random, -3, 6);
    return pick(random, [
      `${a} <= ${b} + ${some}`,
      `${a} - ${b} < ${some}`,
      `${a}*2 >= ${b} + ${some}`,
      `${a} + ${b} <= ${Math.abs(some) * 4}`,
      `${a} == ${b}`,
      `(${a} + ${b}) % 2 == 0`,
      `(${a} < ${b} or ${b} > ${Math.abs(some)})`,
      `${a} != ${b}`,
      `${a}/3 <= ${b}/2`,
      `${a} > ${some}`,
      `${a} + ${b}*2 >= ${pick(random, all)}`,
    ]);
  };
  if (random() < 0.3) {
    const a = pick(random, all);
    const b = pick(random, all);
    const width = randomInteger(random, 0, 9);
    return `${a} - ${b} <= ${width} and ${b} - ${a} <= ${width + 1}`;
  }
  return random() < 0.4 ? `${one()} and ${one()}` : one();
}
