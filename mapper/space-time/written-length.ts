/**
 * @file Predicts the length of a lane nest as source code before anything is printed.
 *
 *     for unrolled t in 0..9                                           unrolled nine times
 *       for lanes lane in 0..16
 *         Z[0,lane] = Z[0,lane-1] + x[t+lane] * w[t]                   the terms of both sides, once
 *         y[t] = Z[0,lane] where (t + 2*lane)/3 == 4                   this condition is printed for each of 16 lanes
 *
 * A term is a name, a number or an operation.
 */

import { strideIn } from "../../abstraction/affine.ts";
import { present, sumOf } from "../../abstraction/collections.ts";
import { childrenOf, type Expr, minus } from "../../abstraction/expression.ts";
import type { LoopNest, Statement } from "../../abstraction/loop-nest.ts";

/** The loop over lanes around a statement. */
interface Lanes {
  readonly axis: string;
  readonly extent: number;
}

/**
 * The most terms. Longer programs exceed a megabyte (60 designs of three operators, 2026-11-23) and take seconds to
 * print, minutes to compile.
 */
const MOST_TERMS = 200_000;

/** Why a nest would be too long to print; undefined if it is short enough. */
export function tooLongToWrite({ body }: LoopNest): string | undefined {
  const terms = writtenTerms(body);
  return terms > MOST_TERMS ? `it would be written as ${terms} terms, more than ${MOST_TERMS}` : undefined;
}

/**
 * Terms of the program. Unrolled loops are multiplied out, and so are lanes if no mask or vector expresses a statement.
 */
function writtenTerms(body: readonly Statement[], lanes?: Lanes): number {
  return sumOf(body, (s) => termsOf(s, lanes));
}

function termsOf(s: Statement, lanes: Lanes | undefined): number {
  if (s.kind === "loop") {
    if (s.mode === "lanes") return writtenTerms(s.body, s);
    return writtenTerms(s.body, lanes) * (s.mode === "unrolled" ? s.extent : 1);
  }
  if (s.kind === "when") return writtenTerms([...s.body, ...s.otherwise], lanes) + 1;
  if (s.kind !== "scalar") return 1;
  const { target, value, where } = s.equation;
  return sumOf(present([target, value, where]), (e) => termsIn(e, lanes));
}

/** A comparison that is not linear in the lane, or an index that is not contiguous, is printed for each lane. */
function termsIn(e: Expr, lanes: Lanes | undefined): number {
  const own = 1 + sumOf(childrenOf(e), (part) => termsIn(part, lanes));
  if (lanes === undefined || (e.kind !== "compare" && e.kind !== "access")) return own;
  const parts = e.kind === "compare" ? [minus(e.left, e.right)] : e.index;
  const each = parts.some((part) => Math.abs(strideIn(part, lanes.axis) ?? lanes.extent) > 1);
  return each ? own * lanes.extent : own;
}

/** Statements on whole vectors as they are written out: about as many instructions. */
export function vectorsWritten(body: readonly Statement[]): number {
  return body.reduce((sum, s) => {
    if (s.kind === "when") return sum + vectorsWritten([...s.body, ...s.otherwise]);
    if (s.kind !== "loop") return sum + 1;
    return sum + vectorsWritten(s.body) * (s.mode === "unrolled" ? s.extent : 1);
  }, 0);
}
