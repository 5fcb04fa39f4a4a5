/**
 * @file Common to all parts of lowering a schedule: the position of a block, its registers and loops, and their names.
 *
 *     q in blocks of 12, the third:      outer 2, count 12, its loop `q_block`, accumulators 12*k_block + q_block
 */

import type { Schedule } from "../../abstraction/candidate.ts";
import { type Computation, keptIn } from "../../abstraction/computation.ts";
import { axis, type Expr, number, plus, times } from "../../abstraction/expression.ts";
import type { Operand } from "../../abstraction/intrinsic.ts";
import { loop, type RegisterFile, type Statement } from "../../abstraction/loop-nest.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { Conditions, type StretchOf, wholeStretch } from "../match/conditions.ts";
import { blockOf, tilesOf } from "../schedule/block.ts";
import type { Border } from "../schedule/borders.ts";
import { type NestedLoop, nestedLoops } from "../schedule/cache-tiles.ts";
import type { LoopDimension } from "../schedule/dimensions.ts";
import { dimensionsUnder } from "../schedule/gaps.ts";
import { inputOperands, targetOperand } from "../schedule/operands.ts";
import { placementsOf } from "../schedule/place.ts";
import { FreshNames } from "./names.ts";
import type { Position } from "./operand-tiles.ts";
import { OperandPlacement } from "./operands.ts";
import type { Parts } from "./packed-tiles.ts";

export abstract class ScheduledParts {
  protected readonly mapping: Mapping;
  protected readonly schedule: Schedule;
  protected readonly computation: Computation;
  protected readonly names: FreshNames;
  protected readonly dimensions: readonly LoopDimension[];
  protected readonly loops: readonly NestedLoop[];
  protected readonly target: Operand;
  protected readonly inputs: readonly Operand[];
  protected readonly borders: ReadonlyMap<string, readonly Border[]>;
  protected readonly operands: OperandPlacement;
  protected readonly conditions: Conditions;

  constructor(mapping: Mapping, schedule: Schedule) {
    this.mapping = mapping;
    this.schedule = schedule;
    this.computation = mapping.computation;
    this.names = new FreshNames(mapping.computation);
    const all = dimensionsUnder(mapping, schedule);
    this.loops = nestedLoops(schedule.order, all);
    this.dimensions = this.loops.flatMap((l) => (l.tile === undefined ? [l.dimension] : []));
    this.conditions = new Conditions(mapping, schedule, this.dimensions);
    this.operands = new OperandPlacement(mapping, schedule, this.loops, this.names, this.conditions);
    this.target = targetOperand(mapping);
    this.inputs = inputOperands(mapping);
    this.borders = new Map(
      placementsOf(mapping, schedule).map((c) => [
        c.operand,
        schedule.placement[c.operand] === "in-place" ? c.borders : [],
      ]),
    );
  }

  /** Unrolled loops over the steps of a block along some dimensions. */
  protected unrolled(
    dimensions: readonly LoopDimension[],
    parts: Parts,
    body: readonly Statement[],
  ): readonly Statement[] {
    return dimensions.reduceRight<readonly Statement[]>(
      (inner, d) => [loop(this.blockName(d), countOf(parts, d), inner, "unrolled")],
      body,
    );
  }

  /** Kept dimensions with more than one step in the block. */
  protected blocked(parts: Parts): LoopDimension[] {
    return keptIn(this.dimensions).filter((d) => countOf(parts, d) > 1);
  }

  /** The index of an accumulator: row-major over full blocks, so that smaller blocks use the same registers. */
  protected accumulatorIndex(dimensions: readonly LoopDimension[]): Expr {
    return dimensions.reduce<Expr>(
      (sum, d) => plus(times(sum, blockOf(this.schedule, d)), axis(this.blockName(d))),
      number(0),
    );
  }

  protected stretchIn(parts: Parts): StretchOf {
    return (d) => {
      const part = parts.get(d.name);
      if (part === undefined) return wholeStretch(d);
      const block = blockOf(this.schedule, d);
      const first = plus(times(part.outer, block), part.inner ?? 0);
      const grain = part.inner === undefined ? block * d.step : d.step;
      return { low: times(first, d.step), elements: part.count * d.step, grain };
    };
  }

  protected positionIn(parts: Parts): Position {
    return (d) => {
      const part = parts.get(d.name);
      const outer = part?.outer ?? number(0);
      return {
        outer,
        inner: countOf(parts, d) > 1 ? axis(this.blockName(d)) : number(part?.inner ?? 0),
        tile: part?.tile?.number ?? number(0),
        inTile: part?.tile?.block ?? outer,
      };
    };
  }

  protected blockTiles(operand: Operand): number {
    return tilesOf(this.mapping, this.schedule, operand.name);
  }

  protected registerFile(operand: Operand, count: number): RegisterFile {
    return { name: this.fileName(operand), intrinsic: this.mapping.intrinsic, operand: operand.name, count };
  }

  protected fileName(operand: Operand): string {
    return this.names.fresh(`${operand.name}_register`);
  }

  protected blockName(d: LoopDimension): string {
    return this.names.fresh(`${d.name}_block`);
  }
}

export function countOf(parts: Parts, d: LoopDimension): number {
  return parts.get(d.name)?.count ?? 1;
}
