/**
 * @file Random stencils in time and schedules for them, for the interpreter and for compiled kernels.
 */

import type { StepSchedule, WarpStepSchedule } from "../../../abstraction/candidate.ts";
import { type Computation, computationKey, defineComputation } from "../../../abstraction/computation.ts";
import type { LoopNest } from "../../../abstraction/loop-nest.ts";
import { pick, type Random, randomInteger } from "../../../abstraction/random.ts";
import { lowerSteps, lowerWarpSteps } from "../../../mapper/space-time/lower-steps.ts";
import type { Steps } from "../../../mapper/space-time/plane.ts";
import { isSteps, stepProblem, stepsOf, warpStepProblem } from "../../../mapper/space-time/steps.ts";
import type { LaneRefusal } from "../../../mapper/space-time/taps.ts";
import { ADVERSE_ORDERS } from "../../../runtime/emulated-kernel.ts";
import { kernelFor } from "../../../session/kinds/kernel.ts";
import { type Drawn, type DrawnKind, smallInputs } from "./drawn.ts";

export const STEP_SCHEDULE: StepSchedule = {
  lanes: 4,
  rows: 1,
  vectors: 1,
  streaming: false,
  strip: 0,
  depth: 1,
  threads: 1,
};

const BORDERS = ["zero", "clamp", "reflect", "wrap"] as const;
const AXES = ["i", "j", "k"] as const;

/** A stencil of one to three dimensions and borders; sometimes with stored coefficients, a maximum or a condition. */
export function randomStencil(random: Random): Computation {
  const rank = pick(random, [1, 2, 2, 2, 3, 3]);
  const axes = AXES.slice(0, rank);
  const extents = Object.fromEntries(axes.map((a, d) => [a, randomInteger(random, 1, d === rank - 1 ? 21 : 9)]));
  const reach = axes.map((a) => Math.min(extents[a] ?? 1, pick(random, [0, 1, 1, 2, 3])));
  const borders = axes.map(() => pick(random, BORDERS));
  const reads = Array.from({ length: randomInteger(random, 1, 5) }, () => {
    const index = axes.map((name, d) => {
      const shift = randomInteger(random, -(reach[d] ?? 0), reach[d] ?? 0);
      const text = shift === 0 ? name : `${name}${shift > 0 ? "+" : ""}${shift}`;
      return shift === 0 || borders[d] === "zero" ? text : `${borders[d]}(${text})`;
    });
    return `u[t-1,${index.join(",")}]`;
  });
  const factor = (): string =>
    pick(random, ["0.5", "a", "2", ...(rank > 1 ? [`c[${axes.join(",")}]`, `c[${axes.join(",")}]`] : [])]);
  const terms = reads.map((read) => `${factor()}*${read}`);
  const forms = [
    terms.join(" + "),
    terms.join(" - "),
    `max(${reads[0]}, ${terms.join(" + ")})`,
    `select(${axes[0]} == 0, ${reads[0]}, ${terms.join(" + ")})`,
    `select(${axes.at(-1)} >= 2, ${terms.join(" + ")}, ${reads[0]})`,
  ];
  const equation = `u[t,${axes.join(",")}] = ${pick(random, forms)}`;
  const tensors = equation.includes("c[") ? { u: "f32", c: "f32" } : { u: "f32" };
  const constants = equation.includes("a*") ? { a: 0.25 } : {};
  return defineComputation({
    equation,
    extents: { t: randomInteger(random, 1, 7), ...extents, ...constants },
    tensors: tensors as Record<string, "f32">, // of either literal
  });
}

/** A schedule that some stencils can run, with few lanes, so that small planes have several blocks. */
function anySchedule(random: Random): StepSchedule {
  return {
    ...STEP_SCHEDULE,
    lanes: pick(random, [2, 4]),
    vectors: pick(random, [1, 2]),
    strip: pick(random, [0, 0, 1, 2, 3]),
    depth: randomInteger(random, 1, 5),
    threads: pick(random, [1, 1, 2, 3]),
  };
}

const STAR = [
  "[t-1,i-1,j,k]",
  "[t-1,i+1,j,k]",
  "[t-1,i,j-1,k]",
  "[t-1,i,j+1,k]",
  "[t-1,i,j,k-1]",
  "[t-1,i,j,k+1]",
] as const;

/** A 3-D star with some of its arms, and a schedule that computes two planes together. */
function drawPlanes(random: Random): readonly Drawn[] {
  const arms = STAR.filter((_, i) => i < 3 || random() < 0.8);
  const equation = `u[t,i,j,k] = 0.5*u[t-1,i,j,k] + ${arms.map((arm, i) => `${i + 1}*u${arm}`).join(" + ")}`;
  const extents = { i: randomInteger(random, 1, 9), j: randomInteger(random, 1, 9), k: randomInteger(random, 1, 21) };
  const computation = defineComputation({
    equation,
    extents: { t: randomInteger(random, 2, 7), ...extents },
    tensors: { u: "f32" },
  });
  return drawOf(random, computation, { ...anySchedule(random), rows: 2, depth: randomInteger(random, 2, 5) }, VECTORS);
}

/** A random schedule for warps, with several tiles and chunks. */
function anyWarpSchedule(random: Random, lanes: readonly number[] = [4, 8, 32]): WarpStepSchedule {
  const each = pick(random, [1, 1, 2, 4]);
  const sweep = randomInteger(random, 1, 5);
  const ahead = randomInteger(random, 1, 3);
  return {
    lanes: pick(random, lanes),
    rows: pick(random, [1, 2, 3]),
    ...(each > 1 && { each }),
    ...(random() < 0.8 && { sweep }),
    ...(random() < 0.5 && { ahead }),
    depth: randomInteger(random, 1, 5),
  };
}

interface Way<S> {
  readonly problem: (steps: Steps, schedule: S) => LaneRefusal | undefined;
  readonly lower: (computation: Computation, schedule: S) => LoopNest;
}
const VECTORS: Way<StepSchedule> = { problem: stepProblem, lower: lowerSteps };
const WARPS: Way<WarpStepSchedule> = { problem: warpStepProblem, lower: lowerWarpSteps };

/** The reason a schedule cannot run a stencil, if any. */
function problemOf<S>(computation: Computation, schedule: S, { problem }: Way<S>): string | undefined {
  const steps = stepsOf(computation);
  return isSteps(steps) ? problem(steps, schedule)?.because : steps.because;
}

function fitting(computation: Computation, draw: () => StepSchedule): StepSchedule {
  for (let tries = 0; tries < 10_000; tries++) {
    const schedule = draw();
    if (problemOf(computation, schedule, VECTORS) === undefined) return schedule;
  }
  throw new Error(`no schedule of ${computationKey(computation)}`);
}

export const randomSchedule = (computation: Computation, random: Random): StepSchedule =>
  fitting(computation, () => anySchedule(random));

function draw<S>(random: Random, schedule: S, way: Way<S>): readonly Drawn[] {
  return drawOf(random, randomStencil(random), schedule, way);
}

function drawOf<S>(random: Random, computation: Computation, schedule: S, way: Way<S>): readonly Drawn[] {
  const because = problemOf(computation, schedule, way);
  if (because !== undefined) return [{ status: "refused", because }];
  const said = `${computationKey(computation)} by ${JSON.stringify(schedule)}`;
  const inputs = smallInputs(computation, randomInteger(random, 1, 1e9), 8);
  return [{ status: "nest", said, computation, inputs, nest: () => way.lower(computation, schedule) }];
}

function drawKernel(random: Random): readonly Drawn[] {
  const schedule = anyWarpSchedule(random, [32]);
  return draw(random, schedule, WARPS).map((drawn): Drawn => {
    if (drawn.status !== "nest") return drawn;
    const { computation, nest: _, ...rest } = drawn;
    const kernel = kernelFor(computation, { kind: "warp-steps", intrinsic: "cuda.fma.f32", schedule });
    return { ...rest, status: "kernel", computation, kernel, orders: ADVERSE_ORDERS };
  });
}

export const STEPS: DrawnKind = {
  name: "stencils in time on vectors",
  share: 140,
  draw: (r) => draw(r, anySchedule(r), VECTORS),
};
export const PLANE_STEPS: DrawnKind = {
  name: "stencils in time on vectors, two planes together",
  share: 20,
  draw: drawPlanes,
};
export const WARP_STEPS: DrawnKind = {
  name: "stencils in time on warps",
  share: 110,
  draw: (r) => draw(r, anyWarpSchedule(r), WARPS),
};
export const WARP_STEP_KERNELS: DrawnKind = {
  name: "stencils in time as CUDA, six orders of threads",
  share: 10,
  draw: drawKernel,
};
