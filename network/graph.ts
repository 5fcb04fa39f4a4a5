/**
 * @file A network as it is read or built: nodes with named inputs and outputs, before shapes are known.
 *
 *     { op: "Conv", name: "conv1", inputs: ["x", "w"], outputs: ["y"], attributes: { strides: [2, 2] } }
 *
 * The terms are ONNX's, however the graph was made: https://onnx.ai/onnx/operators.
 */

import type { NumberArray } from "./numbers.ts";
import type { ElementType } from "./value.ts";

/** A tensor with known elements. */
export interface Constant {
  readonly type: ElementType;
  readonly shape: readonly number[];
  readonly values: NumberArray;
}

/** A graph inside a node, as of If and Loop. It also reads the values around it, by their names. */
export interface Body {
  /** Names of the values that the node hands in. */
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly constants: ReadonlyMap<string, Constant>;
  readonly nodes: readonly Node[];
}

/** The value of an attribute of a node. */
export type Attribute = number | string | readonly number[] | readonly string[] | Constant | Body;

export const isConstant = (attribute: Attribute | undefined): attribute is Constant =>
  typeof attribute === "object" && "shape" in attribute;

export const isBody = (attribute: Attribute | undefined): attribute is Body =>
  typeof attribute === "object" && "nodes" in attribute;

/** The graphs inside a node. */
export const bodiesOf = ({ attributes }: Node): Body[] => Object.values(attributes).filter(isBody);

/** The values that a node reads, including those that graphs inside it read from around them. */
export function readsOf(node: Node): ReadonlySet<string> {
  const reads = new Set(node.inputs);
  for (const { inputs, outputs, constants, nodes } of bodiesOf(node)) {
    const own = new Set([...inputs, ...constants.keys(), ...nodes.flatMap((inner) => inner.outputs)]);
    for (const name of [...nodes.flatMap((inner) => [...readsOf(inner)]), ...outputs])
      if (!own.has(name)) reads.add(name);
  }
  reads.delete("");
  return reads;
}

/** An operation of a graph. */
export interface Node {
  /** Name in messages: its own, or `node 3` when it has none. */
  readonly name: string;
  readonly op: string;
  /** An empty name marks an omitted input. */
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly attributes: Readonly<Record<string, Attribute>>;
}

/** A size, or the name of a size that must be given when the graph is lowered. */
export type Dimension = number | string;

/** An input of a graph. */
export interface Input {
  readonly name: string;
  readonly type: ElementType;
  readonly shape: readonly Dimension[];
}

/** A network. The order of its nodes follows from their inputs. */
export interface Graph {
  readonly name: string;
  /** Version of the operator definitions. */
  readonly opset: number;
  readonly inputs: readonly Input[];
  readonly outputs: readonly string[];
  /** Types of the outputs, as far as they are declared. */
  readonly outputTypes?: ReadonlyMap<string, ElementType>;
  /** Whether constants of f32 were f16 (widen.ts). */
  readonly halves?: boolean;
  /** Shapes of values that the graph itself declares. */
  readonly declared?: ReadonlyMap<string, readonly Dimension[]>;
  readonly constants: ReadonlyMap<string, Constant>;
  readonly nodes: readonly Node[];
}
