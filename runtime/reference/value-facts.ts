/** @file Static facts about an expression: which tensors it multiplies or divides by, and whether it is monotonic. */

import type { Computation } from "../../abstraction/computation.ts";
import { isInteger } from "../../abstraction/dtype.ts";
import { accessesIn, type Expr } from "../../abstraction/expression.ts";
import { type DTypes, typeOf } from "../../abstraction/typing.ts";
import { valueNodes } from "../size.ts";

/** Tensors that a value multiplies or divides by. */
export function tensorsBeside(op: "*" | "/", { equation }: Computation): Set<string> {
  return new Set(
    [...valueNodes(equation.value)]
      .filter((e) => e.kind === "binary" && e.op === op)
      .flatMap((e) => (e.kind === "binary" ? (op === "/" ? [e.right] : [e.left, e.right]) : []))
      .flatMap((side) => accessesIn(side).map((a) => a.tensor)),
  );
}

/**
 * Whether a value never falls, or never rises, while the element of a tensor rises that it reads once, whatever its other
 * parts are. Then its values for both ends of an interval enclose all between them.
 */
export function neverTurns(e: Expr, tensor: string, types: DTypes): boolean {
  const reads = (part: Expr): boolean => accessesIn(part).some((a) => a.tensor === tensor);
  if (!reads(e)) return true;
  const isOfFloats = (): boolean => !isInteger(typeOf(e, types) ?? "s32");
  switch (e.kind) {
    case "access":
      return true;
    case "negate":
      return isOfFloats() && neverTurns(e.value, tensor, types);
    case "cast":
      // A cast that wraps falls where it wraps.
      return (e.saturate || !isInteger(e.dtype)) && neverTurns(e.value, tensor, types);
    case "binary": {
      const { op, left, right } = e;
      if (reads(left) && reads(right)) return false;
      const isKept = op === "+" || op === "-" || op === "*" || (op === "/" && reads(left));
      return isKept && isOfFloats() && neverTurns(reads(left) ? left : right, tensor, types);
    }
    case "call": {
      const isKept = ["min", "max", "round", "floor", "ceil"].includes(e.fn);
      const [moved, ...more] = e.args.filter(reads);
      return isKept && moved !== undefined && more.length === 0 && neverTurns(moved, tensor, types);
    }
    default:
      return false;
  }
}
