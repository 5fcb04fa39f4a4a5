/**
 * @file Stencils in time drawn at random, and schedules of them: for the interpreter, and for compiled kernels.
 */

import type { LaneSchedule } from "../../abstraction/candidate.ts";
import { type Computation, defineComputation, elementCount, inputsOf } from "../../abstraction/computation.ts";
import { pick, type Random, randomInteger, seededRandom } from "../../abstraction/random.ts";
import { isSteps, stepProblem, stepsOf } from "../../mapper/space-time/steps.ts";

export const STEP_SCHEDULE: LaneSchedule = {
  ...{ dataflow: "FBS-load", lanes: 4, rows: 1, vectors: 1, rolled: [], weights: "memory", streaming: false },
  ...{ prefetchBytes: 0, borders: "peeled", strip: 0, depth: 1, threads: 1 },
};

/** Small integers, so that products are exact. */
export function smallInputs(computation: Computation, seed: number): Record<string, Float64Array> {
  const random = seededRandom(seed);
  return Object.fromEntries(
    inputsOf(computation).map((t) => [
      t.name,
      Float64Array.from({ length: elementCount(t) }, () => randomInteger(random, -8, 8)),
    ]),
  );
}

const BORDERS = ["zero", "clamp", "reflect", "wrap"] as const;
const AXES = ["i", "j", "k"] as const;

/** A stencil of one to three dimensions, each with a border of its own; now and then with coefficients from memory, a maximum, a condition. */
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

export function randomSchedule(computation: Computation, random: Random): LaneSchedule {
  const steps = stepsOf(computation);
  if (!isSteps(steps)) throw new Error(steps.because);
  for (;;) {
    const schedule: LaneSchedule = {
      ...STEP_SCHEDULE,
      lanes: pick(random, [2, 4]),
      vectors: pick(random, [1, 2]),
      strip: pick(random, [0, 0, 1, 2, 3]),
      depth: randomInteger(random, 1, 5),
      threads: pick(random, [1, 1, 2, 3]),
    };
    if (stepProblem(steps, schedule) === undefined) return schedule;
  }
}

/** A schedule for warps, of few lanes, so that small planes have several tiles and chunks. */
export function randomWarpSchedule(computation: Computation, random: Random): LaneSchedule {
  const steps = stepsOf(computation);
  if (!isSteps(steps)) throw new Error(steps.because);
  for (;;) {
    const [each, sweep, ahead] = [pick(random, [1, 1, 2, 4]), randomInteger(random, 1, 5), randomInteger(random, 1, 3)];
    const schedule: LaneSchedule = {
      ...STEP_SCHEDULE,
      ...{ borders: "guarded", lanes: pick(random, [4, 8, 32]), rows: pick(random, [1, 2, 3]) },
      ...(each > 1 && { each }),
      ...(random() < 0.8 && { sweep }),
      ...(random() < 0.5 && { ahead }),
      depth: randomInteger(random, 1, 5),
    };
    if (stepProblem(steps, schedule) === undefined) return schedule;
  }
}
