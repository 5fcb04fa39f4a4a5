/**
 * @file The packed copy of an operand: tiles stored one after another in loop order, with zeros where the loops do not fill a tile.
 *
 *     w tiled, k block 2, order k q c        b_tiles[128*(c + c_extent*k_outer) + 64*k_step + ...]
 */

import type { Schedule } from "../../abstraction/candidate.ts";
import { keptIn, summedIn } from "../../abstraction/computation.ts";
import { allOf, selected } from "../../abstraction/condition.ts";
import { compare, type Expr, number, over, plus, remainder, substitute, times } from "../../abstraction/expression.ts";
import type { Operand } from "../../abstraction/intrinsic.ts";
import { partsPackedIn, scheduledParts } from "../match/conditions.ts";
import type { Problem } from "../match/problem.ts";
import { blockOf } from "../schedule/block.ts";
import { blocksOf, type NestedLoop } from "../schedule/cache-tiles.ts";
import { digitsOf, type LoopDimension } from "../schedule/dimensions.ts";

/**
 * The position of the loops in each dimension: block (`outer`), step within the block (`inner`), tile of blocks
 * (`tile`), and block within that tile (`inTile`).
 */
export type Position = (dimension: LoopDimension) => {
  readonly outer: Expr;
  readonly inner: Expr;
  readonly tile: Expr;
  readonly inTile: Expr;
};

/** Dimensions of which a buffer holds one block, or one tile of blocks, at a time. */
export type Held = ReadonlyMap<LoopDimension, "block" | "tile">;

export class OperandTiles {
  protected readonly problem: Problem;
  protected readonly schedule: Schedule;
  private readonly loops: readonly NestedLoop[];

  constructor(problem: Problem, schedule: Schedule, loops: readonly NestedLoop[]) {
    this.problem = problem;
    this.schedule = schedule;
    this.loops = loops;
  }

  /**
   * Orders the instruction's tiles as a kernel loads them: outer loops first, then the steps of a block, of which the
   * summed ones come first. Tiles in another order look like jumps to a processor's prefetcher: a product of 49 x 512 by
   * 512 x 1024 with blocks of 5 x 5 x 5 took 510 us instead of 614 with its factors in memory (Zen 4, busy, in turns,
   * 2026-11-23).
   */
  layout(
    own: readonly LoopDimension[],
    size: number,
    held: Held = new Map(),
  ): { readonly elements: number; readonly base: (at: Position) => Expr } {
    let elements = size;
    const parts: { d: LoopDimension; at: "tile" | "inTile" | "outer" | "inner"; stride: number }[] = [];
    const inBlock = [...summedIn(own), ...keptIn(own)];
    for (const d of inBlock.reverse()) {
      parts.push({ d, at: "inner", stride: elements });
      elements *= blockOf(this.schedule, d);
    }
    for (const { dimension: d, tile } of this.loops.filter((l) => own.includes(l.dimension)).reverse()) {
      const blocks = blocksOf(d, blockOf(this.schedule, d));
      const tiled = this.tileOf(d);
      if (held.get(d) === "block" || (held.has(d) && tile !== undefined)) continue;
      parts.push({ d, at: tile !== undefined ? "tile" : tiled === undefined ? "outer" : "inTile", stride: elements });
      elements *= tile !== undefined ? Math.ceil(blocks / tile) : (tiled ?? blocks);
    }
    const base = (at: Position): Expr =>
      own.reduce<Expr>(
        (sum, d) =>
          parts
            .filter((p) => p.d === d)
            .reverse()
            .reduce((all, p) => plus(all, times(at(d)[p.at], p.stride)), sum),
        number(0),
      );
    return { elements, base };
  }

  /**
   * An element of a tile. It is the padding value where loops do not fill the tile and where the operand's condition
   * fails.
   */
  element(
    operand: Operand,
    bound: Expr,
    own: readonly LoopDimension[],
    stepOf: (d: LoopDimension) => Expr,
    inTile: ReadonlyMap<string, Expr>,
  ): Expr {
    const counters = new Map<string, Expr>();
    const guards: Expr[] = [];
    for (const d of own) {
      const inner = inTile.get(d.axis ?? "") ?? number(0);
      const element = plus(times(stepOf(d), d.step), inner);
      const isInside = element.kind === "number" && element.value < d.extent;
      if (d.steps !== d.wholeSteps && !isInside) guards.push(compare("<", element, d.extent));
      for (const [name, digit] of digitsOf(d, element)) counters.set(name, digit);
    }
    for (const o of operand.dims)
      if (!own.some((d) => d.axis === o.name) && o.extent > 1) guards.push(compare("<", inTile.get(o.name) ?? 0, 1));
    for (const part of partsPackedIn(scheduledParts(this.problem), operand.name))
      guards.push(substitute(part, counters, "index"));
    return selected(allOf(guards), substitute(bound, counters), this.problem.padding ?? number(0));
  }

  /** The position of a block and a step within it, including the block's tile. */
  placeIn(d: LoopDimension, outer: Expr, inner: Expr): ReturnType<Position> {
    const tile = number(this.tileOf(d) ?? 1);
    const inTile = this.tileOf(d) === undefined ? outer : remainder(outer, tile);
    return { outer, inner, tile: over(outer, tile), inTile };
  }

  /** Blocks in a tile of a dimension; undefined if the dimension has no loop over tiles. */
  private tileOf(d: LoopDimension): number | undefined {
    return this.loops.find((l) => l.dimension === d && l.tile !== undefined)?.tile;
  }
}
