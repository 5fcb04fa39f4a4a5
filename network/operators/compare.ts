/**
 * @file Comparisons and operators that use them: conditions, the index of the largest element, rows of a table.
 *
 *     Greater    y[i] = select(a[i] > b[i], 1, 0)
 *     Where      y[i] = select(c[i] != 0, a[i], b[i])
 *     Gather     y[i,h] = table[wrap(ids[i]),h]
 */

import type { CompareOp } from "../../abstraction/expression.ts";
import { axesOfRank, type Lowering } from "../lowering.ts";
import type { ElementType, Value } from "../value.ts";
import { numberText } from "./broadcast.ts";
import { checkFloats, elementwise } from "./elementwise.ts";
import type { OperatorTable } from "./table.ts";

/** @throws UsageError when the inputs are not of one type */
function pairOf(node: Lowering): readonly [Value, Value] {
  const a = node.input(0);
  const b = node.input(1);
  if (a.type !== b.type) node.refuse(`its inputs have types ${a.type} and ${b.type}`);
  return [a, b];
}

function comparison(op: CompareOp) {
  return (node: Lowering): Value[] => {
    const [a, b] = pairOf(node);
    // Two true bools may have different bytes.
    const same = (x: string, y: string): string =>
      `select(${x} != 0, select(${y} != 0, 1, 0), select(${y} == 0, 1, 0))`;
    if (a.type === "bool" && op === "==") return [elementwise(node, [a, b], ([x = "", y = ""]) => same(x, y), "bool")];
    if (a.type === "bool") node.refuse(`${a.name} holds bool, which has no order`);
    return [elementwise(node, [a, b], ([x = "", y = ""]) => `select(${x} ${op} ${y}, 1, 0)`, "bool")];
  };
}

/** Logic on bools: every byte but 0 is true; the result is 0 or 1. */
function logic(formula: (x: string, y: string) => string) {
  return (node: Lowering): Value[] => {
    const [a, b] = pairOf(node);
    if (a.type !== "bool") node.refuse(`${a.name} holds ${a.type}; it takes bool`);
    return [elementwise(node, [a, b], ([x = "", y = ""]) => formula(x, y), "bool")];
  };
}

function negation(node: Lowering): Value[] {
  const x = node.input(0);
  if (x.type !== "bool") node.refuse(`${x.name} holds ${x.type}; it takes bool`);
  return [elementwise(node, [x], ([a = ""]) => `select(${a} == 0, 1, 0)`, "bool")];
}

function where(node: Lowering): Value[] {
  const condition = node.input(0);
  const a = node.input(1);
  const b = node.input(2);
  if (condition.type !== "bool") node.refuse(`its condition holds ${condition.type}; it takes bool`);
  if (a.type !== b.type) node.refuse(`its inputs have types ${a.type} and ${b.type}`);
  return [elementwise(node, [condition, a, b], ([c = "", x = "", y = ""]) => `select(${c} != 0, ${x}, ${y})`, a.type)];
}

function isNaNumber(node: Lowering): Value[] {
  const x = node.input(0);
  checkFloats(node, x);
  return [elementwise(node, [x], ([a = ""]) => `select(${a} == ${a}, 0, 1)`, "bool")];
}

/** The largest finite value of each type. */
const LARGEST: Readonly<Partial<Record<ElementType, number>>> = {
  f16: 65_504,
  bf16: (2 - 2 ** -7) * 2 ** 127,
  f32: (2 - 2 ** -23) * 2 ** 127,
  f64: Number.MAX_VALUE,
};

function isInfinite(node: Lowering): Value[] {
  const x = node.input(0);
  const most = LARGEST[x.type];
  if (most === undefined) return node.refuse(`${x.type} is not supported; floats are`);
  const [above, below] = [node.int("detect_positive", 1), node.int("detect_negative", 1)].map((x) => (x === 0 ? 0 : 1));
  const formula = (a: string): string => `select(${a} > ${most}, ${above}, select(${a} < (-${most}), ${below}, 0))`;
  return [elementwise(node, [x], ([a = ""]) => formula(a), "bool")];
}

function thresholdedRelu(node: Lowering): Value[] {
  const x = node.input(0);
  if (x.type !== "f32" && x.type !== "f64") node.refuse(`${x.type} is not supported; f32 and f64 are`);
  const alpha = `(${numberText(node.float("alpha", 1))})`;
  return [elementwise(node, [x], ([a = ""]) => `select(${a} > ${alpha}, ${a}, 0)`)];
}

function sign(node: Lowering): Value[] {
  const x = node.input(0);
  if (x.type === "bool" || x.type.startsWith("u")) node.refuse(`${x.type} is not supported`);
  return [elementwise(node, [x], ([a = ""]) => `select(${a} > 0, 1, select(${a} < 0, -1, 0))`)];
}

/** Values beyond lambda on either side, moved towards 0 by the bias; 0 in between. */
function shrink(node: Lowering): Value[] {
  const x = node.input(0);
  if (x.type !== "f32" && x.type !== "f64") node.refuse(`${x.type} is not supported; f32 and f64 are`);
  const given = node.float("lambd", 0.5);
  const [bias, lambda, below] = [node.float("bias", 0), given, -given].map((value) => `(${numberText(value)})`);
  return [
    elementwise(
      node,
      [x],
      ([a = ""]) => `select(${a} < ${below}, ${a} + ${bias}, select(${a} > ${lambda}, ${a} - ${bias}, 0))`,
    ),
  ];
}

/** Indices into an axis; negative ones count from its end. Indices outside stay outside. @param picked s32 or s64 */
export function placesIn(node: Lowering, picked: Value, size: number): Value {
  const near =
    picked.type === "s32"
      ? picked
      : elementwise(node, [picked], ([i = ""]) => `s32(max(min(${i}, ${size}), -${size} - 1))`, "s32");
  return elementwise(node, [near], ([i = ""]) => `select(${i} < 0, ${i} + ${size}, ${i})`);
}

/** Indices as s32, those counted from the end as they are: `wrap` finds them. @param picked s32 or s64 */
export function indicesIn(node: Lowering, picked: Value, size: number): Value {
  if (picked.type === "s32") return picked;
  if (picked.type !== "s64") return node.refuse(`indices of ${picked.type} are not supported; s32 and s64 are`);
  return elementwise(node, [picked], ([i = ""]) => `s32(max(min(${i}, ${size}), -${size} - 1))`, "s32");
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
  const kept = [...inner.slice(0, axis), ...rows, ...inner.slice(axis + 1)];
  const from = inner.map((name, d) => (d === axis ? `wrap(ids[${rows.join(",")}])` : name));
  const shape = [...table.shape.slice(0, axis), ...picked.shape, ...table.shape.slice(axis + 1)];
  return node.equation(`y[${kept.join(",")}] = table[${from.join(",")}]`, {
    reads: { ids, table },
    shape,
    type: table.type,
  });
}

export const COMPARISONS: OperatorTable = {
  And: { lower: logic((x, y) => `select(${x} != 0, select(${y} != 0, 1, 0), 0)`) },
  Equal: { lower: comparison("==") },
  Greater: { lower: comparison(">") },
  GreaterOrEqual: { lower: comparison(">=") },
  IsInf: { lower: isInfinite },
  IsNaN: { lower: isNaNumber },
  Less: { lower: comparison("<") },
  LessOrEqual: { lower: comparison("<=") },
  Not: { lower: negation },
  Or: { lower: logic((x, y) => `select(${x} != 0, 1, select(${y} != 0, 1, 0))`) },
  Shrink: { lower: shrink },
  Sign: { lower: sign },
  ThresholdedRelu: { lower: thresholdedRelu },
  Where: { lower: where },
  Xor: { lower: logic((x, y) => `select(${x} != 0, select(${y} == 0, 1, 0), select(${y} != 0, 1, 0))`) },
};
