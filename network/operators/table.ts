/** @file The type of a row in the table of operators. */

import type { Lowering } from "../lowering.ts";
import type { Value } from "../value.ts";

/** Writes a node's equations. @returns the values of its outputs, or the only one @throws UsageError when the node is not supported */
export type LowerNode = (node: Lowering) => Value | readonly (Value | undefined)[];

/** Rows by ONNX's names. */
export type OperatorTable = Readonly<Record<string, LowerNode>>;
