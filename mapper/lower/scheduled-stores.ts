/**
 * @file Lowers the stores of a register block's results: directly to the output, or through a scratch block, element by
 * element.
 *
 *     out[12*q_outer + q_block, ..] <- c{q_block}
 */

import { keptIn } from "../../abstraction/computation.ts";
import { type Expr, times } from "../../abstraction/expression.ts";
import type { MemoryTile, Statement } from "../../abstraction/loop-nest.ts";
import { tileElements, tileRowElements } from "../../abstraction/memory-tile.ts";
import { when } from "../match/conditions.ts";
import { blockOf, registersOf } from "../schedule/block.ts";
import type { LoopDimension } from "../schedule/dimensions.ts";
import { reachOfTarget } from "../schedule/reach.ts";
import type { Parts } from "./packed-tiles.ts";
import { ScheduledEdges } from "./scheduled-edges.ts";
import { countOf } from "./scheduled-parts.ts";
import { type ResultBlock, storeElements } from "./store.ts";

export abstract class ScheduledStores extends ScheduledEdges {
  /**
   * Stores tiles directly if the output has the layout that the instruction stores; otherwise through a scratch block
   * (store.ts).
   */
  protected storeBlock(parts: Parts, blocked: readonly LoopDimension[], counter: Expr): readonly Statement[] {
    const straight = this.storeStraight(parts, blocked, counter);
    if (straight === undefined) return this.storeSpilled(parts, blocked, counter);
    if (this.conditions.stored === undefined) return straight;
    return when(this.conditions.isUniform(this.stretchIn(parts)), straight, this.storeSpilled(parts, blocked, counter));
  }

  /** Direct stores; undefined if the output has another layout, a tile is incomplete, or there is an epilogue. */
  protected storeStraight(
    parts: Parts,
    blocked: readonly LoopDimension[],
    counter: Expr,
  ): readonly Statement[] | undefined {
    const memory = this.straight(parts);
    return memory && this.storeTiles(parts, blocked, counter, memory);
  }

  /** The output memory of a block's tiles, if they can be stored directly. */
  protected straight(parts: Parts): MemoryTile | undefined {
    const { computation } = this;
    const partial = this.dimensions.some((d) => d.kind === "spatial" && parts.get(d.name)?.partial);
    if (computation.epilogue || partial) return undefined;
    const whole = this.dimensions.map((d) =>
      d.kind === "spatial" ? { ...d, steps: d.wholeSteps, extent: d.wholeSteps * d.step } : d,
    );
    const reach = reachOfTarget(this.mapping, whole);
    if (typeof reach === "string") return undefined;
    const { buffer, base, stride } = this.operands.reached(this.target, computation.equation.target.tensor, reach);
    return { buffer, base: base(this.positionIn(parts)), stride };
  }

  protected storeTiles(
    parts: Parts,
    blocked: readonly LoopDimension[],
    counter: Expr,
    memory: MemoryTile,
  ): readonly Statement[] {
    const store: Statement = { kind: "store", register: { file: this.fileName(this.target), index: counter }, memory };
    return this.unrolled(blocked, parts, [store]);
  }

  /** Whether the epilogue has a condition. */
  protected get leavesOut(): boolean {
    return this.computation.epilogue?.equation.where !== undefined;
  }

  /** Spills tiles side by side into a scratch block, then stores them with scalar loops. */
  private storeSpilled(parts: Parts, blocked: readonly LoopDimension[], counter: Expr): readonly Statement[] {
    const size = tileElements(this.target);
    const buffer = this.names.fresh(`${this.target.name}_results`);
    const { accumulators } = registersOf(this.mapping, this.schedule);
    if (!this.operands.scratch.some((s) => s.name === buffer)) {
      this.operands.scratch.push({
        name: buffer,
        dtype: this.target.dtype,
        elements: accumulators * size,
        scope: "local",
      });
    }
    const spilled = { buffer, base: times(counter, size), stride: tileRowElements(this.target) };
    const spill = this.storeTiles(parts, blocked, counter, spilled);
    const spatial = keptIn(this.dimensions);
    const results: ResultBlock = {
      computation: this.computation,
      condition: this.conditions.stored,
      target: this.target,
      buffer,
      tile: counter,
      dimensions: spatial.map((d) => ({
        dimension: d,
        first: times(parts.get(d.name)?.outer ?? 0, blockOf(this.schedule, d)),
        count: countOf(parts, d),
        step: this.blockName(d),
        partial: parts.get(d.name)?.partial ?? false,
      })),
      innerName: (name) => this.names.fresh(`${name}_inner`),
    };
    const stored = storeElements(results);
    if (!this.leavesOut) return [...spill, ...stored];
    const whole = storeElements({ ...results, condition: undefined, isWhole: true });
    return [...spill, ...when(this.conditions.storesAll(this.stretchIn(parts)), whole, stored)];
  }
}
