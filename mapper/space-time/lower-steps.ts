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
 */

import type { StepSchedule, WarpStepSchedule } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { and, axis, between, compare, type Expr, minus, number, plus, times } from "../../abstraction/expression.ts";
import { type LoopNest, loop, type Statement } from "../../abstraction/loop-nest.ts";
import type { PlaneAxis, Steps } from "./plane.ts";
import type { Level, Source } from "./step-memory.ts";
import { StepRows } from "./step-rows.ts";
import { isSteps, stepProblem, stepsOf, warpStepProblem } from "./steps.ts";
import type { LaneRefusal } from "./taps.ts";
import { WarpSteps } from "./warp-steps.ts";

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
  if (!isSteps(steps)) throw new Error(`internal: lowered without steps: ${steps.because}`);
  const problem = problemOf(steps, schedule);
  if (problem) throw new Error(`internal: ${problem.because}`);
  return steps;
}

class StepLoops extends StepRows {
  /** A barrier between passes, since a pass reads what all threads wrote. */
  protected override readonly between: readonly Statement[] = this.schedule.threads > 1 ? [{ kind: "barrier" }] : [];

  protected held(): Pick<LoopNest, "scratch" | "vectors"> {
    const vectors = this.lineRegisters();
    if (this.schedule.depth === 1 || this.rows.length === 0) return { scratch: [], vectors };
    const elements = this.schedule.threads * this.ringElements();
    return { scratch: [{ name: this.names.fresh("rows"), elements, dtype: this.dtype, scope: "workspace" }], vectors };
  }

  // ---- loops over rows ---------------------------------------------------------------------------------------------------------------

  protected pass(from: Source, to: Source, depth: number): readonly Statement[] {
    const [swept] = this.rows;
    if (!swept) return this.columns({ depth, places: [], tile: number(0), isLast: true, from, to }, false);
    const { threads } = this.schedule;
    const share = Math.ceil(swept.extent / threads);
    const row = this.names.fresh("row");
    const sweep = loop(row, (share + 2 * (depth - 1) * swept.reach) / this.together(depth), [
      ...this.step(row, share, depth, number(1), from, depth === 1 ? to : this.ring(number(0))),
      ...this.stepsBetween(row, share, depth),
      ...(depth > 1 ? this.step(row, share, depth, number(depth), this.ring(number(depth - 2)), to, from) : []),
    ]);
    const tiles = this.tiles();
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
    return { kind: "ring", name: this.names.fresh("rows"), step };
  }

  /** Planes that a turn of the sweep takes at once: their rows read some of the same rows. */
  private together(depth: number): number {
    return depth > 1 ? this.schedule.rows : 1;
  }

  private tiles(): number {
    const [, tiled] = this.rows;
    return tiled ? Math.ceil(tiled.extent / this.tileOf()) : 1;
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
    const [swept, tiled] = this.rows;
    if (!swept) throw new Error("internal: rows of no axis");
    const high = this.tileOf();
    const origin = this.tiles() === 1 ? number(0) : times(axis(this.names.fresh("tile")), high);
    const isLast = to.kind === "plane";
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
      tile: origin,
      isLast,
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
      if (halo.kind === "number") return [loop(inner, high + 2 * halo.value, body)];
      const condition = compare("<", axis(inner), plus(high, times(2, halo)));
      return [loop(inner, high + 2 * (depth - 2) * tiled.reach, [{ kind: "when", condition, body, otherwise: [] }])];
    };
    const zeros = (along: PlaneAxis | undefined, places: readonly Expr[]): readonly Statement[] =>
      isLast || along?.border !== "zero" ? [] : this.zeros(level(places));
    const rows = (places: readonly Expr[], on = 0) =>
      this.within(tiled, places[1], isLast, this.columns(level(places, on), false), zeros(tiled, places));
    const beyond = (places: readonly Expr[]) => (isLast || swept.border !== "zero" ? [] : zeros(swept, places));
    const single = (places: readonly Expr[], on = 0) =>
      this.within(swept, places[0], isLast, rows(places, on), beyond(places));
    const body =
      together > 1 && tiled
        ? this.twoPlanes(tiled, level([q, origin]), times(tiled.reach, minus(depth, s)), single)
        : this.within(swept, q, isLast, over(rows), over(beyond));
    const first = times(2 * swept.reach, minus(s, 1));
    if (this.chunk.kind === "number" || (first.kind === "number" && first.value === 0)) return body;
    return [{ kind: "when", condition: compare(">=", turn, first), body, otherwise: [] }];
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
    const [swept] = this.rows;
    const inner = this.names.fresh(`${tiled.name}_row`);
    const high = plus(this.tileOf(), times(2, halo));
    const most = this.tileOf() + 2 * (halo.kind === "number" ? halo.value : (level.depth - 2) * tiled.reach);
    const j = minus(plus(origin, axis(inner)), halo);
    const isFirst = compare("<", axis(inner), high);
    const isSecond = and(compare(">=", axis(inner), 1), compare("<=", axis(inner), high));
    // A plane has no rows beyond its ends; a ring buffer stores rows of zeros for them.
    const beside = level.from.kind === "plane" ? 1 : 0;
    const inside = [
      isSecond,
      between(q, beside, (swept?.extent ?? 1) - 1 - beside),
      between(j, 1 + beside, tiled.extent - beside),
    ].reduce(and, isFirst);
    const when = (condition: Expr, body: readonly Statement[], otherwise: readonly Statement[] = []) =>
      ({ kind: "when", condition, body, otherwise }) as const;
    const ahead = level.ahead && { ...level.ahead, places: [level.ahead.places[0] ?? q, j] };
    const both = this.blocks({ ...level, places: [q, j], ...(ahead && { ahead }) }, true, 2);
    const second = [plus(q, 1), minus(j, 1)];
    const apart = [when(isFirst, single([q, j], 0)), when(isSecond, single(second, 1))];
    return [loop(inner, most + 1, [when(inside, both, apart)])];
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
    if (isEverywhere) return inside;
    return [{ kind: "when", condition: between(place, 0, along.extent), body: inside, otherwise: beyond }];
  }
}
