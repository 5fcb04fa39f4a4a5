/**
 * @file Builds sums and products of addresses, and assignments, in their shortest form.
 *
 *     assign(access("y", [plus(times(16, axis("block")), axis("lane"))]), number(0))          y[16*block + lane] = 0
 */

import { type Access, binary, type Expr, number } from "../../abstraction/expression.ts";
import type { Statement } from "../../abstraction/loop-nest.ts";

export const plus = (left: Expr, right: Expr): Expr => binary("+", left, right);
export const minus = (left: Expr, right: Expr): Expr => binary("-", left, right);
export const times = (factor: number, e: Expr): Expr => binary("*", number(factor), e);

export function assign(target: Access, value: Expr): Statement {
  return { kind: "scalar", equation: { target, op: "=", value } };
}
