/** @file A schedule of blocks and warps descends under a cost, one decision after another, to where no single decision lowers it. */

import { describe, expect, it } from "vitest";
import { GRID, gridProblem } from "../../mapper/schedule/grid.ts";
import { descendedSchedule } from "../../mapper/schedule/schedules.ts";
import { predictGrid } from "../../perfmodel/grid.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import { gridContextOf, MATMUL, matmulF16, wgmmaSchedule } from "../support/grid-kernels.ts";

const machine = nvidiaTarget("h200");

describe("the descent of a schedule under the model", () => {
  const context = gridContextOf(matmulF16(3000, 3000, 3000), "wgmma.m64n192k16.f32.f16", MATMUL);
  const begun = wgmmaSchedule(64, 192, 32, { store: "quads" });
  const cost = (schedule: typeof begun): number | undefined => predictGrid(context, schedule, machine)?.seconds;
  const found = descendedSchedule(GRID, context, begun, cost);

  it("ends at a legal one of three warpgroups, whose tile of 192 rows needs more of them", () => {
    expect(gridProblem(context, found)).toBeUndefined();
    expect(found).toMatchObject({ tile: { m: 192, n: 192 }, warps: { m: 3, n: 1 } });
  });

  it("ends where no stage, order or way to store is expected to be faster", () => {
    const seconds = cost(found) ?? Number.NaN;
    expect(seconds).toBeLessThan(0.8 * (cost(begun) ?? Number.NaN));
    const others = [
      ...[1, 2, 3, 4, 5, 6, 7, 8].map((stage) => ({ ...found, stage })),
      ...[1, 2, 4, 8, 16].map((order) => ({ ...found, order })),
      ...(["quads", "direct", "staged", "bulk"] as const).map((store) => ({ ...found, store })),
    ].filter((other) => gridProblem(context, other) === undefined);
    expect(others.length).toBeGreaterThan(6);
    for (const other of others) expect(cost(other)).toBeGreaterThanOrEqual(seconds);
  });
});
