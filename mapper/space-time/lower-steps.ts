/**
 * @file A stencil in time on lanes: passes over the plane, each of several steps that follow one another row by row.
 *
 *     for pass in 0..12                                            8 steps a pass; two planes are swapped
 *       for row in 0..4110                                         wavefront: a step works one row behind the step before
 *         step 1     rows_1[row-7] = f(plane[row-8 .. row-6])      the newest 3 rows of each step lie in a ring, in cache
 *         step 2     rows_2[row-8] = f(rows_1[row-9 .. row-7])
 *         ...
 *         step 8     next[row-14]  = f(rows_7[row-15 .. row-13])
 *
 * Row q of step s needs rows q-r .. q+r of step s-1, where r is the reach of the stencil along its outermost axis: its dependences are (1,d) with
 * |d| <= r, and (1,d) under the skew (2r,1) is positive. A ring holds 2r+1 rows. Of a grid of three dimensions a row is a plane, in tiles along
 * the middle axis that overlap by r a step (`strip` rows each). Memory is read and written once a pass. No row is computed twice, except
 * where strips of a 3-D grid overlap. Wonnacott, Time Skewing, 2002; Nguyen et al., 3.5-D Blocking, SC'10.
 *
 * Rows beyond the plane: zeros are kept as rows; clamped and mirrored ones are read where they lie; a plane that wraps is continued.
 */

import { affineForm } from "../../abstraction/affine.ts";
import type { LaneSchedule } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
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
import { type LoopNest, loop, type Statement } from "../../abstraction/loop-nest.ts";
import { plus, times } from "../lower/arithmetic.ts";
import type { PlaneAxis } from "./plane.ts";
import type { Level, Source } from "./step-memory.ts";
import { StepPasses } from "./step-passes.ts";
import { depthOf, isSteps, stepProblem, stepsOf } from "./steps.ts";
import { WarpSteps } from "./warp-steps.ts";

/** @throws Error when it does not step through time or the schedule does not fit: ask {@link stepsOf}, {@link stepProblem} first */
export function lowerSteps(computation: Computation, schedule: LaneSchedule): LoopNest {
  const steps = stepsOf(computation);
  if (!isSteps(steps)) throw new Error(`internal: lowered without steps: ${steps.because}`);
  const problem = stepProblem(steps, schedule);
  if (problem) throw new Error(`internal: ${problem.because}`);
  // Thousands of warps stream; a few threads have caches.
  return new (schedule.borders === "guarded" ? WarpSteps : StepLoops)(steps, schedule).nest();
}

class StepLoops extends StepPasses {
  /** Threads wait for one another: a pass reads what all of them wrote. */
  protected override readonly between: readonly Statement[] = this.schedule.threads > 1 ? [{ kind: "barrier" }] : [];

  protected held(): Pick<LoopNest, "scratch"> {
    const steps = depthOf(this.schedule) - 1;
    if (steps === 0 || this.rows.length === 0) return { scratch: [] };
    const elements = this.schedule.threads * steps * this.ringElements();
    return { scratch: [{ name: this.names.fresh("rows"), elements, dtype: this.dtype, scope: "workspace" }] };
  }

  // ---- loops over rows ---------------------------------------------------------------------------------------------------------------

  protected pass(from: Source, to: Source, depth: number): readonly Statement[] {
    const [swept] = this.rows;
    if (!swept) return this.columns({ depth, places: [], tile: number(0), isLast: true, from, to }, false);
    const { threads } = this.schedule;
    const share = Math.ceil(swept.extent / threads);
    const row = this.names.fresh("row");
    const sweep = loop(row, share + 2 * (depth - 1) * swept.reach, [
      ...this.step(row, share, depth, number(1), from, depth === 1 ? to : this.ring(number(0))),
      ...this.stepsBetween(row, share, depth),
      ...(depth > 1 ? this.step(row, share, depth, number(depth), this.ring(number(depth - 2)), to, from) : []),
    ]);
    const tiles = this.tiles();
    const all = tiles === 1 ? sweep : loop(this.names.fresh("tile"), tiles, [sweep]);
    return [this.chunk.kind === "axis" ? loop(this.chunk.name, threads, [all], "parallel") : all];
  }

  /** All steps of a pass but the first and the last: they differ by a number. */
  private stepsBetween(row: string, share: number, depth: number): readonly Statement[] {
    if (depth < 3) return [];
    const step = this.names.fresh("step");
    const after = binary("+", axis(step), number(1));
    const body = this.step(
      row,
      share,
      depth,
      binary("+", axis(step), number(2)),
      this.ring(axis(step)),
      this.ring(after),
    );
    return [loop(step, depth - 2, body)];
  }

  private ring(step: Expr): Source {
    return { kind: "ring", name: this.names.fresh("rows"), step };
  }

  private tiles(): number {
    const [, tiled] = this.rows;
    return tiled ? Math.ceil(tiled.extent / this.tileOf()) : 1;
  }

  /** Step `s` of a pass, counted from 1, at the row that it has come to; of a share of the rows those that later steps of the share need. */
  private step(
    row: string,
    share: number,
    depth: number,
    s: Expr,
    from: Source,
    to: Source,
    plane?: Source,
  ): readonly Statement[] {
    const [swept, tiled] = this.rows;
    if (!swept) throw new Error("internal: rows of no axis");
    const high = this.tileOf();
    const origin = this.tiles() === 1 ? number(0) : binary("*", axis(this.names.fresh("tile")), number(high));
    const isLast = to.kind === "plane";
    const behind = times(swept.reach, binary("+", s, number(depth - 2)));
    const begin = binary("*", this.chunk, number(share));
    const q = binary("-", binary("+", begin, axis(row)), behind);
    // Step 1 comes to it in the next turn.
    const next = plus(binary("+", begin, axis(row)), number(1 - (depth - 2) * swept.reach));
    const level = (places: readonly Expr[]): Level => ({
      ...{ depth, places, tile: origin, isLast, from, to },
      ...(plane && { ahead: { plane, places: [next, ...places.slice(1)] } }),
    });
    const over = (each: (places: readonly Expr[]) => readonly Statement[]): readonly Statement[] => {
      if (!tiled) return each([q]);
      const halo = times(tiled.reach, binary("-", number(depth), s));
      const inner = this.names.fresh(`${tiled.name}_row`);
      const j = binary("-", binary("+", origin, axis(inner)), halo);
      const body = each([q, j]);
      if (halo.kind === "number") return [loop(inner, high + 2 * halo.value, body)];
      const condition = compare("<", axis(inner), binary("+", number(high), binary("*", number(2), halo)));
      return [loop(inner, high + 2 * (depth - 2) * tiled.reach, [{ kind: "when", condition, body, otherwise: [] }])];
    };
    const zeros = (along: PlaneAxis | undefined, places: readonly Expr[]): readonly Statement[] =>
      isLast || along?.border !== "zero" ? [] : this.zeros(level(places));
    const rows = over((places) =>
      this.within(tiled, places[1], isLast, this.columns(level(places), false), zeros(tiled, places)),
    );
    const beyond = isLast || swept.border !== "zero" ? [] : over((places) => zeros(swept, places));
    const body = this.within(swept, q, isLast, rows, beyond);
    const first = times(2 * swept.reach, binary("-", s, number(1)));
    if (this.chunk.kind === "number" || (first.kind === "number" && first.value === 0)) return body;
    return [{ kind: "when", condition: compare(">=", axis(row), first), body, otherwise: [] }];
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
   * Whole vectors that begin at lines of the cache. Of a row with zeros around it lanes at its ends read nothing. Of others columns that reach beyond
   * the row are done one by one, and a vector more at either end, which overlaps its neighbours, does the rest.
   */
  private line(level: Level, isInterior: boolean): readonly Statement[] {
    const { extent, reach, name, border: how } = this.lane;
    const { lanes, vectors } = this.schedule;
    const body: Statement[] = [];
    const columns = (from: number, to: number): void => {
      const column = this.names.fresh(`${name}_column`);
      const at = binary("+", axis(column), number(from));
      if (to > from) body.push(loop(column, to - from, [this.statement(level, at, isInterior, "one")]));
    };
    const vector = (from: Expr, width: number, place: "inside" | "end"): Statement => {
      const lane = this.names.fresh("lane");
      const vectors = Array.from({ length: Math.ceil(width / lanes) }, (_, v) => plus(from, number(v * lanes)));
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
        const at = binary("+", binary("*", axis(block), number(width)), number(done));
        body.push(loop(block, count, [vector(at, width, "inside")]));
        done += count * width;
      }
      return done;
    };
    const [head, end] = [Math.ceil(reach / lanes) * lanes, extent - reach];
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

  private statement(level: Level, column: Expr, isInterior: boolean, of: Columns): Scalar {
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
        reads.push(this.read(e, level, places, isInterior, of));
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
  private read({ index }: Access, level: Level, places: readonly Expr[], isInterior: boolean, of: Columns): Expr {
    const tests: Expr[] = [];
    const at = this.steps.axes.map((along, d) => {
      const shift = affineForm(index[d]?.kind === "border" ? index[d].index : (index[d] ?? number(0)))?.constant ?? 0;
      const raw = binary("+", places[d] ?? number(0), number(shift));
      const isColumn = along === this.lane;
      if (isColumn && (of === "inside" || along.reach === 0)) return raw;
      const how = along.border;
      // A ring has the rows beyond the plane, of zeros or continued.
      if (!isColumn && level.from.kind === "ring")
        return how === "zero" || how === "wrap" ? raw : border(how, raw, along.extent);
      if (how !== "zero") return border(how, raw, along.extent);
      if (shift !== 0 && (isColumn || !isInterior)) tests.push(between(raw, 0, along.extent));
      // Lanes beyond the row load nothing.
      return isColumn && (shift === 0 || of === "end") ? raw : border("clamp", raw, along.extent);
    });
    const element = this.element(level.from, level, at);
    const [test, ...others] = tests;
    return test
      ? { kind: "select", condition: others.reduce(and, test), whenTrue: element, whenFalse: number(0) }
      : element;
  }
}

/** Columns of one statement: one of them, lanes whose neighbours lie inside the row, or lanes at an end of it. */
type Columns = "one" | "inside" | "end";

type Scalar = Extract<Statement, { kind: "scalar" }>;

/** `from <= place < to` */
function between(place: Expr, from: number, to: number): Expr {
  return and(compare(">=", place, number(from)), compare("<", place, number(to)));
}
