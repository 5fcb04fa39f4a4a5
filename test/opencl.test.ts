/**
 * @file Kernels in OpenCL C with Intel's matrix products: equal to their equations under emulation, and as Intel's offline compiler takes them,
 * with as many matrix products as their text issues and nothing spilled.
 */

import { describe, expect, it } from "vitest";
import { compileForIntel, findOcloc, promisedDpas } from "../runtime/ocloc.ts";
import { problemOf } from "../session/offline.ts";
import { disagreements, kernelsOf, operator, rowsOf } from "./support/opencl-kernels.ts";
import { inFull } from "./support/slow.ts";

const DEVICES = [
  ["dg2", "xe_hpg"],
  ["pvc", "xe_hpc"],
] as const;
const DRAWN = inFull(12, 2);

/** Sizes of which none is a multiple of a tile. */
const COMPUTATIONS = [
  operator("matmul", "f16", { m: 21, n: 19, k: 37 }),
  operator("matmul", "u8s8", { m: 21, n: 19, k: 37 }, "y[m,n] = sat_u8(round(max(f32(out[m,n]) * 0.5, 0)))"),
  operator("batched-matmul", "bf16", { b: 2, m: 9, n: 17, k: 18 }),
  operator("conv1d", "f16", { c: 5, l: 23, k: 9, r: 3, pad: 2, dilation: 2 }),
  operator("conv2d", "s8", { c: 5, h: 7, w: 9, k: 9, r: 3, s: 3, pad: 1, stride: 2 }),
  operator("conv2d", "u8s8", { c: 4, h: 7, w: 9, k: 17, r: 3, s: 3, pad: 1 }),
];

describe.each(DEVICES)("sub-groups of %s", (device, isa) => {
  it("equal the equation in random schedules", async () => {
    const made = COMPUTATIONS.flatMap((computation) => kernelsOf(computation, rowsOf(isa), DRAWN));
    expect(await disagreements(made)).toEqual([]);
  }, 120_000);

  it.skipIf(findOcloc() === undefined)(
    "are compiled by ocloc with the products of their text",
    async () => {
      const ocloc = findOcloc() ?? "";
      const made = COMPUTATIONS.slice(0, inFull(6, 2)).flatMap((c) => kernelsOf(c, rowsOf(isa), inFull(4, 1)));
      for (const { kernel } of made) {
        const built = await compileForIntel(kernel, device, ocloc);
        // A schedule that was drawn may spill; one that does not holds what it promises.
        expect(["compiled", "spilled"], "log" in built ? built.log : "").toContain(built.status);
        if (built.status === "compiled") expect(problemOf(kernel, built)).toBeUndefined();
        expect(Math.max(...promisedDpas(kernel).values())).toBeGreaterThan(0);
      }
    },
    120_000,
  );
});
