/**
 * @file One thread that sends for tiles while warpgroups multiply: equal to the equation in adverse orders, by the interpreter and on the emulated
 * device, with tiles in turn, sums split among blocks, windows of taps and every way to store; nvcc takes it.
 */

import { describe, expect, it } from "vitest";
import type { GridSchedule } from "../abstraction/candidate.ts";
import type { Computation } from "../abstraction/computation.ts";
import { printNest } from "../abstraction/print-nest.ts";
import { lowerGrid } from "../mapper/lower/grid.ts";
import { GRID, gridProblem } from "../mapper/schedule/grid.ts";
import type { GridContext } from "../mapper/schedule/grid-context.ts";
import { scheduleDistance } from "../mapper/schedule/schedules.ts";
import { parseDataTypes } from "../operators/data-types.ts";
import { operatorNamed } from "../operators/index.ts";
import { instantiate } from "../operators/operator.ts";
import { predictGrid } from "../perfmodel/grid.ts";
import { nvidiaTarget } from "../targets/nvidia.ts";
import {
  convolutionF16,
  expectCompiled,
  expectRightEmulated,
  expectRightInterpreted,
  gridContextOf,
  NVCC,
  ordersInTurn,
} from "./support/grid-kernels.ts";
import { inFull } from "./support/slow.ts";

const HOPPER = nvidiaTarget("h100");
const MATMUL = "m <- m; n <- n; k <- k";

const product = (m: number, n: number, k: number): Computation =>
  instantiate(operatorNamed("matmul"), {
    parameters: { m, n, k },
    types: parseDataTypes("f16"),
    epilogue: "c[m,n] = f16(out[m,n])",
  });

const BASE: GridSchedule = {
  tile: { m: 128, n: 32, k: 32 },
  warps: { m: 2, n: 1 },
  stage: 3,
  swizzle: "spans",
  transfer: "engine",
  producer: "warp",
  order: 1,
  fragments: "across",
  store: "quads",
};
const wgmma = "wgmma.m64n32k16.f32.f16";
const TALL = gridContextOf(product(384, 64, 160), wgmma, MATMUL);
const WINDOW = gridContextOf(
  convolutionF16("conv2d", { n: 1, c: 192, k: 64, h: 5, w: 5, r: 3, s: 3, pad: 1 }),
  "wgmma.m64n32k16.f32.f16",
  "m <- k; n <- p,q; k <- c",
);
const TAPS: GridSchedule = {
  ...BASE,
  tile: { m: 64, n: 32, k: 64 },
  warps: { m: 1, n: 1 },
  taps: "shifted",
  store: "direct",
};

/** Three slices of a window through two places of it; parts of a sum; six tiles for four blocks. */
const CASES: readonly (readonly [string, GridContext, GridSchedule])[] = [
  ["two warpgroups", TALL, BASE],
  ["products awaited in their step, two stages", TALL, { ...BASE, fragments: "inline", stage: 2, store: "staged" }],
  ["tiles in turn", TALL, { ...BASE, persistent: 4 }],
  ["tiles in turn, awaited", TALL, { ...BASE, stage: 4, fragments: "inline", persistent: 5 }],
  ["nothing divides", gridContextOf(product(150, 72, 40), wgmma, MATMUL), { ...BASE, store: "direct" }],
  [
    "a sum through a cluster",
    gridContextOf(product(128, 32, 256), wgmma, MATMUL),
    { ...BASE, store: "direct", split: { parts: 4, through: "cluster" } },
  ],
  [
    "a sum through memory",
    gridContextOf(product(128, 32, 256), wgmma, MATMUL),
    { ...BASE, store: "direct", split: { parts: 2, through: "memory" } },
  ],
  ["windows of taps", WINDOW, TAPS],
  ["windows of taps, awaited", WINDOW, { ...TAPS, fragments: "inline", stage: 2 }],
];

describe("a producer beside warpgroups", () => {
  const subjects = CASES.map(([name, context, schedule], i) => ({ name, context, schedule, i }));

  it.each(subjects)("equals the equation in adverse orders: $name", ({ context, schedule, i }) => {
    expect(gridProblem(context, schedule)).toBeUndefined();
    expect(predictGrid(context, schedule, HOPPER)?.seconds).toBeGreaterThan(0);
    expectRightInterpreted({ context, schedule }, ordersInTurn(i));
  });

  it("is right on the emulated device", () => expectRightEmulated(subjects), 120_000);

  const LARGE = gridContextOf(product(4096, 4096, 4096), "wgmma.m64n256k16.f32.f16", MATMUL);
  const BEST: GridSchedule = { ...BASE, tile: { m: 128, n: 256, k: 64 }, stage: 4, order: 8, persistent: 132 };

  it("is predicted to save the time that warpgroups lose by meeting in every step", () => {
    const seconds = (change: Partial<GridSchedule>): number =>
      predictGrid(LARGE, { ...BEST, ...change }, HOPPER)?.uncorrectedSeconds ?? Number.NaN;
    expect(seconds({})).toBeLessThan(seconds({ producer: undefined }));
    expect(seconds({ fragments: "inline" })).toBeLessThan(seconds({ fragments: "inline", producer: undefined }));
  });

  it("differs less in the order of tiles or the number of blocks than in having a producer", () => {
    const apart = (change: Partial<GridSchedule>): number =>
      scheduleDistance(GRID, LARGE, BEST, { ...BEST, ...change });
    expect(apart({ order: 16, persistent: 264 })).toBeLessThan(1);
    expect(apart({ producer: undefined })).toBe(1);
    expect(apart({ persistent: undefined })).toBe(1);
  });

  it("is refused with the reason where it is impossible", () => {
    const problem = (change: Partial<GridSchedule>): string | undefined => gridProblem(LARGE, { ...BEST, ...change });
    expect(problem({})).toBeUndefined();
    expect(problem({ transfer: "async" })).toBe(
      "a thread on its own sends for tiles that the engine copies, not for async ones",
    );
    expect(problem({ stage: 1, persistent: undefined, fragments: "inline" })).toBe(
      "a stage is filled while another is multiplied: a producer needs a second one",
    );
    expect(problem({ tile: { m: 256, n: 256, k: 32 }, warps: { m: 4, n: 1 } })).toBe(
      "544 threads, a block has at most 512",
    );
  });

  it("prints as this program", () => {
    const text = printNest(lowerGrid(TALL, { ...BASE, persistent: 4 }));
    expect(text.slice(text.indexOf("arrivals"))).toMatchInlineSnapshot(`
      "arrivals full: 3
      arrivals empty: 3, by teams
      for at block block in 0..4
        for at warpgroup m_warpgroup in 0..2
          for at warpgroup n_warpgroup in 0..1
            for turn in 0..2
              for unrolled m_fragment in 0..1
                for unrolled n_fragment in 0..1
                  c{m_fragment + n_fragment} <- identity
              for step in 0..5
                await full[(5*turn + step)%3], use (5*turn + step)/3
                fence wgmma registers
                for unrolled k_part in 0..2
                  for unrolled m_fragment in 0..1
                    for unrolled n_fragment in 0..1
                      c{m_fragment + n_fragment} <- wgmma.m64n32k16.f32.f16(a_ring[(5*turn+step)%3,64*m_warpgroup+64*m_fragment+m_in,16*k_part+k_in] over m_in, k_in, b_ring[(5*turn+step)%3,16*k_part+k_in,32*n_warpgroup+32*n_fragment+n_in] over k_in, n_in)
                commit wgmma
                wait wgmma 1
                arrive empty[(5*turn + step + 2)%3] where step >= 1
              wait wgmma 0
              arrive empty[(5*turn + 4)%3]
              for unrolled m_fragment in 0..1
                for unrolled n_fragment in 0..1
                  for m_in, n_in of c{m_fragment + n_fragment} by quads   c[128*((4*turn+block)/2)+(64*m_warpgroup+64*m_fragment+m_in),32*((4*turn+block)%2)+(32*n_warpgroup+32*n_fragment+n_in)] = f16(sum[]) where 128*((4*turn+block)/2)+(64*m_warpgroup+64*m_fragment+m_in) < 384
        for at thread load in 0..1
          for turn in 0..2
            for step in 0..5
              await empty[(5*turn + step)%3], use (5*turn + step)/3 - 1
              send for full[(5*turn + step)%3]
                copy m_in 128, k_in 32, engine, by block, as a box of k 32, m 128   a_ring[(5*turn+step)%3,m_in,k_in] = select(128*((4*((5*turn+step)/5)+block)/2)+m_in < 384, a[128*((4*((5*turn+step)/5)+block)/2)+m_in,32*((5*turn+step)%5)+k_in], 0)
                copy k_in 32, n_in 32, engine, by block, as a box of n 32, k 32   b_ring[(5*turn+step)%3,k_in,n_in] = b[32*((5*turn+step)%5)+k_in,32*((4*((5*turn+step)/5)+block)%2)+n_in]"
    `);
  });

  it.skipIf(NVCC === undefined)(
    "is compiled without serialised products where lanes store by elements",
    () => {
      const context = gridContextOf(product(1024, 1024, 1024), "wgmma.m64n128k16.f32.f16", "m <- n; n <- m; k <- k");
      const tile = { tile: { m: 64, n: 128, k: 64 }, warps: { m: 1, n: 1 } };
      return expectCompiled({
        name: "results along m",
        context,
        schedule: { ...BASE, ...tile, stage: 4, store: "direct" },
      });
    },
    120_000,
  );

  const FORMS: readonly (readonly [GridSchedule["fragments"], number | undefined])[] = [
    ["across", 132],
    ["inline", undefined],
  ];
  it.skipIf(NVCC === undefined).each(inFull(FORMS, FORMS.slice(0, 1)))(
    "is compiled without serialised products, spills or a stack frame: %s",
    (fragments, persistent) =>
      expectCompiled({ name: "4096 cubed", context: LARGE, schedule: { ...BEST, fragments, persistent } }),
    120_000,
  );
});
