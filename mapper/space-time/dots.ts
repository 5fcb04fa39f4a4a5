/**
 * @file Computes neighbouring taps of narrow integers by dot products: one instruction multiplies four bytes, or two
 * words, in each 32-bit lane.
 *
 *     for unrolled r in 0..5                                       x u8, w s8, sums s32
 *       for lanes lane in 0..16
 *         X[0,lane] = s32(x[16*b+lane+r])
 *         W[0,lane] = s32(w[r])
 *         Z[0,lane] = Z[0,lane] + s32(X[0,lane]) * s32(W[0,lane])
 *
 *     ->  for lanes lane in 0..16                                  VPDPBUSD: five taps are four and one
 *           Z[0,lane] = 0 + s32(x[16*b+lane]) * s32(w[0]) + ... + s32(x[16*b+lane+3]) * s32(w[3])
 *         for lanes lane in 0..16
 *           Z[0,lane] = Z[0,lane] + s32(x[16*b+lane+4]) * s32(w[4])
 */

import { addressOf, affineForm } from "../../abstraction/affine.ts";
import type { LaneTransform } from "../../abstraction/candidate.ts";
import { namesOf, upTo } from "../../abstraction/collections.ts";
import { type Computation, outputOf, tensorOf } from "../../abstraction/computation.ts";
import { internal } from "../../abstraction/error.ts";
import {
  type Access,
  axesIn,
  type Expr,
  number,
  plus,
  rewrite,
  substitute,
  walk,
} from "../../abstraction/expression.ts";
import type { Loop, LoopNest, Scalar, Statement } from "../../abstraction/loop-nest.ts";
import { substituteAxis } from "../../abstraction/rewrite-statement.ts";
import { type Dot, dotOfTypes } from "../../targets/x86-dots.ts";
import type { OnLanes } from "./beside.ts";
import { conditionLeft, decided } from "./decided.ts";
import { MOST_UNROLLED_STEPS } from "./lower.ts";

/**
 * The dot product that a design can use, or why it has none. Lanes and innermost steps must be contiguous in memory.
 */
export function dotOf(sum: Computation, { loops, allocation, schedule }: LaneTransform, steps: number): Dot | string {
  const { equation } = sum;
  const factors = factorsOf(equation.value);
  if (!factors || equation.op !== "+=" || outputOf(sum).dtype !== "s32" || equation.where)
    return "a dot product adds products of two integers to a sum of s32";
  const [first, second] = factors.map((a) => tensorOf(sum, a.tensor).dtype);
  const dot = first && second && dotOfTypes(first, second);
  if (!dot)
    return `a dot product multiplies u8 by s8 (VPDPBUSD), or s16 by s16 (VPDPWSSD); AVX-512 has none of ${first} by ${second}`;
  const lane = unit(allocation);
  const tap = unit(schedule.at(-1) ?? []);
  if (lane === undefined || tap === undefined || [allocation, ...schedule.slice(0, -1)].some((row) => row[tap] !== 0))
    return "neighbouring taps meet on a lane where lanes go along one loop and the innermost steps along another";
  const across = loops[lane] ?? "";
  const along = loops[tap] ?? "";
  if (axesIn(equation.target).includes(along)) return `the innermost steps go along ${along}, which is not summed`;
  const flat = factors.map((a) => affineForm(addressOf(tensorOf(sum, a.tensor), a.index))?.terms);
  const step = (i: number, name: string): number | undefined => flat[i] && (flat[i].get(name) ?? 0);
  const far = factors.find((_, i) => step(i, along) !== 1);
  if (far) return `neighbouring taps of ${far.tensor} along ${along} do not lie side by side in memory`;
  if ([step(0, across), step(1, across)].toSorted().join() !== "0,1")
    return `neighbouring lanes along ${across} do not read neighbouring elements of one operand and the same element of the other`;
  if (steps > MOST_UNROLLED_STEPS)
    return `${steps} steps are too many to unroll, and only unrolled taps (at most ${MOST_UNROLLED_STEPS}) become dot products`;
  return dot;
}

/** Steps of a design's taps after `terms` of them are joined into each instruction. */
export function stepsJoined(
  sum: Computation,
  { loops, schedule }: LaneTransform,
  steps: number,
  terms: number,
): number {
  const tap = unit(schedule.at(-1) ?? []);
  const taps = sum.axes.find((a) => tap !== undefined && a.name === loops[tap])?.extent ?? 1;
  return (steps / taps) * Math.ceil(taps / terms);
}

/** The two elements that a product of narrow integers multiplies. */
function factorsOf(e: Expr): readonly [Access, Access] | undefined {
  const inner = (part: Expr): Expr => (part.kind === "cast" && part.dtype === "s32" ? part.value : part);
  if (e.kind !== "binary" || e.op !== "*") return undefined;
  const a = inner(e.left);
  const b = inner(e.right);
  return a.kind === "access" && b.kind === "access" ? [a, b] : undefined;
}

/** The loop that a row counts with coefficient 1, if it counts only that. */
function unit(row: readonly number[]): number | undefined {
  const at = row.findIndex((x) => x !== 0);
  return row[at] === 1 && row.every((x, i) => i === at || x === 0) ? at : undefined;
}

/** Joins neighbouring taps. @param terms as {@link dotOf} allows for the lowered design */
export function withDots({ body, vectors }: OnLanes, terms: number): OnLanes {
  const files = new Set(namesOf(vectors));
  return { body: joinedIn(body, files, terms), vectors };
}

function joinedIn(body: readonly Statement[], files: ReadonlySet<string>, terms: number): readonly Statement[] {
  return body.flatMap((s): readonly Statement[] => {
    if (s.kind !== "loop") return [s];
    const [only] = s.body;
    if (s.mode === "unrolled" && s.body.length === 1 && only?.kind === "loop" && only.mode === "lanes")
      return joinedSteps(s, only, files, terms);
    return [{ ...s, body: joinedIn(s.body, files, terms) }];
  });
}

/** The steps of taps, `terms` at a time. */
function joinedSteps(steps: Loop, lanes: Loop, files: ReadonlySet<string>, terms: number): readonly Statement[] {
  const scalars = lanes.body.flatMap((s) => (s.kind === "scalar" ? [s] : []));
  const target = (s: Scalar): string => s.equation.target.tensor;
  const isRead = (s: Scalar): boolean => files.has(target(s)) && s.equation.value.kind === "cast";
  const read = new Map(scalars.filter(isRead).map((s) => [keyOf(s.equation.target), s.equation.value]));
  const rest = scalars.filter((s) => !isRead(s));
  const at = (e: Expr, step: number): Expr => substitute(e, new Map([[steps.axis, number(step)]]), "value");
  const known = (e: Expr, step: number): Expr => decided(e, new Map([[steps.axis, [step, step]]]));
  return upTo(Math.ceil(steps.extent / terms)).map((group): Statement => {
    const from = group * terms;
    const to = Math.min(steps.extent, from + terms);
    const made = rest.flatMap((s): readonly Statement[] => {
      const { equation } = s;
      if (!files.has(target(s))) return to === steps.extent ? [leaving(s, steps.axis, to - 1)] : [];
      const { value } = equation;
      if (value.kind !== "binary" || value.op !== "+") internal("a step that adds nothing to its sum");
      const product = rewrite(value.right, (e) => (e.kind === "access" ? (read.get(keyOf(e)) ?? e) : e), "value");
      const products = upTo(to - from).map((i) => at(withoutTwice(product), from + i));
      const before = at(known(value.left, from), from);
      return [{ ...s, equation: { ...equation, value: products.reduce((sum, p) => plus(sum, p), before) } }];
    });
    return { ...lanes, body: made };
  });
}

/** A statement that stores at the last step. */
function leaving(s: Scalar, axis: string, step: number): Statement {
  const { where, ...equation } = s.equation;
  const left = conditionLeft(where, new Map([[axis, [step, step]]]));
  return substituteAxis({ ...s, equation: left ? { ...equation, where: left } : equation }, axis, number(step));
}

const keyOf = ({ tensor, index }: Access): string => JSON.stringify([tensor, index]);

/** `s32(s32(x))` is `s32(x)`. */
function withoutTwice(e: Expr): Expr {
  return rewrite(
    e,
    (part) =>
      part.kind === "cast" && part.value.kind === "cast" && part.value.dtype === part.dtype ? part.value : part,
    "value",
  );
}

/** Whether a lowered design contains dot products. Passes that test each element do not. */
export function usesDots({ body, vectors = [] }: LoopNest): boolean {
  const files = new Set(namesOf(vectors));
  const isElement = (e: Expr): boolean => e.kind === "cast" && e.value.kind === "access" && !files.has(e.value.tensor);
  const isProduct = (e: Expr): boolean =>
    e.kind === "binary" && e.op === "*" && isElement(e.left) && isElement(e.right);
  const uses = (s: Statement): boolean =>
    s.kind === "loop" ? s.body.some(uses) : s.kind === "scalar" && [...walk(s.equation.value)].some(isProduct);
  return body.some(uses);
}
