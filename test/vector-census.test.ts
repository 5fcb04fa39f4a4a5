/** @file The census of straight runs on vectors: what a compiler leaves of them, counted by hand. */

import { describe, expect, it } from "vitest";
import type { DesignSchedule } from "../abstraction/candidate.ts";
import { type Computation, defineComputation, elementCount, outputOf } from "../abstraction/computation.ts";
import { type LoopNest, loop, type Statement } from "../abstraction/loop-nest.ts";
import { parseEquation } from "../abstraction/parse.ts";
import { finished } from "../abstraction/steps.ts";
import { sumUnder, tapSums } from "../mapper/schedule/window-decisions.ts";
import { placeArray } from "../mapper/space-time/lane-array.ts";
import { lowerPlaced } from "../mapper/space-time/lower-array.ts";
import { lowerWarpWindow } from "../mapper/space-time/lower-window.ts";
import { placeWindow, WINDOW_DESIGNS } from "../mapper/space-time/window.ts";
import { tooLongToWrite, vectorsWritten } from "../mapper/space-time/written-length.ts";
import { instantiate, operatorNamed, parseDataTypes } from "../operators/index.ts";
import { modelTarget } from "../perfmodel/target.ts";
import { type VectorCounts, type VectorRun, vectorRuns } from "../perfmodel/vector-census.ts";
import { vectorSeconds } from "../perfmodel/vectors.ts";
import { warpWork } from "../perfmodel/warps.ts";
import { nativeTarget } from "../targets/index.ts";
import { arraySpaceOf } from "../tuner/array-candidates.ts";
import { recordedKernels } from "./support/recorded-trials.ts";

const LANES = 16;
/** Steps over channels, then columns, then rows of a window of (q,s,c,r). */
const STEPS = [
  [0, 0, 1, 0],
  [0, 0, 0, 1],
  [0, 1, 0, 0],
] as const;
const computation: Computation = defineComputation({
  equation: "y[q] += x[q+s-1] * w[s]",
  extents: { q: 160, s: 4 },
  tensors: { x: { dtype: "f32", shape: [400] }, w: "f32", y: "f32" },
});

const set = (text: string): Statement => ({ kind: "scalar", equation: parseEquation(text) });
const lanes = (...texts: string[]): Statement => loop("lane", LANES, texts.map(set), "lanes");

/** Five steps of `tile` around statements on lanes. */
function nestOf(body: readonly Statement[]): LoopNest {
  const file = (name: string, count: number) => ({ name, dtype: "f32" as const, lanes: LANES, count });
  return {
    scratch: [],
    registers: [],
    prepare: [],
    vectors: [file("X", 2), file("W", 1), file("S", 4)],
    body: [loop("tile", 5, body)],
  };
}

function runOf(...body: Statement[]): VectorRun {
  const [run, ...others] = vectorRuns(nestOf(body), computation.tensors);
  if (!run || others.length > 0) throw new Error("not one run");
  return run;
}

/** Counts that are not 0. */
const countsOf = ({ times, parallel, chain, carried, registers, ...counts }: VectorRun): Partial<VectorCounts> =>
  Object.fromEntries(Object.entries(counts).filter(([, n]) => n !== 0));

const START = "S[0,lane] = 0";
const STORE = "y[32*tile+lane] = S[0,lane]";

describe("a run of statements on vectors", () => {
  it("of a filter has a load, a broadcast and a multiply-add for each tap, and one store", () => {
    const taps = loop(
      "s",
      4,
      [lanes("X[0,lane] = x[16*tile+lane+s]", "W[0,lane] = w[s]", "S[0,lane] = S[0,lane] + X[0,lane] * W[0,lane]")],
      "unrolled",
    );
    const run = runOf(lanes(START), taps, lanes(STORE));
    expect(countsOf(run)).toEqual({ loads: 4, broadcasts: 4, multiplyAdds: 3, arithmetic: 1, stores: 1 });
    expect(run).toMatchObject({
      times: 5,
      chain: { operations: 4, shifts: 0 },
      carried: { operations: 0 },
      registers: 7,
    });
  });

  it("loads an element once, and computes an equal value once", () => {
    const twice = ["S[0,lane] = x[16*tile+lane] * w[0]", "S[1,lane] = x[16*tile+lane] * w[0]"];
    const run = runOf(lanes(...twice, "y[32*tile+lane] = S[0,lane] + S[1,lane]"));
    expect(countsOf(run)).toEqual({ loads: 1, broadcasts: 1, arithmetic: 1, multiplyAdds: 1, stores: 1 });
  });

  it("does not count what nothing uses: loads of a product whose condition never holds, a register overwritten", () => {
    const dead = loop(
      "s",
      4,
      [lanes("X[0,lane] = x[16*tile+lane+s]", "S[0,lane] = S[0,lane] + select(s == 1, X[0,lane] * w[s], 0)")],
      "unrolled",
    );
    expect(countsOf(runOf(lanes(START), dead, lanes(STORE)))).toEqual({
      loads: 1,
      broadcasts: 1,
      arithmetic: 1,
      stores: 1,
    });
  });

  it("knows quotients and remainders of steps that are written out", () => {
    const skewed = loop(
      "s",
      4,
      [lanes("S[s/2,lane] = x[16*tile+lane+2*(s/2)]", "y[32*tile+16*(s/2)+lane] = S[s/2,lane]")],
      "unrolled",
    );
    expect(countsOf(runOf(skewed))).toEqual({ loads: 2, stores: 4 });
  });

  it("knows those of loops around whose steps are whole multiples", () => {
    const skewed = loop("s", 4, [lanes("S[0,lane] = x[16*((4*tile+s)/2)+(4*tile+s)%2+lane]", STORE)], "unrolled");
    expect(countsOf(runOf(skewed))).toEqual({ loads: 4, stores: 4 });
    const other = [lanes("S[0,lane] = x[16*((3*tile+1)/2)+lane]", STORE)];
    expect(countsOf(runOf(...other))).toEqual({ gatheredLanes: LANES, maskedLanes: LANES, stores: 1 });
  });

  it("moves values across lanes, and waits for them in a chain", () => {
    const run = runOf(
      lanes(
        "S[0,lane] = S[0,lane-1] + x[16*tile+lane] * w[0]",
        "S[0,lane] = S[0,lane-1] + x[16*tile+lane+1] * w[1]",
        STORE,
      ),
    );
    expect(countsOf(run)).toEqual({ shifts: 2, multiplyAdds: 2, loads: 2, broadcasts: 2, stores: 1 });
    expect(run.carried).toEqual({ operations: 2, shifts: 2 });
  });

  it.each([
    ["S[0,lane] = x[16*tile+lane]", { loads: 1 }],
    ["S[0,lane] = x[2*lane]", { pairedLoads: 1 }],
    ["S[0,lane] = x[3*lane]", { gatheredLanes: LANES }],
    ["S[0,lane] = x[tile]", { broadcasts: 1 }],
    // Lanes that may leave the tensor are tested.
    ["S[0,lane] = x[2*lane-1]", { gatheredLanes: LANES, maskedLanes: LANES }],
    ["S[0,lane] = select(lane == 15, x[tile], S[0,lane+1])", { shifts: 1, broadcasts: 1, blends: 1 }],
    ["S[0,lane] = select(tile-lane == 0, x[lane], S[0,lane])", { broadcasts: 1, blends: 1 }],
    ["S[0,lane] = select(tile-2*lane < 0, x[lane], S[0,lane])", { loads: 1, blends: 1, maskedLanes: LANES }],
  ])("reads %s as %j", (text, counts) => {
    expect(countsOf(runOf(lanes(text, STORE)))).toEqual({ ...counts, stores: 1 });
  });

  it.each([
    ["NHWC", { gatheredLanes: LANES, broadcasts: 1 }],
    ["NCHW", { loads: 1, broadcasts: 1 }],
    // Blocks of four channels, which lie side by side, and of two columns.
    ["NCHW4c", { gatheredLanes: LANES, broadcasts: 1 }],
    ["NWCH2w", { gatheredLanes: LANES, broadcasts: 1 }],
  ])("reads columns of an image in %s as %j", (layout, counts) => {
    const extents = { n: 1, c: 8, h: 1, w: 80 };
    const x = { dtype: "f32", layout } as const;
    const image = defineComputation({ equation: "y[n,c,h,w] = x[n,c,h,w]", extents, tensors: { x } });
    const read = lanes("S[0,lane] = x[0,1,0,16*tile+lane]", "S[1,lane] = x[0,1,0,tile]", "S[0,lane] += S[1,lane]");
    const [run] = vectorRuns(nestOf([read, lanes("y[0,0,0,16*tile+lane] = S[0,lane]")]), image.tensors);
    expect(run && countsOf(run)).toEqual({ ...counts, arithmetic: 1, stores: 1 });
  });

  it.each([
    ["y[32*tile+2*lane] = S[0,lane]", { scatteredLanes: LANES }],
    ["y[32*tile+lane] += S[0,lane]", { stores: 1, added: 1 }],
    ["y[tile] += S[0,lane]", { stores: 1, added: 1, reductions: 1 }],
    ["y[32*tile+lane] = S[0,lane] where lane < 12", { stores: 1, blends: 1 }],
    ["y[32*tile+lane] = S[0,lane] where tile < 5", { stores: 1 }],
    ["y[32*tile+lane] = S[0,lane] where lane < 12 and tile > 4", {}],
  ])("writes %s as %j", (text, counts) => {
    expect(countsOf(runOf(lanes(text)))).toEqual(counts);
  });

  it("counts a statement that fetches a line ahead, and the fetch besides", () => {
    const ahead: Statement = {
      kind: "scalar",
      equation: parseEquation(STORE),
      prefetch: { kind: "access", tensor: "x", index: [{ kind: "number", value: 64 }] },
    };
    const stored = loop("lane", LANES, [set("S[0,lane] = x[16*tile+lane]"), ahead], "lanes");
    expect(countsOf(runOf(stored))).toEqual({ loads: 1, stores: 1, prefetches: 1 });
  });

  it("widens narrow elements when it loads them, and narrows what it stores", () => {
    const bytes = defineComputation({ equation: "y[q] = x[q]", extents: { q: 160 }, tensors: { x: "s8", y: "s8" } });
    const [run] = vectorRuns(nestOf([lanes("S[0,lane] = x[16*tile+lane]", STORE)]), bytes.tensors);
    expect(run && countsOf(run)).toEqual({ loads: 1, widened: 1, stores: 1, narrowed: 1 });
  });

  it("runs as often as the loops around it say", () => {
    const part: Statement = {
      kind: "loop",
      axis: "i",
      extent: 10,
      mode: "serial",
      range: { from: [{ kind: "number", value: 2 }], to: [{ kind: "axis", name: "tile" }] },
      body: [lanes(STORE)],
    };
    // `tile` is 2 on average, so that the range from 2 up to it is empty; without an end it has 8 steps.
    expect(vectorRuns(nestOf([part]), computation.tensors)).toEqual([]);
    const open = { ...part, range: { from: part.range?.from ?? [], to: [] } };
    expect(vectorRuns(nestOf([open]), computation.tensors).map((r) => r.times)).toEqual([40]);
  });
});

describe("a part under a condition", () => {
  it.each([
    ["tile >= 3", [2, 3]],
    ["2*tile > 3", [3, 2]],
    ["3-tile <= 1", [3, 2]],
    ["tile == 4", [1, 4]],
    ["tile != 0", [4, 1]],
    ["tile < 9", [5]],
    ["tile < 0", [5]],
    ["tile >= 1 and tile < 4", [3.2, 1.8]],
    ["tile < 1 or tile >= 3", [3, 2]],
  ])("runs as often as %s", (text, times) => {
    const { where } = parseEquation(`y[0] = 0 where ${text}`);
    if (!where) throw new Error("no condition");
    const either: Statement = { kind: "when", condition: where, body: [lanes(STORE)], otherwise: [lanes(STORE)] };
    const runs = vectorRuns(nestOf([either]), computation.tensors);
    expect(runs.map((r) => Number(r.times.toFixed(6)))).toEqual(times);
  });
});

describe("a run of statements on the threads of a warp", () => {
  const THREADS = { lineBytes: 128, sectorBytes: 32, constants: new Set(["w"]), arrays: 2 };
  const onThreads = (...body: Statement[]): VectorRun => {
    const shared = [loop("block", 3, nestOf(body).body, "parallel")];
    const [run, ...others] = vectorRuns({ ...nestOf([]), body: shared }, computation.tensors, THREADS);
    if (!run || others.length > 0) throw new Error("not one run");
    return run;
  };
  const STORED = "y[16*block+lane] = S[0,lane]";
  const stored = { stores: 1, sentBytes: 64 };

  it.each([
    ["S[0,lane] = x[16*block+lane]", { loads: 1, lines: 2, ...stored }],
    // Both arrays of the warp read the same line.
    ["S[0,lane] = x[16*tile+lane]", { loads: 1, lines: 1.5, ...stored }],
    ["S[0,lane] = x[64*block+4*lane]", { loads: 1, lines: 3, ...stored }],
    // Lanes that may leave the tensor are tested.
    ["S[0,lane] = x[16*block+lane-1]", { loads: 1, lines: 2, guardedLoads: 1, tests: 1, ...stored }],
    ["S[0,lane] = select(tile-2*lane < 0, x[lane], 0)", { loads: 1, lines: 1.5, blends: 1, tests: 1, ...stored }],
    // An operand of its instruction, unless its place differs between warps.
    ["S[0,lane] = w[1]", { lines: 1, ...stored }],
    ["S[0,lane] = w[block]", { constants: 1, lines: 1, ...stored }],
  ])("reads %s as %j", (text, counts) => {
    expect(countsOf(onThreads(lanes(text, STORED)))).toEqual(counts);
  });

  it("moves several elements of a lane at once, each from or to its own register", () => {
    const four = { name: "n", extent: 4 };
    const together = (text: string): Statement => ({ kind: "scalar", equation: parseEquation(text), together: four });
    const body = [
      together("S[n,lane] = x[64*block+4*lane+n]"),
      ...[0, 1, 2, 3].map((n) => set(`S[${n},lane] = S[${n},lane] + S[${n},lane]`)),
      together("y[4*lane+n] = S[n,lane]"),
    ];
    const counts = { loads: 1, lines: 3, arithmetic: 4, stores: 1, sentBytes: 128 };
    expect(countsOf(onThreads(loop("lane", LANES, body, "lanes")))).toEqual(counts);
  });

  it("loads an element under a test as often as it is used, since it may be jumped over", () => {
    const uses = (index: string) =>
      lanes(`S[0,lane] = x[${index}]`, `S[1,lane] = x[${index}]`, "S[0,lane] += S[1,lane]", STORED);
    expect(countsOf(onThreads(uses("16*block+lane-1")))).toMatchObject({ loads: 2, guardedLoads: 2, tests: 1 });
    expect(countsOf(onThreads(uses("16*block+lane")))).toMatchObject({ loads: 1 });
  });

  it.each([
    ["y[16*block+lane] += S[0,lane]", { stores: 1, added: 1, lines: 2, sentBytes: 64 }],
    ["y[block] += S[0,lane]", { stores: 1, added: 1, reductions: 1, lines: 2, sentBytes: 32 }],
    ["y[16*block+lane] = S[0,lane] where lane < 12-block", { stores: 1, tests: 1, lines: 1, sentBytes: 64 }],
    // The last of five steps.
    ["y[16*block+lane] = S[0,lane] where tile == 4", { stores: 0.2, tests: 1, lines: 0.2, sentBytes: 12.8 }],
  ])("writes %s as %j", (text, counts) => {
    expect(countsOf(onThreads(lanes(text)))).toEqual(counts);
    expect(onThreads(lanes(text))).toMatchObject({ times: 15, parallel: 3 });
  });
});

describe("the work of windows on warps", () => {
  const KERNELS = [
    ...recordedKernels("bench/trials/cuda-picked-lanes-h200.jsonl.gz", "warp-window").filter((_, i) => i % 40 === 0),
    ...recordedKernels("bench/trials/cuda-stencils-h100.jsonl.gz", "warp-window").filter(
      ({ schedule: s }, i) => s.dataflow === "FBS-shift" || (s.sweep === 16 && s.ahead === 4) || i % 96 === 0,
    ),
  ];

  it("is in a closed form what the census of their nests counts", () => {
    const ratios = KERNELS.flatMap(({ computation, schedule }) => {
      const context = tapSums(computation);
      if ("rule" in context) return [];
      const sum = sumUnder(context, schedule);
      const placed = placeWindow(WINDOW_DESIGNS[schedule.dataflow], schedule.lanes, sum.columns);
      if (!placed.ok) return [];
      const work = warpWork(sum, schedule, placed.placement);
      const blocks = Math.ceil(elementCount(outputOf(computation)) / work.outputs);
      const constant = Object.values(computation.tensors).filter((t) => t.constant);
      const constants = new Set(constant.map((t) => t.name));
      const threads = { lineBytes: 128, sectorBytes: 32, constants, arrays: 1 };
      const runs = vectorRuns(lowerWarpWindow(computation, schedule), computation.tensors, threads);
      const counted = (...names: readonly (keyof VectorCounts)[]): number =>
        runs.reduce((n, run) => names.reduce((m, name) => m + run.times * run[name], n), 0);
      return [
        (work.multiplyAdds * blocks) / counted("multiplyAdds", "arithmetic"),
        (work.loads * blocks) / counted("loads"),
        ...(work.shuffles > 0 ? [(work.shuffles * blocks) / counted("shifts")] : []),
      ];
    });
    expect(ratios.length).toBeGreaterThan(40);
    // Blocks at borders are whole ones in the nest.
    expect(Math.min(...ratios)).toBeGreaterThan(0.9);
    expect(Math.max(...ratios)).toBeLessThan(1.15);
    expect(ratios.toSorted((a, b) => a - b)[ratios.length >> 1]).toBeCloseTo(1, 2);
  });
});

describe("designs of a convolution at stride 2", () => {
  const parameters = { c: 3, h: 56, w: 56, k: 64, r: 7, s: 7, stride: 2, pad: 3 };
  const strided = instantiate(operatorNamed("conv2d"), { parameters, types: parseDataTypes("f32") });
  const space = finished(arraySpaceOf(strided, { threads: 1, target: modelTarget(nativeTarget()) }));
  if ("rule" in space) throw new Error(space.because);
  const found = (inputs: string): DesignSchedule => {
    const one = space.ranked.find(({ schedule }) => schedule.inputs === inputs && schedule.beside.k === 4);
    if (!one) throw new Error("no such design");
    return one.schedule;
  };

  it("are listed in the order of what their nests tell, where the estimate promises most", () => {
    const first: number[] = [];
    for (const schedule of space.all()) if (first.push(space.expectedSeconds(schedule)) === 32) break;
    expect(first).toEqual(first.toSorted((a, b) => a - b));
    expect(first[0]).toBeLessThan(space.expectedSeconds(found("passed")));
  });

  it("know that steps which stay a loop are shorter than those written out", () => {
    const sizeOf = (inputs: string): number => space.codeSize?.(found(inputs)) ?? 0;
    expect(sizeOf("passed")).toBeGreaterThan(0);
    expect(sizeOf("loaded")).toBeGreaterThan(10 * sizeOf("passed"));
  });
});

describe("a design of a convolution", () => {
  it("is expected to take twice as long with channels last, where neighbouring columns lie apart", () => {
    const target = modelTarget(nativeTarget());
    const parameters = { c: 32, h: 28, w: 28, k: 32, r: 3, s: 3, pad: 1 };
    const [first = 0, last = 0] = ["NCHW", "NHWC"].map((layouts) => {
      const image = instantiate(operatorNamed("conv2d"), { parameters, layouts, types: parseDataTypes("f32") });
      const transform = { loops: ["q", "s", "c", "r"], allocation: [1, 0, 0, 0], schedule: STEPS } as const;
      const schedule = { lanes: 16, transform, tile: { q: 16 }, beside: { k: 4, p: 2 }, inputs: "loaded" } as const;
      const placed = placeArray(image, schedule);
      if (!placed.ok) throw new Error(placed.refusal.because);
      const nest = lowerPlaced(image, placed.array, schedule.inputs);
      return vectorSeconds(nest, image, { target, threads: 1 });
    });
    expect(last).toBeGreaterThan(2 * first);
  });
});

describe("the length of a nest", () => {
  it("counts the statements on vectors of unrolled loops in each step", () => {
    const reading = (mode: "serial" | "unrolled"): LoopNest => nestOf([loop("t", 3, [lanes(START)], mode)]);
    expect([vectorsWritten(reading("serial").body), vectorsWritten(reading("unrolled").body)]).toEqual([1, 3]);
    expect(tooLongToWrite(reading("serial"))).toBeUndefined();
  });
});
