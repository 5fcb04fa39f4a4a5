/**
 * @file Expressions printed without redundant parentheses and casts.
 *
 *     a * b + c * -2.0f
 */

import type { Extents } from "../abstraction/affine.ts";
import { type DType, isInteger } from "../abstraction/dtype.ts";
import type { Expr } from "../abstraction/expression.ts";
import { type Code, code } from "../abstraction/source-text.ts";
import { typeOf } from "../abstraction/typing.ts";
import { CExpressions } from "./c-expressions.ts";

/** Operator precedence in C. A weaker operator inside a stronger one is parenthesised. */
export const STRENGTH = {
  "^": 0,
  "+": 1,
  "-": 1,
  sum: 1,
  "*": 2,
  "/": 2,
  "%": 2,
  factor: 2,
  negate: 3,
  atom: 4,
} as const;

function strengthOf(e: Expr): number {
  if (e.kind === "binary") return STRENGTH[e.op];
  return e.kind === "negate" || (e.kind === "number" && e.value < 0) ? STRENGTH.negate : STRENGTH.atom;
}

export class PlainExpressions extends CExpressions {
  /** Values of floats and 32-bit integers. */
  override value(e: Expr, dtype: DType, extents: Extents): Code {
    if (e.kind === "axis") return code`(int32_t)${this.axis(e.name)}`;
    const own = typeOf(e, this.dtypes) ?? dtype;
    const isPlain = own === "f32" || own === "f64" || (own === "s32" && !this.words.overflowIsUndefined);
    if (!isPlain) return super.value(e, dtype, extents);
    const part = (inner: Expr, floor: number): Code => {
      const text = this.value(inner, own, extents);
      return strengthOf(inner) < floor ? code`(${text})` : text;
    };
    switch (e.kind) {
      case "binary": {
        if (e.op === "%" || (isInteger(own) && e.op === "/")) return super.value(e, dtype, extents);
        const strength = e.op === "+" || e.op === "-" ? STRENGTH.sum : STRENGTH.factor;
        return code`${part(e.left, strength)} ${e.op} ${part(e.right, strength + 1)}`;
      }
      case "negate":
        return code`-${part(e.value, STRENGTH.atom)}`;
      default:
        return super.value(e, dtype, extents);
    }
  }
}
