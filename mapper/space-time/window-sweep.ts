/**
 * @file Lowers windows in which each lane computes several neighbouring outputs and sweeps along an axis. Data are
 * loaded once, many elements at a time, and added to every sum they belong to.
 *
 *     out[i,j] += in[i+r-1,j+s-1] * w[r,s]   4 outputs a lane, a sweep of 64 rows
 *
 *     for i_step in 0..66
 *       for lanes lane in 0..32
 *         X[n,lane] = in[64*i_block + i_step - 1,4*lane - 4 + n]      three loads of four
 *         A[0,lane] += X[3,lane] * w[2,0]                             the sum of the row above becomes whole,
 *         A[4,lane] += X[3,lane] * w[1,0]                             that of this row goes on,
 *         A[8,lane] = X[3,lane] * w[0,0]                              that of the row below begins
 *         out[64*i_block + i_step - 2,4*lane + n] = A[n,lane]
 *         A[0,lane] = A[4,lane] ...                                   and all move on
 *
 * Across lanes this is FBS with loaded data. Along the swept axis, sums migrate through the registers of a lane, one
 * position a step, while data are used once and dropped: rotating rows of a filter, rotating planes of a 3-D stencil.
 */

import type { WarpWindowSchedule } from "../../abstraction/candidate.ts";
import { memoised, memoisedBy, upTo } from "../../abstraction/collections.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import {
  type Access,
  access,
  allOf,
  axesIn,
  axis,
  compare,
  type Expr,
  number,
  plus,
  substitute,
  substituteEach,
  times,
} from "../../abstraction/expression.ts";
import { assign, FreshNames, type LoopNest, loop, loops, type Statement, scalar } from "../../abstraction/loop-nest.ts";
import { when } from "../match/conditions.ts";
import { LaneFiles, laneNest } from "./lane-files.ts";
import { shiftAt, type Tap, type TapSum } from "./taps.ts";

/** The axis of a sweep, and the taps along it. */
export interface SweptAxis {
  readonly name: string;
  /** Of the input. */
  readonly dimension: number;
  /** The smallest shift, and the number of positions that taps span: so many sums are incomplete at a time. */
  readonly least: number;
  readonly reach: number;
}

/** The outermost axis with shifts, unless it is that of the lanes or weights depend on it. */
export function sweptAxis({ follows, shifts, taps, laneAxis }: TapSum): SweptAxis | undefined {
  const dimension = shifts.findIndex(([min, max], d) => max > min && follows[d] !== undefined);
  const name = follows[dimension];
  const [least, most] = shifts[dimension] ?? [0, 0];
  if (name === undefined || name === laneAxis || follows.indexOf(name) !== follows.lastIndexOf(name)) return undefined;
  if (taps.some((t) => t.factor && axesIn(t.factor).includes(name))) return undefined;
  return { name, dimension, least, reach: most - least + 1 };
}

/** The axis of the planes of a block: the outermost one that has shifts, if the rows of a block are along another. */
export const planeAxis = memoised((sum: TapSum): SweptAxis | undefined => {
  const swept = sum.rowAxis === undefined ? undefined : sweptAxis(sum);
  return swept?.name === sum.rowAxis ? undefined : swept;
});

/** A load of one step of a sweep: part of an input row, with as many elements as a lane has outputs. */
export interface Piece {
  /** A tap that reads the row for an output row of the block. */
  readonly tap: Tap;
  readonly row: number;
  /** The piece's distance from that of the lane's own outputs, in pieces. */
  readonly at: number;
}

/** Cached, since a search asks for them thousands of times. */
const pieces = memoisedBy<TapSum, ReadonlyMap<string, Piece>>();

/** The distinct pieces that a step of a block loads, in order of first use. */
export function piecesOf(sum: TapSum, schedule: WarpWindowSchedule): ReadonlyMap<string, Piece> {
  const { rows, each, sweep } = schedule;
  return pieces(sum, [rows, each, sweep === undefined].join(), () => piecesIn(sum, schedule));
}

function piecesIn(sum: TapSum, { rows, each = 1, sweep }: WarpWindowSchedule): ReadonlyMap<string, Piece> {
  const swept = sweep === undefined ? undefined : sweptAxis(sum)?.dimension;
  const pieces = new Map<string, Piece>();
  for (const tap of sum.taps)
    for (let row = 0; row < rows; row++)
      for (let e = 0; e < each; e++) {
        const at = Math.floor((shiftAt(tap, sum.shifts.length - 1) + e) / each);
        const key = pieceKey(sum, tap, row, at, swept);
        if (!pieces.has(key)) pieces.set(key, { tap, row, at });
      }
  return pieces;
}

/**
 * Pairs of neighbouring elements that begin at an odd column, and so lie in two registers of two elements each, in a
 * step of a block.
 */
export function dividedPairs(sum: TapSum, { rows, each = 1, sweep }: WarpWindowSchedule): number {
  const swept = sweep === undefined ? undefined : sweptAxis(sum)?.dimension;
  const divided = new Set<string>();
  for (const tap of sum.taps)
    for (let row = 0; row < rows; row++)
      for (let e = 0; e < each; e += 2) {
        const column = shiftAt(tap, sum.shifts.length - 1) + e;
        if (column % 2 !== 0) divided.add(pieceKey(sum, tap, row, column, swept));
      }
  return divided.size;
}

/** A key for a piece. Shifts along the swept axis do not matter, since they are loaded at different steps. */
function pieceKey(sum: TapSum, tap: Tap, row: number, at: number, swept: number | undefined): string {
  const places = sum.shifts.slice(0, -1).map((_, d) => {
    if (d === swept) return 0;
    return shiftAt(tap, d) + (d === sum.rowDimension ? row : 0);
  });
  return [...places, at].join();
}

/**
 * Multiply-adds from which a branch is worth its two instructions: it skips products that only outputs outside the
 * sweep would use.
 */
const WORTH_TESTING = 32;

/**
 * Whether the products of `taps` taps are skipped at the beginning and end of a sweep, where their sum is outside it.
 */
export function isTested(taps: number, { rows, each = 1, ahead = 1 }: WarpWindowSchedule): boolean {
  return taps * rows * each * ahead >= WORTH_TESTING;
}

/** 32-bit registers that a lane's sums and data take. */
export function sweepRegisters(sum: TapSum, s: WarpWindowSchedule): number {
  const { each = 1, rows, ahead = 1 } = s;
  const reach = s.sweep === undefined ? 1 : (sweptAxis(sum)?.reach ?? 1);
  const words = bytesOf(sum.output.dtype) / bytesOf("s32");
  return (reach * rows * each + piecesOf(sum, s).size * each * ahead) * words;
}

/** Lowers a sweep. @throws Error if the schedule does not fit; see warpWindowProblem */
export function lowerSweep(sum: TapSum, schedule: WarpWindowSchedule): LoopNest {
  return new SweepWriter(sum, schedule).nest();
}

/** Register files: data and sums. */
type File = "A" | "X";

class SweepWriter {
  private readonly sum: TapSum;
  private readonly schedule: WarpWindowSchedule;
  private readonly each: number;
  /** Unrolled steps, outputs of a sweep, and positions that taps span; 1 each if nothing is swept. */
  private readonly ahead: number;
  private readonly length: number;
  private readonly reach: number;
  private readonly steps: number;
  private readonly swept: SweptAxis | undefined;
  private readonly pieces: ReadonlyMap<string, Piece>;
  private readonly numbers: ReadonlyMap<string, number>;
  private readonly names: FreshNames;
  private readonly files: LaneFiles;
  private readonly step: string;

  constructor(sum: TapSum, schedule: WarpWindowSchedule) {
    const { each = 1, sweep, ahead = 1 } = schedule;
    this.sum = sum;
    this.schedule = schedule;
    this.each = each;
    this.swept = sweep === undefined ? undefined : sweptAxis(sum);
    this.ahead = this.swept ? ahead : 1;
    this.length = this.swept ? (sweep ?? 1) : 1;
    this.reach = this.swept?.reach ?? 1;
    this.steps = Math.ceil((this.length + this.reach - 1) / this.ahead);
    this.pieces = piecesOf(sum, schedule);
    this.numbers = new Map([...this.pieces.keys()].map((key, n) => [key, n]));
    this.names = new FreshNames(sum.computation);
    this.files = new LaneFiles(this.names, sum.output.dtype, schedule.lanes);
    this.step = this.names.fresh(`${this.swept?.name ?? ""}_step`);
  }

  nest(): LoopNest {
    const blocks = this.sum.output.dims.map(({ extent }, d) => {
      const target = this.sum.computation.equation.target.index[d];
      const name = target?.kind === "axis" ? target.name : "";
      const width = this.widthAlong(name);
      const counter = width === 1 ? name : this.names.fresh(`${name}_block`);
      return { of: name, name: counter, extent: Math.ceil(extent / width), at: times(axis(counter), width) };
    });
    const at = new Map(blocks.map((b) => [b.of, b.at]));
    const written = upTo(this.ahead);
    const begun = new Set(upTo(this.sumsOf(this.reach - 1)));
    const body = joined([
      ...written.map((i) => this.files.onLanes(this.loads(at, i))),
      ...this.products(at, begun),
      ...written.map((i) => this.files.onLanes(this.stores(at, i))),
      ...(this.swept && this.steps > 1 ? [this.files.onLanes(this.moves())] : []),
    ]);
    const inner = this.swept ? [loop(this.step, this.steps, body)] : body;
    return laneNest(
      this.files.vectorsByName(),
      loops(blocks, inner, () => "parallel"),
    );
  }

  /** The outputs of a block along an axis. */
  private widthAlong(name: string): number {
    if (name === this.sum.laneAxis) return this.schedule.lanes * this.each;
    if (name === this.swept?.name) return this.length;
    return name === this.sum.rowAxis ? this.schedule.rows : 1;
  }

  // ---- what a step does ---------------------------------------------------------------------------------------------------------

  private loads(at: ReadonlyMap<string, Expr>, i: number): Statement[] {
    return [...this.pieces.values()].map((piece, n) => {
      const { sum } = this;
      const index = sum.follows.map((follows, d) => {
        const from = follows === undefined ? number(0) : (at.get(follows) ?? number(0));
        if (d === sum.follows.length - 1) return this.columnFrom(from, piece.at);
        if (d === this.swept?.dimension) return sumOf(from, this.stepped(i), number(this.swept.least));
        return sumOf(from, number(shiftAt(piece.tap, d) + (d === sum.rowDimension ? piece.row : 0)));
      });
      const load = this.files.atOnce(
        this.each,
        this.own("X", (i * this.pieces.size + n) * this.each),
        access(sum.input.name, index),
      );
      return this.isOwn(piece) ? { ...load, ...this.fetched(index) } : load;
    });
  }

  /** Whether no other block has this piece among its own: the middle of the window, moved by the block's outputs. */
  private isOwn({ tap, row, at }: Piece): boolean {
    const { sum, each } = this;
    const last = sum.shifts.length - 1;
    return sum.shifts.every(([least, most], d) => {
      const middle = Math.round((least + most) / 2);
      if (d === this.swept?.dimension) return true;
      if (d === last) return at === Math.floor(middle / each);
      const from = shiftAt(tap, d) + (d === sum.rowDimension ? row : 0) - middle;
      return from >= 0 && from < (d === sum.rowDimension ? this.schedule.rows : 1);
    });
  }

  /** The element that a later step of the sweep loads instead of this one. */
  private fetched(index: readonly Expr[]): { readonly prefetch?: Access } {
    const { prefetchSteps } = this.schedule;
    const swept = this.swept?.dimension;
    if (prefetchSteps === undefined || swept === undefined) return {};
    const later = index.map((e, d) => (d === swept ? sumOf(e, number(prefetchSteps)) : e));
    const first = substituteEach(later, new Map([[this.files.neighbour, number(0)]]));
    return { prefetch: access(this.sum.input.name, first) };
  }

  /**
   * Adds the loaded data of all unrolled steps to their sums, weight by weight. Sums that are completed, `reach - 1`
   * positions behind, come first.
   */
  private products(at: ReadonlyMap<string, Expr>, begun: Set<number>): Statement[] {
    return upTo(this.reach)
      .map((r) => this.reach - 1 - r)
      .flatMap((behind) => {
        const taps = this.sum.taps.filter(
          (tap) => !this.swept || shiftAt(tap, this.swept.dimension) - this.swept.least === behind,
        );
        if (taps.length === 0) return [];
        const products = this.files.onLanes(taps.flatMap((tap) => this.productsOf(tap, behind, at, begun)));
        const test = isTested(taps.length, this.schedule) ? this.inSweep(0, this.ahead - 1, behind) : undefined;
        return when(test ?? true, [products]);
      });
  }

  private productsOf(tap: Tap, behind: number, at: ReadonlyMap<string, Expr>, begun: Set<number>): Statement[] {
    const { sum, each } = this;
    const factor = tap.factor && substitute(tap.factor, at, "value");
    return upTo(this.sumsOf(this.ahead)).map((all): Statement => {
      const i = Math.floor(all / this.sumsOf(1));
      const own = all % this.sumsOf(1);
      const column = shiftAt(tap, sum.shifts.length - 1) + (own % each);
      const piece = Math.floor(column / each);
      const key = pieceKey(sum, tap, Math.floor(own / each), piece, this.swept?.dimension);
      const n = i * this.pieces.size + (this.numbers.get(key) ?? 0);
      const data = this.element("X", n * each + (column - piece * each));
      const a = this.sumsOf(i - behind + this.reach - 1) + own;
      // The first product of a sum assigns instead of adding. It comes where the sum is farthest behind, and is skipped
      // only if the rest is too.
      const op = begun.has(a) ? "+=" : "=";
      begun.add(a);
      const value: Expr = factor ? { kind: "binary", op: "*", left: data, right: factor } : data;
      return scalar({ target: this.element("A", a), op, value });
    });
  }

  /**
   * The condition that an output at distance `behind` from one of the steps belongs to the sweep; undefined if it
   * always does.
   */
  private inSweep(first: number, last: number, behind: number): Expr | undefined {
    if (!this.swept) return undefined;
    const final = this.ahead * (this.steps - 1) + first - behind;
    return allOf([
      last < behind && compare(">=", sumOf(this.stepped(last), number(-behind)), 0),
      final >= this.length && compare("<", sumOf(this.stepped(first), number(-behind)), this.length),
    ]);
  }

  /** Stores the sums that a step completes. */
  private stores(at: ReadonlyMap<string, Expr>, i: number): Statement[] {
    const { computation, output, laneAxis, rowAxis } = this.sum;
    const made = sumOf(this.stepped(i), number(1 - this.reach));
    const where = this.inSweep(i, i, this.reach - 1);
    return upTo(this.schedule.rows).map((row) => {
      const place = computation.equation.target.index.map((e) => {
        const name = e.kind === "axis" ? e.name : "";
        const from = at.get(name) ?? axis(name);
        if (name === laneAxis) return this.columnFrom(from, 0);
        if (name === this.swept?.name) return sumOf(from, made);
        return name === rowAxis ? sumOf(from, number(row)) : from;
      });
      const sums = this.own("A", this.sumsOf(i) + row * this.each);
      return this.files.atOnce(this.each, access(output.name, place), sums, where);
    });
  }

  /** Moves each sum to the registers where the next steps expect it. */
  private moves(): Statement[] {
    const by = this.sumsOf(this.ahead);
    return upTo(this.sumsOf(this.reach - 1)).map((a) => assign(this.element("A", a), this.element("A", a + by)));
  }

  // ---- leaves -------------------------------------------------------------------------------------------------------------------

  /** The number of sums for `places` positions along the swept axis. */
  private sumsOf(places: number): number {
    return places * this.schedule.rows * this.each;
  }

  /** The index of an unrolled step. */
  private stepped(i: number): Expr {
    return plus(times(axis(this.step), this.ahead), i);
  }

  private columnFrom(from: Expr, pieces: number): Expr {
    const column = plus(from, times(axis(this.files.lane), this.each));
    return sumOf(column, this.each > 1 ? axis(this.files.neighbour) : number(0), number(pieces * this.each));
  }

  private element(file: File, index: number): Access {
    return this.files.register(file, index);
  }

  /** The registers that a lane loads or stores at once, beginning with `first`. */
  private own(file: File, first: number): Access {
    return this.files.several(file, first, this.each);
  }
}

/** Merges consecutive loops over lanes. */
function joined(statements: readonly Statement[]): Statement[] {
  const all: Statement[] = [];
  for (const s of statements) {
    const before = all.at(-1);
    if (s.kind === "loop" && before?.kind === "loop")
      all[all.length - 1] = { ...before, body: [...before.body, ...s.body] };
    else all.push(s);
  }
  return all;
}

function sumOf(...parts: readonly Expr[]): Expr {
  return parts.reduce((left, right) => plus(left, right));
}
