/**
 * @file One block of a window on lanes: rows and vectors of outputs, as statements of a nest.
 *
 *     SBM, 3 columns                            FBS, data loaded for every column
 *       X[0,lane] = x[16*b+lane-1]                X[0,lane] = x[16*b+lane-1]
 *       A[0,lane] = X[0,lane] * W[0,lane]         A[0,lane] = X[0,lane] * W[0,lane]
 *       A[0,lane] = A[0,lane-1]                   X[0,lane] = x[16*b+lane]
 *       A[0,lane] += X[0,lane] * W[1,lane]        A[0,lane] += X[0,lane] * W[1,lane]
 *       ...                                       ...
 */

import type { WindowBlock, WindowSchedule } from "../../abstraction/candidate.ts";
import { groupsOf, upTo, withName } from "../../abstraction/collections.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import {
  type Access,
  access,
  allOf,
  axis,
  binary,
  type CombineOp,
  compare,
  type Expr,
  number,
  printExpr,
  substitute,
  times,
} from "../../abstraction/expression.ts";
import { FreshNames, loop, loops, type Statement, scalar, type VectorFile } from "../../abstraction/loop-nest.ts";
import { DISTANT_BYTES, hasWideEnds } from "../schedule/lanes.ts";
import { LaneFiles } from "./lane-files.ts";
import { shiftAt, type Tap, type TapSum } from "./taps.ts";
import type { WindowPlacement } from "./window.ts";
import { planeAxis, type SweptAxis } from "./window-sweep.ts";

/** The origin of a block: for each spatial axis, the index of its first row or output. */
export type Origin = ReadonlyMap<string, Expr>;

export interface Block {
  readonly rows: number;
  readonly planes: number;
  readonly vectors: number;
  /** Whether weights are in vectors, and data are prefetched. */
  readonly interior: boolean;
  /** Its first vector of the row, if that is constant. */
  readonly first?: number | undefined;
}

export type Tall = Pick<Block, "rows" | "planes">;

/** Outputs `from .. to-1` of an axis. */
export interface Span {
  readonly from: number;
  readonly to: number;
}

/** The outputs of an axis whose neighbours along it are all inside. */
export function insideOf({ follows, shifts, input, computation }: TapSum, name: string): Span {
  const extent = withName(computation.axes, name)?.extent ?? 1;
  let from = 0;
  let to = extent;
  for (const [d, followed] of follows.entries()) {
    const [min, max] = shifts[d] ?? [0, 0];
    const places = input.dims[d]?.extent ?? 1;
    if (followed === name) [from, to] = [Math.max(from, -min), Math.min(to, places - max)];
    // A dimension that follows no axis is either inside everywhere, or is treated as outside everywhere.
    else if (followed === undefined && (min < 0 || max >= places)) to = from;
  }
  const within = Math.min(from, extent);
  return { from: within, to: Math.max(within, to) };
}

/** Vectors of outputs of a row, from `begin` to `end` of which nothing lies outside, and how wide blocks are. */
interface Row {
  readonly all: number;
  readonly begin: number;
  readonly end: number;
  readonly vectors: number;
}

/** Blocks of equal width that begin at the vector `from`. Whatever lies outside of others is tested. */
interface Stretch {
  readonly from: number;
  readonly count: number;
  readonly wide: number;
  readonly interior: boolean;
}

/**
 * The blocks of a row. Where those at its ends are as wide, only the lanes of a load that lie outside are masked; of 32 vectors
 * in blocks of 4, as many as 4 are computed one by one otherwise.
 *
 *     wide ends     [0 1 2 3] [4 5 6 7] ... [28 29 30 31]        single    0 [1 2 3 4] ... [25 26 27 28] 29 30 31
 */
function stretchesOf({ all, begin, end, vectors }: Row, isWideAtEnds: boolean): readonly Stretch[] {
  const stretches: Stretch[] = [];
  const add = (from: number, to: number, wide: number, interior: boolean): number => {
    const count = Math.max(0, Math.floor((to - from) / wide));
    if (count > 0) stretches.push({ from, count, wide, interior });
    return from + count * wide;
  };
  const blocks = Math.floor(all / vectors);
  const isWide = isWideAtEnds && vectors > 1 && blocks > 0;
  const first = isWide ? Math.min(blocks, Math.ceil(begin / vectors)) * vectors : Math.min(begin, all);
  let at = add(0, first, isWide ? vectors : 1, isWide);
  at = add(at, end, vectors, true);
  if (isWide) at = add(at, all, vectors, true);
  if (vectors > 1) at = add(at, end, 1, true);
  add(at, all, 1, false);
  return stretches;
}

/** A row of outputs of a block. */
interface OutputRow {
  readonly row: number;
  readonly plane: number;
  /** Its place among the rows of the block. */
  readonly index: number;
}

export function outputRows({ rows, planes }: Tall): readonly OutputRow[] {
  return upTo(rows * planes).map((index) => ({
    row: index % rows,
    plane: Math.floor(index / rows),
    index,
  }));
}

/** The shift of a tap for a row of outputs. */
export function movedShift(
  sum: TapSum,
  shift: readonly Expr[],
  { row, plane }: Pick<OutputRow, "row" | "plane">,
): Expr[] {
  const across = planeAxis(sum)?.dimension;
  return shift.map((s, d) => {
    if (d === sum.rowDimension) return binary("+", s, row);
    return d === across ? binary("+", s, plane) : s;
  });
}

export const shiftText = (shift: readonly Expr[]): string => shift.map((e) => printExpr(e)).join();

type File = "A" | "W" | "X";

/** The part of a schedule that says how blocks are written. */
export type WrittenWindow = WindowBlock & Partial<WindowSchedule>;

/** Writes blocks, and counts the vectors they use: data X, sums A, weights W. */
export class BlockWriter {
  readonly names: FreshNames;
  protected readonly files: LaneFiles;
  protected readonly sum: TapSum;
  protected readonly schedule: WrittenWindow;
  private readonly placement: WindowPlacement;
  /** Distinct factors that are kept in vectors, by their text. */
  private readonly weights: ReadonlyMap<string, Expr>;
  private readonly planes: SweptAxis | undefined;

  constructor(sum: TapSum, schedule: WrittenWindow, placement: WindowPlacement) {
    this.sum = sum;
    this.schedule = schedule;
    this.placement = placement;
    this.planes = planeAxis(sum);
    this.names = new FreshNames(sum.computation);
    this.files = new LaneFiles(this.names, sum.output.dtype, schedule.lanes);
    const factors = sum.taps.flatMap((t) => (t.factor ? [[printExpr(t.factor), t.factor] as const] : []));
    this.weights = new Map(schedule.weights === "registers" ? factors : []);
  }

  vectors(): readonly VectorFile[] {
    return this.files.vectorsByName();
  }

  /**
   * All blocks of a block of rows.
   * @param mode how the loops over blocks run
   */
  columns(at: Origin, tall: Tall, mode: "parallel" | "serial"): readonly Statement[] {
    const { laneAxis } = this.sum;
    const { vectors } = this.schedule;
    const { outputs } = this.placement;
    const row = { ...this.whole(), all: Math.ceil(this.extent / outputs), vectors };
    const stretches = stretchesOf(row, hasWideEnds(this.sum, this.schedule));
    const name = this.names.fresh(`${laneAxis}_block`);
    return [
      ...this.before(
        at,
        tall,
        stretches.some(({ interior }) => interior),
      ),
      ...stretches.map(({ count, wide, from, interior }) => {
        const here = plus(times(axis(name), wide * outputs), number(from * outputs));
        const block = { ...tall, vectors: wide, interior, first: count === 1 ? from : undefined };
        return loop(name, count, this.stretch(new Map([...at, [laneAxis, here]]), block), mode);
      }),
    ];
  }

  /** Outputs along the lanes. */
  protected get extent(): number {
    return withName(this.sum.computation.axes, this.sum.laneAxis)?.extent ?? 1;
  }

  /** Elements of a row of data. */
  protected get places(): number {
    return this.sum.input.dims.at(-1)?.extent ?? 1;
  }

  /** The vectors of a row whose lanes read and store only inside. Only the lanes of a store are masked. */
  protected whole(): Pick<Row, "begin" | "end"> {
    const { laneAxis, shifts } = this.sum;
    const { outputs, firstLane, lastLane, data, ascending } = this.placement;
    const { from, to } = insideOf(this.sum, laneAxis);
    const beyond = this.schedule.lanes - outputs;
    const [least, most] = shifts.at(-1) ?? [0, 0];
    // Held data are read once, by all lanes.
    const first = firstLane - (ascending ? least : most);
    const read = data === "held" ? { from: first, to: this.places + first - beyond } : { from, to };
    const begin = Math.max(from, lastLane, read.from);
    const end = Math.min(to, this.extent - beyond + lastLane, read.to);
    return { begin: Math.ceil(begin / outputs), end: Math.floor(Math.max(0, end) / outputs) };
  }

  /**
   * Loads the weights that stay in vectors. With rolled axes, weights change from step to step and are loaded there.
   */
  protected before(at: Origin, _: Tall, isInterior: boolean): readonly Statement[] {
    const loads = isInterior && this.sum.rolled.length === 0 ? this.weightLoads(at) : [];
    return loads.length === 0 ? [] : [this.files.onLanes(loads)];
  }

  protected stretch(at: Origin, block: Block): readonly Statement[] {
    return this.block(at, block);
  }

  block(at: Origin, block: Block): readonly Statement[] {
    return this.placement.data === "loaded"
      ? this.loadingBlock(at, block)
      : [this.files.onLanes([...this.holdingBlock(at, block)])];
  }

  /** Sums stay in place, and every column of the window is loaded where it is used. */
  private loadingBlock(at: Origin, block: Block): readonly Statement[] {
    const { rolled, computation } = this.sum;
    const { outputs } = this.placement;
    const sums = upTo(rolled.length > 0 ? block.rows * block.planes * block.vectors : 0).map((a) =>
      this.assign("A", a, "=", number(0)),
    );
    const begun = new Set(sums.keys());
    const body: Statement[] = [];
    if (block.interior && rolled.length > 0) body.push(...this.weightLoads(at));
    for (const load of this.loads(block)) {
      const shift = this.shiftOf(load.tap, load.row);
      for (const v of upTo(block.vectors)) body.push(this.assign("X", v, "=", this.read(shift, at, v * outputs)));
      body.push(...this.products(load, begun, at, block));
    }
    const stores = this.stores(at, block);
    if (rolled.length === 0) return [this.files.onLanes([...body, ...stores])];
    const around = rolled.flatMap((name) => withName(computation.axes, name) ?? []);
    return [this.files.onLanes(sums), ...loops(around, [this.files.onLanes(body)]), this.files.onLanes(stores)];
  }

  /** Adds what a load has brought to the sums of its uses. */
  protected products({ uses }: Load, begun: Set<number>, at: Origin, block: Block): Statement[] {
    return uses.flatMap(({ row, tap }) =>
      upTo(block.vectors).map((v) => {
        const a = row.index * block.vectors + v;
        const op = begun.has(a) ? "+=" : "=";
        begun.add(a);
        return this.assign("A", a, op, this.times(this.vector("X", v), tap, at, block));
      }),
    );
  }

  protected stores(at: Origin, block: Block): Statement[] {
    return outputRows(block).flatMap((row) => upTo(block.vectors).map((v) => this.store(at, row, v, block)));
  }

  /** Data are loaded once. From column to column, sums move, or data, or both. */
  private *holdingBlock(at: Origin, block: Block): Iterable<Statement> {
    const { ascending, sumHop, dataHop, outputs, firstLane } = this.placement;
    const laneDimension = this.sum.shifts.length - 1;
    const [least, most] = this.sum.shifts[laneDimension] ?? [0, 0];
    const start = ascending ? least : most;
    const first = number(start - firstLane);
    const columns = groupsOf(this.sum.taps, (tap) => Math.abs(shiftAt(tap, laneDimension) - start));
    for (let v = 0; v < block.vectors; v++) {
      // 1. The rows that the block needs, aligned as lanes need them at the first column.
      const held = new Map<string, number>();
      for (const tap of this.sum.taps)
        for (const row of outputRows(block)) {
          const key = this.rowKey(tap, row);
          if (held.has(key)) continue;
          const x = held.size * block.vectors + v;
          held.set(key, x);
          const shift = this.shiftOf(tap, row).with(laneDimension, first);
          yield this.assign("X", x, "=", this.read(shift, at, v * outputs));
        }
      // 2. One step for each column; columns without a tap are skipped.
      for (const row of outputRows(block)) {
        const z = row.index * block.vectors + v;
        let begun = false;
        let before = 0;
        for (const step of [...columns.keys()].sort((a, b) => a - b)) {
          if (sumHop !== 0 && begun) yield this.assign("A", z, "=", this.vector("A", z, sumHop * (before - step)));
          before = step;
          for (const tap of columns.get(step) ?? []) {
            const data = this.vector("X", held.get(this.rowKey(tap, row)) ?? 0, -dataHop * step);
            yield this.assign("A", z, begun ? "+=" : "=", this.times(data, tap, at, block));
            begun = true;
          }
        }
        yield this.store(at, row, v, block);
      }
    }
  }

  /** The distinct loads of a block, in memory order, with the output rows and taps that each serves. */
  protected loads(block: Tall): readonly Load[] {
    const found = new Map<string, Load>();
    for (const tap of this.sum.taps)
      for (const row of outputRows(block)) {
        const key = `${this.rowKey(tap, row)};${printExpr(tap.shift.at(-1) ?? number(0))}`;
        const known = found.get(key);
        if (known) known.uses.push({ row, tap });
        else found.set(key, { tap, row, uses: [{ row, tap }] });
      }
    return [...found.values()].sort((a, b) => compareShifts(this.shiftOf(a.tap, a.row), this.shiftOf(b.tap, b.row)));
  }

  /** The input row that a tap reads for an output row of the block. */
  protected rowKey(tap: Tap, row: OutputRow): string {
    return shiftText(this.shiftOf(tap, row).slice(0, -1));
  }

  protected shiftOf(tap: Tap, row: OutputRow): Expr[] {
    return movedShift(this.sum, tap.shift, row);
  }

  // ---- leaves -------------------------------------------------------------------------------------------------------------------

  protected vector(wish: File, index: number, shift = 0): Access {
    return this.files.register(wish, index, shift);
  }

  protected assign(file: File, index: number, op: CombineOp, value: Expr): Statement {
    return scalar({ target: this.vector(file, index), op, value });
  }

  /** The element that a shift reads on every lane, `columns` further on. */
  protected read(shift: readonly Expr[], at: Origin, columns: number): Access {
    const index = this.sum.follows.map((follows, d) => {
      const from = follows === undefined ? number(0) : (at.get(follows) ?? number(0));
      const moved = plus(from, shift[d] ?? number(0));
      return d === shift.length - 1 ? plus(plus(moved, number(columns)), axis(this.files.lane)) : moved;
    });
    return access(this.sum.input.name, index);
  }

  private times(data: Expr, tap: Tap, at: Origin, block: Block): Expr {
    if (!tap.factor) return data;
    const held = block.interior ? [...this.weights.keys()].indexOf(printExpr(tap.factor)) : -1;
    const factor = held >= 0 ? this.vector("W", held) : substitute(tap.factor, at, "value");
    return { kind: "binary", op: "*", left: data, right: factor };
  }

  private weightLoads(at: Origin): Statement[] {
    return [...this.weights.values()].map((factor, w) => this.assign("W", w, "=", substitute(factor, at, "value")));
  }

  private store(at: Origin, row: OutputRow, v: number, block: Block): Statement {
    const { laneAxis, output, computation, input, rowAxis, shifts } = this.sum;
    const { lanes, prefetchBytes = 0 } = this.schedule;
    const { outputs, lastLane } = this.placement;
    const place = computation.equation.target.index.map((e) => {
      const name = e.kind === "axis" ? e.name : "";
      const base = at.get(name) ?? axis(name);
      if (name === laneAxis) return plus(plus(base, number(v * outputs - lastLane)), axis(this.files.lane));
      if (name === rowAxis) return plus(base, number(row.row));
      return name === this.planes?.name ? plus(base, number(row.plane)) : base;
    });
    const where = allOf([
      lastLane > 0 && compare(">=", axis(this.files.lane), lastLane),
      lastLane + outputs < lanes && compare("<", axis(this.files.lane), lastLane + outputs),
    ]);
    const equation = {
      target: access(output.name, place),
      op: "=" as const,
      value: this.vector("A", row.index * block.vectors + v),
    };
    const statement = { kind: "scalar" as const, equation: where ? { ...equation, where } : equation };
    if (!block.interior || prefetchBytes === 0) return statement;
    // Only the rows beyond those of the previous block are new to the caches: the farthest along the outermost axis that
    // has neighbours. With planes, blocks follow one another along the rows: one row farther takes 1.15 times as long
    // (3d7pt of 512 x 512 x 512 on a Zen 4, 2026-11-23).
    const inPlanes = this.planes !== undefined;
    const farthest = this.shiftOf(
      { shift: shifts.map(([, max], d) => number(inPlanes && d === this.sum.rowDimension ? 0 : max)) },
      row,
    );
    const next = this.read(farthest, at, v * outputs + Math.round(prefetchBytes / bytesOf(input.dtype)));
    const onFirst = new Map([[this.files.lane, number(0)]]);
    const prefetch = access(
      input.name,
      next.index.map((e) => substitute(e, onFirst, "index")),
    );
    return { ...statement, prefetch, ...(prefetchBytes >= DISTANT_BYTES && { isDistant: true }) };
  }
}

/** A vector of data, and its uses. */
export interface Load {
  readonly tap: Tap;
  readonly row: OutputRow;
  readonly uses: { readonly row: OutputRow; readonly tap: Tap }[];
}

/** A sum with constants folded: `(4*b + 1) + 2` is `4*b + 3`. */
function plus(left: Expr, right: Expr): Expr {
  if (
    right.kind === "number" &&
    left.kind === "binary" &&
    left.right.kind === "number" &&
    (left.op === "+" || left.op === "-")
  ) {
    const sum = (left.op === "+" ? left.right.value : -left.right.value) + right.value;
    return binary("+", left.left, sum);
  }
  if (
    right.kind === "axis" &&
    left.kind === "binary" &&
    left.right.kind === "number" &&
    (left.op === "+" || left.op === "-")
  )
    return binary(left.op, binary("+", left.left, right), left.right);
  return binary("+", left, right);
}

/** Compares constant shifts by value; others keep their order. */
function compareShifts(a: readonly Expr[], b: readonly Expr[]): number {
  for (const [d, left] of a.entries()) {
    const right = b[d];
    if (left.kind === "number" && right?.kind === "number" && left.value !== right.value)
      return left.value - right.value;
  }
  return 0;
}
