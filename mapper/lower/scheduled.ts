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
import { axis, binary, type Expr, number } from "../../abstraction/expression.ts";
import {
  type Loop,
  type LoopNest,
  loop,
  type RegisterFile,
  type Statement,
  type StepRange,
} from "../../abstraction/loop-nest.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { registerClass } from "../../targets/index.ts";
import { clearOutput } from "../match/elements.ts";
import { blockOf, registersOf } from "../schedule/block.ts";
import { type Border, type BorderBlocks, borderBlocks } from "../schedule/borders.ts";
import { type NestedLoop, printLoop } from "../schedule/cache-tiles.ts";
import type { LoopDimension } from "../schedule/dimensions.ts";
import { scheduleProblem } from "../schedule/mapped.ts";
import type { BlockRange, Part, Tiles } from "./operands.ts";
import { overlapStores } from "./overlap.ts";
import { ScheduledBlock } from "./scheduled-block.ts";

/** The loop nest of a mapping under a schedule. @throws Error when {@link scheduleProblem} has something to say */
export function lowerSchedule(mapping: Mapping, schedule: Schedule): LoopNest {
  const problem = scheduleProblem(mapping, schedule);
  if (problem !== undefined) throw new Error(`internal: the schedule cannot be lowered: ${problem}`);
  return new Lowering(mapping, schedule).lower();
}

const WHOLE: Tiles = { ranges: new Map(), first: true, last: true };

class Lowering extends ScheduledBlock {
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
    if (this.zeros !== undefined)
      registers.push({ name: this.zeros, intrinsic: this.mapping.intrinsic, operand: this.target.name, count: 1 });
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
  protected override nest(
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

  /** A unit with tiles of its own computes while results are made of the block before. */
  private overlapped(compute: readonly Statement[]): readonly Statement[] {
    if (!registerClass(this.target.file)?.apart || !this.computation.epilogue) return compute;
    const spilled = new Set([this.names.fresh(`${this.target.name}_results`)]);
    return overlapStores(compute, spilled, this.schedule.threads === 1 ? this.names.fresh("once") : undefined);
  }
}
