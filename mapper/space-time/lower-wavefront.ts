/**
 * @file Lowers a wavefront to lanes: lane i computes row i of a strip, each row k steps behind the one above, and
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
 */

import { affineForm } from "../../abstraction/affine.ts";
import type { RecurrenceSchedule } from "../../abstraction/candidate.ts";
import { upTo } from "../../abstraction/collections.ts";
import { outputOf } from "../../abstraction/computation.ts";
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
  minus,
  number,
  plus,
  select,
  substitute,
  times,
} from "../../abstraction/expression.ts";
import {
  assign,
  type LoopNest,
  loop,
  type Scratch,
  type Statement,
  type VectorFile,
} from "../../abstraction/loop-nest.ts";
import { typeOf } from "../../abstraction/typing.ts";
import { decided, type Ranges, undecided } from "./decided.ts";
import type { Recurrent } from "./recurrent.ts";
import { WavefrontAhead } from "./wavefront-ahead.ts";
import {
  aboveFile,
  placeInOwn,
  type Reach,
  type WavefrontShape,
  wavefrontShape,
  workspaceOf,
} from "./wavefront-shape.ts";

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

export class Wavefront {
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
  const found = shape.reach.find((r) => r.rows === rows);
  if (!found) throw new Error(`internal: no lane ${rows} above`);
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
