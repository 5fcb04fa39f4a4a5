/** @file The largest and the smallest elements along an axis, where some are no numbers, and where there are too many. */

import { describe, expect, it } from "vitest";
import { UsageError } from "../abstraction/error.ts";
import type { Graph } from "../network/graph.ts";
import { lowerGraph } from "../network/lower.ts";
import { runNetwork } from "../network/run.ts";

const top = (shape: readonly number[], k: number, largest = 1): Graph => ({
  name: "top",
  opset: 20,
  inputs: [{ name: "x", type: "f32", shape }],
  outputs: ["values", "places"],
  constants: new Map([["k", { type: "s64", shape: [1], values: Float64Array.of(k) }]]),
  nodes: [
    {
      name: "top",
      op: "TopK",
      inputs: ["x", "k"],
      outputs: ["values", "places"],
      attributes: { axis: -1, largest },
    },
  ],
});

describe("the first elements of a row in order", () => {
  it.each([
    [1, [Number.NaN, Number.NaN, 5, 1], [1, 3, 2, 0]],
    [0, [-2, 1, 5, Number.NaN], [4, 0, 2, 1]],
  ] as const)("count a NaN as larger than every number: largest %i", async (largest, values, places) => {
    const x = [1, Number.NaN, 5, Number.NaN, -2];
    const found = await runNetwork(lowerGraph(top([1, 5], 4, largest)), { x });
    expect([...found.values()].map((v) => Array.from(v))).toEqual([values, places]);
  });

  it("are refused by their node's name where the places of a row would not fit", () => {
    const far = (): unknown => lowerGraph(top([2 ** 28 + 1], 1));
    expect(far).toThrow(UsageError);
    expect(far).toThrow(/^top \(TopK\): constants made while the network is read would hold more than/);
  });
});
