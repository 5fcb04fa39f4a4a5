/**
 * @file Pairs blocks that a condition excludes with blocks that it keeps, so that the zeros of the former are stored during the products of the
 * latter. Stores wait for memory while products do not. In a row of empty blocks every store would wait for the one before.
 *
 *     j <= i           o - - -      opposite: each block also stores the block at its
 *                      o o - -      point reflection in the grid
 *                      o o o -
 *
 *     |i - j| < w      o o - - - -      shifted by 2, twice: block 0 also stores blocks 2 and 4;
 *                      o o o - - -      positions wrap around at the end of the row
 *                      - o o o - -
 *
 * Blocks are numbered by their position in each dimension that the condition relates. The map from a block to its
 * companions is one-to-one, so a block can compute which block stores it.
 */

import { indicesOf, sumOf, upTo } from "../../abstraction/collections.ts";

/** Block numbers, one for each dimension of the grid. */
type Place = readonly number[];

export type Companions =
  | { readonly kind: "opposite" }
  /**
   * The block at `n` along `dimension` stores those at `n + distance`, `n + 2 * distance`, ..., `times` of them, modulo
   * the count.
   */
  | { readonly kind: "shifted"; readonly dimension: number; readonly distance: number; readonly times: number };

/** Larger grids are not searched block by block. 4096 blocks take a few milliseconds. */
const MOST_PLACES = 4096;

/**
 * Chooses the companions that leave the fewest empty blocks without a partner.
 * @param counts blocks along each dimension
 * @param takesPart whether a block has at least one point
 */
export function companionsOf(counts: readonly number[], takesPart: (place: Place) => boolean): Companions {
  const opposite: Companions = { kind: "opposite" };
  const all = indicesOf(counts);
  if (all.length > MOST_PLACES) return opposite;
  const working = new Set(all.filter(takesPart).map(String));
  const places = all.filter((p) => working.has(String(p)));
  const covered = (of: Companions): number =>
    sumOf(places, (p) => placesOf(of, p, counts).filter((c) => !working.has(String(c))).length);
  const shifted = counts.flatMap((count, dimension): Companions[] => {
    const distance = longest(places, dimension);
    // The last shift may wrap around to a block that has points. Nothing is stored for it then.
    const times = distance === 0 ? 0 : Math.ceil(count / distance) - 1;
    return times > 0 ? [{ kind: "shifted", dimension, distance, times }] : [];
  });
  return [opposite, ...shifted].reduce((best, other) => (covered(other) > covered(best) ? other : best));
}

/** The longest span along a dimension from the first block with points to the last, in blocks. */
function longest(places: readonly Place[], dimension: number): number {
  const ends = new Map<string, { first: number; last: number }>();
  for (const p of places) {
    const at = p[dimension] ?? 0;
    const beside = String(p.map((n, d) => (d === dimension ? 0 : n)));
    const { first = at, last = at } = ends.get(beside) ?? {};
    ends.set(beside, { first: Math.min(first, at), last: Math.max(last, at) });
  }
  return Math.max(0, ...[...ends.values()].map(({ first, last }) => last - first + 1));
}

function placesOf(of: Companions, place: Place, counts: readonly number[]): Place[] {
  const count = (d: number): number => counts[d] ?? 1;
  if (of.kind === "opposite") return [place.map((n, d) => count(d) - 1 - n)];
  return upTo(of.times).map((t) =>
    place.map((n, d) => (d === of.dimension ? (n + (t + 1) * of.distance) % count(d) : n)),
  );
}
