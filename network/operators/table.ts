/** @file The type of a row in the table of operators. */

import type { Lowering } from "../lowering.ts";
import type { Value } from "../value.ts";

export interface NetworkOperator {
  /** Writes the equations of a node; the values of its outputs, in order. @throws UsageError when the node is not supported */
  readonly lower: (node: Lowering) => readonly (Value | undefined)[];
  /** Attributes that may be told and change nothing that is computed here. Any other that `lower` does not read is refused. */
  readonly harmless?: readonly string[];
}

/** By the name that ONNX gives them. */
export type OperatorTable = Readonly<Record<string, NetworkOperator>>;
