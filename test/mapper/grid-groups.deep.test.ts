/**
 * @file Schedules of warpgroups: random ones lower to nests that the judge finds free of races in adverse orders, and print as kernels that
 * are right on the emulated device; nvcc takes the best of a large product without a warning, a spill or serialised instructions.
 */

import { describe, expect, it } from "vitest";
import { ADVERSE_ORDERS } from "../../abstraction/blocks/run.ts";
import type { Computation } from "../../abstraction/computation.ts";
import type { Statement } from "../../abstraction/loop-nest.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { pick, seededRandom } from "../../abstraction/random.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { lowerGrid } from "../../mapper/lower/grid.ts";
import {
  affordableSchedule,
  expectCompiled,
  expectRightEmulated,
  gridContextOf,
  gridContextsOf,
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
import { inFull } from "../support/slow.ts";
import { operation } from "../support/subjects.ts";

const CASES: readonly (readonly [string, Computation, readonly string[]])[] = [
  ["matmul f16", matmulF16(70, 64, 72), ["wgmma.m64n8k16.f32.f16", "wgmma.m64n32k16.f32.f16"]],
  ["matmul f16, nothing divides", matmulF16(37, 19, 53), ["wgmma.m64n8k16.f32.f16", "wgmma.m64n24k16.f32.f16"]],
  ["matmul s8", operation("matmul m=64 n=24 k=64", "s8"), ["wgmma.m64n8k32.s32.s8"]],
  ["matmul tf32", operation("matmul m=40 n=16 k=24", "tf32"), ["wgmma.m64n8k8.f32.tf32"]],
  [
    "conv2d f16 NHWC",
    reluConvolutionF16("conv2d n=1 c=16 k=64 h=6 w=6 r=3 s=3 pad=1"),
    ["wgmma.m64n32k16.f32.f16", "wgmma.m64n8k16.f32.f16"],
  ],
];

/** Of each computation this many schedules that are drawn, on which interpreting costs so many multiply-adds at most. */
const COUNT = inFull(40, 2);
const MOST_WORK = 500_000;

describe("a schedule of warpgroups", () => {
  itEqualsTheEquation(
    CASES.flatMap(([name, computation, rows]) => {
      const random = seededRandom(name.length);
      const contexts = gridContextsOf(computation, rows.flatMap(intrinsicsNamed));
      return Array.from({ length: COUNT }, (_, i) => {
        for (;;) {
          const context = pick(random, contexts);
          const schedule = affordableSchedule(context, random, MOST_WORK);
          if (schedule) return gridSubject(`${name} ${i}, ${context.intrinsic.name}`, context, schedule);
        }
      });
    }),
  );

  const context = gridContextOf(matmulF16(4096, 4096, 4096), "wgmma.m64n256k16.f32.f16", MATMUL);
  const best = wgmmaSchedule(128, 256, 64, { warps: { m: 2, n: 1 }, stage: 4, order: 8, store: "quads" });

  it("prints as this program", () => {
    expect(printNest(lowerGrid(context, best))).toMatchInlineSnapshot(`
      "shared a_ring: f16[stage 4, m 128, k 64] at stage*8192 + (m*64 + (8*(k/8 ^ m%8) + k%8))
      shared b_ring: f16[stage 4, k 64, n 256] at stage*16384 + (4096*(n/64) + (k*64 + (8*(n%64/8 ^ k%8) + n%8)))
      registers c: 1 x wgmma.m64n256k16.f32.f16.c
      for at block m_group in 0..4
        for at block n_tile in 0..16
          for at block m_tile in 0..8
            for at warpgroup m_warpgroup in 0..2
              for at warpgroup n_warpgroup in 0..1
                for unrolled m_fragment in 0..1
                  for unrolled n_fragment in 0..1
                    c{m_fragment + n_fragment} <- identity
                copy m_in 128, k_in 64 by 8, async, by block   a_ring[0,m_in,k_in] = a[128*(8*m_group+m_tile)+m_in,k_in]
                copy k_in 64, n_in 256 by 8, async, by block   b_ring[0,k_in,n_in] = b[k_in,256*n_tile+n_in]
                commit
                copy m_in 128, k_in 64 by 8, async, by block   a_ring[1,m_in,k_in] = a[128*(8*m_group+m_tile)+m_in,64+k_in]
                copy k_in 64, n_in 256 by 8, async, by block   b_ring[1,k_in,n_in] = b[64+k_in,256*n_tile+n_in]
                commit
                for step in 0..64
                  wait 1
                  fence wgmma memory
                  barrier block
                  fence wgmma registers
                  for unrolled k_part in 0..4
                    for unrolled m_fragment in 0..1
                      for unrolled n_fragment in 0..1
                        c{m_fragment + n_fragment} <- wgmma.m64n256k16.f32.f16(a_ring[step%4,64*m_warpgroup+64*m_fragment+m_in,16*k_part+k_in] over m_in, k_in, b_ring[step%4,16*k_part+k_in,256*n_warpgroup+256*n_fragment+n_in] over k_in, n_in)
                  commit wgmma
                  copy m_in 128, k_in 64 by 8, async, by block where step+2 < 64   a_ring[(step+2)%4,m_in,k_in] = a[128*(8*m_group+m_tile)+m_in,64*(step+2)+k_in]
                  copy k_in 64, n_in 256 by 8, async, by block where step+2 < 64   b_ring[(step+2)%4,k_in,n_in] = b[64*(step+2)+k_in,256*n_tile+n_in]
                  commit
                  wait wgmma 1
                wait wgmma 0
                for unrolled m_fragment in 0..1
                  for unrolled n_fragment in 0..1
                    for m_in, n_in of c{m_fragment + n_fragment} by quads   c[128*(8*m_group+m_tile)+(64*m_warpgroup+64*m_fragment+m_in),256*n_tile+(256*n_warpgroup+256*n_fragment+n_in)] = f16(sum[])"
    `);
  });

  it("is refused with the reason where it does not fit", () => {
    expect(
      refusals(context, best, [
        {},
        { stage: 2 },
        { fragments: "ahead" },
        { swizzle: "plain" },
        { warps: { m: 1, n: 1 } },
      ]),
    ).toMatchInlineSnapshot(`
      "unchanged: legal
      stage 2: products across steps need a third stage
      fragments ahead: wgmma.m64n256k16.f32.f16 has no fragments to be fetched ahead
      swizzle plain: wgmma.m64n256k16.f32.f16 reads rows cut in spans
      warps m 1,n 1: 288 registers a thread, it has 255"
    `);
  });

  it.skipIf(!NVCC).each([
    ["quads", "async"],
    ["direct", "async"],
    ["quads", "engine"],
  ] as const)(
    "is compiled without serialised products, spills or a stack frame: store %s, transfer %s",
    { timeout: 120_000 },
    (store, transfer) => expectCompiled({ name: store, context, schedule: { ...best, store, transfer } }),
  );
});

describe.skipIf(!NVCC)("a product of one step", () => {
  // The loop over steps goes, and a loop over the sums behind the wait would keep them in memory: 12 of 32 trials of a 1x1 layer.
  it.each(["across", "inline"] as const)("is not serialised: fragments %s", { timeout: 120_000 }, (fragments) =>
    expectCompiled({
      name: fragments,
      context: gridContextOf(matmulF16(4096, 128, 64), "wgmma.m64n32k16.f32.f16", MATMUL),
      schedule: wgmmaSchedule(128, 64, 64, { warps: { m: 1, n: 2 }, stage: 5, fragments, store: "staged" }),
    }),
  );
});

describe("boxes that the copy engine brings", () => {
  const computation = matmulF16(136, 72, 200);
  const context = gridContextOf(computation, "wgmma.m64n64k16.f32.f16", MATMUL);
  const subject = gridSubject(
    "boxes",
    context,
    wgmmaSchedule(128, 128, 64, { warps: { m: 2, n: 1 }, transfer: "engine", store: "quads" }),
  );
  const nest = lowerGrid(context, subject.schedule);

  /** What each order makes of the nest without the statements of a kind. */
  const without = (leave: (s: Statement) => boolean): string[] =>
    ADVERSE_ORDERS.slice(0, 2).map((order) => verdict({ nest: withoutStatements(nest, leave), computation }, order));

  it("are there for threads that await them, and for the instruction that reads shared memory itself", () => {
    expect(without(() => false)).toEqual(["right", "right"]);
  });

  it("are not there for threads that do not await them", () => {
    expect(without((s) => s.kind === "await")[0]).toMatch(
      /^a_ring\[stage 0, m 0, k 0\] is read before what writes it has ended.*missing: a wait for the stage/s,
    );
  });

  it("are not requested again before all threads have awaited their last use", () => {
    expect(without((s) => s.kind === "barrier" && s.group === "block").join("; ")).toMatch(
      /has not awaited its last use: missing: a barrier of the block|overwritten while another thread may still read it/,
    );
  });

  it("never come when no thread requests them, which is a deadlock", () => {
    expect(without((s) => s.kind === "send")[0]).toMatch(/^the warpgroups of a block do not come to the same barrier/);
  });

  it("are right on the emulated device in every order", () =>
    expectRightEmulated(Array.from({ length: 4 }, () => subject)));
});
