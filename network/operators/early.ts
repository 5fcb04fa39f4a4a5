/**
 * @file Converts nodes of opsets before 7 to the semantics of opset 7.
 *
 *     Add        a[8,3,4] + b[3], broadcast=1, axis=1      ->    a[8,3,4] + b[3,1]
 *     Dropout    is_test=1                                 ->    its input
 *
 * Most changes took attributes or inputs away, or added some: a node with an attribute or an input that opset 7 does not know is refused like any
 * other. The versions: https://github.com/onnx/onnx/blob/v1.12.0/docs/Changelog.md.
 */

import type { Lowering } from "../lowering.ts";
import { bracketed } from "../value.ts";

/** The first opset whose operator means what opset 7 says, where the same node meant something else before. */
const SINCE: Readonly<Record<string, number>> = { Concat: 4, GRU: 7, LSTM: 7, RNN: 7 };

/** Operators of a network that is being trained, unless it is said that it is not. */
const TRAINED: ReadonlySet<string> = new Set(["BatchNormalization", "Dropout"]);

/** Operators whose second operand was broadcast on request: from the dimension `axis` of the first on, or to its last dimensions. */
const BROADCAST: ReadonlySet<string> = new Set([
  "Add",
  "And",
  "Div",
  "Equal",
  "Greater",
  "Less",
  "Mul",
  "Or",
  "Pow",
  "Sub",
  "Xor",
]);

/** @throws UsageError when the node meant something else before opset 7 */
export function broughtToOpset7(node: Lowering): void {
  const { op } = node.node;
  const since = SINCE[op];
  if (since !== undefined && node.opset < since)
    node.refuse(
      `opset ${node.opset} is supported where it says what opset ${since} says, and this operator was another`,
      "export the model again from its framework; onnx.version_converter.convert_version(model, 17) converts some of these",
    );
  // It names the inputs whose memory an output may take.
  node.attribute("consumed_inputs");
  if (TRAINED.has(op) && !node.flag("is_test")) node.refuse("training is not supported");
  if (op === "Gemm") node.attribute("broadcast");
  if (op === "PRelu" && node.input(1).shape.length === 1) standAt(node, 1);
  if (!BROADCAST.has(op)) return;
  node.attribute("broadcast");
  const axis = node.int("axis");
  if (axis !== undefined) standAt(node, axis);
}

/** Adds dimensions of 1 to the second operand, so that its first dimension stands at one of the first operand. */
function standAt(node: Lowering, given: number): void {
  const first = node.input(0).shape;
  const second = node.input(1);
  if (second.shape.every((size) => size === 1)) return;
  const axis = node.axis(given, first.length);
  const behind = first.length - axis - second.shape.length;
  if (behind < 0) node.refuse(`${bracketed(second.shape)} does not fit into ${bracketed(first)} at axis ${axis}`);
  node.replace(1, node.reshaped(second, [...second.shape, ...Array.from({ length: behind }, () => 1)]));
}
