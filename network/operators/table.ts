/** @file What a row of the table of operators is. */

import type { Lowering } from "../lowering.ts";
import type { Value } from "../value.ts";

export interface NetworkOperator {
  /** Writes the equations of a node; the values of its outputs, in order. @throws UsageError when the node is not supported */
  readonly lower: (node: Lowering) => readonly (Value | undefined)[];
}

/** By the name that ONNX gives them. */
export type OperatorTable = Readonly<Record<string, NetworkOperator>>;
