/**
 * @file Stencils in time compiled and run: the reference equals the interpreter, and lane kernels are right in every
 * element.
 */

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { StepSchedule } from "../../abstraction/candidate.ts";
import { type Computation, defineComputation } from "../../abstraction/computation.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { createRunner, type Runner } from "../../runtime/measure.ts";
import { readProcessor } from "../../runtime/processor.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { expectInterpreted } from "../support/compiled-reference.ts";
import { smallInputs } from "../support/drawn/drawn.ts";
import { randomSchedule, randomStencil, STEP_SCHEDULE } from "../support/drawn/steps.ts";
import { inFull } from "../support/slow.ts";
import { stated } from "../support/subjects.ts";

const AVX512 = readProcessor().features.includes("avx512dq");
let runner: Runner;

beforeAll(async () => {
  const made = await createRunner({ threads: 1, budgetSeconds: 0.002, batches: [1, 2] });
  if (made.status !== "ready") throw new Error(made.what);
  runner = made.runner;
});
afterAll(() => runner.close());

const define = (equation: string, extents: Record<string, number>, dtype: "f32" | "f64" = "f32"): Computation =>
  defineComputation({ equation, extents, tensors: equation.includes("c[") ? { u: dtype, c: dtype } : { u: dtype } });

const CUBE =
  "u[t,i,j,k] = 0.25*u[t-1,i,j,k] + 0.125*(u[t-1,clamp(i-1),j,k] + u[t-1,clamp(i+1),j,k] + u[t-1,i,reflect(j-1),k] + u[t-1,i,reflect(j+1),k] + u[t-1,i,j,wrap(k-1)] + u[t-1,i,j,wrap(k+1)])";

const CASES: readonly (readonly [string, Computation, Partial<StepSchedule>])[] = [
  [
    "a star of one step a pass, streamed",
    stated(
      "u[t,i,j] = 0.5*u[t-1,i,j] + 0.125*(u[t-1,i-1,j] + u[t-1,i+1,j] + u[t-1,i,j-1] + u[t-1,i,j+1]) --t 5 --i 19 --j 67",
    ),
    { streaming: true },
  ],
  [
    "a wide star, three steps a pass, and coefficients in memory",
    stated("u[t,i,j] = 0.5*u[t-1,i,j] + c[i,j]*(u[t-1,wrap(i-2),j] - u[t-1,wrap(i+1),j]) --t 7 --i 19 --j 67"),
    { depth: 3, vectors: 2 },
  ],
  [
    "a grid with three borders, in strips",
    stated(`${CUBE} --t 5 --i 9 --j 21 --k 40 --dtype f64`),
    { lanes: 8, depth: 2, strip: 8 },
  ],
  [
    "a star whose steps are written over what they alone still need",
    stated(
      "u[t,i,j,k] = 0.4*u[t-1,i,j,k]\n        + 0.1*(u[t-1,i-1,j,k] + u[t-1,i+1,j,k] + u[t-1,i,j-1,k] + u[t-1,i,j+1,k] + u[t-1,i,j,k-1] + u[t-1,i,j,k+1]) --t 8 --i 14 --j 21 --k 70",
    ),
    { depth: 4, strip: 8, vectors: 2, streaming: true },
  ],
  ["a line", stated("u[t,i] = max(u[t-1,reflect(i-1)], 0.5*u[t-1,reflect(i+2)]) --t 4 --i 133"), { vectors: 2 }],
];

describe("the reference of a stencil in time", () => {
  it("equals the interpreter, whatever the borders", async () => {
    const random = seededRandom(5);
    await expectInterpreted(runner, inFull(60, 3), (i) => {
      const computation = randomStencil(random);
      return [computation, smallInputs(computation, i)];
    });
  });
});

describe.skipIf(!AVX512)("stencils in time on AVX-512 (skipped where the processor has none)", () => {
  const expectRight = async (computation: Computation, schedule: StepSchedule): Promise<void> => {
    const kernel = kernelFor(computation, { kind: "steps", intrinsic: "avx512.fma.f32", schedule });
    const measured = await runner.measure(kernel, await runner.reference(computation, 1));
    expect(measured.status, "log" in measured ? measured.log : "").toBe("ok");
  };

  it("are computed by two threads that share the rows, pass by pass", async () => {
    const made = await createRunner({ threads: 2, budgetSeconds: 0.002, batches: [1, 2] });
    if (made.status !== "ready") throw new Error(made.what);
    try {
      for (const [name, computation, changes] of CASES.slice(inFull(0, 2), 3)) {
        const schedule = { ...STEP_SCHEDULE, lanes: 16, ...changes, threads: 2 };
        const kernel = kernelFor(computation, { kind: "steps", intrinsic: "avx512.fma.f32", schedule });
        const measured = await made.runner.measure(kernel, await made.runner.reference(computation, 1));
        expect(measured.status, "log" in measured ? `${name}: ${measured.log}` : "").toBe("ok");
      }
    } finally {
      made.runner.close();
    }
  });

  it.each(CASES)("compute %s", async (_, computation, changes) => {
    await expectRight(computation, { ...STEP_SCHEDULE, lanes: 16, ...changes });
  });

  it("are found wrong when they give zeros after a hundred steps with cancelling terms", async () => {
    const extents = { t: 100, i: 40, j: 70 };
    const heat = define(
      "u[t,i,j] = u[t-1,i,j] + 0.125*(u[t-1,i-1,j] + u[t-1,i+1,j] + u[t-1,i,j-1] + u[t-1,i,j+1] - 4*u[t-1,i,j])",
      extents,
    );
    await expectRight(heat, { ...STEP_SCHEDULE, lanes: 16 });
    const zeros = define("u[t,i,j] = 0*u[t-1,i,j]", extents);
    const schedule = { ...STEP_SCHEDULE, lanes: 16 };
    const kernel = kernelFor(zeros, { kind: "steps", intrinsic: "avx512.fma.f32", schedule });
    expect((await runner.measure(kernel, await runner.reference(heat, 1))).status).toBe("wrong");
  });

  it("are right for random stencils under random schedules", async () => {
    const random = seededRandom(11);
    for (let i = 0; i < inFull(60, 3); i++) {
      const computation = randomStencil(random);
      await expectRight(computation, { ...randomSchedule(computation, random), lanes: 16 });
    }
  });
});
