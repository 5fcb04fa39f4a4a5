/**
 * @file Conditions on lanes as AVX-512 masks, with one bit a lane.
 *
 *     lane < 12*b - 104      lanes_below(12 * b - 104)            lane == t      only_lane(t)            lane%2 == 0      0x5555
 */

import { affineForm, evaluateIndex, strideIn } from "../../abstraction/affine.ts";
import {
  axesIn,
  axis,
  binary,
  type CompareOp,
  type Expr,
  MIRRORED,
  minus,
  number,
  plus,
  substitute,
  times,
} from "../../abstraction/expression.ts";
import { type Code, code, join } from "../../abstraction/source-text.ts";
import type { CExpressions } from "../c-expressions.ts";
import type { LaneContext } from "../lane-printer.ts";

/** The mask of a condition that depends on the lane and on loop counters. */
export function maskOf(c: CExpressions, e: Expr, context: LaneContext, lanes: number): Code {
  const { axis, extents } = context;
  if (e.kind === "logic")
    return code`(${maskOf(c, e.left, context, lanes)} ${e.op === "and" ? "&" : "|"} ${maskOf(c, e.right, context, lanes)})`;
  if (e.kind === "compare") {
    if (!axesIn(e).includes(axis)) return code`(${c.condition(e, extents)} ? ~0u : 0u)`;
    const difference = minus(e.left, e.right);
    const factor = strideIn(difference, axis);
    const rest = substitute(difference, new Map([[axis, number(0)]]), "index");
    // The form is lane + rest op 0, or -lane + rest op 0.
    if (factor === 1) return lanesWhere(c, e.op, minus(0, rest), context);
    if (factor === -1) return lanesWhere(c, MIRRORED[e.op], rest, context);
  }
  const each = Array.from({ length: lanes }, (_, l) => {
    const one = substitute(e, new Map([[axis, number(l)]]), "index");
    return code`(unsigned)(${c.condition(one, extents)}) << ${l}`;
  });
  return code`(${join(each, code` | `)})`;
}

/** `lane op bound` */
function lanesWhere(c: CExpressions, op: CompareOp, bound: Expr, { extents }: LaneContext): Code {
  const only = (): Code => code`@only_lane(${c.index(tidy(bound), extents)})`;
  if (op === "==") return only();
  if (op === "!=") return code`~${only()}`;
  return maskWhere(op, bound, (e) => code`@lanes_below(${c.index(tidy(e), extents)})`);
}

/** The mask of elements whose number compares with a bound. @param below the mask of those below a number */
export function maskWhere(op: Exclude<CompareOp, "==" | "!=">, bound: Expr, below: (e: Expr) => Code): Code {
  const mask = below(op === "<" || op === ">=" ? bound : plus(bound, 1));
  return op === "<" || op === "<=" ? mask : code`~${mask}`;
}

/** The mask of a condition on the lane alone: bit l is set if it holds on lane l. */
export function tableOf(e: Expr, axis: string, lanes: number): number {
  let bits = 0;
  for (let l = 0; l < lanes; l++) if (evaluateIndex(e, { [axis]: l }) !== 0) bits |= 1 << l;
  return bits;
}

/** `0 - (12*b - 104)` as `104 - 12*b`. */
function tidy(e: Expr): Expr {
  const form = affineForm(e);
  if (!form) return e;
  const terms = [...form.terms].sort(([, a], [, b]) => Number(a < 0) - Number(b < 0));
  const term = ([name, factor]: readonly [string, number]): Expr => times(Math.abs(factor), axis(name));
  const sum = (start: Expr, list: typeof terms): Expr =>
    list.reduce((whole, t) => binary(t[1] < 0 ? "-" : "+", whole, term(t)), start);
  // Put a constant first if every other term is subtracted.
  if (terms.every(([, factor]) => factor < 0)) return sum(number(form.constant), terms);
  return plus(sum(number(0), terms), form.constant);
}
