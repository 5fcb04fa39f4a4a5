/**
 * @file The values that an integer expression can have, from the types of what it reads.
 *
 *     s32(w[n,k]) - 128, w of u8                          -128 to 127
 *     select(k%2 == 0, w[n,k/2] % 16, w[n,k/2] / 16)      0 to 15
 */

import { type DType, isInteger, rangeOf } from "./dtype.ts";
import type { BinaryOp, Expr } from "./expression.ts";
import { type DTypes, typeOf } from "./typing.ts";

/** The least and the greatest value. */
export type Range = readonly [number, number];

/** Interval of an integer expression; undefined for one of another type. */
export function valueRange(e: Expr, types: DTypes): Range | undefined {
  const typeRange = (dtype: DType | undefined): Range | undefined =>
    dtype !== undefined && isInteger(dtype) ? rangeOf(dtype) : undefined;
  switch (e.kind) {
    case "number":
      return [e.value, e.value];
    case "access":
      return typeRange(types[e.tensor]);
    case "cast": {
      const inner = valueRange(e.value, types);
      const own = typeRange(e.dtype);
      if (!own) return undefined;
      return inner && inner[0] >= own[0] && inner[1] <= own[1] ? inner : own;
    }
    case "binary": {
      const a = valueRange(e.left, types);
      const b = valueRange(e.right, types);
      if (!a || !b) return undefined;
      const own = typeRange(typeOf(e, types));
      const exact = rangeOfBinary(e.op, a, b);
      // A value that leaves the type wraps and may become anything.
      return exact && (!own || (exact[0] >= own[0] && exact[1] <= own[1])) ? exact : own;
    }
    case "select": {
      const a = valueRange(e.whenTrue, types);
      const b = valueRange(e.whenFalse, types);
      return a && b && [Math.min(a[0], b[0]), Math.max(a[1], b[1])];
    }
    default:
      return typeRange(typeOf(e, types));
  }
}

function rangeOfBinary(op: BinaryOp, a: Range, b: Range): Range | undefined {
  if (op === "+") return [a[0] + b[0], a[1] + b[1]];
  if (op === "-") return [a[0] - b[1], a[1] - b[0]];
  const [divisor] = b;
  if ((op === "/" || op === "%") && a[0] >= 0 && divisor > 0 && divisor === b[1])
    return op === "/" ? [Math.floor(a[0] / divisor), Math.floor(a[1] / divisor)] : [0, Math.min(a[1], divisor - 1)];
  if (op !== "*") return undefined;
  const corners = [a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1]];
  return [Math.min(...corners), Math.max(...corners)];
}
