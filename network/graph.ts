/**
 * @file A network as it is read or built: nodes with named inputs and outputs, before shapes are known.
 *
 *     { op: "Conv", name: "conv1", inputs: ["x", "w"], outputs: ["y"], attributes: { strides: [2, 2] } }
 *
 * The terms are ONNX's, however the graph was made: https://onnx.ai/onnx/operators.
 */

import type { NumberArray } from "./numbers.ts";
import type { ElementType } from "./value.ts";

/** A tensor whose elements are known. */
export interface Constant {
  readonly type: ElementType;
  readonly shape: readonly number[];
  readonly values: NumberArray;
}

/** What a node is told besides its inputs. */
export type Attribute = number | string | readonly number[] | readonly string[] | Constant;

export const isConstant = (attribute: Attribute | undefined): attribute is Constant =>
  typeof attribute === "object" && "shape" in attribute;

export interface Node {
  /** As a message names it: its name, or `node 3` where it has none. */
  readonly name: string;
  readonly op: string;
  /** An empty name stands for an input that is left out. */
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly attributes: Readonly<Record<string, Attribute>>;
}

/** A size, or the name of one that whoever reads the graph must be told. */
export type Dimension = number | string;

export interface Input {
  readonly name: string;
  readonly type: ElementType;
  readonly shape: readonly Dimension[];
}

/** A network: in what order its nodes run follows from what they read. */
export interface Graph {
  readonly name: string;
  /** Version of the operators' definitions. */
  readonly opset: number;
  readonly inputs: readonly Input[];
  readonly outputs: readonly string[];
  /** Shapes that the graph itself says its values have. */
  readonly declared?: ReadonlyMap<string, readonly Dimension[]>;
  readonly constants: ReadonlyMap<string, Constant>;
  readonly nodes: readonly Node[];
}
