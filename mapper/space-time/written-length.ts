/**
 * @file The length of a lane nest as a program, counted before anything is printed.
 *
 *     for unrolled t in 0..9                                           written out nine times
 *       for lanes lane in 0..16
 *         Z[0,lane] = Z[0,lane-1] + x[t+lane] * w[t]                   terms of both sides, once
 *         y[t] = Z[0,lane] where (t + 2*lane)/3 == 4                   that condition lane by lane, 16 times
 *
 * A term is a name, a number or an operation.
 */

import { affineForm } from "../../abstraction/affine.ts";
import { axesIn, binary, childrenOf, type Expr } from "../../abstraction/expression.ts";
import type { LoopNest, Statement } from "../../abstraction/loop-nest.ts";

/** Lanes of the loop around a statement. */
interface Lanes {
  readonly axis: string;
  readonly extent: number;
}

/** Programs of more terms are a megabyte and longer (of 60 designs of three operators, 2026-11-23): seconds to print, minutes to compile. */
const MOST_TERMS = 200_000;

/** Why a nest of lanes would be longer than any program worth printing; undefined for what is short enough. */
export function tooLongToWrite({ body }: LoopNest): string | undefined {
  const terms = writtenTerms(body);
  return terms > MOST_TERMS ? `it would be written as ${terms} terms, more than ${MOST_TERMS}` : undefined;
}

/** Terms of the program that a nest becomes: what is unrolled is written out, what no mask or vector says at once is said lane by lane. */
function writtenTerms(body: readonly Statement[], lanes?: Lanes): number {
  return body.reduce((sum, s) => sum + termsOf(s, lanes), 0);
}

function termsOf(s: Statement, lanes: Lanes | undefined): number {
  if (s.kind === "loop") {
    if (s.mode === "lanes") return writtenTerms(s.body, s);
    return writtenTerms(s.body, lanes) * (s.mode === "unrolled" ? s.extent : 1);
  }
  if (s.kind === "when") return writtenTerms([...s.body, ...s.otherwise], lanes) + 1;
  if (s.kind !== "scalar") return 1;
  const { target, value, where } = s.equation;
  return [target, value, ...(where ? [where] : [])].reduce((sum, e) => sum + termsIn(e, lanes), 0);
}

/** A comparison whose lanes do not count one by one, and an index of elements that lie in no row, is written for each of them. */
function termsIn(e: Expr, lanes: Lanes | undefined): number {
  const own = 1 + childrenOf(e).reduce((sum, part) => sum + termsIn(part, lanes), 0);
  if (lanes === undefined || (e.kind !== "compare" && e.kind !== "access")) return own;
  const parts = e.kind === "compare" ? [binary("-", e.left, e.right)] : e.index;
  const each = parts.some((part) => !isInRow(part, lanes.axis));
  return each ? own * lanes.extent : own;
}

/** Whether an index grows by one from lane to lane, or shrinks by one, or stays. */
function isInRow(e: Expr, lane: string): boolean {
  if (!axesIn(e).includes(lane)) return true;
  const form = affineForm(e);
  if (form) return Math.abs(form.terms.get(lane) ?? 0) <= 1;
  // What is divided elsewhere in a sum moves all lanes alike.
  return e.kind === "binary" && (e.op === "+" || e.op === "-") && isInRow(e.left, lane) && isInRow(e.right, lane);
}
