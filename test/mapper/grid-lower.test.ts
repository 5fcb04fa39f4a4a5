/**
 * @file Schedules of blocks and warps: every random one lowers to a nest that the interpreter finds free of races in adverse orders and
 * equal to the equation.
 */

import { describe, expect, it } from "vitest";
import { ADVERSE_ORDERS } from "../../abstraction/blocks/run.ts";
import { type Computation, elementCount, inputsOf, pointCount } from "../../abstraction/computation.ts";
import { isInteger } from "../../abstraction/dtype.ts";
import { type Inputs, interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import { printMatching } from "../../abstraction/mapping.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { pick, type Random, randomInteger, seededRandom } from "../../abstraction/random.ts";
import { INTRINSICS } from "../../intrinsics/index.ts";
import { lowerGrid } from "../../mapper/lower/grid.ts";
import { GRID, gridProblem, printGridSchedule } from "../../mapper/schedule/grid.ts";
import { GRID_DECISIONS } from "../../mapper/schedule/grid-decisions.ts";
import { allSchedules, crossSchedules, drawSchedule, mutateSchedule } from "../../mapper/schedule/schedules.ts";
import { predictGrid } from "../../perfmodel/grid.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import {
  affordableSchedule,
  convolutionF16,
  gridContextOf,
  gridContextsOf,
  gridKernelOf,
  MATMUL,
  matmulF16,
  mmaSchedule,
  refusals,
  reluConvolutionF16,
} from "../support/grid-kernels.ts";
import { inFull } from "../support/slow.ts";
import { operation, stated } from "../support/subjects.ts";

const MMA = "mma.m16n8k16.f32.f16";

/** Sizes that no tile divides, beside some that tiles do. */
const COMPUTATIONS: readonly (readonly [string, Computation])[] = [
  ["matmul f16", matmulF16(32, 24, 64)],
  ["matmul f16, nothing divides", operation("matmul m=19 n=13 k=37", "f16")],
  ["matmul bf16", operation("matmul m=16 n=40 k=48", "bf16")],
  ["matmul tf32", operation("matmul m=20 n=16 k=24", "tf32")],
  ["matmul s8", operation("matmul m=16 n=24 k=64", "s8")],
  ["conv2d f16 NHWC", reluConvolutionF16("conv2d n=1 c=16 k=16 h=5 w=5")],
  ["conv2d f16 NCHW", operation("conv2d n=2 c=8 k=8 h=4 w=4", "f16")],
  [
    "triangle f16",
    stated(
      "c[i,j] += f32(a[i,k]) * f32(b[k,j]) where j <= i + 3 and k <= i; y[i,j] = f16(c[i,j] + 1) --i 21 --j 24 --k 32 --dtype f16",
    ),
  ],
  ["conv2d f16 stride 2", operation("conv2d n=1 c=16 k=8 h=7 w=7 stride=2", "f16")],
];

const WARPS = INTRINSICS.filter((i) => i.scope === "warp");
const MOST_WORK = 150_000;

function inputsFor(computation: Computation, random: Random): Inputs {
  return Object.fromEntries(
    inputsOf(computation).map((t) => [
      t.name,
      Float64Array.from({ length: elementCount(t) }, () => randomInteger(random, isInteger(t.dtype) ? -9 : -3, 3)),
    ]),
  );
}

const COUNT = Number(process.env["AUTOMAP_TEST_CASES"] ?? inFull(1250, 4));

describe("a schedule of blocks and warps", () => {
  for (const [name, computation] of COMPUTATIONS)
    it(`lowers ${name} to a nest without races that equals the equation: ${COUNT} of all`, () => {
      const random = seededRandom(name.length);
      const contexts = gridContextsOf(computation, WARPS);
      expect(contexts.length).toBeGreaterThan(0);
      expect(pointCount(computation)).toBeLessThan(MOST_WORK);
      const inputs = inputsFor(computation, random);
      const expected = interpret(computation, inputs);
      let done = 0;
      for (let tries = 0; done < COUNT && tries < 50 * COUNT; tries++) {
        const context = pick(random, contexts);
        const schedule = affordableSchedule(context, random, MOST_WORK);
        if (!schedule) continue;
        const order = ADVERSE_ORDERS[done % ADVERSE_ORDERS.length] ?? {};
        const nest = lowerGrid(context, schedule);
        const subject = `${context.intrinsic.name} ${printMatching(context.mapping.matching)}\n${printGridSchedule(schedule)}`;
        expect([...interpretNest(nest, computation, inputs, 1, order)], subject).toEqual([...expected]);
        done++;
      }
      expect(done).toBe(COUNT);
    });

  it("is legal when it is random, mutated or crossed, and prints all its decisions", () => {
    const random = seededRandom(5);
    const [context] = gridContextsOf(matmulF16(32, 24, 64), WARPS);
    if (!context) throw new Error("no context");
    let schedule = drawSchedule(GRID, context, random);
    for (let i = 0; i < 200 && schedule; i++) {
      expect(gridProblem(context, schedule)).toBeUndefined();
      const left = {
        repack: undefined,
        launch: undefined,
        multicast: undefined,
        producer: undefined,
        taps: undefined,
        gather: undefined,
        split: undefined,
        persistent: undefined,
      };
      const all = { ...left, ...schedule };
      expect(Object.keys(all).sort()).toEqual(Object.keys(GRID_DECISIONS).sort());
      const other = drawSchedule(GRID, context, random);
      const changed = mutateSchedule(GRID, context, schedule, random);
      if (other) schedule = crossSchedules(GRID, context, changed, other, random);
      expect(predictGrid(context, schedule, nvidiaTarget("h100"))?.seconds).toBeGreaterThan(0);
    }
  });

  it("survives JSON and the schema of each of its decisions", () => {
    const random = seededRandom(6);
    const [context] = gridContextsOf(reluConvolutionF16("conv2d n=1 c=16 k=16 h=5 w=5"), WARPS);
    const schedule = context && drawSchedule(GRID, context, random);
    if (!schedule) throw new Error("no schedule");
    const read: Readonly<Record<string, unknown>> = JSON.parse(JSON.stringify(schedule));
    for (const [name, decision] of Object.entries(GRID_DECISIONS))
      expect(decision.schema.safeParse(read[name]).success, name).toBe(true);
    expect(read).toEqual(schedule);
  });

  it("is refused with the reason where it does not fit", () => {
    const context = gridContextOf(operation("matmul m=256 n=256 k=256", "f16"), MMA, MATMUL);
    const fits = mmaSchedule(128, 128, 64, { warps: { m: 2, n: 4 }, stage: 3, fragments: "ahead" });
    // Each thread has enough, and all 512 of the block together have not.
    const wide = { warps: { m: 4, n: 4 }, stage: 2 };
    expect(
      refusals(context, fits, [
        {},
        { warps: { m: 3, n: 4 } },
        { stage: 9 },
        { order: 3 },
        { tile: { m: 256, n: 256, k: 64 } },
        { ...wide, tile: { m: 256, n: 128, k: 32 } },
        { ...wide, tile: { m: 128, n: 128, k: 32 } },
        { stage: 1, fragments: "across" },
      ]),
    ).toMatchInlineSnapshot(`
      "unchanged: legal
      warps m 3,n 4: tile m 128 is no multiple of 3 warps of 16
      stage 9: 294912 bytes of shared memory, a block has 232448
      order 3: 2 row tiles are not taken 3 at a time
      tile m 256,n 256,k 64: 392 registers a thread, it has 255
      warps m 4,n 4,stage 2,tile m 256,n 128,k 32: 77824 registers a block, it has 65536
      warps m 4,n 4,stage 2,tile m 128,n 128,k 32: legal
      stage 1,fragments across: fragments that cross steps need at least two stages"
    `);
  });

  it("prints as this program", () => {
    const context = gridContextOf(matmulF16(64, 64, 128), MMA, MATMUL);
    const schedule = mmaSchedule(32, 64, 32, { warps: { m: 1, n: 2 }, stage: 3, order: 2 });
    expect(printNest(lowerGrid(context, schedule))).toMatchInlineSnapshot(`
      "shared a_ring: f16[stage 3, m 32, k 32] at stage*1024 + (m*32 + (8*(k/8 ^ m/2%4) + k%8))
      shared b_ring: f16[stage 3, k 32, n 64] at stage*2048 + (k*64 + (8*(n/8 ^ k%8) + n%8))
      registers c: 8 x mma.m16n8k16.f32.f16.c
      registers a: 2 x mma.m16n8k16.f32.f16.a
      registers b: 4 x mma.m16n8k16.f32.f16.b
      for at block m_group in 0..1
        for at block n_tile in 0..1
          for at block m_tile in 0..2
            for at warp m_warp in 0..1
              for at warp n_warp in 0..2
                for unrolled m_fragment in 0..2
                  for unrolled n_fragment in 0..4
                    c{4*m_fragment + n_fragment} <- identity
                copy m_in 32, k_in 32 by 8, async, by block   a_ring[0,m_in,k_in] = a[32*(2*m_group+m_tile)+m_in,k_in]
                copy k_in 32, n_in 64 by 8, async, by block   b_ring[0,k_in,n_in] = b[k_in,64*n_tile+n_in]
                commit
                copy m_in 32, k_in 32 by 8, async, by block   a_ring[1,m_in,k_in] = a[32*(2*m_group+m_tile)+m_in,32+k_in]
                copy k_in 32, n_in 64 by 8, async, by block   b_ring[1,k_in,n_in] = b[32+k_in,64*n_tile+n_in]
                commit
                for step in 0..4
                  wait 1
                  barrier block
                  copy m_in 32, k_in 32 by 8, async, by block where step+2 < 4   a_ring[(step+2)%3,m_in,k_in] = a[32*(2*m_group+m_tile)+m_in,32*(step+2)+k_in]
                  copy k_in 32, n_in 64 by 8, async, by block where step+2 < 4   b_ring[(step+2)%3,k_in,n_in] = b[32*(step+2)+k_in,64*n_tile+n_in]
                  commit
                  for unrolled k_part in 0..2
                    for unrolled m_fragment in 0..2
                      a{m_fragment} <- a_ring[step%3,32*m_warp+16*m_fragment+m_in,16*k_part+k_in] over m_in, k_in by ldmatrix
                    for unrolled n_fragment in 0..2
                      b{2*n_fragment} and 1 more <- b_ring[step%3,16*k_part+k_in,32*n_warp+8*(2*n_fragment)+n_in] over k_in, n_in by ldmatrix.trans
                    for unrolled m_fragment in 0..2
                      for unrolled n_fragment in 0..4
                        c{4*m_fragment + n_fragment} <- mma.m16n8k16.f32.f16(a{m_fragment}, b{n_fragment})
                for unrolled m_fragment in 0..2
                  for unrolled n_fragment in 0..4
                    for m_in, n_in of c{4*m_fragment + n_fragment}   c[32*(2*m_group+m_tile)+(32*m_warp+16*m_fragment+m_in),64*n_tile+(32*n_warp+8*n_fragment+n_in)] = f16(sum[])"
    `);
  });

  it("copies an input ahead 16 bytes at a time where it takes all of its elements, else one by one", () => {
    const schedule = mmaSchedule(32, 16, 16, { repack: ["a"], warps: { m: 2, n: 1 } });
    const reads = (size: string): string | undefined => {
      const context = gridContextOf(
        operation(`conv2d n=1 c=64 k=16 ${size}`, "f16"),
        MMA,
        "m <- n,p,q; n <- k; k <- c",
      );
      return /copy (.*), by block where .* a_turned|copy (.*), by block {3}a_turned/
        .exec(printNest(lowerGrid(context, schedule)))
        ?.find((part, i) => i > 0 && part !== undefined);
    };
    expect(reads("h=7 w=7")).toMatch(/ by 8$/);
    expect(reads("h=8 w=8 r=1 s=1 pad=0 stride=2")).toBe("row 64, column 16");
  });

  it("can be printed where the ring has more stages than the sum has steps", () => {
    const pointwise = operation("conv2d n=1 c=16 k=16 h=8 w=8 r=1 s=1 pad=0", "f16");
    const context = gridContextOf(pointwise, MMA, "m <- n,p,q; n <- k; k <- c");
    const { rows, columns } = context;
    for (const [k, fragments] of [
      [16, "inline"],
      [32, "across"],
    ] as const) {
      const schedule = mmaSchedule(rows.extent, columns.extent, k, { stage: 4, swizzle: "padded", fragments });
      expect(gridKernelOf({ context, schedule }).promises).toBeDefined();
    }
  });

  it("stores staged results four at once along the output, reading them without bank conflicts", () => {
    const along = (matching: string): readonly string[] => {
      const context = gridContextOf(convolutionF16("conv2d n=1 c=16 k=16 h=8 w=8"), MMA, matching);
      const lines = printNest(lowerGrid(context, mmaSchedule(16, 32, 16, { store: "staged" }))).split("\n");
      return lines.flatMap((l) => /(shared results: .*|copy .* by warp)/.exec(l)?.[1] ?? []);
    };
    expect(along("m <- k; n <- p,q; k <- c")).toEqual([
      "shared results: f32[warp 1, n 32, m 16] at 36*(32*warp + n) + m",
      "copy n_in 32, m_in 16 by 4, by warp",
    ]);
    expect(along("m <- p,q; n <- k; k <- c")).toEqual([
      "shared results: f32[warp 1, m 16, n 32] at 40*(16*warp + m) + n",
      "copy m_in 16, n_in 32 by 4, by warp",
    ]);
  });

  it("is one of a list that has every legal combination once", () => {
    const context = gridContextOf(operation("matmul m=16 n=8 k=16", "f16"), MMA, MATMUL);
    const all = [...allSchedules(GRID, context)].map(printGridSchedule);
    expect(new Set(all).size).toBe(all.length);
    const random = seededRandom(8);
    for (let i = 0; i < 100; i++) {
      const drawn = drawSchedule(GRID, context, random);
      if (drawn) expect(all).toContain(printGridSchedule(drawn));
    }
  });
});
