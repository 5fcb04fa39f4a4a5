/** @file A network in bf16 on a CPU: factors of products are bf16, all else is f32. */

import { describe, expect, it } from "vitest";
import { seededRandom } from "../../abstraction/random.ts";
import type { Graph } from "../../network/graph.ts";
import { bertBase } from "../../network/models/bert.ts";
import { SeededLayers } from "../../network/models/layers.ts";
import { runNetwork } from "../../network/run.ts";
import { inBrainFloatsOnCpu, openGraph } from "../../session/network/network.ts";
import { expectProved } from "../support/proved-network.ts";
import { scratchFolder } from "../support/scratch.ts";

const folder = scratchFolder("automap-bf16-");

/** An input and an output that products read, a transposed factor, and a softmax. */
function attention(): Graph {
  const net = new SeededLayers("attention", 2);
  const x = net.input("x", [8, 16]);
  const query = net.node("MatMul", [x, net.drawn("query", [16, 16], 0.4)]);
  const key = net.node("Transpose", [net.node("MatMul", [x, net.drawn("key", [16, 16], 0.4)])], { perm: [1, 0] });
  const weights = net.node("Softmax", [net.node("MatMul", [query, key])], { axis: -1 });
  net.output(weights);
  net.output(net.node("Relu", [net.node("MatMul", [weights, x])]));
  return net.graph;
}

const inputsFor = (graph: Graph): Record<string, Float64Array> => {
  const random = seededRandom(1);
  return Object.fromEntries(
    openGraph(graph).program.inputs.map(({ name, type, shape }) => {
      const length = shape.reduce((product, size) => product * size, 1);
      const one = (): number => (type === "s32" ? Math.floor(2 * random()) : Math.fround(4 * random() - 2));
      return [name, Float64Array.from({ length }, one)];
    }),
  );
};

const GRAPHS: readonly (readonly [string, () => Graph])[] = [
  ["attention", attention],
  ["a transformer", () => bertBase({ tokens: 5, layers: 1, hidden: 24, heads: 2, vocabulary: 40 })],
];

describe("a network in bf16", () => {
  it.each(GRAPHS)("is close to the network in f32: %s", async (_, build) => {
    const opened = openGraph(build());
    const inputs = inputsFor(build());
    const exact = await runNetwork(opened.plain, inputs);
    const narrow = await runNetwork(inBrainFloatsOnCpu(opened).program, inputs);
    for (const [name, values] of exact) {
      const all = Array.from(values);
      const largest = Math.max(...all.map(Math.abs));
      const differences = all.map((wanted, i) => Math.abs(wanted - (narrow.get(name)?.[i] ?? Number.NaN)) / largest);
      expect(Math.max(...differences)).toBeLessThan(0.03);
      expect(Math.max(...differences)).toBeGreaterThan(0);
    }
  });

  it("is a library whose steps compute their equations", async () => {
    const opened = openGraph(attention());
    const { program } = inBrainFloatsOnCpu(opened);
    await expectProved(folder, { program, plain: opened.plain });
  });
});
