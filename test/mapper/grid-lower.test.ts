/**
 * @file Schedules of blocks and warps: every random one lowers to a nest that the interpreter finds free of races in adverse orders and
 * equal to the equation.
 */

import { describe, expect, it } from "vitest";
import { ADVERSE_ORDERS } from "../../abstraction/blocks/run.ts";
import type { GridSchedule } from "../../abstraction/candidate.ts";
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
import {
  allSchedules,
  crossSchedules,
  drawSchedule,
  mutateSchedule,
  scheduleDistance,
} from "../../mapper/schedule/schedules.ts";
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
  reluConvolutionF16,
  wgmmaSchedule,
} from "../support/grid-kernels.ts";
import { playGrids } from "../support/grid-transcript.ts";
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

  playGrids("warps");

  it("differs less in the order of tiles or the number of blocks than in having a producer", () => {
    const context = gridContextOf(matmulF16(4096, 4096, 4096), "wgmma.m64n256k16.f32.f16", MATMUL);
    const best = wgmmaSchedule(128, 256, 64, { producer: "warp", stage: 4, order: 8, persistent: 132 });
    const apart = (change: Partial<GridSchedule>): number =>
      scheduleDistance(GRID, context, best, { ...best, ...change });
    expect(apart({ order: 16, persistent: 264 })).toBeLessThan(1);
    expect(apart({ producer: undefined })).toBe(1);
    expect(apart({ persistent: undefined })).toBe(1);
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
