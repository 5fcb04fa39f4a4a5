/**
 * @file Computes the magnitude of a value and of its intermediate values from the inputs. Rounding errors are proportional to it.
 *
 *     square(in[c,l] - mean[c])      square(abs(in[c,l]) + abs(mean[c]))
 *     exp(x[i] - m)                  4*exp(x[i] - m) + (exp(x[i] - m + s) - exp(x[i] - m - s)) / slack        s = slack * (abs(x[i]) + abs(m))
 *
 * A function is evaluated at its argument and at the furthest points that rounding may have moved the argument to:
 * `slack` times the argument's magnitude on either side. Near an integer, floor, ceil and round differ by one there;
 * elsewhere they do not differ.
 */

import { isInteger } from "../abstraction/dtype.ts";
import { internal } from "../abstraction/error.ts";
import {
  type Access,
  type BinaryOp,
  changeParts,
  childrenOf,
  type Expr,
  type FloatFunction,
  type FunctionName,
  isFloatFunction,
  number,
  walk,
} from "../abstraction/expression.ts";

/** The error bound of a library function in units in the last place; glibc documents 1 or 2 for most. */
export const LIBRARY_UNITS = 4;

/** Whether a library computes it, to a few units in the last place. */
export const isOfLibrary = (e: Expr): boolean =>
  e.kind === "call" && isFloatFunction(e.fn) && e.fn !== "floor" && e.fn !== "ceil";

/** Whether its value is known only to a few units in the last place, however exact its inputs are. */
export const callsLibrary = (e: Expr): boolean => [...valueNodes(e)].some(isOfLibrary);

/** What the size of an element, a cast, a quotient and a function is. */
interface Rules {
  readonly element: (e: Access) => Expr;
  readonly cast: (e: Cast, size: Expr) => Expr;
  readonly quotient: (left: Expr, right: Expr) => Expr;
  readonly call: (fn: FloatFunction | "round", first: Expr, second: Expr | undefined) => Expr;
}
type Cast = Extract<Expr, { readonly kind: "cast" }>;

function sizeBy(rules: Rules, e: Expr): Expr {
  const size = (part: Expr): Expr => sizeBy(rules, part);
  switch (e.kind) {
    case "number":
      return { ...e, value: Math.abs(e.value) };
    case "axis":
      return e;
    case "access":
      return rules.element(e);
    case "cast":
      return rules.cast(e, size(e.value));
    case "negate":
      return size(e.value);
    case "binary":
      if (e.op === "/") return rules.quotient(e.left, e.right);
      if (e.op === "%") return size(e.left);
      return { ...e, op: e.op === "-" ? "+" : e.op, left: size(e.left), right: size(e.right) };
    case "call": {
      const [first = internal(`${e.fn} without arguments`), second] = e.args;
      if (e.fn === "min" || e.fn === "max") return second ? call("max", size(first), size(second)) : size(first);
      if (e.fn === "abs") return size(first);
      if (e.fn === "round" || isFloatFunction(e.fn)) return rules.call(e.fn, first, second);
      return { ...e, args: [size(first)] };
    }
    case "select":
      return { ...e, whenTrue: size(e.whenTrue), whenFalse: size(e.whenFalse) };
    case "border":
    case "compare":
    case "logic":
      return internal("a condition is not a value");
    default:
      return e satisfies never;
  }
}

/** @param slack the relative error by which the size is multiplied in the end */
export function sizeOf(e: Expr, slack: number): Expr {
  const rules: Rules = {
    element: (read) => call("abs", read),
    cast: (cast, size) =>
      isInteger(cast.dtype) && callsLibrary(cast.value) ? sizeOfInteger(cast, slack) : inF64(cast, size),
    quotient: (left, right) => sizeOfQuotient(left, right, slack),
    call: (fn, first, second) => sizeOfFunction(fn, first, second, slack),
  };
  return sizeBy(rules, e);
}

/**
 * An upper bound of the size of a value and of all its intermediate values. Inputs are given as absolute values.
 *
 *     square(in[c,l] - mean[c])      ->      square(in[c,l] + mean[c])
 */
export function magnitudeOf(e: Expr): Expr {
  return sizeBy(MAGNITUDES, e);
}

const MAGNITUDES: Rules = {
  element: (read) => read,
  cast: (cast, size) => inF64(cast, size),
  quotient: (left, right) => binary("/", magnitudeOf(left), right),
  call: (fn, first, second) => magnitudeOfFunction(fn, magnitudeOf(first), second && magnitudeOf(second)),
};

const inF64 = (cast: Cast, value: Expr): Expr => ({ ...cast, dtype: "f64", saturate: false, value });

/** A computed divisor has an error of its own. */
function sizeOfQuotient(left: Expr, right: Expr, slack: number): Expr {
  const above = sizeOf(left, slack);
  const below = call("abs", inDoubles(right));
  if (isExact(right)) return binary("/", above, below);
  const size = sizeOf(right, slack);
  const least = call("max", binary("-", below, binary("*", number(slack), size)), number(0));
  return binary("/", binary("+", above, binary("/", binary("*", above, size), below)), least);
}

function sizeOfFunction(fn: FunctionName, first: Expr, second: Expr | undefined, slack: number): Expr {
  const args = second ? [first, second] : [first];
  const there = call(fn, ...args.map(inDoubles));
  const value = call("abs", there);
  const own = isOfLibrary(there) ? binary("*", number(LIBRARY_UNITS), value) : value;
  // Where an argument lies off by d, a function of slope 1 at most lies off by d at most.
  if (fn === "sin" || fn === "cos") return isExact(first) ? own : binary("+", own, sizeOf(first, slack));
  // Every other function is monotone in each argument, so its extremes are at the corners.
  const corners = args.reduce<Expr[][]>(
    (all, arg) => {
      const at = inDoubles(arg);
      if (isExact(arg)) return all.map((before) => [...before, at]);
      const off = binary("*", number(slack), sizeOf(arg, slack));
      const low = binary("-", at, off);
      // Rounding does not make arguments of log and sqrt negative.
      const least = fn === "log" || fn === "sqrt" ? call("max", low, number(0)) : low;
      return all.flatMap((before) => [
        [...before, least],
        [...before, binary("+", at, off)],
      ]);
    },
    [[]],
  );
  if (corners.length === 1) return own;
  const ends = corners.map((corner) => call(fn, ...corner));
  const end = (choose: "min" | "max"): Expr => ends.reduce((a, b) => call(choose, a, b));
  return binary("+", own, binary("/", binary("-", end("max"), end("min")), number(slack)));
}

/**
 * The size of a function, including how far an error of its argument moves it: the error of `f(x + d)` is at most `d`
 * times the slope.
 * @param x the size of the argument
 */
function magnitudeOfFunction(fn: FloatFunction | "round", x: Expr, y: Expr | undefined): Expr {
  switch (fn) {
    case "exp":
      return binary("*", call("exp", x), binary("+", number(1), x));
    case "tanh":
    case "sin":
    case "cos":
      return binary("+", number(1), x);
    // Neither they nor their slopes are larger than the argument and 1.
    case "atan":
    case "asinh":
      return binary("*", number(2), x);
    // Its slope is at most 2/sqrt(pi).
    case "erf":
      return binary("+", number(1), binary("*", number(2 / Math.sqrt(Math.PI)), x));
    // As for a divisor, provided that the argument is not a difference of larger numbers: a relative error stays
    // relative.
    case "sqrt":
      return call("sqrt", x);
    case "log":
      return binary("+", number(1), call("abs", call("log", x)));
    case "pow":
      return binary("*", call("pow", x, y ?? number(1)), binary("+", number(1), y ?? number(1)));
    // A value next to an integer, or to a half, may fall on either side.
    case "round":
    case "floor":
    case "ceil":
      return binary("+", x, number(1));
    default:
      return fn satisfies never;
  }
}

/**
 * The size of a cast to an integer, whose argument may have an error. The cast truncates fractions, and a saturating
 * one clamps.
 */
function sizeOfInteger(e: Cast, slack: number): Expr {
  const cast = (value: Expr): Expr => ({ kind: "cast", dtype: "f64", saturate: false, value: { ...e, value } });
  const at = inDoubles(e.value);
  const off = binary("*", number(slack), sizeOf(e.value, slack));
  const end = (op: "+" | "-"): Expr => {
    const moved = binary(op, at, off);
    return cast(isWhole(e.value) ? call("round", moved) : moved);
  };
  const there = cast(at);
  const farthest = call("max", binary("-", end("+"), there), binary("-", there, end("-")));
  return binary("+", call("abs", there), binary("/", farthest, number(slack)));
}

/** Whether a value is an integer by its form. */
function isWhole(e: Expr): boolean {
  switch (e.kind) {
    case "number":
      return Number.isInteger(e.value);
    case "cast":
      return isInteger(e.dtype) || isWhole(e.value);
    case "negate":
      return isWhole(e.value);
    case "binary":
      return (e.op === "+" || e.op === "-" || e.op === "*") && isWhole(e.left) && isWhole(e.right);
    case "call":
      return (
        ["round", "floor", "ceil"].includes(e.fn) || (["min", "max", "abs"].includes(e.fn) && e.args.every(isWhole))
      );
    default:
      return e.kind === "axis";
  }
}

/** The value computed in f64. Casts to integers still truncate. */
export function inDoubles(e: Expr): Expr {
  const inner = changeParts(e, inDoubles);
  if (inner.kind !== "cast") return inner;
  return inF64(inner, isInteger(inner.dtype) ? inner : inner.value);
}

/** Whether a value is not rounded: an element in memory, or a constant that f32 represents. */
function isExact(e: Expr): boolean {
  switch (e.kind) {
    case "number":
      return Math.fround(e.value) === e.value;
    case "axis":
    case "access":
      return true;
    case "negate":
      return isExact(e.value);
    case "call":
      return (e.fn === "abs" || e.fn === "min" || e.fn === "max") && e.args.every(isExact);
    default:
      return false;
  }
}

/** Arithmetic of elements as it is written: no identity of integers applies. */
export const binary = (op: BinaryOp, left: Expr, right: Expr): Expr => ({ kind: "binary", op, left, right });
export const call = (fn: FunctionName, ...args: readonly Expr[]): Expr => ({ kind: "call", fn, args });

/** The nodes that compute elements, without those of indices and conditions. */
export const valueNodes = (e: Expr): Generator<Expr> => walk(e, valuesIn);

function valuesIn(e: Expr): readonly Expr[] {
  if (e.kind === "select") return [e.whenTrue, e.whenFalse];
  return ["access", "border", "compare", "logic"].includes(e.kind) ? [] : childrenOf(e);
}
