/**
 * @file A computation matched onto an instruction: the tensor that each operand stands for and the loops that feed each axis, or why there is no
 * mapping.
 *
 *     conv2d onto amx.tdpbusd     m <- p,q   n <- k   k <- c      a = in, b = w, c = out      waste 2.0 %
 *     refused: access-matrix      w depends on k, but the instruction does not index b by m
 */

import type { Computation } from "./computation.ts";
import { accessesIn, type Expr, printExpr } from "./expression.ts";
import type { Intrinsic } from "./intrinsic.ts";

/** The software expression that each operand of the instruction stands for: a tensor access, or a value computed from accesses. */
export type Binding = Readonly<Record<string, Expr>>;

/** The loops that feed each axis of the instruction, outermost first. They fuse row-major into one index. */
export type Matching = Readonly<Record<string, readonly string[]>>;

/** A match that was found valid: which loops feed which axis, and what padding it costs. */
export interface Mapping {
  /** Hash of the computation, the instruction, the binding and the matching. */
  readonly id: string;
  readonly computation: Computation;
  readonly intrinsic: Intrinsic;
  readonly binding: Binding;
  readonly matching: Matching;
  /** Share of the instruction's multiply slots that padding fills, 0 to 1. */
  readonly waste: number;
}

/**
 * The rules that a match can break, the easiest to mend first.
 *
 * - `extent`: under `strict`, a fused extent is smaller than the instruction's
 * - `unfed-axis`: no loop feeds an axis although some could
 * - `idle-loop`: the loop has one step or changes no value, so feeding it to the axis would do nothing
 * - `copies`: every read would be right, but an operand would hold the same element once for every step of a loop
 * - `match-point`: valid as a gather, but not a union of AMOS match points
 * - `schedule`: it maps, but no schedule of it can be lowered
 * - `condition`: part of the `where` condition ties a summed loop to other loops, and no single operand depends on all of them
 * - `padding`: a reduce axis needs padding, but no operand value leaves the result unchanged
 * - `access-matrix`: a tensor depends on a loop by which the operand is not indexed
 * - `axis-kind`: a summed loop feeds a kept axis, or the reverse
 * - `matched-twice`: one loop feeds two axes
 * - `operand-types`: element types differ after casts
 * - `combine`: sums, saturating sums and maxima do not mix
 * - `expression`: the arithmetic differs
 * - `recurrence`: the target reads itself
 */
export const RULES = [
  "extent",
  "unfed-axis",
  "idle-loop",
  "copies",
  "match-point",
  "schedule",
  "condition",
  "padding",
  "access-matrix",
  "axis-kind",
  "matched-twice",
  "operand-types",
  "combine",
  "expression",
  "recurrence",
] as const;
export type Rule = (typeof RULES)[number];

/** An output element that the mapped program computes wrongly, and a wrong read that causes it. Both programs were run to find it. */
export interface Witness {
  /** Index of the output element. */
  readonly index: readonly number[];
  /** The iteration point with the wrong read. */
  readonly point: Readonly<Record<string, number>>;
  readonly operand: string;
  /** What the equation reads there. */
  readonly expected: string;
  /** What the instruction would read instead. */
  readonly actual: string;
}

/** A refused match: the rule, the reason, and a change that would help. */
export interface Refusal {
  readonly rule: Rule;
  /** One sentence. */
  readonly because: string;
  /** A change that would make it map. */
  readonly hint?: string;
  /** The matching that was tried; empty when the arithmetic already differed. */
  readonly matching: Matching;
  /** The operand's row and the loop's column in which the access matrices disagree. */
  readonly place?: { readonly row: string; readonly column: string };
  readonly witness?: Witness;
}

/** The result of validating a match. */
export type Verdict =
  | { readonly ok: true; readonly mapping: Mapping }
  | { readonly ok: false; readonly refusal: Refusal };

/**
 * The matching as text: `m <- n,p,q   n <- k   k <- c,r,s`; a dash stands for an axis that nothing feeds.
 * @param separator stands between axes; three spaces when left out
 */
export function printMatching(matching: Matching, separator = "   "): string {
  return Object.entries(matching)
    .map(([axis, loops]) => `${axis} <- ${loops.length === 0 ? "-" : loops.join(",")}`)
    .join(separator);
}

/** The name of a bound tensor, or the expression that an operand stands for. */
export function boundName(bound: Expr): string {
  return bound.kind === "access" ? bound.tensor : printExpr(bound);
}

/** A short label for matrices and drawings: the tensors in the expression. */
export function boundLabel(bound: Expr): string {
  return bound.kind === "access"
    ? bound.tensor
    : [...new Set(accessesIn(bound).map((a) => a.tensor))].join("*") || printExpr(bound);
}
