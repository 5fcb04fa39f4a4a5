/**
 * @file Steps in time that take two planes of a star together, the second a row behind the first; random ones stand in
 * drawn-lanes.deep.test.ts.
 */

import { describe, expect, it } from "vitest";
import type { StepSchedule } from "../../abstraction/candidate.ts";
import { type Computation, defineComputation } from "../../abstraction/computation.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { lowerSteps } from "../../mapper/space-time/lower-steps.ts";
import { registersOf as lineRegisters } from "../../mapper/space-time/step-lines.ts";
import { isSteps, stepProblem, stepsOf } from "../../mapper/space-time/steps.ts";
import { modelTarget } from "../../perfmodel/target.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { targetOf } from "../../targets/index.ts";
import { stepSpace } from "../../tuner/lane-candidates.ts";
import { smallInputs, wrongNest } from "../support/drawn/drawn.ts";
import { STEP_SCHEDULE } from "../support/drawn/steps.ts";
import { stated } from "../support/subjects.ts";

const SUM = "u[t-1,i-1,j,k] + u[t-1,i+1,j,k] + u[t-1,i,j-1,k] + u[t-1,i,j+1,k] + u[t-1,i,j,k-1] + u[t-1,i,j,k+1]";

const star = (extents: Record<string, number> = {}, sum = SUM): Computation =>
  defineComputation({
    equation: `u[t,i,j,k] = 2*u[t-1,i,j,k] + 3*u[t-1,i-1,j,k] + ${sum}`,
    extents: { t: 5, i: 6, j: 5, k: 11, ...extents },
    tensors: { u: "f32" },
  });

const TOGETHER: StepSchedule = { ...STEP_SCHEDULE, rows: 2, depth: 3 };

it("a line of registers has one more on each side only where it is read beyond its own columns", () => {
  const line = { rows: [0], reads: 2 };
  expect(lineRegisters({ ...line, columns: [0] }, 4)).toBe(4);
  expect(lineRegisters({ ...line, columns: [-1, 0] }, 4)).toBe(6);
});

it("a thread sweeps its share of the rows, and a row each side for every step between", () => {
  const rows = ({ threads, depth }: { threads: number; depth: number }): string | undefined =>
    /for row in 0\.\.(\d+)/.exec(
      printNest(lowerSteps(star({ i: 14, t: 4 }), { ...STEP_SCHEDULE, threads, depth })),
    )?.[1];
  expect(rows({ threads: 1, depth: 1 })).toBe("14");
  expect(rows({ threads: 3, depth: 1 })).toBe("5");
  expect(rows({ threads: 3, depth: 2 })).toBe("7");
});

it("steps along one axis alone equal the equation", () => {
  const computation = stated("u[t,i] = 2*u[t-1,i] + u[t-1,i-1] + 3*u[t-1,i+1] --t 5 --i 21");
  const inputs = smallInputs(computation, 7, 8);
  const nest = () => lowerSteps(computation, { ...STEP_SCHEDULE, depth: 1 });
  expect(wrongNest({ computation, inputs, nest })).toBeUndefined();
});

describe("two planes of a star computed together", () => {
  it.each<Partial<StepSchedule>>([
    { depth: 2 },
    { strip: 2 },
    { strip: 1, vectors: 2, depth: 4 },
    { threads: 3, depth: 5 },
  ])("equal the equation: %j", (changes) => {
    const computation = star();
    const inputs = smallInputs(computation, 7, 8);
    expect(wrongNest({ computation, inputs, nest: () => lowerSteps(computation, { ...TOGETHER, ...changes }) })).toBe(
      undefined,
    );
  });

  it("load once the rows that both read: two at three columns, two at one, and four for one plane", () => {
    const schedule = { ...TOGETHER, lanes: 16, vectors: 2, depth: 2 };
    const text = `${kernelFor(star({ k: 160 }, SUM), { kind: "steps", intrinsic: "avx512.fma.f32", schedule }).source}`;
    const blocks = text.split("k_block++").slice(1);
    const inner = blocks.map((block) => block.slice(0, block.indexOf("}"))).filter((block) => /line3_\d/.test(block));
    expect(inner.length).toBeGreaterThan(0);
    // 2 rows of 4 vectors, 2 of 2, and for each of the 4 outputs two rows of its own.
    for (const block of inner) expect(block.match(/_mm512_loadu_ps/g)).toHaveLength(2 * 4 + 2 * 2 + 4 * 2);
  });

  it("are expected to be faster than one plane at a time, and to lead a search of a large grid", () => {
    const target = modelTarget(targetOf({ name: "a test", isa: [], levels: [], source: "none" }));
    const space = stepSpace(star({ t: 24, i: 256, j: 512, k: 512 }, SUM), { threads: 1, target });
    if ("because" in space) throw new Error(space.because);
    const schedules = [...space.all()].filter(({ depth = 1 }) => depth > 1);
    const ratios = schedules
      .filter(({ rows }) => rows === 2)
      .map((s) => space.expectedSeconds(s) / space.expectedSeconds({ ...s, rows: 1 }));
    expect(ratios.length).toBeGreaterThan(100);
    expect(Math.max(...ratios)).toBeLessThan(1);
    // Four planes of the step before instead of six: where those come from outer caches, a third of the lines less.
    expect(Math.min(...ratios)).toBeGreaterThan(0.6);
    expect(Math.min(...ratios)).toBeLessThan(0.85);
    const best = schedules.reduce((a, b) => (space.expectedSeconds(b) < space.expectedSeconds(a) ? b : a));
    expect(best.rows).toBe(2);
  });

  it("are refused with the reason where this is impossible", () => {
    const reason = (computation: Computation, changes: Partial<StepSchedule> = {}): string | undefined => {
      const steps = stepsOf(computation);
      return isSteps(steps) ? stepProblem(steps, { ...TOGETHER, ...changes })?.because : steps.because;
    };
    expect(reason(star())).toBeUndefined();
    expect([
      reason(star(), { rows: 3 }),
      reason(star(), { depth: 1 }),
      reason(star({ i: 5 })),
      reason(star(), { threads: 2 }),
      reason(star({}, "u[t-1,i+1,j+1,k]")),
      reason(star({}, "u[t-1,i,j-1,k-1]")),
      reason(star({}, "u[t-1,i,j-2,k]")),
      reason(star({}, "u[t-1,i,clamp(j-1),k]")),
      reason(star(), { vectors: 16 }),
    ]).toMatchInlineSnapshot(`
      [
        "schedule: 3 rows of a block are of planes that follow one another: two can be done together, not 3",
        "schedule: 2 rows of a block are of planes that follow one another: one step a pass reads and writes memory, which gains nothing from it",
        "schedule: 2 rows of a block are of planes that follow one another: a thread has 5 planes, an odd number",
        "schedule: 2 rows of a block are of planes that follow one another: a thread has 3 planes, an odd number",
        "schedule: 2 rows of a block are of planes that follow one another: steps must be of a star, with zeros around the plane, to write over what they read",
        "schedule: 2 rows of a block are of planes that follow one another: steps must be of a star, with zeros around the plane, to write over what they read",
        "schedule: 2 rows of a block are of planes that follow one another: along j a step reaches 2 with border zero, where 1 and zero are needed",
        "schedule: 2 rows of a block are of planes that follow one another: along j a step reaches 1 with border clamp, where 1 and zero are needed",
        "schedule: 2 rows of a block are of planes that follow one another: registers do not hold what both read",
      ]
    `);
  });
});
