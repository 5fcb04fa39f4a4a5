/**
 * @file What whole vectors can compute: the operations and types for which x86 lanes have instructions.
 *
 *     s[m] += x[m,k]; r[m] = sqrt(s[m])      refused: sqrt has no instruction on lanes
 *     c[i] += x[i+r] * w[r]      of u32      refused: lanes hold no u32
 *
 * Lanes of warps are threads, which compute everything that C does; only types bound them.
 */

import type { Computation } from "../../abstraction/computation.ts";
import { bytesOf, type DType, isInteger } from "../../abstraction/dtype.ts";
import { partsOf } from "../../abstraction/epilogue.ts";
import {
  accessesIn,
  axesIn,
  childrenOf,
  comparesElements,
  type Expr,
  isFloatFunction,
  printExpr,
} from "../../abstraction/expression.ts";
import { type DTypes, typeOf } from "../../abstraction/typing.ts";
import { wordTypeOf } from "./lower.ts";
import { type LaneRefusal, refusal } from "./taps.ts";

/** Types that lanes of 32 and of 64 bits hold as they are, and types that 32-bit lanes hold widened. */
const WHOLE: readonly DType[] = ["s32", "f32", "f64"];
const WIDENED: readonly DType[] = ["u8", "s8", "u16", "s16", "f16", "bf16"];

/** The first tensor whose elements no lane holds, as a refusal. */
export function unheldType({ tensors }: Computation): LaneRefusal | undefined {
  const odd = Object.values(tensors).find((t) => !WHOLE.includes(t.dtype) && !WIDENED.includes(t.dtype));
  return odd && refusal("type", `lanes hold no ${odd.dtype}, of which ${odd.name} is`);
}

/** Why whole vectors cannot compute the values of a computation, its epilogue included; undefined if they can. */
export function vectorProblem(computation: Computation): LaneRefusal | undefined {
  const { tensors, epilogue } = computation;
  const { sum } = partsOf(computation);
  const dtypes: DTypes = Object.fromEntries(
    [...Object.values(tensors), ...Object.values(sum.tensors)].map((t) => [t.name, t.dtype]),
  );
  const isNarrow = Object.values(tensors).some((t) => bytesOf(t.dtype) < 4) && wordTypeOf(computation) === undefined;
  const values = [sum.equation, ...(epilogue ? [epilogue.equation] : [])].map((e) => ({
    value: e.value,
    dtype: dtypes[e.target.tensor] ?? "f32",
  }));
  const because = unheldType(computation);
  if (because) return because;
  for (const { value, dtype } of values) {
    const problem = problemIn(value, dtype, dtypes, isNarrow);
    if (problem !== undefined) return refusal("type", problem);
  }
  return undefined;
}

/** @param dtype of the value, where a literal leaves it open */
function problemIn(e: Expr, dtype: DType, dtypes: DTypes, isNarrow: boolean): string | undefined {
  // What no element or axis varies is computed once, in scalar C.
  if (accessesIn(e).length === 0 && axesIn(e).length === 0) return undefined;
  const own = typeOf(e, dtypes) ?? dtype;
  if (isNarrow ? own === "f64" || unheld(own) : bytesOf(own) !== bytesOf(dtype) || unheld(own))
    return `${printExpr(e)} is of ${own}, which lanes of ${dtype} do not hold`;
  const all = (parts: readonly Expr[], of: DType = own): string | undefined =>
    parts.map((part) => problemIn(part, of, dtypes, isNarrow)).find((because) => because !== undefined);
  switch (e.kind) {
    case "number":
    case "axis":
    case "access":
      return undefined;
    case "cast": {
      const from = typeOf(e.value, dtypes) ?? own;
      const isWidened = isNarrow && !(from === "s32" && (own === "bf16" || own === "f16"));
      if (from !== own && !isWidened && !(from === "s32" && own === "f32"))
        return `${printExpr(e)}: lanes do not convert ${from} to ${own}`;
      return all([e.value], from);
    }
    case "binary":
      if (e.op === "%" || e.op === "^" || (e.op === "/" && isInteger(own)))
        return `${printExpr(e)}: lanes have no integer division or remainder`;
      return all([e.left, e.right]);
    case "call":
      return isFloatFunction(e.fn) ? `${e.fn} has no instruction on lanes` : all(e.args);
    case "select":
      return conditionProblem(e.condition, own, dtypes) ?? all([e.whenTrue, e.whenFalse]);
    default:
      return all(childrenOf(e));
  }
}

const unheld = (dtype: DType): boolean => !WHOLE.includes(dtype) && !WIDENED.includes(dtype);

/** Elements are compared on the lanes of the value that they choose. */
function conditionProblem(condition: Expr, dtype: DType, dtypes: DTypes): string | undefined {
  if (condition.kind === "logic")
    return conditionProblem(condition.left, dtype, dtypes) ?? conditionProblem(condition.right, dtype, dtypes);
  if (condition.kind !== "compare" || !comparesElements(condition)) return undefined;
  const compared = typeOf(condition.left, dtypes) ?? typeOf(condition.right, dtypes) ?? dtype;
  if (compared !== dtype || bytesOf(compared) < 4)
    return `${printExpr(condition)} compares elements of ${compared}, which lanes of ${dtype} do not hold`;
  return (
    problemIn(condition.left, dtype, dtypes, false) ?? problemIn(condition.right, dtype, dtypes, false) ?? undefined
  );
}
