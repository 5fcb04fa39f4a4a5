/**
 * @file The element type of every expression: operands of an operation must agree, casts are written out.
 *
 *     s32(a[m,k]) * s32(b[k,n])        s32
 *     a[m,k] * b[k,n]                  refused when a is u8 and b is s8: cast both to s32
 */

import { type DType, isInteger, rangeOf } from "./dtype.ts";
import { UsageError } from "./error.ts";
import { childrenOf, type Expr, isFloatFunction, printExpr, rewrite, walk } from "./expression.ts";
import { spanOf } from "./parse.ts";

export type DTypes = Readonly<Record<string, DType>>;

export const dtypesOf = (tensors: readonly { readonly name: string; readonly dtype: DType }[]): DTypes =>
  Object.fromEntries(tensors.map((t) => [t.name, t.dtype]));

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
      if (e.op === "^") throw problem(e, '"^" may stand in a storage formula only');
      return common(e, [e.left, e.right], tensors);
    case "call": {
      const dtype = common(e, e.args, tensors);
      if (isFloatFunction(e.fn) && dtype !== undefined && isInteger(dtype))
        throw problem(e, `${e.fn} takes floats, not ${dtype}; cast, for example ${e.fn}(f32(...))`);
      return dtype;
    }
    case "select":
      return common(e, [e.whenTrue, e.whenFalse], tensors);
    case "border":
      throw problem(e, `"${e.how}" stands around an index, as in u[${e.how}(i-1)]; a value is limited by min and max`);
    case "compare":
    case "logic":
      throw problem(e, "a condition is not a value; use it in select(condition, a, b) or after where");
    default:
      return e satisfies never;
  }
}

/** Drops casts to the type a value already has: `f32(x)` of an f32 `x` is `x`. */
export function dropIdleCasts(e: Expr, tensors: DTypes): Expr {
  const drop = (node: Expr): Expr =>
    node.kind === "cast" && typeOf(node.value, tensors) === node.dtype ? node.value : node;
  return rewrite(e, drop, "value");
}

function common(e: Expr, parts: readonly Expr[], tensors: DTypes): DType | undefined {
  // Visit each part once, because a sum of many terms is as deeply nested as it is long.
  const types = parts.map((part) => typeOf(part, tensors));
  let found: DType | undefined;
  for (const dtype of types) {
    if (found !== undefined && dtype !== undefined && dtype !== found)
      throw problem(e, `operands have types ${found} and ${dtype}; cast one, for example f32(...)`);
    found ??= dtype;
  }
  if (found !== undefined)
    for (const [i, part] of parts.entries()) if (types[i] === undefined) checkLiterals(part, found);
  return found;
}

/**
 * Checks that every literal fits the type it takes from its neighbour; literals in a condition have a type of their own. @throws UsageError for an
 * integer type that cannot hold one
 */
export function checkLiterals(e: Expr, dtype: DType): void {
  if (!isInteger(dtype)) return;
  const [min, max] = rangeOf(dtype);
  for (const node of walk(e, (n) => (n.kind === "select" ? [n.whenTrue, n.whenFalse] : childrenOf(n))))
    if (node.kind === "number" && !(Number.isInteger(node.value) && node.value >= min && node.value <= max))
      throw problem(node, `${dtype} does not hold it; it holds the integers from ${min} to ${max}`);
}

function problem(e: Expr, because: string): UsageError {
  return new UsageError(`type of ${printExpr(e)}: ${because}`, spanOf(e));
}
