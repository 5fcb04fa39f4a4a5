/**
 * @file Common to all parts of lowering a schedule: the position of a block, its registers and loops, and their names.
 *
 *     q in blocks of 12, the third:      outer 2, count 12, its loop `q_block`, accumulators 12*k_block + q_block
 *
 * Finds the blocks at the border of an input that is loaded in place, and the steps of these blocks that are
 * inside.
 *
 *     in[n,c,q+s-1], q in 8 blocks of 7
 *       when q_outer >= 1 and q_outer < 7             no step leaves the tensor: loops as scheduled
 *       otherwise                                     edge blocks: s is unrolled, outside the other summed loops
 *         when q_outer < 1                            s 0: q_block 0 is omitted
 *         otherwise                                        nothing is omitted
 *         ...                                         s 1: nothing is omitted or tested in any block
 *
 * Where steps are single, in[n,c,p+r-1], the edge is one loop: for r in max(0, 1-p)..min(3, 15-p).
 */

import type { Schedule } from "../../abstraction/candidate.ts";
import { type Computation, keptIn } from "../../abstraction/computation.ts";
import { joined, type Truth } from "../../abstraction/condition.ts";
import { axis, compare, type Expr, number, plus, times } from "../../abstraction/expression.ts";
import type { Operand } from "../../abstraction/intrinsic.ts";
import { FreshNames, loop, type RegisterFile, type Statement, type StepRange } from "../../abstraction/loop-nest.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { Conditions, type StretchOf, when, wholeStretch } from "../match/conditions.ts";
import { blockOf, tilesOf } from "../schedule/block.ts";
import { type Border, borderBlocks, isInside, isRange, rangeInside, stretches } from "../schedule/borders.ts";
import { type NestedLoop, nestedLoops, printLoop } from "../schedule/cache-tiles.ts";
import { inputOperands, type LoopDimension, targetOperand } from "../schedule/dimensions.ts";
import { dimensionsUnder } from "../schedule/gaps.ts";
import { placementsOf } from "../schedule/place.ts";
import type { Position } from "./operand-tiles.ts";
import { OperandPlacement, type Parts, type Tiles } from "./operands.ts";

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

// ---- edges -----------------------------------------------------------------------------------------------------------------------

/** Steps of unrolled loops, by loop name. */
export type Known = ReadonlyMap<string, number>;

type Writing = (parts: Parts) => readonly Statement[];

export abstract class ScheduledEdges extends ScheduledParts {
  /** Loops over some dimensions around a body. */
  protected abstract nest(
    loops: readonly NestedLoop[],
    parts: Parts,
    tiles: Tiles,
    inside: (parts: Parts, tiles: Tiles) => readonly Statement[],
    parallel?: boolean,
  ): readonly Statement[];

  /** The borders of in-place inputs that involve a dimension. */
  protected bordersOf(d: LoopDimension): readonly Border[] {
    return [...this.borders.values()].flat().filter((b) => b.spatial === d.name || b.reduce === d.name);
  }

  /** Whether the smaller remainder block of a kept dimension crosses a border. */
  protected leftIsEdge(d: LoopDimension): boolean {
    return this.bordersAlong(d).some((b) => borderBlocks(b, blockOf(this.schedule, d)).leftIsEdge);
  }

  /** The range of whole blocks that cross no border. */
  protected interiorOf(d: LoopDimension): { readonly from: number; readonly to: number } {
    const inside = this.bordersAlong(d).map((b) => borderBlocks(b, blockOf(this.schedule, d)));
    const from = Math.max(0, ...inside.map((b) => b.from));
    return { from, to: Math.max(from, Math.min(this.wholeBlocks(d), ...inside.map((b) => b.to))) };
  }

  /** Separates blocks that cross no border from those that do, with a test if a loop has both. */
  protected apartFromEdges(parts: Parts, plain: Writing, edges: Writing): readonly Statement[] {
    const crossing = this.dimensions.filter((d) => parts.get(d.name)?.edge);
    if (crossing.length === 0) return plain(parts);
    let inside: Truth = true;
    for (const d of crossing) {
      const { from, to } = this.interiorOf(d);
      const outer = parts.get(d.name)?.outer;
      if (outer === undefined || outer.kind === "number" || from === to) return edges(parts);
      if (from > 0) inside = joined("and", inside, compare(">=", outer, from));
      if (to < this.wholeBlocks(d)) inside = joined("and", inside, compare("<", outer, to));
    }
    const without = new Map([...parts].map(([name, part]) => [name, { ...part, edge: false }]));
    return when(inside, plain(without), edges(parts));
  }

  /**
   * The sums of edge blocks. Summed loops that meet a border come outermost, so that the tests stay outside the other
   * loops.
   */
  protected edges(summed: readonly NestedLoop[], parts: Parts, tiles: Tiles, step: Writing): readonly Statement[] {
    const copied = Object.values(this.schedule.within ?? {});
    const inRange = (at: Parts): readonly Statement[] => step(this.insideRanges(at));
    const meets = (l: NestedLoop): boolean => this.bordersOf(l.dimension).length > 0;
    // Copies inside a summed loop depend on the loops in it, so the order is kept.
    if (summed.some((l) => copied.includes(printLoop({ name: l.dimension.name, tile: l.tile }))))
      return this.byStretch(parts, (of) => this.nest(summed, of, tiles, inRange));
    const outer = summed.filter(meets);
    const inner = summed.filter((l) => !meets(l));
    return this.nest(outer, parts, tiles, (at) =>
      this.byStretch(this.insideRanges(at), (of) => this.nest(inner, of, tiles, step)),
    );
  }

  /** The borders of edges that the steps of a summed dimension may cross, unless it is to stay within a range. */
  protected crossedBy(d: LoopDimension, parts: Parts): { readonly borders: readonly Border[]; range?: StepRange } {
    const borders = this.bordersOf(d).filter((b) => b.reduce === d.name && parts.get(b.spatial)?.edge);
    if (borders.length === 0 || !borders.every((b) => this.isRange(b))) return { borders };
    const ranges = borders.map((b) => rangeInside(b, parts.get(b.spatial)?.outer ?? number(0)));
    return { borders: [], range: { from: ranges.flatMap((r) => r.from), to: ranges.flatMap((r) => r.to) } };
  }

  /** Whether steps inside are a range. Borders of several inputs may meet in one loop, so then their steps are written. */
  private isRange(border: Border): boolean {
    const crossing = [...this.borders.values()].filter((borders) => borders.length > 0);
    return crossing.length === 1 && isRange(border, (name) => blockOf(this.schedule, this.operands.dimension(name)));
  }

  /** Parts inside summed loops that run over what is inside: they cross no border any more. */
  private insideRanges(parts: Parts): Parts {
    const isEdge = (name: string): boolean =>
      this.bordersAlong(this.operands.dimension(name)).some((b) => !this.isRange(b));
    return new Map(
      [...parts].map(([name, part]) => [name, part.edge && !isEdge(name) ? { ...part, edge: false } : part]),
    );
  }

  /** Groups edge blocks whose steps leave the tensor in the same way. */
  private byStretch(parts: Parts, inside: Writing): readonly Statement[] {
    const d = this.dimensions.find(({ name }) => {
      const part = parts.get(name);
      return part?.edge && part.outer.kind !== "number" && part.like === undefined;
    });
    const part = d && parts.get(d.name);
    if (d === undefined || part === undefined) return inside(parts);
    const begins = stretches(this.bordersAlong(d), blockOf(this.schedule, d), (b) =>
      parts.has(b.reduce) ? this.stepIn(parts, new Map(), b.reduce) : undefined,
    );
    const from = (at: number): readonly Statement[] => {
      const written = this.byStretch(new Map(parts).set(d.name, { ...part, like: begins[at] ?? 0 }), inside);
      const next = begins[at + 1];
      return next === undefined ? written : when(compare("<", part.outer, next), written, from(at + 1));
    };
    return from(0);
  }

  /**
   * Whether an in-place input is outside its tensor in a part.
   * @param known steps of the block's unrolled loops, by loop name
   */
  protected isOutside(parts: Parts, known: Known = new Map()): boolean {
    return [...this.borders.values()]
      .flat()
      .some(
        (b) =>
          parts.get(b.spatial)?.edge &&
          !isInside(b, this.stepIn(parts, known, b.spatial), this.stepIn(parts, known, b.reduce)),
      );
  }

  private stepIn(parts: Parts, known: Known, name: string): number {
    const d = this.operands.dimension(name);
    const part = parts.get(name);
    const outer = part?.outer.kind === "number" ? part.outer.value : (part?.like ?? 0);
    return outer * blockOf(this.schedule, d) + (known.get(this.blockName(d)) ?? part?.inner ?? 0);
  }

  private bordersAlong(d: LoopDimension): readonly Border[] {
    return this.bordersOf(d).filter((b) => b.spatial === d.name);
  }

  private wholeBlocks(d: LoopDimension): number {
    return Math.floor(d.steps / blockOf(this.schedule, d));
  }
}
