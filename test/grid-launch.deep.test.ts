/**
 * @file Kernels of a call that are launched while the one ahead runs: each says when the next may begin and awaits the end of the one it reads from;
 * results are the equation's; what cannot be launched so is refused.
 */

import { describe, expect, it } from "vitest";
import { ADVERSE_ORDERS } from "../abstraction/blocks/run.ts";
import type { GridSchedule } from "../abstraction/candidate.ts";
import { seededRandom } from "../abstraction/random.ts";
import { generateCuda } from "../codegen/cuda.ts";
import { lowerGrid } from "../mapper/lower/grid.ts";
import { GRID, gridProblem } from "../mapper/schedule/grid.ts";
import { drawSchedule } from "../mapper/schedule/schedules.ts";
import { predictGrid } from "../perfmodel/grid.ts";
import { generateOnGpu } from "../session/grid-space.ts";
import { nvidiaTarget } from "../targets/nvidia.ts";
import {
  convolutionF16,
  expectCompiled,
  expectRightEmulated,
  expectRightInterpreted,
  gridContextOf,
  NVCC,
} from "./support/grid-kernels.ts";

const HOPPER = nvidiaTarget("h100");
const context = gridContextOf(
  convolutionF16("conv2d", { n: 2, c: 128, k: 64, h: 4, w: 5 }, false),
  "wgmma.m64n16k16.f32.f16",
  "m <- k; n <- n,p,q; k <- c",
);
const plain: GridSchedule = {
  tile: { m: 64, n: 16, k: 64 },
  warps: { m: 1, n: 1 },
  stage: 3,
  swizzle: "spans",
  transfer: "engine",
  order: 1,
  fragments: "across",
  store: "direct",
};
const COPIES: GridSchedule = { ...plain, repack: ["a", "b"] };
/** Copies of inputs, products, sums of their parts. */
const THREE: GridSchedule = { ...COPIES, split: { parts: 2, through: "memory" }, launch: "early" };
const CLUSTER: GridSchedule = { ...COPIES, split: { parts: 2, through: "cluster" }, launch: "early" };

const sourceOf = (schedule: GridSchedule, chained = false): string =>
  generateCuda(context.mapping.computation, context.intrinsic, lowerGrid(context, schedule), { lines: [], chained })
    .source;

describe("kernels launched while the kernel ahead runs", () => {
  it.each([
    ["three kernels", THREE],
    ["blocks in clusters", CLUSTER],
  ])("equal the equation: %s", async (name, schedule) => {
    expectRightInterpreted({ context, schedule }, ADVERSE_ORDERS.slice(0, 1));
    await expectRightEmulated([{ name, context, schedule }]);
  });

  it("let the next kernel begin at once, and await the one ahead before they read or write", () => {
    const source = sourceOf(THREE);
    const kernels = source.split("static __global__ ").slice(1);
    const told = kernels.map((text) =>
      (text.split("\n}\n")[0] ?? "")
        .match(/begin_next_kernel|await_kernel_ahead|copy_box|_packed\[|parts\[/g)
        ?.slice(0, 3),
    );
    expect(told.map((calls) => calls?.slice(0, 2))).toEqual([
      ["begin_next_kernel", "_packed["],
      ["begin_next_kernel", "await_kernel_ahead"],
      ["await_kernel_ahead", "parts["],
    ]);
    expect(source.match(/cudaLaunchKernel\(phase_\d|launch_with\(phase_\d, \d, \d/g)).toEqual([
      "cudaLaunchKernel(phase_0",
      "launch_with(phase_1, 1, 1",
      "launch_with(phase_2, 1, 1",
    ]);
    expect(sourceOf(CLUSTER)).toContain("launch_with(phase_1, 2, 1");
    expect(sourceOf(COPIES)).not.toMatch(/begin_next_kernel|await_kernel_ahead|launch_with/);
  });

  it("are all those of a chained call, which read other kernels' results as memory that changes", () => {
    const { launch: _, ...late } = THREE;
    const source = sourceOf(late, true);
    const kernels = source.split("static __global__ ").slice(1);
    expect(kernels).toHaveLength(3);
    for (const text of kernels) {
      const body = text.split("\n}\n")[0] ?? "";
      expect(body.match(/begin_next_kernel|await_kernel_ahead/g)).toEqual(["begin_next_kernel", "await_kernel_ahead"]);
      const [ahead = ""] = body.split("await_kernel_ahead");
      expect(ahead).not.toMatch(/copy_box|_packed\[|parts\[/);
      // Reads of memory that nobody writes may be moved ahead of the wait by the compiler.
      expect(body.match(/const \w+\* __restrict__ \w+/g) ?? []).not.toContainEqual(expect.stringMatching(/ in$/));
    }
    expect(source.match(/launch_with\(phase_\d, 1, 1/g)).toHaveLength(3);
    expect(sourceOf(late)).not.toMatch(/begin_next_kernel/);
    expect(sourceOf(late)).toMatch(/const \w+\* __restrict__ in\b/);
  });

  it("are all steps of a network except products over a window, which this makes slower", () => {
    const pointwise = gridContextOf(
      convolutionF16("conv2d", { n: 2, c: 128, k: 64, h: 4, w: 5, r: 1, s: 1, pad: 0 }, false),
      "wgmma.m64n16k16.f32.f16",
      "m <- k; n <- n,p,q; k <- c",
    );
    const waits = (at: typeof context, schedule: GridSchedule): boolean =>
      generateOnGpu({ kind: "grid", context: at, schedule }, { chained: true }).source.includes("await_kernel_ahead");
    expect([waits(context, COPIES), waits(pointwise, { ...COPIES, repack: ["b"] })]).toEqual([false, true]);
  });

  it("are predicted to end earlier", () => {
    const [early, late] = [THREE, { ...THREE, launch: undefined }].map((s) => predictGrid(context, s, HOPPER)?.seconds);
    expect(early).toBeLessThan(late ?? 0);
  });

  it("are drawn only for calls of several kernels", () => {
    const random = seededRandom(5);
    const drawn = Array.from({ length: 60 }, () => drawSchedule(GRID, context, random));
    const several = drawn.filter((s) => s?.repack !== undefined || s?.split?.through === "memory");
    expect(new Set(several.map((s) => s?.launch))).toEqual(new Set([undefined, "early"]));
    expect(drawn.filter((s) => s?.launch && !several.includes(s))).toEqual([]);
  });

  it("are refused for a call of one kernel, and for machines without such launches", () => {
    expect(gridProblem(context, { ...plain, transfer: "plain", launch: "early" })).toBe(
      "the call is one kernel, which awaits no other",
    );
    const ampere = gridContextOf(
      convolutionF16("conv2d", { n: 1, c: 16, k: 32, h: 8, w: 8 }, false),
      "mma.m16n8k16.f32.f16",
      "m <- k; n <- n,p,q; k <- c",
      nvidiaTarget("a100"),
    );
    const schedule: GridSchedule = {
      repack: ["a", "b"],
      tile: { m: 32, n: 16, k: 16 },
      warps: { m: 2, n: 1 },
      stage: 2,
      swizzle: "swizzled",
      transfer: "async",
      order: 1,
      fragments: "inline",
      store: "direct",
    };
    expect(gridProblem(ampere, schedule)).toBeUndefined();
    expect(gridProblem(ampere, { ...schedule, launch: "early" })).toBe(
      "a kernel of the machine begins when the one ahead has ended",
    );
  });

  it.skipIf(!NVCC)("are compiled by nvcc", { timeout: 120_000 }, async () => {
    await expectCompiled({ name: "three kernels", context, schedule: THREE });
  });
});
