/**
 * @file Vectors of lanes in the interpreter: all lanes read before any writes, and elements beyond the ends are
 * unknown.
 */

import { describe, expect, it } from "vitest";
import { defineComputation } from "../../abstraction/computation.ts";
import type { DType } from "../../abstraction/dtype.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import type { LoopNest } from "../../abstraction/loop-nest.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { indented, readNest } from "../support/nest-text.ts";
import { stated } from "../support/subjects.ts";

const LANES = 4;
/** A nest of one vector file `V` of two registers whose lanes run the given statements. */
function onLanes(texts: readonly string[], dtype: DType = "f32"): LoopNest {
  return readNest([`vectors V: 2 x ${dtype}[4]`, "for lanes lane in 0..4", ...indented(texts)].join("\n"));
}

/** What `y` holds after the statements ran; `y` has one element a lane. */
function run(texts: readonly string[], x: readonly number[], dtype: DType = "f32"): number[] {
  const computation = defineComputation({ equation: "y[i] += x[i]", extents: { i: LANES }, tensors: { x: dtype } });
  return [...interpretNest(onLanes(texts, dtype), computation, { x })];
}

describe("lanes", () => {
  it("all read before any of them writes, whichever way a value moves", () => {
    const moved = (shift: string): number[] =>
      run(["V[0,lane] = x[lane]", `V[0,lane] = V[0,lane${shift}]`, "y[lane] = V[0,lane]"], [1, 2, 3, 4]);
    expect(moved("-1")).toEqual([Number.NaN, 1, 2, 3]);
    expect(moved("+1")).toEqual([2, 3, 4, Number.NaN]);
  });

  it("have NaN or an unknown integer beyond the ends and where nothing was written", () => {
    expect(run(["V[0,lane] = x[lane]", "y[lane] = V[0,lane-2] + V[1,lane]"], [1, 2, 3, 4])).toEqual([
      Number.NaN,
      Number.NaN,
      Number.NaN,
      Number.NaN,
    ]);
    const integers = run(["V[0,lane] = x[lane]", "y[lane] = V[0,lane-1]"], [1, 2, 3, 4], "s32");
    expect(integers.slice(1)).toEqual([1, 2, 3]);
    expect(integers[0]).not.toBe(0);
  });

  it("ignore an unknown value that a condition leaves out", () => {
    expect(run(["V[0,lane] = x[lane]", "y[lane] = select(lane < 1, 9, V[0,lane-1])"], [1, 2, 3, 4])).toEqual([
      9, 1, 2, 3,
    ]);
  });

  it("keep no value from call to call", () => {
    const computation = stated(`y[i] += x[i] --i ${LANES}`);
    const nest = onLanes(["y[lane] = V[0,lane]", "V[0,lane] = x[lane]"]);
    expect([...interpretNest(nest, computation, { x: [1, 2, 3, 4] }, 2)]).toEqual(Array(LANES).fill(Number.NaN));
  });

  it("are summed into a target without their axis where they meet the condition", () => {
    const sum = ["V[0,lane] = x[lane]", "y[1] += V[0,lane]", "y[2] += V[0,lane] where lane < 2"];
    expect(run(sum, [1, 2, 3, 4])).toEqual([0, 10, 3, 0]);
    // Elements that nothing assigns are NaN.
    const left = Array(LANES - 1).fill(Number.NaN);
    expect(run(["V[0,lane] = x[lane]", "y[0] = V[0,lane] where lane == 2"], [1, 2, 3, 4])).toEqual([3, ...left]);
  });

  it("round such a sum once", () => {
    // 2^24 + 1 rounds to 2^24 in f32; the three ones together do not vanish.
    expect(run(["V[0,lane] = x[lane]", "y[0] += V[0,lane]"], [2 ** 24, 1, 1, 1])).toEqual([2 ** 24 + 4, 0, 0, 0]);
  });

  it("refuse a statement that depends on the order of lanes", () => {
    expect(() => run(["y[0] = x[lane]"], [1, 2, 3, 4])).toThrow("internal: 4 lanes assign y[0] = x[lane]");
    expect(() => run(["y[lane/2] += x[lane]"], [1, 2, 3, 4])).toThrow(/two lanes write one element/);
    expect(() => run(["V[2,lane] = x[lane]"], [1, 2, 3, 4])).toThrow("internal: V[2,lane] is register 2 of 2");
  });

  it("run scalar statements only", () => {
    expect(() => run(["for i in 0..2", "  y[lane] = x[lane]"], [1, 2, 3, 4])).toThrow(
      "internal: lanes of lane run a loop; they run scalar statements only",
    );
  });

  it("print with their loop", () => {
    expect(printNest(onLanes(["V[0,lane] = V[0,lane-1] + x[lane]"]))).toBe(
      ["vectors V: 2 x f32[4]", "for lanes lane in 0..4", "  V[0,lane] = V[0,lane-1] + x[lane]"].join("\n"),
    );
  });
});
