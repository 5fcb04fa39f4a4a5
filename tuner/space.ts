/**
 * @file The search space as a strategy sees it. Strategies know candidates only through this interface, so that a test can use a grid of
 * numbers.
 */

import type { Random } from "../abstraction/random.ts";

/** `C` is plain data that survives JSON: equal data is the same candidate. */
export interface SearchSpace<C> {
  /** Number of candidates; undefined when unknown. */
  readonly size: number | undefined;
  /** The identity of a candidate. */
  key(candidate: C): string;
  /** A random candidate. */
  random(random: Random): C;
  /** A valid neighbour; may be the candidate itself. */
  mutate(candidate: C, random: Random): C;
  /** A valid combination of both. */
  crossover(a: C, b: C, random: Random): C;
  /** Every candidate; finite when `size` is known. */
  all(): Iterable<C>;
  /** Candidates predicted to be good when the space was built: a guided strategy begins with them. */
  readonly promising?: readonly C[];
  /** One candidate of each kind that must be compared by measurement: a guided strategy proposes them before anything else. */
  readonly representatives?: readonly C[];
  /**
   * Candidates that were fast elsewhere, the most promising first: a guided strategy measures them in turns with those of the model, which come first
   * where it expects far more time of the others.
   */
  readonly transferred?: readonly C[];
  /** The model that predicts a candidate, by name: models err by a factor each. Left out where there is one. */
  modelOf?(candidate: C): string;
  /** Distance between two candidates, 0 for equal ones; when left out, the number of leaves that differ. */
  distance?(a: C, b: C): number;
  /** Instructions written in the kernel's code: of candidates expected to be about as fast, a guided strategy prefers the shorter. */
  codeSize?(candidate: C): number;
}

export function distanceIn<C>(space: SearchSpace<C>, a: C, b: C): number {
  return space.distance?.(a, b) ?? leavesApart(a, b);
}

/** Number of leaves (numbers and strings) in which two pieces of plain data differ: `{ tile: [4, 8] }` and `{ tile: [4, 2] }` are 1 apart. */
export function leavesApart(a: unknown, b: unknown): number {
  if (a === b) return 0;
  if (!isBranch(a) || !isBranch(b)) return 1;
  const names = new Set([...Object.keys(a), ...Object.keys(b)]);
  return [...names].reduce((sum, name) => sum + leavesApart(a[name], b[name]), 0);
}

function isBranch(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null;
}
