/**
 * @file Conditions on boxes of indices: whether a `where` holds at every point of a box, at some, or at none.
 *
 *     j <= i     i 32..47, j 0..15  always      i 16..31, j 16..31  sometimes      i 0..15, j 16..31  never
 *
 * Comparisons of affine forms are decided exactly, one at a time. Conditions with a division or remainder are decided
 * at single points only.
 */

import { type AffineForm, affineForm, evaluateIndex, pointsIn } from "./affine.ts";
import { memoised, product } from "./collections.ts";
import type { Axis, Computation } from "./computation.ts";
import { internal } from "./error.ts";
import {
  type Access,
  accessesIn,
  allOf as allConditions,
  and,
  axesIn,
  axis,
  type CompareOp,
  compare,
  compareOp,
  type Expr,
  minus,
  number,
  plus,
  printAccess,
  rewriteReads,
  substitute,
  testsElements,
  times,
} from "./expression.ts";

export type Condition =
  | AtLeast
  | { readonly kind: "and" | "or"; readonly parts: readonly Condition[] }
  | { readonly kind: "other"; readonly expr: Expr; readonly loops: readonly string[] };

/** `constant + sum of coefficient * loop` is 0 or more. */
export interface AtLeast {
  readonly kind: "at-least";
  readonly form: AffineForm;
  /** The elements that stand in the form beside loops, by the names of their terms: `count[g]`. */
  readonly elements: ReadonlyMap<string, Access>;
}

/** A condition of the notation taken apart. */
export function conditionOf(e: Expr): Condition {
  if (e.kind === "logic") return { kind: e.op, parts: [conditionOf(e.left), conditionOf(e.right)] };
  const other: Condition = { kind: "other", expr: e, loops: axesIn(e) };
  if (e.kind !== "compare") return other;
  const elements = new Map(accessesIn(e).map((read) => [printAccess(read), read]));
  const named = (side: Expr): Expr => rewriteReads(side, (read) => axis(printAccess(read)));
  const difference = affineForm(minus(named(e.left), named(e.right)));
  return difference === undefined ? other : comparison(e.op, difference, elements);
}

/** `difference op 0`. */
function comparison(op: CompareOp, difference: AffineForm, elements: AtLeast["elements"]): Condition {
  const atLeast = (sign: 1 | -1, margin: number): AtLeast => ({
    kind: "at-least",
    elements,
    form: {
      constant: sign * difference.constant - margin,
      terms: new Map([...difference.terms].map(([loop, c]) => [loop, sign * c])),
    },
  });
  switch (op) {
    case ">=":
      return atLeast(1, 0);
    case ">":
      return atLeast(1, 1);
    case "<=":
      return atLeast(-1, 0);
    case "<":
      return atLeast(-1, 1);
    case "==":
      return { kind: "and", parts: [atLeast(1, 0), atLeast(-1, 0)] };
    case "!=":
      return { kind: "or", parts: [atLeast(1, 1), atLeast(-1, 1)] };
    default:
      return op satisfies never;
  }
}

/** The parts that must all hold; none of no condition. */
export function conjunctsOf(e: Expr | undefined): Expr[] {
  if (e === undefined) return [];
  return e.kind === "logic" && e.op === "and" ? [...conjunctsOf(e.left), ...conjunctsOf(e.right)] : [e];
}

export type Outlook = "always" | "sometimes" | "never";

/** Whether a condition holds on a box. @param rangeOf first and last value of each loop */
export function outlook(c: Condition, rangeOf: (loop: string) => readonly [low: number, high: number]): Outlook {
  switch (c.kind) {
    case "at-least": {
      if (c.elements.size > 0) return "sometimes";
      let least = c.form.constant;
      let most = c.form.constant;
      for (const [loop, coefficient] of c.form.terms) {
        const [low, high] = rangeOf(loop);
        least += coefficient * (coefficient > 0 ? low : high);
        most += coefficient * (coefficient > 0 ? high : low);
      }
      return least >= 0 ? "always" : most < 0 ? "never" : "sometimes";
    }
    case "and":
    case "or": {
      // One part that never holds decides an `and`; one that always holds decides an `or`.
      const [decides, otherwise] = c.kind === "and" ? (["never", "always"] as const) : (["always", "never"] as const);
      let all = true;
      for (const part of c.parts) {
        const found = outlook(part, rangeOf);
        if (found === decides) return decides;
        if (found !== otherwise) all = false;
      }
      return all ? otherwise : "sometimes";
    }
    case "other": {
      const point: Record<string, number> = {};
      for (const loop of c.loops) {
        const [low, high] = rangeOf(loop);
        if (low !== high) return "sometimes";
        point[loop] = low;
      }
      return evaluateIndex(c.expr, point) === 0 ? "never" : "always";
    }
    default:
      return c satisfies never;
  }
}

/** A condition that a program tests, or its known truth. */
export type Truth = Expr | boolean;

/** Whether several conditions all hold. */
export const allOf = (conditions: readonly Expr[]): Truth => conditions.length === 0 || conditions.reduce(and);

/** A value, or another where a condition fails. */
export function selected(condition: Truth, whenTrue: Expr, whenFalse: Expr): Expr {
  if (typeof condition === "boolean") return condition ? whenTrue : whenFalse;
  return { kind: "select", condition, whenTrue, whenFalse };
}

/** Values of a loop in a program: `span` of them from an index on. */
export interface Span {
  readonly low: Expr;
  readonly span: number;
}

/** A test that is true if the condition may hold somewhere on a box. It may err towards true only. */
export function somewhere(c: Condition, spanOf: (loop: string) => Span): Truth {
  return tested(c, spanOf, "somewhere");
}

/** A test that is true only if the condition holds everywhere on a box. It may err towards false only. */
export function everywhere(c: Condition, spanOf: (loop: string) => Span): Truth {
  return tested(c, spanOf, "everywhere");
}

function tested(c: Condition, spanOf: (loop: string) => Span, where: "somewhere" | "everywhere"): Truth {
  switch (c.kind) {
    case "at-least":
      return c.elements.size > 0 ? elementsTested(c, spanOf, where) : isAtLeastZero(extremeIn(c.form, spanOf, where));
    case "and":
    case "or":
      return c.parts.map((part) => tested(part, spanOf, where)).reduce((a, b) => joined(c.kind, a, b));
    case "other": {
      const spans = new Map(c.loops.map((loop) => [loop, spanOf(loop)]));
      if ([...spans.values()].some((s) => s.span > 1)) return where === "somewhere";
      return substitute(c.expr, new Map([...spans].map(([loop, { low }]) => [loop, low])), "index");
    }
    default:
      return c satisfies never;
  }
}

const extremeIn = (form: AffineForm, spanOf: (loop: string) => Span, where: "somewhere" | "everywhere"): Expr =>
  extreme(form, spanOf, where === "somewhere" ? "most" : "least");

/** The test of a comparison with elements, which must be the same elements on the whole box. */
function elementsTested(
  { form, elements }: AtLeast,
  spanOf: (loop: string) => Span,
  where: "somewhere" | "everywhere",
): Truth {
  const places = new Map([...elements.values()].flatMap(axesIn).map((loop) => [loop, spanOf(loop)]));
  if ([...places.values()].some(({ span }) => span > 1)) return where === "somewhere";
  const lows = new Map([...places].map(([loop, { low }]) => [loop, low]));
  const termOf = (name: string): Expr => {
    const element = elements.get(name);
    return element ? substitute(element, lows, "index") : spanOf(name).low;
  };
  // Sides are told apart by the names of their terms, whose values need not be affine.
  const symbolic = (name: string): Span => ({ low: axis(name), span: elements.has(name) ? 1 : spanOf(name).span });
  const { left, right } = sidesOf(extremeIn(form, symbolic, where));
  const values = new Map([...form.terms.keys()].map((name) => [name, termOf(name)]));
  return compare("<=", substitute(left, values, "index"), substitute(right, values, "index"));
}

/** The smallest or largest value of an affine form on a box. */
export function extreme(
  { constant, terms }: AffineForm,
  spanOf: (loop: string) => Span,
  which: "least" | "most",
): Expr {
  let fixed = constant;
  let moving: Expr = number(0);
  for (const [loop, coefficient] of terms) {
    const { low, span } = spanOf(loop);
    if (coefficient > 0 === (which === "most")) fixed += coefficient * (span - 1);
    moving = plus(moving, times(low, coefficient));
  }
  return plus(moving, fixed);
}

/** `e >= 0` with the subtracted terms on the other side: `16*j <= 6*i + 5`. Loop counters are never negative. */
function isAtLeastZero(e: Expr): Truth {
  const form = affineForm(e);
  if (form === undefined) return compare(">=", e, 0);
  const factors = [...form.terms.values()];
  if (form.constant >= 0 && factors.every((c) => c > 0)) return true;
  if (form.constant < 0 && factors.every((c) => c < 0)) return false;
  const { left, right } = sidesOf(e);
  return compare("<=", left, right);
}

/** The sides of `left <= right`, which says that a sum is 0 or more, without subtractions. */
function sidesOf(e: Expr): { readonly left: Expr; readonly right: Expr } {
  const form = affineForm(e) ?? internal("a comparison of a sum that is not affine");
  const side = (sign: 1 | -1): Expr =>
    [...form.terms]
      .filter(([, c]) => c * sign > 0)
      .reduce<Expr>((sum, [loop, c]) => plus(sum, times(c * sign, axis(loop))), number(0));
  const constant = (sign: 1 | -1): Expr => number(Math.max(0, sign * form.constant));
  return { left: plus(side(-1), constant(-1)), right: plus(side(1), constant(1)) };
}

export function joined(op: "and" | "or", a: Truth, b: Truth): Truth {
  const decides = op === "or";
  if (a === decides || b === decides) return decides;
  if (typeof a === "boolean") return b;
  if (typeof b === "boolean") return a;
  return { kind: "logic", op, left: a, right: b };
}

const OPPOSITE = { "<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "==" } as const satisfies Record<
  CompareOp,
  CompareOp
>;

/** The opposite of a condition. */
export function not(a: Truth): Truth {
  if (typeof a === "boolean") return !a;
  if (a.kind === "compare") return compare(OPPOSITE[a.op], a.left, a.right);
  if (a.kind === "logic") return joined(a.op === "and" ? "or" : "and", not(a.left), not(a.right));
  internal(`"${a.kind}" is no condition`);
}

/** Whether `difference op 0` holds, where the bounds of the difference decide it. */
export function settled(op: CompareOp, least: number, most: number): boolean | undefined {
  if ((op === "==" || op === "!=") && least < 0 && most > 0) return undefined;
  const atLeast = compareOp(op, least, 0);
  return atLeast === compareOp(op, most, 0) ? atLeast : undefined;
}

/** Boxes examined before `usefulPoints` gives up and counts all points: about half a second. */
const MOST_BOXES = 1_000_000;

/** The parts of a condition that loops alone decide. Elements are known at run time only. */
const knownParts = (where: Expr | undefined): Expr | undefined =>
  allConditions(conjunctsOf(where).filter((part) => !testsElements(part)));

/**
 * Points of the iteration domain at which the condition holds: the useful multiplies of a contraction. At most, where
 * elements decide.
 */
export const usefulPoints = memoised(({ axes, equation }: Computation): number => {
  const where = knownParts(equation.where);
  const tied = where === undefined ? [] : axesIn(where);
  const points = (which: readonly Axis[]): number => pointsIn(which);
  const free = points(axes.filter((a) => !tied.includes(a.name)));
  if (where === undefined) return free;
  const box = axes.flatMap((a): Box => (tied.includes(a.name) ? [[a.name, [0, a.extent - 1]]] : []));
  return free * pointsHeld(conditionOf(where), box);
});

type Box = readonly (readonly [loop: string, range: readonly [low: number, high: number]])[];

/**
 * Points of a box at which a condition holds. Halves boxes along their longest side until it holds on all of a box or on none of it.
 * @param otherwise what is taken of boxes that remain after so many have been examined
 */
export function pointsHeld(condition: Condition, box: Box, otherwise: Outlook = "always"): number {
  let held = 0;
  let boxes = 0;
  const visit = (here: Box): void => {
    const ranges = new Map(here);
    const found = boxes++ > MOST_BOXES ? otherwise : outlook(condition, (loop) => ranges.get(loop) ?? [0, 0]);
    if (found === "never") return;
    if (found === "always") {
      held += product(here.map(([, [low, high]]) => high - low + 1));
      return;
    }
    const longest = here.reduce((a, b) => (b[1][1] - b[1][0] > a[1][1] - a[1][0] ? b : a));
    const [low, high] = longest[1];
    const middle = Math.floor((low + high) / 2);
    const half = (from: number, to: number): Box =>
      here.map((side) => (side === longest ? [side[0], [from, to]] : side));
    visit(half(low, middle));
    visit(half(middle + 1, high));
  };
  visit(box);
  return held;
}
