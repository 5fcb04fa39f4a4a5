/**
 * @file A wavefront on lanes: row i of a strip on lane i, each row k steps behind the one above; results pass to the lane below in registers.
 *
 *     for strip in 0..64                                            16 rows each
 *       above_1, made <- 0
 *       for block in 0..258                                         16 steps each
 *         for step in 0..16
 *           above_1[0,lane] = select(lane == 0, edge[column], made[0,lane-1])           h[i-1,j]: a shift of lanes
 *           made[0,lane] = max(0, above_1[1,lane] + ..., above_1[0,lane] - g, made[0,lane] - g)
 *           diagonals[16*step + lane] = made[0,lane]
 *         turned[16*row + step] = diagonals[16*step + row]                              a tile of 16 x 16 is turned
 *         h[16*strip + row, 16*block + lane - row] = turned[16*row + lane]
 *       edge[j] = h[16*strip + 15, j]
 *
 * What depends on the row alone is loaded once a strip; what depends on the column alone lies backwards in memory of its own, so that lanes load
 * neighbours. Steps at which lanes stand beside the matrix are blocks of their own, with those lanes zero; all other blocks test nothing.
 */

import { affineForm } from "../../abstraction/affine.ts";
import type { ArraySchedule } from "../../abstraction/candidate.ts";
import { type Axis, outputOf } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import {
  type Access,
  access,
  accessesIn,
  and,
  axesIn,
  axis,
  binary,
  compare,
  comparesElements,
  type Expr,
  number,
  substitute,
} from "../../abstraction/expression.ts";
import { type LoopNest, loop, type Scratch, type Statement, type VectorFile } from "../../abstraction/loop-nest.ts";
import { typeOf } from "../../abstraction/typing.ts";
import { ZMM } from "../../targets/x86.ts";
import { FreshNames } from "../lower/names.ts";
import { decided, type Ranges, undecided } from "./decided.ts";
import { arrayDependences, type Recurrent } from "./recurrent.ts";

/**
 * Blocks whose results leave together. Rows of a power of two share sets of the cache, so a line should be written as a whole: an alignment of
 * 1024 x 1024 takes 0.27 ms by four blocks and 0.36 by one (a Xeon, 2026-11-22, other programs running).
 */
const AT_ONCE = 4;

/** What depends on the row alone, or on the column alone: computed ahead, in memory of its own. */
interface Ahead {
  readonly along: "row" | "column";
  readonly name: string;
  readonly value: Expr;
}

/** A run of blocks of steps, of a run of strips. */
interface Part {
  /** Row of lane 0. */
  readonly base: Expr;
  readonly firstBlock: number;
  readonly blocks: number;
  /** Every lane stands inside the matrix at every step. */
  readonly isInside: boolean;
  readonly value: Expr;
}

const plus = (left: Expr, right: Expr): Expr => binary("+", left, right);
const minus = (left: Expr, right: Expr): Expr => binary("-", left, right);
const times = (factor: number, e: Expr): Expr => binary("*", number(factor), e);

export class Wavefront {
  private readonly recurrent: Recurrent;
  private readonly row: Axis;
  private readonly column: Axis;
  private readonly names: FreshNames;
  private readonly lanes: number;
  /** Steps of a block: a tile of as many rows is turned at once. */
  private readonly side: number;
  private readonly skew: number;
  private readonly reach: readonly { readonly rows: number; readonly least: number; readonly depth: number }[];
  /** Registers of what a lane made. */
  private readonly depth: number;
  private readonly lead: number;
  private readonly strips: number;
  private readonly blocks: number;
  private readonly ahead: Ahead[] = [];
  private readonly threads: number;

  constructor(recurrent: Recurrent, schedule: ArraySchedule) {
    const [row, column] = recurrent.inner;
    if (!row || !column) throw new Error("internal: a wavefront without rows and columns");
    this.recurrent = recurrent;
    [this.row, this.column] = [row, column];
    this.names = new FreshNames(recurrent.computation);
    this.lanes = schedule.lanes;
    this.threads = schedule.threads;
    this.side = Math.min(this.lanes, ZMM.bytes / bytesOf(recurrent.dtype));
    this.skew = schedule.transform.schedule[0]?.[0] ?? 1;
    const pairs = arrayDependences(recurrent).map(([di = 0, dj = 0]) => [Number(di), Number(dj)] as const);
    const rows = [...new Set(pairs.map(([di]) => di))].filter((di) => di > 0);
    this.reach = rows.map((di) => {
      const own = pairs.filter(([d]) => d === di).map(([, dj]) => dj);
      const least = Math.min(...own);
      return { rows: di, least, depth: Math.max(...own) - least + 1 };
    });
    this.lead = Math.max(0, ...this.reach.map((r) => -r.least));
    this.depth = Math.max(
      1,
      ...pairs.map(([di, dj]) => (di === 0 ? dj : 0)),
      ...this.reach.map((r) => this.skew * r.rows + r.least),
    );
    this.strips = Math.ceil(row.extent / this.lanes);
    this.blocks = Math.ceil((column.extent + this.lead + this.skew * (this.lanes - 1)) / this.side);
  }

  nest(): LoopNest {
    const { outer } = this.recurrent;
    const parts = this.parts();
    const body = [...this.clearEdge(), ...this.fill(), ...parts];
    const batch = outer.reduceRight<readonly Statement[]>(
      (inner, { name, extent }, d) => [loop(name, extent, inner, d === 0 && this.threads > 1 ? "parallel" : "serial")],
      body,
    );
    return { scratch: this.scratch(), registers: [], vectors: this.vectors(), prepare: [], body: batch };
  }

  // ---- memory ------------------------------------------------------------------------------------------------------------------------

  private get most(): number {
    return Math.max(0, ...this.reach.map((r) => r.rows));
  }

  /** Elements of `edge` before column 0, and of one of its rows. */
  private get edgeStart(): number {
    return this.lead + this.skew * this.most + Math.max(0, ...this.reach.map((r) => r.least + r.depth));
  }

  private get edgePitch(): number {
    return this.edgeStart + this.side * this.blocks + Math.max(0, ...this.reach.map((r) => -r.least));
  }

  /** Elements of one phase of what depends on the column alone. */
  private get backPitch(): number {
    return Math.floor((this.side * this.blocks - 1) / this.skew) + this.lanes;
  }

  private get outerSteps(): number {
    return this.recurrent.outer.reduce((n, a) => n * a.extent, 1);
  }

  /** A place in memory that every step of the outer loops has its own of. */
  private own(size: number, at: Expr): Expr {
    const step = this.recurrent.outer.reduce<Expr>(
      (sum, a) => plus(binary("*", sum, number(a.extent)), axis(a.name)),
      number(0),
    );
    return plus(binary("*", step, number(size)), at);
  }

  private scratch(): Scratch[] {
    const { dtype } = this.recurrent;
    const shared = (name: string, elements: number): Scratch => ({
      ...{ name, dtype, elements: elements * this.outerSteps, scope: "workspace" },
    });
    const tile = (name: string, elements: number): Scratch => ({ ...{ name, dtype, elements, scope: "local" } });
    return [
      ...(this.most > 0 ? [shared(this.names.fresh("edge"), this.most * this.edgePitch)] : []),
      ...this.ahead.map(({ name, along }) =>
        shared(name, along === "row" ? this.strips * this.lanes : this.skew * this.backPitch),
      ),
      tile(this.names.fresh("diagonals"), AT_ONCE * this.side * this.lanes),
      tile(this.names.fresh("turned"), AT_ONCE * this.side * this.side),
    ];
  }

  private vectors(): VectorFile[] {
    const { dtype } = this.recurrent;
    const file = (name: string, count: number): VectorFile => ({ name, dtype, lanes: this.lanes, count });
    return [
      file(this.names.fresh("made"), this.depth),
      file(this.names.fresh("next"), 1),
      ...this.reach.map((r) => file(this.above(r.rows), r.depth)),
      ...this.ahead.filter((a) => a.along === "row").map((a) => file(this.held(a), 1)),
    ];
  }

  private above(rows: number): string {
    return this.names.fresh(`above_${rows}`);
  }

  private held({ name }: Ahead): string {
    return this.names.fresh(`${name}_lanes`);
  }

  /** No row above the first: zeros. */
  private clearEdge(): Statement[] {
    if (this.most === 0) return [];
    const column = this.names.fresh("edge_column");
    const size = this.most * this.edgePitch;
    const target = access(this.names.fresh("edge"), [this.own(size, axis(column))]);
    return [loop(column, size, [assign(target, number(0))])];
  }

  /** What depends on one axis alone; columns backwards, so that lanes find neighbours: lane l at step t needs column t - k*l. */
  private fill(): Statement[] {
    return this.ahead.map(({ along, name, value }) => {
      const at = this.names.fresh(`${name}_at`);
      if (along === "row") {
        const put = new Map([[this.row.name, axis(at)]]);
        const extent = this.strips * this.lanes;
        return loop(at, extent, [assign(access(name, [this.own(extent, axis(at))]), substitute(value, put, "value"))]);
      }
      const phase = this.names.fresh(`${name}_phase`);
      const last = Math.floor((this.side * this.blocks - 1) / this.skew);
      const from = number(this.skew * last - this.lead);
      const place = minus(plus(axis(phase), from), times(this.skew, axis(at)));
      const flat = plus(times(this.backPitch, axis(phase)), axis(at));
      const target = access(name, [this.own(this.skew * this.backPitch, flat)]);
      const put = new Map([[this.column.name, place]]);
      return loop(phase, this.skew, [loop(at, this.backPitch, [assign(target, substitute(value, put, "value"))])]);
    });
  }

  // ---- strips and blocks of steps ----------------------------------------------------------------------------------------------------

  private parts(): Statement[] {
    const { computation } = this.recurrent;
    const { value } = computation.equation;
    const whole = Math.floor(this.row.extent / this.lanes);
    const span = this.skew * (this.lanes - 1) + this.lead;
    const blocksFrom = (least: number): number => Math.ceil((span + least) / this.side);
    const last = Math.floor((this.column.extent + this.lead) / this.side);
    const valueIn = (strips: readonly [number, number], columns: readonly [number, number]): Expr => {
      const ranges: Ranges = new Map([
        [this.row.name, [this.lanes * strips[0], Math.min(this.row.extent, this.lanes * strips[1]) - 1]],
        [this.column.name, columns],
      ]);
      return decided(value, ranges);
    };
    // Blocks whose conditions are all known begin a strip, or a block, later.
    const starts = (
      [
        [0, 0],
        [0, 1],
        [1, 0],
        [1, 1],
      ] as const
    ).map(([strip, block]) => {
      const first = blocksFrom(block * this.side);
      const inside = valueIn([strip, whole], [this.side * first - span, this.side * last - 1 - this.lead]);
      return { strip, first, inside, left: undecided(inside) };
    });
    const best = starts.reduce((a, b) => (b.left < a.left ? b : a));
    const anywhere = (strips: readonly [number, number]): Expr => valueIn(strips, [0, this.column.extent - 1]);
    const guarded = (base: Expr, strips: readonly [number, number], from: number, to: number): Part => ({
      ...{ base, firstBlock: from, blocks: to - from, isInside: false, value: anywhere(strips) },
    });
    const made: Statement[] = [];
    const strip = this.names.fresh("strip");
    const add = (from: number, to: number, partsOf: (base: Expr) => readonly Part[]): void => {
      if (to <= from) return;
      const base = times(this.lanes, plus(axis(strip), number(from)));
      const steps = partsOf(base).flatMap((p) => this.part(p));
      const rest = to < this.strips || to - from > 1 ? this.keepEdge(base) : [];
      made.push(loop(strip, to - from, [...this.begin(base), ...steps, ...rest]));
    };
    const hasInside = last > best.first && whole > best.strip;
    const plainFrom = hasInside ? best.strip : whole;
    add(0, plainFrom, (base) => [guarded(base, [0, plainFrom], 0, this.blocks)]);
    add(plainFrom, whole, (base) => [
      guarded(base, [plainFrom, whole], 0, best.first),
      { base, firstBlock: best.first, blocks: last - best.first, isInside: true, value: best.inside },
      guarded(base, [plainFrom, whole], last, this.blocks),
    ]);
    add(whole, this.strips, (base) => [guarded(base, [whole, this.strips], 0, this.blocks)]);
    return made;
  }

  /** Nothing is made yet, and what depends on the row is loaded. */
  private begin(base: Expr): Statement[] {
    const lane = this.names.fresh("lane");
    const clear = (name: string, count: number): Statement[] =>
      Array.from({ length: count }, (_, r) => assign(access(name, [number(r), axis(lane)]), number(0)));
    const loads = this.ahead
      .filter((a) => a.along === "row")
      .map((a) =>
        assign(
          access(this.held(a), [number(0), axis(lane)]),
          access(a.name, [this.own(this.strips * this.lanes, plus(base, axis(lane)))]),
        ),
      );
    return [
      loop(
        lane,
        this.lanes,
        [
          ...clear(this.names.fresh("made"), this.depth),
          ...this.reach.flatMap((r) => clear(this.above(r.rows), r.depth)),
          ...loads,
        ],
        "lanes",
      ),
    ];
  }

  /** The last rows of a strip are what the next one reads above it. */
  private keepEdge(base: Expr): Statement[] {
    if (this.most === 0) return [];
    const { outer, computation } = this.recurrent;
    const [row, column] = [this.names.fresh("edge_row"), this.names.fresh("edge_column")];
    const from = plus(plus(base, axis(row)), number(this.lanes - this.most));
    const made = access(outputOf(computation).name, [...outer.map((a) => axis(a.name)), from, axis(column)]);
    return [
      loop(row, this.most, [loop(column, this.column.extent, [assign(this.edge(axis(row), axis(column)), made)])]),
    ];
  }

  /** A column of a row above the strip, counted from the uppermost that is kept. */
  private edge(row: Expr, column: Expr): Access {
    const flat = plus(plus(times(this.edgePitch, row), column), number(this.edgeStart));
    return access(this.names.fresh("edge"), [this.own(this.most * this.edgePitch, flat)]);
  }

  private part(part: Part): Statement[] {
    if (part.blocks <= 0) return [];
    // Of whole blocks several at once, so that lines of the cache are written as wholes.
    const rest = part.isInside ? part.blocks % AT_ONCE : part.blocks;
    const [firstOfRest, wide] = [part.firstBlock + part.blocks - rest, AT_ONCE * this.side];
    return [
      ...this.blocksOf({ ...part, blocks: (part.blocks - rest) / AT_ONCE }, wide),
      ...this.blocksOf({ ...part, firstBlock: firstOfRest, blocks: rest }, this.side),
    ];
  }

  /** Blocks of so many steps. */
  private blocksOf(part: Part, wide: number): Statement[] {
    if (part.blocks === 0) return [];
    const [block, step] = [this.names.fresh("block"), this.names.fresh("step")];
    const first = plus(times(wide, axis(block)), number(this.side * part.firstBlock));
    const steps = loop(step, wide, [this.step(part, plus(first, axis(step)), axis(step))]);
    const tiles = Array.from({ length: this.lanes / this.side }, (_, t) => t * this.side);
    return [loop(block, part.blocks, [steps, ...tiles.flatMap((t) => this.leave(part.base, first, t, wide))])];
  }

  /** All lanes, at one step. */
  private step({ base, isInside, value }: Part, at: Expr, step: Expr): Statement {
    const lane = this.names.fresh("lane");
    const made = this.names.fresh("made");
    const column = minus(minus(at, number(this.lead)), times(this.skew, axis(lane)));
    const places = new Map([
      [this.row.name, plus(base, axis(lane))],
      [this.column.name, column],
    ]);
    const register = (file: string, r: number, from = 0): Access =>
      access(file, [number(r), minus(axis(lane), number(from))]);
    const passed = this.reach.flatMap(({ rows, least, depth }) => {
      const file = this.above(rows);
      // The lanes below the edge one by one: each reads a row of it.
      const value = Array.from({ length: rows }, (_, l) => l).reduceRight<Expr>(
        (whenFalse, l) => {
          const enters = this.edge(
            number(l + this.most - rows),
            minus(minus(at, number(this.lead + this.skew * l)), number(least)),
          );
          return { kind: "select", condition: compare("==", axis(lane), number(l)), whenTrue: enters, whenFalse };
        },
        register(made, this.skew * rows + least - 1, rows),
      );
      return [
        ...Array.from({ length: depth - 1 }, (_, i) => depth - 1 - i).map((r) =>
          assign(register(file, r), register(file, r - 1)),
        ),
        assign(register(file, 0), value),
      ];
    });
    const computed = this.placed(value, places, axis(lane), at);
    const inside = and(compare(">=", column, number(0)), compare("<", column, number(this.column.extent)));
    const next = this.names.fresh("next");
    const kept: Expr = isInside
      ? computed
      : { kind: "select", condition: inside, whenTrue: computed, whenFalse: number(0) };
    const body = [
      ...passed,
      assign(register(next, 0), kept),
      ...Array.from({ length: this.depth - 1 }, (_, i) => this.depth - 1 - i).map((r) =>
        assign(register(made, r), register(made, r - 1)),
      ),
      assign(register(made, 0), register(next, 0)),
      assign(access(this.names.fresh("diagonals"), [plus(times(this.lanes, step), axis(lane))]), register(made, 0)),
    ];
    return loop(lane, this.lanes, body, "lanes");
  }

  /** A tile of as many rows as steps goes to memory, row by row. */
  private leave(base: Expr, first: Expr, tile: number, wide: number): Statement[] {
    const { computation, outer } = this.recurrent;
    const [row, step, lane] = [this.names.fresh("tile_row"), this.names.fresh("tile_step"), this.names.fresh("lane")];
    const made = access(this.names.fresh("diagonals"), [
      plus(plus(times(this.lanes, axis(step)), axis(row)), number(tile)),
    ]);
    const result = (along: Expr): Access => {
      const i = plus(axis(row), number(tile));
      const j = minus(minus(plus(first, along), number(this.lead)), times(this.skew, i));
      return access(outputOf(computation).name, [...outer.map((a) => axis(a.name)), plus(base, i), j]);
    };
    const turned = (along: Expr): Access => access(this.names.fresh("turned"), [plus(times(wide, axis(row)), along)]);
    const vectors = Array.from({ length: wide / this.side }, (_, v): Statement => {
      const along = plus(axis(lane), number(v * this.side));
      return loop(lane, this.side, [assign(result(along), turned(along))], "lanes");
    });
    return [
      loop(row, this.side, [loop(step, wide, [assign(turned(axis(step)), made)])]),
      loop(row, this.side, vectors),
    ];
  }

  // ---- values ------------------------------------------------------------------------------------------------------------------------

  /** A value on the lanes of a step. */
  private placed(e: Expr, places: ReadonlyMap<string, Expr>, lane: Expr, at: Expr): Expr {
    const again = (part: Expr): Expr => this.placed(part, places, lane, at);
    const { target } = this.recurrent.computation.equation;
    const isOwn = accessesIn(e).some((a) => a.tensor === target.tensor);
    const names = axesIn(e);
    const [byRow, byColumn] = [names.includes(this.row.name), names.includes(this.column.name)];
    if (!isOwn && byRow !== byColumn) return this.aheadOf(e, byRow ? "row" : "column", lane, at);
    switch (e.kind) {
      case "number":
      case "axis":
        return e;
      case "access":
        return e.tensor === target.tensor ? this.before(e, lane) : (substitute(e, places, "index") as Access); // an access stays one
      case "negate":
        return { ...e, value: again(e.value) };
      case "binary":
        return { ...e, left: again(e.left), right: again(e.right) };
      case "call":
        return { ...e, args: e.args.map(again) };
      case "select":
        return {
          ...e,
          condition: this.condition(e.condition, places, lane, at),
          whenTrue: again(e.whenTrue),
          whenFalse: again(e.whenFalse),
        };
      default:
        throw new Error(`internal: "${e.kind}" on the lanes of a wavefront`);
    }
  }

  private condition(e: Expr, places: ReadonlyMap<string, Expr>, lane: Expr, at: Expr): Expr {
    if (e.kind === "logic")
      return { ...e, left: this.condition(e.left, places, lane, at), right: this.condition(e.right, places, lane, at) };
    if (e.kind !== "compare" || !comparesElements(e)) return substitute(e, places, "index");
    const { dtype, computation } = this.recurrent;
    const dtypes = Object.fromEntries(Object.values(computation.tensors).map((t) => [t.name, t.dtype]));
    const side = (part: Expr): Expr => {
      const own = typeOf(part, dtypes);
      const held: Expr =
        own === undefined || own === dtype ? part : { kind: "cast", dtype, saturate: false, value: part };
      return this.placed(held, places, lane, at);
    };
    return { ...e, left: side(e.left), right: side(e.right) };
  }

  /** What depends on one axis alone, on lanes. */
  private aheadOf(value: Expr, along: "row" | "column", lane: Expr, at: Expr): Access {
    const text = JSON.stringify(value);
    const known = this.ahead.find((a) => a.along === along && JSON.stringify(a.value) === text);
    const made = known ?? { along, value, name: this.names.fresh(`${along}_${this.ahead.length}`) };
    if (!known) this.ahead.push(made);
    if (along === "row") return access(this.held(made), [number(0), lane]);
    const last = Math.floor((this.side * this.blocks - 1) / this.skew);
    const phase = binary("%", at, number(this.skew));
    const place = plus(minus(number(last), binary("/", at, number(this.skew))), lane);
    const flat = this.skew === 1 ? place : plus(times(this.backPitch, phase), place);
    return access(made.name, [this.own(this.skew * this.backPitch, flat)]);
  }

  /** What was made before, in a register: by this lane, or by one above. */
  private before({ index }: Access, lane: Expr): Access {
    const outer = this.recurrent.outer.length;
    const back = (d: number): number => {
      const constant = affineForm(index[outer + d] ?? number(0))?.constant ?? 0;
      return constant === 0 ? 0 : -constant;
    };
    const [rows, columns] = [back(0), back(1)];
    if (rows === 0) return access(this.names.fresh("made"), [number(columns - 1), lane]);
    const found = this.reach.find((r) => r.rows === rows);
    if (!found) throw new Error(`internal: no lane ${rows} above`);
    return access(this.above(rows), [number(columns - found.least), lane]);
  }
}

function assign(target: Access, value: Expr): Statement {
  return { kind: "scalar", equation: { target, op: "=", value } };
}
