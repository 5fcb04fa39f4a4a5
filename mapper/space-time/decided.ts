/**
 * @file Simplifies the conditions of a value that are always true or always false when some axes are restricted to a part of their extents.
 *
 *     select(i == 0, p[j], v[i-1,j])     with i in 1..7     ->     v[i-1,j]
 */

import { affineForm } from "../../abstraction/affine.ts";
import { settled } from "../../abstraction/condition.ts";
import { comparesElements, type Expr, minus, rewrite, walk } from "../../abstraction/expression.ts";

/** Least and largest value of each axis. */
export type Ranges = ReadonlyMap<string, readonly [least: number, most: number]>;

/** Replaces each select whose condition is known by the chosen value. */
export function decided(value: Expr, ranges: Ranges): Expr {
  return rewrite(
    value,
    (e) => {
      if (e.kind !== "select") return e;
      const known = holds(e.condition, ranges);
      return known === undefined ? e : known ? e.whenTrue : e.whenFalse;
    },
    "value",
  );
}

/** The number of comparisons of positions that remain. */
export const undecided = (value: Expr): number =>
  [...walk(value)].filter((e) => e.kind === "compare" && !comparesElements(e)).length;

/** A condition without the parts that are known to hold; undefined if nothing remains. */
export function conditionLeft(e: Expr | undefined, ranges: Ranges): Expr | undefined {
  if (e === undefined || holds(e, ranges)) return undefined;
  if (e.kind !== "logic" || e.op !== "and") return e;
  const left = conditionLeft(e.left, ranges);
  const right = conditionLeft(e.right, ranges);
  return left && right ? { ...e, left, right } : (left ?? right);
}

function holds(e: Expr, ranges: Ranges): boolean | undefined {
  if (e.kind === "logic") {
    const left = holds(e.left, ranges);
    const right = holds(e.right, ranges);
    const stops = e.op === "or";
    if (left === stops || right === stops) return stops;
    return left === undefined || right === undefined ? undefined : !stops;
  }
  if (e.kind !== "compare" || comparesElements(e)) return undefined;
  const form = affineForm(minus(e.left, e.right));
  if (!form) return undefined;
  let least = form.constant;
  let most = form.constant;
  for (const [name, factor] of form.terms) {
    const range = ranges.get(name);
    if (!range) return undefined;
    least += Math.min(factor * range[0], factor * range[1]);
    most += Math.max(factor * range[0], factor * range[1]);
  }
  return settled(e.op, least, most);
}
