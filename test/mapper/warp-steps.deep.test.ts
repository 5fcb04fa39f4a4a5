/** @file Stencils in time on the lanes of warps: right as CUDA; random ones are in drawn-lanes.deep.test.ts. */

import { describe, expect, it } from "vitest";
import type { Candidate, WarpStepSchedule } from "../../abstraction/candidate.ts";
import { type Computation, defineComputation } from "../../abstraction/computation.ts";
import { isSteps, stepsOf, warpStepProblem } from "../../mapper/space-time/steps.ts";
import { warpStepSeconds } from "../../perfmodel/warp-steps.ts";
import { ADVERSE_ORDERS } from "../../runtime/emulated-kernel.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import { evaluateTogether, type Judged } from "../../tuner/evaluate.ts";
import { warpStepSpace } from "../../tuner/lane-candidates.ts";
import { smallInputs, wrongKernels } from "../support/drawn/drawn.ts";
import { STEP_SCHEDULE } from "../support/drawn/steps.ts";
import { emulatedRunner } from "../support/emulated-runner.ts";
import { fakeCuda } from "../support/fake-cuda.ts";
import { recordedKernels } from "../support/recorded-trials.ts";
import { sourceOf } from "../support/source.ts";
import { stated } from "../support/subjects.ts";

const ON_WARPS: WarpStepSchedule = { lanes: 32, rows: 1, depth: 1 };

const define = (equation: string, extents: Record<string, number>, dtype: "f32" | "f64"): Computation =>
  defineComputation({ equation, extents, tensors: { u: dtype } });

const HEAT = "u[t,i,j] = 0.5*u[t-1,i,j] + 0.125*(u[t-1,i-1,j] + u[t-1,i+1,j] + u[t-1,i,j-1] + u[t-1,i,j+1])";
const GRID =
  "u[t,i,j,k] = 0.25*u[t-1,i,j,k] + 0.125*(u[t-1,clamp(i-1),j,k] + u[t-1,clamp(i+1),j,k] + u[t-1,i,reflect(j-1),k] + u[t-1,i,reflect(j+1),k] + u[t-1,i,j,wrap(k-1)] + u[t-1,i,j,wrap(k+1)])";

const EMULATED: readonly (readonly [string, Computation, Partial<WarpStepSchedule>])[] = [
  ["a star, three steps a pass", stated(`${HEAT} --t 8 --i 37 --j 140 --dtype f64`), { depth: 3, each: 2, sweep: 16 }],
  ["a star, one step a pass", stated(`${HEAT} --t 4 --i 9 --j 200`), { each: 4, sweep: 8, ahead: 2 }],
  ["a grid with three borders", stated(`${GRID} --t 5 --i 7 --j 9 --k 72`), { depth: 2, each: 2, rows: 4, sweep: 4 }],
  ["a line", stated("u[t,i] = 0.5*u[t-1,reflect(i-1)] + 0.5*u[t-1,reflect(i+2)] --t 7 --i 133"), { depth: 3 }],
];

const { folder, runner } = emulatedRunner();

describe("schedules of steps on warps", () => {
  const problemOf = (computation: Computation, changes: Partial<WarpStepSchedule>): string | undefined => {
    const steps = stepsOf(computation);
    if (!isSteps(steps)) throw new Error(steps.because);
    return warpStepProblem(steps, { ...ON_WARPS, ...changes })?.because;
  };

  it("are refused with the reason", () => {
    const image = stated(`${HEAT} --t 100 --i 40 --j 66 --dtype f64`);
    const line = stated("u[t,i] = u[t-1,i-1] --t 100 --i 64");
    const settings: readonly (readonly [Computation, Partial<WarpStepSchedule>])[] = [
      [image, { depth: 16 }],
      [image, { each: 3 }],
      [image, { each: 4 }],
      [image, { sweep: 0 }],
      [image, { rows: 2 }],
      [image, { depth: 12, each: 2, ahead: 512 }],
      [line, { sweep: 4 }],
    ];
    expect(settings.map(([computation, changes]) => problemOf(computation, changes))).toMatchInlineSnapshot(`
      [
        "schedule: 32 lanes of 1 columns have no complete column left after 16 steps, which read 16 columns on either side",
        "schedule: a lane computes 1, 2, 4 adjacent columns, got 3",
        "schedule: 66 columns are not a multiple of the 4 that a lane computes at once",
        "schedule: sweep must be a positive integer, got 0",
        "schedule: 2 rows at once, but a two-dimensional plane has no axis between its rows and its columns",
        "schedule: a pass would be written as 221184 operations, more than 16384",
        "schedule: the plane has one axis, along which the lanes lie, so nothing is left to sweep",
      ]
    `);
    expect(problemOf(line, { depth: 8 })).toBeUndefined();
    // A read that clamps chooses among as many places as it is far away, along each axis.
    const reads = (border: string): string =>
      [-4, 0, 4].flatMap((i) => [-4, 0, 4].map((j) => `u[t-1,${border}(i+${i}),${border}(j+${j})]`)).join(" + ");
    const box = (border: string): Computation =>
      define(`u[t,i,j] = ${reads(border).replaceAll("+-", "-")}`, { t: 4, i: 70, j: 128 }, "f32");
    expect(problemOf(box("wrap"), { depth: 2, each: 2, ahead: 4 })).toBeUndefined();
    expect(problemOf(box("clamp"), { depth: 2, each: 2, ahead: 4 })).toBe(
      "schedule: a pass would be written as 17280 operations, more than 16384",
    );
    // One of each says what leaving it out says: such schedules have one key.
    expect(problemOf(line, { each: 1, ahead: 1 })).toBeUndefined();
  });

  it("are offered for every depth that fits the registers, several steps a pass first", () => {
    const space = warpStepSpace(stated(`${HEAT} --t 48 --i 8192 --j 8192 --dtype f64`), nvidiaTarget("h100"));
    if ("rule" in space) throw new Error(space.because);
    const all = [...space.all()].toSorted((a, b) => space.expectedSeconds(a) - space.expectedSeconds(b));
    expect(new Set(all.map((s) => s.depth))).toEqual(new Set([1, 2, 3, 4, 5, 6, 8, 10, 12, 16]));
    expect(all[0]?.depth).toBeGreaterThanOrEqual(6);
    const single = all.find((s) => s.depth === 1);
    // A pass reads and writes the plane once: 48 of them take 17 ms at 3 TB/s.
    expect(single && space.expectedSeconds(single)).toBeGreaterThan(0.015);
    expect(single && space.expectedSeconds(single)).toBeLessThan(0.022);
  });

  it("are refused on the vectors of a CPU, as are schedules of a CPU on warps", () => {
    const computation = stated(`${HEAT} --t 4 --i 8 --j 64`);
    const warps: Candidate = { kind: "warp-steps", intrinsic: "avx512.fma.f32", schedule: { ...ON_WARPS, lanes: 16 } };
    const vectors: Candidate = { kind: "steps", intrinsic: "cuda.fma.f32", schedule: { ...STEP_SCHEDULE, lanes: 32 } };
    expect(() => kernelFor(computation, warps)).toThrow(
      "the kind warp-steps is of the warps of a GPU, and avx512.fma.f32 an instruction of c++",
    );
    expect(() => kernelFor(computation, vectors)).toThrow(
      "the kind steps is of the vectors of a CPU, and cuda.fma.f32 an instruction of cuda",
    );
  });
});

describe("steps on warps", () => {
  it("are printed without branches around elements, with launch bounds from their registers", () => {
    const computation = stated(`${HEAT} --t 48 --i 8192 --j 8192 --dtype f64`);
    const schedule: WarpStepSchedule = { ...ON_WARPS, depth: 10, each: 2, sweep: 256, ahead: 3 };
    const { source } = kernelFor(computation, { kind: "warp-steps", intrinsic: "cuda.fma.f64", schedule });
    expect(source).toContain("__launch_bounds__(128, 3) phase_0(");
    expect(source).toContain("u1_4 = fma(0.125, u0_2 + u0_0 + side0 + u0_5, 0.5 * u0_4);");
    expect(source).toMatch(/ u1_4 = .* \? u1_4 : 0\.0\);/);
    // 48 steps in passes of 10: 8 first, then two rounds of two passes.
    expect(source).toContain("for (int round = 0; round < 2; round++) {");
    expect(source.match(/__global__/g)?.length).toBe(3);
  });

  it.each(EMULATED)("compute %s on threads of an emulated GPU", async (_, computation, changes) => {
    const kernel = kernelFor(computation, {
      kind: "warp-steps",
      intrinsic: "cuda.fma.f32",
      schedule: { ...ON_WARPS, ...changes },
    });
    const reference = await runner().reference(computation, 1);
    const measured = await runner().measureTogether([kernel], reference, { budgetSeconds: 0, batches: [1, 1] });
    expect(measured).toMatchObject([{ status: "ok" }]);
  });

  it("are found wrong where a pass writes the plane that its other warps read", async () => {
    const computation = stated(`${HEAT} --t 6 --i 40 --j 40`);
    const schedule: WarpStepSchedule = { ...ON_WARPS, depth: 2, sweep: 3 };
    const kernel = kernelFor(computation, { kind: "warp-steps", intrinsic: "cuda.fma.f32", schedule });
    const begins = /float\* (__restrict__ )?between\) \{/g;
    const inPlace = sourceOf(kernel.source.replace(begins, "$&\n  between = u;"));
    expect(inPlace).not.toBe(kernel.source);
    const inputs = smallInputs(computation, 1);
    const drawn = { status: "kernel", said: "in place", computation, inputs, orders: ADVERSE_ORDERS } as const;
    const wrong = await wrongKernels([
      { ...drawn, kernel },
      { ...drawn, kernel: { ...kernel, source: inPlace } },
    ]);
    expect(wrong).toEqual([undefined, expect.stringContaining("the equation gives")]);
  });

  it("are found wrong where they give zeros", async () => {
    const [, [, heat] = []] = EMULATED;
    if (!heat) throw new Error("no case");
    const zeros = stated("u[t,i,j] = 0*u[t-1,i,j] --t 4 --i 9 --j 200");
    const kernel = kernelFor(zeros, { kind: "warp-steps", intrinsic: "cuda.fma.f32", schedule: ON_WARPS });
    const measured = await runner().measureTogether([kernel], await runner().reference(heat, 1));
    expect(measured).toMatchObject([{ status: "wrong" }]);
  });

  it("cannot be verified where answers have decayed below their rounding: zeros do not pass", async () => {
    // Coefficients add up to 1, so the bound of rounding grows with the steps; zeros come in from both ends, and 2000 steps leave 1e-7 of the plane.
    const extents = { t: 2000, i: 16 };
    const decaying = define("u[t,i] = 0.5*u[t-1,i] + 0.25*(u[t-1,i-1] + u[t-1,i+1])", extents, "f32");
    const zeros = define("u[t,i] = 0*u[t-1,i]", extents, "f32");
    const schedule = { ...ON_WARPS, depth: 8 };
    const candidate = { kind: "warp-steps", intrinsic: "cuda.fma.f32", schedule } as const;
    for (const kernel of [kernelFor(zeros, candidate), kernelFor(decaying, candidate)])
      await expect(runner().measureTogether([kernel], await runner().reference(decaying, 1))).rejects.toThrow(
        "kernels of 2000 steps cannot be verified: rounding may differ by as much as the answers do",
      );
    const { commandLine } = fakeCuda(folder);
    const subject =
      '"u[t,i] = 0.5*u[t-1,i] + 0.25*(u[t-1,i-1] + u[t-1,i+1])" --t 2000 --i 16 --dtype f32 --target cuda';
    const tuned = await commandLine(`tune ${subject} --trials 2 --time 60 --db ${folder}/decayed.db`);
    expect(tuned.code).toBe(2);
    expect(tuned.err).toContain("kernels of 2000 steps cannot be verified");
  });

  it("have no reference on a device where rounding has no bound, and the reason is given", async () => {
    const reference = (equation: string, tensors: Record<string, "f32">, t = 4) =>
      runner().reference(defineComputation({ equation, extents: { t, i: 9, j: 8 }, tensors }), 1);
    await expect(reference("u[t,i,j] = c[i,j]*u[t-1,i,j]", { u: "f32", c: "f32" })).rejects.toThrow(
      "it reads c beside the plane",
    );
    await expect(reference("u[t,i,j] = u[t-1,i,j]*u[t-1,i-1,j]", { u: "f32" })).rejects.toThrow(
      "differences of planes multiply one another",
    );
    await expect(reference("u[t,i,j] = 2*u[t-1,i,j] - u[t-1,i-1,j]", { u: "f32" }, 40)).rejects.toThrow(
      "wrong results would pass: take fewer steps",
    );
  });

  it("are searched, recorded and replayed for a GPU", async () => {
    const { commandLine } = fakeCuda(folder);
    const subject = `"${HEAT}" --t 5 --i 16 --j 64 --dtype f32 --target cuda`;
    const tuned = await commandLine(`tune ${subject} --trials 3 --time 300 --db ${folder}/t.db --json`);
    expect(tuned.code, tuned.err).toBe(0);
    expect(JSON.parse(tuned.out).best.intrinsic).toBe("cuda.fma.f32");
    const replayed = await commandLine(`replay --db ${folder}/t.db --json`);
    expect(replayed.code, replayed.err).toBe(0);
  });
});

describe("the model of steps on warps", () => {
  it("ranks 72 kernels measured on an H100, to which none of its constants was fitted", () => {
    const groups = new Map<string, Judged[]>();
    const recorded = recordedKernels("bench/trials/cuda-steps-h100.jsonl.gz", "warp-steps");
    for (const { name, computation, schedule, seconds } of recorded) {
      const steps = stepsOf(computation);
      if (!isSteps(steps)) throw new Error(steps.because);
      const predicted = warpStepSeconds(steps, schedule, nvidiaTarget("h100"));
      groups.set(name, [...(groups.get(name) ?? []), { predicted, measured: seconds }]);
    }
    const { count, pairwise = 0, recall = 0 } = evaluateTogether([...groups.values()]);
    expect(count).toBe(72);
    expect(pairwise).toBeGreaterThan(0.86);
    expect(recall).toBeGreaterThan(0.78);
  });
});
