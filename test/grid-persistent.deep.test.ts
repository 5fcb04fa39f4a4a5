/**
 * @file Tiles taken in turn by few blocks: the ring that runs on from tile to tile equals the equation in adverse orders, by the interpreter and
 * on the emulated device, also where the last turn has tiles for some blocks only; one barrier too few is found; nvcc takes it.
 */

import { describe, expect, it } from "vitest";
import { NestFault } from "../abstraction/blocks/fault.ts";
import { ADVERSE_ORDERS } from "../abstraction/blocks/run.ts";
import type { GridSchedule } from "../abstraction/candidate.ts";
import type { Computation } from "../abstraction/computation.ts";
import { interpret } from "../abstraction/interpret.ts";
import { interpretNest } from "../abstraction/interpret-nest.ts";
import type { Statement } from "../abstraction/loop-nest.ts";
import { printNest } from "../abstraction/print-nest.ts";
import { lowerGrid } from "../mapper/lower/grid.ts";
import { gridProblem } from "../mapper/schedule/grid.ts";
import type { GridContext } from "../mapper/schedule/grid-context.ts";
import { parseDataTypes } from "../operators/data-types.ts";
import { operatorNamed } from "../operators/index.ts";
import { instantiate } from "../operators/operator.ts";
import { predictGrid } from "../perfmodel/grid.ts";
import { nvidiaTarget } from "../targets/nvidia.ts";
import {
  expectCompiled,
  expectRightEmulated,
  gridContextOf,
  NVCC,
  smallIntegers,
  withoutStatements,
} from "./support/grid-kernels.ts";

const HOPPER = nvidiaTarget("h100");

const product = (m: number, n: number, k: number): Computation =>
  instantiate(operatorNamed("matmul"), {
    parameters: { m, n, k },
    types: parseDataTypes("f16"),
    epilogue: "c[m,n] = f16(out[m,n])",
  });
const convolution = instantiate(operatorNamed("conv2d"), {
  parameters: { n: 2, c: 16, k: 16, h: 8, w: 8, r: 3, s: 3, pad: 1 },
  types: parseDataTypes("f16"),
  layouts: { in: "NHWC", w: "KRSC", y: "NPQK" },
  epilogue: "y[n,k,p,q] = f16(max(out[n,k,p,q], 0))",
});

const MATMUL = "m <- m; n <- n; k <- k";
const BASE: GridSchedule = {
  tile: { m: 64, n: 32, k: 32 },
  warps: { m: 1, n: 1 },
  stage: 3,
  swizzle: "spans",
  transfer: "async",
  order: 1,
  fragments: "across",
  store: "quads",
};
const wgmma = "wgmma.m64n32k16.f32.f16";
const TALL = product(192, 64, 64);

/** Six tiles for two, four and five blocks; tiles beyond the end of the tensor; convolutions. */
const CASES: readonly (readonly [string, GridContext, GridSchedule])[] = [
  ["by all threads", gridContextOf(TALL, wgmma, MATMUL), { ...BASE, persistent: 2 }],
  [
    "by boxes, some blocks once more",
    gridContextOf(TALL, wgmma, MATMUL),
    { ...BASE, transfer: "engine", persistent: 4 },
  ],
  ["in groups of rows", gridContextOf(TALL, wgmma, MATMUL), { ...BASE, order: 3, fragments: "inline", persistent: 5 }],
  ["nothing divides", gridContextOf(product(150, 72, 40), wgmma, MATMUL), { ...BASE, store: "direct", persistent: 4 }],
  [
    "a convolution",
    gridContextOf(convolution, "wgmma.m64n8k16.f32.f16", "m <- n,p,q; n <- k; k <- c"),
    { ...BASE, tile: { m: 64, n: 8, k: 16 }, stage: 4, store: "staged", persistent: 3 },
  ],
];

describe("tiles that persistent blocks take in turn", () => {
  const subjects = CASES.map(([name, context, schedule], i) => {
    const { computation } = context.mapping;
    return { name, context, computation, schedule, order: ADVERSE_ORDERS[i] ?? {} };
  });

  it.each(subjects)("equal the equation in adverse orders: $name", ({ context, computation, schedule, order }) => {
    expect(gridProblem(context, schedule)).toBeUndefined();
    expect(predictGrid(context, schedule, HOPPER)?.seconds).toBeGreaterThan(0);
    const inputs = smallIntegers(computation);
    const got = interpretNest(lowerGrid(context, schedule), computation, inputs, 1, order);
    expect([...got]).toEqual([...interpret(computation, inputs)]);
  });

  it("are right on the emulated device", () => expectRightEmulated(subjects), 120_000);

  const context = gridContextOf(TALL, wgmma, MATMUL);
  const nest = lowerGrid(context, { ...BASE, transfer: "engine", persistent: 4 });

  it("need every wait of a ring that runs on from tile to tile", () => {
    const without = (leave: (s: Statement) => boolean): string => {
      try {
        interpretNest(withoutStatements(nest, leave), TALL, smallIntegers(TALL));
        return "right";
      } catch (error) {
        if (!(error instanceof NestFault)) throw error;
        return error.message;
      }
    };
    expect(without(() => false)).toBe("right");
    // With one warpgroup each wait is its own: what is left out is a wait for boxes, or for products.
    expect(without((s) => s.kind === "await")).toMatch(/is read before what writes it has ended/);
    expect(without((s) => s.kind === "wait" && s.of !== undefined && s.pending === 0)).toMatch(
      /is used before the issue that writes it has ended/,
    );
    expect(without((s) => s.kind === "wait" && s.of !== undefined)).toMatch(/may still read it|before the issue/);
  });

  it("are refused with the reason where they gain nothing or are impossible", () => {
    const problem = (change: Partial<GridSchedule>): string | undefined => gridProblem(context, { ...BASE, ...change });
    expect(problem({ persistent: 6 })).toBe("6 tiles are too few for 6 blocks to take them in turn");
    expect(problem({ persistent: 2, store: "direct", split: { parts: 2, through: "memory" } })).toBe(
      "a block either sums a part or takes tiles in turn, not both",
    );
    expect(problem({ persistent: 2, stage: 1, fragments: "inline" })).toBe(
      "tiles taken in turn need at least two stages",
    );
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

  it.skipIf(NVCC === undefined)(
    "are compiled without serialised products, spills or a stack frame",
    () => {
      const large = gridContextOf(product(4096, 4096, 4096), "wgmma.m64n256k16.f32.f16", MATMUL);
      const schedule: GridSchedule = {
        ...BASE,
        tile: { m: 128, n: 256, k: 64 },
        warps: { m: 2, n: 1 },
        stage: 4,
        order: 8,
        transfer: "engine",
        persistent: 132,
      };
      return expectCompiled({ name: "4096 cubed", context: large, schedule });
    },
    120_000,
  );
});
