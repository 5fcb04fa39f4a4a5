/**
 * @file Operators: an equation with named parameters, as data, and the computation made from it.
 *
 *     equation    out[n,k,p,q] += acc(in[n,c,p*stride+r-pad,q*stride+s-pad]) * acc(w[k,c,r,s])
 *     axes        p: "(h + 2*pad - r) / stride + 1"
 *
 *     instantiate(conv2d, { parameters: { h: 7, w: 7, pad: 0 }, types: parseDataTypes("u8s8"), layouts: "NHWC" })
 *
 * `acc(x)` casts to the type in which products are formed and summed (s32 for u8s8), `first(x)` to that of the first factor. A single letter is an axis, a longer name a parameter, a capital
 * the parameter of that letter: in `g*(K/groups)+k` the axis k runs inside a group and K counts the channels of all groups. An axis without a formula
 * has the extent of the parameter of its name.
 */

import {
  boundsOf,
  type Extents,
  evaluateIndex,
  extentOf,
  extentsBy,
  layoutStorage,
  pointsOf,
  shapeOf,
} from "../abstraction/affine.ts";
import { defined, namesOf, unique } from "../abstraction/collections.ts";
import {
  type Computation,
  defineComputation,
  type TensorSpec,
  tensorOf,
  withConstants,
} from "../abstraction/computation.ts";
import { type DType, isInteger, wrap } from "../abstraction/dtype.ts";
import { checkNames, internal, suggestion, UsageError } from "../abstraction/error.ts";
import {
  axesOf,
  compareOp,
  type Equation,
  type Expr,
  number,
  printEquation,
  printExpr,
  rewrite,
  substitute,
  substituteAxes,
  tensorsOf,
} from "../abstraction/expression.ts";
import { parseEpilogue, parseEquation, parseExpr } from "../abstraction/parse.ts";
import type { OperandTypes } from "./data-types.ts";
import { epilogueFor } from "./epilogue.ts";

/** A numeric parameter of an operator. */
export interface Parameter {
  readonly default: number;
  readonly min: number;
  readonly describe: string;
}

/** A parameter that counts something, 1 at least. */
export const size = (describe: string, value = 1024): Parameter => ({ default: value, min: 1, describe });

export interface OperatorTensor {
  /** Which of the {@link OperandTypes} it has, or the one type that it always has. */
  readonly type: "first" | "second" | "sum" | DType;
  /** Names of its dimensions, which layouts use; by default the axes that index it. */
  readonly dims?: string;
  /** Its size follows from the parameters its dimensions are named after, not from the indices: reads may fall outside. */
  readonly sized?: true;
  /** Element offset over the dimensions; row-major when left out. */
  readonly storage?: string;
  /** Its values are known before the run, as those of weights. */
  readonly constant?: true;
  /** For an output, the dimension of channels, each of which has a bias and a scale. */
  readonly channels?: string;
  /** The element at an index, for tensors whose values the operator fixes. */
  readonly value?: (index: readonly number[], shape: readonly number[]) => number;
}

/** The rule that the parameters break, as a sentence without the operator's name; undefined when they keep it. */
export type Rule = (parameters: Extents) => string | undefined;

/** An operator of the table: an equation with named parameters. */
export interface Operator {
  /** Name for users. */
  readonly name: string;
  /** Other names, such as AMOS's codes. */
  readonly aliases: readonly string[];
  /** A description in one line. */
  readonly summary: string;
  /** Parameters with their defaults, in the order of the help. */
  readonly parameters: Readonly<Record<string, Parameter>>;
  /** Equation over axes and parameters. */
  readonly equation: string;
  /** The equation when `groups` is greater than 1; a single group needs no group loop. */
  readonly groupedEquation?: string;
  /**
   * The epilogue that is part of the operator, over the same axes and parameters; `first(x)` casts to the type of the first factor. By default the
   * sums are the output, and users may choose an epilogue.
   */
  readonly stores?: string;
  /** What to take for integers, of an operator whose factors are floats. */
  readonly integers?: string;
  /** Named constants in the texts that users cannot change. */
  readonly fixed: Extents;
  /** Extents of axes as formulas of the parameters. */
  readonly axes: Readonly<Record<string, string>>;
  /** Facts about each tensor that the equation does not give. */
  readonly tensors: Readonly<Record<string, OperatorTensor>>;
  /** Rules that the parameters must satisfy. */
  readonly rules: readonly Rule[];
}

type Optional = "aliases" | "fixed" | "axes" | "rules";
export type OperatorSpec = Omit<Operator, Optional> & Partial<Pick<Operator, Optional>>;

/** Completes a row of the table. */
export const defineOperator = (spec: OperatorSpec): Operator => ({
  aliases: [],
  fixed: {},
  axes: {},
  rules: [],
  ...spec,
});

/** Checks that the parts of a row fit together: not in each process that loads the table, which it keeps 0.1 s longer. */
export function checkOperator(operator: Operator): void {
  const defaults = completeParameters(operator, {});
  for (const text of [operator.equation, operator.groupedEquation ?? operator.equation]) {
    const equation = bind(text, defaults, F32);
    for (const tensor of tensorsOf(equation))
      if (!operator.tensors[tensor]) internal(`${operator.name} does not describe tensor ${tensor}`);
    for (const axis of axesOf(equation)) extentOfAxis(operator, axis, defaults);
  }
}

/** Options for making a computation from an operator. */
export interface InstantiateOptions {
  /** Values that differ from the defaults. */
  readonly parameters?: Extents;
  /** f32 throughout by default. */
  readonly types?: OperandTypes;
  /** One layout (`NHWC`) for the input `in` and, by position, the output `out`; or a layout for each tensor. */
  readonly layouts?: Readonly<Record<string, string>> | string;
  /** Applied to the output before it is stored: a name (relu, bias, bias-relu, gelu, bias-gelu, silu, hardswish, requantize, f16, bf16, f32) or an equation, `res[m,n] = max(out[m,n], 0)`. */
  readonly epilogue?: string;
  /** Inputs that are constant besides those that always are: a matrix that holds weights. */
  readonly constants?: readonly string[];
}

const INSTANTIATE = { parameters: true, types: true, layouts: true, epilogue: true, constants: true } as const;

const F32: OperandTypes = { inputs: ["f32", "f32"], sum: "f32" };

/**
 * The computation of an operator with given parameters.
 * @throws UsageError when a parameter is unknown or breaks a rule, or a layout does not fit
 */
export function instantiate(operator: Operator, options: InstantiateOptions = {}): Computation {
  checkNames(options, INSTANTIATE, `instantiate ${operator.name}`);
  const parameters = completeParameters(operator, options.parameters ?? {});
  for (const rule of operator.rules) {
    const broken = rule(parameters);
    if (broken !== undefined) throw new UsageError(`${operator.name}: ${broken}`);
  }
  const types = options.types ?? F32;
  const problem = typeProblem(operator, types);
  if (problem !== undefined) throw new UsageError(`${operator.name}: ${problem.because}`, problem.hint);
  const grouped = operator.groupedEquation !== undefined && extentOf("groups", parameters) > 1;
  const equation = bind(grouped ? operator.groupedEquation : operator.equation, parameters, types);
  const extents = Object.fromEntries(
    axesOf(equation).map((axis) => [axis, extentOfAxis(operator, axis, parameters)] as const),
  );
  const target = equation.target.tensor;
  const text = storedText(operator, parameters, types, options.epilogue);
  const ending = text === undefined ? undefined : epilogueOf(operator, equation, types, text);
  const output = ending?.equation.target.tensor ?? target;
  const { [target]: outer, ...layouts } = layoutsOf(operator, options.layouts ?? {}, output);
  const stored = layouts[output] ?? outer;
  const dims = operator.tensors[target]?.dims?.split(" ");
  const tensors = Object.fromEntries(
    tensorsOf(equation).map((tensor) => {
      const layout = tensor === output ? stored : layouts[tensor];
      return [tensor, tensorSpec(operator, tensor, parameters, types, layout)];
    }),
  );
  const plain = { name: operator.name, equation, extents, tensors };
  const made = defineComputation(
    ending
      ? {
          ...plain,
          epilogue: ending.equation,
          tensors: {
            ...ending.tensors,
            ...tensors,
            [output]: defined({ dims, layout: stored }),
          },
        }
      : plain,
  );
  return withConstants(made, options.constants ?? []);
}

/** Why an operator does not take some types, and what to do; undefined for types that it takes. */
export function typeProblem(
  { stores, integers }: Operator,
  { inputs, sum }: OperandTypes,
): { readonly because: string; readonly hint: string } | undefined {
  const [first] = inputs;
  const whole = inputs.find(isInteger);
  if (integers !== undefined && whole !== undefined)
    return { because: `its scales are floats, of the type of a factor, and cannot be ${whole}`, hint: integers };
  if (stores === undefined || !isInteger(first) || first === sum) return undefined;
  const because = `sums of ${first} do not fit into ${first}, the type of what is stored beside them`;
  return { because, hint: "take f32, f16 or bf16" };
}

/** The epilogue's name or text: the operator's own, else the one asked for. */
function storedText(
  { name, stores }: Operator,
  parameters: Extents,
  types: OperandTypes,
  asked: string | undefined,
): string | undefined {
  if (stores === undefined) return asked;
  if (asked !== undefined)
    throw new UsageError(
      `${name}: its sums have an epilogue already`,
      "write the equation with another epilogue behind it: automap operator show prints both",
    );
  return printEquation(substituteAxes(parseEpilogue(typed(stores, types)), replacements(parameters)));
}

function epilogueOf(
  operator: Operator,
  equation: Equation,
  types: OperandTypes,
  text: string,
): ReturnType<typeof epilogueFor> {
  const { tensor, index } = equation.target;
  const { dims, channels } = operator.tensors[tensor] ?? {};
  const names = dims?.split(" ") ?? [];
  // A dimension that no single axis indexes, as in out[n,g*16+k,p,q], keeps its own name.
  const axes = index.map((e, d) => (e.kind === "axis" ? e.name : (names[d] ?? `d${d}`)));
  const channel = channels === undefined ? undefined : (axes[names.indexOf(channels)] ?? channels);
  return epilogueFor(text, { name: operator.name, target: tensor, dtype: types.sum, axes, channel });
}

/**
 * Tensors whose values the operator fixes (a triangle of ones, 1/n, a stencil's coefficients), row-major. A tensor whose integer type cannot hold the
 * values is left out.
 */
export function constantValues(operator: Operator, computation: Computation): Record<string, Float64Array> {
  const known: Record<string, Float64Array> = {};
  for (const [name, { value }] of Object.entries(operator.tensors)) {
    if (!value) continue;
    const { dims, dtype } = tensorOf(computation, name);
    const shape = shapeOf({ dims });
    const points = pointsOf(namesOf(dims), extentsBy(dims));
    const values = Float64Array.from(points, (point) => value(Object.values(point), shape));
    if (!isInteger(dtype) || values.every(Number.isInteger)) known[name] = values.map((x) => wrap(dtype, x));
  }
  return known;
}

/** `conv2d: groups 3 does not divide c = 64`. */
export function divides(divisor: string, whole: string): Rule {
  return (p) => {
    const d = extentOf(divisor, p);
    const n = extentOf(whole, p);
    return n % d === 0 ? undefined : `${divisor} ${d} does not divide ${whole} = ${n}`;
  };
}

/** `conv2d: kernel r = 9 does not fit h = 5 with pad 1 on both sides`. */
export function fits(kernel: string, input: string, pad = "pad"): Rule {
  return (p) => {
    const [r, h, border, dilation] = [kernel, input, pad, "dilation"].map((name) => extentOf(name, p));
    if (r === undefined || h === undefined || border === undefined || dilation === undefined) return undefined;
    if (dilation * (r - 1) + 1 <= h + 2 * border) return undefined;
    const spread = dilation > 1 ? ` with dilation ${dilation}` : "";
    const padding = border > 0 ? ` with ${pad} ${border} on both sides` : "";
    return `kernel ${kernel} = ${r}${spread} does not fit ${input} = ${h}${padding}`;
  };
}

function completeParameters(operator: Operator, given: Extents): Extents {
  const { name, parameters } = operator;
  const known = Object.keys(parameters);
  for (const word of Object.keys(given))
    if (!known.includes(word)) throw new UsageError(`${name}: no parameter "${word}"`, suggestion(word, known));
  const values: Record<string, number> = { ...operator.fixed };
  for (const [word, parameter] of Object.entries(parameters)) {
    const value = given[word] ?? parameter.default;
    if (!Number.isSafeInteger(value)) throw new UsageError(`${name}: ${word} must be an integer, got ${value}`);
    if (value < parameter.min) throw new UsageError(`${name}: ${word} must ${atLeast(parameter.min)}, got ${value}`);
    values[word] = value;
  }
  return values;
}

function atLeast(min: number): string {
  if (min === 0) return "not be negative";
  return min === 1 ? "be positive" : `be at least ${min}`;
}

function extentOfAxis(operator: Operator, axis: string, parameters: Extents): number {
  const formula = operator.axes[axis];
  return formula === undefined ? extentOf(axis, parameters) : evaluateIndex(parseExpr(formula), parameters);
}

/** A text with the types of sums and of the first factor. */
const typed = (text: string, { inputs: [first], sum }: OperandTypes): string =>
  text.replaceAll(/\bacc\(/g, `${sum}(`).replaceAll(/\bfirst\(/g, `${first}(`);

/** Parses an equation and substitutes its types and the parameters. */
function bind(text: string, parameters: Extents, types: OperandTypes): Equation {
  const parsed = parseEquation(typed(text, types));
  const { where, ...bound } = substituteAxes(parsed, replacements(parameters));
  const condition = where && withoutTruths(where);
  return condition === undefined ? bound : { ...bound, where: condition };
}

/** Values of parameter names in a text: `stride`, and `C` for the channels when c is also an axis. */
function replacements(parameters: Extents): ReadonlyMap<string, Expr> {
  return new Map(
    Object.entries(parameters).map(([name, value]) => [name.length > 1 ? name : name.toUpperCase(), number(value)]),
  );
}

/** A condition without the parts that the parameters make true: `(p+1-r)%1 == 0` always holds. Undefined when nothing is left. */
function withoutTruths(condition: Expr): Expr | undefined {
  if (condition.kind === "compare") {
    const { op, left, right } = condition;
    const constant = left.kind === "number" && right.kind === "number";
    return constant && compareOp(op, left.value, right.value) ? undefined : condition;
  }
  if (condition.kind !== "logic") return condition;
  const left = withoutTruths(condition.left);
  const right = withoutTruths(condition.right);
  if (condition.op === "or") return left && right && { ...condition, left, right };
  return left && right ? { ...condition, left, right } : (left ?? right);
}

function tensorSpec(
  operator: Operator,
  name: string,
  parameters: Extents,
  types: OperandTypes,
  layout: string | undefined,
): TensorSpec {
  const tensor = operator.tensors[name] ?? internal(`${operator.name} has no tensor ${name}`);
  const dims = tensor.dims?.split(" ");
  const shape = tensor.sized && dims?.map((dim) => extentOf(dim, parameters));
  const storage = tensor.storage === undefined ? undefined : storageText(operator, tensor, tensor.storage, parameters);
  return defined({
    dtype: typeOfTensor(tensor, types),
    constant: tensor.constant ?? false,
    dims,
    shape,
    ...(layout !== undefined ? { layout } : storage !== undefined && { storage }),
  });
}

function typeOfTensor({ type }: OperatorTensor, { inputs: [first, second], sum }: OperandTypes): DType {
  switch (type) {
    case "first":
      return first;
    case "second":
      return second;
    case "sum":
      return sum;
    default:
      return type;
  }
}

/** The storage formula with parameters substituted, and without `/` and `%` that the sizes make redundant. */
function storageText(operator: Operator, tensor: OperatorTensor, text: string, parameters: Extents): string {
  const names = tensor.dims?.split(" ") ?? [];
  const extents = Object.fromEntries(names.map((dim) => [dim, extentOfAxis(operator, dim, parameters)]));
  const formula = rewrite(substitute(parseExpr(text), replacements(parameters)), (e) => {
    if (e.kind !== "binary" || e.right.kind !== "number" || (e.op !== "/" && e.op !== "%")) return e;
    const [min, max] = boundsOf(e.left, extents);
    if (min < 0 || max >= e.right.value) return e;
    return e.op === "%" ? e.left : number(0);
  });
  // A second pass, so that products with such a 0 disappear too.
  return printExpr(
    rewrite(formula, (e) => e),
    "formula",
  );
}

/** Layouts by tensor, for the tensors that were given one. */
function layoutsOf(
  operator: Operator,
  layouts: Readonly<Record<string, string>> | string,
  output: string,
): Readonly<Record<string, string>> {
  if (typeof layouts === "string") return activationLayouts(operator, layouts);
  const known = unique([...Object.keys(operator.tensors), output]);
  for (const tensor of Object.keys(layouts))
    if (!known.includes(tensor))
      throw new UsageError(`${operator.name}: no tensor "${tensor}" to lay out`, suggestion(tensor, known));
  return layouts;
}

/** One layout for input and output: `NHWC` of in[n,c,h,w] is `NPQK` of out[n,k,p,q]. Additional dimensions of the output are innermost. */
function activationLayouts(operator: Operator, layout: string): Readonly<Record<string, string>> {
  const from = operator.tensors["in"]?.dims?.split(" ");
  const to = operator.tensors["out"]?.dims?.split(" ");
  if (!from || !to || from.length > to.length)
    throw new UsageError(
      `${operator.name}: one layout "${layout}" does not say which tensor it is for`,
      `name the tensors: ${Object.keys(operator.tensors).join(", ")}`,
    );
  // Checked before translation, so that the message shows the user's letters.
  layoutStorage(
    layout,
    from.map((name) => ({ name, extent: 1 })),
    `${operator.name}: layout of in`,
  );
  const translated = layout.replaceAll(/[A-Za-z]/g, (letter) => {
    const name = to[from.indexOf(letter.toLowerCase())] ?? letter;
    return letter === letter.toLowerCase() ? name : name.toUpperCase();
  });
  return { in: layout, out: translated + to.slice(from.length).join("").toUpperCase() };
}
