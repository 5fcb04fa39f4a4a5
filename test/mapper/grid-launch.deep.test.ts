/**
 * @file Kernels of a call that are launched while the one ahead runs: each says when the next may begin and awaits the end of the one it reads from;
 * results are the equation's; what cannot be launched so is refused.
 */

import { describe, expect, it } from "vitest";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { GRID } from "../../mapper/schedule/grid.ts";
import type { GridContext } from "../../mapper/schedule/grid-context.ts";
import { drawSchedule } from "../../mapper/schedule/schedules.ts";
import { generateOnGpu } from "../../session/kinds/gpu-kinds.ts";
import { convolutionF16, gridContextOf, gridKernelOf, wgmmaSchedule } from "../support/grid-kernels.ts";
import { playGrids } from "../support/grid-transcript.ts";

const contextOf = (words: string) =>
  gridContextOf(convolutionF16(`conv2d ${words}`, false), "wgmma.m64n16k16.f32.f16", "m <- k; n <- n,p,q; k <- c");
const LAYER = "n=2 c=128 k=64 h=4 w=5";
const context = contextOf(LAYER);
const COPIES = wgmmaSchedule(64, 16, 64, { transfer: "engine", repack: ["a", "b"] });
/** Copies of inputs, products, sums of their parts. */
const THREE: GridSchedule = { ...COPIES, split: { parts: 2, through: "memory" }, launch: "early" };
const CLUSTER: GridSchedule = { ...COPIES, split: { parts: 2, through: "cluster" }, launch: "early" };

const sourceOf = (schedule: GridSchedule, chained = false): string =>
  gridKernelOf({ context, schedule }, chained).source;

describe("kernels launched while the kernel ahead runs", () => {
  playGrids("launch");

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
    const waits = (at: GridContext, schedule: GridSchedule): boolean =>
      generateOnGpu({ kind: "grid", context: at, schedule }, { chained: true }).source.includes("await_kernel_ahead");
    expect(waits(context, COPIES)).toBe(false);
    const plain: GridSchedule = { ...COPIES, repack: ["b"] };
    expect(waits(contextOf(`${LAYER} r=1 s=1 pad=0`), plain)).toBe(true);
    const adding = (other: string): GridContext =>
      gridContextOf(
        convolutionF16(`conv2d ${LAYER} r=1 s=1 pad=0`, false, `f16(sum + f32(${other}))`),
        "wgmma.m64n16k16.f32.f16",
        "m <- k; n <- n,p,q; k <- c",
      );
    // Another value of the network may be what the kernel ahead writes.
    expect(waits(adding("x[n,k,p,q]"), plain)).toBe(false);
  });

  it("are drawn only for calls of several kernels", () => {
    const random = seededRandom(5);
    const drawn = Array.from({ length: 60 }, () => drawSchedule(GRID, context, random));
    const several = drawn.filter((s) => s?.repack !== undefined || s?.split?.through === "memory");
    expect(new Set(several.map((s) => s?.launch))).toEqual(new Set([undefined, "early"]));
    expect(drawn.filter((s) => s?.launch && !several.includes(s))).toEqual([]);
  });
});
