/**
 * @file What may stand in an equation: indices and conditions that are affine in the axes.
 *
 *     c[i,j] += a[i*k]        index of a[i*k] is not affine: it multiplies two axes
 */

import { offendingPart } from "./affine.ts";
import { accessesOf, type Equation } from "./equation.ts";
import { UsageError } from "./error.ts";
import { type Expr, printAccess, printExpr, walk } from "./expression.ts";
import { spanOf } from "./parse.ts";

/** @throws UsageError for an index that is not affine once the parameters are put in */
export function checkIndices(subject: string, equation: Equation, parameters: ReadonlyMap<string, Expr>): void {
  for (const node of accessesOf(equation)) {
    for (const index of node.index) {
      if (index.kind === "border" && node === equation.target)
        throw new UsageError(
          `${subject}: ${printAccess(node)} is assigned, and only a read has a border`,
          spanOf(index) ?? {},
        );
      const inner = index.kind === "border" ? index.index : index;
      const offending = offendingPart(substituteParameters(inner, parameters));
      if (offending) {
        const place = spanOf(offending.part) ?? spanOf(index) ?? {};
        throw new UsageError(`${subject}: index of ${printAccess(node)} is not affine: ${offending.because}`, place);
      }
    }
  }
}

/** Products with a parameter become products with a constant while the nodes without one keep their places. */
function substituteParameters(e: Expr, parameters: ReadonlyMap<string, Expr>): Expr {
  if (e.kind === "axis") return parameters.get(e.name) ?? e;
  if (e.kind === "negate") {
    const value = substituteParameters(e.value, parameters);
    return value === e.value ? e : { ...e, value };
  }
  if (e.kind !== "binary") return e;
  const left = substituteParameters(e.left, parameters);
  const right = substituteParameters(e.right, parameters);
  return left === e.left && right === e.right ? e : { ...e, left, right };
}

/** @throws UsageError for a condition that does not compare affine indices */
export function checkConditions(subject: string, { value, where }: Equation): void {
  if (where !== undefined) checkCondition(subject, where);
  for (const node of walk(value)) if (node.kind === "select") checkCondition(subject, node.condition);
}

/** Conditions compare indices, so that a program can be cut to the points where they hold. */
function checkCondition(subject: string, condition: Expr): void {
  if (condition.kind === "logic") {
    checkCondition(subject, condition.left);
    checkCondition(subject, condition.right);
    return;
  }
  if (condition.kind !== "compare")
    throw new UsageError(`${subject}: "${printExpr(condition)}" is not a condition`, spanOf(condition) ?? {});
  for (const side of [condition.left, condition.right]) {
    const offending = offendingPart(side);
    if (offending)
      throw new UsageError(
        `${subject}: condition ${printExpr(condition)} is not affine: ${offending.because}`,
        spanOf(offending.part) ?? {},
      );
  }
}
