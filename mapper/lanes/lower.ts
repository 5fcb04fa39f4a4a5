/**
 * @file A sum of taps under a lane schedule, lowered to the loop nest that everything runs, prints and draws.
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
 * Where a neighbour may lie outside, blocks are one row of one vector and every access is guarded. Those are the outermost rows and
 * columns, and what is left over at the right.
 */

import type { LaneSchedule } from "../../abstraction/candidate.ts";
import { type Computation, extentsOf } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import type { CombineOp } from "../../abstraction/equation.ts";
import {
  type Access,
  access,
  axis,
  binary,
  compare,
  type Expr,
  number,
  printExpr,
  substitute,
} from "../../abstraction/expression.ts";
import { type LoopNest, loop, type Statement, type VectorFile } from "../../abstraction/loop-nest.ts";
import { FreshNames } from "../lower/names.ts";
import { laneScheduleProblem, outputsOfVector, type Reach, reachOf } from "./schedule.ts";
import { shiftAt, type Tap, type TapSum, tapsOf } from "./taps.ts";

/** @throws Error when the computation has no taps or the schedule does not fit them: ask {@link tapsOf}, {@link laneScheduleProblem} first */
export function lowerLanes(computation: Computation, schedule: LaneSchedule): LoopNest {
  const verdict = tapsOf(computation, schedule.rolled);
  if (!verdict.ok) throw new Error(`internal: lowered without taps: ${verdict.refusal.because}`);
  const problem = laneScheduleProblem(verdict.sum, schedule);
  if (problem) throw new Error(`internal: ${problem.because}`);
  return new Lowering(verdict.sum, schedule).nest();
}

/** Where outputs lie: an index for each spatial axis, those of the first row and the first lane of a block. */
type Places = ReadonlyMap<string, Expr>;

interface Block {
  readonly rows: number;
  readonly vectors: number;
  /** Weights are in vectors, and the stores of this block are worth a hint. */
  readonly interior: boolean;
}

/** Outputs `from .. to-1` of an axis. */
interface Span {
  readonly from: number;
  readonly to: number;
}

class Lowering {
  private readonly sum: TapSum;
  private readonly schedule: LaneSchedule;
  private readonly reach: Reach;
  /** Outputs of one vector. */
  private readonly step: number;
  private readonly extents: Readonly<Record<string, number>>;
  private readonly names: FreshNames;
  private readonly lane: string;
  /** Distinct factors, in the order of the vectors that hold them. */
  private readonly weights: readonly string[];
  private readonly used = new Map<string, number>();

  constructor(sum: TapSum, schedule: LaneSchedule) {
    this.sum = sum;
    this.schedule = schedule;
    this.reach = reachOf(sum);
    this.step = outputsOfVector(schedule.dataflow, schedule.lanes, this.reach.columns);
    this.extents = extentsOf(sum.computation);
    this.names = new FreshNames(sum.computation);
    this.lane = this.names.fresh("lane");
    const factors = sum.taps.flatMap((t) => (t.factor ? [printExpr(t.factor)] : []));
    this.weights = schedule.weights === "registers" ? [...new Set(factors)] : [];
  }

  nest(): LoopNest {
    const { laneAxis } = this.sum;
    const rowAxis = this.reach.rowAxis;
    const outer = this.spatial().filter((name) => name !== laneAxis && name !== rowAxis);
    if (this.schedule.borders === "guarded") return this.wrapped(this.everywhere(outer));
    const body: Statement[] = [];

    // 1. Borders of the outer axes: everything below them guarded.
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

    // 3. The interior in blocks of rows, and the rows left over.
    if (rowAxis === undefined || !rows) body.push(...this.interior(planes, [], 1));
    else {
      const { rows: tall, strip } = this.schedule;
      const count = Math.floor((rows.to - rows.from) / tall);
      const left = (rows.to - rows.from) % tall;
      const strips = strip > 0 && count % strip === 0 ? count / strip : 1;
      if (count > 0) {
        const [whole, inner] = [
          axisLoop(this.names.fresh(`${rowAxis}_strip`), strips),
          axisLoop(this.names.fresh(`${rowAxis}_block`), count / strips),
        ];
        const block = binary("+", binary("*", axis(whole.name), number(count / strips)), axis(inner.name));
        const at = scaled(strips > 1 ? block : axis(inner.name), tall, rows.from);
        body.push(...this.interior([...planes, { ...inner, axis: rowAxis, at }], strips > 1 ? [whole] : [], tall));
      }
      if (left > 0) {
        const last = {
          ...axisLoop(this.names.fresh(`${rowAxis}_block`), 1),
          axis: rowAxis,
          at: number(rows.to - left),
        };
        body.push(...this.interior([...planes, last], [], left));
      }
    }
    return this.wrapped(body);
  }

  /** One kind of block for all outputs. */
  private everywhere(outer: readonly string[]): readonly Statement[] {
    const { laneAxis } = this.sum;
    const { rows, vectors } = this.schedule;
    const { rowAxis } = this.reach;
    const blocks = (name: string, width: number): Around => {
      const dealt = axisLoop(this.names.fresh(`${name}_block`), Math.ceil(this.extent(name) / width));
      return { ...dealt, axis: name, at: scaled(axis(dealt.name), width, 0) };
    };
    const around = [
      ...outer.map((a) => this.over(a, { from: 0, to: this.extent(a) })),
      ...(rowAxis === undefined ? [] : [blocks(rowAxis, rows)]),
      blocks(laneAxis, vectors * this.step),
    ];
    const places: Places = new Map(around.map((a) => [a.axis, a.at]));
    return around.reduceRight<readonly Statement[]>(
      (inner, { name, extent }) => [loop(name, extent, inner, "parallel")],
      this.block(places, { rows, vectors, interior: false }),
    );
  }

  private wrapped(body: readonly Statement[]): LoopNest {
    return { scratch: [], registers: [], vectors: this.vectors(), prepare: [], body };
  }

  // ---- loops --------------------------------------------------------------------------------------------------------------------

  private spatial(): string[] {
    return this.sum.computation.axes.filter((a) => a.kind === "spatial").map((a) => a.name);
  }

  private extent(name: string): number {
    return this.extents[name] ?? 1;
  }

  /** Outputs of an axis whose neighbours along it are all inside. */
  private inside(name: string): Span {
    let [from, to] = [0, this.extent(name)];
    for (const [d, follows] of this.sum.follows.entries()) {
      const [min, max] = this.reach.shifts[d] ?? [0, 0];
      const places = this.sum.input.dims[d]?.extent ?? 1;
      if (follows === name) [from, to] = [Math.max(from, -min), Math.min(to, places - max)];
      // A dimension that follows nothing is inside everywhere or is taken for outside everywhere.
      else if (follows === undefined && (min < 0 || max >= places)) to = from;
    }
    const within = Math.min(from, this.extent(name));
    return { from: within, to: Math.max(within, to) };
  }

  private over(name: string, { from, to }: Span): Around {
    return { name, extent: to - from, axis: name, at: binary("+", axis(name), number(from)) };
  }

  /** Loops around a body, the outermost dealt to threads. */
  private piece(around: readonly Around[], body: (at: Places) => readonly Statement[]): readonly Statement[] {
    if (around.some((a) => a.extent <= 0)) return [];
    const places: Places = new Map(around.map((a) => [a.axis, a.at]));
    if (around.length === 0) return [...body(places)];
    return around.reduceRight<readonly Statement[]>(
      (inner, { name, extent }, k) => [loop(name, extent, inner, k === 0 ? "parallel" : "serial")],
      body(places),
    );
  }

  private interior(around: readonly Around[], strips: readonly NamedLoop[], tall: number): readonly Statement[] {
    const pieces = this.piece(around, (at) => this.columns(at, tall, around.length === 0));
    return strips.reduceRight((inner, { name, extent }) => [loop(name, extent, inner)], pieces);
  }

  /** All lane blocks of one block of rows: at the left guarded, then whole blocks, single vectors, and at the right guarded. */
  private columns(at: Places, tall: number, outermost: boolean): readonly Statement[] {
    const { laneAxis } = this.sum;
    const { lanes, vectors, dataflow } = this.schedule;
    const extent = this.extent(laneAxis);
    const { from, to } = this.inside(laneAxis);
    // A store's lanes without a whole window are inside the tensor too, so that only their number is tested.
    const [before, behind] =
      dataflow === "SBM" ? [lanes - this.step, 0] : dataflow === "FBS-shift" ? [0, lanes - this.step] : [0, 0];
    const first = Math.ceil(Math.max(from, before) / this.step) * this.step;
    const end = Math.min(to, extent - behind);
    const wide = vectors * this.step;
    const blocks = Math.max(0, Math.floor((end - first) / wide));
    const middle = first + blocks * wide;
    const singles = vectors === 1 ? 0 : Math.max(0, Math.floor((end - middle) / this.step));
    const right = Math.min(extent, middle + singles * this.step);
    const mode = outermost ? "parallel" : "serial";
    const name = this.names.fresh(`${laneAxis}_block`);
    const over = (count: number, width: number, start: number, block: Block): readonly Statement[] =>
      count === 0
        ? []
        : [loop(name, count, this.block(new Map([...at, [laneAxis, scaled(axis(name), width, start)]]), block), mode)];
    const single = { rows: tall, vectors: 1 };
    return [
      ...(blocks > 0 || singles > 0 ? this.loadWeights(at) : []),
      ...over(Math.ceil(Math.min(first, extent) / this.step), this.step, 0, { ...single, interior: false }),
      ...over(blocks, wide, first, { rows: tall, vectors, interior: true }),
      ...over(singles, this.step, middle, { ...single, interior: true }),
      ...over(first >= extent ? 0 : Math.ceil((extent - right) / this.step), this.step, right, {
        ...single,
        interior: false,
      }),
    ];
  }

  /** One row of outputs, every access guarded. */
  private guarded(at: Places): readonly Statement[] {
    const { laneAxis } = this.sum;
    const name = this.names.fresh(`${laneAxis}_block`);
    const here = new Map([...at, [laneAxis, scaled(axis(name), this.step, 0)]]);
    const count = Math.ceil(this.extent(laneAxis) / this.step);
    return [loop(name, count, this.block(here, { rows: 1, vectors: 1, interior: false }))];
  }

  // ---- one block ----------------------------------------------------------------------------------------------------------------

  private block(at: Places, block: Block): readonly Statement[] {
    if (this.schedule.dataflow === "FBS-load") return this.loadingBlock(at, block);
    return [this.onLanes([...this.movingBlock(at, block)])];
  }

  /** The sum stays, every column of the window is loaded. */
  private loadingBlock(at: Places, block: Block): readonly Statement[] {
    const { rolled } = this.sum;
    const begun = new Set<number>();
    const sums: Statement[] = [];
    if (rolled.length > 0)
      for (let a = 0; a < block.rows * block.vectors; a++) {
        sums.push(this.assign("A", a, "=", number(0)));
        begun.add(a);
      }
    const body: Statement[] = [];
    if (block.interior && rolled.length > 0) body.push(...this.weightLoads(at));
    for (const { tap, shifted, row } of this.loads(block.rows)) {
      for (let v = 0; v < block.vectors; v++)
        body.push(this.assign("X", v, "=", this.read(tap, at, row, v * this.step)));
      for (const use of shifted)
        for (let v = 0; v < block.vectors; v++) {
          const a = use.row * block.vectors + v;
          const op = begun.has(a) ? "+=" : "=";
          begun.add(a);
          body.push(this.assign("A", a, op, this.times(this.vector("X", v), use.tap, at, block)));
        }
    }
    const stores: Statement[] = [];
    for (let row = 0; row < block.rows; row++)
      for (let v = 0; v < block.vectors; v++)
        stores.push(this.store("A", row * block.vectors + v, at, row, v, 0, block));
    if (rolled.length === 0) return [this.onLanes([...body, ...stores])];
    const window = rolled.reduceRight<Statement>(
      (inner, name) => loop(name, this.extent(name), [inner]),
      this.onLanes(body),
    );
    return [this.onLanes(sums), window, this.onLanes(stores)];
  }

  /** Data are loaded once; sums (SBM) or data (FBS-shift) move along the lanes. */
  private *movingBlock(at: Places, block: Block): Iterable<Statement> {
    const { laneDimension } = this.reach;
    const { dataflow } = this.schedule;
    const [least, most] = this.reach.shifts[laneDimension] ?? [0, 0];
    const columns = groupBy(this.sum.taps, (tap) => shiftAt(tap, laneDimension));
    for (let v = 0; v < block.vectors; v++) {
      // 1. The rows the block needs, each at its leftmost column.
      const held = new Map<string, number>();
      for (const tap of this.sum.taps)
        for (let row = 0; row < block.rows; row++) {
          const key = this.rowKey(tap, row);
          if (held.has(key)) continue;
          const x = held.size * block.vectors + v;
          held.set(key, x);
          const leftmost = { ...tap, shift: tap.shift.with(laneDimension, number(least)) };
          yield this.assign("X", x, "=", this.read(leftmost, at, row, v * this.step));
        }
      // 2. Columns from left to right.
      for (let row = 0; row < block.rows; row++) {
        const z = row * block.vectors + v;
        let begun = false;
        let reached = least;
        for (const column of [...columns.keys()].sort((a, b) => a - b)) {
          if (dataflow === "SBM" && begun) yield this.assign("A", z, "=", this.vector("A", z, reached - column));
          reached = column;
          for (const tap of columns.get(column) ?? []) {
            const data = this.vector(
              "X",
              held.get(this.rowKey(tap, row)) ?? 0,
              dataflow === "SBM" ? 0 : column - least,
            );
            yield this.assign("A", z, begun ? "+=" : "=", this.times(data, tap, at, block));
            begun = true;
          }
        }
        yield this.store("A", z, at, row, v, dataflow === "SBM" ? most - least : 0, block);
      }
    }
  }

  /** Distinct loads of a block with the output rows and taps each serves, row by row as memory lies. */
  private loads(rows: number): readonly { tap: Tap; row: number; shifted: readonly { row: number; tap: Tap }[] }[] {
    const found = new Map<string, { tap: Tap; row: number; shifted: { row: number; tap: Tap }[] }>();
    for (const tap of this.sum.taps)
      for (let row = 0; row < rows; row++) {
        const key = `${this.rowKey(tap, row)};${printExpr(tap.shift.at(-1) ?? number(0))}`;
        const known = found.get(key);
        if (known) known.shifted.push({ row, tap });
        else found.set(key, { tap, row, shifted: [{ row, tap }] });
      }
    return [...found.values()].sort((a, b) => compareShifts(this.shiftOf(a.tap, a.row), this.shiftOf(b.tap, b.row)));
  }

  /** Which row of the input a tap reads for an output row of the block. */
  private rowKey(tap: Tap, row: number): string {
    return this.shiftOf(tap, row)
      .slice(0, -1)
      .map((e) => printExpr(e))
      .join();
  }

  private shiftOf(tap: Tap, row: number): Expr[] {
    return tap.shift.map((s, d) => (d === this.reach.rowDimension ? binary("+", s, number(row)) : s));
  }

  // ---- leaves -------------------------------------------------------------------------------------------------------------------

  private onLanes(body: readonly Statement[]): Statement {
    return loop(this.lane, this.schedule.lanes, body, "lanes");
  }

  private vector(wish: "A" | "W" | "X", index: number, shift = 0): Access {
    const file = this.names.fresh(wish);
    this.used.set(file, Math.max(this.used.get(file) ?? 0, index + 1));
    return access(file, [number(index), binary("+", axis(this.lane), number(shift))]);
  }

  private assign(file: "A" | "W" | "X", index: number, op: CombineOp, value: Expr): Statement {
    return { kind: "scalar", equation: { target: this.vector(file, index), op, value } };
  }

  /** The neighbour of a tap, on every lane. */
  private read(tap: Tap, at: Places, row: number, columns: number): Access {
    const shift = this.shiftOf(tap, row);
    const index = this.sum.follows.map((follows, d) => {
      const from = follows === undefined ? number(0) : (at.get(follows) ?? number(0));
      const moved = plus(from, shift[d] ?? number(0));
      return d === this.reach.laneDimension ? plus(plus(moved, number(columns)), axis(this.lane)) : moved;
    });
    return access(this.sum.input.name, index);
  }

  private times(data: Expr, tap: Tap, at: Places, block: Block): Expr {
    if (!tap.factor) return data;
    const held = block.interior ? this.weights.indexOf(printExpr(tap.factor)) : -1;
    const factor = held >= 0 ? this.vector("W", held) : substitute(tap.factor, at, "value");
    return { kind: "binary", op: "*", left: data, right: factor };
  }

  /** Weights that are held in vectors; with rolled axes they change from step to step, and each step loads its own. */
  private loadWeights(at: Places): readonly Statement[] {
    const loads = this.sum.rolled.length > 0 ? [] : this.weightLoads(at);
    return loads.length === 0 ? [] : [this.onLanes(loads)];
  }

  private weightLoads(at: Places): Statement[] {
    const factors = new Map(this.sum.taps.flatMap((t) => (t.factor ? [[printExpr(t.factor), t.factor] as const] : [])));
    return this.weights.flatMap((text, w) => {
      const factor = factors.get(text);
      return factor ? [this.assign("W", w, "=", substitute(factor, at, "value"))] : [];
    });
  }

  private store(file: "A", index: number, at: Places, row: number, v: number, behind: number, block: Block): Statement {
    const { laneAxis, output, computation, input } = this.sum;
    const { lanes, dataflow, prefetchBytes } = this.schedule;
    const place = computation.equation.target.index.map((e) => {
      const name = e.kind === "axis" ? e.name : "";
      const base = at.get(name) ?? axis(name);
      if (name === laneAxis) return plus(plus(base, number(v * this.step - behind)), axis(this.lane));
      return name === this.reach.rowAxis ? plus(base, number(row)) : base;
    });
    const equation = { target: access(output.name, place), op: "=" as const, value: this.vector(file, index) };
    const whole =
      this.step === lanes
        ? undefined
        : dataflow === "SBM"
          ? compare(">=", axis(this.lane), number(behind))
          : compare("<", axis(this.lane), number(this.step));
    const statement = { kind: "scalar" as const, equation: whole ? { ...equation, where: whole } : equation };
    if (!block.interior || prefetchBytes === 0) return statement;
    // New to the caches are the rows beyond those of the block before: the farthest of every dimension.
    const farthest = { shift: this.reach.shifts.map(([, max]) => number(max)) };
    const ahead = Math.round(prefetchBytes / bytesOf(input.dtype));
    const next = this.read(farthest, at, row, v * this.step + ahead);
    const first = new Map([[this.lane, number(0)]]);
    return {
      ...statement,
      prefetch: access(
        input.name,
        next.index.map((e) => substitute(e, first, "index")),
      ),
    };
  }

  private vectors(): readonly VectorFile[] {
    const { lanes } = this.schedule;
    const { dtype } = this.sum.output;
    return [...this.used].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, count]) => ({ name, dtype, lanes, count }));
  }
}

interface NamedLoop {
  readonly name: string;
  readonly extent: number;
}

/** A loop, and the place of an output axis it stands for. */
interface Around extends NamedLoop {
  readonly axis: string;
  readonly at: Expr;
}

const axisLoop = (name: string, extent: number): NamedLoop => ({ name, extent });

/** What of `0 .. extent-1` lies before and behind a span. */
function edges({ from, to }: Span, extent: number): readonly Span[] {
  return [
    { from: 0, to: from },
    { from: to, to: extent },
  ].filter((s) => s.to > s.from);
}

/** `width*block + start`. */
const scaled = (block: Expr, width: number, start: number): Expr =>
  binary("+", binary("*", block, number(width)), number(start));

/** A sum in which numbers meet: `(4*b + 1) + 2` is `4*b + 3`. */
function plus(left: Expr, right: Expr): Expr {
  if (
    right.kind === "number" &&
    left.kind === "binary" &&
    left.right.kind === "number" &&
    (left.op === "+" || left.op === "-")
  ) {
    const sum = (left.op === "+" ? left.right.value : -left.right.value) + right.value;
    return binary("+", left.left, number(sum));
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

function groupBy<T>(items: readonly T[], key: (item: T) => number): Map<number, T[]> {
  const groups = new Map<number, T[]>();
  for (const item of items) groups.set(key(item), [...(groups.get(key(item)) ?? []), item]);
  return groups;
}

/** By number where both are numbers; otherwise as they came. */
function compareShifts(a: readonly Expr[], b: readonly Expr[]): number {
  for (const [d, left] of a.entries()) {
    const right = b[d];
    if (left.kind === "number" && right?.kind === "number" && left.value !== right.value)
      return left.value - right.value;
  }
  return 0;
}
