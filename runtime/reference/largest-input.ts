/**
 * @file The largest magnitude that inputs of the extreme set may have.
 *
 *     largestInput(matmul)      sqrt(largest f32 / 8k): the sum of k products of two stays within the type
 */

import { type Computation, elementCount, pointCount, targetOf } from "../../abstraction/computation.ts";
import { rangeOf } from "../../abstraction/dtype.ts";
import type { Expr } from "../../abstraction/expression.ts";

/**
 * The largest inputs of the extreme set for which a sum of products, with as many factors as the value has, stays
 * within its type.
 */
export function largestInput(computation: Computation): number {
  const { equation } = computation;
  const roof = rangeOf(targetOf(computation).dtype)[1];
  const reduced = pointCount(computation) / elementCount(targetOf(computation));
  return (roof / (8 * Math.max(1, reduced))) ** (1 / Math.max(1, degreeOf(equation.value)));
}

/** The number of factors in the longest product. */
function degreeOf(e: Expr): number {
  switch (e.kind) {
    case "access":
      return 1;
    case "binary": {
      const left = degreeOf(e.left);
      const right = degreeOf(e.right);
      return e.op === "*" ? left + right : Math.max(left, right);
    }
    case "call": {
      const degree = Math.max(...e.args.map(degreeOf));
      return e.fn === "square" ? 2 * degree : degree;
    }
    case "cast":
    case "negate":
      return degreeOf(e.value);
    case "select":
      return Math.max(degreeOf(e.whenTrue), degreeOf(e.whenFalse));
    default:
      return 0;
  }
}
