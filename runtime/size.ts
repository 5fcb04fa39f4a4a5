/**
 * @file Computes the magnitude of a value and of all intermediate values from the inputs themselves. Rounding errors
 * are proportional to it.
 *
 *     square(in[c,l] - mean[c])      square(abs(in[c,l]) + abs(mean[c]))
 *     exp(x[i] - m)                  4*exp(x[i] - m) + (exp(x[i] - m + s) - exp(x[i] - m - s)) / slack        s = slack * (abs(x[i]) + abs(m))
 *
 * A function is evaluated at its argument and at the furthest points that rounding may have moved the argument to:
 * `slack` times the argument's magnitude on either side. Near an integer, floor, ceil and round differ by one there;
 * elsewhere they do not differ.
 */

import { isInteger } from "../abstraction/dtype.ts";
import { type BinaryOp, type Expr, type FunctionName, isFloatFunction, number } from "../abstraction/expression.ts";
import { valueNodes } from "./step-growth.ts";

/** The error bound of a library function in units in the last place; glibc documents 1 or 2 for most. */
export const LIBRARY_UNITS = 4;

/** Whether a library computes it, to a few units in the last place. */
export const isOfLibrary = (e: Expr): boolean =>
  e.kind === "call" && isFloatFunction(e.fn) && e.fn !== "floor" && e.fn !== "ceil";

/** Whether its value is known only to a few units in the last place, however exact its inputs are. */
export const callsLibrary = (e: Expr): boolean => [...valueNodes(e)].some(isOfLibrary);

/** @param slack the relative error by which the size is multiplied in the end */
export function sizeOf(e: Expr, slack: number): Expr {
  const size = (part: Expr): Expr => sizeOf(part, slack);
  switch (e.kind) {
    case "number":
      return { ...e, value: Math.abs(e.value) };
    case "axis":
      return e;
    case "access":
      return call("abs", e);
    case "cast":
      return isInteger(e.dtype) && callsLibrary(e.value)
        ? sizeOfInteger(e, slack)
        : { ...e, dtype: "f64", saturate: false, value: size(e.value) };
    case "negate":
      return size(e.value);
    case "binary":
      if (e.op === "/") return sizeOfQuotient(e.left, e.right, slack);
      if (e.op === "%") return size(e.left);
      return { ...e, op: e.op === "-" ? "+" : e.op, left: size(e.left), right: size(e.right) };
    case "call": {
      const [first, second] = e.args;
      if (!first) throw new Error(`internal: ${e.fn} without arguments`);
      if (e.fn === "min" || e.fn === "max") return second ? call("max", size(first), size(second)) : size(first);
      if (e.fn === "abs") return size(first);
      if (e.fn === "round" || isFloatFunction(e.fn)) return sizeOfFunction(e.fn, first, second, slack);
      return { ...e, args: [size(first)] };
    }
    case "select":
      return { ...e, whenTrue: size(e.whenTrue), whenFalse: size(e.whenFalse) };
    case "border":
    case "compare":
    case "logic":
      throw new Error("internal: a condition is not a value");
    default:
      return e satisfies never;
  }
}

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
 * The size of a cast to an integer, whose argument may have an error. The cast truncates fractions, and a saturating
 * one clamps.
 */
function sizeOfInteger(e: Extract<Expr, { readonly kind: "cast" }>, slack: number): Expr {
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
function inDoubles(e: Expr): Expr {
  switch (e.kind) {
    case "number":
    case "axis":
    case "access":
      return e;
    case "cast": {
      const inner = { ...e, value: inDoubles(e.value) };
      return isInteger(e.dtype)
        ? { kind: "cast", dtype: "f64", saturate: false, value: inner }
        : { ...inner, dtype: "f64", saturate: false };
    }
    case "negate":
      return { ...e, value: inDoubles(e.value) };
    case "binary":
      return { ...e, left: inDoubles(e.left), right: inDoubles(e.right) };
    case "call":
      return { ...e, args: e.args.map(inDoubles) };
    case "select":
      return { ...e, whenTrue: inDoubles(e.whenTrue), whenFalse: inDoubles(e.whenFalse) };
    case "border":
    case "compare":
    case "logic":
      return e;
    default:
      return e satisfies never;
  }
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

const binary = (op: BinaryOp, left: Expr, right: Expr): Expr => ({ kind: "binary", op, left, right });
const call = (fn: FunctionName, ...args: readonly Expr[]): Expr => ({ kind: "call", fn, args });
