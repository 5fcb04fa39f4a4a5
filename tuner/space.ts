/** @file The space a search moves in. A strategy knows candidates only through it, so that a test can hand in a grid of numbers. */

import type { Random } from "../abstraction/random.ts";

/** `C` is plain data that survives JSON: equal data is the same candidate. */
export interface SearchSpace<C> {
  /** How many candidates there are; undefined when nobody has counted. */
  readonly size: number | undefined;
  /** The identity of a candidate. */
  key(candidate: C): string;
  /** One candidate, drawn. */
  random(random: Random): C;
  /** A valid neighbour; may be the candidate itself. */
  mutate(candidate: C, random: Random): C;
  /** A valid mixture of both. */
  crossover(a: C, b: C, random: Random): C;
  /** Every candidate; ends when `size` is known. */
  all(): Iterable<C>;
  /** Candidates that were expected to be good when the space was made: a guided strategy begins with them. */
  readonly promising?: readonly C[];
  /** One of each kind that shall be told apart by measuring: a guided strategy proposes them before anything else. */
  readonly representatives?: readonly C[];
  /** How different two candidates are, 0 for the same; the leaves that differ when left out. */
  distance?(a: C, b: C): number;
}

export function distanceIn<C>(space: SearchSpace<C>, a: C, b: C): number {
  return space.distance?.(a, b) ?? leavesApart(a, b);
}

/** Numbers and strings that differ between two pieces of plain data: `{ tile: [4, 8] }` and `{ tile: [4, 2] }` are 1 apart. */
export function leavesApart(a: unknown, b: unknown): number {
  if (a === b) return 0;
  if (!isBranch(a) || !isBranch(b)) return 1;
  const names = new Set([...Object.keys(a), ...Object.keys(b)]);
  return [...names].reduce((sum, name) => sum + leavesApart(a[name], b[name]), 0);
}

function isBranch(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null;
}
