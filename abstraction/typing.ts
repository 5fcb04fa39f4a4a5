/**
 * @file The element type of every expression: operands of an operation must agree, casts are written out.
 *
 *     s32(a[m,k]) * s32(b[k,n])        s32
 *     a[m,k] * b[k,n]                  refused when a is u8 and b is s8: cast both to s32
 */

import type { DType } from "./dtype.ts";
import { UsageError } from "./error.ts";
import { type Expr, printExpr, rewrite } from "./expression.ts";
import { spanOf } from "./parse.ts";

export type DTypes = Readonly<Record<string, DType>>;

/** Type of a value expression. A literal takes the type of its neighbour: alone it is `undefined`. @throws UsageError when operands disagree. */
export function typeOf(e: Expr, tensors: DTypes): DType | undefined {
  switch (e.kind) {
    case "number":
      return undefined;
    case "axis":
      return "s32";
    case "access":
      return tensors[e.tensor];
    case "cast":
      typeOf(e.value, tensors);
      return e.dtype;
    case "negate":
      return typeOf(e.value, tensors);
    case "binary":
      return common(e, [e.left, e.right], tensors);
    case "call":
      return common(e, e.args, tensors);
    case "select":
      return common(e, [e.whenTrue, e.whenFalse], tensors);
    case "compare":
    case "logic":
      throw problem(e, "a condition is not a value; use it in select(condition, a, b) or after where");
    default:
      return e satisfies never;
  }
}

/** Drops casts to the type a value already has: `f32(x)` of an f32 `x` is `x`. */
export function dropIdleCasts(e: Expr, tensors: DTypes): Expr {
  return rewrite(e, (node) => (node.kind === "cast" && typeOf(node.value, tensors) === node.dtype ? node.value : node));
}

function common(e: Expr, parts: readonly Expr[], tensors: DTypes): DType | undefined {
  let found: DType | undefined;
  for (const part of parts) {
    const dtype = typeOf(part, tensors);
    if (found !== undefined && dtype !== undefined && dtype !== found)
      throw problem(e, `operands have types ${found} and ${dtype}; cast one, for example f32(...)`);
    found ??= dtype;
  }
  return found;
}

function problem(e: Expr, because: string): UsageError {
  return new UsageError(`type of ${printExpr(e)}: ${because}`, spanOf(e) ?? {});
}
