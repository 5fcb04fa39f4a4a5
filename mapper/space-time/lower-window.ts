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
import { namesOf } from "../../abstraction/collections.ts";
import { type Computation, extentsOf, keptIn } from "../../abstraction/computation.ts";
import { internal } from "../../abstraction/error.ts";
import { axis, type Expr, number, plus, times } from "../../abstraction/expression.ts";
import { type LoopNest, loop, loops, type Statement } from "../../abstraction/loop-nest.ts";
import { warpWindowProblem, windowProblem } from "../schedule/lanes.ts";
import { laneNest } from "./lane-files.ts";
import { type LaneRefusal, type TapSum, tapsOf } from "./taps.ts";
import { placeWindow, WINDOW_DESIGNS, type WindowDesign, type WindowPlacement } from "./window.ts";
import { BlockWriter, insideOf, type Origin, type Span, type Tall, type WrittenWindow } from "./window-block.ts";
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
  if (!verdict.ok) internal(`lowered without taps: ${verdict.refusal.because}`);
  const { sum } = verdict;
  const problem = problemOf(sum, schedule, design);
  if (problem) internal(`${problem.because}`);
  const found = placeWindow(design, schedule.lanes, sum.columns);
  if (!found.ok) internal(`${found.refusal.because}`);
  return { sum, placement: found.placement };
}

/** The loops around blocks: whole blocks in the interior, and separate code at borders. */
class WindowLoops {
  private readonly sum: TapSum;
  private readonly schedule: WrittenWindow;
  private readonly placement: WindowPlacement;
  private readonly extents: Readonly<Record<string, number>>;
  private readonly write: BlockWriter;
  constructor(sum: TapSum, schedule: WrittenWindow, placement: WindowPlacement) {
    this.sum = sum;
    this.schedule = schedule;
    this.placement = placement;
    this.extents = extentsOf(sum.computation);
    const Writer = schedule.lines === undefined ? BlockWriter : LineWriter;
    this.write = new Writer(sum, schedule, placement);
  }

  nest(): LoopNest {
    const { sum } = this;
    const outer = this.outer();
    const axes = [...outer, ...(sum.rowAxis === undefined ? [] : [sum.rowAxis])];
    // 1. Borders. Every access below them is guarded.
    const borders = axes.flatMap((name, k) =>
      edges(insideOf(sum, name), this.extent(name)).flatMap((span) => {
        const around = axes.slice(0, k).map((a) => this.over(a, insideOf(sum, a)));
        const below = axes.slice(k + 1).map((a) => this.over(a, { from: 0, to: this.extent(a) }));
        return this.piece([...around, this.over(name, span), ...below], (at) => this.guarded(at));
      }),
    );
    // 2. The interior in blocks of rows and planes, and what is left over.
    const blocks = this.planeBlocks(outer).flatMap(({ around, deep }) => this.rowBlocks(around, deep));
    return this.wrapped([...borders, ...blocks]);
  }

  /** The outer axes of the interior, with the planes of a block; planes left over are blocks of one. */
  private planeBlocks(outer: readonly string[]): readonly { around: readonly Around[]; deep: number }[] {
    const { planes = 1 } = this.schedule;
    const across = planeAxis(this.sum)?.name;
    const around = outer.map((a) => this.over(a, insideOf(this.sum, a)));
    if (across === undefined || planes === 1) return [{ around, deep: 1 }];
    const { from, to } = insideOf(this.sum, across);
    const count = Math.floor((to - from) / planes);
    return [
      { deep: planes, of: this.blocks(across, planes, from, count) },
      { deep: 1, of: this.over(across, { from: from + count * planes, to }) },
    ]
      .filter(({ of }) => of.extent > 0)
      .map(({ deep, of }) => ({ deep, around: around.map((a) => (a.axis === across ? of : a)) }));
  }

  /** Blocks of the rows of some planes, and blocks of the rows left over. */
  private rowBlocks(planes: readonly Around[], deep: number): readonly Statement[] {
    const { rowAxis } = this.sum;
    if (rowAxis === undefined) return this.interior(planes, [], { rows: 1, planes: deep });
    const { from, to } = insideOf(this.sum, rowAxis);
    const { rows: tall, strip = 0 } = this.schedule;
    const count = Math.floor((to - from) / tall);
    const left = (to - from) % tall;
    const strips = strip > 0 && count % strip === 0 ? count / strip : 1;
    const whole = { name: this.write.names.fresh(`${rowAxis}_strip`), extent: strips };
    const inner = this.blocks(rowAxis, tall, from, count / strips);
    const block = plus(times(axis(whole.name), count / strips), axis(inner.name));
    const own = strips > 1 ? { ...inner, at: plus(times(block, tall), from) } : inner;
    const last = { ...inner, extent: Math.sign(left), at: number(to - left) };
    return [
      ...this.interior([...planes, own], strips > 1 ? [whole] : [], { rows: tall, planes: deep }),
      ...this.interior([...planes, last], [], { rows: left, planes: deep }),
    ];
  }

  /** A single kind of block for all outputs, which tests every access. */
  alike(): LoopNest {
    const { laneAxis, rowAxis } = this.sum;
    const { rows, vectors } = this.schedule;
    const blocks = (name: string, width: number) => this.blocks(name, width, 0, Math.ceil(this.extent(name) / width));
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
    const kept = namesOf(keptIn(computation.axes));
    return kept.filter((name) => name !== laneAxis && name !== rowAxis);
  }

  private extent(name: string): number {
    return this.extents[name] ?? 1;
  }

  /** So many blocks of `width` outputs, the first at `from`. */
  private blocks(name: string, width: number, from: number, extent: number): Around {
    const counter = this.write.names.fresh(`${name}_block`);
    return { name: counter, extent, axis: name, at: plus(times(axis(counter), width), from) };
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
      this.piece(around, (at) => this.write.columns(at, tall, around.length === 0 ? "parallel" : "serial")),
    );
  }

  /** One row of outputs, every access guarded. */
  private guarded(at: Origin): readonly Statement[] {
    const { laneAxis } = this.sum;
    const { outputs } = this.placement;
    const blocks = this.blocks(laneAxis, outputs, 0, Math.ceil(this.extent(laneAxis) / outputs));
    const here = new Map([...at, [laneAxis, blocks.at]]);
    const block = { rows: 1, planes: 1, vectors: 1, interior: false };
    return [loop(blocks.name, blocks.extent, this.write.block(here, block))];
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

/** The parts of `0 .. extent-1` before and after a span. */
function edges({ from, to }: Span, extent: number): readonly Span[] {
  return [
    { from: 0, to: from },
    { from: to, to: extent },
  ].filter((s) => s.to > s.from);
}
