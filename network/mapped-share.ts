/**
 * @file Counts the operators of a network that instructions compute, in the way of AMOS's Table 2.
 *
 *     mappedShare(resnet50)      54 of 71: 53 convolutions and a matrix product, beside 16 additions and a pooling
 *
 * Counted are the nodes that sum products of two tensors, pool over windows, add two computed values, concatenate, or normalise (softmax, layer
 * normalisation). Biases, batch norms and activations belong to the node before them; global pooling, and nodes that rename, move or convert
 * elements, are not counted. AMOS does not state its rule; this one gives its totals for ShuffleNet (50 of 70) and ResNet-50 (54 of 71).
 */

import { sumOf } from "../abstraction/collections.ts";
import { computationKey } from "../abstraction/computation.ts";
import type { Graph } from "./graph.ts";
import type { Network, Step } from "./network.ts";
import { multiplyAddsOf } from "./tasks.ts";

/** Operators that are counted besides those that sum products. */
const COUNTED: ReadonlySet<string> = new Set([
  "MaxPool",
  "AveragePool",
  "Add",
  "Concat",
  "Softmax",
  "LogSoftmax",
  "LayerNormalization",
  "InstanceNormalization",
]);

export interface MappedShare {
  readonly counted: number;
  readonly mapped: number;
  /** Mapped operators by the instruction that computes them, the most first. */
  readonly instructions: readonly (readonly [name: string, operators: number])[];
}

/**
 * @param plain every node of the graph as its equations
 * @param program the steps that are computed
 * @param instructionOf what computes a step that sums products; undefined where no instruction does
 */
export function mappedShare(
  graph: Graph,
  { plain, program }: { readonly plain: Network; readonly program: Network },
  instructionOf: (step: Step) => string | undefined,
): MappedShare {
  const products = new Set(plain.steps.filter(sumsProducts).flatMap(({ nodes }) => nodes));
  const by = new Map<string, string>();
  for (const step of program.steps) {
    const name = sumsProducts(step) ? instructionOf(step) : undefined;
    if (name !== undefined) for (const node of step.nodes) by.set(node, name);
  }
  const counted = graph.nodes.filter(({ name, op, inputs }) => {
    if (products.has(name)) return true;
    return COUNTED.has(op) && (op !== "Add" || inputs.every((input) => !graph.constants.has(input)));
  });
  const instructions = new Map<string, number>();
  for (const { name } of counted) {
    const found = products.has(name) ? by.get(name) : undefined;
    if (found !== undefined) instructions.set(found, (instructions.get(found) ?? 0) + 1);
  }
  const sorted = [...instructions].sort(([a, m], [b, n]) => n - m || a.localeCompare(b, "en"));
  return { counted: counted.length, mapped: sumOf(sorted, ([, n]) => n), instructions: sorted };
}

const sumsProducts = ({ computation }: Step): boolean => multiplyAddsOf(computation) > 0;

/** A key under which equal steps are one. */
export const keyOfStep = ({ computation }: Step): string => computationKey(computation);
