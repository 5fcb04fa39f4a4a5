/**
 * @file Operators that compute each element separately.
 *
 *     LeakyRelu    y[i] = max(x[i], 0) + 0.01 * min(x[i], 0)
 *
 * A formula uses `x` and the attributes; the equation has as many axes as the tensor has dimensions.
 */

import { isInteger, rangeOf } from "../../abstraction/dtype.ts";
import { axesOfRank, type Lowering } from "../lowering.ts";
import { type ElementType, heldAs, type Range, type Value } from "../value.ts";
import { rangeIn } from "../whole.ts";
import { broadcastShape, numberText, operand } from "./broadcast.ts";
import type { OperatorTable } from "./table.ts";

/** A formula over the access `x`; attributes are substituted as numbers, with defaults. */
interface Unary {
  readonly formula: (x: string, attributes: Readonly<Record<string, string>>) => string;
  readonly attributes?: Readonly<Record<string, number>>;
  /** Whether integers are supported too. */
  readonly integers?: boolean;
}

const sigmoid = (x: string): string => `1 / (1 + exp(-${x}))`;
const softplus = (x: string): string => `max(${x}, 0) + log(1 + exp(-abs(${x})))`;

/** Half of e^x as a product of two roots, which is finite wherever the result is. */
const halfExp = (x: string): string => `0.5 * exp(0.5 * ${x}) * exp(0.5 * ${x})`;
const cosh = (x: string): string => `${halfExp(x)} + ${halfExp(`(-${x})`)}`;

/** Constants of Gelu's approximation: https://onnx.ai/onnx/operators/onnx__Gelu.html. */
const GELU_TANH = (x: string): string =>
  `0.5 * ${x} * (1 + tanh(${Math.sqrt(2 / Math.PI)} * (${x} + 0.044715 * ${x} * ${x} * ${x})))`;
const GELU_ERF = (x: string): string => `0.5 * ${x} * (1 + erf(${x} * ${Math.SQRT1_2}))`;

const UNARY: Readonly<Record<string, Unary>> = {
  Abs: { formula: (x) => `abs(${x})`, integers: true },
  // The tangent of half the angle, and for others the tangent or the hyperbolic sine of the result: differences lose no digits.
  Acos: { formula: (x) => `2 * atan(sqrt((1 - ${x}) / (1 + ${x})))` },
  Acosh: { formula: (x) => `asinh(sqrt(${x} - 1) * sqrt(${x} + 1))` },
  Asin: { formula: (x) => `atan(${x} / sqrt((1 - ${x}) * (1 + ${x})))` },
  Asinh: { formula: (x) => `asinh(${x})` },
  Atan: { formula: (x) => `atan(${x})` },
  Atanh: { formula: (x) => `asinh(${x} / sqrt((1 - ${x}) * (1 + ${x})))` },
  Ceil: { formula: (x) => `ceil(${x})` },
  Cos: { formula: (x) => `cos(${x})` },
  Cosh: { formula: cosh },
  Elu: { formula: (x, { alpha }) => `max(${x}, 0) + ${alpha} * (exp(min(${x}, 0)) - 1)`, attributes: { alpha: 1 } },
  Celu: {
    formula: (x, { alpha }) => `max(${x}, 0) + min(0, ${alpha} * (exp(${x} / ${alpha}) - 1))`,
    attributes: { alpha: 1 },
  },
  Erf: { formula: (x) => `erf(${x})` },
  Exp: { formula: (x) => `exp(${x})` },
  Floor: { formula: (x) => `floor(${x})` },
  HardSigmoid: {
    formula: (x, { alpha, beta }) => `max(0, min(1, ${alpha} * ${x} + ${beta}))`,
    attributes: { alpha: 0.2, beta: 0.5 },
  },
  HardSwish: { formula: (x) => `${x} * max(0, min(1, ${x} / 6 + 0.5))` },
  LeakyRelu: { formula: (x, { alpha }) => `max(${x}, 0) + ${alpha} * min(${x}, 0)`, attributes: { alpha: 0.01 } },
  Log: { formula: (x) => `log(${x})` },
  Mish: { formula: (x) => `${x} * tanh(${softplus(x)})` },
  Neg: { formula: (x) => `-${x}`, integers: true },
  Reciprocal: { formula: (x) => `1 / ${x}` },
  Relu: { formula: (x) => `max(${x}, 0)`, integers: true },
  Round: { formula: (x) => `round(${x})` },
  Selu: {
    formula: (x, { alpha, gamma }) => `${gamma} * (max(${x}, 0) + ${alpha} * (exp(min(${x}, 0)) - 1))`,
    attributes: { alpha: 1.6732632423543772, gamma: 1.0507009873554805 },
  },
  Sigmoid: { formula: sigmoid },
  Sin: { formula: (x) => `sin(${x})` },
  Sinh: { formula: (x) => `tanh(${x}) * (${cosh(x)})` },
  Softplus: { formula: softplus },
  Softsign: { formula: (x) => `${x} / (1 + abs(${x}))` },
  Sqrt: { formula: (x) => `sqrt(${x})` },
  Tan: { formula: (x) => `sin(${x}) / cos(${x})` },
  Tanh: { formula: (x) => `tanh(${x})` },
};

/** A formula over two operands. `Max` and similar operators take any number, folded from the left. */
interface Binary {
  readonly formula: (a: string, b: string) => string;
  readonly inputs: 2 | "any";
  /** Applied to the fold of all operands: the mean of `count` of them. */
  readonly finish?: (all: string, count: number) => string;
}

const BINARY: Readonly<Record<string, Binary>> = {
  Add: { formula: (a, b) => `${a} + ${b}`, inputs: 2 },
  Div: { formula: (a, b) => `${a} / ${b}`, inputs: 2 },
  Max: { formula: (a, b) => `max(${a}, ${b})`, inputs: "any" },
  Mean: { formula: (a, b) => `${a} + ${b}`, inputs: "any", finish: (all, count) => `(${all}) / ${count}` },
  Min: { formula: (a, b) => `min(${a}, ${b})`, inputs: "any" },
  Mul: { formula: (a, b) => `${a} * ${b}`, inputs: 2 },
  PRelu: { formula: (a, b) => `max(${a}, 0) + ${b} * min(${a}, 0)`, inputs: 2 },
  Sub: { formula: (a, b) => `${a} - ${b}`, inputs: 2 },
  Sum: { formula: (a, b) => `${a} + ${b}`, inputs: "any" },
};

/**
 * One element of the output from the element at the same place of each operand; smaller operands are broadcast.
 * @param range of an output of s64, where more is known than the formula says
 */
export function elementwise(
  node: Lowering,
  operands: readonly Value[],
  formula: (texts: readonly string[]) => string,
  type = operands[0]?.type ?? "f32",
  range?: Range,
): Value {
  const shape = broadcastShape(
    node,
    operands.map((v) => v.shape),
  );
  const isFolded = operands.every(({ constant }) => constant);
  const parts = operands.map((value, i) =>
    operand(node, operands.length === 1 ? "x" : `x${i}`, value, { shape, isFolded }),
  );
  const target = `y[${axesOfRank(shape.length).join(",")}]`;
  const reads = Object.assign({}, ...parts.map((p) => p.reads));
  const text = `${target} = ${formula(parts.map((p) => p.text))}`;
  return node.equation(text, { reads, shape, type, ...(range && { range }) });
}

/** @throws UsageError when the operator is not defined for the element type */
function checkNumbers(node: Lowering, { name, type }: Value, integers: boolean): void {
  if (type === "bool" || (!integers && (type === "s64" || isInteger(heldAs(type)))))
    node.refuse(`${name} holds ${type}, and it is supported for ${integers ? "numbers" : "floats"} only`);
}

export function checkFloats(node: Lowering, x: Value): void {
  if (x.type === "bool" || x.type === "s64" || isInteger(heldAs(x.type)))
    node.refuse(`${x.type} is not supported; floats are`);
}

function unary({ formula, attributes = {}, integers = false }: Unary) {
  return (node: Lowering): Value[] => {
    const x = node.input(0);
    checkNumbers(node, x, integers);
    const texts = Object.fromEntries(
      Object.entries(attributes).map(([name, otherwise]) => {
        const value = node.float(name, otherwise);
        return [name, value < 0 ? `(${numberText(value)})` : numberText(value)];
      }),
    );
    return [elementwise(node, [x], ([at = ""]) => formula(at, texts))];
  };
}

function binary({ formula, inputs, finish }: Binary) {
  return (node: Lowering): Value[] => {
    const operands = node.inputs();
    if (inputs !== "any" && operands.length !== inputs)
      node.refuse(`it takes ${inputs} inputs, got ${operands.length}`);
    const types = new Set(operands.map((v) => v.type));
    if (types.size > 1) node.refuse(`its inputs have types ${[...types].join(" and ")}`);
    for (const value of operands) checkNumbers(node, value, true);
    const joined = (texts: readonly string[]): string => {
      const all = texts.reduce((a, b) => formula(a, b));
      return finish ? finish(all, texts.length) : all;
    };
    if (operands[0]?.type === "s64" && node.node.op === "Div") return [dividedWhole(node, operands)];
    return [elementwise(node, operands, joined)];
  };
}

/** s64 is held in f64, whose division does not truncate. */
function dividedWhole(node: Lowering, operands: readonly Value[]): Value {
  if (operands[1]?.constant?.includes(0)) node.refuse("it divides by 0");
  return elementwise(node, operands, ([a = "", b = ""]) => truncated(`${a} / ${b}`));
}

/** Rounded towards 0. */
const truncated = (x: string): string => `max(floor(${x}), 0) + min(ceil(${x}), 0)`;

/** Powers with a small known exponent become products. */
function power(node: Lowering): Value[] {
  const base = node.input(0);
  const exponent = node.input(1);
  checkNumbers(node, base, true);
  if (exponent.type === "bool") node.refuse(`its exponent holds ${exponent.type}`);
  const isWhole = base.type === "s64" || isInteger(heldAs(base.type));
  const [only] = exponent.constant ?? [];
  if (!isWhole && exponent.constant?.length === 1 && only === 2 && exponent.shape.length <= base.shape.length)
    return [elementwise(node, [base], ([x = ""]) => `${x} * ${x}`)];
  if (!isWhole)
    return [elementwise(node, [base, exponent], ([x = "", y = ""]) => `pow(${x}, ${heldAs(base.type)}(${y}))`)];
  // Fractions are truncated towards 0.
  const raised = (x: string, y: string): string => `pow(f64(${x}), f64(${y}))`;
  const whole = (z: string): string => `${heldAs(base.type)}(max(floor(${z}), 0) + min(ceil(${z}), 0))`;
  return [elementwise(node, [base, exponent], ([x = "", y = ""]) => whole(raised(x, y)), base.type)];
}

/** A bound that is an attribute, as before opset 11. */
function boundOf(node: Lowering, name: string, x: Value): Value | undefined {
  if (node.attribute(name) === undefined) return undefined;
  return node.constant({ type: x.type, shape: [], values: node.numbersFrom(x.type, [node.float(name, 0)]) });
}

function clip(node: Lowering): Value[] {
  const x = node.input(0);
  checkNumbers(node, x, true);
  const isInput = node.opset >= 11;
  const bounds = [
    ["max", isInput ? node.optional(1) : boundOf(node, "min", x)],
    ["min", isInput ? node.optional(2) : boundOf(node, "max", x)],
  ] as const;
  let clipped = x;
  for (const [bound, value] of bounds) {
    if (!value) continue;
    if (value.type !== x.type || value.shape.length > 1 || value.shape.some((size) => size !== 1))
      node.refuse(`a bound must be one element of ${x.type}`);
    clipped = elementwise(node, [clipped, value], ([a = "", b = ""]) => `${bound}(${a}, ${b})`);
  }
  return [clipped];
}

function gelu(node: Lowering): Value[] {
  const x = node.input(0);
  checkNumbers(node, x, false);
  const approximate = node.text("approximate", "none", ["none", "tanh"]);
  return [elementwise(node, [x], ([at = ""]) => (approximate === "tanh" ? GELU_TANH(at) : GELU_ERF(at)))];
}

/** TensorProto.DataType numbers of the types that an attribute may name. */
export const NUMBERED_TYPES: Readonly<Record<number, ElementType>> = {
  1: "f32",
  2: "u8",
  3: "s8",
  4: "u16",
  5: "s16",
  6: "s32",
  7: "s64",
  9: "bool",
  10: "f16",
  11: "f64",
  12: "u32",
  16: "bf16",
};

/** @param to the target type */
function cast(node: Lowering, to: ElementType): Value[] {
  const x = node.input(0);
  if (x.type === to) return [x];
  if (x.constant) {
    return [node.constant({ type: to, shape: x.shape, values: node.numbersFrom(to, x.constant) })];
  }
  if (to === "bool") return [elementwise(node, [x], ([at = ""]) => `select(${at} != 0, 1, 0)`, to)];
  // Any byte but 0 is true.
  if (x.type === "bool") return [elementwise(node, [x], ([at = ""]) => `${heldAs(to)}(select(${at} != 0, 1, 0))`, to)];
  if (x.type === "s64" && isInteger(heldAs(to))) return [lowBits(node, x, to)];
  const isFloat = x.type !== "s64" && !isInteger(heldAs(x.type));
  // f64 holds a truncated float exactly, however large it is.
  if (to === "s64" && isFloat)
    return [
      elementwise(node, [x], ([at = ""]) => truncated(`f64(${at})`), to, [
        Number.NEGATIVE_INFINITY,
        Number.POSITIVE_INFINITY,
      ]),
    ];
  // A product of integers in f64 may be -0.
  if (x.type === "s64") return [elementwise(node, [x], ([at = ""]) => `${heldAs(to)}(${at} + 0)`, to)];
  return [elementwise(node, [x], ([at = ""]) => `${heldAs(to)}(${at})`, to)];
}

/** The low 32 bits of an s64, or fewer. C leaves open what a cast makes of an f64 beyond 32 bits. */
function lowBits(node: Lowering, x: Value, to: ElementType): Value {
  const [least, most] = rangeIn(x) ?? [];
  const [first, last] = rangeOf("s32");
  const held = heldAs(to);
  if (least !== undefined && most !== undefined && least >= first && most <= last)
    return elementwise(node, [x], ([at = ""]) => `${held}(s32(${at}))`, to);
  const low = (at: string): string => `${at} - 4294967296 * floor(${at} / 4294967296)`;
  const signed = (at: string): string => `${at} - 4294967296 * floor(${at} / 2147483648)`;
  return elementwise(node, [x], ([at = ""]) => `${held}(s32(${signed(`(${low(at)})`)}))`, to);
}

function castTo(node: Lowering): Value[] {
  const number = node.int("to", 0);
  const to = NUMBERED_TYPES[number];
  if (!to) return node.refuse(`a cast to type ${number} is not supported`);
  return cast(node, to);
}

const entriesOf = <T>(
  table: Readonly<Record<string, T>>,
  make: (row: T) => (node: Lowering) => Value[],
): OperatorTable => Object.fromEntries(Object.entries(table).map(([name, row]) => [name, { lower: make(row) }]));

export const ELEMENTWISE: OperatorTable = {
  ...entriesOf(UNARY, unary),
  ...entriesOf(BINARY, binary),
  // Saturation affects only 8-bit floats, which are not supported.
  Cast: { lower: castTo, harmless: ["saturate"] },
  CastLike: { lower: (node) => cast(node, node.input(1).type), harmless: ["saturate"] },
  Clip: { lower: clip },
  Gelu: { lower: gelu },
  Pow: { lower: power },
};
