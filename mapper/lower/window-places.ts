/**
 * @file The positions of results in a window that serves all taps of a filter. The index is flat; the gaps between rows
 * hold no results.
 *
 *     7 rows of 28 pixels, 29 places apart       place i: q = i % 29, a result if below 28; p = 7*tile + i/29, a result if i/29 is below 7
 */

import { compare, type Expr, number, over, plus, remainder, times } from "../../abstraction/expression.ts";
import type { TapWindow, WindowDim } from "../schedule/taps.ts";

/**
 * Enters the counters of the window's loops at a position in the tile. Returns the conditions for the position to hold
 * a result.
 */
export function windowPlace(
  { dims }: TapWindow,
  kept: number,
  tile: Expr,
  inside: Expr,
  counters: Map<string, Expr>,
): Expr[] {
  const guards: Expr[] = [];
  const offsets = tilesOf(dims, tile);
  const top = dims.findLastIndex((d) => kept > d.weight);
  for (const [i, d] of dims.entries()) {
    const most = Math.floor((kept - 1) / d.weight) + 1;
    const above = over(inside, d.weight);
    const digit = most === 1 ? number(0) : i >= top ? above : remainder(above, d.staged);
    if (d.tile < (i >= top ? most : d.staged) && most > 1) guards.push(compare("<", digit, d.tile));
    if (d.loop === undefined) continue;
    const value = plus(offsets[i] ?? 0, digit);
    counters.set(d.loop, value);
    if (d.count % d.tile !== 0) guards.push(compare("<", value, d.count));
  }
  return guards;
}

/** The first index of a tile along each dimension. */
export function tilesOf(dims: readonly WindowDim[], tile: Expr): Expr[] {
  let below = 1;
  return dims.map((d, i) => {
    const quotient = over(tile, below);
    below *= d.tiles;
    const isLast = dims.slice(i + 1).every((above) => above.tiles === 1);
    const at = d.tiles === 1 ? number(0) : isLast ? quotient : remainder(quotient, d.tiles);
    return times(d.tile, at);
  });
}
