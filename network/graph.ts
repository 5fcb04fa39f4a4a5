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

/** The value of an attribute of a node. */
export type Attribute = number | string | readonly number[] | readonly string[] | Constant;

export const isConstant = (attribute: Attribute | undefined): attribute is Constant =>
  typeof attribute === "object" && "shape" in attribute;

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
  /** Shapes of values that the graph itself declares. */
  readonly declared?: ReadonlyMap<string, readonly Dimension[]>;
  readonly constants: ReadonlyMap<string, Constant>;
  readonly nodes: readonly Node[];
}
