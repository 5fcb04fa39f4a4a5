/**
 * @file Products of elements, and the positions of extremes (ReduceProd, ArgMax, Hardmax).
 *
 *     ReduceProd    y[i0,j] = x[i0,2*j] * x[i0,2*j+1]                 again, until one is left
 *     ArgMax        m[i0] max= x[i0,i1],  y[i0] min= select(x[i0,i1] == m[i0], places[i1], 64)
 *     Hardmax       y[i0,i1] = select(place[i0] == i1, 1, 0)
 */

import { isInteger } from "../../abstraction/dtype.ts";
import { axesOfRank, type Lowering } from "../lowering.ts";
import { bracketed, heldAs, type Value } from "../value.ts";
import { elementwise, floatsAt } from "./elementwise.ts";
import { asKept, axesOf, centredOver, reduced } from "./reduction.ts";
import { flattened } from "./shape.ts";
import type { OperatorTable } from "./table.ts";

/** Multiplies neighbours along an axis until one element is left. */
function multiplied(node: Lowering, x: Value, axis: number): Value {
  const size = x.shape[axis] ?? 1;
  if (size === 1) return x;
  const axes = axesOfRank(x.shape.length);
  const own = axes[axis] ?? "";
  const at = (index: string): string => `x${bracketed(axes.with(axis, index))}`;
  const second = size % 2 === 0 ? at(`2*${own}+1`) : `select(2*${own}+1 < ${size}, ${at(`2*${own}+1`)}, 1)`;
  const half = node.equation(
    `y${bracketed(axes)} = ${at(`2*${own}`)} * ${second}`,
    { x },
    { shape: x.shape.with(axis, Math.ceil(size / 2)) },
  );
  return multiplied(node, half, axis);
}

/** The index of an extreme along an axis, which is kept with one element. @param last picks the last of equal ones */
function placeOf(node: Lowering, x: Value, axis: number, { op, last }: { op: "max=" | "min="; last: boolean }): Value {
  const size = x.shape[axis] ?? 1;
  const extreme = reduced(node, x, [axis], { op, keepsAxes: false });
  const axes = axesOfRank(x.shape.length);
  const kept = axes.toSpliced(axis, 1);
  const own = axes[axis] ?? "";
  const places = node.filled("s32", [size], (i) => i, "places");
  const at = `x${bracketed(axes)}`;
  const [combine, none] = last ? (["max=", "(-1)"] as const) : (["min=", String(size)] as const);
  // In ONNX a NaN is the extreme of its row. It equals nothing, not even itself, so it is recognised by that.
  const equal = `select(${at} == m${bracketed(kept)}, places[${own}], ${none})`;
  const isFloat = !isInteger(heldAs(x.type));
  const chosen = isFloat ? `select(${at} == ${at}, ${equal}, places[${own}])` : equal;
  const found = node.equation(`y${bracketed(kept)} ${combine} ${chosen}`, { x, m: extreme, places }, { type: "s32" });
  return node.reshaped(found, x.shape.with(axis, 1));
}

function checkOrdered(node: Lowering, { name, type, shape }: Value): void {
  if (type === "bool" || type === "s64") node.refuse(`${name} holds ${type}, which is not supported`);
  if (shape.length === 0) node.refuse(`${name} is one number`);
}

/** Lowers ArgMax and ArgMin, whose results are s64 in ONNX. */
function place(op: "max=" | "min=") {
  return (node: Lowering): Value => {
    const x = node.input(0);
    checkOrdered(node, x);
    const axis = node.axisGiven(x, 0);
    const found = placeOf(node, x, axis, { op, last: node.flag("select_last_index") });
    return asKept(node, elementwise(node, "f64(found)", { found }, "s64"), [axis]);
  };
}

/** The epsilon of ONNX's deviation: https://onnx.ai/onnx/operators/onnx__MeanVarianceNormalization.html. */
const LEAST_DEVIATION = 1e-9;

export const PLACES: OperatorTable = {
  ArgMax: place("max="),
  ArgMin: place("min="),
  /** 1 at the first maximum, 0 elsewhere. Before opset 13 the input is a matrix whose columns start at the axis. */
  Hardmax(node: Lowering) {
    const given = floatsAt(node, 0);
    const first = node.axisGiven(given, node.opset >= 13 ? -1 : 1);
    const x = node.opset >= 13 ? given : flattened(node, given, first);
    const axis = node.opset >= 13 ? first : 1;
    const found = placeOf(node, x, axis, { op: "max=", last: false });
    const axes = axesOfRank(x.shape.length);
    const kept = node.reshaped(found, x.shape.toSpliced(axis, 1));
    const index = bracketed(axes.toSpliced(axis, 1));
    const y = node.equation(
      `y${bracketed(axes)} = select(place${index} == ${axes[axis]}, 1, 0)`,
      { place: kept },
      { shape: x.shape, type: x.type },
    );
    return node.reshaped(y, given.shape);
  },
  MeanVarianceNormalization(node: Lowering) {
    const x = floatsAt(node, 0);
    const axes = node.axes(node.ints("axes") ?? [0, 2, 3], x.shape.length);
    const { count, centred, squares } = centredOver(node, x, axes);
    return elementwise(node, `centred / (sqrt(squares / ${count}) + ${LEAST_DEVIATION})`, { centred, squares });
  },
  ReduceProd(node: Lowering) {
    const x = node.input(0);
    if (x.type === "bool" || x.type === "s64") node.refuse(`${x.type} is not supported`);
    const axes = axesOf(node, x);
    const all = axes.reduce((value, axis) => multiplied(node, value, axis), x);
    return asKept(node, all, axes);
  },
};
