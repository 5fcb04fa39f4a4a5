/**
 * @file Sweeps of a GPU whose rows are fetched into the last cache ahead of their loads, and blocks of other numbers of warps: how they read, results
 * under emulation, what is refused, and what the model expects.
 */

import { describe, expect, it } from "vitest";
import type { WarpWindowSchedule } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { nvidiaTarget } from "../../targets/index.ts";
import { warpWindowSpace } from "../../tuner/lane-candidates.ts";
import { emulatedRunner } from "../support/emulated-runner.ts";
import { laneCase } from "../support/lane-cases.ts";

const { runner } = emulatedRunner();

const SWEEP: WarpWindowSchedule = {
  dataflow: "FBS-load",
  lanes: 32,
  rows: 2,
  vectors: 1,
  rolled: [],
  sweep: 4,
};
const kernelOf = (computation: Computation, changes: Partial<WarpWindowSchedule>, intrinsic = "cuda.fma.f64") =>
  kernelFor(computation, { kind: "warp-window", intrinsic, schedule: { ...SWEEP, ...changes } });

describe("rows fetched ahead of a sweep", () => {
  const star = laneCase("3d13pt", 16, 16, "f64");

  it("are those of the block itself, a line by one lane each, inside the grid", () => {
    const lines = `${kernelOf(star, { prefetchSteps: 3 }).source}`
      .split("\n")
      .filter((l) => l.includes("prefetch_line("));
    const inKernel = lines.map((l) => l.trim()).filter((l) => !l.startsWith("static"));
    expect(inKernel).toHaveLength(2);
    for (const line of inKernel)
      expect(line).toMatch(/^if \(lane % 16 == 0 && .*i_step.* < 16.*\) prefetch_line\(&\w+\[/);
    expect(`${kernelOf(star, {}).source}`).not.toContain("prefetch_line");
  });

  it.each([
    ["f64", "cuda.fma.f64", { prefetchSteps: 2, warps: 8 }],
    ["f32", "cuda.fma.f32", { prefetchSteps: 5, each: 2, ahead: 2, warps: 2 }],
    ["f16", "cuda.fma.f16", { prefetchSteps: 1, each: 4, warps: 1 }],
  ] as const)("change no element: %s", async (dtype, intrinsic, changes) => {
    const computation = laneCase("3d13pt", 16, 16, dtype);
    const [measured] = await runner().measureTogether(
      [kernelOf(computation, changes, intrinsic)],
      runner().reference(computation, 1),
      { budgetSeconds: 0, batches: [1, 1] },
    );
    expect(measured).toMatchObject({ status: "ok" });
  });

  it("are refused where nothing is swept, and with an instruction of a CPU", () => {
    expect(() => kernelOf(star, { prefetchSteps: 2, sweep: undefined, each: 2 })).toThrow("but nothing is swept");
    expect(() => kernelOf(star, {}, "avx512.fma.f64")).toThrow("the kind warp-window is of the warps of a GPU");
  });

  it("are expected to gain one step ahead, and to leave the cache again when far ahead", () => {
    const space = warpWindowSpace(laneCase("3d13pt", 8192, 512, "f64"), nvidiaTarget("h100"));
    if ("rule" in space) throw new Error(space.because);
    const usual = [...space.all()].filter((s) => s.sweep !== undefined && !s.prefetchSteps && !s.warps);
    const gains = usual.map((s) => space.expectedSeconds(s) / space.expectedSeconds({ ...s, prefetchSteps: 1 }));
    expect(Math.max(...gains)).toBeGreaterThan(1.01);
    const far = usual.map((s) => space.expectedSeconds(s) / space.expectedSeconds({ ...s, prefetchSteps: 4 }));
    expect(Math.min(...far)).toBeLessThan(0.9);
    expect([...space.all()].some((s) => s.prefetchSteps === 2 && s.warps === 8)).toBe(true);
  });
});
