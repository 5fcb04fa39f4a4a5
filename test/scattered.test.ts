/** @file Reads of lanes that lie apart in memory: which are gathers under a mask, and how long they and the code around them are. */

import { describe, expect, it } from "vitest";
import { defineComputation } from "../abstraction/computation.ts";
import { type LoopNest, loop, type Statement } from "../abstraction/loop-nest.ts";
import { parseEquation } from "../abstraction/parse.ts";
import { finished } from "../abstraction/steps.ts";
import { tooLongToWrite, vectorsWritten } from "../mapper/space-time/written-length.ts";
import { instantiate, operatorNamed, parseDataTypes } from "../operators/index.ts";
import { scatteredSeconds } from "../perfmodel/scattered.ts";
import { modelTarget } from "../perfmodel/target.ts";
import { nativeTarget } from "../targets/index.ts";
import { arraySpaceOf } from "../tuner/array-candidates.ts";

const LANES = 16;
const TILES = 5;
const target = modelTarget(nativeTarget());
const computation = defineComputation({
  equation: "y[q] += x[2*q+s-1]",
  extents: { q: LANES * TILES, s: 3 },
  tensors: { x: "f32" },
});

/** A nest that reads once in each of three steps of five tiles. */
function reading(value: string, mode: "serial" | "unrolled" = "serial"): LoopNest {
  const read: Statement = { kind: "scalar", equation: parseEquation(`IN[0,lane] = ${value}`) };
  const steps = loop("t", 3, [loop("lane", LANES, [read], "lanes")], mode);
  return {
    scratch: [],
    registers: [],
    prepare: [],
    vectors: [{ name: "IN", dtype: "f32", lanes: LANES, count: 1 }],
    body: [loop("tile", TILES, [steps], "serial")],
  };
}

/** Cycles of a read's lane, in the mean over the fifteen reads. */
const cyclesOfLane = (nest: LoopNest, threads = 1): number =>
  (scatteredSeconds(nest, computation, threads, target) * target.clockHz.value) / (3 * TILES * LANES);

describe("reads of lanes that lie apart", () => {
  const outside = "x[32*tile+2*lane+t-1]";
  const gathered = cyclesOfLane(reading(outside));

  it("are gathers where they may leave the tensor, shared among threads", () => {
    expect(gathered).toBeGreaterThan(0);
    expect(cyclesOfLane(reading(outside), 2)).toBeCloseTo(gathered / 2, 9);
  });

  it("cost nothing more inside the tensor, side by side, or where all lanes read one element", () => {
    for (const value of ["x[32*tile+2*lane+1]", "x[16*tile+lane+t-1]", "x[t-1]", "IN[0,2*lane-1]"])
      expect(cyclesOfLane(reading(value)), value).toBe(0);
  });

  it("take a test of each lane where no border can be cut off", () => {
    expect(cyclesOfLane(reading("x[32*tile+2*lane+(t+1)%3-1]"))).toBeGreaterThan(gathered);
  });

  it("count only in the steps in which more than one lane reads", () => {
    const entering = (condition: string): string => `select(${condition}, ${outside}, IN[0,lane+1])`;
    expect(cyclesOfLane(reading(entering("lane == 15")))).toBe(0);
    expect(cyclesOfLane(reading(entering("lane == 15 or t < 2"), "unrolled"))).toBeCloseTo((2 / 3) * gathered, 9);
    expect(cyclesOfLane(reading(entering("lane == 15 or t < 2"), "serial"))).toBeCloseTo(gathered, 9);
  });
});

describe("designs of a convolution at stride 2", () => {
  const parameters = { c: 3, h: 56, w: 56, k: 64, r: 7, s: 7, stride: 2, pad: 3 };
  const strided = instantiate(operatorNamed("conv2d"), { parameters, types: parseDataTypes("f32") });
  const space = finished(arraySpaceOf(strided, { threads: 1, target }));
  if ("rule" in space) throw new Error(space.because);

  it("are expected to take several times what their instructions alone would, as inputs are passed along loops of time", () => {
    const passed = space.ranked.find(({ schedule }) => schedule.inputs === "passed" && schedule.beside.k === 4);
    if (!passed) throw new Error("no such design");
    expect(space.expectedSeconds(passed.schedule)).toBeGreaterThan(4 * passed.seconds);
  });

  it("know that steps which stay a loop are shorter than those written out", () => {
    const sizeOf = (inputs: string): number => {
      const found = space.ranked.find(({ schedule }) => schedule.inputs === inputs && schedule.beside.k === 4);
      return (found && space.codeSize?.(found.schedule)) ?? 0;
    };
    expect(sizeOf("passed")).toBeGreaterThan(0);
    expect(sizeOf("loaded")).toBeGreaterThan(10 * sizeOf("passed"));
  });
});

describe("the length of a nest", () => {
  it("counts the statements on vectors of unrolled loops in each step", () => {
    expect([vectorsWritten(reading("0", "serial").body), vectorsWritten(reading("0", "unrolled").body)]).toEqual([
      1, 3,
    ]);
    expect(tooLongToWrite(reading("0"))).toBeUndefined();
  });
});
