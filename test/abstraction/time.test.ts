/**
 * @file Stencils in time: the candidates of a search. What they compute and which are refused is in test/golden/computations/time.txt; random
 * schedules are in drawn-lanes.deep.test.ts.
 */

import { describe, expect, it } from "vitest";
import type { StepSchedule } from "../../abstraction/candidate.ts";
import { type Computation, computationKey, defineComputation, equationText } from "../../abstraction/computation.ts";
import { isSteps, stepProblem, stepsOf } from "../../mapper/space-time/steps.ts";
import { predict } from "../../session/api.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { rankByModel } from "../../session/tune/rank.ts";
import { nativeTarget } from "../../targets/index.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import { REFERENCE_CPU } from "../../targets/x86.ts";
import { STEP_SCHEDULE } from "../support/drawn/steps.ts";
import { stated } from "../support/subjects.ts";

const HEAT = "u[t,i,j] = a*u[t-1,i,j] + b*(u[t-1,i-1,j] + u[t-1,i+1,j] + u[t-1,i,j-1] + u[t-1,i,j+1])";

const heat = ({ t = 3, i = 4, j = 5 } = {}, equation = HEAT): Computation =>
  stated(`${equation} --t ${t} --i ${i} --j ${j} --a 0.5 --b 0.125`);

describe("steps in time", () => {
  it("have planes as large as their axes", () => {
    const step = { equation: "u[t,i] = 0.5*u[t-1,i]", extents: { t: 3, i: 8 } };
    for (const tensors of [{ u: { dtype: "f32", shape: [10] } }, { u: "f32", u_0: { shape: [10] } }] as const)
      expect(() => defineComputation({ ...step, tensors })).toThrow("has the shape 10, but a step computes 8");
  });

  it("are read back from their own text", () => {
    const again = stated(`${equationText(heat())} --t 3 --i 4 --j 5`);
    expect(computationKey(again)).toBe(computationKey(heat()));
  });

  it("that depend on one another along the lanes are refused with the dependence", () => {
    const line = stated("u[t,i] = u[t-1,i-1] --t 4 --i 64");
    const steps = stepsOf(line);
    if (!isSteps(steps)) throw new Error(steps.because);
    expect(stepProblem(steps, STEP_SCHEDULE)).toBeUndefined();
    expect(stepProblem(steps, { ...STEP_SCHEDULE, depth: 2 })?.because).toMatchInlineSnapshot(
      `"schedule: 2 steps a pass need rows to follow one another: along the one axis of the plane lie the lanes, which the dependence (1,1) ties together"`,
    );
  });

  it("are refused with settings that they do not have, and in passes of too much code", () => {
    const steps = stepsOf(heat({ t: 100 }));
    if (!isSteps(steps)) throw new Error(steps.because);
    const settings: Partial<StepSchedule>[] = [{ rows: 2, depth: 2 }, { vectors: 0 }, { vectors: 1024, depth: 64 }];
    expect(settings.map((s) => stepProblem(steps, { ...STEP_SCHEDULE, ...s })?.because)).toMatchInlineSnapshot(`
      [
        "schedule: 2 rows of a block are of planes that follow one another: only a grid of three dimensions has such",
        "schedule: vectors must be a positive integer, got 0",
        "schedule: a pass would be written as 393216 operations, more than 16384",
      ]
    `);
  });

  it("are predicted to take time, and more of it where borders are clamped", () => {
    const candidate = {
      kind: "steps",
      intrinsic: "avx512.fma.f32",
      schedule: { ...STEP_SCHEDULE, lanes: 16 },
    } as const;
    const extents = { t: 100, i: 64, j: 64 };
    const computation = heat(extents);
    const seconds = (of: Computation): number => predict({ computation: of, candidate }, nativeTarget())?.seconds ?? 0;
    expect(seconds(computation)).toBeGreaterThan(0);
    // Columns at the ends of a row that is continued are done one by one.
    const continued = HEAT.replace("j-1]", "clamp(j-1)]").replace("j+1]", "clamp(j+1)]");
    expect(seconds(heat(extents, continued))).toBeGreaterThan(1.5 * seconds(computation));
  });

  it("are predicted to wait for memory and caches in turn, and for lines fetched to be overwritten", () => {
    const deep = (of: Computation, depth: number): number => {
      const schedule = { ...STEP_SCHEDULE, lanes: 16, vectors: 4, streaming: true, depth };
      return (
        predict({ computation: of, candidate: { kind: "steps", intrinsic: "avx512.fma.f32", schedule } }, REFERENCE_CPU)
          ?.seconds ?? 0
      );
    };
    const of = (sum: string): Computation =>
      stated(`u[t,i,j] = 0.5*u[t-1,i,j] + 0.125*(${sum}) --t 64 --i 8192 --j 8192`);
    const star = of("u[t-1,i-1,j] + u[t-1,i+1,j] + u[t-1,i,j-1] + u[t-1,i,j+1]");
    // As many reads, but nothing is written over what was read.
    const slanted = of("u[t-1,i-1,j-1] + u[t-1,i-1,j] + u[t-1,i+1,j-1] + u[t-1,i+1,j]");
    expect(deep(slanted, 8)).toBeGreaterThan(deep(star, 8));
    // Memory is passed over half as often: what is left besides the steps is halved, and the steps stay.
    const eight = deep(star, 8);
    const four = deep(star, 4);
    const two = deep(star, 2);
    expect((two - four) / (four - eight)).toBeCloseTo(2, 1);
  });

  it("are not found in recurrences without such a form", () => {
    expect(stated("y[t] = y[t-1] + x[t] --t 4").time).toBeUndefined();
  });
});

describe("rows of steps on vectors", () => {
  const stencil = (end: string): Computation =>
    stated(`u[t,i,j] = 0.5*u[t-1,i,j] + 0.25*(u[t-1,i,${end}(j-1)] + u[t-1,i-1,${end}(j+1)]) --t 3 --i 6 --j 70`);
  const textOf = (computation: Computation, changes: Partial<StepSchedule>): string =>
    `${
      kernelFor(computation, {
        kind: "steps",
        intrinsic: "avx512.fma.f32",
        schedule: { ...STEP_SCHEDULE, lanes: 16, ...changes },
      }).source
    }`;

  it("begin at cache lines, each stored once, with zeros around; clamped ones have separate columns", () => {
    const text = textOf(stencil(""), { streaming: true });
    // Without the first neighbour of the first lane; of the last six lanes without the last.
    expect(text).toContain("_mm512_maskz_loadu_ps(0x3f, ");
    expect(text).toContain("_mm512_maskz_loadu_ps(0x1f, ");
    expect(text).not.toContain("j_column");
    const ends = [...text.matchAll(/(?:stream_lanes\(|mask_storeu_ps\()u \+ .*?\* 70(?: \+ (\d+|\(j_block.*?\)))?, /g)];
    expect(new Set(ends.map(([, column]) => column ?? "0"))).toEqual(new Set(["0", "(j_block * 16 + 16)", "48", "64"]));
    expect(textOf(stencil("clamp"), { streaming: true })).toContain("j_column");
  });

  const plane = (sum: string): Computation => stated(`u[t,i,j] = 0.5*u[t-1,i,j] + 0.25*(${sum}) --t 8 --i 6 --j 128`);

  it("that are read at several columns are loaded into registers, each cache line once", () => {
    const text = textOf(plane("u[t-1,i,j-1] + u[t-1,i,j+1] + u[t-1,i-1,j] + u[t-1,i+1,j]"), { vectors: 2 });
    // The middle blocks load two vectors and one at either side, and the rows above and below.
    const block = text.slice(text.indexOf("j_block++"), text.indexOf("j_block++") + 2000);
    const inner = block.slice(0, block.indexOf("}"));
    expect(inner.match(/line0_\d = _mm512_loadu_ps/g)).toHaveLength(4);
    expect(inner.match(/_mm512_loadu_ps/g)).toHaveLength(8);
    expect(inner).toContain("lanes_from<15>(line0_1, line0_2)");
    expect(inner).toContain("lanes_from<1>(line0_2, line0_3)");
    // With one column nothing is shared; too many rows do not fit the registers.
    expect(textOf(plane("u[t-1,i-1,j-1] + u[t-1,i+1,j+1]"), { vectors: 2 })).not.toContain("line0_");
    const box = [-1, 0, 1].map((d) => `u[t-1,i${d < 0 ? d : `+${d}`},j-1] + u[t-1,i${d < 0 ? d : `+${d}`},j+1]`);
    expect(textOf(plane(box.join(" + ")), { vectors: 4 })).toContain("line2_");
    expect(textOf(plane(box.join(" + ")), { vectors: 8 })).not.toContain("line0_");
  });

  it("are written over rows no longer needed, where a stencil is a star", () => {
    const rowsOf = (sum: string): number => {
      const elements = /workspace rows: f32\[(\d+)\]/.exec(textOf(plane(sum), { depth: 4 }))?.[1];
      return Number(elements) / 144;
    };
    // Three steps: two rows of each are kept, and the newest.
    expect(rowsOf("u[t-1,i-1,j] + u[t-1,i+1,j]")).toBe(7);
    expect(rowsOf("u[t-1,i-1,j] + u[t-1,i+1,j+1]")).toBe(9);
    expect(rowsOf("u[t-1,i-1,j] + u[t-1,i,clamp(j+1)]")).toBe(9);
  });

  it("of the last step prefetch the row that the first step reads next, a line at a time", () => {
    const ask = /prefetch_from\(u_0, clamp_index\(row, 6\) \* 70.*?\)/g;
    const asked = (changes: Partial<StepSchedule>) => textOf(stencil(""), { vectors: 2, ...changes }).match(ask) ?? [];
    expect(asked({ depth: 1 })).toEqual([]);
    expect(asked({ depth: 3 })).toMatchInlineSnapshot(`
      [
        "prefetch_from(u_0, clamp_index(row, 6) * 70)",
        "prefetch_from(u_0, clamp_index(row, 6) * 70 + 16)",
        "prefetch_from(u_0, clamp_index(row, 6) * 70 + 32)",
        "prefetch_from(u_0, clamp_index(row, 6) * 70 + 48)",
        "prefetch_from(u_0, clamp_index(row, 6) * 70 + 64)",
      ]
    `);
  });
});

describe("a search of steps in time", () => {
  const machine = { ...nativeTarget(), isa: ["avx2", "fma", "avx512f"] };

  it("is refused with the reasons why lanes and plain loops cannot run them", () => {
    const line = stated("u[t,i] = 0.5*u[t-1,i-1] + 0.5*u[t-1,i+1] --t 4 --i 64");
    expect(rankByModel(line, { machine, threads: 2 })).toEqual({
      refused: [
        {
          rule: "lanes",
          because: "schedule: 2 threads share rows, and the plane has one axis, along which the lanes lie",
        },
        { rule: "loops", because: "no plain loops: it steps through time" },
      ],
    });
    expect(rankByModel(heat(), { machine: nvidiaTarget("v100") })).toEqual({
      refused: [
        { rule: "lanes", because: expect.stringContaining("no figures of the lanes of v100") },
        { rule: "loops", because: "no plain loops: it steps through time" },
      ],
    });
  });

  it("is refused as a recurrence where only mappings are asked for", () => {
    expect(rankByModel(heat(), { machine, kinds: "mappings" })).toMatchObject({
      refused: [{ rule: "recurrence" }, { rule: "loops" }],
    });
  });
});
