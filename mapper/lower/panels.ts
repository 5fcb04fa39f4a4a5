/**
 * @file Software prefetch of constants that are packed ahead of time: where a loop reads the same tiles again, its blocks fetch the next tiles meanwhile,
 * a share each. In a network weights are in no near cache when a step begins, and the first block of each panel would wait for them.
 *
 *     b tiled, order n m k      for n in 0..32, for m in 0..21, for k in 0..768      (fetch ahead b_tiles[..]: lines of the next n, 1/21 for each m)
 *
 * A product of 128 x 768 by 768 x 3072 with its factors in memory took 3100 us instead of 3280 (Zen 5, busy, in turns, 2026-12-01).
 */

import { axis, type Expr, number, plus, times } from "../../abstraction/expression.ts";
import type { FreshNames } from "../../abstraction/loop-nest.ts";
import type { LoopDimension } from "../schedule/dimensions.ts";
import { LINE_BYTES } from "./ahead.ts";
import type { Position } from "./operand-tiles.ts";
import type { Lines } from "./store.ts";

/** Half of a second cache of 1 MiB: the panel in use must stay in it too. */
const MOST_BYTES = 1 << 19;

/** A loop over blocks, or over tiles of them, around a block. */
export interface LoopAround {
  readonly dimension: LoopDimension;
  readonly isTile: boolean;
  readonly steps: number;
}

/** @param moves whether the tiles depend on a dimension. @returns undefined where no loop reads the same tiles again */
export function nextPanel(
  {
    buffer,
    base,
    elementBytes,
  }: { readonly buffer: string; readonly base: (at: Position) => Expr; readonly elementBytes: number },
  around: readonly LoopAround[],
  moves: (d: LoopDimension) => boolean,
  position: Position,
  names: FreshNames,
): Lines | undefined {
  const loops = around.filter(({ steps }) => steps > 1);
  const again = loops.findIndex((l, i) => !moves(l.dimension) && loops.slice(0, i).some((o) => moves(o.dimension)));
  const last = loops.slice(0, Math.max(0, again)).findLastIndex((l) => moves(l.dimension));
  const moving = loops[last];
  if (!moving) return undefined;
  const through = loops.slice(0, last + 1);
  const inside = loops.slice(last + 1);
  /** A position that some loops determine, as `of` tells of a dimension; the others are at their first step. */
  const at =
    (some: readonly LoopAround[], of: Position): Position =>
    (d) => {
      const [tiles, blocks] = [true, false].map((isTile) => some.some((l) => l.dimension === d && l.isTile === isTile));
      const { outer, tile, inTile } = of(d);
      const zero = number(0);
      return { outer: blocks ? outer : zero, inTile: blocks ? inTile : zero, tile: tiles ? tile : zero, inner: zero };
    };
  const one = number(1);
  const stride = base(at([moving], () => ({ outer: one, inTile: one, tile: one, inner: one })));
  if (stride.kind !== "number" || stride.value * elementBytes > MOST_BYTES) return undefined;
  const perLine = LINE_BYTES / elementBytes;
  const blocks = inside.reduce((product, { steps }) => product * steps, 1);
  const lines = Math.ceil(stride.value / perLine / blocks);
  const block = inside.reduce<Expr>((sum, { dimension, isTile, steps }) => {
    const { tile, inTile } = position(dimension);
    return plus(times(sum, steps), isTile ? tile : inTile);
  }, number(0));
  const counter = names.fresh("line");
  const share = plus(times(block, lines * perLine), axis(counter));
  const place = plus(plus(base(at(through, position)), stride), share);
  return { tensor: buffer, place, loops: [{ axis: counter, lines, perLine }] };
}
