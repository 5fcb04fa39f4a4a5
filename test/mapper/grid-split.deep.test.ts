/**
 * @file Sums split among blocks: parts that meet in the shared memories of a cluster or in a workspace equal the equation in adverse orders, by
 * the interpreter and on the emulated device; one barrier too few is found; nvcc takes both.
 */

import { describe, expect, it } from "vitest";
import { ADVERSE_ORDERS } from "../../abstraction/blocks/run.ts";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { type Expr, rewrite } from "../../abstraction/expression.ts";
import type { LoopNest, Statement } from "../../abstraction/loop-nest.ts";
import { parseExpr } from "../../abstraction/parse.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { rewriteStatement } from "../../abstraction/rewrite-statement.ts";
import { lowerGrid } from "../../mapper/lower/grid.ts";
import type { GridContext } from "../../mapper/schedule/grid-context.ts";
import { predictGrid } from "../../perfmodel/grid.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import {
  expectCompiled,
  gridContextOf,
  gridSubject,
  itEqualsTheEquation,
  MATMUL,
  matmulF16,
  mmaSchedule,
  NVCC,
  refusals,
  reluConvolutionF16,
  verdict,
  wgmmaSchedule,
  withoutStatements,
} from "../support/grid-kernels.ts";

const MMA = mmaSchedule(32, 16, 16, { warps: { m: 2, n: 1 } });
const WGMMA = wgmmaSchedule(64, 32, 64);
const mma = "mma.m16n8k16.f32.f16";
const wgmma = "wgmma.m64n32k16.f32.f16";
type Split = NonNullable<GridSchedule["split"]>;
const CLUSTER: Split = { parts: 4, through: "cluster" };
const MEMORY: Split = { parts: 4, through: "memory" };

const LONG = gridContextOf(matmulF16(70, 40, 256), wgmma, MATMUL);
const convolution = (words: string, instruction: string, matching: string): GridContext =>
  gridContextOf(reluConvolutionF16(`conv2d n=1 ${words} pad=1`), instruction, matching);
const LARGE = convolution("c=512 k=512 h=7 w=7", wgmma, "m <- k; n <- p,q; k <- c");

describe("a sum split among four blocks", () => {
  // Products whose tiles reach beyond the end, convolutions whose parts are taps, results along rows and along columns.
  const whole = [
    gridSubject("a product by mma", gridContextOf(matmulF16(40, 24, 64), mma, MATMUL), MMA),
    gridSubject("a product by wgmma", LONG, WGMMA),
    gridSubject("the same by boxes", LONG, { ...WGMMA, transfer: "engine" }),
    gridSubject("taps, results along columns", convolution("c=64 k=16 h=4 w=4", mma, "m <- p,q; n <- k; k <- c"), MMA),
    gridSubject("taps, results along rows", convolution("c=64 k=40 h=4 w=4", mma, "m <- k; n <- p,q; k <- c"), MMA),
    // 18 steps, of which two blocks take nine each.
    gridSubject("taps by wgmma", convolution("c=128 k=64 h=5 w=5", wgmma, "m <- k; n <- p,q; k <- c"), {
      ...WGMMA,
      fragments: "inline",
      split: { parts: 2, through: "cluster" },
    }),
  ];
  itEqualsTheEquation(
    whole.flatMap(({ name, context, schedule }) =>
      [CLUSTER, MEMORY].map((split) =>
        gridSubject(`${name}, through ${split.through}`, context, {
          ...schedule,
          split: { ...split, ...(schedule.split && { parts: schedule.split.parts }) },
        }),
      ),
    ),
  );
});

describe("partial sums of several blocks", () => {
  const computation = matmulF16(32, 16, 64);
  const context = gridContextOf(computation, mma, MATMUL);
  const nestOf = (split: Split): LoopNest => lowerGrid(context, { ...MMA, split });

  /** What each order makes of a nest with something left out. */
  const without = (nest: LoopNest, leave: (s: Statement) => boolean): string[] =>
    ADVERSE_ORDERS.map((order) => verdict({ nest: withoutStatements(nest, leave), computation }, order, 2));
  const always = (what: unknown): unknown[] => ADVERSE_ORDERS.map(() => what);
  const isBarrier = (s: Statement, of: "sums" | "beginnings"): boolean =>
    s.kind === "barrier" && s.group === "cluster" && (s.of ?? "sums") === of;

  it("add up to the right result, call after call", () => {
    for (const split of [CLUSTER, MEMORY]) expect(without(nestOf(split), () => false)).toEqual(always("right"));
  });

  it("are not added before a barrier of the cluster", () => {
    expect(without(nestOf(CLUSTER), (s) => isBarrier(s, "sums"))).toEqual(
      always(expect.stringMatching(/parts\[.*missing: a barrier of the (cluster|block) between/s)),
    );
  });

  it("are not written to a block that may not have begun", () => {
    expect(without(nestOf(CLUSTER), (s) => isBarrier(s, "beginnings"))).toEqual(
      always(expect.stringMatching(/missing: a barrier of the cluster, of beginnings: the block may not have begun/)),
    );
  });

  it("are not read from a block that may have ended", () => {
    const nest = nestOf(CLUSTER);
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
    expect(without({ ...nest, body }, () => false)).toEqual(
      always(expect.stringMatching(/missing: a barrier of the cluster: the block may have ended/)),
    );
  });

  it("are not added by a kernel that has no barrier before it", () => {
    expect(without(nestOf(MEMORY), (s) => s.kind === "barrier" && s.group === undefined)).toEqual(
      always(expect.stringMatching(/parts\[.*missing: a barrier of the (whole call|block)/s)),
    );
  });

  it("are refused with the reason where they cannot be added", () => {
    expect(
      refusals(context, MMA, [{ split: { parts: 3, through: "memory" } }, { split: MEMORY, store: "staged" }]),
    ).toMatchInlineSnapshot(`
      "split parts 3,through memory: 4 steps of the sum are not divided among 3 blocks
      split parts 4,through memory,store staged: parts of a sum are stored by the lanes that hold them: store direct"
    `);
    const ampere = gridContextOf(computation, mma, MATMUL, nvidiaTarget("a100"));
    expect(refusals(ampere, MMA, [{ split: CLUSTER }, { split: MEMORY }])).toMatchInlineSnapshot(`
      "split parts 4,through cluster: blocks of the target form no clusters
      split parts 4,through memory: legal"
    `);
    const huge = gridContextOf(matmulF16(65536, 65536, 4096), mma, MATMUL);
    expect(refusals(huge, MMA, [{ split: { parts: 64, through: "memory" } }])).toMatchInlineSnapshot(
      `"split parts 64,through memory: parts of sums take 1099511627776 bytes, more than 4294967296"`,
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

  it("print as this program", () => {
    expect(printNest(nestOf(CLUSTER))).toMatchInlineSnapshot(`
      "shared a_ring: f16[stage 2, m 32, k 16] at stage*512 + (m*16 + (8*(k/8 ^ m/4%2) + k%8))
      shared b_ring: f16[stage 2, k 16, n 16] at stage*256 + (k*16 + (8*(n/8 ^ k/4%2) + n%8))
      cluster parts: f32[block 4, part 4, m 8, n 16] at 1280*block + (320*part + (40*m + n))
      registers c: 2 x mma.m16n8k16.f32.f16.c
      registers a: 1 x mma.m16n8k16.f32.f16.a
      registers b: 2 x mma.m16n8k16.f32.f16.b
      for at block m_tile in 0..1
        for at block n_tile in 0..1
          for at cluster split in 0..4
            for at warp m_warp in 0..2
              for at warp n_warp in 0..1
                for unrolled m_fragment in 0..1
                  for unrolled n_fragment in 0..2
                    c{2*m_fragment + n_fragment} <- identity
                copy m_in 32, k_in 16 by 8, async, by block   a_ring[0,m_in,k_in] = a[32*m_tile+m_in,16*split+k_in]
                copy k_in 16, n_in 16 by 8, async, by block   b_ring[0,k_in,n_in] = b[16*split+k_in,16*n_tile+n_in]
                commit
                barrier cluster, of beginnings
                for step in 0..1
                  wait 0
                  barrier block
                  commit
                  for unrolled k_part in 0..1
                    for unrolled m_fragment in 0..1
                      a{m_fragment} <- a_ring[step%2,16*m_warp+16*m_fragment+m_in,16*k_part+k_in] over m_in, k_in by ldmatrix
                    for unrolled n_fragment in 0..1
                      b{2*n_fragment} and 1 more <- b_ring[step%2,16*k_part+k_in,16*n_warp+8*(2*n_fragment)+n_in] over k_in, n_in by ldmatrix.trans
                    for unrolled m_fragment in 0..1
                      for unrolled n_fragment in 0..2
                        c{2*m_fragment + n_fragment} <- mma.m16n8k16.f32.f16(a{m_fragment}, b{n_fragment})
                for unrolled m_fragment in 0..1
                  for unrolled n_fragment in 0..2
                    for m_in, n_in of c{2*m_fragment + n_fragment}   parts[(16*m_warp+16*m_fragment+m_in)/8,split,(16*m_warp+16*m_fragment+m_in)%8,16*n_warp+8*n_fragment+n_in] = sum[]
                barrier cluster
                copy line 8, place 16 by 4, by block   c[32*m_tile+(8*split+line),16*n_tile+place] = f16(parts[split,0,line,place] + parts[split,1,line,place] + parts[split,2,line,place] + parts[split,3,line,place])"
    `);
    expect(printNest(nestOf(MEMORY)).split("barrier\n")[1]).toMatchInlineSnapshot(`
      "for at block m_tile in 0..1
        for at block n_tile in 0..1
          for at block chunk in 0..1
            for at warp warp in 0..8
              copy line 32, place 16 by 4, by block   c[32*m_tile+(32*chunk+line),16*n_tile+place] = f16(parts[0,m_tile,n_tile,32*chunk+line,place] + parts[1,m_tile,n_tile,32*chunk+line,place] + parts[2,m_tile,n_tile,32*chunk+line,place] + parts[3,m_tile,n_tile,32*chunk+line,place])"
    `);
  });
});

describe.skipIf(!NVCC)("nvcc", () => {
  it.each([
    [gridContextOf(matmulF16(1024, 1024, 1024), mma, MATMUL), { ...MMA, split: MEMORY }, "80"],
    [LARGE, { ...WGMMA, split: CLUSTER }, "90a"],
    [gridContextOf(matmulF16(1024, 1024, 1024), wgmma, MATMUL), { ...WGMMA, transfer: "engine", split: MEMORY }, "90a"],
  ] as const)(
    "takes it without a warning, spills or serialised products: %#",
    { timeout: 120_000 },
    (context, schedule, capability) => expectCompiled({ name: capability, context, schedule }, capability),
  );
});
