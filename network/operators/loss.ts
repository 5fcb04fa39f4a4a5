/**
 * @file Classification losses: the target class selects an element of each row of scores.
 *
 *     NegativeLogLikelihoodLoss   y[n,d] += select(target[n,d] == c, x[n,c,d] * w[c], 0),  loss = -sum(y) / sum(w used)
 *     SoftmaxCrossEntropyLoss     the same on the logarithms of a softmax
 *
 * https://onnx.ai/onnx/operators/onnx__NegativeLogLikelihoodLoss.html. A target that is no class selects nothing: 0.
 */

import { axesOfRank, type Lowering } from "../lowering.ts";
import { bracketed, type Reads, type Value } from "../value.ts";
import { elementwise, floatsAt } from "./elementwise.ts";
import { reduced, softened } from "./reduction.ts";
import type { OperatorTable } from "./table.ts";

/** The inputs of a loss besides the scores. */
interface Expected {
  readonly target: Value;
  readonly weight: Value | undefined;
}

function expectedOf(node: Lowering, { shape, name }: Value): Expected {
  const given = node.input(1);
  const weight = node.optional(2);
  const [rows = 1, classes = 1, ...rest] = shape;
  if (shape.length < 2) node.refuse(`${name} of ${shape.length} dimensions has no classes`);
  if (given.type !== "s32" && given.type !== "s64") node.refuse(`targets of ${given.type} are not supported`);
  if (given.shape.join() !== [rows, ...rest].join())
    node.refuse(`targets of ${bracketed(given.shape)} for scores of ${bracketed(shape)}`);
  if (weight && weight.shape.join() !== String(classes))
    node.refuse(`weights of ${bracketed(weight.shape)} for ${classes} classes`);
  // Clamped, so that a target beyond s32 still matches no class.
  const within = `s32(max(min(given, ${2 ** 31 - 1}), -${2 ** 31 - 1}))`;
  const target = given.type === "s32" ? given : elementwise(node, within, { given }, "s32");
  return { target, weight };
}

function loss(node: Lowering, x: Value, { target, weight }: Expected): Value {
  const ignored = node.int("ignore_index");
  const reduction = node.text("reduction", "mean", ["none", "sum", "mean"]);
  const axes = axesOfRank(x.shape.length);
  const kept = axes.toSpliced(1, 1).join(",");
  const shape = x.shape.toSpliced(1, 1);
  const [own = "", size = 1] = [axes[1], x.shape[1]];
  /** Selects the element at each row's target. */
  const picked = (text: string, reads: Reads): Value => {
    const here = `select(target[${kept}] == ${own}, ${text}, 0)`;
    const counted = ignored === undefined ? here : `select(target[${kept}] == ${ignored}, 0, ${here})`;
    return node.equation(`y[${kept}] += ${counted}`, { target, ...reads }, { type: x.type, extents: { [own]: size } });
  };
  const score = `x${bracketed(axes)}`;
  const all = weight ? picked(`${score} * weight[${own}]`, { x, weight }) : picked(score, { x });
  const losses = elementwise(node, "-all", { all });
  if (reduction === "none") return losses;
  const every = shape.map((_, d) => d);
  const total = (value: Value): Value => reduced(node, value, every, { op: "+=", keepsAxes: false });
  if (reduction === "sum") return total(losses);
  const counts = total(weight ? picked(`weight[${own}]`, { weight }) : picked("1", {}));
  return elementwise(node, "sum / counts", { sum: total(losses), counts });
}

export const LOSSES: OperatorTable = {
  NegativeLogLikelihoodLoss(node: Lowering) {
    const x = floatsAt(node, 0);
    return loss(node, x, expectedOf(node, x));
  },
  SoftmaxCrossEntropyLoss(node: Lowering) {
    const x = floatsAt(node, 0);
    const expected = expectedOf(node, x);
    const { most, sum } = softened(node, x, [1]);
    const logarithms = elementwise(node, "x - most - log(sum)", { x, most, sum });
    return [loss(node, logarithms, expected), logarithms];
  },
};
