/**
 * @file Inputs copied ahead with the summed axis innermost: copies and products equal the equation in adverse orders, by the interpreter and on the
 * emulated device; what cannot be copied is refused with a sentence; nvcc takes both kernels.
 */

import { describe, expect, it } from "vitest";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import type { Statement } from "../../abstraction/loop-nest.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { lowerGrid } from "../../mapper/lower/grid.ts";
import { GRID } from "../../mapper/schedule/grid.ts";
import type { GridContext } from "../../mapper/schedule/grid-context.ts";
import { repackings } from "../../mapper/schedule/repack.ts";
import { drawSchedule } from "../../mapper/schedule/schedules.ts";
import { predictGrid } from "../../perfmodel/grid.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import {
  convolutionF16,
  expectCompiled,
  gridContextOf,
  gridSubject,
  itEqualsTheEquation,
  mmaSchedule,
  NVCC,
  refusals,
  verdict,
  wgmmaSchedule,
  withoutStatements,
} from "../support/grid-kernels.ts";
import { inFull } from "../support/slow.ts";

const BOTH = { repack: ["a", "b"] } as const;
const WGMMA = wgmmaSchedule(64, 16, 64, { ...BOTH, transfer: "engine" });
const MMA = mmaSchedule(32, 16, 16, { ...BOTH, warps: { m: 2, n: 1 } });
const wgmma = "wgmma.m64n16k16.f32.f16";
const mma = "mma.m16n8k16.f32.f16";

/** Boxes, walks, windows and groups; borders, strides, dilation; tails along both sides of a tile; one to three dimensions, both bindings. */
const SUBJECTS = (
  [
    ["conv2d n=2 c=64 k=16 h=7 w=7", mma, "m <- n,p,q; n <- k; k <- c", MMA],
    ["conv2d n=1 c=16 k=32 h=8 w=8 stride=2", mma, "m <- k; n <- n,p,q; k <- c", MMA],
    ["conv2d n=2 c=72 k=20 h=5 w=6", wgmma, "m <- k; n <- n,p,q; k <- c", WGMMA],
    ["conv2d n=2 c=64 k=16 h=9 w=8 stride=2", wgmma, "m <- n,p,q; n <- k; k <- c", WGMMA],
    [
      "conv2d n=2 c=64 k=16 h=8 w=8 r=1 s=1 pad=0 stride=2",
      wgmma,
      "m <- k; n <- n,p,q; k <- c",
      { ...WGMMA, repack: ["b"] },
    ],
    ["conv2d n=1 c=24 k=16 h=9 w=7 r=1 s=3 pad=1 stride=2 dilation=2", mma, "m <- k; n <- n,p,q; k <- c", MMA],
    ["conv2d n=1 c=64 k=16 h=5 w=5", wgmma, "m <- k; n <- p,q; k <- c", { ...WGMMA, taps: "shifted" }],
    [
      "conv2d n=3 c=128 k=16 h=4 w=4",
      wgmma,
      "m <- n,p,q; n <- k; k <- c",
      { ...WGMMA, taps: "shifted", transfer: "async", split: { parts: 2, through: "memory" } },
    ],
    ["conv1d n=2 c=64 k=16 l=90 r=3 dilation=4 pad=8", wgmma, "m <- k; n <- n,p; k <- c", WGMMA],
    [
      "conv3d n=1 c=128 k=16 d=2 h=3 w=5 t=1 r=3 s=3 pad_d=0",
      wgmma,
      "m <- k; n <- o,p,q; k <- c",
      { ...WGMMA, split: { parts: 2, through: "cluster" } },
    ],
    // The weights of a transposed convolution lie along their outputs; with a stride its images are read where it divides.
    [
      "transposed-conv2d n=1 c=64 k=16 h=4 w=5 r=3 s=3 stride=1 pad=1",
      wgmma,
      "m <- k; n <- n,p,q; k <- c",
      { ...WGMMA, transfer: "async" },
    ],
    [
      "transposed-conv2d n=1 c=64 k=16 h=3 w=4 r=4 s=4 stride=2 pad=1",
      wgmma,
      "m <- k; n <- n,p,q; k <- c",
      { ...WGMMA, transfer: "async", repack: ["a"] },
    ],
  ] as const
).map(([words, instruction, matching, schedule]) =>
  gridSubject(`${words}, ${matching}`, gridContextOf(convolutionF16(words, false), instruction, matching), schedule),
);

function fail(): never {
  throw new Error("no such subject");
}

describe("inputs copied ahead of the kernel", () => {
  itEqualsTheEquation(SUBJECTS, {
    // Small ones of each kind: engines, groups, windows, compacted strides.
    interpreted: SUBJECTS.filter((_, i) => inFull(true, [1, 3, 4, 5].includes(i))),
    // Every operator, stride and kind of copy.
    emulated: SUBJECTS.filter((_, i) => inFull(true, ![1, 2, 5, 7].includes(i))),
  });

  it("are awaited, as are their tiles: a missing barrier is found", () => {
    const [, { context, schedule } = fail()] = SUBJECTS;
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

  it("print as this program", () => {
    const { context, schedule } = SUBJECTS[2] ?? fail();
    expect(printNest(lowerGrid(context, schedule))).toMatchInlineSnapshot(`
      "shared a_ring: f16[stage 3, m 64, k 64] at stage*4096 + (m*64 + (8*(k/8 ^ m%8) + k%8))
      shared b_ring: f16[stage 3, n 16, k 64] at stage*1024 + (n*64 + (8*(k/8 ^ n%8) + k%8))
      workspace w_packed: f16[k 20, c 72, r 3, s 3] at ((k*3 + r)*3 + s)*72 + c, outside the identity
      shared a_turned: f16[row 128, column 9] at 9*row + column
      workspace in_packed: f16[n 2, c 72, h 5, w 6] at ((n*5 + h)*6 + w)*72 + c, outside the identity
      shared b_turned: f16[row 128, column 30] at 30*row + column
      registers c: 1 x wgmma.m64n16k16.f32.f16.c
      arrivals full: 3
      for at block chunk in 0..22
        for at warpgroup warpgroup in 0..2
          copy column 1152 by 8, by block where chunk < 20   a_turned[column/9,column%9] = w[chunk,column/9,column%9/3,column%9%3] where column < 648
          copy column 3840 by 8, by block where chunk >= 20   b_turned[column/30,column%30] = in[chunk%2,column/30,column%30/6,column%30%6] where column < 2160
          barrier block
          copy group 2, column 9, row 64 by 8, gathered, by block where chunk < 20   w_packed[chunk,64*group+row,column/3,column%3] = a_turned[64*group+row,column] where 64*group+row < 72
          copy group 2, column 30, row 64 by 8, gathered, by block where chunk >= 20   in_packed[chunk%2,64*group+row,column/6,column%6] = b_turned[64*group+row,column] where 64*group+row < 72
      barrier
      for at block m_tile in 0..1
        for at block n_tile in 0..4
          for at warpgroup m_warpgroup in 0..1
            for at warpgroup n_warpgroup in 0..1
              for unrolled m_fragment in 0..1
                for unrolled n_fragment in 0..1
                  c{m_fragment + n_fragment} <- identity
              send for full[0]
                copy m_in 64, k_in 64, engine, by block, as a box of c 64, s 1, r 1, k 64   a_ring[0,m_in,k_in] = select(64*m_tile+m_in < 20, w_packed[64*m_tile+m_in,k_in,0,0], 0)
                copy n_in 16, k_in 64, engine, by block, as 16 pixels of w -1..4 by 1, h -1..3 by 1, offset 0, 0   b_ring[0,n_in,k_in] = select(16*n_tile+n_in < 60, in_packed[(16*n_tile+n_in)/30,k_in,(16*n_tile+n_in)/6%5-1,(16*n_tile+n_in)%6-1], 0)
              for step in 0..18
                await full[step%3], use step/3
                barrier block
                fence wgmma registers
                for unrolled k_part in 0..4
                  for unrolled m_fragment in 0..1
                    for unrolled n_fragment in 0..1
                      c{m_fragment + n_fragment} <- wgmma.m64n16k16.f32.f16(a_ring[step%3,64*m_warpgroup+64*m_fragment+m_in,16*k_part+k_in] over m_in, k_in, b_ring[step%3,16*n_warpgroup+16*n_fragment+n_in,16*k_part+k_in] over k_in, n_in)
                commit wgmma
                send for full[(step + 1)%3] where step+1 < 18
                  copy m_in 64, k_in 64, engine, by block, as a box of c 64, s 1, r 1, k 64   a_ring[(step+1)%3,m_in,k_in] = select(64*m_tile+m_in < 20, w_packed[64*m_tile+m_in,64*((step+1)%2)+k_in,(step+1)/6,(step+1)/2%3], 0)
                  copy n_in 16, k_in 64, engine, by block, as 16 pixels of w -1..4 by 1, h -1..3 by 1, offset (step + 1)/2%3, (step + 1)/6   b_ring[(step+1)%3,n_in,k_in] = select(16*n_tile+n_in < 60, in_packed[(16*n_tile+n_in)/30,64*((step+1)%2)+k_in,(16*n_tile+n_in)/6%5+(step+1)/6-1,(16*n_tile+n_in)%6+(step+1)/2%3-1], 0)
                wait wgmma 1
              wait wgmma 0
              for unrolled m_fragment in 0..1
                for unrolled n_fragment in 0..1
                  for m_in, n_in of c{m_fragment + n_fragment}   y[(16*n_tile+(16*n_warpgroup+16*n_fragment+n_in))/30,64*m_tile+(64*m_warpgroup+64*m_fragment+m_in),(16*n_tile+(16*n_warpgroup+16*n_fragment+n_in))/6%5,(16*n_tile+(16*n_warpgroup+16*n_fragment+n_in))%6] = f16(sum[]) where 64*m_tile+(64*m_warpgroup+64*m_fragment+m_in) < 20 and 16*n_tile+(16*n_warpgroup+16*n_fragment+n_in) < 60"
    `);
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

  it("is refused with the reason where it is of no use", () => {
    expect(refusals(layer(), WGMMA, [BOTH, { repack: ["b", "a"] }, { repack: ["c"] }])).toMatchInlineSnapshot(`
      "repack [a,b]: legal
      repack [b,a]: inputs that are copied are some of a, b, in this order, and not b,a
      repack [c]: inputs that are copied are some of a, b, in this order, and not c"
    `);
    expect(refusals(layer("", true), WGMMA, [{ repack: ["b"] }])).toMatchInlineSnapshot(
      `"repack [b]: in already moves 16 bytes at once"`,
    );
    expect(refusals(layer("c=3"), WGMMA, [{ repack: ["b"] }])).toMatchInlineSnapshot(
      `"repack [b]: a copy of in would move no more of it at once"`,
    );
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

describe.skipIf(!NVCC)("nvcc", () => {
  const layers = ["n=16 c=64 k=64 h=56 w=56", "n=16 c=128 k=256 h=28 w=28 r=1 s=1 pad=0 stride=2"];
  it.each(layers.slice(0, inFull(layers.length, 1)))(
    "takes both kernels without a warning, spills or serialised products: %s",
    { timeout: 120_000 },
    (words) => {
      const context = gridContextOf(
        convolutionF16(`conv2d ${words}`, false),
        "wgmma.m64n128k16.f32.f16",
        "m <- k; n <- n,p,q; k <- c",
      );
      const tile = { m: 64, n: 128, k: 64 };
      return expectCompiled({
        name: words,
        context,
        schedule: { ...WGMMA, repack: repackings(context).at(-1), tile, stage: 4 },
      });
    },
  );
});
