/**
 * @file Vectorised access on a GPU: decides whether neighbouring elements are contiguous, aligned, and inside a tensor together. Decided from the
 * indices, for every point of the axes.
 *
 *     x[64*m + 8*j + e], e in 0..8        side by side, at multiples of 8: one access of 16 bytes
 */

import type { Extents } from "../../abstraction/affine.ts";
import { internal } from "../../abstraction/error.ts";
import {
  type Access,
  axesIn,
  type Expr,
  number,
  printAccess,
  printExpr,
  substitute,
} from "../../abstraction/expression.ts";
import type { CExpressions } from "../c-expressions.ts";
import { isRun, shortIndex } from "../short-index.ts";

/** An expression at one step of an axis. */
export function stepped(e: Expr, axis: string, step: number): Expr {
  return substitute(e, new Map([[axis, number(step)]]));
}

export function steppedAccess(a: Access, axis: string, step: number): Access {
  return { ...a, index: a.index.map((e) => stepped(e, axis, step)) };
}

/**
 * Whether the first `count` elements along an axis are contiguous and aligned to `count`.
 * @param axis counts the elements from 0
 */
export function sideBySide(c: CExpressions, access: Access, axis: string, count: number, extents: Extents): boolean {
  return count === 1 || isRun(c.placeOf(access, extents).at, axis, count, extents);
}

/**
 * Whether a condition holds for all of `count` elements along an axis or for none: it compares an index that is aligned
 * to `count` with a bound that is a multiple of `count`.
 */
export function holdsTogether(condition: Expr, axis: string, count: number, extents: Extents): boolean {
  if (count === 1 || !axesIn(condition).includes(axis)) return true;
  if (condition.kind === "logic")
    return holdsTogether(condition.left, axis, count, extents) && holdsTogether(condition.right, axis, count, extents);
  if (condition.kind !== "compare" || (condition.op !== "<" && condition.op !== ">=")) return false;
  const { left, right } = condition;
  if (right.kind !== "number") return false;
  // (64*tile + 4*piece + i)/32 is the same for four neighbours.
  if (!axesIn(shortIndex(left, extents)).includes(axis)) return true;
  // x/9 < 64, a test of the first of fused digits, is x < 576.
  if (left.kind === "binary" && left.op === "/" && left.right.kind === "number")
    return holdsTogether(
      { ...condition, left: left.left, right: number(right.value * left.right.value) },
      axis,
      count,
      extents,
    );
  return right.value % count === 0 && isRun(left, axis, count, extents);
}

/** Whether the tensor's bounds include all of `count` elements or none. */
export function insideTogether(
  c: CExpressions,
  access: Access,
  axis: string,
  count: number,
  extents: Extents,
): boolean {
  return c.placeOf(access, extents).guards.every((g) => holdsTogether(g, axis, count, extents));
}

/** @throws Error if a nest accesses elements together without proof that this is legal */
export function requireTogether(c: CExpressions, access: Access, axis: string, count: number, extents: Extents): void {
  if (sideBySide(c, access, axis, count, extents) && insideTogether(c, access, axis, count, extents)) return;
  const place = printExpr(shortIndex(c.placeOf(access, extents).at, extents), "formula");
  internal(
    `${count} elements of ${printAccess(access)} are to move at once, which lie at ${place} for ${axis} in 0..${count}`,
  );
}
