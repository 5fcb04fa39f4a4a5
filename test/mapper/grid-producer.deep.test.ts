/**
 * @file One thread that sends for tiles while warpgroups multiply: equal to the equation in adverse orders, by the interpreter and on the emulated
 * device, with tiles in turn, sums split among blocks, windows of taps and every way to store; nvcc takes it.
 */

import { describe, expect, it } from "vitest";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { lowerGrid } from "../../mapper/lower/grid.ts";
import { GRID } from "../../mapper/schedule/grid.ts";
import { scheduleDistance } from "../../mapper/schedule/schedules.ts";
import { predictGrid } from "../../perfmodel/grid.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import {
  convolutionF16,
  expectCompiled,
  gridContextOf,
  gridSubject,
  itEqualsTheEquation,
  MATMUL,
  matmulF16,
  NVCC,
  refusals,
  wgmmaSchedule,
} from "../support/grid-kernels.ts";
import { inFull } from "../support/slow.ts";

const PRODUCER = { transfer: "engine", producer: "warp" } as const;
const BASE = wgmmaSchedule(128, 32, 32, { ...PRODUCER, warps: { m: 2, n: 1 }, store: "quads" });
const DIRECT: GridSchedule = { ...BASE, store: "direct" };
const TAPS = wgmmaSchedule(64, 32, 64, { ...PRODUCER, taps: "shifted" });
const wgmma = "wgmma.m64n32k16.f32.f16";
const TALL = gridContextOf(matmulF16(384, 64, 160), wgmma, MATMUL);
const DEEP = gridContextOf(matmulF16(128, 32, 256), wgmma, MATMUL);
const WINDOW = gridContextOf(convolutionF16("conv2d n=1 c=192 k=64 h=5 w=5 pad=1"), wgmma, "m <- k; n <- p,q; k <- c");

describe("a producer beside warpgroups", () => {
  // Three slices of a window through two places of it; parts of a sum; six tiles for four blocks.
  itEqualsTheEquation([
    gridSubject("two warpgroups", TALL, BASE),
    gridSubject("products awaited in their step, two stages", TALL, {
      ...BASE,
      fragments: "inline",
      stage: 2,
      store: "staged",
    }),
    gridSubject("tiles in turn", TALL, { ...BASE, persistent: 4 }),
    gridSubject("tiles in turn, awaited", TALL, { ...BASE, stage: 4, fragments: "inline", persistent: 5 }),
    gridSubject("nothing divides", gridContextOf(matmulF16(150, 72, 40), wgmma, MATMUL), DIRECT),
    gridSubject("a sum through a cluster", DEEP, { ...DIRECT, split: { parts: 4, through: "cluster" } }),
    gridSubject("a sum through memory", DEEP, { ...DIRECT, split: { parts: 2, through: "memory" } }),
    gridSubject("windows of taps", WINDOW, TAPS),
    gridSubject("windows of taps, awaited", WINDOW, { ...TAPS, fragments: "inline", stage: 2 }),
  ]);

  const LARGE = gridContextOf(matmulF16(4096, 4096, 4096), "wgmma.m64n256k16.f32.f16", MATMUL);
  const BEST: GridSchedule = { ...BASE, tile: { m: 128, n: 256, k: 64 }, stage: 4, order: 8, persistent: 132 };

  it("is predicted to save the time that warpgroups lose by meeting in every step", () => {
    const seconds = (change: Partial<GridSchedule>): number =>
      predictGrid(LARGE, { ...BEST, ...change }, nvidiaTarget("h100"))?.uncorrectedSeconds ?? Number.NaN;
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
    expect(
      refusals(LARGE, BEST, [
        {},
        { transfer: "async" },
        { stage: 1, persistent: undefined, fragments: "inline" },
        { tile: { m: 256, n: 256, k: 32 }, warps: { m: 4, n: 1 } },
      ]),
    ).toMatchInlineSnapshot(`
      "unchanged: legal
      transfer async: a thread on its own sends for tiles that the engine copies, not for async ones
      stage 1,fragments inline: a stage is filled while another is multiplied: a producer needs a second one
      tile m 256,n 256,k 32,warps m 4,n 1: 544 threads, a block has at most 512"
    `);
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

  it.skipIf(!NVCC)("is compiled without serialised products where lanes store by elements", { timeout: 120_000 }, () =>
    expectCompiled({
      name: "results along m",
      context: gridContextOf(matmulF16(1024, 1024, 1024), "wgmma.m64n128k16.f32.f16", "m <- n; n <- m; k <- k"),
      schedule: wgmmaSchedule(64, 128, 64, { ...PRODUCER, stage: 4 }),
    }),
  );

  const FORMS: readonly (readonly [GridSchedule["fragments"], number | undefined])[] = [
    ["across", 132],
    ["inline", undefined],
  ];
  it.skipIf(!NVCC).each(inFull(FORMS, FORMS.slice(0, 1)))(
    "is compiled without serialised products, spills or a stack frame: %s",
    { timeout: 120_000 },
    (fragments, persistent) =>
      expectCompiled({ name: "4096 cubed", context: LARGE, schedule: { ...BEST, fragments, persistent } }),
  );
});
