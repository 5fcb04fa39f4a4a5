/**
 * @file Lowers a mapping under a schedule: operands in their places, a register block around the instruction, and loops
 * in the given order.
 *
 *     for parallel p in 0..56                       order n p q k, then r s c
 *       for q_outer in 0..4                         block q 12, k 2: 24 accumulators
 *         clear c{0..23}
 *         for r, s, c_outer                         each step: 2 loads of w, 12 of in, 24 issues
 *           b{0..1} <- w_tiled[...]
 *           for unrolled q_block in 0..12
 *             a{0} <- in_padded[...]
 *             c{...} <- avx512.vpdpbusd(a{0}, b{...})
 *         out[...] <- c{...}
 *
 * Remainders are peeled: a loop of whole blocks, then one smaller block, without tests inside. Tiles
 * (../schedule/cache-tiles.ts) are loops around these, each over a range of blocks. Where tiles of a sum enclose kept
 * loops, accumulators are loaded and stored. Padding is in the copies of operands and written once, so the inner loops
 * do not deal with it.
 *
 * Overlaps the stores of one block of results with the products of the next. Tiles are multiplied by one unit; the vector unit, idle meanwhile,
 * turns spilled tiles into rows of results.
 *
 *     for q in 0..7                      compute 0; spill 0
 *       compute q                        for q in 0..6
 *       spill q                  ->        compute q+1                 long, few instructions
 *       rows q                             rows q                      short, many: they run beside it
 *                                          spill q+1
 *                                        rows 6
 *
 * Only the order changes: rows read the spilled block and the loop position of that block, and are done before the next
 * spill. The innermost loop around a block is split, and the statements after it are merged in; a loop divided among
 * threads stays whole.
 *
 * The position of a block says its registers, loops and their names.
 *
 *     q in blocks of 12, the third:      outer 2, count 12, its loop `q_block`, accumulators 12*k_block + q_block
 *
 * Blocks at the border of an input that is loaded in place run only the steps that are inside.
 *
 *     in[n,c,q+s-1], q in 8 blocks of 7
 *       when q_outer >= 1 and q_outer < 7             no step leaves the tensor: loops as scheduled
 *       otherwise                                     edge blocks: s is unrolled, outside the other summed loops
 *         when q_outer < 1                            s 0: q_block 0 is omitted
 *         otherwise                                        nothing is omitted
 *         ...                                         s 1: nothing is omitted or tested in any block
 *
 * Where steps are single, in[n,c,p+r-1], the edge is one loop: for r in max(0, 1-p)..min(3, 15-p).
 *
 * A block clears its accumulators, runs the summed loops, and stores its results: directly to the output, or through a
 * scratch block, element by element.
 *
 *     out[12*q_outer + q_block, ..] <- c{q_block}
 */

import { type Dimension, splitRowMajor } from "../../abstraction/affine.ts";
import type { Schedule } from "../../abstraction/candidate.ts";
import { hasName, sortedBy, upTo, volumeOf } from "../../abstraction/collections.ts";
import { type Computation, keptIn, summedIn } from "../../abstraction/computation.ts";
import { joined, not, type Truth } from "../../abstraction/condition.ts";
import { internal } from "../../abstraction/error.ts";
import {
  accessesIn,
  axis,
  compare,
  type Expr,
  minus,
  number,
  plus,
  remainder,
  substitute,
  times,
} from "../../abstraction/expression.ts";
import type { Operand } from "../../abstraction/intrinsic.ts";
import {
  FreshNames,
  type Loop,
  type LoopNest,
  loop,
  type MemoryTile,
  type RegisterAt,
  type RegisterFile,
  type Statement,
  type StepRange,
} from "../../abstraction/loop-nest.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { tileElements, tileRowElements } from "../../abstraction/memory-tile.ts";
import { substituteAxis } from "../../abstraction/rewrite-statement.ts";
import { registerClass } from "../../targets/index.ts";
import { Conditions, type StretchOf, when, wholeStretch } from "../match/conditions.ts";
import { blockOf, registersOf, registersTakenBy, tilesOf } from "../schedule/block.ts";
import { type Border, borderBlocks, isInside, isRange, rangeInside, stretches } from "../schedule/borders.ts";
import { blocksOf, type NestedLoop, nestedLoops, printLoop } from "../schedule/cache-tiles.ts";
import { dependsOn, inputOperands, type LoopDimension, targetOperand, wholeStepsOf } from "../schedule/dimensions.ts";
import { dimensionsUnder } from "../schedule/gaps.ts";
import { scheduleProblem } from "../schedule/mapped.ts";
import { placementsOf } from "../schedule/place.ts";
import { reachOfTarget } from "../schedule/reach.ts";
import { shareFetched } from "./ahead.ts";
import { storedBeside } from "./beside.ts";
import { type Companions, companionsOf } from "./companions.ts";
import type { Position } from "./operand-tiles.ts";
import { type BlockRange, OperandPlacement, type Part, type Parts, type Placed, type Tiles } from "./operands.ts";
import { type LoopAround, nextPanel } from "./panels.ts";
import { fetchingStored, type Lines, type ResultBlock, storeElements } from "./store.ts";

/** The loop nest of a mapping under a schedule. @throws Error if {@link scheduleProblem} refuses the schedule */
export function lowerSchedule(mapping: Mapping, schedule: Schedule): LoopNest {
  const problem = scheduleProblem(mapping, schedule);
  if (problem !== undefined) internal(`the schedule cannot be lowered: ${problem}`);
  return new Lowering(mapping, schedule).lower();
}

const WHOLE: Tiles = { ranges: new Map(), first: true, last: true };

class Lowering {
  private readonly mapping: Mapping;
  private readonly schedule: Schedule;
  private readonly computation: Computation;
  private readonly names: FreshNames;
  private readonly dimensions: readonly LoopDimension[];
  private readonly loops: readonly NestedLoop[];
  private readonly target: Operand;
  private readonly inputs: readonly Operand[];
  private readonly borders: ReadonlyMap<string, readonly Border[]>;
  private readonly operands: OperandPlacement;
  private readonly conditions: Conditions;
  /** Computed on first use. */
  private kept: Companions | undefined;
  /** Name of the register file of zeros, if there is one. */
  private zeros: string | undefined;

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
  private unrolled(
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
  private blocked(parts: Parts): LoopDimension[] {
    return keptIn(this.dimensions).filter((d) => countOf(parts, d) > 1);
  }

  /** The index of an accumulator: row-major over full blocks, so that smaller blocks use the same registers. */
  private accumulatorIndex(dimensions: readonly LoopDimension[]): Expr {
    return dimensions.reduce<Expr>(
      (sum, d) => plus(times(sum, blockOf(this.schedule, d)), axis(this.blockName(d))),
      number(0),
    );
  }

  private stretchIn(parts: Parts): StretchOf {
    return (d) => {
      const part = parts.get(d.name);
      if (part === undefined) return wholeStretch(d);
      const block = blockOf(this.schedule, d);
      const first = plus(times(part.outer, block), part.inner ?? 0);
      const grain = part.inner === undefined ? block * d.step : d.step;
      return { low: times(first, d.step), elements: part.count * d.step, grain };
    };
  }

  private positionIn(parts: Parts): Position {
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

  private blockTiles(operand: Operand): number {
    return tilesOf(this.mapping, this.schedule, operand.name);
  }

  private registerFile(operand: Operand, count: number): RegisterFile {
    return { name: this.fileName(operand), intrinsic: this.mapping.intrinsic, operand: operand.name, count };
  }

  private fileName(operand: Operand): string {
    return this.names.fresh(`${operand.name}_register`);
  }

  private blockName(d: LoopDimension): string {
    return this.names.fresh(`${d.name}_block`);
  }

  // ---- edges -----------------------------------------------------------------------------------------------------------------------------

  /** The borders of in-place inputs that involve a dimension. */
  private bordersOf(d: LoopDimension): readonly Border[] {
    return [...this.borders.values()].flat().filter((b) => b.spatial === d.name || b.reduce === d.name);
  }

  /** Whether the smaller remainder block of a kept dimension crosses a border. */
  private leftIsEdge(d: LoopDimension): boolean {
    return this.bordersAlong(d).some((b) => borderBlocks(b, blockOf(this.schedule, d)).leftIsEdge);
  }

  /** The range of whole blocks that cross no border. */
  private interiorOf(d: LoopDimension): { readonly from: number; readonly to: number } {
    const inside = this.bordersAlong(d).map((b) => borderBlocks(b, blockOf(this.schedule, d)));
    const from = Math.max(0, ...inside.map((b) => b.from));
    return { from, to: Math.max(from, Math.min(this.wholeBlocks(d), ...inside.map((b) => b.to))) };
  }

  /** Separates blocks that cross no border from those that do, with a test if a loop has both. */
  private apartFromEdges(parts: Parts, plain: Writing, edges: Writing): readonly Statement[] {
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
  private edges(summed: readonly NestedLoop[], parts: Parts, tiles: Tiles, step: Writing): readonly Statement[] {
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
  private crossedBy(d: LoopDimension, parts: Parts): { readonly borders: readonly Border[]; range?: StepRange } {
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
  private isOutside(parts: Parts, known: Known = new Map()): boolean {
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

  // ---- stores ----------------------------------------------------------------------------------------------------------------------------

  private wholeBlocks(d: LoopDimension): number {
    return Math.floor(d.steps / blockOf(this.schedule, d));
  }
  /**
   * Stores tiles directly if the output has the layout that the instruction stores; otherwise through a scratch block
   * (store.ts).
   */
  private storeBlock(parts: Parts, blocked: readonly LoopDimension[], counter: Expr): readonly Statement[] {
    const straight = this.storeStraight(parts, blocked, counter);
    if (straight === undefined) return this.storeSpilled(parts, blocked, counter);
    if (this.conditions.stored === undefined) return straight;
    return when(this.conditions.isUniform(this.stretchIn(parts)), straight, this.storeSpilled(parts, blocked, counter));
  }

  /** Direct stores; undefined if the output has another layout, a tile is incomplete, or there is an epilogue. */
  private storeStraight(
    parts: Parts,
    blocked: readonly LoopDimension[],
    counter: Expr,
  ): readonly Statement[] | undefined {
    const memory = this.straight(parts);
    return memory && this.storeTiles(parts, blocked, counter, memory);
  }

  /** The output memory of a block's tiles, if they can be stored directly. */
  private straight(parts: Parts): MemoryTile | undefined {
    const { computation } = this;
    const partial = this.dimensions.some((d) => d.kind === "spatial" && parts.get(d.name)?.partial);
    if (computation.epilogue || partial) return undefined;
    const reach = reachOfTarget(this.mapping, wholeStepsOf(this.dimensions));
    if (typeof reach === "string") return undefined;
    const { buffer, base, stride } = this.operands.reached(this.target, computation.equation.target.tensor, reach);
    return { buffer, base: base(this.positionIn(parts)), stride };
  }

  private storeTiles(
    parts: Parts,
    blocked: readonly LoopDimension[],
    counter: Expr,
    memory: MemoryTile,
  ): readonly Statement[] {
    const store: Statement = { kind: "store", register: { file: this.fileName(this.target), index: counter }, memory };
    return this.unrolled(blocked, parts, [store]);
  }

  /** Whether the epilogue has a condition. */
  private get leavesOut(): boolean {
    return this.computation.epilogue?.equation.where !== undefined;
  }

  // ---- one block -------------------------------------------------------------------------------------------------------------------------

  /** Spills tiles side by side into a scratch block, then stores them with scalar loops. */
  private storeSpilled(parts: Parts, blocked: readonly LoopDimension[], counter: Expr): readonly Statement[] {
    const size = tileElements(this.target);
    const buffer = this.names.fresh(`${this.target.name}_results`);
    const { accumulators } = registersOf(this.mapping, this.schedule);
    if (!hasName(this.operands.scratch, buffer)) {
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
  /** Inputs beyond two factors, which each issue loads. */
  private further: readonly Placed[] = [];

  /**
   * One register block: clear accumulators, run the summed loops, store results. In a pass of several, partial sums are
   * loaded first or kept for the next pass.
   */
  private block(
    parts: Parts,
    tiles: Tiles,
    summed: readonly NestedLoop[],
    held: Placed | undefined,
    streaming: Placed,
    partial: Placed | undefined,
  ): readonly Statement[] {
    const blocked = this.blocked(parts);
    const counter = this.accumulatorIndex(blocked);
    const accumulator = { file: this.fileName(this.target), index: counter };
    const move = (kind: "load" | "store"): readonly Statement[] => {
      if (!partial) internal("there is no place for partial sums");
      const memory = { buffer: partial.buffer, base: partial.base(this.positionIn(parts)), stride: partial.stride };
      return this.unrolled(blocked, parts, [{ kind, register: accumulator, memory }]);
    };
    const clear = this.unrolled(blocked, parts, [{ kind: "clear", register: accumulator }]);
    const begin = when(tiles.first, clear, tiles.first === true ? [] : move("load"));
    const companions = partial ? [] : this.companions(parts);
    const zeros = companions.length > 0 ? this.zerosWithin(summed, parts, blocked) : undefined;
    const step = (all: Parts): readonly Statement[] => [
      ...(zeros ? companions.flatMap(({ to }) => this.emptiedIn(all, to, zeros)) : []),
      ...this.step(all, blocked, held, streaming, accumulator),
    ];
    const sums = this.apartFromEdges(
      parts,
      (of) => this.nest(summed, of, tiles, step),
      (of) => this.edges(summed, of, tiles, step),
    );
    const fetched = shareFetched(sums, this.operands.regions, this.dimensions, (d) => this.blocksIn(d), parts);
    const kept = tiles.last === true ? [] : move("store");
    const stored = tiles.last === false ? kept : when(tiles.last, this.storeBlock(parts, blocked, counter), kept);
    const panels = this.panelsAfter(parts, tiles, [streaming, ...(held ? [held] : [])]);
    const all = fetchingStored(fetched, tiles.last === true ? stored : [], panels, this.computation, this.names);
    const { conditions } = this;
    const takesPart = conditions.takesPart(this.stretchIn(parts));
    if (this.leavesOut) {
      const worked = conditions.keepsOut ? when(takesPart, all) : all;
      return when(conditions.storesAny(this.stretchIn(parts)), [...begin, ...worked, ...stored]);
    }
    if (companions.length === 0) return [...begin, ...when(takesPart, all), ...stored];
    const idle = (of: Parts, work: readonly Statement[]): readonly Statement[] =>
      when(not(conditions.takesPart(this.stretchIn(of))), work);
    const emptied = (of: Parts): readonly Statement[] => [
      ...clear,
      ...(this.storeStraight(of, blocked, counter) ?? []),
    ];
    const emptiedAfter = companions.flatMap(({ to }) => idle(to, emptied(to)));
    const byItself = companions.reduce<readonly Statement[]>((body, { from }) => idle(from, body), emptied(parts));
    return when(
      takesPart,
      [...(zeros ? [zeros.clear] : []), ...begin, ...all, ...stored, ...(zeros ? [] : emptiedAfter)],
      byItself,
    );
  }

  /** Lines of the constants that are read next. */
  private panelsAfter(parts: Parts, tiles: Tiles, placed: readonly Placed[]): readonly Lines[] {
    const around = this.loops.slice(0, this.inBlock).map(({ dimension, tile }): LoopAround => {
      const blocks = blocksOf(dimension, blockOf(this.schedule, dimension));
      const own = this.loops.find((l) => l.dimension === dimension && l.tile !== undefined)?.tile ?? blocks;
      return {
        dimension,
        isTile: tile !== undefined,
        steps: tile === undefined ? Math.min(own, blocks) : Math.ceil(blocks / tile),
      };
    });
    const inBlock = this.positionIn(parts);
    // Blocks of summed loops stand inside, their tiles may stand here.
    const position: Position = (d) => ({ ...inBlock(d), tile: tiles.ranges.get(d.name)?.tile ?? number(0) });
    return placed.flatMap(({ operand, buffer, base, elementBytes }) => {
      if (elementBytes === undefined) return [];
      const moves = (d: LoopDimension): boolean => dependsOn(this.mapping, operand.name, d);
      return nextPanel({ buffer, base, elementBytes }, around, moves, position, this.names) ?? [];
    });
  }

  /** Loops around a block of registers. */
  private get inBlock(): number {
    return this.loops.findLastIndex((l) => l.dimension.kind === "spatial") + 1;
  }

  /**
   * The empty blocks that are stored along with a block (`to`), and the blocks that would store this one if it were
   * empty (`from`). Empty if the block is partial or its tiles cannot be stored directly.
   */
  private companions(parts: Parts): readonly { readonly to: Parts; readonly from: Parts }[] {
    const { conditions } = this;
    const tied = keptIn(this.dimensions).filter((d) => conditions.ties(d));
    const isWhole = (d: LoopDimension): boolean => {
      const part = parts.get(d.name);
      return part?.partial === false && !part.edge && part.count === blockOf(this.schedule, d);
    };
    if (conditions.stored === undefined || !tied.every(isWhole)) return [];
    if ([...this.borders.values()].some((borders) => borders.length > 0)) return [];
    if (this.storeStraight(parts, [], number(0)) === undefined) return [];
    const counts = tied.map((d) => Math.floor(d.wholeSteps / blockOf(this.schedule, d)));
    const moved = (outer: (d: LoopDimension, at: Expr) => Expr): Parts => {
      const others = new Map(parts);
      for (const d of tied)
        others.set(d.name, {
          outer: outer(d, parts.get(d.name)?.outer ?? number(0)),
          count: blockOf(this.schedule, d),
          partial: false,
        });
      return others;
    };
    this.kept ??= companionsOf(counts, (place) => {
      const at = moved((d) => number(place[tied.indexOf(d)] ?? 0));
      return conditions.takesPart(this.stretchIn(at)) !== false;
    });
    const { kept } = this;
    const blocks = (d: LoopDimension): number => counts[tied.indexOf(d)] ?? 1;
    if (kept.kind === "opposite") {
      const opposite = moved((d, at) => minus(blocks(d) - 1, at));
      return [{ to: opposite, from: opposite }];
    }
    const along = tied[kept.dimension];
    const shifted = (by: number): Parts => moved((d, at) => (d === along ? remainder(plus(at, by), blocks(d)) : at));
    return upTo(kept.times).map((t) => {
      const by = (t + 1) * kept.distance;
      return { to: shifted(by), from: shifted((along ? blocks(along) : 1) - by) };
    });
  }

  /** A zero register, if one can be spared and there is a summed loop in which to store it. */
  private zerosWithin(
    summed: readonly NestedLoop[],
    parts: Parts,
    blocked: readonly LoopDimension[],
  ): Zeros | undefined {
    const loops = summed.filter((l) => l.tile !== undefined || this.blocksIn(l.dimension) > 1);
    const [only] = loops;
    const { accumulators } = registersOf(this.mapping, this.schedule);
    const { held, streaming } = registersTakenBy(this.mapping, this.schedule);
    const available = registerClass(this.target.file)?.count ?? 0;
    const needed = accumulators + held + streaming + 1;
    if (only === undefined || loops.length > 1 || only.tile !== undefined || needed > available) return undefined;
    // A loop that ends at a condition may skip any of its steps.
    if (this.conditions.ties(only.dimension)) return undefined;
    const counts = blocked.map((d) => ({ name: this.blockName(d), extent: countOf(parts, d) }));
    this.zeros = this.names.fresh(`${this.target.name}_zeros`);
    const register = { file: this.zeros, index: number(0) };
    const tiles = volumeOf(counts);
    return { register, clear: { kind: "clear", register }, loop: only.dimension, counts, tiles };
  }

  private blocksIn(d: LoopDimension): number {
    return Math.ceil(d.steps / blockOf(this.schedule, d));
  }

  /** Stores the tiles of an empty block that belong to one step of the summed loop. */
  private emptiedIn(at: Parts, of: Parts, zeros: Zeros): readonly Statement[] {
    const memory = this.straight(of);
    const step = at.get(zeros.loop.name)?.outer;
    if (memory === undefined || step === undefined) internal("zeros have no place");
    const steps = this.blocksIn(zeros.loop);
    const each = Math.ceil(zeros.tiles / steps);
    const stores = upTo(each).flatMap((n): readonly Statement[] => {
      const tile = plus(times(step, each), n);
      const within = new Map(splitRowMajor(tile, zeros.counts).map(([{ name }, digit]) => [name, digit]));
      const store = {
        kind: "store",
        register: zeros.register,
        memory: { ...memory, base: substitute(memory.base, within, "index") },
      } as const;
      if (each * steps === zeros.tiles) return [store];
      return when(tile.kind === "number" ? tile.value < zeros.tiles : compare("<", tile, zeros.tiles), [store]);
    });
    return when(not(this.conditions.takesPart(this.stretchIn(of))), stores);
  }

  /** One step of the summed loops. It is generated twice for blocks in which a condition cuts an input's tiles. */
  private step(
    parts: Parts,
    blocked: readonly LoopDimension[],
    held: Placed | undefined,
    streaming: Placed,
    accumulator: { file: string; index: Expr },
  ): readonly Statement[] {
    const carrier = [held, streaming].find((p) => p?.edges !== undefined);
    if (carrier?.edges === undefined) return this.core(parts, blocked, held, streaming, accumulator);
    const { edges, ...plain } = carrier;
    const from = (p: Placed): readonly Statement[] =>
      this.step(parts, blocked, carrier === held ? p : held, carrier === streaming ? p : streaming, accumulator);
    return when(this.conditions.isInside(carrier.operand.name, this.stretchIn(parts)), from(plain), from(edges));
  }

  /**
   * One unrolled step of the summed loops: load the held tiles, then load each streaming tile and issue its products.
   */
  private core(
    parts: Parts,
    blocked: readonly LoopDimension[],
    held: Placed | undefined,
    streaming: Placed,
    accumulator: { file: string; index: Expr },
  ): readonly Statement[] {
    const heldDimensions = held ? blocked.filter((d) => dependsOn(this.mapping, held.operand.name, d)) : [];
    const streamed = blocked.filter((d) => dependsOn(this.mapping, streaming.operand.name, d));
    const others = blocked.filter((d) => !streamed.includes(d));
    const heldIndex = this.accumulatorIndex(heldDimensions);
    const issue: Statement = {
      kind: "register-issue",
      intrinsic: this.mapping.intrinsic,
      registers: {
        [this.target.name]: accumulator,
        ...(held ? { [held.operand.name]: { file: this.fileName(held.operand), index: heldIndex } } : {}),
        ...Object.fromEntries(
          [streaming, ...this.further].map(({ operand }) => [
            operand.name,
            { file: this.fileName(operand), index: number(0) },
          ]),
        ),
      },
    };
    const load = (p: Placed, index: Expr): Statement => ({
      kind: "load",
      register: { file: this.fileName(p.operand), index },
      memory: { buffer: p.buffer, base: p.base(this.positionIn(parts)), stride: p.stride },
      ...(p.made && { made: p.made(this.positionIn(parts)) }),
    });
    const issued = [...this.further.map((p) => load(p, number(0))), issue];
    const unrolledSummed = summedIn(this.dimensions).filter((d) => countOf(parts, d) > 1);
    if (![...parts.values()].some((part) => part.edge)) {
      const step = [
        ...(held ? this.unrolled(heldDimensions, parts, [load(held, heldIndex)]) : []),
        ...this.unrolled(streamed, parts, [load(streaming, number(0)), ...this.unrolled(others, parts, issued)]),
      ];
      return this.unrolled(unrolledSummed, parts, step);
    }
    // In an edge block every step is separate, and steps that read outside are omitted.
    const steps = (dimensions: readonly LoopDimension[], known: ReadonlyMap<string, number>): Known[] =>
      dimensions.reduce<Known[]>(
        (all, d) => all.flatMap((one) => upTo(countOf(parts, d)).map((i) => new Map(one).set(this.blockName(d), i))),
        [known],
      );
    const none: Known = new Map();
    const isInside = (known: Known): boolean => !this.isOutside(parts, known);
    const streams = steps(streamed, none).flatMap((known) => {
      const issues = steps(others, known).filter(isInside);
      return issues.length === 0
        ? []
        : [load(streaming, number(0)), ...issues.flatMap((k) => issued.map((s) => at(s, k)))].map((s) => at(s, known));
    });
    if (streams.length === 0) return [];
    const loaded = held
      ? steps(heldDimensions, none)
          .filter((known) =>
            steps(
              blocked.filter((d) => !heldDimensions.includes(d)),
              known,
            ).some(isInside),
          )
          .map((known) => at(load(held, heldIndex), known))
      : [];
    return this.unrolled(unrolledSummed, parts, [...loaded, ...streams]);
  }
  lower(): LoopNest {
    const placed = this.inputs.map((operand) => this.operands.place(operand));
    const { accumulators, held } = registersOf(this.mapping, this.schedule);
    // The input with fewer tiles in the block is held in registers; the other is streamed.
    const [first, second] = sortedBy(placed.slice(0, 2), (a) => this.blockTiles(a.operand));
    if (!first) internal("an instruction without inputs");
    const streaming = second ?? first;
    this.further = placed.slice(2);
    const registers: RegisterFile[] = [
      this.registerFile(this.target, accumulators),
      ...(second ? [this.registerFile(first.operand, held)] : []),
      this.registerFile(streaming.operand, 1),
      ...this.further.map(({ operand }) => this.registerFile(operand, 1)),
    ];

    const { inBlock } = this;
    const partial = this.loops.some((l) => l.pass) ? this.operands.placePartialSums(this.target) : undefined;
    const compute = this.nest(
      this.loops.slice(0, inBlock),
      new Map(),
      WHOLE,
      (parts, tiles) =>
        this.block(parts, tiles, this.loops.slice(inBlock), second ? first : undefined, streaming, partial),
      true,
    );
    if (this.zeros !== undefined)
      registers.push({ name: this.zeros, intrinsic: this.mapping.intrinsic, operand: this.target.name, count: 1 });
    const { scratch, prepare, zeros } = this.operands;
    const { computation, names } = this;
    const pack = [...storedBeside(computation, names), ...this.operands.pack];
    const packed = pack.length > 0 ? [...pack, { kind: "barrier" as const }] : [];
    return { scratch, registers, prepare, body: [...packed, ...zeros, ...this.overlapped(compute)] };
  }

  // ---- loops ----------------------------------------------------------------------------------------------------------------

  /**
   * Loops over the whole blocks of each dimension, then the smaller remainder block. The outermost loop over blocks or
   * tiles of a kept dimension is divided among threads, and a thread gets the same blocks in every pass over partial
   * sums.
   */
  private nest(
    loops: readonly NestedLoop[],
    parts: Parts,
    tiles: Tiles,
    inside: (parts: Parts, tiles: Tiles) => readonly Statement[],
    parallel = false,
  ): readonly Statement[] {
    const [outermost, ...rest] = loops;
    if (!outermost) {
      const body = inside(parts, tiles);
      return parallel ? [loop(this.names.fresh("once"), 1, body, "parallel")] : body;
    }
    const { dimension: d } = outermost;
    if (outermost.tile !== undefined)
      return this.tileLoop(outermost, outermost.tile, tiles, parallel, (within, still) => [
        ...this.operands.copiesWithin(printLoop({ name: d.name, tile: outermost.tile }), parts, within),
        ...this.nest(rest, parts, within, inside, still),
      ]);
    const block = blockOf(this.schedule, d);
    const within = (part: Part): readonly Statement[] => {
      const known = new Map(parts).set(d.name, part);
      return [...this.operands.copiesWithin(d.name, known, tiles), ...this.nest(rest, known, tiles, inside)];
    };
    const crossed = this.crossedBy(d, parts);
    if (crossed.borders.length > 0)
      return upTo(d.steps).flatMap((step) =>
        within({ outer: number(Math.floor(step / block)), inner: step % block, count: 1, partial: false }),
      );
    const range = tiles.ranges.get(d.name);
    const { first, whole, left } = range ?? this.allBlocks(d);
    const outerAt = (local: Expr): Pick<Part, "outer" | "tile"> => ({
      outer: plus(first, local),
      ...(range && { tile: { number: range.tile, block: local } }),
    });
    const main = (local: Expr): Part => {
      const at = outerAt(local);
      const { from, to } = this.interiorOf(d);
      const [low, high] =
        at.outer.kind === "number" ? [at.outer.value, at.outer.value] : [0, this.allBlocks(d).whole - 1];
      return { ...at, count: block, partial: false, edge: low < from || high >= to };
    };
    if (whole === 1 && left === 0) {
      const part = main(number(0));
      const known = new Map(parts).set(d.name, part);
      const body = [
        ...this.operands.copiesWithin(d.name, known, tiles),
        ...this.nest(rest, known, tiles, inside, parallel),
      ];
      return range ? this.tested(d, known, body) : body;
    }
    const single = (part: Part): readonly Statement[] => this.tested(d, new Map(parts).set(d.name, part), within(part));
    const alone = (name: string, body: readonly Statement[]): readonly Statement[] => this.alone(name, parallel, body);
    const statements: Statement[] = [];
    if (whole === 1) {
      statements.push(...alone(`${d.name}_outer`, single(main(number(0)))));
    } else if (whole > 1) {
      const name = this.names.fresh(`${d.name}_outer`);
      const body = within(main(axis(name)));
      const steps = crossed.range ?? this.conditions.blocks(d, this.stretchIn(parts), first, whole);
      if (body.length > 0) statements.push(this.dealtLoop(d, loop(name, whole, body), parallel, steps));
    }
    if (left > 0) {
      const partial = d.steps !== d.wholeSteps;
      statements.push(
        ...alone(
          `${d.name}_rest`,
          single({ ...outerAt(number(whole)), count: left, partial, edge: this.leftIsEdge(d) }),
        ),
      );
    }
    return statements;
  }

  /**
   * A loop over tiles. A smaller last tile is peeled, and so is the last pass if its rows are stored during the next
   * block. Inside the loop, a test tells whether sums begin or end in a pass.
   */
  private tileLoop(
    { dimension: d, pass }: NestedLoop,
    blocks: number,
    tiles: Tiles,
    parallel: boolean,
    inside: (tiles: Tiles, parallel: boolean) => readonly Statement[],
  ): readonly Statement[] {
    const { whole, left } = this.allBlocks(d);
    const full = Math.floor(whole / blocks);
    const count = full + (full * blocks < whole || left > 0 ? 1 : 0);
    const dealt = parallel && d.kind === "spatial";
    const tile = (index: Expr, isLast: boolean): readonly Statement[] => {
      const range: BlockRange = {
        tile: index,
        first: times(index, blocks),
        whole: isLast ? whole - (count - 1) * blocks : blocks,
        left: isLast ? left : 0,
      };
      const isAt = (at: number): Truth =>
        !pass || (index.kind === "number" ? index.value === at : at < end && compare("==", index, at));
      const first = joined("and", tiles.first, isAt(0));
      const last = joined("and", tiles.last, isAt(count - 1));
      return inside({ ranges: new Map(tiles.ranges).set(d.name, range), first, last }, parallel && !dealt);
    };
    const single = (index: number): readonly Statement[] =>
      this.alone(`${d.name}_tile`, dealt, tile(number(index), index === count - 1));
    const alike = pass && this.storesBeside ? count - 1 : count;
    const end = Math.min(full, alike);
    const statements: Statement[] = [];
    if (end === 1) statements.push(...single(0));
    else if (end > 1) {
      const name = this.names.fresh(`${d.name}_tile`);
      const body = tile(axis(name), false);
      statements.push(this.dealtLoop(d, loop(name, end, body), dealt));
    }
    for (let i = end; i < count; i++) statements.push(...single(i));
    return statements;
  }

  /** A loop over blocks or tiles. If its steps do unequal work, threads take them one by one. */
  private dealtLoop(d: LoopDimension, all: Loop, parallel: boolean, range?: StepRange): Statement {
    if (range) return { ...all, range };
    if (!parallel) return all;
    return { ...all, mode: "parallel", ...(this.conditions.ties(d) && { inTurn: true }) };
  }

  /** One block of a summed dimension, skipped if a condition excludes all of it. */
  private tested(d: LoopDimension, parts: Parts, body: readonly Statement[]): readonly Statement[] {
    return when(this.conditions.mayAdd(d, this.stretchIn(parts)), body);
  }

  /** Statements peeled from a parallel loop are given to one thread, by a parallel loop of one step. */
  private alone(name: string, parallel: boolean, body: readonly Statement[]): readonly Statement[] {
    return parallel ? [loop(this.names.fresh(name), 1, body, "parallel")] : body;
  }

  private allBlocks(d: LoopDimension): Omit<BlockRange, "tile"> {
    const block = blockOf(this.schedule, d);
    const whole = Math.floor((d.kind === "spatial" ? d.wholeSteps : d.steps) / block);
    return { first: number(0), whole, left: d.steps - whole * block };
  }

  /**
   * Whether results are stored during the products of the next block: for a unit with its own tile registers, if there
   * is an epilogue.
   */
  private get storesBeside(): boolean {
    return registerClass(this.target.file)?.apart === true && this.computation.epilogue !== undefined;
  }

  private overlapped(compute: readonly Statement[]): readonly Statement[] {
    if (!this.storesBeside) return compute;
    const spilled = new Set([this.names.fresh(`${this.target.name}_results`)]);
    return overlapStores(compute, spilled, this.schedule.threads === 1 ? this.names.fresh("once") : undefined);
  }
}

function countOf(parts: Parts, d: LoopDimension): number {
  return parts.get(d.name)?.count ?? 1;
}

/** Steps of unrolled loops, by loop name. */
type Known = ReadonlyMap<string, number>;

type Writing = (parts: Parts) => readonly Statement[];

/** A zero register that is stored to the tiles of empty blocks during the steps of a summed loop. */
interface Zeros {
  readonly register: RegisterAt;
  readonly clear: Statement;
  readonly loop: LoopDimension;
  /** Tiles of a block along each unrolled dimension, and in total. */
  readonly counts: readonly Dimension[];
  readonly tiles: number;
}

/** A load or an issue with known loop counters substituted. */
function at(s: Statement, known: Known): Statement {
  return [...known].reduce((all, [name, value]) => substituteAxis(all, name, number(value)), s);
}

// ---- overlapped stores --------------------------------------------------------------------------------------------------------------------

/**
 * Overlaps stores in a nest where possible.
 * @param spilled the scratch buffers that blocks of results are spilled to
 * @param alone the name of the one-step loop around everything, if there is one thread; undefined if there are several
 */
function overlapStores(
  body: readonly Statement[],
  spilled: ReadonlySet<string>,
  alone: string | undefined,
): readonly Statement[] {
  const leaves = body.flatMap(leavesOf);
  const loaded = new Set(leaves.flatMap((leaf) => (leaf.kind === "load" ? [leaf.memory.buffer] : [])));
  // Partial sums must be stored before they are loaded again.
  if (leaves.some((leaf) => leaf.kind === "scalar" && isRow(leaf, spilled) && loaded.has(leaf.equation.target.tensor)))
    return body;
  if (alone === undefined) return overlapAll(body, spilled);
  const inOrder = body.map(
    (s): Statement => (s.kind === "loop" && s.mode === "parallel" ? { ...s, mode: "serial" } : s),
  );
  return [loop(alone, 1, overlapAll(inOrder, spilled), "parallel")];
}

function overlapAll(body: readonly Statement[], spilled: ReadonlySet<string>): readonly Statement[] {
  const { statements, pending } = overlap(body, [], spilled);
  return [...statements, ...pending];
}

/** Statements, and the rows still to be stored after them. */
interface Overlapped {
  readonly statements: readonly Statement[];
  readonly pending: readonly Statement[];
}

function overlap(body: readonly Statement[], before: readonly Statement[], spilled: ReadonlySet<string>): Overlapped {
  const statements: Statement[] = [];
  let pending = before;
  for (const s of body) {
    switch (roleOf(s, spilled)) {
      case "compute":
        statements.push(s);
        break;
      case "spill":
        statements.push(...pending, s);
        pending = [];
        break;
      case "rows":
        pending = [...pending, s];
        break;
      case "blocks": {
        if (s.kind === "when") {
          // Conditional statements are not overlapped.
          statements.push(...pending, s);
          pending = [];
          break;
        }
        const inner = overlapLoop(s, pending, spilled);
        statements.push(...inner.statements);
        pending = inner.pending;
        break;
      }
    }
  }
  return { statements, pending };
}

/** Peels the innermost loop around whole blocks. */
function overlapLoop(s: Statement, before: readonly Statement[], spilled: ReadonlySet<string>): Overlapped {
  if (s.kind !== "loop") internal(`a ${s.kind} holds no blocks`);
  const at = (value: Expr, list: readonly Statement[]): Statement[] =>
    list.map((inner) => substituteAxis(inner, s.axis, value));
  if (s.mode === "serial" && s.extent === 1) return overlap(at(number(0), s.body), before, spilled);
  const innermost = s.body.every((inner) => roleOf(inner, spilled) !== "blocks");
  if (!innermost || s.mode !== "serial")
    return { statements: [...before, { ...s, body: overlapAll(s.body, spilled) }], pending: [] };
  const { pending } = overlap(s.body, [], spilled);
  const first = overlap(at(number(0), s.body), before, spilled);
  const steady = overlap(at(plus(axis(s.axis), 1), s.body), pending, spilled);
  return {
    statements: [...first.statements, loop(s.axis, s.extent - 1, steady.statements)],
    pending: at(number(s.extent - 1), pending),
  };
}

type Role = "compute" | "spill" | "rows" | "blocks";

function roleOf(s: Statement, spilled: ReadonlySet<string>): Role {
  const spills = leavesOf(s).some((leaf) => leaf.kind === "store" && spilled.has(leaf.memory.buffer));
  if (spills) return leavesOf(s).every((leaf) => leaf.kind === "store") ? "spill" : "blocks";
  return leavesOf(s).some((leaf) => isRow(leaf, spilled)) ? "rows" : "compute";
}

function isRow(leaf: Statement, spilled: ReadonlySet<string>): boolean {
  return leaf.kind === "scalar" && accessesIn(leaf.equation.value).some((a) => spilled.has(a.tensor));
}

function leavesOf(s: Statement): Statement[] {
  if (s.kind === "when") return [...s.body, ...s.otherwise].flatMap(leavesOf);
  return s.kind === "loop" ? s.body.flatMap(leavesOf) : [s];
}
