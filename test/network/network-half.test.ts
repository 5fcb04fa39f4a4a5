/**
 * @file Networks in half precision: which tensors are f16, which stay f32, and the difference to the network in f32.
 */

import { describe, expect, it } from "vitest";
import { fuse } from "../../network/fuse.ts";
import type { Graph } from "../../network/graph.ts";
import { inHalf } from "../../network/half.ts";
import { channelsLast } from "../../network/layout.ts";
import { lowerGraph } from "../../network/lower.ts";
import { bertBase } from "../../network/models/bert.ts";
import { SeededLayers } from "../../network/models/layers.ts";
import { miLstm } from "../../network/models/milstm.ts";
import { shufflenet } from "../../network/models/shufflenet.ts";
import type { Network } from "../../network/network.ts";
import { runNetwork } from "../../network/run.ts";
import { drawInputs } from "../../session/network/prove-network.ts";
import { inFull } from "../support/slow.ts";

function residual(): Graph {
  const net = new SeededLayers("residual", 7);
  const x = net.input("x", [1, 4, 6, 6]);
  const a = net.convolved(x, "a", { from: 4, to: 8, kernel: 3 });
  const b = net.convolved(a, "b", { from: 8, to: 8, groups: 8, kernel: 3, relu: false });
  const sum = net.node("Relu", [net.node("Add", [b, a])]);
  net.output(net.node("Softmax", [net.classified(sum, 8, 10)], { axis: 1 }));
  return net.graph;
}

const halfOf = (graph: Graph): { plain: Network; half: Network } => {
  const plain = lowerGraph(graph);
  return { plain, half: channelsLast(inHalf(fuse(plain)), true) };
};

describe("a network in half precision", () => {
  it("has filters with their channels innermost, depthwise ones included", () => {
    const [a, b] = halfOf(residual()).half.steps;
    expect(a?.computation.tensors["w"]?.storage).toMatchObject({ kind: "binary" });
    expect([a, b].map((step) => step?.operator?.name)).toEqual(["conv2d", "depthwise-conv2d"]);
  });

  it.each([
    ["convolutions", residual],
    ...inFull([["shuffled channels", () => shufflenet({ size: 32 })] as const], []),
    ["a recurrent one", () => miLstm({ steps: 2, inputs: 12, units: 8 })],
    ["a transformer", () => bertBase({ tokens: 5, layers: 1, hidden: 24, heads: 2, vocabulary: 40 })],
  ] as const)("gives the outputs of the network in f32 up to f16 rounding: %s", async (_, build) => {
    const { plain, half } = halfOf(build());
    const drawn = drawInputs(half, 1).values;
    const inputs = Object.fromEntries([...drawn].map(([value, elements]) => [value.name, elements]));
    const exact = await runNetwork(plain, inputs);
    const got = await runNetwork(half, inputs);
    for (const [name, wanted] of exact) {
      const made = got.get(name) ?? [];
      let apart = 0;
      let size = 0;
      for (let i = 0; i < wanted.length; i++) {
        apart += ((made[i] ?? Number.NaN) - (wanted[i] ?? 0)) ** 2;
        size += (wanted[i] ?? 0) ** 2;
      }
      const off = Math.sqrt(apart / size);
      expect([name, off > 0 && off < 0.01]).toEqual([name, true]);
    }
  });
});
