/**
 * @file Lowers a mapping under a schedule: operands placed, a register block around the instruction, loops in the order asked for.
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
 * What does not divide is peeled: a loop of whole blocks, then one smaller block; nothing is tested inside. Tiles (tiles.ts) are loops
 * around these, each over a range of blocks; where tiles of a sum stand outside kept loops, accumulators are loaded and stored. Padding lies in the
 * copies of operands, written once, so the inner loops know nothing of it.
 */

import type { Schedule } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { access, axis, binary, type Expr, number, substitute } from "../../abstraction/expression.ts";
import { type Operand, tileElements, tileRowElements } from "../../abstraction/intrinsic.ts";
import {
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
import { registerClass } from "../../targets/index.ts";
import { Conditions, type StretchOf, wholeStretch } from "../match/conditions.ts";
import { clearOutput } from "../match/elements.ts";
import { blockedDimensions, blockOf, registersOf } from "../schedule/block.ts";
import { type Border, type BorderBlocks, borderBlocks, isInside } from "../schedule/borders.ts";
import { type NestedLoop, nestedLoops, printLoop } from "../schedule/cache-tiles.ts";
import type { LoopDimension } from "../schedule/dimensions.ts";
import { dimensionsUnder } from "../schedule/gaps.ts";
import { scheduleProblem } from "../schedule/mapped.ts";
import { dependsOn, inputOperands, product, targetOperand } from "../schedule/operands.ts";
import { placementsOf } from "../schedule/place.ts";
import { reachInPlace } from "../schedule/reach.ts";
import { FreshNames } from "./names.ts";
import { type BlockRange, OperandPlacement, type Part, type Placed, type Position, type Tiles } from "./operands.ts";
import { overlapStores } from "./overlap.ts";
import { storeElements } from "./store.ts";

/** The loop nest of a mapping under a schedule. @throws Error when {@link scheduleProblem} has something to say */
export function lowerSchedule(mapping: Mapping, schedule: Schedule): LoopNest {
  const problem = scheduleProblem(mapping, schedule);
  if (problem !== undefined) throw new Error(`internal: the schedule cannot be lowered: ${problem}`);
  return new Lowering(mapping, schedule).lower();
}

/** Steps of unrolled loops, by the names of the loops. */
type Known = ReadonlyMap<string, number>;

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
  private readonly conditions: Conditions | undefined;

  constructor(mapping: Mapping, schedule: Schedule) {
    this.mapping = mapping;
    this.schedule = schedule;
    this.computation = mapping.computation;
    this.names = new FreshNames(mapping.computation);
    const all = dimensionsUnder(mapping, schedule);
    this.loops = nestedLoops(schedule.order, all);
    this.dimensions = this.loops.flatMap((l) => (l.tile === undefined ? [l.dimension] : []));
    this.operands = new OperandPlacement(mapping, schedule, this.loops, this.names);
    this.conditions = Conditions.of(mapping, schedule, this.dimensions);
    this.target = targetOperand(mapping);
    this.inputs = inputOperands(mapping);
    this.borders = new Map(
      placementsOf(mapping, schedule).map((c) => [
        c.operand,
        schedule.placement[c.operand] === "in-place" ? c.borders : [],
      ]),
    );
  }

  lower(): LoopNest {
    const placed = this.inputs.map((operand) => this.operands.place(operand));
    const { accumulators, held } = registersOf(this.mapping, this.schedule);
    // The input with fewer tiles in the block is held in registers, the other streams by.
    const [first, second] = [...placed].sort((a, b) => this.blockTiles(a.operand) - this.blockTiles(b.operand));
    if (!first) throw new Error("internal: an instruction without inputs");
    const streaming = second ?? first;
    const registers: RegisterFile[] = [
      this.registerFile(this.target, accumulators),
      ...(second ? [this.registerFile(first.operand, held)] : []),
      this.registerFile(streaming.operand, 1),
    ];
    const inBlock = this.loops.findLastIndex((l) => l.dimension.kind === "spatial") + 1;
    const partial = this.loops.some((l) => l.pass) ? this.operands.placePartialSums(this.target) : undefined;
    const compute = this.nest(this.loops.slice(0, inBlock), new Map(), WHOLE, true, (parts, tiles) =>
      this.block(parts, tiles, this.loops.slice(inBlock), second ? first : undefined, streaming, partial),
    );
    const { scratch, prepare, zeros } = this.operands;
    const pack = [...clearOutput(this.computation, this.names), ...this.operands.pack];
    const packed = pack.length > 0 ? [...pack, { kind: "barrier" as const }] : [];
    return { scratch, registers, prepare, body: [...packed, ...zeros, ...this.overlapped(compute)] };
  }

  // ---- loops ----------------------------------------------------------------------------------------------------------------

  /**
   * Loops over whole blocks of each dimension, then the smaller block that is left; the outermost loop over blocks or tiles of a kept
   * dimension is dealt to the threads. In every pass over partial sums a thread comes to the same blocks.
   */
  private nest(
    loops: readonly NestedLoop[],
    parts: ReadonlyMap<string, Part>,
    tiles: Tiles,
    parallel: boolean,
    inside: (parts: ReadonlyMap<string, Part>, tiles: Tiles) => readonly Statement[],
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
        ...this.nest(rest, parts, within, still, inside),
      ]);
    const block = blockOf(this.schedule, d);
    const within = (part: Part): readonly Statement[] => {
      const known = new Map(parts).set(d.name, part);
      return [...this.operands.copiesWithin(d.name, known, tiles), ...this.nest(rest, known, tiles, false, inside)];
    };
    if (this.bordersOf(d).some((b) => b.reduce === d.name && parts.get(b.spatial)?.edge))
      return Array.from({ length: d.steps }, (_, step) =>
        within({ outer: number(Math.floor(step / block)), inner: step % block, count: 1, partial: false }),
      ).flat();
    const range = tiles.ranges.get(d.name);
    const { first, whole, left } = range ?? this.allBlocks(d);
    const outerAt = (local: Expr): Pick<Part, "outer" | "tile"> => ({
      outer: binary("+", first, local),
      ...(range && { tile: { number: range.tile, block: local } }),
    });
    const { from, to } = this.insideOfBorder(d, first, whole);
    const leftIsEdge = this.borderOf(d)?.leftIsEdge ?? false;
    if (whole === 1 && left === 0) {
      const part = { ...outerAt(number(0)), count: block, partial: false, edge: from === to };
      const known = new Map(parts).set(d.name, part);
      const body = [
        ...this.operands.copiesWithin(d.name, known, tiles),
        ...this.nest(rest, known, tiles, parallel, inside),
      ];
      return range ? this.tested(d, known, body) : body;
    }
    const single = (part: Part): readonly Statement[] => this.tested(d, new Map(parts).set(d.name, part), within(part));
    const alone = (name: string, body: readonly Statement[]): readonly Statement[] => this.alone(name, parallel, body);
    const edge = (number_: number): readonly Statement[] =>
      alone(`${d.name}_edge`, within({ ...outerAt(number(number_)), count: block, partial: false, edge: true }));
    const statements: Statement[] = [];
    for (let b = 0; b < from; b++) statements.push(...edge(b));
    if (to - from === 1) {
      statements.push(...alone(`${d.name}_outer`, single({ ...outerAt(number(from)), count: block, partial: false })));
    } else if (to > from) {
      const name = this.names.fresh(`${d.name}_outer`);
      const body = within({ ...outerAt(binary("+", axis(name), number(from))), count: block, partial: false });
      const steps = this.conditions?.blocks(d, this.stretchIn(parts), binary("+", first, number(from)), to - from);
      if (body.length > 0) statements.push(this.dealtLoop(d, loop(name, to - from, body), parallel, steps));
    }
    for (let b = to; b < whole; b++) statements.push(...edge(b));
    if (left > 0) {
      const partial = d.steps !== d.wholeSteps;
      statements.push(
        ...alone(`${d.name}_rest`, single({ ...outerAt(number(whole)), count: left, partial, edge: leftIsEdge })),
      );
    }
    return statements;
  }

  /**
   * A loop over tiles: those that are alike in a loop, the others written out: the last, where it is smaller; those with blocks at a
   * border; and of passes the first and the last, as far as sums begin and end here.
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
    const tile = (index: Expr, isLast: boolean, first: boolean, last: boolean): readonly Statement[] => {
      const range: BlockRange = {
        tile: index,
        first: binary("*", index, number(blocks)),
        whole: isLast ? whole - (count - 1) * blocks : blocks,
        left: isLast ? left : 0,
      };
      return inside({ ranges: new Map(tiles.ranges).set(d.name, range), first, last }, parallel && !dealt);
    };
    const isFirst = (index: number): boolean => tiles.first && (!pass || index === 0);
    const isLast = (index: number): boolean => tiles.last && (!pass || index === count - 1);
    const single = (index: number): readonly Statement[] => {
      const body = tile(number(index), index === count - 1, isFirst(index), isLast(index));
      return this.alone(`${d.name}_tile`, dealt, body);
    };
    const { from, to } = this.insideOfBorder(d, number(0), whole);
    const begin = Math.max(pass && tiles.first ? 1 : 0, Math.ceil(from / blocks));
    const end = Math.max(begin, Math.min(pass && tiles.last ? count - 1 : full, Math.floor(to / blocks), full));
    const statements: Statement[] = [];
    for (let i = 0; i < begin; i++) statements.push(...single(i));
    if (end - begin === 1) statements.push(...single(begin));
    else if (end > begin) {
      const name = this.names.fresh(`${d.name}_tile`);
      const body = tile(binary("+", axis(name), number(begin)), false, isFirst(begin), isLast(begin));
      statements.push(this.dealtLoop(d, loop(name, end - begin, body), dealt));
    }
    for (let i = end; i < count; i++) statements.push(...single(i));
    return statements;
  }

  /** A loop over blocks or tiles; one whose steps have unequal work is dealt to threads step by step. */
  private dealtLoop(d: LoopDimension, all: Loop, parallel: boolean, range?: StepRange): Statement {
    if (range) return { ...all, range };
    if (!parallel) return all;
    return { ...all, mode: "parallel", ...(this.conditions?.ties(d) && { inTurn: true }) };
  }

  /** One block of a summed dimension, run where a condition leaves something of it. */
  private tested(d: LoopDimension, parts: ReadonlyMap<string, Part>, body: readonly Statement[]): readonly Statement[] {
    return (d.kind === "reduce" && this.conditions?.summed(d, this.stretchIn(parts), body)) || body;
  }

  /** What is written out beside a loop that is dealt to threads is dealt too: to one of them. */
  private alone(name: string, parallel: boolean, body: readonly Statement[]): readonly Statement[] {
    return parallel ? [loop(this.names.fresh(name), 1, body, "parallel")] : body;
  }

  private allBlocks(d: LoopDimension): Omit<BlockRange, "tile"> {
    const block = blockOf(this.schedule, d);
    const whole = Math.floor((d.kind === "spatial" ? d.wholeSteps : d.steps) / block);
    return { first: number(0), whole, left: d.steps - whole * block };
  }

  private borderOf(d: LoopDimension): BorderBlocks | undefined {
    const border = this.bordersOf(d).find((b) => b.spatial === d.name);
    return border && borderBlocks(border, blockOf(this.schedule, d));
  }

  /** Blocks `from` up to `to` of the `whole` ones behind `first` cross no border. Tiles with others have a number for their first. */
  private insideOfBorder(d: LoopDimension, first: Expr, whole: number): { readonly from: number; readonly to: number } {
    const border = this.borderOf(d);
    if (!border || first.kind !== "number") return { from: 0, to: whole };
    const from = Math.min(whole, Math.max(0, border.from - first.value));
    return { from, to: Math.max(from, Math.min(whole, border.to - first.value)) };
  }

  /** Borders at which a dimension takes part, of inputs loaded in place. */
  private bordersOf(d: LoopDimension): readonly Border[] {
    return [...this.borders.values()].flat().filter((b) => b.spatial === d.name || b.reduce === d.name);
  }

  /** One register block: accumulators cleared, the summed loops, results stored; or sums of the pass before loaded, and kept for the next. */
  private block(
    parts: ReadonlyMap<string, Part>,
    tiles: Tiles,
    summed: readonly NestedLoop[],
    held: Placed | undefined,
    streaming: Placed,
    partial: Placed | undefined,
  ): readonly Statement[] {
    const blocked = this.blocked(parts);
    const counter = this.accumulatorIndex(blocked);
    const unrolled = (dimensions: readonly LoopDimension[], body: readonly Statement[]): readonly Statement[] =>
      dimensions.reduceRight<readonly Statement[]>(
        (inner, d) => [loop(this.blockName(d), countOf(parts, d), inner, "unrolled")],
        body,
      );
    const accumulator = { file: this.fileName(this.target), index: counter };
    const move = (kind: "load" | "store"): readonly Statement[] => {
      if (!partial) throw new Error("internal: there is no place for partial sums");
      const memory = { buffer: partial.buffer, base: partial.base(this.positionIn(parts)), stride: partial.stride };
      return unrolled(blocked, [{ kind, register: accumulator, memory }]);
    };
    const begin = tiles.first ? unrolled(blocked, [{ kind: "clear", register: accumulator }]) : move("load");
    const all = this.nest(summed, parts, tiles, false, (all) => this.core(all, blocked, held, streaming, accumulator));
    const work = this.conditions?.worked(this.stretchIn(parts), all) ?? all;
    return [...begin, ...work, ...(tiles.last ? this.storeBlock(parts, blocked, counter) : move("store"))];
  }

  /** One step of the summed loops, unrolled: held tiles loaded, then each streaming tile and the issues it takes part in. */
  private core(
    parts: ReadonlyMap<string, Part>,
    blocked: readonly LoopDimension[],
    held: Placed | undefined,
    streaming: Placed,
    accumulator: { file: string; index: Expr },
  ): readonly Statement[] {
    const unroll = (dimensions: readonly LoopDimension[], body: readonly Statement[]): readonly Statement[] =>
      dimensions.reduceRight<readonly Statement[]>(
        (inner, d) => [loop(this.blockName(d), countOf(parts, d), inner, "unrolled")],
        body,
      );
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
        [streaming.operand.name]: { file: this.fileName(streaming.operand), index: number(0) },
      },
    };
    const load = (p: Placed, index: Expr): Statement => ({
      kind: "load",
      register: { file: this.fileName(p.operand), index },
      memory: { buffer: p.buffer, base: p.base(this.positionIn(parts)), stride: p.stride },
    });
    const unrolledSummed = this.dimensions.filter((d) => d.kind === "reduce" && countOf(parts, d) > 1);
    if (!blocked.some((d) => parts.get(d.name)?.edge) && !this.isOutside(parts)) {
      const step = [
        ...(held ? unroll(heldDimensions, [load(held, heldIndex)]) : []),
        ...unroll(streamed, [load(streaming, number(0)), ...unroll(others, [issue])]),
      ];
      return unroll(unrolledSummed, step);
    }
    // At an edge every step of the block is a part of its own, and what reads outside is left out.
    const steps = (dimensions: readonly LoopDimension[], known: ReadonlyMap<string, number>): Known[] =>
      dimensions.reduce<Known[]>(
        (all, d) =>
          all.flatMap((one) =>
            Array.from({ length: countOf(parts, d) }, (_, i) => new Map(one).set(this.blockName(d), i)),
          ),
        [known],
      );
    const none: Known = new Map();
    const isInside = (known: Known): boolean => !this.isOutside(parts, known);
    const streams = steps(streamed, none).flatMap((known) => {
      const issues = steps(others, known).filter(isInside);
      return issues.length === 0
        ? []
        : [load(streaming, number(0)), ...issues.map((k) => at(issue, k))].map((s) => at(s, known));
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
    return unroll(unrolledSummed, [...loaded, ...streams]);
  }

  /** Whether an input loaded in place lies outside its tensor in a part, at the steps of the block given by the names of their loops. */
  private isOutside(parts: ReadonlyMap<string, Part>, known: Known = new Map()): boolean {
    const stepOf = (name: string): number => {
      const d = this.operands.dimension(name);
      const part = parts.get(name);
      const inner = known.get(this.blockName(d)) ?? part?.inner ?? 0;
      return (part?.outer.kind === "number" ? part.outer.value : 0) * blockOf(this.schedule, d) + inner;
    };
    return [...this.borders.values()].some((borders) =>
      borders.some((b) => parts.get(b.spatial)?.edge && !isInside(b, stepOf(b.spatial), stepOf(b.reduce))),
    );
  }

  /** Straight into the output where its tiles lie as the instruction stores them; else by way of a scratch block (store.ts). */
  private storeBlock(
    parts: ReadonlyMap<string, Part>,
    blocked: readonly LoopDimension[],
    counter: Expr,
  ): readonly Statement[] {
    const { computation, mapping } = this;
    const bound = access(computation.equation.target.tensor, computation.equation.target.index);
    const partial = this.dimensions.some((d) => d.kind === "spatial" && parts.get(d.name)?.partial);
    const whole = this.dimensions.map((d) =>
      d.kind === "spatial" ? { ...d, steps: d.wholeSteps, extent: d.wholeSteps * d.step } : d,
    );
    const closed = computation.epilogue
      ? "an epilogue comes first"
      : partial
        ? "the last tile is not whole"
        : undefined;
    const reach = closed ?? reachInPlace(computation, mapping.intrinsic, this.target, bound, whole);
    if (typeof reach === "string") return this.storeSpilled(parts, blocked, counter);
    const { base } = this.operands.reached(this.target, bound.tensor, reach);
    const memory = { buffer: bound.tensor, base: base(this.positionIn(parts)), stride: reach.stride };
    const straight = this.storeTiles(parts, blocked, counter, memory);
    if (this.conditions?.stored === undefined) return straight;
    return this.conditions.storedAs(this.stretchIn(parts), straight, this.storeSpilled(parts, blocked, counter));
  }

  private storeTiles(
    parts: ReadonlyMap<string, Part>,
    blocked: readonly LoopDimension[],
    counter: Expr,
    memory: MemoryTile,
  ): readonly Statement[] {
    const store: Statement = { kind: "store", register: { file: this.fileName(this.target), index: counter }, memory };
    return blocked.reduceRight<readonly Statement[]>(
      (inner, d) => [loop(this.blockName(d), countOf(parts, d), inner, "unrolled")],
      [store],
    );
  }

  /** Tiles side by side in a scratch block, then scalar loops over it. */
  private storeSpilled(
    parts: ReadonlyMap<string, Part>,
    blocked: readonly LoopDimension[],
    counter: Expr,
  ): readonly Statement[] {
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
    const spilled = { buffer, base: binary("*", counter, number(size)), stride: tileRowElements(this.target) };
    const spill = this.storeTiles(parts, blocked, counter, spilled);
    const spatial = this.dimensions.filter((d) => d.kind === "spatial");
    const stored = storeElements({
      computation: this.computation,
      condition: this.conditions?.stored,
      target: this.target,
      buffer,
      tile: counter,
      dimensions: spatial.map((d) => ({
        dimension: d,
        first: binary("*", parts.get(d.name)?.outer ?? number(0), number(blockOf(this.schedule, d))),
        count: countOf(parts, d),
        step: this.blockName(d),
        partial: parts.get(d.name)?.partial ?? false,
      })),
      innerName: (name) => this.names.fresh(`${name}_inner`),
    });
    return [...spill, ...stored];
  }

  /** A unit with tiles of its own computes while results are made of the block before. */
  private overlapped(compute: readonly Statement[]): readonly Statement[] {
    if (!registerClass(this.target.file)?.apart || !this.computation.epilogue) return compute;
    const spilled = new Set([this.names.fresh(`${this.target.name}_results`)]);
    return overlapStores(compute, spilled, this.schedule.threads === 1 ? this.names.fresh("once") : undefined);
  }

  // ---- names and numbers ----------------------------------------------------------------------------------------------------

  /** Kept dimensions with more than one step in the block. */
  private blocked(parts: ReadonlyMap<string, Part>): LoopDimension[] {
    return this.dimensions.filter((d) => d.kind === "spatial" && countOf(parts, d) > 1);
  }

  /** Number of a tile within the block, row-major over full blocks so that smaller blocks use the same registers. */
  private accumulatorIndex(dimensions: readonly LoopDimension[]): Expr {
    return dimensions.reduce<Expr>(
      (sum, d) => binary("+", binary("*", sum, number(blockOf(this.schedule, d))), axis(this.blockName(d))),
      number(0),
    );
  }

  private stretchIn(parts: ReadonlyMap<string, Part>): StretchOf {
    return (d) => {
      const part = parts.get(d.name);
      if (part === undefined) return wholeStretch(d);
      const block = blockOf(this.schedule, d);
      const first = binary("+", binary("*", part.outer, number(block)), number(part.inner ?? 0));
      const grain = part.inner === undefined ? block * d.step : d.step;
      return { low: binary("*", first, number(d.step)), elements: part.count * d.step, grain };
    };
  }

  private positionIn(parts: ReadonlyMap<string, Part>): Position {
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
    return product(
      blockedDimensions(this.mapping, this.schedule)
        .filter((d) => dependsOn(this.mapping, operand.name, d))
        .map((d) => blockOf(this.schedule, d)),
    );
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
}

function countOf(parts: ReadonlyMap<string, Part>, d: LoopDimension): number {
  return parts.get(d.name)?.count ?? 1;
}

/** A load or an issue at known steps of the loops around it. */
function at(s: Statement, known: Known): Statement {
  const values = new Map([...known].map(([name, value]) => [name, number(value)]));
  const change = (e: Expr): Expr => substitute(e, values, "index");
  const register = (r: RegisterAt): RegisterAt => ({ ...r, index: change(r.index) });
  if (s.kind === "load")
    return { ...s, register: register(s.register), memory: { ...s.memory, base: change(s.memory.base) } };
  if (s.kind !== "register-issue") return s;
  return {
    ...s,
    registers: Object.fromEntries(Object.entries(s.registers).map(([o, r]) => [o, register(r)])),
  };
}
