/**
 * @file Windows of f16 on warps, two elements in a register: how they read, what is refused, what a search takes, and
 * results under emulation. Random ones stand in drawn-lanes.deep.test.ts ("windows as CUDA").
 */

import { describe, expect, it } from "vitest";
import type { WarpWindowSchedule } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { usableIntrinsics } from "../../session/kinds/choose.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { rankByModel } from "../../session/tune/rank.ts";
import { nvidiaTarget } from "../../targets/index.ts";
import { warpWindowSpace } from "../../tuner/lane-candidates.ts";
import { emulatedRunner } from "../support/emulated-runner.ts";
import { laneCase } from "../support/lane-cases.ts";
import { stated } from "../support/subjects.ts";

const H100 = nvidiaTarget("h100");
const { runner } = emulatedRunner();

const PAIRS: WarpWindowSchedule = {
  dataflow: "FBS-load",
  lanes: 32,
  rows: 1,
  vectors: 1,
  rolled: [],
  each: 2,
};
const kernelOf = (computation: Computation, changes: Partial<WarpWindowSchedule>) =>
  kernelFor(computation, { kind: "warp-window", intrinsic: "cuda.fma.f16", schedule: { ...PAIRS, ...changes } });

describe("windows of f16 on warps", () => {
  it("multiply and add pairs; those from odd columns are put together from two", () => {
    const line = stated("y[i] += x[i+r-1] * w[r] --i 128 --r 3 --dtype f16 --shape x=128 --constant w");
    const sums = `${kernelOf(line, { each: 4 }).source}`.split("\n").filter((text) => /^ +A\d = /.test(text));
    expect(sums.map((text) => text.trim())).toMatchInlineSnapshot(`
      [
        "A0 = multiplied_halves(joined_halves<0x5432>(X1, X2), spread_half(constants::w[0]));",
        "A1 = multiplied_halves(joined_halves<0x5432>(X2, X3), spread_half(constants::w[0]));",
        "A0 = fma_halves(X2, spread_half(constants::w[1]), A0);",
        "A1 = fma_halves(X3, spread_half(constants::w[1]), A1);",
        "A0 = fma_halves(joined_halves<0x5432>(X2, X3), spread_half(constants::w[2]), A0);",
        "A1 = fma_halves(joined_halves<0x5432>(X3, X4), spread_half(constants::w[2]), A1);",
      ]
    `);
  });

  it.each([
    ["filter 4", { each: 2, rows: 2 }],
    ["filter 5", { each: 8, sweep: 8, ahead: 2 }],
    ["3d13pt", { each: 4, rows: 2, sweep: 4 }],
  ] as const)("equal the equation in every element: %s", async (name, changes) => {
    const computation = laneCase(name, 24, 16, "f16");
    const reference = await runner().reference(computation, 1);
    const [measured] = await runner().measureTogether([kernelOf(computation, changes)], reference, {
      budgetSeconds: 0,
      batches: [1, 1],
    });
    expect(measured).toMatchObject({ status: "ok" });
  });

  it("are refused with one output a lane, and where a lane cannot move as many at once", () => {
    const computation = laneCase("filter 3", 32, 16, "f16");
    expect(() => kernelOf(computation, { each: undefined, sweep: 4 })).toThrow(/lanes of cuda compute f16 two by two/);
    expect(() => kernelOf(computation, { each: undefined, rows: 2 })).toThrow(/lanes of cuda compute f16 two by two/);
    expect(() => kernelOf(computation, { each: 16 })).toThrow(/moves 1, 2, 4, 8 elements at once, 16 bytes at most/);
  });

  it("are searched in a GPU's space, with two outputs a lane or more", () => {
    const space = warpWindowSpace(laneCase("filter 5", 8192, 512, "f16"), H100);
    if ("rule" in space) throw new Error(space.because);
    expect(new Set([...space.all()].map((s) => s.each))).toEqual(new Set([2, 4, 8]));
    const ranked = rankByModel(laneCase("filter 5", 8192, 512, "f16"), { machine: H100, kinds: "lanes", count: 1 });
    const [first] = "refused" in ranked ? [] : ranked;
    expect(first?.candidate).toMatchObject({ intrinsic: "cuda.fma.f16" });
    expect(usableIntrinsics(H100).map((i) => i.name)).not.toContain("cuda.fma.f16");
    expect(new Set(usableIntrinsics(H100).map((i) => i.language))).toEqual(new Set(["cuda"]));
  });
});
