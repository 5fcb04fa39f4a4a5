/** @file Networks whose steps share their rows. */

import type { Graph } from "../../network/graph.ts";
import { SeededLayers } from "../../network/models/layers.ts";

export const built = (build: (net: SeededLayers) => string): Graph => {
  const net = new SeededLayers("net", 5);
  net.output(build(net));
  return net.graph;
};

/** Scores of 2 sentences with 3 heads, scaled and masked, of a product that has another reader too. */
export const masked = built((net) => {
  const x = net.input("x", [2, 3, 5, 70]);
  const scores = net.node("Mul", [x, net.constant("scale", [], Float32Array.of(0.125))]);
  return net.node("Softmax", [net.node("Add", [scores, net.input("mask", [2, 1, 1, 70])])], { axis: -1 });
});

const normed = (net: SeededLayers, x: string, size: number, name: string): string =>
  net.node("LayerNormalization", [
    x,
    net.drawn(`${name}.gain`, [size], 0.2, 1),
    net.drawn(`${name}.offset`, [size], 0.1),
  ]);

/** A sum that the layer norm and the next sum read. */
export const residual = built((net) => {
  const sum = net.node("Add", [net.input("x", [2, 3, 70]), net.input("y", [2, 3, 70])]);
  return net.node("Add", [sum, net.node("Relu", [normed(net, sum, 70, "norm")])]);
});

export const CHAIN_GRAPHS: readonly (readonly [name: string, graph: Graph])[] = [
  ["a masked softmax", masked],
  ["a layer norm after a sum, and the sum after it", residual],
  ["a softmax along columns of 5", built((net) => net.node("Softmax", [net.input("x", [4, 5])], { axis: 1 }))],
  ["a log-softmax", built((net) => net.node("LogSoftmax", [net.input("x", [3, 200])], { axis: 1 }))],
  [
    "an instance norm",
    built((net) => {
      const parameters = [net.drawn("gain", [3], 0.2, 1), net.drawn("offset", [3], 0.1)];
      return net.node("InstanceNormalization", [net.input("x", [2, 3, 4, 9]), ...parameters]);
    }),
  ],
  [
    "an RMS norm",
    built((net) => {
      const x = net.input("x", [6, 66]);
      const mean = net.node("ReduceMean", [net.node("Mul", [x, x]), net.whole("along", [-1])]);
      const root = net.node("Sqrt", [net.node("Add", [mean, net.constant("epsilon", [], Float32Array.of(1e-5))])]);
      return net.node("Mul", [net.node("Div", [x, root]), net.drawn("gain", [66], 0.2, 1)]);
    }),
  ],
];
