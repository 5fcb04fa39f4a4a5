/**
 * @file Tiles taken in turn by few blocks: the ring that runs on from tile to tile equals the equation in adverse orders, by the interpreter and
 * on the emulated device, also where the last turn has tiles for some blocks only; one barrier too few is found; nvcc takes it.
 */

import { describe, expect, it } from "vitest";
import type { Statement } from "../../abstraction/loop-nest.ts";
import { printNest } from "../../abstraction/print-nest.ts";
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

const wgmma = "wgmma.m64n32k16.f32.f16";
const TALL = matmulF16(192, 64, 64);
const context = gridContextOf(TALL, wgmma, MATMUL);
const BASE = wgmmaSchedule(64, 32, 32, { store: "quads" });
const ENGINE = { ...BASE, transfer: "engine", persistent: 4 } as const;

describe("tiles that persistent blocks take in turn", () => {
  // Six tiles for two, four and five blocks; tiles beyond the end of the tensor; convolutions.
  itEqualsTheEquation([
    gridSubject("by all threads", context, { ...BASE, persistent: 2 }),
    gridSubject("by boxes, some blocks once more", context, ENGINE),
    gridSubject("in groups of rows", context, { ...BASE, order: 3, fragments: "inline", persistent: 5 }),
    gridSubject("nothing divides", gridContextOf(matmulF16(150, 72, 40), wgmma, MATMUL), {
      ...BASE,
      store: "direct",
      persistent: 4,
    }),
    gridSubject(
      "a convolution",
      gridContextOf(
        reluConvolutionF16("conv2d n=2 c=16 k=16 h=8 w=8 pad=1"),
        "wgmma.m64n8k16.f32.f16",
        "m <- n,p,q; n <- k; k <- c",
      ),
      wgmmaSchedule(64, 8, 16, { stage: 4, store: "staged", persistent: 3 }),
    ),
  ]);

  const nest = lowerGrid(context, ENGINE);

  it("need every wait of a ring that runs on from tile to tile", () => {
    const without = (leave: (s: Statement) => boolean): string =>
      verdict({ nest: withoutStatements(nest, leave), computation: TALL });
    expect(without(() => false)).toBe("right");
    // With one warpgroup each wait is its own: what is left out is a wait for boxes, or for products.
    expect(without((s) => s.kind === "await")).toMatch(/is read before what writes it has ended/);
    expect(without((s) => s.kind === "wait" && s.of !== undefined && s.pending === 0)).toMatch(
      /is used before the issue that writes it has ended/,
    );
    expect(without((s) => s.kind === "wait" && s.of !== undefined)).toMatch(/may still read it|before the issue/);
  });

  it("are refused with the reason where they gain nothing or are impossible", () => {
    expect(
      refusals(context, BASE, [
        { persistent: 6 },
        { persistent: 2, store: "direct", split: { parts: 2, through: "memory" } },
        { persistent: 2, stage: 1, fragments: "inline" },
      ]),
    ).toMatchInlineSnapshot(`
      "persistent 6: 6 tiles are too few for 6 blocks to take them in turn
      persistent 2,store direct,split parts 2,through memory: a block either sums a part or takes tiles in turn, not both
      persistent 2,stage 1,fragments inline: tiles taken in turn need at least two stages"
    `);
  });

  it("print as this program", () => {
    const text = printNest(nest);
    expect(text.slice(text.indexOf("arrivals"))).toMatchInlineSnapshot(`
      "arrivals full: 3
      for at block block in 0..4
        for at warpgroup m_warpgroup in 0..1
          for at warpgroup n_warpgroup in 0..1
            send for full[0]
              copy m_in 64, k_in 32, engine, by block, as a box of k 32, m 64   a_ring[0,m_in,k_in] = select(64*(block/2)+m_in < 192, a[64*(block/2)+m_in,k_in], 0)
              copy k_in 32, n_in 32, engine, by block, as a box of n 32, k 32   b_ring[0,k_in,n_in] = b[k_in,32*(block%2)+n_in]
            for turn in 0..2
              for unrolled m_fragment in 0..1
                for unrolled n_fragment in 0..1
                  c{m_fragment + n_fragment} <- identity
              for step in 0..2
                await full[(2*turn + step)%3], use (2*turn + step)/3
                barrier block
                fence wgmma registers
                for unrolled k_part in 0..2
                  for unrolled m_fragment in 0..1
                    for unrolled n_fragment in 0..1
                      c{m_fragment + n_fragment} <- wgmma.m64n32k16.f32.f16(a_ring[(2*turn+step)%3,64*m_warpgroup+64*m_fragment+m_in,16*k_part+k_in] over m_in, k_in, b_ring[(2*turn+step)%3,16*k_part+k_in,32*n_warpgroup+32*n_fragment+n_in] over k_in, n_in)
                commit wgmma
                send for full[(2*turn + step + 1)%3] where 2*turn+step+1 < 4
                  copy m_in 64, k_in 32, engine, by block, as a box of k 32, m 64   a_ring[(2*turn+step+1)%3,m_in,k_in] = select(64*((4*((2*turn+step+1)/2)+block)/2)+m_in < 192, a[64*((4*((2*turn+step+1)/2)+block)/2)+m_in,32*((2*turn+step+1)%2)+k_in], 0)
                  copy k_in 32, n_in 32, engine, by block, as a box of n 32, k 32   b_ring[(2*turn+step+1)%3,k_in,n_in] = b[32*((2*turn+step+1)%2)+k_in,32*((4*((2*turn+step+1)/2)+block)%2)+n_in]
                wait wgmma 1
              wait wgmma 0
              for unrolled m_fragment in 0..1
                for unrolled n_fragment in 0..1
                  for m_in, n_in of c{m_fragment + n_fragment} by quads   c[64*((4*turn+block)/2)+(64*m_warpgroup+64*m_fragment+m_in),32*((4*turn+block)%2)+(32*n_warpgroup+32*n_fragment+n_in)] = f16(sum[]) where 64*((4*turn+block)/2)+(64*m_warpgroup+64*m_fragment+m_in) < 192"
    `);
  });

  it.skipIf(!NVCC)("are compiled without serialised products, spills or a stack frame", { timeout: 120_000 }, () =>
    expectCompiled({
      name: "4096 cubed",
      context: gridContextOf(matmulF16(4096, 4096, 4096), "wgmma.m64n256k16.f32.f16", MATMUL),
      schedule: {
        ...ENGINE,
        tile: { m: 128, n: 256, k: 64 },
        warps: { m: 2, n: 1 },
        stage: 4,
        order: 8,
        persistent: 132,
      },
    }),
  );
});
