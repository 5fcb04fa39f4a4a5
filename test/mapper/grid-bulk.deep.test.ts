/**
 * @file Results that the copy engine stores: they equal the equation in adverse orders, by the interpreter and on the emulated device, also where tiles
 * reach beyond the ends; each missing fence, wait and barrier is found; nvcc takes them.
 */

import { describe, expect, it } from "vitest";
import { rowMajor } from "../../abstraction/affine.ts";
import type { LoopNest, Statement } from "../../abstraction/loop-nest.ts";
import { generateCuda } from "../../codegen/cuda/cuda.ts";
import { lowerGrid } from "../../mapper/lower/grid.ts";
import {
  expectCompiled,
  gridContextOf,
  gridSubject,
  itEqualsTheEquation,
  MATMUL,
  matmulF16,
  NVCC,
  refusals,
  reluConvolutionF16,
  verdict,
  wgmmaSchedule,
  withoutStatements,
} from "../support/grid-kernels.ts";
import { stated } from "../support/subjects.ts";

const wgmma = "wgmma.m64n32k16.f32.f16";
const TALL = matmulF16(192, 64, 64);
const context = gridContextOf(TALL, wgmma, MATMUL);
const BULK = wgmmaSchedule(64, 32, 32, { store: "bulk", transfer: "engine" });
const IN_TURN = { ...BULK, persistent: 4 } as const;
const PRODUCED = { ...BULK, tile: { m: 128, n: 64, k: 32 }, warps: { m: 2, n: 1 }, producer: "warp" } as const;
const CLIPPED = gridContextOf(matmulF16(150, 72, 40), wgmma, MATMUL);
const BESIDE = gridContextOf(
  stated(
    "sum[m,n] += f32(a[m,k]) * f32(b[k,n]) --m 70 --n 96 --k 32 --dtype a=f16,b=f16,other=s16,out=s16 --epilogue out[m,n] = sat_s16(sum[m,n] + f32(other[m,n])) --constant b",
  ),
  wgmma,
  MATMUL,
);

describe("results that the copy engine stores", () => {
  itEqualsTheEquation([
    gridSubject("a tile a block", context, BULK),
    gridSubject("tiles taken in turn", context, IN_TURN),
    gridSubject("beside a producer, beyond the ends", CLIPPED, { ...PRODUCED, persistent: 1 }),
    gridSubject("beyond the ends", CLIPPED, { ...BULK, persistent: 4 }),
    gridSubject("another input beside the sums, beyond the ends", BESIDE, { ...BULK, persistent: 3 }),
    gridSubject(
      "a convolution's pixels, an odd number of matrices",
      gridContextOf(
        reluConvolutionF16("conv2d n=2 c=16 k=24 h=8 w=8 pad=1"),
        "wgmma.m64n24k16.f32.f16",
        "m <- n,p,q; n <- k; k <- c",
      ),
      wgmmaSchedule(64, 24, 16, { stage: 4, store: "bulk", transfer: "engine" }),
    ),
  ]);

  it("need the fence, the wait and the barriers", () => {
    const nest = lowerGrid(context, IN_TURN);
    const without = (leave: (s: Statement) => boolean): string =>
      verdict({ nest: withoutStatements(nest, leave), computation: TALL });
    expect(without(() => false)).toBe("right");
    expect(without((s) => s.kind === "fence" && s.on === "memory")).toMatch(/does not see what was written/);
    expect(without((s) => s.kind === "settle")).toMatch(/may still read it[\s\S]*a wait for the store/);
    expect(without((s) => s.kind === "barrier" && s.group === "warpgroup")).toMatch(
      /missing: a barrier of the warpgroup/,
    );
  });

  it("lie as boxes do, or nothing is printed", () => {
    const nest = lowerGrid(context, BULK);
    const scratch = nest.scratch.map((s) => (s.name === "results" ? { ...s, storage: rowMajor(s.dims ?? []) } : s));
    const print = (other: LoopNest): unknown =>
      generateCuda(TALL, context.intrinsic, other, { lines: [], chained: false });
    expect(() => print(nest)).not.toThrow();
    expect(() => print({ ...nest, scratch })).toThrow();
  });

  it("are refused with the reason", () => {
    expect(
      refusals(context, BULK, [{ transfer: "async" }, { split: { parts: 2, through: "memory" } }]),
    ).toMatchInlineSnapshot(`
      "transfer async: a copy engine that stores results also fetches inputs
      split parts 2,through memory: lanes store split sums"
    `);
  });

  it.skipIf(!NVCC)("are taken by nvcc", async () => {
    await expectCompiled(gridSubject("in turn", context, IN_TURN));
  });
});
