/**
 * @file Stencils in time compiled and run: the reference equals the interpreter, and lane kernels are right in every
 * element.
 */

import { afterAll, describe, expect, it } from "vitest";
import type { StepSchedule } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { readProcessor } from "../../runtime/processor.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { expectInterpreted } from "../support/compiled-reference.ts";
import { smallInputs } from "../support/drawn/drawn.ts";
import { randomSchedule, randomStencil, STEP_SCHEDULE } from "../support/drawn/steps.ts";
import { runnerHere } from "../support/here.ts";
import { inFull } from "../support/slow.ts";
import { stated } from "../support/subjects.ts";

const AVX512 = readProcessor().features.includes("avx512dq");
const runner = await runnerHere({ threads: 1, budgetSeconds: 0.002, batches: [1, 2] });
afterAll(() => runner.close());

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
  const kernelOf = (computation: Computation, schedule: StepSchedule): Kernel =>
    kernelFor(computation, { kind: "steps", intrinsic: "avx512.fma.f32", schedule });
  const expectRight = async (computation: Computation, schedule: StepSchedule, on = runner): Promise<void> => {
    const measured = await on.measure(kernelOf(computation, schedule), await on.reference(computation, 1));
    expect(measured.status, "log" in measured ? measured.log : "").toBe("ok");
  };

  it("are computed by two threads that share the rows, pass by pass", async () => {
    const two = await runnerHere({ threads: 2, budgetSeconds: 0.002, batches: [1, 2] });
    try {
      for (const [, computation, changes] of CASES.slice(inFull(0, 2), 3))
        await expectRight(computation, { ...STEP_SCHEDULE, lanes: 16, ...changes, threads: 2 }, two);
    } finally {
      two.close();
    }
  });

  it.each(CASES)("compute %s", async (_, computation, changes) => {
    await expectRight(computation, { ...STEP_SCHEDULE, lanes: 16, ...changes });
  });

  it("are found wrong when they give zeros after a hundred steps with cancelling terms", async () => {
    const heat = stated(
      "u[t,i,j] = u[t-1,i,j] + 0.125*(u[t-1,i-1,j] + u[t-1,i+1,j] + u[t-1,i,j-1] + u[t-1,i,j+1] - 4*u[t-1,i,j]) --t 100 --i 40 --j 70",
    );
    await expectRight(heat, { ...STEP_SCHEDULE, lanes: 16 });
    const zeros = stated("u[t,i,j] = 0*u[t-1,i,j] --t 100 --i 40 --j 70");
    const kernel = kernelOf(zeros, { ...STEP_SCHEDULE, lanes: 16 });
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
