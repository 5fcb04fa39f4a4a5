/**
 * @file Sums split among blocks: parts that meet in the shared memories of a cluster or in a workspace equal the equation in adverse orders, by
 * the interpreter and on the emulated device; one barrier too few is found; nvcc takes both.
 */

import { describe, expect, it } from "vitest";
import { NestFault } from "../abstraction/blocks/fault.ts";
import { ADVERSE_ORDERS } from "../abstraction/blocks/run.ts";
import type { GridSchedule } from "../abstraction/candidate.ts";
import type { Computation } from "../abstraction/computation.ts";
import { type Expr, rewrite } from "../abstraction/expression.ts";
import { interpret } from "../abstraction/interpret.ts";
import { interpretNest } from "../abstraction/interpret-nest.ts";
import type { LoopNest, Statement } from "../abstraction/loop-nest.ts";
import { parseExpr } from "../abstraction/parse.ts";
import { printNest } from "../abstraction/print-nest.ts";
import { rewriteStatement } from "../abstraction/rewrite-statement.ts";
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
const convolution = (c: number, k: number, size: number): Computation =>
  instantiate(operatorNamed("conv2d"), {
    parameters: { n: 1, c, k, h: size, w: size, r: 3, s: 3, pad: 1 },
    types: parseDataTypes("f16"),
    layouts: { in: "NHWC", w: "KRSC", y: "NPQK" },
    epilogue: "y[n,k,p,q] = f16(max(out[n,k,p,q], 0))",
  });

const MMA: GridSchedule = {
  tile: { m: 32, n: 16, k: 16 },
  warps: { m: 2, n: 1 },
  stage: 2,
  swizzle: "swizzled",
  transfer: "async",
  order: 1,
  fragments: "inline",
  store: "direct",
};
const WGMMA: GridSchedule = {
  tile: { m: 64, n: 32, k: 64 },
  warps: { m: 1, n: 1 },
  stage: 3,
  swizzle: "spans",
  transfer: "async",
  order: 1,
  fragments: "across",
  store: "direct",
};
/** 18 steps, of which two blocks take nine each. */
const TAPS: GridSchedule = { ...WGMMA, fragments: "inline", split: { parts: 2, through: "cluster" } };
const mma = "mma.m16n8k16.f32.f16";
const wgmma = "wgmma.m64n32k16.f32.f16";
const MATMUL = "m <- m; n <- n; k <- k";
type Split = NonNullable<GridSchedule["split"]>;
const CLUSTER: Split = { parts: 4, through: "cluster" };
const MEMORY: Split = { parts: 4, through: "memory" };

/** Products whose tiles reach beyond the end, convolutions whose parts are taps, results along rows and along columns. */
const CASES: readonly (readonly [string, GridContext, GridSchedule])[] = [
  ["a product by mma", gridContextOf(product(40, 24, 64), mma, MATMUL), MMA],
  ["a product by wgmma", gridContextOf(product(70, 40, 256), wgmma, MATMUL), WGMMA],
  ["the same by boxes", gridContextOf(product(70, 40, 256), wgmma, MATMUL), { ...WGMMA, transfer: "engine" }],
  ["taps, results along columns", gridContextOf(convolution(64, 16, 4), mma, "m <- p,q; n <- k; k <- c"), MMA],
  ["taps, results along rows", gridContextOf(convolution(64, 40, 4), mma, "m <- k; n <- p,q; k <- c"), MMA],
  ["taps by wgmma", gridContextOf(convolution(128, 64, 5), wgmma, "m <- k; n <- p,q; k <- c"), TAPS],
];

describe("a sum split among four blocks", () => {
  const subjects = CASES.flatMap(([name, context, base]) =>
    [CLUSTER, MEMORY].map((split) => {
      const { computation } = context.mapping;
      const schedule: GridSchedule = { ...base, split: { ...split, ...(base.split && { parts: base.split.parts }) } };
      return { name: `${name}, through ${split.through}`, context, computation, schedule };
    }),
  );

  it.each(subjects)("equals the equation in adverse orders: $name", ({ context, computation, schedule }) => {
    expect(gridProblem(context, schedule)).toBeUndefined();
    expect(predictGrid(context, schedule, HOPPER)?.seconds).toBeGreaterThan(0);
    const inputs = smallIntegers(computation);
    const nest = lowerGrid(context, schedule);
    const expected = interpret(computation, inputs);
    const got = interpretNest(nest, computation, inputs, 1, ADVERSE_ORDERS[5]);
    expect([...got]).toEqual([...expected]);
  });

  it("is right on the emulated device", () => expectRightEmulated(subjects), 120_000);
});

describe("partial sums of several blocks", () => {
  const context = gridContextOf(product(32, 16, 64), mma, MATMUL);
  const { computation } = context.mapping;
  const inputs = smallIntegers(computation);
  const expected = interpret(computation, inputs);
  const nestOf = (split: Split): LoopNest => lowerGrid(context, { ...MMA, split });

  /** What each order makes of a nest with something left out. */
  const without = (nest: LoopNest, leave: (s: Statement) => boolean): string[] => {
    return ADVERSE_ORDERS.map((order) => {
      try {
        const got = interpretNest(withoutStatements(nest, leave), computation, inputs, 2, order);
        return got.every((v, i) => v === expected[i]) ? "right" : "wrong";
      } catch (error) {
        if (!(error instanceof NestFault)) throw error;
        const lines = error.message.split("\n").map((l) => l.trim());
        return [lines[0], ...lines.filter((l) => l.startsWith("missing"))].join("; ");
      }
    });
  };
  const always = (what: unknown): unknown[] => ADVERSE_ORDERS.map(() => what);
  const isBarrier = (s: Statement, of: "sums" | "beginnings"): boolean =>
    s.kind === "barrier" && s.group === "cluster" && (s.of ?? "sums") === of;

  it("add up to the right result, call after call", () => {
    for (const split of [CLUSTER, MEMORY]) expect(without(nestOf(split), () => false)).toEqual(always("right"));
  });

  it("are not added before a barrier of the cluster", () => {
    expect(without(nestOf(CLUSTER), (s) => isBarrier(s, "sums"))).toEqual(
      always(expect.stringMatching(/parts\[.*missing: a barrier of the (cluster|block) between/)),
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
      always(expect.stringMatching(/parts\[.*missing: a barrier of the (whole call|block)/)),
    );
  });

  it("are refused with the reason where they cannot be added", () => {
    const problem = (change: Partial<GridSchedule>, target = HOPPER): string | undefined =>
      gridProblem(gridContextOf(product(32, 16, 64), mma, MATMUL, target), { ...MMA, ...change });
    expect(problem({ split: { parts: 3, through: "memory" } })).toBe(
      "4 steps of the sum are not divided among 3 blocks",
    );
    expect(problem({ split: MEMORY, store: "staged" })).toMatch(/^parts of a sum are stored by the lanes/);
    expect(problem({ split: CLUSTER }, nvidiaTarget("a100"))).toBe("blocks of the target form no clusters");
    expect(problem({ split: MEMORY }, nvidiaTarget("a100"))).toBeUndefined();
    const huge = gridContextOf(product(65536, 65536, 4096), mma, MATMUL);
    expect(gridProblem(huge, { ...MMA, split: { parts: 64, through: "memory" } })).toMatch(
      /^parts of sums take 1099511627776 bytes/,
    );
  });

  it("are predicted to pay where results are few and sums long, not where tiles fill the machine", () => {
    const seconds = (c: GridContext, schedule: GridSchedule): number =>
      predictGrid(c, schedule, HOPPER)?.seconds ?? Number.POSITIVE_INFINITY;
    const fast: GridSchedule = { ...WGMMA, stage: 4, tile: { m: 64, n: 64, k: 64 }, fragments: "across" };
    // Measured: 5.1 us for 17.8 (512 x 7 x 7), and 7.5 for 6.1 (1024 cubed).
    const deep = gridContextOf(convolution(512, 512, 7), wgmma, "m <- k; n <- p,q; k <- c");
    expect(seconds(deep, { ...fast, split: { parts: 8, through: "cluster" } })).toBeLessThan(seconds(deep, fast) / 2);
    const wide = gridContextOf(product(1024, 1024, 1024), "wgmma.m64n64k16.f32.f16", MATMUL);
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

describe.skipIf(NVCC === undefined)("nvcc", () => {
  it.each([
    [gridContextOf(product(1024, 1024, 1024), mma, MATMUL), MMA, MEMORY, "80"],
    [gridContextOf(convolution(512, 512, 7), wgmma, "m <- k; n <- p,q; k <- c"), WGMMA, CLUSTER, "90a"],
    [gridContextOf(product(1024, 1024, 1024), wgmma, MATMUL), { ...WGMMA, transfer: "engine" }, MEMORY, "90a"],
  ] as const)(
    "takes it without a warning, spills or serialised products: %#",
    (context, base, split, capability) =>
      expectCompiled({ name: split.through, context, schedule: { ...base, split } }, capability),
    120_000,
  );
});
