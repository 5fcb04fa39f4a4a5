/**
 * @file Which stencils in time lanes can compute, and under which schedules.
 *
 *     u[t,i] = 0.5*u[t-1,i] + 0.5*u[t-1,i-1]      of f32: taken; on vectors of a CPU a pass takes one step
 *                                                 of f16: refused, lanes step in f32 and f64
 */

import { rowMajor } from "../../abstraction/affine.ts";
import type { StepSchedule, WarpStepSchedule } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { isInteger } from "../../abstraction/dtype.ts";
import { printExpr, walk } from "../../abstraction/expression.ts";
import { operationsOfStep } from "../../abstraction/time.ts";
import { MOST_WRITTEN } from "../schedule/lanes.ts";
import type { Steps } from "./plane.ts";
import { linesOf, overwrites } from "./step-lines.ts";
import { type LaneRefusal, refusal } from "./taps.ts";
import { warpProblem } from "./warp-tile.ts";

/** Rows, and planes of rows: more axes would need tiles of their own. */
const MOST_AXES = 3;

/** The steps of a computation, or why lanes cannot take them. */
export function stepsOf(computation: Computation): Steps | LaneRefusal {
  const { time, tensors } = computation;
  if (!time) return refusal("form", "nothing steps through time");
  const { axes, equation } = time.step;
  if (axes.length > MOST_AXES)
    return refusal("form", `a plane of ${axes.length} dimensions; lanes sweep up to ${MOST_AXES}`);
  const types = new Set(Object.values(tensors).map((t) => t.dtype));
  const [dtype] = types;
  if (types.size > 1) return refusal("type", `tensors of ${[...types].join(" and ")}; lanes compute in one type`);
  if (dtype !== "f32" && dtype !== "f64") return refusal("type", `lanes step in f32 and f64, not in ${dtype}`);
  const odd = [...walk(equation.value)].find(
    (e) => e.kind === "cast" || (e.kind === "binary" && e.op === "%" && isInteger(dtype)),
  );
  if (odd) return refusal("type", `${printExpr(odd)} is of another type; lanes compute in ${dtype} alone`);
  const far = Object.values(tensors).find((t) => printExpr(t.storage) !== printExpr(rowMajor(t.dims)));
  if (far) return refusal("layout", `${far.name} is not stored row by row`);
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

/** More steps of a pass make programs of thousands of lines. */
const MOST_DEPTH = 64;

const refuse = (because: string): LaneRefusal => ({ rule: "form", because: `schedule: ${because}` });

/** Why a schedule cannot run the steps on the vectors of a CPU; undefined when it can. */
export function stepProblem(steps: Steps, schedule: StepSchedule): LaneRefusal | undefined {
  const { axes, time } = steps;
  const { depth, lanes, vectors, rows, strip, threads } = schedule;
  const deep = depthProblem(steps, depth);
  if (deep) return deep;
  const forbids = time.dependences.find((v) => v.slice(1).some((d) => d !== 0)) ?? [];
  if (depth > 1 && axes.length === 1)
    return refuse(
      `${depth} steps a pass need rows to follow one another: along the one axis of the plane lie the lanes, which the dependence (${forbids.join(",")}) ties together`,
    );
  const wrong = countProblem({ lanes, vectors, rows, threads }) ?? lengthProblem(vectors * rows * depth, steps);
  if (wrong) return wrong;
  if (!Number.isSafeInteger(strip) || strip < 0) return refuse(`strip must be a number of rows or 0, got ${strip}`);
  const [swept] = axes.length > 1 ? axes : [];
  if (threads > 1 && !swept)
    return refuse(`${threads} threads share rows, and the plane has one axis, along which the lanes lie`);
  if (swept && threads > swept.extent)
    return refuse(`${threads} threads share the ${swept.extent} rows along ${swept.name}, and each needs one`);
  const apart = rows === 1 ? undefined : togetherProblem(steps, schedule);
  if (apart) return refuse(`${rows} rows of a block are of planes that follow one another: ${apart}`);
  if (strip !== 0 && axes.length < 3) return refuse("strips are of the rows of a grid of three dimensions");
  return undefined;
}

/** Why a schedule cannot run the steps on the lanes of warps; undefined when it can. */
export function warpStepProblem(steps: Steps, schedule: WarpStepSchedule): LaneRefusal | undefined {
  const { depth, lanes, rows } = schedule;
  const wrong = depthProblem(steps, depth) ?? countProblem({ lanes, rows }) ?? lengthProblem(depth, steps);
  if (wrong) return wrong;
  const because = warpProblem(steps, schedule);
  return because === undefined ? undefined : refuse(because);
}

function depthProblem({ time }: Steps, depth: number): LaneRefusal | undefined {
  if (!Number.isSafeInteger(depth) || depth < 1 || depth > MOST_DEPTH)
    return refuse(`a pass takes 1 to ${MOST_DEPTH} steps, got ${depth}`);
  return depth > time.steps ? refuse(`${depth} steps a pass, but there are ${time.steps}`) : undefined;
}

function countProblem(counts: Readonly<Record<string, number>>): LaneRefusal | undefined {
  const wrong = Object.entries(counts).find(([, value]) => !Number.isSafeInteger(value) || value < 1);
  return wrong && refuse(`${wrong[0]} must be a positive integer, got ${wrong[1]}`);
}

/** @param count steps of vectors that are written out */
function lengthProblem(count: number, { time }: Steps): LaneRefusal | undefined {
  const written = count * Math.max(1, operationsOfStep(time));
  if (written <= MOST_WRITTEN) return undefined;
  return refuse(`a pass would be written as ${written} operations, more than ${MOST_WRITTEN}`);
}

/** Why rows of two planes cannot be done together, the second a row behind the first. */
function togetherProblem(steps: Steps, schedule: StepSchedule): string | undefined {
  const [swept, tiled] = steps.axes;
  if (!swept || !tiled || steps.axes.length < 3) return "only a grid of three dimensions has such";
  if (schedule.rows !== 2) return `two can be done together, not ${schedule.rows}`;
  if (schedule.depth === 1) return "one step a pass reads and writes memory, which gains nothing from it";
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
