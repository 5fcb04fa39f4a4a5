/**
 * @file Sums split among blocks: parts that meet in the shared memories of a cluster or in a workspace equal the equation in adverse orders, by
 * the interpreter and on the emulated device; one barrier too few is found; nvcc takes both.
 */

import { describe, expect, it } from "vitest";
import { ADVERSE_ORDERS } from "../../abstraction/blocks/run.ts";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { type Expr, rewrite } from "../../abstraction/expression.ts";
import { parseExpr } from "../../abstraction/parse.ts";
import { rewriteStatement } from "../../abstraction/rewrite-statement.ts";
import { lowerGrid } from "../../mapper/lower/grid.ts";
import type { GridContext } from "../../mapper/schedule/grid-context.ts";
import { predictGrid } from "../../perfmodel/grid.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import {
  gridContextOf,
  MATMUL,
  matmulF16,
  mmaSchedule,
  reluConvolutionF16,
  verdict,
  wgmmaSchedule,
} from "../support/grid-kernels.ts";
import { playGrids } from "../support/grid-transcript.ts";

const MMA = mmaSchedule(32, 16, 16, { warps: { m: 2, n: 1 } });
const mma = "mma.m16n8k16.f32.f16";
const wgmma = "wgmma.m64n32k16.f32.f16";

const LARGE = gridContextOf(
  reluConvolutionF16("conv2d n=1 c=512 k=512 h=7 w=7 pad=1"),
  wgmma,
  "m <- k; n <- p,q; k <- c",
);

describe("a sum split among four blocks", () => playGrids("split"));

describe("partial sums of several blocks", () => {
  const computation = matmulF16(32, 16, 64);
  const context = gridContextOf(computation, mma, MATMUL);
  it("are not read from a block that may have ended", () => {
    const nest = lowerGrid(context, { ...MMA, split: { parts: 4, through: "cluster" } });
    const next = parseExpr("(split+1)%4");
    const pulled = (e: Expr): Expr =>
      e.kind === "access" && e.tensor === "parts" ? { ...e, index: [next, ...e.index.slice(1)] } : e;
    const body = nest.body.map((s) =>
      rewriteStatement(s, {
        index: (e) => e,
        element: (a) => a,
        arrival: (a) => a,
        value: (e) => rewrite(e, pulled),
      }),
    );
    for (const order of ADVERSE_ORDERS)
      expect(verdict({ nest: { ...nest, body }, computation }, order, 2)).toMatch(
        /missing: a barrier of the cluster: the block may have ended/,
      );
  });

  it("are predicted to pay where results are few and sums long, not where tiles fill the machine", () => {
    const seconds = (c: GridContext, schedule: GridSchedule): number =>
      predictGrid(c, schedule, nvidiaTarget("h100"))?.seconds ?? Number.POSITIVE_INFINITY;
    const fast = wgmmaSchedule(64, 64, 64, { stage: 4 });
    // Measured: 5.1 us for 17.8 (512 x 7 x 7), and 7.5 for 6.1 (1024 cubed).
    expect(seconds(LARGE, { ...fast, split: { parts: 8, through: "cluster" } })).toBeLessThan(seconds(LARGE, fast) / 2);
    const wide = gridContextOf(matmulF16(1024, 1024, 1024), "wgmma.m64n64k16.f32.f16", MATMUL);
    const quads: GridSchedule = { ...fast, tile: { m: 128, n: 64, k: 64 }, transfer: "engine", store: "quads" };
    const halves: GridSchedule = { ...quads, tile: { m: 128, n: 128, k: 64 }, store: "direct" };
    expect(seconds(wide, quads)).toBeLessThan(seconds(wide, { ...halves, split: { parts: 2, through: "cluster" } }));
  });
});
