/**
 * @file Lowers a sum of taps under a lane schedule to the loop nest that is interpreted, printed and drawn.
 *
 *     for parallel i_block in 0..2047                         rows of outputs whose neighbours are all inside
 *       for lanes lane in 0..16   W[0,lane] = w[0,0] ...      weights, once a row of blocks
 *       for j_block in 0..127                                 4 rows x 4 vectors
 *         for lanes lane in 0..16
 *           X[0,lane] = in[4*i_block,64*j_block + lane + 15]  one load ...
 *           A[0,lane] = X[0,lane] * W[0,lane]                 ... serves every output row it is a neighbour of
 *           ...
 *           out[4*i_block + 1,64*j_block + lane + 16] = A[0,lane]
 *
 * Where a neighbour may lie outside, blocks are one row of one vector and every access is guarded. These are the
 * outermost rows and columns, and the remainder at the right.
 */

import type { WarpWindowSchedule, WindowBlock, WindowSchedule } from "../../abstraction/candidate.ts";
import { type Computation, extentsOf } from "../../abstraction/computation.ts";
import { axis, type Expr, number, plus, times } from "../../abstraction/expression.ts";
import { type LoopNest, loop, loops, type Statement } from "../../abstraction/loop-nest.ts";
import { hasWideEnds, warpWindowProblem, windowProblem } from "../schedule/lanes.ts";
import { laneNest } from "./lane-files.ts";
import { type LaneRefusal, type TapSum, tapsOf } from "./taps.ts";
import { placeWindow, WINDOW_DESIGNS, type WindowDesign, type WindowPlacement } from "./window.ts";
import { BlockWriter, type Origin, stretchesOf, type Tall, type WrittenWindow } from "./window-block.ts";
import { LineWriter } from "./window-lines.ts";
import { lowerSweep, planeAxis } from "./window-sweep.ts";

/**
 * Lowers a sum of taps to the vectors of a CPU.
 * @param design any transform that broadcasts weights; by default the one that the schedule names
 * @throws Error if the computation has no taps or the schedule does not fit; see {@link tapsOf}, {@link windowProblem}
 */
export function lowerWindow(
  computation: Computation,
  schedule: WindowSchedule,
  design: WindowDesign = WINDOW_DESIGNS[schedule.dataflow],
): LoopNest {
  const { sum, placement } = placed(computation, schedule, design, windowProblem);
  return new WindowLoops(sum, schedule, placement).nest();
}

/** Lowers a sum of taps to the lanes of warps. @throws Error as {@link lowerWindow}; see {@link warpWindowProblem} */
export function lowerWarpWindow(
  computation: Computation,
  schedule: WarpWindowSchedule,
  design: WindowDesign = WINDOW_DESIGNS[schedule.dataflow],
): LoopNest {
  const { sum, placement } = placed(computation, schedule, design, warpWindowProblem);
  const isSweep = (schedule.each ?? 1) > 1 || schedule.sweep !== undefined;
  const nest = isSweep ? lowerSweep(sum, schedule) : new WindowLoops(sum, schedule, placement).alike();
  return { ...nest, deal: { warps: schedule.warps } };
}

function placed<S extends WindowBlock>(
  computation: Computation,
  schedule: S,
  design: WindowDesign,
  problemOf: (sum: TapSum, schedule: S, design: WindowDesign) => LaneRefusal | undefined,
): { readonly sum: TapSum; readonly placement: WindowPlacement } {
  const verdict = tapsOf(computation, schedule.rolled);
  if (!verdict.ok) throw new Error(`internal: lowered without taps: ${verdict.refusal.because}`);
  const { sum } = verdict;
  const problem = problemOf(sum, schedule, design);
  if (problem) throw new Error(`internal: ${problem.because}`);
  const found = placeWindow(design, schedule.lanes, sum.columns);
  if (!found.ok) throw new Error(`internal: ${found.refusal.because}`);
  return { sum, placement: found.placement };
}

/** Outputs `from .. to-1` of an axis. */
interface Span {
  readonly from: number;
  readonly to: number;
}

/** The loops around blocks: whole blocks in the interior, and separate code at borders. */
class WindowLoops {
  private readonly sum: TapSum;
  private readonly schedule: WrittenWindow;
  private readonly placement: WindowPlacement;
  private readonly extents: Readonly<Record<string, number>>;
  private readonly write: BlockWriter;
  private readonly lines: LineWriter | undefined;

  constructor(sum: TapSum, schedule: WrittenWindow, placement: WindowPlacement) {
    this.sum = sum;
    this.schedule = schedule;
    this.placement = placement;
    this.extents = extentsOf(sum.computation);
    this.lines = schedule.lines === undefined ? undefined : new LineWriter(sum, schedule, placement);
    this.write = this.lines ?? new BlockWriter(sum, schedule, placement);
  }

  nest(): LoopNest {
    const { rowAxis } = this.sum;
    const outer = this.outer();
    const body: Statement[] = [];

    // 1. Borders of the outer axes. Every access below them is guarded.
    for (const [k, name] of outer.entries()) {
      for (const span of edges(this.inside(name), this.extent(name))) {
        const around = [...outer.slice(0, k).map((a) => this.over(a, this.inside(a))), this.over(name, span)];
        const below = outer.slice(k + 1).map((a) => this.over(a, { from: 0, to: this.extent(a) }));
        const rows = rowAxis === undefined ? [] : [this.over(rowAxis, { from: 0, to: this.extent(rowAxis) })];
        body.push(...this.piece([...around, ...below, ...rows], (at) => this.guarded(at)));
      }
    }

    // 2. Borders of the rows.
    const planes = outer.map((a) => this.over(a, this.inside(a)));
    const rows = rowAxis === undefined ? undefined : this.inside(rowAxis);
    if (rowAxis !== undefined && rows)
      for (const span of edges(rows, this.extent(rowAxis)))
        body.push(...this.piece([...planes, this.over(rowAxis, span)], (at) => this.guarded(at)));

    // 3. The interior in blocks of rows and planes, and what is left over.
    for (const { around, deep } of this.planeBlocks(outer)) body.push(...this.rowBlocks(around, deep, rows));
    return this.wrapped(body);
  }

  /** The outer axes of the interior, with the planes of a block; planes left over are blocks of one. */
  private planeBlocks(outer: readonly string[]): readonly { around: readonly Around[]; deep: number }[] {
    const { planes = 1 } = this.schedule;
    const across = planeAxis(this.sum)?.name;
    if (across === undefined || planes === 1)
      return [{ around: outer.map((a) => this.over(a, this.inside(a))), deep: 1 }];
    const { from, to } = this.inside(across);
    const count = Math.floor((to - from) / planes);
    const middle = from + count * planes;
    const { name } = axisLoop(this.write.names.fresh(`${across}_block`), count);
    const blocks = { name, extent: count, axis: across, at: scaled(axis(name), planes, from) };
    return [
      { deep: planes, of: blocks },
      { deep: 1, of: this.over(across, { from: middle, to }) },
    ]
      .filter(({ of }) => of.extent > 0)
      .map(({ deep, of }) => ({
        deep,
        around: outer.map((a) => (a === across ? of : this.over(a, this.inside(a)))),
      }));
  }

  /** Blocks of the rows of some planes, and blocks of the rows left over. */
  private rowBlocks(planes: readonly Around[], deep: number, rows: Span | undefined): readonly Statement[] {
    const { rowAxis } = this.sum;
    if (rowAxis === undefined || !rows) return this.interior(planes, [], { rows: 1, planes: deep });
    const { rows: tall, strip = 0 } = this.schedule;
    const count = Math.floor((rows.to - rows.from) / tall);
    const left = (rows.to - rows.from) % tall;
    const strips = strip > 0 && count % strip === 0 ? count / strip : 1;
    const body: Statement[] = [];
    if (count > 0) {
      const whole = axisLoop(this.write.names.fresh(`${rowAxis}_strip`), strips);
      const inner = axisLoop(this.write.names.fresh(`${rowAxis}_block`), count / strips);
      const block = plus(times(axis(whole.name), count / strips), axis(inner.name));
      const at = scaled(strips > 1 ? block : axis(inner.name), tall, rows.from);
      const around = [...planes, { ...inner, axis: rowAxis, at }];
      body.push(...this.interior(around, strips > 1 ? [whole] : [], { rows: tall, planes: deep }));
    }
    if (left > 0) {
      const last = {
        ...axisLoop(this.write.names.fresh(`${rowAxis}_block`), 1),
        axis: rowAxis,
        at: number(rows.to - left),
      };
      body.push(...this.interior([...planes, last], [], { rows: left, planes: deep }));
    }
    return body;
  }

  /** A single kind of block for all outputs, which tests every access. */
  alike(): LoopNest {
    const { laneAxis, rowAxis } = this.sum;
    const { rows, vectors } = this.schedule;
    const blocks = (name: string, width: number): Around => {
      const dealt = axisLoop(this.write.names.fresh(`${name}_block`), Math.ceil(this.extent(name) / width));
      return { ...dealt, axis: name, at: scaled(axis(dealt.name), width, 0) };
    };
    const around = [
      ...this.outer().map((a) => this.over(a, { from: 0, to: this.extent(a) })),
      ...(rowAxis === undefined ? [] : [blocks(rowAxis, rows)]),
      blocks(laneAxis, vectors * this.placement.outputs),
    ];
    const places: Origin = new Map(around.map((a) => [a.axis, a.at]));
    return this.wrapped(
      loops(around, this.write.block(places, { rows, planes: 1, vectors, interior: false }), () => "parallel"),
    );
  }

  private wrapped(body: readonly Statement[]): LoopNest {
    return laneNest(this.write.vectors(), body);
  }

  // ---- loops --------------------------------------------------------------------------------------------------------------------

  /** The kept axes besides those of the lanes and rows. */
  private outer(): string[] {
    const { laneAxis, rowAxis, computation } = this.sum;
    const kept = computation.axes.filter((a) => a.kind === "spatial").map((a) => a.name);
    return kept.filter((name) => name !== laneAxis && name !== rowAxis);
  }

  private extent(name: string): number {
    return this.extents[name] ?? 1;
  }

  /** The outputs of an axis whose neighbours along it are all inside. */
  private inside(name: string): Span {
    let from = 0;
    let to = this.extent(name);
    for (const [d, follows] of this.sum.follows.entries()) {
      const [min, max] = this.sum.shifts[d] ?? [0, 0];
      const places = this.sum.input.dims[d]?.extent ?? 1;
      if (follows === name) [from, to] = [Math.max(from, -min), Math.min(to, places - max)];
      // A dimension that follows no axis is either inside everywhere, or is treated as outside everywhere.
      else if (follows === undefined && (min < 0 || max >= places)) to = from;
    }
    const within = Math.min(from, this.extent(name));
    return { from: within, to: Math.max(within, to) };
  }

  private over(name: string, { from, to }: Span): Around {
    return { name, extent: to - from, axis: name, at: plus(axis(name), from) };
  }

  /** Loops around a body, the outermost dealt to threads. */
  private piece(around: readonly Around[], body: (at: Origin) => readonly Statement[]): readonly Statement[] {
    if (around.some((a) => a.extent <= 0)) return [];
    const places: Origin = new Map(around.map((a) => [a.axis, a.at]));
    return loops(around, body(places), (_, k) => (k === 0 ? "parallel" : "serial"));
  }

  private interior(around: readonly Around[], strips: readonly NamedLoop[], tall: Tall): readonly Statement[] {
    return loops(
      strips,
      this.piece(around, (at) => this.columns(at, tall, around.length === 0)),
    );
  }

  /** The outputs of whole vectors, whose lanes read and store only inside. Only the lanes of a store are masked. */
  private wholeVectors(): Span {
    const { laneAxis, shifts, input } = this.sum;
    const { lanes } = this.schedule;
    const { outputs, firstLane, lastLane, data, ascending } = this.placement;
    const { from, to } = this.inside(laneAxis);
    const stored = { from: lastLane, to: this.extent(laneAxis) - (lanes - outputs - lastLane) };
    const [least, most] = shifts.at(-1) ?? [0, 0];
    // Held data are read once, by all lanes.
    const before = firstLane - (ascending ? least : most);
    const read =
      data === "held"
        ? { from: before, to: (input.dims.at(-1)?.extent ?? 1) + before + outputs - lanes }
        : { from, to };
    return { from: Math.max(from, stored.from, read.from), to: Math.min(to, stored.to, read.to) };
  }

  /** All lane blocks of one block of rows. */
  private columns(at: Origin, tall: Tall, outermost: boolean): readonly Statement[] {
    const mode = outermost ? "parallel" : "serial";
    if (this.lines) return this.lines.columns(at, tall, mode);
    const { laneAxis } = this.sum;
    const { vectors } = this.schedule;
    const { outputs } = this.placement;
    const { from, to } = this.wholeVectors();
    const begin = Math.ceil(from / outputs);
    const end = Math.floor(Math.max(0, to) / outputs);
    const all = Math.ceil(this.extent(laneAxis) / outputs);
    const name = this.write.names.fresh(`${laneAxis}_block`);
    const stretches = stretchesOf({ all, begin, end, vectors }, hasWideEnds(this.sum, this.schedule));
    return [
      ...(stretches.some(({ interior }) => interior) ? this.write.loadWeights(at) : []),
      ...stretches.map(({ count, wide, from: start, interior }) => {
        const here = scaled(axis(name), wide * outputs, start * outputs);
        const block = { ...tall, vectors: wide, interior };
        return loop(name, count, this.write.block(new Map([...at, [laneAxis, here]]), block), mode);
      }),
    ];
  }

  /** One row of outputs, every access guarded. */
  private guarded(at: Origin): readonly Statement[] {
    const { laneAxis } = this.sum;
    const name = this.write.names.fresh(`${laneAxis}_block`);
    const here = new Map([...at, [laneAxis, scaled(axis(name), this.placement.outputs, 0)]]);
    const count = Math.ceil(this.extent(laneAxis) / this.placement.outputs);
    return [loop(name, count, this.write.block(here, { rows: 1, planes: 1, vectors: 1, interior: false }))];
  }
}

interface NamedLoop {
  readonly name: string;
  readonly extent: number;
}

/** A loop, and the output axis it runs over. */
interface Around extends NamedLoop {
  readonly axis: string;
  readonly at: Expr;
}

const axisLoop = (name: string, extent: number): NamedLoop => ({ name, extent });

/** The parts of `0 .. extent-1` before and after a span. */
function edges({ from, to }: Span, extent: number): readonly Span[] {
  return [
    { from: 0, to: from },
    { from: to, to: extent },
  ].filter((s) => s.to > s.from);
}

/** `width*block + start`. */
const scaled = (block: Expr, width: number, start: number): Expr => plus(times(block, width), start);
