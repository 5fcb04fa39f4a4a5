/**
 * @file Builds assignments of single elements.
 *
 *     assign(access("y", [plus(times(16, axis("block")), axis("lane"))]), number(0))          y[16*block + lane] = 0
 */

import { guarded } from "../../abstraction/epilogue.ts";
import type { Equation } from "../../abstraction/equation.ts";
import type { Access, Expr } from "../../abstraction/expression.ts";
import type { Statement } from "../../abstraction/loop-nest.ts";

export type Scalar = Extract<Statement, { kind: "scalar" }>;

/** @param where conditions that must all hold */
export const assignment = (target: Access, value: Expr, where: readonly Expr[] = []): Equation =>
  guarded({ target, op: "=", value }, where);

/** @param where conditions that must all hold */
export function assign(target: Access, value: Expr, where: readonly Expr[] = [], op: Equation["op"] = "="): Scalar {
  return { kind: "scalar", equation: guarded({ target, op, value }, where) };
}
