/**
 * @file Operators that contain graphs (If, Loop). They are expanded when the network is read, so that none remains at run time.
 *
 *     If       the branch that a known condition takes; otherwise both:  y = select(condition != 0, then, else)
 *     Loop     the passes one after another, where their number is known
 */

import { axesOfRank, type Lowering } from "../lowering.ts";
import { bracketed, describeValue, isSameShape, type Value } from "../value.ts";
import { stacked } from "./move.ts";
import type { OperatorTable } from "./table.ts";

function chosen(node: Lowering, condition: Value, [a, b]: readonly [Value, Value]): Value {
  const at = bracketed(axesOfRank(a.shape.length));
  const flag = node.reshaped(condition, []);
  return node.equation(`y${at} = select(c[] != 0, a${at}, b${at})`, { c: flag, a, b }, { type: a.type });
}

/** The values of all passes under a new first dimension. */
function passes(node: Lowering, values: readonly Value[]): Value {
  const [first] = values;
  if (!first) return node.refuse("it makes no pass, so that its outputs have no elements");
  const other = values.find(({ shape }) => !isSameShape(shape, first.shape));
  if (other) node.refuse(`its passes give ${describeValue(first)} and ${describeValue(other)}`);
  return stacked(node, values);
}

export const CONTROL: OperatorTable = {
  /** https://onnx.ai/onnx/operators/onnx__If.html. Nodes have no effects, so a branch that is not taken may be computed. */
  If(node: Lowering) {
    const condition = node.input(0);
    const taken = node.body("then_branch");
    const other = node.body("else_branch");
    if (taken.outputs.length !== other.outputs.length) node.refuse("its branches give different numbers of values");
    if (condition.type !== "bool" || condition.shape.some((size) => size !== 1))
      node.refuse(`its condition is ${describeValue(condition)}, and it is one bool`);
    if (condition.constant) return node.inside(condition.constant[0] !== 0 ? taken : other);
    const otherwise = node.inside(other);
    return node.inside(taken).map((value, i) => {
      const second = otherwise[i];
      if (!second || second.type !== value.type || !isSameShape(second.shape, value.shape))
        return node.refuse(
          `its condition ${condition.name} is known only when the network runs, and its branches give ${describeValue(value)} and ${second && describeValue(second)}`,
          "bind the inputs that the condition is made of: --constant NAME=VALUE",
        );
      return chosen(node, condition, [value, second]);
    });
  },
  /** https://onnx.ai/onnx/operators/onnx__Loop.html: values carried from pass to pass, then one row of each pass for the others. */
  Loop(node: Lowering) {
    const body = node.body("body");
    const most = node.known(0, "the number of passes")?.[0] ?? Number.POSITIVE_INFINITY;
    const begins = (node.known(1, "the condition of the first pass")?.[0] ?? 1) !== 0;
    const count = Math.max(0, body.inputs.length - 2);
    let carried = Array.from({ length: count }, (_, i) => node.input(i + 2));
    const rows: Value[][] = body.outputs.slice(1 + count).map(() => []);
    for (let pass = 0, goes = begins; goes && pass < most; pass++) {
      node.countPass();
      const [condition, ...made] = node.inside(body, [
        node.constantFrom("s64", [pass], []),
        node.constantFrom("bool", [1], []),
        ...carried,
      ]);
      if (!condition?.constant)
        return node.refuse(
          `whether pass ${pass + 1} follows is known only when the network runs`,
          "bind the inputs that its condition is made of: --constant NAME=VALUE",
        );
      goes = condition.constant[0] !== 0;
      carried = made.slice(0, count);
      for (const [i, value] of made.slice(count).entries()) rows[i]?.push(value);
    }
    return [...carried, ...rows.map((values) => passes(node, values))];
  },
};
