/**
 * @file Kernels of mappings in C for Metal: equal to their equations under an emulation that takes no more than the language does.
 */

import { describe, expect, it } from "vitest";
import { inFull } from "./support/slow.ts";
import { disagreements, kernelsOf, operator, rowsOf } from "./support/subgroup-kernels.ts";

const DEVICES = [
  ["dg2", "xe_hpg"],
  ["pvc", "xe_hpc"],
] as const;

/** Sizes of which none is a multiple of a tile. */
const COMPUTATIONS = [
  operator("matmul", "f16", { m: 21, n: 19, k: 37 }),
  operator("matmul", "u8s8", { m: 21, n: 19, k: 37 }, "y[m,n] = sat_u8(round(max(f32(out[m,n]) * 0.5, 0)))"),
  operator("batched-matmul", "bf16", { b: 2, m: 9, n: 17, k: 18 }),
  operator("conv1d", "f16", { c: 5, l: 23, k: 9, r: 3, pad: 2, dilation: 2 }),
  operator("conv2d", "s8", { c: 5, h: 7, w: 9, k: 9, r: 3, s: 3, pad: 1, stride: 2 }),
  operator("conv2d", "u8s8", { c: 4, h: 7, w: 9, k: 17, r: 3, s: 3, pad: 1 }),
];

describe.each(DEVICES)("thread groups of %s", (_, isa) => {
  it("equal the equation in random schedules", async () => {
    const made = COMPUTATIONS.flatMap((c) => kernelsOf(c, rowsOf(isa, "cm"), inFull(12, 2)));
    expect(await disagreements(made)).toEqual([]);
  }, 120_000);
});
