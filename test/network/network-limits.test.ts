/** @file What nodes of a few bytes may ask for is bounded: the constants they make, and the steps they are written out as. */

import { describe, expect, it } from "vitest";
import { Lowering, SharedLowering } from "../../network/lowering.ts";
import { networkOperatorNamed } from "../../network/operators/index.ts";
import type { Value } from "../../network/value.ts";

const x: Value = { name: "x", type: "f32", shape: [2, 1, 4] };
const known: Value = { ...x, name: "known", constant: new Float32Array(8).fill(1) };

/** Lowers one node within a network that may still make so many elements and steps. */
function lowered(op: string, inputs: readonly Value[], left: { elements?: number; steps?: number } = {}): number {
  const values = new Map(inputs.map((value) => [value.name, value]));
  const node = { name: "node", op, inputs: inputs.map(({ name }) => name), outputs: ["y"], attributes: {} };
  const lowering = new Lowering(node, 20, values, Object.assign(new SharedLowering(), left));
  networkOperatorNamed(op)?.(lowering);
  return lowering.steps.length;
}

describe("the limits of a network that is lowered", () => {
  it.each([
    ["NonZero", [known], 24],
    ["Sin", [known], 8],
    ["Cos", [known], 8],
    ["ArgMax", [x], 2],
    ["ArgMin", [x], 2],
  ] as const)("count the elements that %s makes", (op, inputs, elements) => {
    expect(() => lowered(op, inputs, { elements })).not.toThrow();
    expect(() => lowered(op, inputs, { elements: elements - 1 })).toThrow(
      `node (${op}): constants made while the network is read would hold more than 268435456 elements`,
    );
  });

  it.each([
    ["RNN", 1],
    ["GRU", 3],
    ["LSTM", 4],
  ] as const)("count the steps that %s is written out as", (op, gates) => {
    const constant = new Float32Array(16 * gates);
    const weights = (name: string): Value => ({ name, type: "f32", shape: [1, 4 * gates, 4], constant });
    const inputs = [x, weights("w"), weights("r")];
    const steps = lowered(op, inputs);
    expect(steps).toBeGreaterThan(2);
    expect(lowered(op, inputs, { steps })).toBe(steps);
    expect(() => lowered(op, inputs, { steps: steps - 1 })).toThrow(
      `node (${op}): the network would be written out as more than 100000 steps`,
    );
  });
});
