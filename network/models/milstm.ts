/**
 * @file MI-LSTM: Wu, Zhang, Zhang, Bengio, Salakhutdinov, On Multiplicative Integration with Recurrent Neural Networks
 * (NIPS 2016), equation 4 in the gates of an LSTM.
 *
 *     gates = alpha * Wx * Uh + beta1 * Uh + beta2 * Wx + b        of z, i, f and o
 *     c = sigmoid(i) * tanh(z) + sigmoid(f) * c,    h = sigmoid(o) * tanh(c)
 *
 *     miLstm({ steps: 8 })      67 M multiply-adds, 8.40 M parameters: 4n(m + n) + 16n for m inputs and n units
 *
 * The paper gives the equations, the caller the sizes. Wx of all steps is one product, since no step waits for it.
 */

import { internal } from "../../abstraction/error.ts";
import type { Graph } from "../graph.ts";
import { SeededLayers } from "./layers.ts";

interface RecurrentOptions {
  readonly batch?: number;
  readonly seed?: number;
  /** Time steps; default 8. */
  readonly steps?: number;
  /** Default 1024. */
  readonly inputs?: number;
  /** Default 1024. */
  readonly units?: number;
}

const GATES = ["z", "i", "f", "o"] as const;

/** Input [steps, batch, inputs], output [batch, units]: the last state. */
export function miLstm({ batch = 1, seed = 1, steps = 8, inputs = 1024, units = 1024 }: RecurrentOptions = {}): Graph {
  const net = new SeededLayers("mi_lstm", seed);
  const wide = GATES.length * units;
  const x = net.input("x", [steps, batch, inputs]);
  const w = net.drawn("w", [inputs, wide], Math.sqrt(3 / inputs));
  const u = net.drawn("u", [units, wide], Math.sqrt(3 / units));
  const [alpha, beta1, beta2] = (["alpha", "beta1", "beta2"] as const).map((name) => net.drawn(name, [wide], 0.2, 1));
  const first = net.whole("first", [0]);
  const bias = net.drawn("bias", [wide], 0.1);
  if (!alpha || !beta1 || !beta2) internal("three vectors were drawn");
  const wx = net.split(net.node("MatMul", [x, w], {}, "wx"), 0, steps, "wx.step");
  let [h, c] = (["h0", "c0"] as const).map((name) => net.input(name, [batch, units]));
  for (let step = 0; step < steps; step++) {
    const called = (word: string): string => `step${step}.${word}`;
    const op = (kind: string, operands: readonly string[], word: string): string =>
      net.node(kind, operands, {}, called(word));
    const flat = op("Squeeze", [wx[step] ?? "", first], "wx");
    const uh = op("MatMul", [h ?? "", u], "uh");
    const both = op("Mul", [op("Mul", [flat, alpha], "weighted"), uh], "both");
    const sides = op("Add", [op("Mul", [uh, beta1], "recurrent"), op("Mul", [flat, beta2], "fed")], "sides");
    const gates = op("Add", [op("Add", [both, sides], "integrated"), bias], "gates");
    const [z = "", i = "", f = "", o = ""] = net.split(gates, 1, GATES.length, called("gate"));
    const taken = op("Mul", [op("Sigmoid", [i], "i"), op("Tanh", [z], "z")], "taken");
    c = op("Add", [taken, op("Mul", [op("Sigmoid", [f], "f"), c ?? ""], "kept")], "c");
    h = op("Mul", [op("Sigmoid", [o], "o"), op("Tanh", [c], "state")], "h");
  }
  net.output(h ?? "");
  return net.graph;
}
