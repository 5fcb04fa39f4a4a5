/**
 * @file Small integer vectors: loops as coordinates, dependences, rows of a transform.
 *
 *     dot([0, 1], [-1, 1])  =  1           steps between a value and its use: s . d
 *     primitive([2, -4])    =  [1, -2]     the direction, first entry that is not 0 positive
 *
 * Lattices of integer vectors: the Hermite normal form, and with it the null space of an access map.
 *
 *     nullSpace([[1, 1]], 2)                          [[1, -1]]                    x[c+q] is one element along (1,-1)
 *     nullSpace([[1, 0, 0, 1], [0, 1, 1, 0]], 4)      [[1, 0, 0, -1], [0, 1, -1, 0]]
 */

import { gcd } from "../../abstraction/affine.ts";
import { sortedBy, upTo } from "../../abstraction/collections.ts";

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
const equals = (a: Vector, b: Vector): boolean => a.length === b.length && a.every((x, i) => x === b[i]);
export const unit = (length: number, at: number): number[] => upTo(length).map((i) => (i === at ? 1 : 0));

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

// ---- lattices --------------------------------------------------------------------------------------------------------------------

/**
 * The row-style Hermite normal form of the lattice that rows span: echelon form, pivots positive, entries above a pivot
 * reduced to `0 .. pivot-1`. Rows of zeros are dropped. Two sets of rows span the same lattice exactly when their forms
 * are equal.
 */
export function hermiteForm(rows: readonly Vector[]): number[][] {
  const form = rows.map((r) => [...r]);
  const width = Math.max(0, ...rows.map((r) => r.length));
  let top = 0;
  for (let column = 0; column < width && top < form.length; column++) {
    // 1. Euclid's algorithm among the rows below leaves one nonzero entry in the column.
    for (;;) {
      const below = form.map((row, i) => ({ row, i })).filter(({ row, i }) => i >= top && row[column] !== 0);
      const [least] = sortedBy(below, (a) => Math.abs(a.row[column] ?? 0));
      if (!least) break;
      const lead = form[top] ?? [];
      form[top] = least.row;
      form[least.i] = lead;
      if (below.length === 1) break;
      for (let i = top + 1; i < form.length; i++) subtract(form, i, top, column);
    }
    const pivot = form[top];
    if (!pivot || (pivot[column] ?? 0) === 0) continue;
    // 2. Make the pivot positive and reduce the entries above it.
    if ((pivot[column] ?? 0) < 0) form[top] = pivot.map((x) => (x === 0 ? 0 : -x));
    for (let i = 0; i < top; i++) subtract(form, i, top, column);
    top++;
  }
  return form.slice(0, top);
}

/** Subtracts row `from` from row `i` until its entry in the column is in `0 .. pivot-1`. */
function subtract(form: number[][], i: number, from: number, column: number): void {
  const pivot = form[from] ?? [];
  const times = Math.floor((form[i]?.[column] ?? 0) / (pivot[column] ?? 1));
  if (times !== 0) form[i] = (form[i] ?? []).map((x, j) => x - times * (pivot[j] ?? 0));
}

/** A basis, in Hermite form, of all integer vectors of a length that every row of the matrix maps to 0. */
export function nullSpace(matrix: readonly Vector[], length: number): number[][] {
  // Row operations on [A^T | I] are unimodular. Where the left part is 0, the right part is a basis of the lattice
  // itself, not of a multiple.
  const extended = upTo(length).map((i) => [
    ...matrix.map((row) => row[i] ?? 0),
    ...upTo(length).map((j) => (i === j ? 1 : 0)),
  ]);
  const form = hermiteForm(extended).filter((row) => row.slice(0, matrix.length).every((x) => x === 0));
  return form.map((row) => row.slice(matrix.length));
}

/**
 * All a x a minors of a rows, columns in lexicographic order (Pluecker coordinates): they determine the plane but not
 * its basis.
 */
export function minorsOf(rows: readonly Vector[]): number[] {
  const width = rows[0]?.length ?? 0;
  return choices(width, rows.length).map((columns) => determinant(rows.map((r) => columns.map((c) => r[c] ?? 0))));
}

/** Choices of `count` of the numbers below `length`, in lexicographic order. */
export function choices(length: number, count: number, from = 0): number[][] {
  if (count === 0) return [[]];
  const result: number[][] = [];
  for (let first = from; first <= length - count; first++)
    for (const rest of choices(length, count - 1, first + 1)) result.push([first, ...rest]);
  return result;
}

/** Expansion along the first row, which suffices for a few rows. */
export function determinant(matrix: readonly Vector[]): number {
  const [first, ...rest] = matrix;
  if (!first) return 1;
  let sum = 0;
  for (const [j, entry] of first.entries()) {
    if (entry === 0) continue;
    const minor = determinant(rest.map((row) => row.filter((_, column) => column !== j)));
    sum += (j % 2 === 0 ? 1 : -1) * entry * minor;
  }
  return sum;
}
