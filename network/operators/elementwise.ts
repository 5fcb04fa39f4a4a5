/**
 * @file Operators that compute each element separately.
 *
 *     LeakyRelu    y[i] = max(x[i], 0) + 0.01 * min(x[i], 0)
 *
 * A formula uses `x` and the attributes; the equation has as many axes as the tensor has dimensions.
 */

import { mapValues } from "../../abstraction/collections.ts";
import { isInteger, rangeOf } from "../../abstraction/dtype.ts";
import { axesOfRank, type Lowering } from "../lowering.ts";
import { NUMBERED_TYPES } from "../numbers.ts";
import {
  bracketed,
  type ElementType,
  heldAs,
  holdsIntegers,
  isWide,
  type Range,
  type Reads,
  type Value,
} from "../value.ts";
import { rangeIn } from "../whole.ts";
import { broadcastShape, numberText, operand } from "./broadcast.ts";
import type { OperatorTable } from "./table.ts";

/** A formula over the element `x`, for floats alone where nothing else is said; attributes stand in it by name, with their defaults. */
interface Unary {
  readonly formula: string;
  readonly attributes?: Readonly<Record<string, number>>;
  /** Whether integers are supported too. */
  readonly integers?: boolean;
}

const SOFTPLUS = "max(x, 0) + log(1 + exp(-abs(x)))";

/** Half of e^x as a product of two roots, which is finite wherever the result is. */
const halfExp = (x: string): string => `0.5 * exp(0.5 * ${x}) * exp(0.5 * ${x})`;
const COSH = `${halfExp("x")} + ${halfExp("(-x)")}`;

/** Constants of Gelu's approximation: https://onnx.ai/onnx/operators/onnx__Gelu.html. */
const GELU_TANH = `0.5 * x * (1 + tanh(${Math.sqrt(2 / Math.PI)} * (x + 0.044715 * x * x * x)))`;
const GELU_ERF = `0.5 * x * (1 + erf(x * ${Math.SQRT1_2}))`;

const UNARY: Readonly<Record<string, string | Unary>> = {
  Abs: { formula: "abs(x)", integers: true },
  // The tangent of half the angle, and for others the tangent or the hyperbolic sine of the result: differences lose no digits.
  Acos: "2 * atan(sqrt((1 - x) / (1 + x)))",
  Acosh: "asinh(sqrt(x - 1) * sqrt(x + 1))",
  Asin: "atan(x / sqrt((1 - x) * (1 + x)))",
  Asinh: "asinh(x)",
  Atan: "atan(x)",
  Atanh: "asinh(x / sqrt((1 - x) * (1 + x)))",
  Ceil: "ceil(x)",
  Cos: "cos(x)",
  Cosh: COSH,
  Elu: { formula: "max(x, 0) + alpha * (exp(min(x, 0)) - 1)", attributes: { alpha: 1 } },
  Celu: { formula: "max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))", attributes: { alpha: 1 } },
  Erf: "erf(x)",
  Exp: "exp(x)",
  Floor: "floor(x)",
  HardSigmoid: { formula: "max(0, min(1, alpha * x + beta))", attributes: { alpha: 0.2, beta: 0.5 } },
  HardSwish: "x * max(0, min(1, x / 6 + 0.5))",
  LeakyRelu: { formula: "max(x, 0) + alpha * min(x, 0)", attributes: { alpha: 0.01 } },
  Log: "log(x)",
  Mish: `x * tanh(${SOFTPLUS})`,
  Neg: { formula: "-x", integers: true },
  Reciprocal: "1 / x",
  Relu: { formula: "max(x, 0)", integers: true },
  Round: "round(x)",
  Selu: {
    formula: "gamma * (max(x, 0) + alpha * (exp(min(x, 0)) - 1))",
    attributes: { alpha: 1.6732632423543772, gamma: 1.0507009873554805 },
  },
  Sigmoid: "1 / (1 + exp(-x))",
  Sin: "sin(x)",
  Sinh: `tanh(x) * (${COSH})`,
  Softplus: SOFTPLUS,
  Softsign: "x / (1 + abs(x))",
  Sqrt: "sqrt(x)",
  Tan: "sin(x) / cos(x)",
  Tanh: "tanh(x)",
};

/** A formula over two operands. */
interface Binary {
  readonly formula: string;
  /** Whether it takes any number of them, folded from the left. */
  readonly takesMany?: boolean;
}

const BINARY: Readonly<Record<string, Binary>> = {
  Add: { formula: "a + b" },
  Div: { formula: "a / b" },
  Max: { formula: "max(a, b)", takesMany: true },
  Mean: { formula: "a + b", takesMany: true },
  Min: { formula: "min(a, b)", takesMany: true },
  Mul: { formula: "a * b" },
  PRelu: { formula: "max(a, 0) + b * min(a, 0)" },
  Sub: { formula: "a - b" },
  Sum: { formula: "a + b", takesMany: true },
};

/** A formula with texts in the place of names. */
export const written = (formula: string, texts: Readonly<Record<string, string>>): string =>
  formula.replaceAll(/\b[A-Za-z_]\w*/g, (name) => (Object.hasOwn(texts, name) ? String(texts[name]) : name));

/**
 * One element of the output from the element at the same place of each operand; smaller operands are broadcast.
 * @param formula over the operands by their names: `(a - mean) * scale`
 * @param range of an output of s64, where more is known than the formula says
 */
export function elementwise(
  node: Lowering,
  formula: string,
  operands: Reads,
  type = Object.values(operands)[0]?.type ?? "f32",
  range?: Range,
): Value {
  const values = Object.values(operands);
  const shape = broadcastShape(
    node,
    values.map((v) => v.shape),
  );
  const isFolded = values.every(({ constant }) => constant);
  const parts = Object.entries(operands).map(([name, value], i) => ({
    name,
    ...operand(node, values.length === 1 ? "x" : `x${i}`, value, { shape, isFolded }),
  }));
  const texts = Object.fromEntries(parts.map(({ name, text }) => [name, text]));
  const reads = Object.assign({}, ...parts.map((p) => p.reads));
  const text = `y${bracketed(axesOfRank(shape.length))} = ${written(formula, texts)}`;
  return node.equation(text, reads, { shape, type, ...(range && { range }) });
}

/** @throws UsageError when the operator is not defined for the element type */
function checkNumbers(node: Lowering, { name, type }: Value, integers: boolean): void {
  if (type === "bool" || (!integers && holdsIntegers(type)))
    node.refuse(`${name} holds ${type}, and it is supported for ${integers ? "numbers" : "floats"} only`);
}

/** An input of floats. @throws UsageError for another type */
export function floatsAt(node: Lowering, place: number): Value {
  const x = node.input(place);
  if (x.type === "bool" || holdsIntegers(x.type)) node.refuse(`${x.type} is not supported; floats are`);
  return x;
}

/** The first input, of one of the two types that windows and samples are computed in. @throws UsageError for another type */
export function wideInput(node: Lowering): Value {
  const x = node.input(0);
  if (!isWide(x.type)) node.refuse(`${x.type} is not supported; f32 and f64 are`);
  return x;
}

function unary(given: string | Unary) {
  const { formula, attributes = {}, integers = false }: Unary = typeof given === "string" ? { formula: given } : given;
  return (node: Lowering): Value => {
    const x = node.input(0);
    checkNumbers(node, x, integers);
    const texts = mapValues(attributes, (otherwise, name) => {
      const value = node.float(name, otherwise);
      return value < 0 ? `(${numberText(value)})` : numberText(value);
    });
    return elementwise(node, written(formula, texts), { x });
  };
}

function binary({ formula, takesMany = false }: Binary) {
  return (node: Lowering): Value => {
    const operands = node.inputs();
    if (!takesMany && operands.length !== 2) node.refuse(`it takes 2 inputs, got ${operands.length}`);
    const types = new Set(operands.map((v) => v.type));
    if (types.size > 1) node.refuse(`its inputs have types ${[...types].join(" and ")}`);
    for (const value of operands) checkNumbers(node, value, true);
    const named = Object.fromEntries(operands.map((value, i) => [`x${i}`, value]));
    const all = Object.keys(named).reduce((a, b) => written(formula, { a, b }));
    const { op } = node.node;
    // s64 is held in f64, whose division does not truncate.
    const isTruncated = operands[0]?.type === "s64" && op === "Div";
    if (isTruncated && operands[1]?.constant?.includes(0)) node.refuse("it divides by 0");
    const result = isTruncated ? truncated(all) : op === "Mean" ? `(${all}) / ${operands.length}` : all;
    return elementwise(node, result, named);
  };
}

/** Rounded towards 0. */
export const truncated = (x: string): string => `max(floor(${x}), 0) + min(ceil(${x}), 0)`;

/** A bound that is an attribute, as before opset 11. */
function boundOf(node: Lowering, name: string, x: Value): Value | undefined {
  if (node.attribute(name) === undefined) return undefined;
  return node.constantFrom(x.type, [node.float(name, 0)], []);
}

/** @param to the target type */
function cast(node: Lowering, to: ElementType): Value {
  const x = node.input(0);
  if (x.type === to) return x;
  if (x.constant) return node.constantFrom(to, x.constant, x.shape);
  if (to === "bool") return elementwise(node, "select(x != 0, 1, 0)", { x }, to);
  // Any byte but 0 is true.
  if (x.type === "bool") return elementwise(node, `${heldAs(to)}(select(x != 0, 1, 0))`, { x }, to);
  if (x.type === "s64" && isInteger(heldAs(to))) return lowBits(node, x, to);
  const isFloat = !holdsIntegers(x.type);
  // f64 holds a truncated float exactly, however large it is.
  if (to === "s64" && isFloat)
    return elementwise(node, truncated("f64(x)"), { x }, to, [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY]);
  // A product of integers in f64 may be -0.
  if (x.type === "s64") return elementwise(node, `${heldAs(to)}(x + 0)`, { x }, to);
  return elementwise(node, `${heldAs(to)}(x)`, { x }, to);
}

/** The low 32 bits of an s64, or fewer. C leaves open what a cast makes of an f64 beyond 32 bits. */
function lowBits(node: Lowering, x: Value, to: ElementType): Value {
  const [least, most] = rangeIn(x) ?? [];
  const [first, last] = rangeOf("s32");
  const held = heldAs(to);
  if (least !== undefined && most !== undefined && least >= first && most <= last)
    return elementwise(node, `${held}(s32(x))`, { x }, to);
  const low = "(x - 4294967296 * floor(x / 4294967296))";
  return elementwise(node, `${held}(s32(${low} - 4294967296 * floor(${low} / 2147483648)))`, { x }, to);
}

export const ELEMENTWISE: OperatorTable = {
  ...mapValues(UNARY, unary),
  ...mapValues(BINARY, binary),
  Cast(node: Lowering) {
    const number = node.int("to", 0);
    const to = NUMBERED_TYPES[number];
    if (!to) return node.refuse(`a cast to type ${number} is not supported`);
    return cast(node, to);
  },
  CastLike: (node) => cast(node, node.input(1).type),
  Clip(node: Lowering) {
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
      clipped = elementwise(node, `${bound}(clipped, value)`, { clipped, value });
    }
    return clipped;
  },
  Gelu(node: Lowering) {
    const x = node.input(0);
    checkNumbers(node, x, false);
    const approximate = node.text("approximate", "none", ["none", "tanh"]);
    return elementwise(node, approximate === "tanh" ? GELU_TANH : GELU_ERF, { x });
  },
  /** Powers with a small known exponent become products. */
  Pow(node: Lowering) {
    const base = node.input(0);
    const exponent = node.input(1);
    checkNumbers(node, base, true);
    if (exponent.type === "bool") node.refuse(`its exponent holds ${exponent.type}`);
    const isWhole = holdsIntegers(base.type);
    const [only] = exponent.constant ?? [];
    if (!isWhole && exponent.constant?.length === 1 && only === 2 && exponent.shape.length <= base.shape.length)
      return elementwise(node, "base * base", { base });
    if (!isWhole) return elementwise(node, `pow(base, ${heldAs(base.type)}(exponent))`, { base, exponent });
    // Fractions are truncated towards 0.
    const whole = `${heldAs(base.type)}(${truncated("pow(f64(base), f64(exponent))")})`;
    return elementwise(node, whole, { base, exponent });
  },
};
