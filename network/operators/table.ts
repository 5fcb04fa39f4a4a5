/** @file The type of a row in the table of operators. */

import type { Lowering } from "../lowering.ts";
import type { Value } from "../value.ts";

export interface NetworkOperator {
  /** Writes a node's equations. @returns the values of its outputs, or the only one @throws UsageError when the node is not supported */
  readonly lower: (node: Lowering) => Value | readonly (Value | undefined)[];
  /** Attributes without effect on the result. Any other attribute that `lower` does not read is refused. */
  readonly harmless?: readonly string[];
}

/** Rows by ONNX's names. */
export type OperatorTable = Readonly<Record<string, NetworkOperator>>;
