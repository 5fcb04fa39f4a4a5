/**
 * @file A network in executable form: an ordered list of steps, each an equation of the notation between named values.
 *
 *     conv1   out[n,k,p,q] += in[n,c,p*2+r-3,q*2+s-3] * w[k,c,r,s]      in <- x, w <- conv1.weight, out -> conv1
 *     relu1   y[i0,i1,i2,i3] = max(x[i0,i1,i2,i3], 0)                   x <- conv1, y -> relu1
 *
 * All later stages work on equations. The meaning of an ONNX node is defined only once, in `operators/`.
 */

import { product } from "../abstraction/collections.ts";
import type { Computation } from "../abstraction/computation.ts";
import type { NumberArray } from "./numbers.ts";
import type { Quantised, Reads, Value } from "./value.ts";

/** One equation of a network. */
export interface Step {
  /** The nodes it computes, the first one first. */
  readonly nodes: readonly string[];
  /** The operators of these nodes: `Conv`, `Relu`. */
  readonly ops: readonly string[];
  /** The output is the first of its tensors. */
  readonly computation: Computation;
  /** The value behind each input tensor, possibly without dimensions of one element. */
  readonly reads: Reads;
  readonly output: Value;
  /** The row of the table of operators that it matches, with its parameters, so that it shares records with `automap tune`. */
  readonly operator?: { readonly name: string; readonly parameters: Readonly<Record<string, number>> };
}

/** A network in executable form. */
export interface Network {
  readonly name: string;
  readonly inputs: readonly Value[];
  /** Outputs by their names in the graph. */
  readonly outputs: readonly { readonly name: string; readonly value: Value }[];
  readonly steps: readonly Step[];
  /** Nodes of the graph, including folded and renaming ones. */
  readonly nodes: number;
  /** Whether constants of f32 were f16, so that a package may store them so. */
  readonly halves?: boolean;
  /** Whether numbers are rounded to bytes where nodes allow it. */
  readonly inBytes?: true;
  /** The integers of 8 bits behind constants of f32, by their elements, so that a package may store the integers. */
  readonly integers?: ReadonlyMap<NumberArray, Quantised>;
}

/** The value whose memory a value shares; usually itself. */
export function rootOf(value: Value): Value {
  let root = value;
  while (root.of) root = root.of;
  return root;
}

/** The values whose elements a step reads, under whatever shape. */
export const rootsRead = ({ reads }: Pick<Step, "reads">): Set<Value> => new Set(Object.values(reads).map(rootOf));

/** The values that a network returns. */
export const returnedBy = ({ outputs }: Pick<Network, "outputs">): Set<Value> =>
  new Set(outputs.map(({ value }) => rootOf(value)));

/** The first of its root's elements that a value shows. */
export function beginOf(value: Value): number {
  let begin = 0;
  for (let shown: Value | undefined = value; shown; shown = shown.of) begin += shown.from ?? 0;
  return begin;
}

/** The elements that a value shows, of those of its root. */
export function shownOf<T extends ArrayLike<number>>(elements: T, value: Value): T | Float64Array {
  const count = product(value.shape);
  const begin = beginOf(value);
  return count === elements.length
    ? elements
    : Float64Array.from({ length: count }, (_, i) => elements[begin + i] ?? 0);
}
