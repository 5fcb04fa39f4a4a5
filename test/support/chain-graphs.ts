/** @file Networks whose steps share their rows. */

import { mapValues, product } from "../../abstraction/collections.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { type RowChain, rowChainOf } from "../../abstraction/row-chain.ts";
import { chainsOf, type StepChain } from "../../network/chains.ts";
import { fuse } from "../../network/fuse.ts";
import type { Graph } from "../../network/graph.ts";
import { inHalf } from "../../network/half.ts";
import { channelsLast } from "../../network/layout.ts";
import { lowerGraph } from "../../network/lower.ts";
import { type Network, rootOf } from "../../network/network.ts";
import type { Value } from "../../network/value.ts";
import { onnx } from "./networks.ts";

/** Scores of 2 sentences with 3 heads, scaled and masked. */
export const masked = onnx("Softmax<axis=-1>(Add(Mul(x[2,3,5,70], 0.125), mask[2,1,1,70]))");

/** A sum that the layer norm and the next sum read. */
export const residual = onnx(`
  sum = Add(x[2,3,70], y[2,3,70])
  Add(sum, Relu(LayerNormalization(sum, [70]{drawn}, [70]{drawn})))
`);

export const CHAIN_GRAPHS: readonly (readonly [name: string, graph: Graph])[] = [
  ["a masked softmax", masked],
  ["a layer norm after a sum, and the sum after it", residual],
  ["a softmax along columns of 5", onnx("Softmax<axis=1>(x[4,5])")],
  ["a log-softmax", onnx("LogSoftmax<axis=1>(x[3,200])")],
  ["an instance norm", onnx("InstanceNormalization(x[2,3,4,9], [3]{drawn}, [3]{drawn})")],
  [
    "an RMS norm",
    onnx(`
      root = Sqrt(Add(ReduceMean(Mul(x[6,66], x), s64{-1}), 0.00001))
      Mul(Div(x, root), [66]{drawn})
    `),
  ],
];

/** Rows without their mean; twice the mean is of no use to them. */
export const centred = onnx(`
  mean = ReduceMean(x[6,66], s64{-1})
  return Mul(mean, 2), Sub(x, mean)
`);

/** Chains that store several values. */
export const STORING_GRAPHS: readonly (readonly [name: string, graph: Graph])[] = [
  ["rows without their mean, and twice the mean", centred],
  [
    "a softmax, and what it divides",
    onnx("e = Exp(x[4,70])\nreturn e, ReduceSum<keepdims=1>(e, s64{1}), Div(e, ReduceSum<keepdims=1>(e, s64{1}))"),
  ],
];

export function rowsIn({ computation }: Pick<StepChain, "computation">): RowChain {
  const chain = rowChainOf(computation);
  if ("because" in chain) throw new Error(chain.because);
  return chain;
}

/** The one chain of a graph, as a program. */
export function programIn(graph: Graph, isHalf = false): Computation {
  const fused = fuse(lowerGraph(graph));
  const [one, another] = chainsOf(channelsLast(isHalf ? inHalf(fused) : fused));
  if (!one || another) throw new Error("one chain is expected");
  return one.computation;
}

/** Numbers for the inputs of a network. */
export function drawnFor(program: Network): ReadonlyMap<Value, Float64Array> {
  const random = seededRandom(1);
  return new Map(
    program.inputs.map((value) => {
      return [
        value,
        Float64Array.from({ length: product(value.shape) }, () => Math.round(64 * (4 * random() - 2)) / 64),
      ];
    }),
  );
}

/** What the nest of a chain reads, by name: constants, inputs that were drawn, zeros for what it makes itself. */
export const readBy = (
  { values }: StepChain,
  held: ReadonlyMap<Value, Float64Array>,
): Record<string, Float64Array | Int32Array> => ({
  ...mapValues(values, (value) =>
    value.constant
      ? Float64Array.from(value.constant)
      : (held.get(rootOf(value)) ?? new Float64Array(product(value.shape))),
  ),
  kept: Int32Array.of(0),
});
