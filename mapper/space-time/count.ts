/**
 * @file Counts transforms without enumerating them, before equal designs are merged.
 *
 *     conv1d, entries in -1 .. 1:  81 transforms, 48 of full rank, 40 unimodular
 *     GEMM, entries in -2 .. 2:    1,953,125 transforms, 1,647,744 of full rank, 135,408 unimodular
 *
 * det T pairs the minors of the rows of P with those of the rows of s, and few minors are different.
 */

import { sumOf, upTo } from "../../abstraction/collections.ts";
import type { ArrayProblem } from "./problem.ts";
import { keepsOrder } from "./validity.ts";
import { choices, minorsOf, type Vector, vectorsWithin } from "./vector.ts";

export interface TransformCount {
  /** Matrices with bounded entries. */
  readonly candidates: number;
  /** Of full rank, with no fixed dependence backwards. */
  readonly valid: number;
  readonly unimodular: number;
}

export function countTransforms(problem: ArrayProblem, bound: number, arrayRows: number): TransformCount {
  const loops = problem.loops.length;
  const pair = pairingOf(loops, arrayRows);
  const arrays = minorsWithin(loops, arrayRows, bound, () => true);
  const times = minorsWithin(loops, loops - arrayRows, bound, (schedule) => keepsOrder(problem, schedule));
  let valid = 0;
  let unimodular = 0;
  for (const a of arrays)
    for (const t of times) {
      const det = pair(a.minors, t.minors);
      if (det !== 0) valid += a.count * t.count;
      if (det === 1 || det === -1) unimodular += a.count * t.count;
    }
  return { candidates: (2 * bound + 1) ** (loops * loops), valid, unimodular };
}

/** The minors that so many bounded rows can have, each with how many choices of rows have them. */
function minorsWithin(
  length: number,
  rows: number,
  bound: number,
  keep: (rows: readonly Vector[]) => boolean,
): { minors: Vector; count: number }[] {
  const vectors = vectorsWithin(length, bound);
  const found = new Map<string, { minors: Vector; count: number }>();
  const choose = (chosen: readonly Vector[]): void => {
    if (chosen.length < rows) {
      for (const v of vectors) choose([...chosen, v]);
      return;
    }
    if (!keep(chosen)) return;
    const minors = minorsOf(chosen);
    const known = found.get(minors.join());
    if (known) known.count++;
    else found.set(minors.join(), { minors, count: 1 });
  };
  choose([]);
  return [...found.values()];
}

/** The determinant of rows on rows from their minors (Laplace's expansion), up to what all pairs share: its sign. */
export function pairingOf(length: number, rows: number): (above: Vector, below: Vector) => number {
  const below = choices(length, length - rows);
  const terms = choices(length, rows).map((columns, i) => {
    const others = upTo(length).filter((c) => !columns.includes(c));
    return {
      above: i,
      below: below.findIndex((c) => c.every((x, j) => x === others[j])),
      sign: sumOf(columns) % 2 === 0 ? 1 : -1,
    };
  });
  return (a, b) => {
    let sum = 0;
    for (const t of terms) sum += t.sign * (a[t.above] ?? 0) * (b[t.below] ?? 0);
    return sum;
  };
}
