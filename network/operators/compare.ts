/**
 * @file Comparisons, logical operators, and operators that compare or select elements: Where, Shrink, Sign.
 *
 *     Greater    y[i] = select(a[i] > b[i], 1, 0)
 *     Where      y[i] = select(c[i] != 0, a[i], b[i])
 *     Sign       y[i] = select(x[i] > 0, 1, select(x[i] < 0, -1, 0))
 */

import type { CompareOp } from "../../abstraction/expression.ts";
import { axesOfRank, type Lowering } from "../lowering.ts";
import { bracketed, type ElementType, type Value } from "../value.ts";
import { numberText } from "./broadcast.ts";
import { elementwise, floatsAt, wideInput } from "./elementwise.ts";
import type { OperatorTable } from "./table.ts";

/** Two inputs, one behind the other. @throws UsageError when they are not of one type */
export function pairOf(node: Lowering, first = 0): readonly [Value, Value] {
  const a = node.input(first);
  const b = node.input(first + 1);
  if (a.type !== b.type) node.refuse(`its inputs have types ${a.type} and ${b.type}`);
  return [a, b];
}

function comparison(op: CompareOp) {
  return (node: Lowering): Value => {
    const [a, b] = pairOf(node);
    // Two true bools may have different bytes.
    const same = "select(a != 0, select(b != 0, 1, 0), select(b == 0, 1, 0))";
    if (a.type === "bool" && op === "==") return elementwise(node, same, { a, b }, "bool");
    if (a.type === "bool") node.refuse(`${a.name} holds bool, which has no order`);
    return elementwise(node, `select(a ${op} b, 1, 0)`, { a, b }, "bool");
  };
}

/** Logic on bools: every byte but 0 is true; the result is 0 or 1. */
function logic(formula: string) {
  return (node: Lowering): Value => {
    const [a, b] = pairOf(node);
    if (a.type !== "bool") node.refuse(`${a.name} holds ${a.type}; it takes bool`);
    return elementwise(node, formula, { a, b }, "bool");
  };
}

/** The largest finite value of each type. */
const LARGEST: Readonly<Partial<Record<ElementType, number>>> = {
  f16: 65_504,
  bf16: (2 - 2 ** -7) * 2 ** 127,
  f32: (2 - 2 ** -23) * 2 ** 127,
  f64: Number.MAX_VALUE,
};

/** Indices of s64 as s32, brought to just outside the axis where they lie further out. */
const near = (node: Lowering, picked: Value, size: number): Value =>
  picked.type === "s32" ? picked : elementwise(node, `s32(max(min(i, ${size}), -${size} - 1))`, { i: picked }, "s32");

/** Normalises negative indices into an axis. Indices out of range stay out of range. @param picked s32 or s64 */
export const placesIn = (node: Lowering, picked: Value, size: number): Value =>
  elementwise(node, `select(i < 0, i + ${size}, i)`, { i: near(node, picked, size) });

/** Indices as s32, those counted from the end as they are: `wrap` finds them. @param picked s32 or s64 */
export function indicesIn(node: Lowering, picked: Value, size: number): Value {
  if (picked.type !== "s32" && picked.type !== "s64")
    node.refuse(`indices of ${picked.type} are not supported; s32 and s64 are`);
  return near(node, picked, size);
}

/**
 * Rows of a table selected by indices that are known only at run time; -1 is the last row. Indices of s32 outside the table count on around it;
 * those of s64 are brought to just outside it first.
 * @param axis axis of the table that the indices count
 */
export function gatheredWhenRun(node: Lowering, table: Value, picked: Value, axis: number): Value {
  const ids = indicesIn(node, picked, table.shape[axis] ?? 1);
  const inner = axesOfRank(table.shape.length).map((name) => `t${name}`);
  const rows = axesOfRank(picked.shape.length);
  const kept = inner.toSpliced(axis, 1, ...rows);
  const from = inner.with(axis, `wrap(ids${bracketed(rows)})`);
  const shape = table.shape.toSpliced(axis, 1, ...picked.shape);
  return node.equation(`y${bracketed(kept)} = table${bracketed(from)}`, { ids, table }, { shape, type: table.type });
}

export const COMPARISONS: OperatorTable = {
  And: logic("select(a != 0, select(b != 0, 1, 0), 0)"),
  Equal: comparison("=="),
  Greater: comparison(">"),
  GreaterOrEqual: comparison(">="),
  IsInf(node: Lowering) {
    const x = node.input(0);
    const most = LARGEST[x.type];
    if (most === undefined) return node.refuse(`${x.type} is not supported; floats are`);
    const [above, below] = [node.int("detect_positive", 1), node.int("detect_negative", 1)].map((x) =>
      x === 0 ? 0 : 1,
    );
    const formula = `select(x > ${most}, ${above}, select(x < (-${most}), ${below}, 0))`;
    return elementwise(node, formula, { x }, "bool");
  },
  IsNaN(node: Lowering) {
    const x = floatsAt(node, 0);
    return elementwise(node, "select(x == x, 0, 1)", { x }, "bool");
  },
  Less: comparison("<"),
  LessOrEqual: comparison("<="),
  Not(node: Lowering) {
    const x = node.input(0);
    if (x.type !== "bool") node.refuse(`${x.name} holds ${x.type}; it takes bool`);
    return elementwise(node, "select(x == 0, 1, 0)", { x }, "bool");
  },
  Or: logic("select(a != 0, 1, select(b != 0, 1, 0))"),
  /** Values beyond lambda on either side, moved towards 0 by the bias; 0 in between. */
  Shrink(node: Lowering) {
    const x = wideInput(node);
    const given = node.float("lambd", 0.5);
    const [bias, lambda, below] = [node.float("bias", 0), given, -given].map((value) => `(${numberText(value)})`);
    return elementwise(node, `select(x < ${below}, x + ${bias}, select(x > ${lambda}, x - ${bias}, 0))`, { x });
  },
  Sign(node: Lowering) {
    const x = node.input(0);
    if (x.type === "bool" || x.type.startsWith("u")) node.refuse(`${x.type} is not supported`);
    return elementwise(node, "select(x > 0, 1, select(x < 0, -1, 0))", { x });
  },
  ThresholdedRelu(node: Lowering) {
    const x = wideInput(node);
    const alpha = `(${numberText(node.float("alpha", 1))})`;
    return elementwise(node, `select(x > ${alpha}, x, 0)`, { x });
  },
  Where(node: Lowering) {
    const condition = node.input(0);
    if (condition.type !== "bool") node.refuse(`its condition holds ${condition.type}; it takes bool`);
    const [a, b] = pairOf(node, 1);
    return elementwise(node, "select(condition != 0, a, b)", { condition, a, b }, a.type);
  },
  Xor: logic("select(a != 0, select(b == 0, 1, 0), select(b != 0, 1, 0))"),
};
