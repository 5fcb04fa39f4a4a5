/**
 * @file Inputs copied ahead with the summed axis innermost: copies and products equal the equation in adverse orders, by the interpreter and on the
 * emulated device; what cannot be copied is refused with a sentence; nvcc takes both kernels.
 */

import { describe, expect, it } from "vitest";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import type { Statement } from "../../abstraction/loop-nest.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { lowerGrid } from "../../mapper/lower/grid.ts";
import { GRID } from "../../mapper/schedule/grid.ts";
import type { GridContext } from "../../mapper/schedule/grid-context.ts";
import { repackings } from "../../mapper/schedule/repack.ts";
import { drawSchedule } from "../../mapper/schedule/schedules.ts";
import { predictGrid } from "../../perfmodel/grid.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import { convolutionF16, gridContextOf, mmaSchedule, verdict, withoutStatements } from "../support/grid-kernels.ts";
import { playGrids } from "../support/grid-transcript.ts";

const wgmma = "wgmma.m64n16k16.f32.f16";

function fail(): never {
  throw new Error("no such subject");
}

describe("inputs copied ahead of the kernel", () => {
  playGrids("repack");

  it("are awaited, as are their tiles: a missing barrier is found", () => {
    const schedule = mmaSchedule(32, 16, 16, { repack: ["a", "b"], warps: { m: 2, n: 1 } });
    const context = gridContextOf(
      convolutionF16("conv2d n=1 c=16 k=32 h=8 w=8 stride=2", false),
      "mma.m16n8k16.f32.f16",
      "m <- k; n <- n,p,q; k <- c",
    );
    const { computation } = context.mapping;
    const nest = lowerGrid(context, schedule);
    const [copies = fail(), ...others] = nest.body;
    const run = (body: readonly Statement[]) => verdict({ nest: { ...nest, body }, computation });
    expect(run([copies, ...others.filter((s) => s.kind !== "barrier")])).toMatch(
      /_packed\[.*is read before what writes it has ended.*missing: a barrier of the (whole call|block)/s,
    );
    const apart = withoutStatements({ ...nest, body: [copies] }, (s) => s.kind === "barrier").body;
    expect(run([...apart, ...others])).toMatch(
      /_turned\[.*is read before what writes it has ended.*missing: a barrier of the block/s,
    );
  });
});

describe("a copy of an input ahead of the kernel", () => {
  const layer = (more = "", last = false) =>
    gridContextOf(convolutionF16(`conv2d n=16 c=64 k=64 h=56 w=56 ${more}`, last), wgmma, "m <- k; n <- n,p,q; k <- c");

  it("is offered only where it makes pieces wider: not for tensors with channels innermost", () => {
    expect(repackings(layer())).toEqual([undefined, ["a"], ["b"], ["a", "b"]]);
    expect(repackings(layer("", true))).toEqual([undefined]);
    expect(repackings(layer("c=3"))).toEqual([undefined]);
    // Weights of one pixel lie along the channels.
    expect(repackings(layer("r=1 s=1 stride=2 pad=0"))).toEqual([undefined, ["b"]]);
  });

  it("is drawn, and chosen for a large layer, but not where its launch costs more than it saves", () => {
    const random = seededRandom(1);
    const best = (context: GridContext): GridSchedule | undefined => {
      const drawn = Array.from({ length: 300 }, () => drawSchedule(GRID, context, random)).filter(
        (s) => s !== undefined,
      );
      expect(new Set(drawn.map((s) => s.repack?.join()))).toEqual(new Set(repackings(context).map((r) => r?.join())));
      const seconds = (s: GridSchedule): number => predictGrid(context, s, nvidiaTarget("h100"))?.seconds ?? 1;
      return drawn.toSorted((a, b) => seconds(a) - seconds(b))[0];
    };
    expect(best(layer())?.repack).toEqual(["a", "b"]);
    expect(best(layer("n=1 h=14 w=14 r=1 s=1 stride=2 pad=0"))?.repack).toBeUndefined();
  });
});
