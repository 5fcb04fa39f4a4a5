/**
 * @file Lowers a stencil's time steps to lanes: passes over the plane, each of which computes several steps, row by
 * row.
 *
 *     for pass in 0..12                                            8 steps a pass; two planes are swapped
 *       for row in 0..4110                                         wavefront: each step works one row behind the step before
 *         step 1     rows_1[row-7] = f(plane[row-8 .. row-6])      the newest 3 rows of each step are in a ring, in cache
 *         step 2     rows_2[row-8] = f(rows_1[row-9 .. row-7])
 *         ...
 *         step 8     next[row-14]  = f(rows_7[row-15 .. row-13])
 *
 * Row q of step s needs rows q-r .. q+r of step s-1, where r is the reach of the stencil along its outermost axis. Its
 * dependences are (1,d) with |d| <= r, and the skew (2r,1) makes them all positive. A ring holds 2r+1 rows. In a grid
 * of three dimensions a row is a plane, tiled along the middle axis (`strip` rows each); tiles overlap by r for each
 * step. Memory is read and written once a pass. No row is computed twice, except where strips of a 3-D grid overlap.
 * Wonnacott, Time Skewing, 2002; Nguyen et al., 3.5-D Blocking, SC'10.
 *
 * `rows: 2`, for a star of three dimensions: a turn computes two planes, row (q,j) and then row (q+1,j-1). Together they
 * read four planes of the step before, apart three each. Row j-1 of plane q is last read by these two, so that the
 * second row may be written over it.
 *
 * Rows beyond the plane: zeros are stored as rows, clamped and mirrored rows are read in place, and a plane that wraps
 * is extended.
 *
 * Lowers one row of a time step: whole vectors of columns, and separate code at both ends of the row.
 *
 *     line0_0 = u[row,j,k-16 .. k-1]; line0_1 = u[row,j,k .. k+15]; line0_2 = u[row,j,k+16 .. k+31]      each line of the cache is read once
 *     next[row,j,k .. k+15] = f(lanes_from<15>(line0_0, line0_1), line0_1, lanes_from<1>(line0_1, line0_2), u[row-1,j,k .. k+15], ...)
 *
 * A row that is read at several columns is loaded into registers, with zeros at its ends: a load that crosses a line
 * costs as much as two.
 *
 * Lowers a stencil's time steps to the lanes of warps. Each warp streams rows through its registers and computes
 * all steps of a pass on the way.
 *
 *     for i_chunk in 0..16, j_tile in 0..171 (parallel)             8 steps a pass, 2 columns a lane, sweeps of 512 rows
 *       for row_block in 0..176                                     3 rows unrolled: register names rotate through rings of 3 rows
 *         for lanes lane in 0..32
 *           u0_[0,lane] = next[0,lane]; next[0,lane] = u_0[512*i_chunk + 3*row_block - 7, 48*j_tile + 2*lane - 8]       two columns at once
 *           side[0,lane] = u0_[5,lane-1]                            from a neighbour, by a shuffle
 *           u1_[4,lane] = f(u0_[0..5,lane], side)                   one row behind
 *           ...
 *           u[512*i_chunk + 3*row_block - 16, ...] = u8_[0,lane]    if the row belongs to the chunk and the lane's columns are complete
 *
 * The order is that of the wavefront on a CPU (lower-steps.ts): step s works r rows behind step s-1, and the newest
 * 2r+1 rows of each are kept. Here they are in registers, and the valid columns of a warp shrink by r on either side at
 * every step. So tiles overlap, and are independent of each other. Rows before a chunk are computed from undefined
 * registers, but nothing that is stored depends on them. Matsumura et al., AN5D, CGO'20; Chen et al., SSAM, SC'19.
 *
 * Beyond the plane, zeros are written in place; reads at clamped and mirrored borders go to other positions; a plane
 * that wraps is extended.
 *
 * A pass takes several steps; the first takes what full passes leave over, the last writes the output. Planes, or a ring with the newest rows of all
 * steps of a pass but the last, hold the values.
 *
 *     pass u_0 -> u                        4 steps: what 100 leave over of passes of 8
 *     for pair in 0..6
 *       pass u -> between, between -> u    8 steps each
 *
 *     rows[(row - step + 14) % 7 * pitch + column]          3 steps, of a star that reaches one row: each overwrites what it alone still needs
 *     rows[(row - 2 * step + 18) % 9 * pitch + column]      of another stencil
 *
 * The rows of time steps in registers while warps stream them: which register of a lane holds which element, and
 * its position in the plane.
 *
 *     u2_[5,lane]           step 2, the third of three rows, the second of two columns
 *     next[1,lane]          on its way from memory
 */

import type { StepSchedule, WarpStepSchedule } from "../../abstraction/candidate.ts";
import { present, upTo } from "../../abstraction/collections.ts";
import { type Computation, memoryElements, outputOf } from "../../abstraction/computation.ts";
import { bytesOf, type DType } from "../../abstraction/dtype.ts";
import { internal } from "../../abstraction/error.ts";
import {
  type Access,
  access,
  allOf,
  and,
  axis,
  between,
  binary,
  border,
  borderOp,
  compare,
  type Expr,
  minus,
  number,
  plus,
  remainder,
  rewrite,
  select,
  substitute,
  times,
} from "../../abstraction/expression.ts";
import {
  assign,
  FreshNames,
  type LoopNest,
  loop,
  type Scalar,
  type Scratch,
  type Statement,
  type VectorFile,
} from "../../abstraction/loop-nest.ts";
import { when } from "../match/conditions.ts";
import { LaneFiles } from "./lane-files.ts";
import type { PlaneAxis, Steps } from "./plane.ts";
import { inBlock, keptRows, linesOf, overwrites, shiftsOf } from "./step-lines.ts";
import { isSteps, stepProblem, stepsOf, warpStepProblem } from "./steps.ts";
import type { LaneRefusal } from "./taps.ts";
import { residentWarps, rowsOfStep, type WarpTile, warpTile } from "./warp-tile.ts";

/** The memory that holds the values of a step. */
interface Source {
  readonly name: string;
  /**
   * Of a ring, which holds the newest rows of a step: the step, counted from 0 within its pass. Each thread has its own
   * ring. When left out, it is a whole plane: a tensor, or memory of the kernel in the same order.
   */
  readonly step?: Expr;
}

/** One step of a pass, at a row. */
interface Level {
  readonly depth: number;
  readonly from: Source;
  readonly to: Source;
  /** The row's position along the swept axis, and along the tiled one. */
  readonly places: readonly Expr[];
  /** The first row of the pass's input plane that the next turn of the sweep needs. The last step prefetches it. */
  readonly ahead?: { readonly plane: Source; readonly places: readonly Expr[] };
}

/** Bytes of a cache line. Row pitches are odd multiples of it, since rows at a power of two would share cache sets. */
const LINE_BYTES = 64;

/**
 * Columns of one statement: one of them, lanes whose neighbours lie inside the row, lanes at an end of it, or lanes
 * that may lie beyond an end themselves.
 */
type Columns = "one" | "inside" | "end" | "beyond";

/** A vector in a block whose lines are in registers, and its row. */
interface InBlock {
  readonly rows: number;
  readonly vector: number;
  readonly row: number;
  readonly lane: Expr;
}

/**
 * Lowers the steps to the vectors of a CPU, whose threads rely on caches.
 * @throws Error if the computation does not step through time or the schedule does not fit; see {@link stepsOf}, {@link
 * stepProblem}
 */
export function lowerSteps(computation: Computation, schedule: StepSchedule): LoopNest {
  return new StepLoops(judged(computation, schedule, stepProblem), schedule).nest();
}

/**
 * Lowers the steps to the lanes of warps, which stream rows through registers.
 * @throws Error as {@link lowerSteps}; see {@link warpStepProblem}
 */
export function lowerWarpSteps(computation: Computation, schedule: WarpStepSchedule): LoopNest {
  return new WarpSteps(judged(computation, schedule, warpStepProblem), schedule).nest();
}

function judged<S>(
  computation: Computation,
  schedule: S,
  problemOf: (steps: Steps, schedule: S) => LaneRefusal | undefined,
): Steps {
  const steps = stepsOf(computation);
  if (!isSteps(steps)) internal(`lowered without steps: ${steps.because}`);
  const problem = problemOf(steps, schedule);
  if (problem) internal(`${problem.because}`);
  return steps;
}

abstract class StepPasses<S extends { readonly depth: number }> {
  protected readonly steps: Steps;
  protected readonly schedule: S;
  protected readonly dtype: DType;
  protected readonly names: FreshNames;

  constructor(steps: Steps, schedule: S) {
    this.steps = steps;
    this.schedule = schedule;
    this.dtype = outputOf(steps.computation).dtype;
    this.names = new FreshNames(steps.computation);
  }

  /** The value of a step at some coordinates. @param read an element of the step before, so far from the one that is computed */
  protected valueAt(coordinates: readonly Expr[], read: (shifts: readonly number[]) => Expr): Expr {
    const { time, axes } = this.steps;
    // Plane reads are substituted first, while their indices are still the plain positions.
    const reads: Expr[] = [];
    const held = this.names.fresh("held");
    const apart = rewrite(
      time.step.equation.value,
      (e) => {
        if (e.kind !== "access" || e.tensor !== time.first) return e;
        reads.push(read(shiftsOf(e)));
        return access(held, [number(reads.length - 1)]);
      },
      "value",
    );
    const put = (e: Expr): Expr =>
      e.kind === "access" && e.tensor === held && e.index[0]?.kind === "number" ? (reads[e.index[0].value] ?? e) : e;
    const places = new Map(axes.map(({ name }, d) => [name, coordinates[d] ?? number(0)]));
    return rewrite(substitute(apart, places, "value"), put, "value");
  }

  /** A pass of `depth` steps from one plane to another. */
  protected abstract pass(from: string, to: string, depth: number): readonly Statement[];

  /** Statements between passes. */
  protected abstract readonly between: readonly Statement[];

  /** Memory and registers in addition to the planes. */
  protected abstract held(): Pick<LoopNest, "scratch" | "vectors" | "deal">;

  nest(): LoopNest {
    const { time, computation } = this.steps;
    const output = outputOf(computation);
    const { depth } = this.schedule;
    const { first } = time;
    const last = output.name;
    const between = this.names.fresh("between");
    const follow = (...passes: readonly (readonly Statement[])[]): Statement[] =>
      passes.flatMap((pass, i) => (i === 0 ? pass : [...this.between, ...pass]));

    // The first pass takes the steps that full passes leave over. The last pass writes the output.
    const rest = time.steps % depth || depth;
    const more = (time.steps - rest) / depth;
    const passes = [this.pass(first, more % 2 === 0 ? last : between, rest)];
    const pairs = Math.floor(more / 2);
    if (more % 2 === 1) passes.push(this.pass(between, last, depth));
    if (pairs > 0) {
      const pair = [...follow(this.pass(last, between, depth), this.pass(between, last, depth)), ...this.between];
      passes.push([loop(this.names.fresh("pair"), pairs, pair)]);
    }
    const body = follow(...passes);
    const { scratch, ...held } = this.held();
    const spare: Scratch = {
      name: between,
      elements: memoryElements(output),
      dtype: this.dtype,
      scope: "workspace",
      holds: "result",
      ...this.shaped,
    };
    return {
      scratch: more > 0 ? [spare, ...scratch] : scratch,
      registers: [],
      prepare: [],
      body,
      ...held,
    };
  }

  /** Dimensions of the second plane. By default it has a flat index. */
  protected readonly shaped: Pick<Scratch, "dims" | "outside"> = {};
}

class StepLoops extends StepPasses<StepSchedule> {
  private readonly lane = this.steps.axes.at(-1) ?? internal("a plane without axes");
  /** Axes of the rows: the first is swept, the second is tiled. */
  private readonly rows = this.steps.axes.slice(0, -1);
  private readonly swept = this.rows[0];
  private readonly tiled = this.rows[1];
  /** Rows of a tile, the number of tiles, and where one begins. */
  private readonly high = Math.min(this.schedule.strip || Number.POSITIVE_INFINITY, this.tiled?.extent ?? 1);
  private readonly tiles = Math.ceil((this.tiled?.extent ?? 1) / this.high);
  private readonly origin = this.tiles === 1 ? number(0) : times(axis(this.names.fresh("tile")), this.high);
  /** The share of the rows that a thread sweeps. */
  private readonly chunk = this.schedule.threads > 1 ? axis(this.names.fresh("chunk")) : number(0);
  private readonly lineFile = this.names.fresh("line");

  private lineRegisters(): readonly VectorFile[] {
    const { lanes, vectors, rows } = this.schedule;
    const count = linesOf(this.steps, this.schedule, rows).length;
    return count === 0 ? [] : [{ name: this.lineFile, dtype: this.dtype, lanes: lanes * (vectors + 2), count }];
  }

  /** The columns of a row: whole vectors where all neighbours are inside, single columns elsewhere. */
  private columns(level: Level): readonly Statement[] {
    // Rows at the plane's border are tested.
    const tests = this.rows.map(({ border: how, reach, extent }, d) => {
      const place = level.from.step === undefined && how === "zero" && reach > 0 && level.places[d];
      return place && between(place, reach, extent - reach);
    });
    return when(allOf(tests) ?? true, this.line(level, true), this.line(level, false));
  }

  /**
   * Whole vectors that begin at lines of the cache. Of a row with zeros around it lanes at its ends read nothing. Of
   * others columns that reach beyond the row are done one by one, and a vector more at either end, which overlaps its
   * neighbours, does the rest.
   */
  private line(level: Level, isInterior: boolean): readonly Statement[] {
    if (linesOf(this.steps, this.schedule, 1).length > 0) return this.blocks(level, isInterior, 1);
    const { extent, reach, name, border: how } = this.lane;
    const { lanes, vectors } = this.schedule;
    const body: Statement[] = [];
    const columns = (from: number, to: number): void => {
      const column = this.names.fresh(`${name}_column`);
      const at = plus(axis(column), from);
      if (to > from) body.push(loop(column, to - from, [this.statement(level, at, isInterior, "one")]));
    };
    const vector = (from: Expr, width: number, place: "inside" | "end"): Statement => {
      const lane = this.names.fresh("lane");
      const vectors = upTo(Math.ceil(width / lanes)).map((v) => plus(from, v * lanes));
      const body = vectors.map((first) => ({
        ...this.statement(level, plus(first, axis(lane)), isInterior, place),
        ...(level.ahead && { prefetch: this.element(level.ahead.plane, level, [...level.ahead.places, first]) }),
      }));
      return loop(lane, Math.min(width, lanes), body, "lanes");
    };
    const whole = (from: number, to: number): number => {
      let done = from;
      for (const width of new Set([lanes * vectors, lanes])) {
        const block = this.names.fresh(`${name}_block`);
        const count = Math.floor((to - done) / width);
        if (count <= 0) continue;
        const at = plus(times(axis(block), width), done);
        body.push(loop(block, count, [vector(at, width, "inside")]));
        done += count * width;
      }
      return done;
    };
    const head = Math.ceil(reach / lanes) * lanes;
    const end = extent - reach;
    if (how === "zero") {
      const ends = (from: number, to: number): void => {
        for (let at = from; at < to; at += lanes) body.push(vector(number(at), Math.min(lanes, to - at), "end"));
      };
      ends(0, Math.min(head, extent));
      ends(whole(head, end), extent);
      return body;
    }
    if (end - reach < lanes) {
      columns(0, extent);
      return body;
    }
    columns(0, reach);
    if (head > reach) body.push(vector(number(reach), lanes, "inside"));
    if (whole(head, end) < end) body.push(vector(number(end - lanes), lanes, "inside"));
    columns(end, extent);
    return body;
  }

  /**
   * Blocks of vectors, of one row or of two planes' rows together. What is read at several columns, or by both, comes into registers first: the
   * vectors of the block, and one more at either side.
   */
  private blocks(level: Level, isInterior: boolean, rows: number): readonly Statement[] {
    const { extent, name } = this.lane;
    const width = this.schedule.lanes * this.schedule.vectors;
    // Blocks whose neighbours on both sides are inside, and the others.
    const inner = Math.max(0, Math.floor((extent - this.schedule.lanes) / width) - 1);
    const block = this.names.fresh(`${name}_block`);
    const at = plus(times(axis(block), width), width);
    const edge = (from: number) =>
      this.block(level, number(from), isInterior, rows, Math.min(width, extent - from), "beyond");
    const after = upTo(Math.ceil(extent / width) - 1 - inner).map((i) => (inner + 1 + i) * width);
    return [
      ...edge(0),
      ...(inner > 0 ? [loop(block, inner, this.block(level, at, isInterior, rows, width, "inside"))] : []),
      ...after.flatMap(edge),
    ];
  }

  /** So many columns from one on. */
  private block(
    level: Level,
    at: Expr,
    isInterior: boolean,
    rows: number,
    width: number,
    of: "inside" | "beyond",
  ): readonly Statement[] {
    const { lanes } = this.schedule;
    const lane = { kind: "axis", name: this.names.fresh("lane") } as const;
    const column = (vector: number): Expr => plus(at, vector * lanes);
    const vectors = Math.ceil(width / lanes);
    const loads = linesOf(this.steps, this.schedule, rows).flatMap((line, i) => {
      const first = Math.min(...line.columns) < 0 ? -1 : 0;
      const last = vectors - (Math.max(...line.columns) > 0 ? 0 : 1);
      return upTo(last - first + 1).map((part): Scalar => {
        const places = [...level.places, plus(column(first + part), lane)];
        const value = this.read([...line.rows, 0], level, places, isInterior, of);
        return assign(access(this.lineFile, [number(i), plus(lane, (first + part + 1) * lanes)]), value);
      });
    });
    const computed = (vector: number): Statement[] =>
      upTo(rows).map((row) => {
        const own = this.below(level, row);
        return {
          ...this.statement(own, plus(column(vector), lane), isInterior, of, { rows, vector, row, lane }),
          ...(own.ahead && { prefetch: this.element(own.ahead.plane, own, [...own.ahead.places, column(vector)]) }),
        };
      });
    const whole = Math.floor(width / lanes);
    const full = upTo(whole).flatMap((vector) => computed(vector));
    const rest = width % lanes;
    const body = loop(lane.name, lanes, [...loads, ...full], "lanes");
    return rest === 0 ? [body] : [body, loop(lane.name, rest, computed(whole), "lanes")];
  }

  /** Of a block of rows, the one so many on: a plane further each, and a row back. */
  private below(level: Level, row: number): Level {
    if (row === 0) return level;
    const at = (places: readonly Expr[]) => places.map((e, d) => (d > 1 ? e : binary(d === 0 ? "+" : "-", e, row)));
    const { ahead } = level;
    return { ...level, places: at(level.places), ...(ahead && { ahead: { ...ahead, places: at(ahead.places) } }) };
  }

  private statement(level: Level, column: Expr, isInterior: boolean, of: Columns, block?: InBlock): Scalar {
    const places = [...level.places, column];
    // The loops keep rows inside; the written bounds allow others to prove it.
    const coordinates = this.steps.axes.map(({ extent, border: how }, d) => {
      const place = places[d] ?? number(0);
      return place === column ? place : border(how === "wrap" ? "wrap" : "clamp", place, extent);
    });
    const value = this.valueAt(
      coordinates,
      (shifts) => this.lineAt(shifts, block) ?? this.read(shifts, level, places, isInterior, of),
    );
    return assign(this.element(level.to, level, places), value);
  }

  /** An element of the step before in a register, if one holds it. */
  private lineAt(shifts: readonly number[], block: InBlock | undefined): Expr | undefined {
    if (!block) return undefined;
    const key = inBlock(shifts, block.row).join();
    const line = linesOf(this.steps, this.schedule, block.rows).findIndex(({ rows }) => rows.join() === key);
    const lane = (block.vector + 1) * this.schedule.lanes + (shifts.at(-1) ?? 0);
    return line < 0 ? undefined : access(this.lineFile, [number(line), plus(block.lane, lane)]);
  }

  /** An element of the step before. */
  private read(
    shifts: readonly number[],
    level: Level,
    places: readonly Expr[],
    isInterior: boolean,
    of: Columns,
  ): Expr {
    const tests: Expr[] = [];
    const at = this.steps.axes.map((along, d) => {
      const shift = shifts[d] ?? 0;
      const raw = plus(places[d] ?? number(0), shift);
      const isColumn = along === this.lane;
      if (isColumn && (of === "inside" || along.reach === 0)) return raw;
      const how = along.border;
      // A ring also holds the rows beyond the plane, as zeros or continued.
      if (!isColumn && level.from.step) return how === "zero" || how === "wrap" ? raw : border(how, raw, along.extent);
      if (how !== "zero") return border(how, raw, along.extent);
      const isTested = isColumn ? shift !== 0 || of === "beyond" : shift !== 0 && !isInterior;
      if (isTested) tests.push(between(raw, 0, along.extent));
      // Lanes beyond the row load nothing.
      return isColumn && (shift === 0 || of !== "one") ? raw : border("clamp", raw, along.extent);
    });
    const element = this.element(level.from, level, at);
    const inside = allOf(tests);
    return inside ? select(inside, element, number(0)) : element;
  }
  // ---- where rows are held -----------------------------------------------------------------------------------------------------------

  private element(of: Source, level: Level, at: readonly Expr[]): Access {
    const extents = this.steps.axes.map((a) => a.extent);
    if (of.step === undefined) {
      const inside = at.map((e, d) =>
        d < at.length - 1 && e.kind !== "border" ? border("clamp", e, extents[d] ?? 1) : e,
      );
      if (Object.hasOwn(this.steps.computation.tensors, of.name)) return access(of.name, inside);
      return access(of.name, [
        inside.reduce((flat, e, d) => (d === 0 ? e : plus(times(flat, extents[d] ?? 1), e)), number(0)),
      ]);
    }
    const [row = number(0), middle] = at;
    const column = at.at(-1) ?? number(0);
    const { swept, tiled } = this;
    const slots = this.slots();
    const reach = swept?.reach ?? 0;
    const later = keptRows(this.steps) - reach;
    // Positions above the plane are negative. An offset keeps the dividend positive.
    const before = slots * Math.ceil(((2 * reach + later) * level.depth) / slots);
    const place = minus(plus(row, before), times(of.step, later));
    const slot = remainder(place, slots);
    const pitch = this.pitch();
    const ring = times(this.chunk, this.ringElements());
    if (!tiled || middle === undefined) return access(of.name, [plus(plus(ring, times(slot, pitch)), column)]);
    const halo = (level.depth - 1) * tiled.reach;
    const high = this.high + 2 * halo;
    const inTile = plus(minus(middle, this.origin), halo);
    const line = plus(times(slot, high), inTile);
    return access(of.name, [plus(plus(ring, times(line, pitch)), column)]);
  }

  /** A row of zeros. */
  private zeros(level: Level): readonly Statement[] {
    const column = this.names.fresh(`${this.lane.name}_column`);
    const target = this.element(level.to, level, [...level.places, axis(column)]);
    return [loop(column, this.lane.extent, [assign(target, number(0))])];
  }

  /** The elements of the rings of all steps but the last, for passes of any depth. */
  private ringElements(): number {
    return this.slots() * (this.high + 2 * (this.schedule.depth - 1) * (this.tiled?.reach ?? 0)) * this.pitch();
  }

  private slots(): number {
    const kept = keptRows(this.steps);
    // A turn writes the newest planes of a step before the next step has read the oldest.
    const newest = this.schedule.rows - (overwrites(this.steps) ? 0 : 1);
    return kept * (this.schedule.depth - 1) + newest;
  }

  /** Elements from one row to the next: an odd number of whole cache lines. */
  private pitch(): number {
    const line = LINE_BYTES / bytesOf(this.dtype);
    const lines = Math.ceil(this.lane.extent / line);
    return line * (lines % 2 === 0 ? lines + 1 : lines);
  }

  /** A barrier between passes, since a pass reads what all threads wrote. */
  protected override readonly between: readonly Statement[] = this.schedule.threads > 1 ? [{ kind: "barrier" }] : [];

  protected held(): Pick<LoopNest, "scratch" | "vectors"> {
    const vectors = this.lineRegisters();
    if (this.schedule.depth === 1 || this.rows.length === 0) return { scratch: [], vectors };
    const elements = this.schedule.threads * this.ringElements();
    return { scratch: [{ name: this.names.fresh("rows"), elements, dtype: this.dtype, scope: "workspace" }], vectors };
  }

  // ---- loops over rows ---------------------------------------------------------------------------------------------------------------

  protected pass(first: string, last: string, depth: number): readonly Statement[] {
    const { swept, tiles } = this;
    const from = { name: first };
    const to = { name: last };
    if (!swept) return this.columns({ depth, places: [], from, to });
    const { threads } = this.schedule;
    const share = Math.ceil(swept.extent / threads);
    const row = this.names.fresh("row");
    const sweep = loop(row, (share + 2 * (depth - 1) * swept.reach) / this.together(depth), [
      ...this.step(row, share, depth, number(1), from, depth === 1 ? to : this.ring(number(0))),
      ...this.stepsBetween(row, share, depth),
      ...(depth > 1 ? this.step(row, share, depth, number(depth), this.ring(number(depth - 2)), to, from) : []),
    ]);
    const all = tiles === 1 ? sweep : loop(this.names.fresh("tile"), tiles, [sweep]);
    return [this.chunk.kind === "axis" ? loop(this.chunk.name, threads, [all], "parallel") : all];
  }

  /** The steps of a pass between the first and the last, as one loop. */
  private stepsBetween(row: string, share: number, depth: number): readonly Statement[] {
    if (depth < 3) return [];
    const step = this.names.fresh("step");
    const after = plus(axis(step), 1);
    const body = this.step(row, share, depth, plus(axis(step), 2), this.ring(axis(step)), this.ring(after));
    return [loop(step, depth - 2, body)];
  }

  private ring(step: Expr): Source {
    return { name: this.names.fresh("rows"), step };
  }

  /** Planes that a turn of the sweep takes at once: their rows read some of the same rows. */
  private together(depth: number): number {
    return depth > 1 ? this.schedule.rows : 1;
  }

  /**
   * Step `s` of a pass, counted from 1, at its current row. At the ends of a thread's share, only rows that its later
   * steps need.
   */
  private step(
    row: string,
    share: number,
    depth: number,
    s: Expr,
    from: Source,
    to: Source,
    plane?: Source,
  ): readonly Statement[] {
    const { swept = internal("rows of no axis"), tiled, high, origin } = this;
    const isLast = to.step === undefined;
    const behind = times(swept.reach, plus(s, depth - 2));
    const begin = times(this.chunk, share);
    const together = this.together(depth);
    const turn = together === 1 ? axis(row) : times(axis(row), together);
    const q = minus(plus(begin, turn), behind);
    // Step 1 comes to it in the next turn.
    const next = plus(plus(begin, turn), together - (depth - 2) * swept.reach);
    const level = (places: readonly Expr[], on = 0): Level => ({
      depth,
      places,
      from,
      to,
      ...(plane && { ahead: { plane, places: [plus(next, on), ...places.slice(1)] } }),
    });
    const over = (each: (places: readonly Expr[]) => readonly Statement[]): readonly Statement[] => {
      if (!tiled) return each([q]);
      const halo = times(tiled.reach, minus(depth, s));
      const inner = this.names.fresh(`${tiled.name}_row`);
      const j = minus(plus(origin, axis(inner)), halo);
      const body = each([q, j]);
      if (body.length === 0) return [];
      if (halo.kind === "number") return [loop(inner, high + 2 * halo.value, body)];
      const condition = compare("<", axis(inner), plus(high, times(2, halo)));
      return [loop(inner, high + 2 * (depth - 2) * tiled.reach, when(condition, body))];
    };
    const zeros = (along: PlaneAxis | undefined, places: readonly Expr[]): readonly Statement[] =>
      isLast || along?.border !== "zero" ? [] : this.zeros(level(places));
    const rows = (places: readonly Expr[], on = 0) =>
      this.within(tiled, places[1], isLast, this.columns(level(places, on)), zeros(tiled, places));
    const beyond = (places: readonly Expr[]) => zeros(swept, places);
    const single = (places: readonly Expr[], on = 0) =>
      this.within(swept, places[0], isLast, rows(places, on), beyond(places));
    const body =
      together > 1 && tiled
        ? this.twoPlanes(tiled, level([q, origin]), times(tiled.reach, minus(depth, s)), single)
        : this.within(swept, q, isLast, over(rows), over(beyond));
    const first = times(2 * swept.reach, minus(s, 1));
    const isWhole = this.chunk.kind === "number" || (first.kind === "number" && first.value === 0);
    return when(isWhole || compare(">=", turn, first), body);
  }

  /**
   * Rows of two planes that follow one another, the second a row behind the first: `(q,j)` and `(q+1,j-1)` for j in a tile and its halo. Where one
   * of them is at a border they are done one by one.
   */
  private twoPlanes(
    tiled: PlaneAxis,
    level: Level,
    halo: Expr,
    single: (places: readonly Expr[], on: number) => readonly Statement[],
  ): readonly Statement[] {
    const [q = number(0), origin = number(0)] = level.places;
    const inner = this.names.fresh(`${tiled.name}_row`);
    const high = plus(this.high, times(2, halo));
    const most = this.high + 2 * (halo.kind === "number" ? halo.value : (level.depth - 2) * tiled.reach);
    const j = minus(plus(origin, axis(inner)), halo);
    const isFirst = compare("<", axis(inner), high);
    const isSecond = and(compare(">=", axis(inner), 1), compare("<=", axis(inner), high));
    // A plane has no rows beyond its ends; a ring buffer stores rows of zeros for them.
    const beside = level.from.step ? 0 : 1;
    const inside = [
      isSecond,
      between(q, beside, (this.swept?.extent ?? 1) - 1 - beside),
      between(j, 1 + beside, tiled.extent - beside),
    ].reduce(and, isFirst);
    const ahead = level.ahead && { ...level.ahead, places: [level.ahead.places[0] ?? q, j] };
    const both = this.blocks({ ...level, places: [q, j], ...(ahead && { ahead }) }, true, 2);
    const second = [plus(q, 1), minus(j, 1)];
    const apart = [...when(isFirst, single([q, j], 0)), ...when(isSecond, single(second, 1))];
    return [loop(inner, most + 1, when(inside, both, apart))];
  }

  /** The statements for a row inside the plane, and for one beyond it. A plane that wraps is extended. */
  private within(
    along: PlaneAxis | undefined,
    place: Expr | undefined,
    isLast: boolean,
    inside: readonly Statement[],
    beyond: readonly Statement[],
  ): readonly Statement[] {
    const isEverywhere = !along || !place || (isLast ? place.kind === "axis" : along.border === "wrap");
    return when(isEverywhere || between(place, 0, along.extent), inside, beyond);
  }
}

/**
 * An element that a lane holds: its step, its row in the stream, its position along the middle axis, and its column.
 */
interface Own {
  readonly step: number;
  /** The stream row that is read when the element is computed, counted within a block. */
  readonly k: number;
  /** Relative to the first output of the tile. */
  readonly y: number;
  readonly column: number;
}

/** A pass: its tiles, and the planes that it reads and writes. */
interface Pass {
  readonly tile: WarpTile;
  readonly from: string;
  readonly to: string;
}

class WarpSteps extends StepPasses<WarpStepSchedule> {
  protected override readonly shaped: Pick<Scratch, "dims" | "outside"> = {
    dims: outputOf(this.steps.computation).dims,
    outside: "identity",
  };
  private readonly files = new LaneFiles(this.names, this.dtype, this.schedule.lanes);
  private readonly block = this.names.fresh("row_block");
  protected override readonly between: readonly Statement[] = [{ kind: "barrier" }];

  protected pass(from: string, to: string, depth: number): readonly Statement[] {
    const tile = warpTile(this.steps, this.schedule, depth);
    const { swept, tiled, lane, streamed, unrolled, ahead } = tile;
    const pass = { tile, from, to };
    const rows = upTo(unrolled).flatMap((k) => this.row(pass, k));
    const body: Statement[] = [loop(this.block, Math.ceil(streamed / unrolled), [this.files.onLanes(rows)])];
    if (swept) body.unshift(this.files.onLanes(upTo(ahead).flatMap((k) => this.loads(pass, k, number(0)))));
    const tiles: readonly [PlaneAxis | undefined, number][] = [
      [swept, tile.length],
      [tiled, tile.rows],
      [lane, tile.width],
    ];
    return tiles.reduceRight<readonly Statement[]>(
      (inner, [along, by]) =>
        along ? [loop(this.tileOfAxis(along), Math.ceil(along.extent / by), inner, "parallel")] : inner,
      body,
    );
  }

  /** Resident warps for which the registers leave room: without the limit, ptxas 13.0 held some kernels to fewer registers, and spilled a few bytes. */
  protected held(): Pick<LoopNest, "scratch" | "vectors" | "deal"> {
    const { steps, schedule, dtype } = this;
    return {
      scratch: [],
      vectors: this.files.vectors(),
      deal: { resident: residentWarps(warpTile(steps, schedule), bytesOf(dtype)) },
    };
  }

  // ---- places and registers ----------------------------------------------------------------------------------------------------------

  /** The position of an element in the plane, or beyond it. */
  private place({ depth, swept, tiled, lane, ...tile }: WarpTile, { step, k, y, column }: Own, block: Expr): Expr[] {
    const from = (along: PlaneAxis, by: number): Expr => times(axis(this.tileOfAxis(along)), by);
    const streamed = times(block, tile.unrolled);
    return present([
      swept && plus(plus(from(swept, tile.length), streamed), k - (depth + step) * swept.reach),
      tiled && plus(from(tiled, tile.rows), y),
      plus(plus(from(lane, tile.width), times(axis(this.files.lane), tile.each)), column - tile.halo),
    ]);
  }

  /**
   * The index of a read at a position along an axis. Columns of a lane that move together are all inside, or all
   * outside.
   */
  private continued(at: Expr, d: number, { lane, width, each, halo, together }: WarpTile, first: number): Expr {
    const along = this.steps.axes[d];
    if (along !== lane) return along?.border === "wrap" ? border("wrap", at, along.extent) : at;
    const next = (e: Expr): Expr => (together > 1 ? plus(e, axis(this.files.neighbour)) : e);
    if (lane.border !== "wrap") return next(at);
    const piece = plus(
      times(axis(this.tileOfAxis(lane)), width / together),
      times(axis(this.files.lane), each / together),
    );
    const kept = border("wrap", plus(piece, (first - halo) / together), lane.extent / together);
    return next(times(kept, together));
  }

  private elements(tile: WarpTile, step: number): { readonly y: number; readonly column: number }[] {
    const rows = rowsOfStep(tile, step);
    const above = (tile.depth - step) * (tile.tiled?.reach ?? 0);
    return upTo(rows).flatMap((y) => upTo(tile.each).map((column) => ({ y: y - above, column })));
  }

  /** Elements that one load or store moves, by the first of them. */
  private pieces(tile: WarpTile, step: number): { readonly y: number; readonly first: number }[] {
    const all = this.elements(tile, step).filter(({ column }) => column % tile.together === 0);
    return all.map(({ y, column }) => ({ y, first: column }));
  }

  /** The register slot of a row. The rows of a step rotate through its registers; the last step needs only one. */
  private slotOf({ depth, ring, swept }: WarpTile, step: number, k: number): number {
    const row = k - step * (swept?.reach ?? 0);
    return step === depth ? 0 : ((row % ring) + ring) % ring;
  }

  private numberOf(tile: WarpTile, { step, k, y, column }: Own, slot = this.slotOf(tile, step, k)): number {
    const above = (tile.depth - step) * (tile.tiled?.reach ?? 0);
    return (slot * rowsOfStep(tile, step) + y + above) * tile.each + column;
  }

  /** The register file of a step. */
  private file(step: number): string {
    return `${outputOf(this.steps.computation).name}${step}_`;
  }

  private tileOfAxis({ name }: PlaneAxis): string {
    return this.names.fresh(`${name}_tile`);
  }

  // ---- a row of the stream ---------------------------------------------------------------------------------------------------------

  /** Loads a row, computes one row of every step, and stores a row. */
  private row(pass: Pass, k: number): readonly Statement[] {
    const { tile } = pass;
    const { depth, swept, ahead } = tile;
    const arrived = swept
      ? [...this.arrivals(pass, k), ...this.loads(pass, k + ahead, axis(this.block))]
      : this.loads(pass, k, number(0));
    return [...arrived, ...upTo(depth).flatMap((s) => this.step(pass, k, s + 1)), ...this.stores(pass, k)];
  }

  /** Loads of a row of the plane, some rows ahead of their use. Without a swept axis, all at once. */
  private loads(pass: Pass, k: number, block: Expr): Statement[] {
    const { tile, from } = pass;
    const { swept, ahead } = tile;
    return this.pieces(tile, 0).map(({ y, first }) => {
      const of = { step: 0, k, y, column: first };
      const index = this.place(tile, of, block).map((at, d) => this.continued(at, d, tile, first));
      const [file, to] = swept ? ["next", this.numberOf(tile, of, k % ahead)] : [this.file(0), this.numberOf(tile, of)];
      return this.files.atOnce(tile.together, this.files.several(file, to, tile.together), access(from, index));
    });
  }

  /** Moves loaded elements to the registers of the rows that are kept. */
  private arrivals({ tile }: Pass, k: number): Statement[] {
    return this.elements(tile, 0).map(({ y, column }) => {
      const of = { step: 0, k, y, column };
      const value = this.files.register("next", this.numberOf(tile, of, k % tile.ahead));
      return assign(this.files.register(this.file(0), this.numberOf(tile, of)), value);
    });
  }

  /** A row of a step, computed from rows of the step before. */
  private step(pass: Pass, k: number, step: number): Statement[] {
    const { tile } = pass;
    const sides = new Map<string, Access>();
    const made = this.elements(tile, step).map(({ y, column }) => {
      const of = { step, k, y, column };
      return { of, to: this.files.register(this.file(step), this.numberOf(tile, of)) };
    });
    const values = made.map(({ of, to }) => assign(to, this.value(tile, of, sides)));
    // A separate statement, so that compilers do not turn it into a branch around the value.
    const zeros = made.flatMap(({ of, to }) => {
      const test = step < tile.depth ? this.inside(tile, of) : undefined;
      return test ? [assign(to, select(test, to, number(0)))] : [];
    });
    const passed = [...sides.values()].map((from, n) => assign(this.files.register("side", n), from));
    return [...passed, ...values, ...zeros];
  }

  /** Stores the last step's rows that belong to the tile, in the columns that are complete. */
  private stores({ tile, to }: Pass, k: number): Statement[] {
    const { depth, swept, each, halo, length, unrolled } = tile;
    const row = plus(times(axis(this.block), unrolled), k - 2 * depth * (swept?.reach ?? 0));
    return this.pieces(tile, depth).map(({ y, first }) => {
      const of = { step: depth, k, y, column: first };
      const index = this.place(tile, of, axis(this.block)).map((at, d, all) =>
        d === all.length - 1 && tile.together > 1 ? plus(at, axis(this.files.neighbour)) : at,
      );
      const own = plus(times(axis(this.files.lane), each), first);
      const where = allOf([
        swept && between(row, 0, length),
        halo > 0 && between(own, halo, this.schedule.lanes * each - halo),
      ]);
      const value = this.files.several(this.file(depth), this.numberOf(tile, of), tile.together);
      return this.files.atOnce(tile.together, access(to, index), value, where);
    });
  }

  // ---- one element -------------------------------------------------------------------------------------------------------------------

  private value(tile: WarpTile, of: Own, sides: Map<string, Access>): Expr {
    const places = this.place(tile, of, axis(this.block));
    const coordinates = this.steps.axes.map(({ extent, border: how }, d) => {
      const at = places[d] ?? number(0);
      return how === "wrap" ? border(how, at, extent) : at;
    });
    return this.valueAt(coordinates, (shifts) => this.read(tile, of, shifts, places, sides));
  }

  /** An element of the step before. Across the border of the plane, some lanes read another element. */
  private read(
    tile: WarpTile,
    of: Own,
    shifts: readonly number[],
    places: readonly Expr[],
    sides: Map<string, Access>,
    d = 0,
  ): Expr {
    const along = this.steps.axes[d];
    if (!along) return this.before(tile, of, shifts, sides);
    const by = (shift: number): Expr => this.read(tile, of, shifts.with(d, shift), places, sides, d + 1);
    return redirected(along, shifts[d] ?? 0).reduce<Expr>(
      (other, { at, shift }) => select(compare("==", places[d] ?? number(0), at), by(shift), other),
      by(shifts[d] ?? 0),
    );
  }

  /** An element of the step before, from this lane or a neighbour. */
  private before(tile: WarpTile, of: Own, shifts: readonly number[], sides: Map<string, Access>): Access {
    const { swept, tiled, each } = tile;
    // The newest row of the step before is `reach` below the row being computed.
    const row = swept ? (shifts[0] ?? 0) - swept.reach : 0;
    const y = of.y + (tiled ? (shifts[1] ?? 0) : 0);
    const at = of.column + (shifts.at(-1) ?? 0);
    const lanes = Math.floor(at / each);
    const step = of.step - 1;
    const column = at - lanes * each;
    const from = this.numberOf(tile, { step, k: of.k, y, column }, this.slotOf(tile, step, of.k + row));
    if (lanes === 0) return this.files.register(this.file(step), from);
    const key = `${from} ${lanes}`;
    const known = [...sides.keys()].indexOf(key);
    if (known >= 0) return this.files.register("side", known);
    const own = this.files.register(this.file(step), from);
    sides.set(key, { ...own, index: [number(from), plus(axis(this.files.lane), lanes)] });
    return this.files.register("side", sides.size - 1);
  }

  /**
   * The condition that an element is inside the plane along axes with zeros beyond their ends; undefined if no end is
   * reached.
   */
  private inside(tile: WarpTile, of: Own): Expr | undefined {
    // All columns of a lane are inside, or none is.
    const places = this.place(tile, { ...of, column: 0 }, axis(this.block));
    const tests = this.steps.axes.flatMap(({ border: how, reach, extent }, d) =>
      how === "zero" && reach > 0 ? [between(places[d] ?? number(0), 0, extent)] : [],
    );
    return allOf(tests);
  }
}

/**
 * Positions from which a shift leaves a clamped or mirrored plane, and the shift to the element that is read instead.
 */
function redirected(
  { border: how, extent }: PlaneAxis,
  by: number,
): readonly { readonly at: number; readonly shift: number }[] {
  if (how === "zero" || how === "wrap") return [];
  const leaving = upTo(Math.min(Math.abs(by), extent)).map((i) => (by < 0 ? i : extent - 1 - i));
  return leaving.map((at) => ({
    at,
    shift: borderOp({ kind: "border", how, index: number(at + by), extent }, at + by) - at,
  }));
}
