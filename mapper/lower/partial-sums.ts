/**
 * @file Partial sums: a row of sums that are combined at the end, so that a compiler can add whole vectors.
 *
 *     for i in 0..2: sums[i] = sums[i] + sums[i+2]         of 4 partial sums, pairs first
 *     for i in 0..1: sums[i] = sums[i] + sums[i+1]
 */

import { type Access, access, axis, type Equation, type Expr, joinedBy, plus } from "../../abstraction/expression.ts";
import { loop, type Statement, scalar } from "../../abstraction/loop-nest.ts";

/** Bytes of partial sums: four vectors of 64 bytes hide the latency of an addition. */
export const PARTIAL_BYTES = 256;

/** The assignment that joins a value to a sum. */
export function combine(op: Equation["op"], sum: Access, value: Expr): Equation {
  return { target: sum, op: "=", value: op === "=" ? value : joinedBy(op, sum, value) };
}

/** Loops that combine `steps` partial sums in the first of them. */
export function halvings(
  op: Equation["op"],
  { sums, counter, steps }: { readonly sums: string; readonly counter: string; readonly steps: number },
): Statement[] {
  const at = (e: Expr): Access => access(sums, [e]);
  const halves: Statement[] = [];
  for (let left = steps; left > 1; left = Math.ceil(left / 2)) {
    const half = Math.ceil(left / 2);
    const equation = combine(op, at(axis(counter)), at(plus(axis(counter), half)));
    halves.push(loop(counter, left - half, [scalar(equation)]));
  }
  return halves;
}
