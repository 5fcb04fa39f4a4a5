/**
 * @file Which stencils in time lanes can compute, and under which schedules.
 *
 *     u[t,i] = 0.5*u[t-1,i] + 0.5*u[t-1,i-1]      of f32: taken; on vectors of a CPU a pass takes one step
 *                                                 of f16: refused, lanes step in f32 and f64
 */

import type { LaneSchedule } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { isInteger } from "../../abstraction/dtype.ts";
import { printExpr, walk } from "../../abstraction/expression.ts";
import { rowMajor } from "../../abstraction/layout.ts";
import { operationsOfStep } from "../../abstraction/time.ts";
import { MOST_WRITTEN } from "../schedule/lanes.ts";
import type { Steps } from "./plane.ts";
import { linesOf, overwrites } from "./step-lines.ts";
import type { LaneRefusal } from "./taps.ts";
import { warpProblem } from "./warp-tile.ts";

/** Rows, and planes of rows: more axes would need tiles of their own. */
const MOST_AXES = 3;

/** The steps of a computation, or why lanes cannot take them. */
export function stepsOf(computation: Computation): Steps | LaneRefusal {
  const { time, tensors } = computation;
  if (!time) return { rule: "form", because: "form: nothing steps through time" };
  const refuse = (rule: LaneRefusal["rule"], because: string): LaneRefusal => ({
    rule,
    because: `${rule}: ${because}`,
  });
  const { axes, equation } = time.step;
  if (axes.length > MOST_AXES)
    return refuse("form", `a plane of ${axes.length} dimensions; lanes sweep up to ${MOST_AXES}`);
  const types = new Set(Object.values(tensors).map((t) => t.dtype));
  const [dtype] = types;
  if (types.size > 1) return refuse("type", `tensors of ${[...types].join(" and ")}; lanes compute in one type`);
  if (dtype !== "f32" && dtype !== "f64") return refuse("type", `lanes step in f32 and f64, not in ${dtype}`);
  const odd = [...walk(equation.value)].find(
    (e) => e.kind === "cast" || (e.kind === "binary" && e.op === "%" && isInteger(dtype)),
  );
  if (odd) return refuse("type", `${printExpr(odd)} is of another type; lanes compute in ${dtype} alone`);
  const far = Object.values(tensors).find((t) => printExpr(t.storage) !== printExpr(rowMajor(t.dims)));
  if (far) return refuse("layout", `${far.name} is not stored row by row`);
  return {
    computation,
    time,
    axes: axes.map(({ name, extent }, d) => ({
      name,
      extent,
      border: time.borders[d] ?? "zero",
      reach: Math.max(0, ...time.dependences.map((v) => Math.abs(v[d + 1] ?? 0))),
    })),
  };
}

export function isSteps(found: Steps | LaneRefusal): found is Steps {
  return "time" in found;
}

/** Steps of a pass over the plane. */
export const depthOf = ({ depth }: LaneSchedule): number => depth ?? 1;

/** More steps of a pass make programs of thousands of lines. */
const MOST_DEPTH = 64;

/**
 * What windows leave open and steps do not: other settings would be other names of the same kernel. Vectors of a CPU
 * leave less open than warps.
 */
const NEUTRAL_OF_WARPS = {
  rolled: [],
  weights: "memory",
  prefetchBytes: 0,
  lines: undefined,
  planes: undefined,
  prefetchSteps: undefined,
  warps: undefined,
} as const satisfies Partial<LaneSchedule>;
const NEUTRAL = {
  ...NEUTRAL_OF_WARPS,
  each: 1,
  sweep: undefined,
  ahead: 1,
} as const satisfies Partial<LaneSchedule>;

const said = (value: (typeof NEUTRAL)[keyof typeof NEUTRAL]): string =>
  value === undefined ? "left out" : Array.isArray(value) ? "empty" : `${value}`;

/**
 * Why a schedule cannot run the steps, on vectors of a CPU (borders apart) or on warps (every access tested); undefined
 * when it can.
 */
export function stepProblem(steps: Steps, schedule: LaneSchedule): LaneRefusal | undefined {
  const { axes, time } = steps;
  const onWarps = schedule.borders === "guarded";
  const refuse = (because: string): LaneRefusal => ({ rule: "form", because: `schedule: ${because}` });
  const depth = depthOf(schedule);
  const forbids = time.dependences.find((v) => v.slice(1).some((d) => d !== 0)) ?? [];
  if (!Number.isSafeInteger(depth) || depth < 1 || depth > MOST_DEPTH)
    return refuse(`a pass takes 1 to ${MOST_DEPTH} steps, got ${depth}`);
  if (depth > time.steps) return refuse(`${depth} steps a pass, but there are ${time.steps}`);
  if (depth > 1 && axes.length === 1 && !onWarps)
    return refuse(
      `${depth} steps a pass need rows to follow one another: along the one axis of the plane lie the lanes, which the dependence (${forbids.join(",")}) ties together`,
    );
  if (schedule.dataflow !== "FBS-load")
    return refuse(`a step loads its neighbours: FBS-load, not ${schedule.dataflow}`);
  const { lanes, vectors, rows } = schedule;
  for (const [name, value] of Object.entries({ lanes, vectors, rows }))
    if (!Number.isSafeInteger(value) || value < 1) return refuse(`${name} must be a positive integer, got ${value}`);
  const written = vectors * (onWarps ? 1 : rows) * depth * Math.max(1, operationsOfStep(time));
  if (written > MOST_WRITTEN)
    return refuse(`a pass would be written as ${written} operations, more than ${MOST_WRITTEN}`);
  const idle = Object.entries(onWarps ? NEUTRAL_OF_WARPS : NEUTRAL).find(
    ([name, value]) => `${schedule[name as keyof typeof NEUTRAL] ?? value}` !== `${value}`,
  ); // a key of it
  if (idle) return refuse(`${idle[0]} is no choice of steps in time: it must be ${said(idle[1])}`);
  const { threads } = schedule;
  if (!Number.isSafeInteger(threads) || threads < 1)
    return refuse(`threads must be a positive integer, got ${threads}`);
  if (onWarps) {
    if (threads !== 1) return refuse(`a grid is launched by one thread, got ${threads}`);
    const because = warpProblem(steps, schedule);
    return because === undefined ? undefined : refuse(because);
  }
  if (!Number.isSafeInteger(schedule.strip) || schedule.strip < 0)
    return refuse(`strip must be a number of rows or 0, got ${schedule.strip}`);
  const [swept] = axes.length > 1 ? axes : [];
  if (threads > 1 && !swept)
    return refuse(`${threads} threads share rows, and the plane has one axis, along which the lanes lie`);
  if (swept && threads > swept.extent)
    return refuse(`${threads} threads share the ${swept.extent} rows along ${swept.name}, and each needs one`);
  const apart = rows === 1 ? undefined : togetherProblem(steps, schedule);
  if (apart) return refuse(`${rows} rows of a block are of planes that follow one another: ${apart}`);
  if (schedule.strip !== 0 && axes.length < 3) return refuse("strips are of the rows of a grid of three dimensions");
  return undefined;
}

/** Why rows of two planes cannot be done together, the second a row behind the first. */
function togetherProblem(steps: Steps, schedule: LaneSchedule): string | undefined {
  const [swept, tiled] = steps.axes;
  if (!swept || !tiled || steps.axes.length < 3) return "only a grid of three dimensions has such";
  if (schedule.rows !== 2) return `two can be done together, not ${schedule.rows}`;
  if (depthOf(schedule) === 1) return "one step a pass reads and writes memory, which gains nothing from it";
  // The block before has overwritten what a diagonal within the plane would read beside it.
  const isStar = steps.time.dependences.every(([, ...shifts]) => shifts.filter((d) => d !== 0).length <= 1);
  if (!isStar || !overwrites(steps))
    return "steps must be of a star, with zeros around the plane, to write over what they read";
  for (const { name, reach, border } of [swept, tiled])
    if (reach !== 1 || border !== "zero")
      return `along ${name} a step reaches ${reach} with border ${border}, where 1 and zero are needed`;
  const share = Math.ceil(swept.extent / schedule.threads);
  if (share % 2 !== 0) return `a thread has ${share} planes, an odd number`;
  if (linesOf(steps, schedule, 2).length === 0) return "registers do not hold what both read";
  return undefined;
}
