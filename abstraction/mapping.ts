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

/** For each operand of the instruction the software expression it stands for: a tensor access, or something computed from some. */
export type Binding = Readonly<Record<string, Expr>>;

/** For each axis of the instruction the loops that feed it, outermost first; they fuse row-major into one index. */
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
 * The rules a match can break, the most hopeful to mend first.
 *
 * - `extent`: under `strict`, a fused extent is smaller than the instruction's
 * - `unfed-axis`: an axis that loops could feed is left empty
 * - `idle-loop`: the loop has one step, or none that changes a value: feeding it to the axis would do nothing
 * - `copies`: every read would be right, but an operand would hold the same element once for every step of a loop
 * - `match-point`: valid as a gather, but no union of AMOS match points
 * - `schedule`: it maps, but no schedule of it can be lowered
 * - `condition`: a part of the `where` condition ties a summed loop to others, and no one operand holds them all
 * - `padding`: a reduce axis needs padding and no operand value leaves the result alone
 * - `access-matrix`: a tensor depends on a loop that the operand is not indexed by
 * - `axis-kind`: a summed loop feeds a kept axis or the other way round
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

/** An output element that the mapped program gets wrong, and a read that goes astray; both programs were run to find it. */
export interface Witness {
  /** Index of the output element. */
  readonly index: readonly number[];
  /** The iteration point whose read goes astray. */
  readonly point: Readonly<Record<string, number>>;
  readonly operand: string;
  /** What the equation reads there. */
  readonly expected: string;
  /** What the instruction would be given. */
  readonly actual: string;
}

/** A match that does not map: the rule, the reason, and what would help. */
export interface Refusal {
  readonly rule: Rule;
  /** One sentence. */
  readonly because: string;
  /** What change would make it map. */
  readonly hint?: string;
  /** The matching that was tried; empty when the arithmetic already differed. */
  readonly matching: Matching;
  /** Row (operand) and column (loop) of the access matrices that disagree. */
  readonly place?: { readonly row: string; readonly column: string };
  readonly witness?: Witness;
}

/** What validation says of a match. */
export type Verdict =
  | { readonly ok: true; readonly mapping: Mapping }
  | { readonly ok: false; readonly refusal: Refusal };

/** `m <- n,p,q   n <- k   k <- c,r,s`; an axis nothing feeds shows a dash. */
export function printMatching(matching: Matching, separator = "   "): string {
  return Object.entries(matching)
    .map(([axis, loops]) => `${axis} <- ${loops.length === 0 ? "-" : loops.join(",")}`)
    .join(separator);
}

/** What an operand stands for: the tensor's name, or the expression it is computed by. */
export function boundName(bound: Expr): string {
  return bound.kind === "access" ? bound.tensor : printExpr(bound);
}

/** A short name for matrices and drawings: the tensors that take part. */
export function boundLabel(bound: Expr): string {
  return bound.kind === "access"
    ? bound.tensor
    : [...new Set(accessesIn(bound).map((a) => a.tensor))].join("*") || printExpr(bound);
}
