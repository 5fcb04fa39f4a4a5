/** @file Factors chosen by comparing elements are staged for Tensor Cores like others. */

import { describe, expect, it } from "vitest";
import type { GridSchedule } from "../abstraction/candidate.ts";
import { defineComputation } from "../abstraction/computation.ts";
import { gridProblem } from "../mapper/schedule/grid.ts";
import { expectRightEmulated, expectRightInterpreted, gridContextOf, ordersInTurn } from "./support/grid-kernels.ts";

const larger = defineComputation({
  equation: "c[m,n] += f32(select(a[m,k] > b[m,k], a[m,k], b[m,k])) * f32(w[k,n])",
  extents: { m: 20, n: 13, k: 40 },
  tensors: { a: "f16", b: "f16", w: "f16", c: "f32" },
});

const schedule: GridSchedule = {
  tile: { m: 16, n: 8, k: 16 },
  warps: { m: 1, n: 1 },
  stage: 2,
  swizzle: "padded",
  transfer: "plain",
  order: 1,
  fragments: "inline",
  store: "direct",
};

describe("the larger of two elements as a factor", () => {
  const context = gridContextOf(larger, "mma.m16n8k16.f32.f16", "m <- m; n <- n; k <- k");

  it("gives the equation's result in each order of threads", () => {
    expectRightInterpreted({ context, schedule }, ordersInTurn(0));
  });

  it("is right on the emulated device", async () => {
    expect(gridProblem(context, schedule)).toBeUndefined();
    await expectRightEmulated([{ name: "larger", context, schedule }]);
  });
});
