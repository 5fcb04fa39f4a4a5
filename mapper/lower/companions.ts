/**
 * @file Pairs blocks that have no points with blocks that do, so that the former are stored during the latter's products. Stores wait for memory
 * and products do not; in a row of blocks without points each store would wait for the next.
 *
 *     j <= i           o - - -      the block opposite:        o stores the last block of the last row's mirror image
 *                      o o - -      one for one
 *                      o o o -
 *
 *     |i - j| < w      o o - - - -      every second block behind it, round the end of the row: 2 for each, of which 0 stores 2 and 4
 *                      o o o - - -
 *                      - o o o - -
 *
 * Blocks are numbered by their position in each dimension that the condition relates. Companions are given by a one-to-one map, so that each
 * block knows whose companion it is.
 */

/** Places in the dimensions of a grid of blocks. */
type Place = readonly number[];

export type Companions =
  | { readonly kind: "opposite" }
  /** Of the block at `n` along a dimension those at `n + distance`, `n + 2 * distance`, ... `times` of them, round the end. */
  | { readonly kind: "shifted"; readonly dimension: number; readonly distance: number; readonly times: number };

/** Of larger grids the places are not looked at one by one: 4096 of them take some milliseconds. */
const MOST_PLACES = 4096;

/**
 * The companions that leave the fewest blocks without points to themselves.
 * @param counts blocks of each dimension
 * @param takesPart whether some point of a block does
 */
export function companionsOf(counts: readonly number[], takesPart: (place: Place) => boolean): Companions {
  const opposite: Companions = { kind: "opposite" };
  const all = counts.reduce<number[][]>(
    (places, count) => places.flatMap((p) => Array.from({ length: count }, (_, n) => [...p, n])),
    [[]],
  );
  if (all.length > MOST_PLACES) return opposite;
  const working = new Set(all.filter(takesPart).map(String));
  const places = all.filter((p) => working.has(String(p)));
  const covered = (of: Companions): number =>
    places.reduce((sum, p) => sum + placesOf(of, p, counts).filter((c) => !working.has(String(c))).length, 0);
  const shifted = counts.flatMap((count, dimension): Companions[] => {
    const distance = longest(places, dimension);
    // The last of them may come round to the block itself, or beside it, where there is nothing to store.
    const times = distance === 0 ? 0 : Math.ceil(count / distance) - 1;
    return times > 0 ? [{ kind: "shifted", dimension, distance, times }] : [];
  });
  return [opposite, ...shifted].reduce((best, other) => (covered(other) > covered(best) ? other : best));
}

/** From the first to the last of the blocks along a dimension, where that is most. */
function longest(places: readonly Place[], dimension: number): number {
  const ends = new Map<string, { first: number; last: number }>();
  for (const p of places) {
    const [at, beside] = [p[dimension] ?? 0, String(p.map((n, d) => (d === dimension ? 0 : n)))];
    const { first = at, last = at } = ends.get(beside) ?? {};
    ends.set(beside, { first: Math.min(first, at), last: Math.max(last, at) });
  }
  return Math.max(0, ...[...ends.values()].map(({ first, last }) => last - first + 1));
}

function placesOf(of: Companions, place: Place, counts: readonly number[]): Place[] {
  const count = (d: number): number => counts[d] ?? 1;
  if (of.kind === "opposite") return [place.map((n, d) => count(d) - 1 - n)];
  return Array.from({ length: of.times }, (_, t) =>
    place.map((n, d) => (d === of.dimension ? (n + (t + 1) * of.distance) % count(d) : n)),
  );
}
