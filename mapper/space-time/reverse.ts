/**
 * @file Computes the point that runs at a place and step: the inverse of a space-time transform.
 *
 *     k = c+q, t = q                       q = t, c = k-t                         det 1: integral everywhere
 *     k = 2c+q, t = q                      q = t, c = (k-t)/2 where (k-t)%2 == 0  det 2: one place in two holds a point
 *     k = c+q, t = p+5q                    t = 5*t1 + t2: two rows of time, (0,0,1) and (0,1,0)
 *     p = t%5, q = t/5, c = k-q            given by the user, later lines may use earlier ones: tried on every point
 */

import { evaluateIndex, extentsBy, offendingPart, pointsOf } from "../../abstraction/affine.ts";
import { namesOf, sortedBy } from "../../abstraction/collections.ts";
import { suggestion, UsageError } from "../../abstraction/error.ts";
import { axesIn, type Expr, printExpr } from "../../abstraction/expression.ts";
import type { SourceLoop, SpaceTime } from "../../abstraction/recurrence.ts";
import { determinant, dot, extentOfRow, isZero, printVector, type Vector } from "./vector.ts";

/** `numerators / denominator`, the denominator positive and not reduced. */
export interface Inverse {
  readonly numerators: readonly Vector[];
  readonly denominator: number;
}

/** The exact inverse of a square integer matrix, by its adjugate; undefined when it has none. */
export function inverseOf(matrix: readonly Vector[]): Inverse | undefined {
  const n = matrix.length;
  if (matrix.some((row) => row.length !== n)) return undefined;
  const det = determinant(matrix);
  if (det === 0) return undefined;
  const sign = Math.sign(det);
  const numerators = matrix.map((_, i) =>
    matrix.map((_, j) => {
      const minor = matrix.filter((_, r) => r !== j).map((row) => row.filter((_, c) => c !== i));
      return sign * ((i + j) % 2 === 0 ? 1 : -1) * determinant(minor) + 0;
    }),
  );
  return { numerators, denominator: Math.abs(det) };
}

/**
 * Rows of time, slowest first, that together with the allocation determine every loop: the schedule itself, or a single
 * row of mixed radix split into its parts, `(0,1,5)` into `(0,0,1)` and `(0,1,0)`. Undefined if there is no such split.
 */
export function rowsOfTime({ allocation, schedule }: SpaceTime, extents: Vector): readonly Vector[] | undefined {
  const wanted = extents.length - allocation.length;
  const invertible = (rows: readonly Vector[]): boolean => determinant([...allocation, ...rows]) !== 0;
  if (schedule.length === wanted) return invertible(schedule) ? schedule : undefined;
  const [row] = schedule;
  if (schedule.length !== 1 || !row || wanted < 2) return undefined;
  const split = (s: Vector, rows: number): Vector[][] => {
    if (rows === 1) return [[s]];
    const radices = sortedBy(
      [...new Set(s.map(Math.abs))].filter((x) => x > 1),
      (a) => -a,
    );
    return radices.flatMap((radix) => {
      const slow = s.map((x) => Math.trunc(x / radix) + 0);
      const fast = s.map((x, i) => x - radix * (slow[i] ?? 0));
      if (isZero(slow) || isZero(fast) || extentOfRow(slow, extents) === 1) return [];
      return split(fast, rows - 1)
        .filter((inner) => inner.every((r) => extentOfRow(r, extents) <= radix) && extentOfRow(fast, extents) <= radix)
        .map((inner) => [slow, ...inner]);
    });
  };
  return split(row, wanted).find(invertible);
}

/** One line of a reverse transform that a user gives: `q = t/5`. */
export interface ReverseDefinition {
  readonly loop: string;
  /** In terms of the destination loops and the loops defined before. */
  readonly value: Expr;
}

/**
 * Checks a user's reverse transform on every point.
 * @param destination names of the destination loops: dimensions of the array, then of time
 * @throws UsageError for a missing or unknown loop, and for the first point that is not mapped back
 */
export function checkReverse(
  subject: string,
  loops: readonly SourceLoop[],
  { allocation, schedule }: SpaceTime,
  destination: readonly string[],
  definitions: readonly ReverseDefinition[],
): void {
  const names = namesOf(loops);
  const known = new Set(destination);
  for (const { loop, value } of definitions) {
    if (!names.includes(loop))
      throw new UsageError(`${subject}: reverse transform: no source loop "${loop}"`, suggestion(loop, names));
    const offending = offendingPart(value);
    if (offending) throw new UsageError(`${subject}: reverse transform of ${loop}: ${offending.because}`);
    const strange = axesIn(value).find((name) => !known.has(name));
    if (strange !== undefined)
      throw new UsageError(
        `${subject}: reverse transform of ${loop} uses "${strange}", which is not known there`,
        `known: ${[...known].join(", ")}`,
      );
    known.add(loop);
  }
  const missing = names.find((name) => !definitions.some((d) => d.loop === name));
  if (missing !== undefined) throw new UsageError(`${subject}: the reverse transform does not give ${missing}`);
  const rows = [...allocation, ...schedule];
  for (const z of pointsOf(names, extentsBy(loops))) {
    const point = names.map((name) => z[name] ?? 0);
    const place = rows.map((row) => dot(row, point));
    const values: Record<string, number> = Object.fromEntries(destination.map((name, i) => [name, place[i] ?? 0]));
    for (const { loop, value } of definitions) values[loop] = evaluateIndex(value, values);
    const back = names.map((name) => values[name] ?? 0);
    if (back.join() !== point.join())
      throw new UsageError(
        `${subject}: the reverse transform does not invert: point ${printVector(point)} runs at (${destination.join(",")}) = ${printVector(place)}, which it takes to ${printVector(back)}`,
        `it says ${definitions.map((d) => `${d.loop} = ${printExpr(d.value, "index")}`).join(", ")}`,
      );
  }
}
