/**
 * @file Small integer vectors: loops as coordinates, dependences, rows of a transform.
 *
 *     dot([0, 1], [-1, 1])  =  1           steps between a value and its use: s . d
 *     primitive([2, -4])    =  [1, -2]     the direction, first entry that is not 0 positive
 */

import { upTo } from "../../abstraction/collections.ts";

/** Integers: a point, a dependence, a row of a transform. */
export type Vector = readonly number[];

/** Rounded at most once, so that a result of 0 or 1 is exact: with long loops, products far above 2^53 cancel. */
export function dot(a: Vector, b: Vector): number {
  let sum = 0;
  let size = 0;
  for (let i = 0; i < a.length; i++) {
    const product = (a[i] ?? 0) * (b[i] ?? 0);
    sum += product;
    size += Math.abs(product);
  }
  return size <= Number.MAX_SAFE_INTEGER ? sum : Number(a.reduce((s, x, i) => s + BigInt(x) * BigInt(b[i] ?? 0), 0n));
}

export const scaled = (v: Vector, factor: number): number[] => v.map((x) => (x === 0 ? 0 : x * factor));
export const plus = (a: Vector, b: Vector): number[] => a.map((x, i) => x + (b[i] ?? 0));
export const isZero = (v: Vector): boolean => v.every((x) => x === 0);
export const equals = (a: Vector, b: Vector): boolean => a.length === b.length && a.every((x, i) => x === b[i]);
export const unit = (length: number, at: number): number[] => upTo(length).map((i) => (i === at ? 1 : 0));

export function gcd(a: number, b: number): number {
  let x = Math.abs(a);
  let y = Math.abs(b);
  while (y !== 0) [x, y] = [y, x % y];
  return x;
}

export const leastCommonMultiple = (a: number, b: number): number => (a / gcd(a, b)) * b;

/** A sum of vectors, each so many times. */
export function combination(vectors: readonly Vector[], times: Vector): Vector {
  const nothing = (vectors[0] ?? []).map(() => 0);
  return vectors.reduce<Vector>((sum, v, i) => plus(sum, scaled(v, times[i] ?? 0)), nothing);
}

/** The direction of a vector: divided by the gcd of its entries, with a positive first nonzero entry. */
export function primitive(v: Vector): number[] {
  const divisor = v.reduce(gcd, 0);
  const lead = v.find((x) => x !== 0) ?? 0;
  return divisor === 0 ? [...v] : v.map((x) => (x === 0 ? 0 : x / (lead < 0 ? -divisor : divisor)));
}

/** The number of values that a row takes over a box of extents: `1 + sum of |r_i| (N_i - 1)`. */
export function extentOfRow(row: Vector, extents: Vector): number {
  return row.reduce((sum, r, i) => sum + Math.abs(r) * ((extents[i] ?? 1) - 1), 1);
}

/** The smallest value of a row over the box. */
export function leastOfRow(row: Vector, extents: Vector): number {
  return row.reduce((sum, r, i) => sum + Math.min(0, r) * ((extents[i] ?? 1) - 1), 0);
}

/** Every vector with entries in `-bound .. bound`. */
export function vectorsWithin(length: number, bound: number): number[][] {
  if (length === 0) return [[]];
  const entries = upTo(2 * bound + 1).map((i) => i - bound);
  return vectorsWithin(length - 1, bound).flatMap((v) => entries.map((e) => [...v, e]));
}

/** The directions among them, each once. */
export function directionsWithin(length: number, bound: number): number[][] {
  return vectorsWithin(length, bound).filter((v) => !isZero(v) && equals(v, primitive(v)));
}

/** `(1,-1)` */
export const printVector = (v: Vector): string => `(${v.join(",")})`;

/** `[1 1; 0 1]` */
export const printMatrix = (rows: readonly Vector[]): string => `[${rows.map((r) => r.join(" ")).join("; ")}]`;
