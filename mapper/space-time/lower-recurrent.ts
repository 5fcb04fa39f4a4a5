/**
 * @file Lowers recurrences to loop nests of lanes: wavefronts, planes one after another, and prefix sums.
 *
 *     for t in 0..100, block in 0..32                              v[t,j] max= v[t-1,i] + a[i,j]
 *       sums[0,lane] = -inf
 *       for i in 0..512
 *         sums[0,lane] max= v[t-1,i] + a[i,16*block+lane]
 *       v[t,16*block+lane] = sums[0,lane]
 *
 *     for block in 0..4096                                         y[i] = y[i-1] + x[i]
 *       sums[0,lane] = x[16*block+lane]
 *       sums[0,lane] = sums[0,lane] + select(lane >= 1, sums[0,lane-1], 0)       and from 2, 4, 8 lanes before
 *       y[16*block+lane] = carry[0,lane] + sums[0,lane]
 *       carry[0,lane] = carry[0,lane] + sums[0,15]
 *
 * Lowers a wavefront to lanes: lane i computes row i of a strip, each row k steps behind the one above, and
 * results pass to the next lane in registers.
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
 * Values that depend only on the row are loaded once a strip. Values that depend only on the column are stored
 * backwards in a separate buffer, so that lanes load neighbours. Steps at which some lanes are outside the matrix are
 * separate blocks, with those lanes zero; all other blocks test nothing.
 *
 * One step of a wavefront on all its lanes: results of the lanes above are passed down, and each lane computes an
 * element of its row.
 *
 *     above_1[1,lane] = above_1[0,lane]
 *     above_1[0,lane] = select(lane == 0, edge[column], made[0,lane-1])             h[i-1,j]
 *     next[0,lane] = max(above_1[1,lane] + 2, above_1[0,lane] - g, made[0,lane] - g)
 *     made[0,lane] = next[0,lane]
 *     diagonals[16*step + lane] = made[0,lane]
 *
 * The edge between two strips of a wavefront: the last rows of one strip, which the top lanes of the next read as
 * the rows above.
 *
 *     edge[j] = h[16*strip + 15, j]                                          kept after each strip
 *     above_1[0,lane] = select(lane == 0, edge[column], made[0,lane-1])      read by lane 0 of the next
 *
 * Precomputes the subexpressions of a wavefront that depend on the row alone or on the column alone, and stores them in separate memory.
 *
 *     h[i,j] = max(h[i-1,j] + p[i], h[i,j-1] - square(q[j]))
 *       row_0[i] = p[i]                        loaded once a strip: lane l has row 16*strip + l
 *       column_1[last-j] = square(q[j])        backwards: lane l at step t needs column t - k*l, and lanes load neighbours
 *
 * The dimensions of a wavefront: its lanes and steps, how far it reaches back, and the numbers of strips and
 * blocks that cover the matrix.
 *
 *     h[i-1,j-1], h[i-1,j], h[i,j-1] on 16 lanes, s (1,1)        reach: 1 row above, 2 values of it        registers of a lane: 1
 */

import { affineForm, rowMajor } from "../../abstraction/affine.ts";
import type { RecurrenceSchedule } from "../../abstraction/candidate.ts";
import { unique, upTo, volumeOf } from "../../abstraction/collections.ts";
import { type Axis, outputOf } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { internal } from "../../abstraction/error.ts";
import {
  type Access,
  access,
  accessesIn,
  axesIn,
  axis,
  between,
  changeParts,
  compare,
  comparesElements,
  type Expr,
  identityOf,
  joinedBy,
  minus,
  number,
  over,
  plus,
  remainder,
  select,
  substitute,
  substituteEach,
  times,
} from "../../abstraction/expression.ts";
import {
  assign,
  FreshNames,
  type LoopNest,
  loop,
  loops,
  type Scratch,
  type Statement,
  type VectorFile,
} from "../../abstraction/loop-nest.ts";
import { typeOf } from "../../abstraction/typing.ts";
import { ZMM } from "../../targets/x86.ts";
import { decided, type Ranges, undecided } from "./decided.ts";
import { laneNest } from "./lane-files.ts";
import { arrayDependences, joinedIn, type Recurrent } from "./recurrent.ts";

/** Lowers a recurrence. @param recurrent as judged by `recurrentUnder` for this schedule */
export function lowerRecurrent(recurrent: Recurrent, schedule: RecurrenceSchedule): LoopNest {
  switch (recurrent.form) {
    case "wavefront":
      return lowerWavefront(recurrent, schedule);
    case "planes":
      return lowerPlanes(recurrent, schedule);
    case "prefix":
      return lowerPrefix(recurrent, schedule);
    default:
      return recurrent.form satisfies never;
  }
}

/** Loops over the independent axes. Threads share the outermost. */
function around(
  { outer }: Recurrent,
  { threads }: RecurrenceSchedule,
  body: readonly Statement[],
): readonly Statement[] {
  return loops(outer, body, (_, d) => (d === 0 && threads > 1 ? "parallel" : "serial"));
}

/** Vectors along an axis: blocks of several vectors, then single vectors, then a partial one. */
function vectorsAlong(
  extent: number,
  block: string,
  widths: readonly { readonly lanes: number; readonly count: number }[],
  body: (first: Expr, lanes: number, count: number) => readonly Statement[],
): Statement[] {
  const made: Statement[] = [];
  let done = 0;
  for (const { lanes, count } of widths) {
    const blocks = Math.floor((extent - done) / (lanes * count));
    if (blocks === 0) continue;
    made.push(loop(block, blocks, body(plus(times(lanes * count, axis(block)), done), lanes, count)));
    done += blocks * lanes * count;
  }
  if (done < extent) made.push(...body(number(done), extent - done, 1));
  return made;
}

function lowerWavefront(recurrent: Recurrent, schedule: RecurrenceSchedule): LoopNest {
  const nest = new Wavefront(recurrent, schedule).nest();
  return { ...nest, body: around(recurrent, schedule, nest.body) };
}

function lowerPlanes(recurrent: Recurrent, schedule: RecurrenceSchedule): LoopNest {
  const { computation, inner, between, summed, dtype } = recurrent;
  const [time, last] = inner;
  if (!time || !last) internal("planes without time");
  const { op, target, value } = computation.equation;
  const names = new FreshNames(computation);
  const [sums, lane, block] = [names.fresh("sums"), names.fresh("lane"), names.fresh("block")];
  const several = schedule.beside[last.name] ?? 1;
  const plane = (from: number, to: number): Statement[] => {
    if (to <= from) return [];
    const known = decided(value, new Map([[time.name, [from, to - 1]]]));
    const at = plus(axis(time.name), from);
    const row = vectorsAlong(
      last.extent,
      block,
      [...(several > 1 ? [{ lanes: schedule.lanes, count: several }] : []), { lanes: schedule.lanes, count: 1 }],
      (first, lanes, count) => {
        const onLanes = (body: (place: (e: Expr) => Expr, v: number) => Statement): Statement[] =>
          upTo(count).map((v) => {
            const j = plus(plus(first, v * schedule.lanes), axis(lane));
            const places = new Map([
              [time.name, at],
              [last.name, j],
            ]);
            return loop(lane, lanes, [body((e) => substitute(e, places, e === known ? "value" : "index"), v)], "lanes");
          });
        const sum = (v: number): Access => access(sums, [number(v), axis(lane)]);
        const combine = (v: number, what: Expr): Statement => assign(sum(v), what, [], op);
        const stored = (what: (place: (e: Expr) => Expr, v: number) => Expr): Statement[] =>
          onLanes((place, v) => {
            const index = target.index.map(place);
            return assign(access(target.tensor, index), what(place, v));
          });
        if (summed.length === 0) return stored((place) => place(known));
        return [
          ...onLanes((_, v) => assign(sum(v), number(identityOf(op, dtype)))),
          ...loops(
            summed,
            onLanes((place, v) => combine(v, place(known))),
          ),
          ...stored((_, v) => sum(v)),
        ];
      },
    );
    return [loop(time.name, to - from, loops(between, row))];
  };
  // The first planes are peeled if that decides a condition.
  const leftFrom = (from: number): number =>
    undecided(decided(value, new Map([[time.name, [from, Math.max(from, time.extent - 1)]]])));
  const start = [0, 1, 2].reduce((best, from) => (leftFrom(from) < leftFrom(best) ? from : best), 0);
  const first = Math.min(start, time.extent);
  const body = around(recurrent, schedule, [...plane(0, first), ...plane(first, time.extent)]);
  const files = summed.length === 0 ? [] : [{ name: sums, dtype, lanes: schedule.lanes, count: several }];
  return laneNest(files, body);
}

function lowerPrefix(recurrent: Recurrent, schedule: RecurrenceSchedule): LoopNest {
  const { computation, inner, dtype } = recurrent;
  const [along] = inner;
  const joined = joinedIn(computation);
  if (!along || !joined) internal("a prefix without a join");
  const names = new FreshNames(computation);
  const [sums, carry, lane, block] = ["sums", "carry", "lane", "block"].map((wish) => names.fresh(wish)) as [
    ...[string, string, string, string], // as many as wished
  ];
  const { target } = computation.equation;
  const { op, term } = joined;
  const join = (left: Expr, right: Expr): Expr => joinedBy(op, left, right);
  const identity = number(identityOf(op, dtype));
  const own = (file: string): Access => access(file, [number(0), axis(lane)]);
  const vectors = vectorsAlong(along.extent, block, [{ lanes: schedule.lanes, count: 1 }], (first, lanes) => {
    const places = new Map([[along.name, plus(first, axis(lane))]]);
    const reaches: number[] = [];
    for (let reach = 1; reach < lanes; reach *= 2) reaches.push(reach);
    const body = [
      assign(own(sums), substitute(term, places, "value")),
      ...reaches.map((reach) => {
        const before = access(sums, [number(0), minus(axis(lane), reach)]);
        const inside = compare(">=", axis(lane), reach);
        return assign(own(sums), join(own(sums), select(inside, before, identity)));
      }),
      assign(access(target.tensor, substituteEach(target.index, places)), join(own(carry), own(sums))),
      assign(own(carry), join(own(carry), access(sums, [number(0), number(lanes - 1)]))),
    ];
    return [loop(lane, lanes, body, "lanes")];
  });
  // The carry before the first element is zero.
  const begin = loop(lane, schedule.lanes, [assign(own(carry), number(0))], "lanes");
  const files = [sums, carry].map((name) => ({ name, dtype, lanes: schedule.lanes, count: 1 }));
  return laneNest(files, around(recurrent, schedule, [begin, ...vectors]));
}

// ---- wavefronts --------------------------------------------------------------------------------------------------------------------------

/**
 * Blocks whose results leave together. Rows of a power of two share sets of the cache, so a line should be written as a
 * whole: an alignment of 1024 x 1024 takes 0.27 ms by four blocks and 0.36 by one (a Xeon, 2026-11-22, other programs
 * running).
 */
const AT_ONCE = 4;

/** A range of blocks of steps in a range of strips. */
interface Part {
  /** Row of lane 0. */
  readonly base: Expr;
  readonly firstBlock: number;
  readonly blocks: number;
  /** Whether every lane is inside the matrix at every step. */
  readonly isInside: boolean;
  readonly value: Expr;
}

class Wavefront {
  private readonly shape: WavefrontShape;
  private readonly edge: WavefrontEdge;
  private readonly ahead: WavefrontAhead;

  constructor(recurrent: Recurrent, schedule: RecurrenceSchedule) {
    this.shape = wavefrontShape(recurrent, schedule);
    this.edge = new WavefrontEdge(this.shape);
    this.ahead = new WavefrontAhead(this.shape);
  }

  /** The program of one step of the outer loops. */
  nest(): LoopNest {
    // What is computed ahead is known only after the steps have been written.
    const parts = this.parts();
    const body = [...this.edge.clear(), ...this.ahead.fill(), ...parts];
    return { scratch: this.scratch(), registers: [], vectors: this.vectors(), prepare: [], body };
  }

  // ---- memory ------------------------------------------------------------------------------------------------------------------------

  private scratch(): Scratch[] {
    const { names, recurrent, side, lanes } = this.shape;
    const tile = (name: string, elements: number): Scratch => ({
      name,
      dtype: recurrent.dtype,
      elements,
      scope: "local",
    });
    return [
      ...this.edge.scratch(),
      ...this.ahead.scratch(),
      tile(names.fresh("diagonals"), AT_ONCE * side * lanes),
      tile(names.fresh("turned"), AT_ONCE * side * side),
    ];
  }

  private vectors(): VectorFile[] {
    const { names, recurrent, lanes, depth, reach } = this.shape;
    const file = (name: string, count: number): VectorFile => ({ name, dtype: recurrent.dtype, lanes, count });
    return [
      file(names.fresh("made"), depth),
      file(names.fresh("next"), 1),
      ...reach.map((r) => file(aboveFile(this.shape, r.rows), r.depth)),
      ...this.ahead.vectors(),
    ];
  }

  // ---- strips and blocks of steps ----------------------------------------------------------------------------------------------------

  private parts(): Statement[] {
    const { recurrent, names, row, column, lanes, side, skew, lead, strips, blocks } = this.shape;
    const { value } = recurrent.computation.equation;
    const whole = Math.floor(row.extent / lanes);
    const span = skew * (lanes - 1) + lead;
    const blocksFrom = (least: number): number => Math.ceil((span + least) / side);
    const last = Math.floor((column.extent + lead) / side);
    const valueIn = ([from, to]: readonly [number, number], columns: readonly [number, number]): Expr => {
      const ranges: Ranges = new Map([
        [row.name, [lanes * from, Math.min(row.extent, lanes * to) - 1]],
        [column.name, columns],
      ]);
      return decided(value, ranges);
    };
    // Peeling a strip or a block may decide all conditions of the rest.
    const starts = (
      [
        [0, 0],
        [0, 1],
        [1, 0],
        [1, 1],
      ] as const
    ).map(([strip, block]) => {
      const first = blocksFrom(block * side);
      const inside = valueIn([strip, whole], [side * first - span, side * last - 1 - lead]);
      return { strip, first, inside, left: undecided(inside) };
    });
    const best = starts.reduce((a, b) => (b.left < a.left ? b : a));
    const anywhere = (within: readonly [number, number]): Expr => valueIn(within, [0, column.extent - 1]);
    const guarded = (base: Expr, within: readonly [number, number], from: number, to: number): Part => ({
      base,
      firstBlock: from,
      blocks: to - from,
      isInside: false,
      value: anywhere(within),
    });
    const made: Statement[] = [];
    const strip = names.fresh("strip");
    const add = (from: number, to: number, partsOf: (base: Expr) => readonly Part[]): void => {
      if (to <= from) return;
      const base = times(lanes, plus(axis(strip), from));
      const steps = partsOf(base).flatMap((p) => this.part(p));
      const rest = to < strips || to - from > 1 ? this.edge.keep(base) : [];
      made.push(loop(strip, to - from, [...this.begin(base), ...steps, ...rest]));
    };
    const hasInside = last > best.first && whole > best.strip;
    const plainFrom = hasInside ? best.strip : whole;
    add(0, plainFrom, (base) => [guarded(base, [0, plainFrom], 0, blocks)]);
    add(plainFrom, whole, (base) => [
      guarded(base, [plainFrom, whole], 0, best.first),
      { base, firstBlock: best.first, blocks: last - best.first, isInside: true, value: best.inside },
      guarded(base, [plainFrom, whole], last, blocks),
    ]);
    add(whole, strips, (base) => [guarded(base, [whole, strips], 0, blocks)]);
    return made;
  }

  /** Clears the registers, and loads what depends on the row. */
  private begin(base: Expr): Statement[] {
    const { names, lanes, depth, reach } = this.shape;
    const lane = names.fresh("lane");
    const clear = (name: string, count: number): Statement[] =>
      upTo(count).map((r) => assign(access(name, [number(r), axis(lane)]), number(0)));
    const body = [
      ...clear(names.fresh("made"), depth),
      ...reach.flatMap((r) => clear(aboveFile(this.shape, r.rows), r.depth)),
      ...this.ahead.load(base, axis(lane)),
    ];
    return [loop(lane, lanes, body, "lanes")];
  }

  private part(part: Part): Statement[] {
    if (part.blocks <= 0) return [];
    const { side } = this.shape;
    // Whole blocks are grouped so that complete cache lines are written.
    const rest = part.isInside ? part.blocks % AT_ONCE : part.blocks;
    const firstOfRest = part.firstBlock + part.blocks - rest;
    const wide = AT_ONCE * side;
    return [
      ...this.blocksOf({ ...part, blocks: (part.blocks - rest) / AT_ONCE }, wide),
      ...this.blocksOf({ ...part, firstBlock: firstOfRest, blocks: rest }, side),
    ];
  }

  /** Blocks of `wide` steps. */
  private blocksOf(part: Part, wide: number): Statement[] {
    if (part.blocks === 0) return [];
    const { shape, edge, ahead } = this;
    const { names, lanes, side } = shape;
    const [block, step] = [names.fresh("block"), names.fresh("step")];
    const first = plus(times(wide, axis(block)), side * part.firstBlock);
    const place = { ...part, at: plus(first, axis(step)), step: axis(step) };
    const steps = loop(step, wide, [lanesAtStep({ shape, edge, ahead }, place)]);
    const tiles = upTo(lanes / side).map((t) => t * side);
    return [loop(block, part.blocks, [steps, ...tiles.flatMap((t) => this.leave(part.base, first, t, wide))])];
  }

  /** Stores a transposed tile of as many rows as steps, row by row. */
  private leave(base: Expr, first: Expr, tile: number, wide: number): Statement[] {
    const { recurrent, names, lanes, side, skew, lead } = this.shape;
    const { computation, outer } = recurrent;
    const [row, step, lane] = [names.fresh("tile_row"), names.fresh("tile_step"), names.fresh("lane")];
    const made = access(names.fresh("diagonals"), [plus(plus(times(lanes, axis(step)), axis(row)), tile)]);
    const result = (along: Expr): Access => {
      const i = plus(axis(row), tile);
      const j = minus(minus(plus(first, along), lead), times(skew, i));
      return access(outputOf(computation).name, [...outer.map((a) => axis(a.name)), plus(base, i), j]);
    };
    const turned = (along: Expr): Access => access(names.fresh("turned"), [plus(times(wide, axis(row)), along)]);
    const vectors = upTo(wide / side).map((v): Statement => {
      const along = plus(axis(lane), v * side);
      return loop(lane, side, [assign(result(along), turned(along))], "lanes");
    });
    return [loop(row, side, [loop(step, wide, [assign(turned(axis(step)), made)])]), loop(row, side, vectors)];
  }
}

// ---- one step --------------------------------------------------------------------------------------------------------------------

/** The parts that a step is written with. */
interface StepParts {
  readonly shape: WavefrontShape;
  readonly edge: WavefrontEdge;
  readonly ahead: WavefrontAhead;
}

/** The value that lanes compute at a step, and the position. */
interface StepPlace {
  /** Row of lane 0. */
  readonly base: Expr;
  /** Whether every lane is inside the matrix. */
  readonly isInside: boolean;
  readonly value: Expr;
  /** The step, counted from the first of the strip. */
  readonly at: Expr;
  /** The step within its block. */
  readonly step: Expr;
}

/** One step on all lanes. */
function lanesAtStep(parts: StepParts, { base, isInside, value, at, step }: StepPlace): Statement {
  const { row, column, names, lanes, skew, lead, depth, reach } = parts.shape;
  const lane = names.fresh("lane");
  const [made, next] = [names.fresh("made"), names.fresh("next")];
  const place = minus(minus(at, lead), times(skew, axis(lane)));
  const places = new Map([
    [row.name, plus(base, axis(lane))],
    [column.name, place],
  ]);
  const computed = onLanes(value, { ...parts, places, lane: axis(lane), at });
  const kept = isInside ? computed : select(between(place, 0, column.extent), computed, number(0));
  const body = [
    ...reach.flatMap((r) => passed(parts, r, lane, at)),
    assign(register(next, 0, lane), kept),
    ...shifted(made, depth, lane),
    assign(register(made, 0, lane), register(next, 0, lane)),
    assign(access(names.fresh("diagonals"), [plus(times(lanes, step), axis(lane))]), register(made, 0, lane)),
  ];
  return loop(lane, lanes, body, "lanes");
}

/** A register of a file, on this lane or `above` lanes above. */
const register = (file: string, r: number, lane: string, above = 0): Access =>
  access(file, [number(r), minus(axis(lane), above)]);

/** Shifts a register file by one. */
const shifted = (file: string, count: number, lane: string): Statement[] =>
  upTo(count - 1)
    .map((i) => count - 1 - i)
    .map((r) => assign(register(file, r, lane), register(file, r - 1, lane)));

/** Passes results of a row above to the lane below. */
function passed({ shape, edge }: StepParts, { rows, least, depth }: Reach, lane: string, at: Expr): Statement[] {
  const { names, skew, lead, most } = shape;
  const file = aboveFile(shape, rows);
  // The lanes just below the edge read its rows one by one.
  const value = upTo(rows).reduceRight<Expr>(
    (whenFalse, l) => {
      const enters = edge.at(number(l + most - rows), minus(minus(at, lead + skew * l), least));
      return select(compare("==", axis(lane), l), enters, whenFalse);
    },
    register(names.fresh("made"), skew * rows + least - 1, lane, rows),
  );
  return [...shifted(file, depth, lane), assign(register(file, 0, lane), value)];
}

// ---- values --------------------------------------------------------------------------------------------------------------------------

/** The position at which a value is computed. */
interface OnLanes extends Pick<StepParts, "shape" | "ahead"> {
  /** Row and column of a lane. */
  readonly places: ReadonlyMap<string, Expr>;
  readonly lane: Expr;
  readonly at: Expr;
}

/** Rewrites a value for the lanes of a step. */
function onLanes(e: Expr, on: OnLanes): Expr {
  const { recurrent, row, column } = on.shape;
  const { target } = recurrent.computation.equation;
  const isOwn = accessesIn(e).some((a) => a.tensor === target.tensor);
  const names = axesIn(e);
  const byRow = names.includes(row.name);
  const byColumn = names.includes(column.name);
  if (!isOwn && byRow !== byColumn) return on.ahead.read(e, byRow ? "row" : "column", on.lane, on.at);
  if (e.kind === "access") return e.tensor === target.tensor ? madeBefore(e, on) : substitute(e, on.places, "index");
  const parts = changeParts(e, (part) => onLanes(part, on));
  return parts.kind === "select" ? { ...parts, condition: conditionOnLanes(parts.condition, on) } : parts;
}

function conditionOnLanes(e: Expr, on: OnLanes): Expr {
  if (e.kind === "logic") return { ...e, left: conditionOnLanes(e.left, on), right: conditionOnLanes(e.right, on) };
  if (e.kind !== "compare" || !comparesElements(e)) return substitute(e, on.places, "index");
  const { dtype, computation } = on.shape.recurrent;
  const dtypes = Object.fromEntries(Object.values(computation.tensors).map((t) => [t.name, t.dtype]));
  const side = (part: Expr): Expr => {
    const own = typeOf(part, dtypes);
    const held: Expr =
      own === undefined || own === dtype ? part : { kind: "cast", dtype, saturate: false, value: part };
    return onLanes(held, on);
  };
  return { ...e, left: side(e.left), right: side(e.right) };
}

/** An earlier result, in a register of this lane or of one above. */
function madeBefore({ index }: Access, { shape, lane }: OnLanes): Access {
  const outer = shape.recurrent.outer.length;
  const back = (d: number): number => {
    const constant = affineForm(index[outer + d] ?? number(0))?.constant ?? 0;
    return constant === 0 ? 0 : -constant;
  };
  const rows = back(0);
  const columns = back(1);
  if (rows === 0) return access(shape.names.fresh("made"), [number(columns - 1), lane]);
  const found = shape.reach.find((r) => r.rows === rows) ?? internal(`no lane ${rows} above`);
  return access(aboveFile(shape, rows), [number(columns - found.least), lane]);
}

// ---- the edge between strips --------------------------------------------------------------------------------------------------------------

class WavefrontEdge {
  private readonly shape: WavefrontShape;
  private readonly name: string;
  /** Elements before column 0. */
  private readonly start: number;
  /** Elements of a row. */
  private readonly pitch: number;

  constructor(shape: WavefrontShape) {
    const { lead, skew, most, reach, side, blocks } = shape;
    this.shape = shape;
    this.name = shape.names.fresh("edge");
    this.start = lead + skew * most + Math.max(0, ...reach.map((r) => r.least + r.depth));
    this.pitch = this.start + side * blocks + Math.max(0, ...reach.map((r) => -r.least));
  }

  scratch(): Scratch[] {
    return this.shape.most > 0 ? [workspaceOf(this.shape, this.name, this.size)] : [];
  }

  /** Zeros, since the first strip has no rows above it. */
  clear(): Statement[] {
    if (this.shape.most === 0) return [];
    const column = this.shape.names.fresh("edge_column");
    const target = access(this.name, [placeInOwn(this.shape, this.size, axis(column))]);
    return [loop(column, this.size, [assign(target, number(0))])];
  }

  /** Stores the last rows of the strip whose lane 0 has row `base`, which the next strip reads. */
  keep(base: Expr): Statement[] {
    const { recurrent, names, lanes, most, column } = this.shape;
    if (most === 0) return [];
    const edgeRow = names.fresh("edge_row");
    const edgeColumn = names.fresh("edge_column");
    const from = plus(plus(base, axis(edgeRow)), lanes - most);
    const made = access(outputOf(recurrent.computation).name, [
      ...recurrent.outer.map((a) => axis(a.name)),
      from,
      axis(edgeColumn),
    ]);
    const kept = assign(this.at(axis(edgeRow), axis(edgeColumn)), made);
    return [loop(edgeRow, most, [loop(edgeColumn, column.extent, [kept])])];
  }

  /** The element of a row above the strip at a column. Rows are counted from the topmost one that is kept. */
  at(row: Expr, column: Expr): Access {
    const flat = plus(plus(times(this.pitch, row), column), this.start);
    return access(this.name, [placeInOwn(this.shape, this.size, flat)]);
  }

  private get size(): number {
    return this.shape.most * this.pitch;
  }
}

// ---- values computed ahead ---------------------------------------------------------------------------------------------------------------

/** A part of the value, and the memory it is stored in. */
interface Precomputed {
  readonly along: "row" | "column";
  readonly name: string;
  readonly value: Expr;
}

/** Collects the parts while the steps are written: `read` adds each part on first use. */
class WavefrontAhead {
  private readonly shape: WavefrontShape;
  private readonly parts: Precomputed[] = [];
  /**
   * The position of column 0 in the reversed columns of a phase. There are as many phases as steps between two rows.
   */
  private readonly last: number;

  constructor(shape: WavefrontShape) {
    this.shape = shape;
    this.last = Math.floor((shape.side * shape.blocks - 1) / shape.skew);
  }

  scratch(): Scratch[] {
    return this.parts.map(({ name, along }) => workspaceOf(this.shape, name, this.elementsOf(along)));
  }

  /** Registers for the parts that depend on the row. */
  vectors(): VectorFile[] {
    const { lanes, recurrent } = this.shape;
    return this.ofRows().map((part) => ({ name: this.held(part), dtype: recurrent.dtype, lanes, count: 1 }));
  }

  /** Computes all parts that were read. */
  fill(): Statement[] {
    const { names, row, column, skew, lead } = this.shape;
    return this.parts.map(({ along, name, value }) => {
      const at = names.fresh(`${name}_at`);
      const elements = this.elementsOf(along);
      const put = (place: Expr, of: string, to: Expr): Statement =>
        assign(
          access(name, [placeInOwn(this.shape, elements, to)]),
          substitute(value, new Map([[of, place]]), "value"),
        );
      if (along === "row") return loop(at, elements, [put(axis(at), row.name, axis(at))]);
      const phase = names.fresh(`${name}_phase`);
      const from = number(skew * this.last - lead);
      const place = minus(plus(axis(phase), from), times(skew, axis(at)));
      const flat = plus(times(this.pitch, axis(phase)), axis(at));
      return loop(phase, skew, [loop(at, this.pitch, [put(place, column.name, flat)])]);
    });
  }

  /** Loads the parts that depend on the rows of a strip; lane 0 has row `base`. */
  load(base: Expr, lane: Expr): Statement[] {
    return this.ofRows().map((part) =>
      assign(
        access(this.held(part), [number(0), lane]),
        access(part.name, [placeInOwn(this.shape, this.elementsOf("row"), plus(base, lane))]),
      ),
    );
  }

  /** The part's value on the lanes at a step. */
  read(value: Expr, along: Precomputed["along"], lane: Expr, at: Expr): Access {
    const { names, skew } = this.shape;
    const text = JSON.stringify(value);
    const known = this.parts.find((p) => p.along === along && JSON.stringify(p.value) === text);
    const part = known ?? { along, value, name: names.fresh(`${along}_${this.parts.length}`) };
    if (!known) this.parts.push(part);
    if (along === "row") return access(this.held(part), [number(0), lane]);
    const phase = remainder(at, skew);
    const place = plus(minus(this.last, over(at, skew)), lane);
    const flat = skew === 1 ? place : plus(times(this.pitch, phase), place);
    return access(part.name, [placeInOwn(this.shape, this.elementsOf("column"), flat)]);
  }

  private ofRows(): Precomputed[] {
    return this.parts.filter((p) => p.along === "row");
  }

  private held({ name }: Precomputed): string {
    return this.shape.names.fresh(`${name}_lanes`);
  }

  private elementsOf(along: Precomputed["along"]): number {
    const { strips, lanes, skew } = this.shape;
    return along === "row" ? strips * lanes : skew * this.pitch;
  }

  /** Elements of one phase of the columns. */
  private get pitch(): number {
    return this.last + this.shape.lanes;
  }
}

// ---- the shape of a wavefront ------------------------------------------------------------------------------------------------------------

/** The reads from the row `rows` above: `depth` columns, beginning `least` before the element's own column. */
interface Reach {
  readonly rows: number;
  readonly least: number;
  readonly depth: number;
}

interface WavefrontShape {
  readonly recurrent: Recurrent;
  readonly names: FreshNames;
  readonly row: Axis;
  readonly column: Axis;
  readonly lanes: number;
  /** Steps of a block, and rows of the tile that is transposed at once. */
  readonly side: number;
  readonly skew: number;
  readonly reach: readonly Reach[];
  /** The farthest row above that is read. */
  readonly most: number;
  /** Registers for a lane's own earlier results. */
  readonly depth: number;
  /** The farthest column to the right that is read in a row above. Lane 0 begins this many columns before column 0. */
  readonly lead: number;
  readonly strips: number;
  readonly blocks: number;
}

/** @param recurrent of the form wavefront */
function wavefrontShape(recurrent: Recurrent, { lanes, transform }: RecurrenceSchedule): WavefrontShape {
  const [row, column] = recurrent.inner;
  if (!row || !column) internal("a wavefront without rows and columns");
  const side = Math.min(lanes, ZMM.bytes / bytesOf(recurrent.dtype));
  const skew = transform.schedule[0]?.[0] ?? 1;
  const pairs = arrayDependences(recurrent).map(([di = 0, dj = 0]) => [Number(di), Number(dj)] as const);
  const rows = unique(pairs.map(([di]) => di)).filter((di) => di > 0);
  const reach = rows.map((di): Reach => {
    const own = pairs.filter(([d]) => d === di).map(([, dj]) => dj);
    const least = Math.min(...own);
    return { rows: di, least, depth: Math.max(...own) - least + 1 };
  });
  const lead = Math.max(0, ...reach.map((r) => -r.least));
  return {
    recurrent,
    names: new FreshNames(recurrent.computation),
    row,
    column,
    lanes,
    side,
    skew,
    reach,
    lead,
    most: Math.max(0, ...rows),
    depth: Math.max(1, ...pairs.map(([di, dj]) => (di === 0 ? dj : 0)), ...reach.map((r) => skew * r.rows + r.least)),
    strips: Math.ceil(row.extent / lanes),
    blocks: Math.ceil((column.extent + lead + skew * (lanes - 1)) / side),
  };
}

/** The vector file of the values passed from `rows` rows above. */
const aboveFile = ({ names }: WavefrontShape, rows: number): string => names.fresh(`above_${rows}`);

/** Workspace memory with `elements` for each step of the outer loops. */
function workspaceOf({ recurrent: { dtype, outer } }: WavefrontShape, name: string, elements: number): Scratch {
  const steps = volumeOf(outer);
  return { name, dtype, elements: elements * steps, scope: "workspace" };
}

/** An address in the current outer step's part of such memory. */
function placeInOwn({ recurrent }: WavefrontShape, elements: number, at: Expr): Expr {
  const step = rowMajor(recurrent.outer);
  return plus(times(step, elements), at);
}
