/**
 * @file Expressions and equations of the notation: the tree, its printing, and walks over it.
 *
 *     f32(in[n,c,p*2+r-1,q*2+s-1]) * f32(w[k,c,r,s])
 *
 * Inside brackets an expression is an index: integers, `/` rounds down and `%` is never negative.
 * Outside it is arithmetic on the element types. What prints reads back (`parse.ts`).
 *
 * An equation is a scalar statement over named axes: the one notation for operators and instructions.
 *
 *     c[m,n] += s32(a[m,k]) * s32(b[k,n])
 *     out[n,k,h,w] += f32(in[n,c,(h-r+1)/2,w]) * f32(v[c,k,r]) where (h-r+1)%2 == 0
 *
 * Axes that do not index the target are summed (or maximised ...). A read outside a tensor gives the identity
 * of the combine: padding is part of the notation. Points where the condition fails contribute nothing.
 */

import { type Optional, present, unique } from "./collections.ts";
import { type DType, floatFormatOf, rangeOf } from "./dtype.ts";
import { internal } from "./error.ts";

/** `^` is the exclusive or of two integers. It is legal only in storage formulas, which use it for the swizzles of shared memory. */
export type BinaryOp = "+" | "-" | "*" | "/" | "%" | "^";
export type CompareOp = "<" | "<=" | ">" | ">=" | "==" | "!=";

/** What a comparison becomes when both sides change sign. */
export const MIRRORED: Readonly<Record<CompareOp, CompareOp>> = {
  "<": ">",
  "<=": ">=",
  ">": "<",
  ">=": "<=",
  "==": "==",
  "!=": "!=",
};

type LogicOp = "and" | "or";

/** Functions that exist for floats only. They are library calls: vector instructions do not compute them. */
export const FLOAT_FUNCTIONS = {
  exp: 1,
  log: 1,
  sqrt: 1,
  tanh: 1,
  erf: 1,
  sin: 1,
  cos: 1,
  atan: 1,
  asinh: 1,
  pow: 2,
  floor: 1,
  ceil: 1,
} as const satisfies Record<string, number>;
export type FloatFunction = keyof typeof FLOAT_FUNCTIONS;

/** Functions of one or two values; `round` is to nearest, ties to even. */
export const FUNCTIONS = {
  min: 2,
  max: 2,
  square: 1,
  abs: 1,
  round: 1,
  ...FLOAT_FUNCTIONS,
} as const satisfies Record<string, number>;
export type FunctionName = keyof typeof FUNCTIONS;

export const isFloatFunction = (fn: FunctionName): fn is FloatFunction => Object.hasOwn(FLOAT_FUNCTIONS, fn);

/** Which element an index outside its dimension reads: the nearest, the mirrored (`-1` reads `1`), or the one a whole dimension further. */
export const BORDERS = ["clamp", "reflect", "wrap"] as const;
export type Border = (typeof BORDERS)[number];

/** An index that stays inside its dimension, `in[clamp(i-1)]`; it alone may be read from a tensor, `table[clamp(ids[i]),j]`. */
interface BorderIndex {
  readonly kind: "border";
  readonly how: Border;
  readonly index: Expr;
  /** Extent of the dimension; set once the tensor's shape is known. */
  readonly extent: number | undefined;
}

/** An expression over axes, tensors and constants. */
export type Expr =
  | { readonly kind: "number"; readonly value: number }
  /** An axis, or a named integer parameter before it is bound. */
  | { readonly kind: "axis"; readonly name: string }
  | Access
  | BorderIndex
  /** `s32(x)` keeps the low bits, `sat_s8(x)` clamps. */
  | { readonly kind: "cast"; readonly dtype: DType; readonly saturate: boolean; readonly value: Expr }
  | { readonly kind: "negate"; readonly value: Expr }
  | { readonly kind: "binary"; readonly op: BinaryOp; readonly left: Expr; readonly right: Expr }
  | { readonly kind: "call"; readonly fn: FunctionName; readonly args: readonly Expr[] }
  | Compare
  | { readonly kind: "logic"; readonly op: LogicOp; readonly left: Expr; readonly right: Expr }
  | { readonly kind: "select"; readonly condition: Expr; readonly whenTrue: Expr; readonly whenFalse: Expr };

/** Compares two indices, or in the condition of a select two elements. */
export interface Compare {
  readonly kind: "compare";
  readonly op: CompareOp;
  readonly left: Expr;
  readonly right: Expr;
}

/** An element of a tensor, `in[n,c,p+r]`. */
export interface Access {
  readonly kind: "access";
  readonly tensor: string;
  readonly index: readonly Expr[];
}

/** A number of index arithmetic, which has no -0. Only the parser makes the literal `-0`, which floats distinguish from 0. */
export const number = (value: number): Expr => ({ kind: "number", value: value === 0 ? 0 : value });
export const axis = (name: string): Expr => ({ kind: "axis", name });
export const access = (tensor: string, index: readonly Expr[]): Access => ({ kind: "access", tensor, index });

const termOf = (e: Expr | number): Expr => (typeof e === "number" ? number(e) : e);

/** `first op second`, with the identities of integer arithmetic applied: `x*1`, `x+0`, `x/1`, `x%1` and constants fold. */
export function binary(op: BinaryOp, first: Expr | number, second: Expr | number): Expr {
  const left = termOf(first);
  const right = termOf(second);
  const a = left.kind === "number" ? left.value : undefined;
  const b = right.kind === "number" ? right.value : undefined;
  if (
    a !== undefined &&
    b !== undefined &&
    Number.isInteger(a) &&
    Number.isInteger(b) &&
    !(b === 0 && (op === "/" || op === "%"))
  )
    return number(integerOp(op, a, b));
  if (b === 0 && (op === "+" || op === "-" || op === "^")) return left;
  if (a === 0 && (op === "+" || op === "^")) return right;
  if (b === 1 && (op === "*" || op === "/")) return left;
  if (a === 1 && op === "*") return right;
  if ((a === 0 || b === 0) && op === "*") return number(0);
  if (b === 1 && op === "%") return number(0);
  if (a === 0 && (op === "/" || op === "%")) return number(0);
  // x + -3  ->  x - 3
  if (b !== undefined && b < 0 && op === "+") return minus(left, -b);
  if (b !== undefined && b < 0 && op === "-") return plus(left, -b);
  return { kind: "binary", op, left, right };
}

export const plus = (left: Expr | number, right: Expr | number): Expr => binary("+", left, right);
export const minus = (left: Expr | number, right: Expr | number): Expr => binary("-", left, right);
export const times = (left: Expr | number, right: Expr | number): Expr => binary("*", left, right);
export const over = (left: Expr | number, right: Expr | number): Expr => binary("/", left, right);
export const remainder = (left: Expr | number, right: Expr | number): Expr => binary("%", left, right);

/** `left op right` on elements, which round, wrap and have NaN and -0. So fewer identities apply than for integers. */
function binaryOfValues(op: BinaryOp, left: Expr, right: Expr): Expr {
  const is = (e: Expr, value: number): boolean => e.kind === "number" && Object.is(e.value, value);
  if (((op === "*" || op === "/") && is(right, 1)) || (op === "-" && is(right, 0))) return left;
  if (op === "*" && is(left, 1)) return right;
  return { kind: "binary", op, left, right };
}

/** A border index such as `clamp(i-1)`. */
export const border = (how: Border, index: Expr, extent: number): BorderIndex => ({
  kind: "border",
  how,
  index,
  extent,
});

/** Extent of a border index, which `defineComputation` fills in. */
export function extentOfBorder({ how, extent }: BorderIndex): number {
  return extent ?? internal(`${how} of a dimension of no known extent`);
}

/** The place that a border index reads; `index` may lie outside `0 .. extent-1`. */
export function borderOp(border: BorderIndex, index: number): number {
  const { how } = border;
  const extent = extentOfBorder(border);
  switch (how) {
    case "clamp":
      return Math.min(Math.max(index, 0), extent - 1);
    case "reflect": {
      const period = Math.max(1, 2 * (extent - 1));
      const place = integerOp("%", index, period);
      return Math.min(place, period - place);
    }
    case "wrap":
      return integerOp("%", index, extent);
    default:
      return how satisfies never;
  }
}

export const and = (left: Expr, right: Expr): Expr => ({ kind: "logic", op: "and", left, right });
export const compare = (op: CompareOp, left: Expr | number, right: Expr | number): Expr => ({
  kind: "compare",
  op,
  left: termOf(left),
  right: termOf(right),
});
export const select = (condition: Expr, whenTrue: Expr, whenFalse: Expr): Expr => ({
  kind: "select",
  condition,
  whenTrue,
  whenFalse,
});

/** The condition that several hold, of those that there are; undefined for none. */
export function allOf(conditions: readonly Optional<Expr>[]): Expr | undefined {
  const [first, ...others] = present(conditions);
  return first && others.reduce(and, first);
}

/** `from <= place < to` */
export const between = (place: Expr, from: number, to: number): Expr =>
  and(compare(">=", place, from), compare("<", place, to));

/** Index arithmetic: `/` rounds towards minus infinity and `%` takes the sign of the divisor. */
export function integerOp(op: BinaryOp, a: number, b: number): number {
  switch (op) {
    case "+":
      return a + b;
    case "-":
      return a - b;
    case "*":
      return a * b;
    case "/":
      return Math.floor(a / b);
    case "%":
      return a - b * Math.floor(a / b);
    case "^":
      return a ^ b;
    default:
      return op satisfies never;
  }
}

export function compareOp(op: CompareOp, a: number, b: number): boolean {
  switch (op) {
    case "<":
      return a < b;
    case "<=":
      return a <= b;
    case ">":
      return a > b;
    case ">=":
      return a >= b;
    case "==":
      return a === b;
    case "!=":
      return a !== b;
    default:
      return op satisfies never;
  }
}

/** The operands of nested operations of one kind: a, b and c of `a * (b * c)`. */
export function operandsOf(e: Expr, op: BinaryOp): Expr[] {
  return e.kind === "binary" && e.op === op ? [...operandsOf(e.left, op), ...operandsOf(e.right, op)] : [e];
}

/** Direct sub-expressions, left to right. */
export function childrenOf(e: Expr): readonly Expr[] {
  switch (e.kind) {
    case "number":
    case "axis":
      return [];
    case "access":
      return e.index;
    case "border":
      return [e.index];
    case "cast":
    case "negate":
      return [e.value];
    case "binary":
    case "compare":
    case "logic":
      return [e.left, e.right];
    case "call":
      return e.args;
    case "select":
      return [e.condition, e.whenTrue, e.whenFalse];
    default:
      return e satisfies never;
  }
}

/** A value whose parts are changed that compute its elements; what an index or a condition is made of stays. */
export function changeParts(e: Expr, change: (part: Expr) => Expr): Expr {
  switch (e.kind) {
    case "cast":
    case "negate":
      return { ...e, value: change(e.value) };
    case "binary":
      return { ...e, left: change(e.left), right: change(e.right) };
    case "call":
      return { ...e, args: e.args.map(change) };
    case "select":
      return { ...e, whenTrue: change(e.whenTrue), whenFalse: change(e.whenFalse) };
    default:
      return e;
  }
}

/** Every node, parents before children, left to right. @param inside the children to visit; all by default */
export function* walk(e: Expr, inside: (e: Expr) => readonly Expr[] = childrenOf): Generator<Expr> {
  const left = [e];
  for (let node = left.pop(); node !== undefined; node = left.pop()) {
    yield node;
    left.push(...inside(node).toReversed());
  }
}

/** Elements of a value that no index of another reads: of `table[clamp(ids[i]),j]` the element of the table alone. */
export function outermostAccessesIn(e: Expr): Access[] {
  const inside = (node: Expr): readonly Expr[] => (node.kind === "access" ? [] : childrenOf(node));
  return [...walk(e, inside)].filter((node) => node.kind === "access");
}

/** The reads that are indices of a read: `ids[i]` of `table[clamp(ids[i]),j]`. */
export const readsInIndex = ({ index }: Access): Access[] => index.flatMap(accessesIn);

/** Whether an index is read from a tensor, so that no access matrix says which elements are read. */
export const readsIndices = (value: Expr): boolean => accessesIn(value).some((a) => readsInIndex(a).length > 0);

/** Names of the axes an expression mentions, in order of first appearance. */
export function axesIn(e: Expr): string[] {
  const found: string[] = [];
  collectAxes(e, found);
  return found;
}

function collectAxes(e: Expr, found: string[]): void {
  if (e.kind !== "axis") for (const child of childrenOf(e)) collectAxes(child, found);
  else if (!found.includes(e.name)) found.push(e.name);
}

/** The axes that are an index by themselves, in order. */
export const plainAxes = ({ index }: Access): string[] => index.flatMap((e) => (e.kind === "axis" ? [e.name] : []));

/** The tensor elements an expression reads, left to right, repeats included. */
export function accessesIn(e: Expr): Access[] {
  return [...walk(e)].filter((node) => node.kind === "access");
}

/** The elements of one tensor among them. */
export const readsOf = (e: Expr, tensor: string): Access[] => accessesIn(e).filter((read) => read.tensor === tensor);

/** Whether a comparison compares elements, `a[i] == b[j]`, rather than indices. */
export const comparesElements = (e: Compare): boolean => accessesIn(e).length > 0;

/** Whether a condition depends on elements. */
export const testsElements = (condition: Expr): boolean => accessesIn(condition).length > 0;

/** Whether a select in the value depends on elements. */
export const choosesByElements = (value: Expr): boolean =>
  [...walk(value)].some((e) => e.kind === "select" && testsElements(e.condition));

/** Whether two expressions are the same tree. Equal text is not enough: 0 and -0 print alike. */
export function isSame(a: Expr, b: Expr): boolean {
  if (a === b) return true;
  if (a.kind === "number") return b.kind === "number" && Object.is(a.value, b.value);
  if (a.kind === "axis") return b.kind === "axis" && a.name === b.name;
  if (a.kind === "binary")
    return b.kind === "binary" && a.op === b.op && isSame(a.left, b.left) && isSame(a.right, b.right);
  return a.kind === b.kind && printExpr(a) === printExpr(b);
}

/** Whether arithmetic is on unbounded integers (`1/2` is 0) or on elements (`1/2` is 0.5 beside an f32). */
type Context = "index" | "value";

/** An expression of only axes and integers counts as an index. */
function contextOf(e: Expr): Context {
  if (e.kind === "binary") return contextOf(e.left) === "index" ? contextOf(e.right) : "value";
  if (e.kind === "negate") return contextOf(e.value);
  return e.kind === "number" || e.kind === "axis" ? "index" : "value";
}

/**
 * Rebuilds bottom-up: children first, then `change` on each rebuilt node. In indices and conditions arithmetic on constants folds on the way. In
 * values only operations that change no element fold (`x*1`, `x/1`, `x-0`).
 * @param entersReads whether indices of elements are rebuilt too
 */
export function rewrite(
  e: Expr,
  change: (node: Expr) => Expr,
  context: Context = contextOf(e),
  entersReads = true,
): Expr {
  const again = (child: Expr): Expr => rewrite(child, change, context, entersReads);
  const index = (child: Expr): Expr => rewrite(child, change, "index", entersReads);
  switch (e.kind) {
    case "number":
    case "axis":
      return change(e);
    case "access":
      return change(entersReads ? { ...e, index: e.index.map(index) } : e);
    case "border":
      return change({ ...e, index: index(e.index) });
    case "cast":
      return change({ ...e, value: again(e.value) });
    case "negate": {
      const value = again(e.value);
      return change(value.kind === "number" ? number(-value.value) : { ...e, value });
    }
    case "binary": {
      const made = (context === "index" ? binary : binaryOfValues)(e.op, again(e.left), again(e.right));
      // An unchanged tree stays the same object, so that values memoised on it are kept.
      const isOld = made.kind === "binary" && made.op === e.op && made.left === e.left && made.right === e.right;
      return change(isOld ? e : made);
    }
    case "compare": {
      const side = comparesElements(e) ? "value" : "index";
      const inside = (child: Expr): Expr => rewrite(child, change, side, entersReads);
      return change({ ...e, left: inside(e.left), right: inside(e.right) });
    }
    case "logic":
      return change({ ...e, left: index(e.left), right: index(e.right) });
    case "call":
      return change({ ...e, args: e.args.map(again) });
    case "select":
      return change({
        ...e,
        condition: index(e.condition),
        whenTrue: again(e.whenTrue),
        whenFalse: again(e.whenFalse),
      });
    default:
      return e satisfies never;
  }
}

/** Replaces the elements that a value reads. */
export function rewriteReads(value: Expr, change: (read: Access) => Expr): Expr {
  return rewrite(value, (node) => (node.kind === "access" ? change(node) : node), "value");
}

/** Replaces axes (or parameters) by expressions. */
export function substitute(e: Expr, replacements: ReadonlyMap<string, Expr>, context?: Context): Expr {
  return rewrite(e, (node) => (node.kind === "axis" ? (replacements.get(node.name) ?? node) : node), context);
}

/** Expressions over integers, as indices and conditions are, with axes replaced. */
export const substituteEach = (exprs: readonly Expr[], replacements: ReadonlyMap<string, Expr>): Expr[] =>
  exprs.map((e) => substitute(e, replacements, "index"));

/** The expression at each name's place in an index, 0 behind the last. */
export const exprsByName = (names: readonly string[], index: readonly Expr[]): Map<string, Expr> =>
  new Map(names.map((name, d) => [name, index[d] ?? number(0)]));

/** An access at another place: axes of its index replaced. */
export const substituteAccess = (of: Access, replacements: ReadonlyMap<string, Expr>): Access => ({
  ...of,
  index: substituteEach(of.index, replacements),
});

/** Operator precedence; a weaker operator inside a stronger one is printed in parentheses. */
const STRENGTH = {
  or: 1,
  and: 2,
  compare: 3,
  "^": 4,
  "+": 5,
  "-": 5,
  "*": 6,
  "/": 6,
  "%": 6,
  negate: 7,
  atom: 8,
} as const;

/** Where an expression stands decides its spacing: `a[m,k] * b[k,n]`, `p*2+r-1` in an index, `64*(k/4) + 4*n` in a storage formula. */
export type PrintStyle = "value" | "index" | "formula";

/** The text of an expression; `parseExpr` reads it back to an equal tree. */
export function printExpr(e: Expr, style: PrintStyle = "value"): string {
  return print(e, 0, style);
}

function print(e: Expr, floor: number, style: PrintStyle): string {
  const inner = (child: Expr): string => print(child, 0, style);
  switch (e.kind) {
    case "number":
      if (Object.is(e.value, -0)) return wrapIn("-0", STRENGTH.negate, floor);
      return e.value < 0 ? wrapIn(String(e.value), STRENGTH.negate, floor) : String(e.value);
    case "axis":
      return e.name;
    case "access":
      return printAccess(e);
    case "border":
      return `${e.how}(${print(e.index, 0, "index")})`;
    case "cast":
      return `${e.saturate ? "sat_" : ""}${e.dtype}(${inner(e.value)})`;
    case "negate":
      return wrapIn(`-${print(e.value, STRENGTH.negate + 1, style)}`, STRENGTH.negate, floor);
    case "binary": {
      const strength = STRENGTH[e.op];
      const tight = style === "index" || (style === "formula" && strength > STRENGTH["+"]);
      const op = tight ? e.op : ` ${e.op} `;
      return wrapIn(`${print(e.left, strength, style)}${op}${print(e.right, strength + 1, style)}`, strength, floor);
    }
    case "compare": {
      // Conditions compare indices: `where (h-r+1)%2 == 0`.
      const side = (child: Expr): string => print(child, STRENGTH.compare + 1, "index");
      return wrapIn(`${side(e.left)} ${e.op} ${side(e.right)}`, STRENGTH.compare, floor);
    }
    case "logic": {
      const strength = STRENGTH[e.op];
      return wrapIn(
        `${print(e.left, strength, style)} ${e.op} ${print(e.right, strength + 1, style)}`,
        strength,
        floor,
      );
    }
    case "call":
      return `${e.fn}(${e.args.map(inner).join(", ")})`;
    case "select":
      return `select(${inner(e.condition)}, ${inner(e.whenTrue)}, ${inner(e.whenFalse)})`;
    default:
      return e satisfies never;
  }
}

export function printAccess({ tensor, index }: Access): string {
  return `${tensor}[${index.map((i) => print(i, 0, "index")).join(",")}]`;
}

function wrapIn(text: string, strength: number, floor: number): string {
  return strength < floor ? `(${text})` : text;
}

/**
 * How a value joins what the target holds. The values of all summed points are folded exactly first and join once,
 * which is what a saturating instruction does: `sat+=` clamps the sum, not each step.
 */
export const COMBINE_OPS = ["=", "+=", "sat+=", "max=", "min="] as const;
export type CombineOp = (typeof COMBINE_OPS)[number];

/** One assignment for every point of the axes: `target op= value where condition`. */
export interface Equation {
  /** The element that is assigned. */
  readonly target: Access;
  /** How a value joins the element: `=`, `+=`, `max=`, `min=`, `sat+=`. */
  readonly op: CombineOp;
  /** What is assigned or combined. */
  readonly value: Expr;
  /** Points that it leaves out are not computed. */
  readonly where?: Expr;
  /** In an epilogue: equations that assign other elements of the same tensor and read only inputs. */
  readonly beside?: readonly Equation[];
}

/** The text `parseEquation` reads back: the cache key of a computation and the name of its test. */
export function printEquation({ target, op, value, where, beside = [] }: Equation): string {
  const condition = where === undefined ? "" : ` where ${printExpr(where)}`;
  return [`${printAccess(target)} ${op} ${printExpr(value)}${condition}`, ...beside.map(printEquation)].join(", ");
}

/** Axes in order of first appearance, target first. */
export function axesOf({ target, value, where }: Equation): string[] {
  return unique([...axesIn(target), ...axesIn(value), ...(where === undefined ? [] : axesIn(where))]);
}

/** Axes that index the target; all others are summed. */
export function spatialAxesOf({ target }: Equation): string[] {
  return axesIn(target);
}

/** Every tensor element the equation mentions: the target, then the reads left to right. */
export function accessesOf({ target, value, where }: Equation): Access[] {
  return [target, ...accessesIn(value), ...(where === undefined ? [] : accessesIn(where))];
}

/** Names of the tensors, each once: the target, then the reads, then those read by equations beside it. */
export function tensorsOf(equation: Equation): string[] {
  const all = [equation, ...(equation.beside ?? [])].flatMap(accessesOf);
  return unique(all.map((a) => a.tensor));
}

/** The target's value before anything is combined, and the value of a read outside a tensor. */
export function identityOf(op: CombineOp, dtype: DType): number {
  switch (op) {
    case "=":
    case "+=":
    case "sat+=":
      return 0;
    case "max=":
      return floatFormatOf(dtype)?.beyond === Number.POSITIVE_INFINITY ? Number.NEGATIVE_INFINITY : rangeOf(dtype)[0];
    case "min=":
      return floatFormatOf(dtype)?.beyond === Number.POSITIVE_INFINITY ? Number.POSITIVE_INFINITY : rangeOf(dtype)[1];
    default:
      return op satisfies never;
  }
}

/** Replaces axes or parameters throughout. */
export function substituteAxes(equation: Equation, replacements: ReadonlyMap<string, Expr>): Equation {
  const again = (e: Expr): Expr => substitute(e, replacements, "index");
  const { target, op, value, where, beside } = equation;
  const result = {
    target: { ...target, index: target.index.map(again) },
    op,
    value: substitute(value, replacements, "value"),
  };
  return {
    ...result,
    ...(where !== undefined && { where: again(where) }),
    ...(beside && { beside: beside.map((other) => substituteAxes(other, replacements)) }),
  };
}

/** Two parts of a sum, a minimum or a maximum. */
export function joinedBy(op: CombineOp, left: Expr, right: Expr): Expr {
  if (op !== "max=" && op !== "min=") return { kind: "binary", op: "+", left, right };
  return { kind: "call", fn: op === "max=" ? "max" : "min", args: [left, right] };
}

/** An equation that holds only where further conditions do. */
export function guarded(equation: Equation, conditions: readonly Expr[]): Equation {
  const where = allOf([equation.where, ...conditions]);
  return where ? { ...equation, where } : equation;
}
