/**
 * @file Integer range analysis of equations over s64. Such values are held in f64 at run time, which is exact up to 2^53; a value that may exceed it
 * is refused.
 *
 *     y[i] = mask[i] * places[i] + 1        mask in 0..1, places in 0..512        y in 1..513
 *
 * Inputs of s64 hold numbers of 32 bits, which a library checks in each call.
 */

import { type Computation, extentsOf } from "../abstraction/computation.ts";
import { isInteger, rangeOf } from "../abstraction/dtype.ts";
import { type Access, type Expr, spatialAxesOf } from "../abstraction/expression.ts";
import { rootOf } from "./network.ts";
import { heldAs, holdsIntegers, type Range, type Reads, type Value } from "./value.ts";

/** The numbers of an s64 input. */
export const INPUT_RANGE: Range = rangeOf("s32");

/** The largest integer up to which f64 holds every integer. */
const MOST_EXACT = 2 ** 53;

/** Numbers from `range`; all of them integers that were computed exactly, if `isWhole`. */
interface Numbers {
  readonly range: Range;
  readonly isWhole: boolean;
}

const ANY: Numbers = { range: [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY], isWhole: false };

/** The integers that a value may hold; undefined for floats. */
export function rangeIn(value: Value): Range | undefined {
  const { type, constant, range } = rootOf(value);
  if (constant) return holdsIntegers(type) ? extremesOf(constant) : undefined;
  if (range) return range;
  return isInteger(heldAs(type)) ? rangeOf(heldAs(type)) : undefined;
}

function extremesOf(elements: ArrayLike<number>): Range {
  let least = elements[0] ?? 0;
  let most = elements[0] ?? 0;
  for (let i = 1; i < elements.length; i++) {
    const x = elements[i] ?? 0;
    least = Math.min(least, x);
    most = Math.max(most, x);
  }
  return [least, most];
}

/** The integers that a computation makes; undefined where some may be beyond 2^53, or no integers. */
export function wholeResult(computation: Computation, reads: Reads): Range | undefined {
  const { equation } = computation;
  const extents = extentsOf(computation);
  const { range, isWhole } = numbersOf(equation.value, reads, extents);
  // The ends of s64 are read as those of exact numbers, and mean "to the end": as elements they would be other numbers.
  if (!isWhole || range.some((x) => Math.abs(x) === Number.MAX_SAFE_INTEGER)) return undefined;
  if (equation.op !== "+=") return range;
  const kept = spatialAxesOf(equation);
  const terms = Object.entries(extents).reduce(
    (count, [name, size]) => (kept.includes(name) ? count : count * size),
    1,
  );
  const sum: Range = [Math.min(0, range[0] * terms), Math.max(0, range[1] * terms)];
  return isExact(sum) ? sum : undefined;
}

const isExact = ([least, most]: Range): boolean => least >= -MOST_EXACT && most <= MOST_EXACT;

/** What arithmetic on exact integers makes, where the result is exact again. */
const arithmetic = (corners: readonly number[], isWhole: boolean): Numbers => {
  const range: Range = [Math.min(...corners), Math.max(...corners)];
  return { range, isWhole: isWhole && isExact(range) };
};

function numbersOf(e: Expr, reads: Reads, extents: Readonly<Record<string, number>>): Numbers {
  const of = (part: Expr): Numbers => numbersOf(part, reads, extents);
  switch (e.kind) {
    case "number":
      return { range: [e.value, e.value], isWhole: Number.isSafeInteger(e.value) };
    case "axis":
      return { range: [0, (extents[e.name] ?? 1) - 1], isWhole: true };
    case "access":
      return elementsRead(e, reads);
    case "negate": {
      const { range, isWhole } = of(e.value);
      return { range: [-range[1], -range[0]], isWhole };
    }
    case "cast": {
      const given = of(e.value);
      if (!isInteger(e.dtype)) return given;
      const [least, most] = rangeOf(e.dtype);
      const fits = given.range[0] >= least && given.range[1] <= most;
      return { range: fits ? given.range : [least, most], isWhole: true };
    }
    case "select": {
      const a = of(e.whenTrue);
      const b = of(e.whenFalse);
      return {
        range: [Math.min(a.range[0], b.range[0]), Math.max(a.range[1], b.range[1])],
        isWhole: a.isWhole && b.isWhole,
      };
    }
    case "binary":
      return combined(e.op, of(e.left), of(e.right));
    case "call": {
      const [first] = e.args;
      if ((e.fn === "floor" || e.fn === "ceil") && first?.kind === "binary" && first.op === "/")
        return quotient(of(first.left), of(first.right), e.fn);
      return called(e.fn, e.args.map(of));
    }
    case "border":
    case "compare":
    case "logic":
      return ANY;
    default:
      return e satisfies never;
  }
}

function elementsRead({ tensor, index }: Access, reads: Reads): Numbers {
  const value = reads[tensor];
  const range = value && rangeIn(value);
  if (!range) return ANY;
  // Beyond a tensor's end stands a 0.
  const isInside = index.every((e) => e.kind === "axis" || e.kind === "border");
  return { range: isInside ? range : [Math.min(0, range[0]), Math.max(0, range[1])], isWhole: true };
}

function combined(
  op: string,
  { range: a, isWhole: isFirst }: Numbers,
  { range: b, isWhole: isSecond }: Numbers,
): Numbers {
  const isWhole = isFirst && isSecond;
  if (op === "+") return arithmetic([a[0] + b[0], a[1] + b[1]], isWhole);
  if (op === "-") return arithmetic([a[0] - b[1], a[1] - b[0]], isWhole);
  if (op === "*") return arithmetic([a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1]], isWhole);
  return ANY;
}

/**
 * A quotient rounded down or up. Rounding to f64 never brings a fraction of integers below 2^53 to the next integer: it moves a/b by at most
 * |a/b| * 2^-53, less than the 1/|b| that are missing.
 */
function quotient(a: Numbers, b: Numbers, fn: "floor" | "ceil"): Numbers {
  if (!a.isWhole || !b.isWhole || (b.range[0] <= 0 && b.range[1] >= 0)) return ANY;
  const corners = a.range.flatMap((x) => b.range.map((y) => Math[fn](x / y)));
  return arithmetic(corners, isExact(a.range) && isExact(b.range));
}

function called(fn: string, given: readonly Numbers[]): Numbers {
  const [a = ANY, b = ANY] = given;
  const isWhole = given.every((x) => x.isWhole);
  switch (fn) {
    case "min":
    case "max": {
      const pick = fn === "min" ? Math.min : Math.max;
      return { range: [pick(a.range[0], b.range[0]), pick(a.range[1], b.range[1])], isWhole };
    }
    case "abs": {
      const ends = a.range.map(Math.abs);
      const least = a.range[0] <= 0 && a.range[1] >= 0 ? 0 : Math.min(...ends);
      return { range: [least, Math.max(...ends)], isWhole };
    }
    case "square":
      return arithmetic([0, ...a.range.map((x) => x * x)], isWhole);
    case "floor":
    case "ceil":
    case "round":
      return isWhole ? a : ANY;
    default:
      return ANY;
  }
}
