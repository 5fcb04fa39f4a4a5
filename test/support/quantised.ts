/** @file A small network of images, and the ranges by which it is quantised. */

import { addTo, unique } from "../../abstraction/collections.ts";
import type { Graph, Node } from "../../network/graph.ts";
import { lowerGraph } from "../../network/lower.ts";
import { SeededLayers } from "../../network/models/layers.ts";
import type { NumberArray } from "../../network/numbers.ts";
import { quantise, type Ranges } from "../../network/quantise.ts";
import { runNetwork } from "../../network/run.ts";

/** A residual block with a branch, a depthwise layer, pooling, and a classifier. */
export function block(): Graph {
  const net = new SeededLayers("block", 7);
  const x = net.input("x", [1, 4, 8, 8]);
  const a = net.convolved(x, "a", { from: 4, to: 8, kernel: 3, stride: 2 });
  const b = net.convolved(a, "b", { from: 8, to: 8, kernel: 3, groups: 8, relu: false });
  const beside = net.convolved(x, "beside", { from: 4, to: 8, stride: 2, relu: false });
  const sum = net.node("Relu", [net.node("Add", [b, beside], {}, "sum")], {}, "sum.relu");
  const pooled = net.node("MaxPool", [sum], { kernel_shape: [3, 3], strides: [2, 2], pads: [1, 1, 1, 1] }, "max");
  net.output(net.classified(pooled, 8, 5));
  return net.graph;
}

/** Values whose ranges are needed: inputs of the network, and rectified outputs of layers, sums and poolings. */
export function valuesToObserve({ nodes, inputs, outputs }: Graph): string[] {
  const readers = new Map<string, Node[]>();
  for (const node of nodes) for (const name of node.inputs) addTo(readers, name, node);
  const last = (name: string): string => {
    const [reader, ...others] = readers.get(name) ?? [];
    const isJoined = reader && others.length === 0 && ["BatchNormalization", "Relu"].includes(reader.op);
    return isJoined ? last(reader.outputs[0] ?? "") : name;
  };
  const makers = nodes.filter(({ op }) => ["Conv", "Add", "Concat", "GlobalAveragePool"].includes(op));
  const all = [...inputs.map(({ name }) => name), ...makers.map(({ outputs: [name = ""] }) => last(name))];
  return unique(all).filter((name) => !outputs.includes(name));
}

/** The ranges of the values on these inputs. */
export async function rangesOf(graph: Graph, inputs: Readonly<Record<string, NumberArray>>): Promise<Ranges> {
  const values = await runNetwork(lowerGraph({ ...graph, outputs: valuesToObserve(graph) }), inputs);
  return Object.fromEntries(
    [...values].map(([name, elements]) => {
      const all = Array.from(elements);
      return [name, [Math.min(...all), Math.max(...all)]];
    }),
  );
}

/** The block with the ranges that it has on one image. */
export async function quantisedBlock(): Promise<Graph> {
  const graph = block();
  const x = Float32Array.from({ length: 256 }, (_, i) => ((37 * i) % 64) / 16 - 2);
  return quantise(graph, await rangesOf(graph, { x }));
}
