/**
 * @file The interaction of a recommendation model on blocks and warps: joined inputs, a packed triangle, an input
 * beside it.
 */

import { describe, expect, it } from "vitest";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { type Computation, defineComputation } from "../../abstraction/computation.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { generateCuda } from "../../codegen/cuda/cuda.ts";
import { lowerGrid } from "../../mapper/lower/grid.ts";
import { GRID } from "../../mapper/schedule/grid.ts";
import type { GridContext } from "../../mapper/schedule/grid-context.ts";
import { drawSchedule } from "../../mapper/schedule/schedules.ts";
import {
  expectCompiled,
  expectRightEmulated,
  expectRightInterpreted,
  gridContextOf,
  mmaSchedule,
  NVCC,
  ordersInTurn,
} from "../support/grid-kernels.ts";
import { inFull } from "../support/slow.ts";

type Half = "f16" | "bf16";

const interaction = (dtype: Half, { b, vectors, k }: { b: number; vectors: number; k: number }): Computation =>
  defineComputation({
    equation: "c[b,i,j] += f32(e[b,i,k]) * f32(select(j == 0, d[b,k], e[b,j-1,k]))",
    epilogue: `z[b,i*(i+1)/2+j+${k}] = ${dtype}(c[b,i,j]) where j <= i, z[b,k] = d[b,k]`,
    extents: { b, i: vectors - 1, j: vectors - 1, k },
    tensors: { d: dtype, e: dtype },
  });

const onWarps = (dtype: Half, size: { b: number; vectors: number; k: number }, matching = "m <- i; n <- j; k <- k") =>
  gridContextOf(interaction(dtype, size), `mma.m16n8k16.f32.${dtype}`, matching);

const PLAIN = mmaSchedule(32, 32, 32);
const TILES: GridSchedule = { ...PLAIN, tile: { m: 16, n: 16, k: 16 }, transfer: "plain", stage: 1, store: "staged" };

const sourceOf = (context: GridContext, schedule: GridSchedule): string =>
  generateCuda(context.mapping.computation, context.intrinsic, lowerGrid(context, schedule), { lines: [] }).source;

const drawn = (context: GridContext, count: number, seed: number): GridSchedule[] => {
  const random = seededRandom(seed);
  return Array.from({ length: count }, () => drawSchedule(GRID, context, random)).filter((s) => s !== undefined);
};

describe("a packed epilogue on blocks and warps", () => {
  it("moves joined vectors sixteen bytes at once, from either input", () => {
    const context = onWarps("bf16", { b: 3, vectors: 27, k: 64 });
    expect(context.inputs.map((i) => [i.contiguous, i.width, i.asyncWidth])).toEqual([
      ["sum", 8, 8],
      ["sum", 8, 8],
    ]);
    const source = sourceOf(context, PLAIN);
    expect(source).toMatch(
      /if \(thread \/ 4 == 0\) \{\n\s*copy_async<16>\(&b_ring\[b_ring_to\], &d\[d_from\]\);\n\s*\} else \{/,
    );
    // None of the rows from the ninth on is the first.
    expect(source).toContain("copy_async<16>(&b_ring[b_ring_to + 256], &e[e_from + 448]);");
  });

  it("issues no product without a stored result", () => {
    const context = onWarps("bf16", { b: 1, vectors: 27, k: 32 });
    const issued = (schedule: GridSchedule): number => sourceOf(context, schedule).match(/^ +mma_\w+\(/gm)?.length ?? 0;
    // Of 2 x 4 tiles, those of columns 16..31 in rows 0..15 are left out: 6 in each of 2 parts of the sum.
    expect(issued(PLAIN)).toBe(12);
    expect(printNest(lowerGrid(context, PLAIN))).toMatch(/when 32\*n_tile\+32\*n_warp\+8\*n_fragment <= /);
    // Warps that differ in what they store test it.
    expect(sourceOf(context, { ...PLAIN, warps: { m: 2, n: 1 } })).toMatch(
      /if \(.* <= 16 \* m_warp \+ 15\) \{\n +mma_/,
    );
  });

  it.each(["m <- i; n <- j; k <- k", "m <- j; n <- i; k <- k"])("equals the equation: %s", (matching) => {
    for (const [n, size] of [
      { b: 2, vectors: 27, k: 32 },
      { b: 1, vectors: 40, k: 48 },
      { b: 3, vectors: 2, k: 10 },
    ].entries()) {
      const context = onWarps(n === 1 ? "f16" : "bf16", size, matching);
      for (const schedule of [PLAIN, TILES, ...drawn(context, inFull(20, 2), 7 + n)])
        expectRightInterpreted({ context, schedule }, ordersInTurn(n));
    }
  });

  it("equals the equation under emulation", async () => {
    const context = onWarps("bf16", { b: 2, vectors: 27, k: 32 });
    const schedules = [PLAIN, TILES, ...drawn(context, inFull(12, 2), 3)];
    await expectRightEmulated(schedules.map((schedule, i) => ({ name: `schedule ${i}`, context, schedule })));
  });

  it.skipIf(NVCC === undefined)("is compiled by nvcc", async () => {
    const context = onWarps("bf16", { b: 32768, vectors: 27, k: 128 });
    await expectCompiled({
      name: "interaction",
      context,
      schedule: { ...PLAIN, tile: { m: 32, n: 32, k: 128 }, stage: 1 },
    });
  });
});
