/**
 * @file A stencil in time on lanes: passes over the plane, each of several steps that follow one another row by row.
 *
 *     for pass in 0..12                                            8 steps a pass; two planes are swapped
 *       for row in 0..4110                                         wavefront: step s works s rows behind step s-1
 *         step 1     rows_1[row%3] = f(plane[row-1 .. row+1])      the newest rows of each step lie in a ring, in cache
 *         step 2     rows_2[..]    = f(rows_1[..])
 *         ...
 *         step 8     next[row-14]  = f(rows_7[..])
 *
 * Row q of step s needs rows q-r .. q+r of step s-1, where r is the reach of the stencil along its outermost axis: its dependences are (1,d) with
 * |d| <= r, and (1,d) under the skew (2r,1) is positive. A ring holds 2r+1 rows. Of a grid of three dimensions a row is a plane, in tiles along
 * the middle axis that overlap by r a step (`strip` rows each). So memory is read and written once a pass. Wonnacott, Time Skewing, 2002; Nguyen
 * et al., 3.5-D Blocking, SC'10.
 *
 * Rows beyond the plane: zeros are kept as rows; clamped and mirrored ones are read where they lie; a plane that wraps is continued.
 */

import { affineForm } from "../../abstraction/affine.ts";
import type { LaneSchedule } from "../../abstraction/candidate.ts";
import { type Computation, memoryElements, outputOf } from "../../abstraction/computation.ts";
import { bytesOf, type DType } from "../../abstraction/dtype.ts";
import {
  type Access,
  access,
  and,
  axis,
  binary,
  border,
  compare,
  type Expr,
  number,
  rewrite,
  substitute,
} from "../../abstraction/expression.ts";
import { type LoopNest, loop, type Scratch, type Statement } from "../../abstraction/loop-nest.ts";
import { FreshNames } from "../lower/names.ts";
import { depthOf, isSteps, type PlaneAxis, type Steps, stepProblem, stepsOf } from "./steps.ts";

/** @throws Error when it does not step through time or the schedule does not fit: ask {@link stepsOf}, {@link stepProblem} first */
export function lowerSteps(computation: Computation, schedule: LaneSchedule): LoopNest {
  const steps = stepsOf(computation);
  if (!isSteps(steps)) throw new Error(`internal: lowered without steps: ${steps.because}`);
  const problem = stepProblem(steps, schedule);
  if (problem) throw new Error(`internal: ${problem.because}`);
  return new StepLoops(steps, schedule).nest();
}

/** Where the values of a step lie. */
type Source =
  /** A whole plane: a tensor, or memory of the kernel's own in the same order. */
  | { readonly kind: "plane"; readonly name: string }
  /** The newest rows of a step. */
  | { readonly kind: "ring"; readonly name: string };

/** A line of the cache, which rows keep their distance by: rows of a power of two would share their sets. */
const LINE_BYTES = 64;

class StepLoops {
  private readonly steps: Steps;
  private readonly schedule: LaneSchedule;
  private readonly dtype: DType;
  private readonly names: FreshNames;
  private readonly lane: PlaneAxis;
  /** Of the rows: the first is swept, the second is in tiles. */
  private readonly rows: readonly PlaneAxis[];
  private readonly rings = new Map<string, number>();

  constructor(steps: Steps, schedule: LaneSchedule) {
    this.steps = steps;
    this.schedule = schedule;
    this.dtype = outputOf(steps.computation).dtype;
    this.names = new FreshNames(steps.computation);
    const lane = steps.axes.at(-1);
    if (!lane) throw new Error("internal: a plane without axes");
    this.lane = lane;
    this.rows = steps.axes.slice(0, -1);
  }

  nest(): LoopNest {
    const { time, computation } = this.steps;
    const depth = depthOf(this.schedule);
    const plane = (name: string): Source => ({ kind: "plane", name });
    const [first, last, between] = [time.first, outputOf(computation).name, this.names.fresh("between")].map(plane);
    if (!first || !last || !between) throw new Error("internal: planes have names");

    // The first pass takes what steps are left over; the last writes the output.
    const rest = time.steps % depth || depth;
    const more = (time.steps - rest) / depth;
    const body: Statement[] = [...this.pass(first, more % 2 === 0 ? last : between, rest)];
    const pairs = Math.floor(more / 2);
    if (more % 2 === 1) body.push(...this.pass(between, last, depth));
    if (pairs > 0)
      body.push(
        loop(this.names.fresh("pair"), pairs, [...this.pass(last, between, depth), ...this.pass(between, last, depth)]),
      );
    const scratch: Scratch[] = [...this.rings].map(([name, elements]) => ({
      name,
      elements,
      dtype: this.dtype,
      scope: "workspace",
    }));
    if (more > 0)
      scratch.unshift({
        name: between.name,
        elements: memoryElements(outputOf(computation)),
        dtype: this.dtype,
        scope: "workspace",
      });
    return { scratch, registers: [], prepare: [], body };
  }

  // ---- loops over rows ---------------------------------------------------------------------------------------------------------------

  /** So many steps, from one plane to another. */
  private pass(from: Source, to: Source, depth: number): readonly Statement[] {
    const [swept, tiled] = this.rows;
    const level = (s: number, places: readonly Expr[], tile: Expr): Level => {
      const ring = (step: number): Source => ({ kind: "ring", name: this.names.fresh(`rows_${step}`) });
      return {
        ...{ depth, places, tile, isLast: s === depth },
        from: s === 1 ? from : ring(s - 1),
        to: s === depth ? to : ring(s),
      };
    };
    if (!swept) return this.columns(level(1, [], number(0)), false);
    const row = this.names.fresh("row");
    const high = this.tileOf();
    const count = tiled ? Math.ceil(tiled.extent / high) : 1;
    const tile = this.names.fresh("tile");
    const origin = count === 1 ? number(0) : binary("*", axis(tile), number(high));
    for (let s = 1; s < depth; s++) this.hold(s, depth);
    const body = Array.from({ length: depth }, (_, i) => i + 1).flatMap((s): readonly Statement[] => {
      const q = binary("-", axis(row), number((depth + s - 2) * swept.reach));
      const over = (each: (places: readonly Expr[]) => readonly Statement[]): readonly Statement[] => {
        if (!tiled) return each([q]);
        const halo = (depth - s) * tiled.reach;
        const inner = this.names.fresh(`${tiled.name}_row`);
        const j = binary("-", binary("+", origin, axis(inner)), number(halo));
        return [loop(inner, high + 2 * halo, each([q, j]))];
      };
      const isLast = s === depth;
      const zeros = (along: PlaneAxis | undefined, places: readonly Expr[]): readonly Statement[] =>
        isLast || along?.border !== "zero" ? [] : this.zeros(level(s, places, origin));
      const rows = over((places) =>
        this.within(tiled, places[1], isLast, this.columns(level(s, places, origin), false), zeros(tiled, places)),
      );
      const beyond = isLast || swept.border !== "zero" ? [] : over((places) => zeros(swept, places));
      return this.within(swept, q, isLast, rows, beyond);
    });
    const sweep = [loop(row, swept.extent + 2 * (depth - 1) * swept.reach, body)];
    return count === 1 ? sweep : [loop(tile, count, sweep)];
  }

  /** What is done where a row lies inside the plane, and beyond it; a plane that wraps goes on. */
  private within(
    along: PlaneAxis | undefined,
    place: Expr | undefined,
    isLast: boolean,
    inside: readonly Statement[],
    beyond: readonly Statement[],
  ): readonly Statement[] {
    const isEverywhere = !along || !place || (isLast ? place.kind === "axis" : along.border === "wrap");
    if (isEverywhere) return inside;
    return [{ kind: "when", condition: between(place, 0, along.extent), body: inside, otherwise: beyond }];
  }

  /** Rows of a tile. */
  private tileOf(): number {
    const [, tiled] = this.rows;
    if (!tiled) return 1;
    return this.schedule.strip > 0 ? Math.min(this.schedule.strip, tiled.extent) : tiled.extent;
  }

  // ---- one row -----------------------------------------------------------------------------------------------------------------------

  /** The columns of a row: whole vectors where all neighbours are inside, and the others one by one. */
  private columns(level: Level, isInterior: boolean): readonly Statement[] {
    // Of a plane's rows those at its border are tested.
    if (level.from.kind === "plane" && !isInterior) {
      const tests = this.rows.flatMap((along, d) => {
        const place = level.places[d];
        return along.border === "zero" && along.reach > 0 && place
          ? [between(place, along.reach, along.extent - along.reach)]
          : [];
      });
      const [test, ...others] = tests;
      if (test)
        return [
          {
            kind: "when",
            condition: others.reduce(and, test),
            body: this.columns(level, true),
            otherwise: this.line(level, false),
          },
        ];
    }
    return this.line(level, true);
  }

  /**
   * Columns that reach beyond the row are done one by one. Of the others whole vectors begin at a line of the cache; one vector more at either
   * end, which overlaps them, does the rest.
   */
  private line(level: Level, isInterior: boolean): readonly Statement[] {
    const { extent, reach, name } = this.lane;
    const { lanes, vectors } = this.schedule;
    const body: Statement[] = [];
    const columns = (from: number, to: number): void => {
      const column = this.names.fresh(`${name}_column`);
      const at = binary("+", axis(column), number(from));
      if (to > from) body.push(loop(column, to - from, [this.statement(level, at, isInterior, false)]));
    };
    const vector = (from: Expr, width: number): Statement => {
      const lane = this.names.fresh("lane");
      return loop(lane, width, [this.statement(level, binary("+", from, axis(lane)), isInterior, true)], "lanes");
    };
    const end = extent - reach;
    if (end - reach < lanes) {
      columns(0, extent);
      return body;
    }
    columns(0, reach);
    let done = Math.ceil(reach / lanes) * lanes;
    if (done > reach) body.push(vector(number(reach), lanes));
    for (const width of new Set([lanes * vectors, lanes])) {
      const block = this.names.fresh(`${name}_block`);
      const count = Math.floor((end - done) / width);
      if (count > 0) {
        const from = binary("+", binary("*", axis(block), number(width)), number(done));
        body.push(loop(block, count, [vector(from, width)]));
        done += count * width;
      }
    }
    if (done < end) body.push(vector(number(end - lanes), lanes));
    columns(end, extent);
    return body;
  }

  /** A row of zeros. */
  private zeros(level: Level): readonly Statement[] {
    const column = this.names.fresh(`${this.lane.name}_column`);
    const target = this.element(level.to, level, [...level.places, axis(column)]);
    return [loop(column, this.lane.extent, [{ kind: "scalar", equation: { target, op: "=", value: number(0) } }])];
  }

  private statement(level: Level, column: Expr, isInterior: boolean, isInside: boolean): Statement {
    const { time } = this.steps;
    const places = [...level.places, column];
    // Rows lie inside by the loops; what is written says it to whoever proves bounds.
    const coordinates = new Map(
      this.steps.axes.map(({ name, extent, border: how }, d) => {
        const place = places[d] ?? number(0);
        const kept = place === column ? place : border(how === "wrap" ? "wrap" : "clamp", place, extent);
        return [name, kept] as const;
      }),
    );
    // Reads of the plane first, whose indices are the places themselves.
    const reads: Expr[] = [];
    const held = this.names.fresh("held");
    const apart = rewrite(
      time.step.equation.value,
      (e) => {
        if (e.kind !== "access" || e.tensor !== time.first) return e;
        reads.push(this.read(e, level, places, isInterior, isInside));
        return access(held, [number(reads.length - 1)]);
      },
      "value",
    );
    const put = (e: Expr): Expr =>
      e.kind === "access" && e.tensor === held && e.index[0]?.kind === "number" ? (reads[e.index[0].value] ?? e) : e;
    const value = rewrite(substitute(apart, coordinates, "value"), put, "value");
    const target = this.element(level.to, level, places);
    return { kind: "scalar", equation: { target, op: "=", value } };
  }

  /** An element of the step before. */
  private read({ index }: Access, level: Level, places: readonly Expr[], isInterior: boolean, isInside: boolean): Expr {
    const tests: Expr[] = [];
    const at = this.steps.axes.map((along, d) => {
      const shift = affineForm(index[d]?.kind === "border" ? index[d].index : (index[d] ?? number(0)))?.constant ?? 0;
      const raw = binary("+", places[d] ?? number(0), number(shift));
      const isColumn = along === this.lane;
      if (isColumn && (isInside || along.reach === 0)) return raw;
      const how = along.border;
      // A ring has the rows beyond the plane, of zeros or continued.
      if (!isColumn && level.from.kind === "ring")
        return how === "zero" || how === "wrap" ? raw : border(how, raw, along.extent);
      if (how !== "zero") return border(how, raw, along.extent);
      if (shift !== 0 && (isColumn || !isInterior)) tests.push(between(raw, 0, along.extent));
      return isColumn && shift === 0 ? raw : border("clamp", raw, along.extent);
    });
    const element = this.element(level.from, level, at);
    const [test, ...others] = tests;
    return test
      ? { kind: "select", condition: others.reduce(and, test), whenTrue: element, whenFalse: number(0) }
      : element;
  }

  // ---- memory ------------------------------------------------------------------------------------------------------------------------

  private element(of: Source, level: Level, at: readonly Expr[]): Access {
    const extents = this.steps.axes.map((a) => a.extent);
    if (of.kind === "plane") {
      const inside = at.map((e, d) =>
        d < at.length - 1 && e.kind !== "border" ? border("clamp", e, extents[d] ?? 1) : e,
      );
      if (Object.hasOwn(this.steps.computation.tensors, of.name)) return access(of.name, inside);
      return access(of.name, [
        inside.reduce((flat, e, d) => (d === 0 ? e : plus(binary("*", flat, number(extents[d] ?? 1)), e)), number(0)),
      ]);
    }
    const [row = number(0), middle] = at;
    const column = at.at(-1) ?? number(0);
    const [swept, tiled] = this.rows;
    const kept = this.kept();
    // Places of rows above the plane are counted from a number above 0, so that the rest is that of a positive one.
    const before = kept * Math.ceil((2 * level.depth * (swept?.reach ?? 0)) / kept);
    const slot = binary("%", binary("+", row, number(before)), number(kept));
    const pitch = this.pitch();
    if (!tiled || middle === undefined) return access(of.name, [plus(binary("*", slot, number(pitch)), column)]);
    const halo = (level.depth - 1) * tiled.reach;
    const high = this.tileOf() + 2 * halo;
    const inTile = binary("+", binary("-", middle, level.tile), number(halo));
    const line = plus(binary("*", slot, number(high)), inTile);
    return access(of.name, [plus(binary("*", line, number(pitch)), column)]);
  }

  /** Makes room for the rows of a step, in passes of any depth. */
  private hold(step: number, depth: number): void {
    const name = this.names.fresh(`rows_${step}`);
    const [, tiled] = this.rows;
    const high = tiled ? this.tileOf() + 2 * (depth - 1) * tiled.reach : 1;
    this.rings.set(name, Math.max(this.rings.get(name) ?? 0, this.kept() * high * this.pitch()));
  }

  private kept(): number {
    return 2 * (this.rows[0]?.reach ?? 0) + 1;
  }

  /** Elements from a row to the next: whole lines of the cache, an odd number of them. */
  private pitch(): number {
    const line = LINE_BYTES / bytesOf(this.dtype);
    const lines = Math.ceil(this.lane.extent / line);
    return line * (lines % 2 === 0 ? lines + 1 : lines);
  }
}

/** `from <= place < to` */
function between(place: Expr, from: number, to: number): Expr {
  return and(compare(">=", place, number(from)), compare("<", place, number(to)));
}

function plus(left: Expr, right: Expr): Expr {
  return binary("+", left, right);
}

/** One step of a pass, at a row. */
interface Level {
  readonly depth: number;
  readonly from: Source;
  readonly to: Source;
  readonly isLast: boolean;
  /** Of the row: the place along the axis that is swept, and along the one in tiles. */
  readonly places: readonly Expr[];
  /** Where the tile begins. */
  readonly tile: Expr;
}
