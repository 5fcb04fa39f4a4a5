/**
 * @file The enumeration rule of AMOS: a mapping is a union of match points.
 *
 * A match point feeds each axis of the instruction by one loop and holds all other loops at their first step. Every
 * operand read must then be indexed by exactly the instruction's axes. Added constants and positive factors are
 * ignored, but `const - x` is not allowed, a window `p + r` with both loops mapped is not a plain index, and a diagonal
 * `x[k,k]` has two. So p and r, or q and s, never feed a mapping together:
 *
 *     conv2d on a matrix product    7 points: (n,k,c) (n,k,r) (n,k,s) (p,k,c) (p,k,s) (q,k,c) (q,k,r)      35 unions
 *
 * Source: AMOS, ISCA 2022, and its released matcher; the axes must be fed by disjoint sets of loops here.
 */

import { bitAt } from "../../abstraction/binary-matrix.ts";
import { memoised } from "../../abstraction/collections.ts";
import { accessesIn, axesIn, type Expr, printExpr } from "../../abstraction/expression.ts";
import { boundLabel, type Matching } from "../../abstraction/mapping.ts";
import type { Problem } from "./problem.ts";

/** Why a valid gather is not a union of match points; undefined when it is one. */
export function matchPointProblem(problem: Problem, matching: Matching): string | undefined {
  const fed = Object.entries(matching).filter(([, loops]) => loops.length > 0);
  for (const [axis, loops] of fed) {
    const others = fed.filter(([name]) => name !== axis);
    for (const loop of loops) {
      const flaws = combinations(others, { [axis]: loop }).map((point) => matchPointFlaw(problem, point));
      if (flaws.includes(undefined)) continue;
      const partners = others.map(([name, l]) => `${name} <- ${l.join(",")}`).join(", ");
      return `no match point feeds ${axis} by ${loop} beside ${partners}: ${flaws[0]}`;
    }
  }
  return undefined;
}

/** Why, at a match point, some operand read is not indexed by exactly the axes that the instruction indexes it by. */
function matchPointFlaw(problem: Problem, point: Readonly<Record<string, string>>): string | undefined {
  const mapped = new Map(Object.entries(point).map(([axis, loop]) => [loop, axis]));
  for (const operand of problem.x.rows.slice(0, -1)) {
    const bound = problem.binding[operand];
    if (bound === undefined) return `${operand} stands for nothing`;
    const wanted = new Set(Object.keys(point).filter((axis) => bitAt(problem.z, operand, axis) === 1));
    for (const { e, text } of distinctIndices(bound)) {
      const loops = relaxedLoops(e, mapped);
      const [loop, second] = loops ?? axesIn(e).filter((name) => mapped.has(name));
      if (loops === undefined) return `${text} is not a plain index of ${loop}`;
      if (second !== undefined) return `${text} is a window over ${loop} and ${second}, not a plain index`;
      if (loop === undefined) continue;
      if (!wanted.delete(mapped.get(loop) ?? "")) return `${boundLabel(bound)} has two indices of ${loop}`;
    }
    const [missing] = wanted;
    if (missing !== undefined) return `${boundLabel(bound)} has no index of ${point[missing]}`;
  }
  return undefined;
}

/**
 * Mapped loops in an index, ignoring added constants and positive factors and divisors; undefined when the index is not
 * plain, because a loop has a negative factor or is under a remainder.
 */
function relaxedLoops(e: Expr, mapped: ReadonlyMap<string, string>): string[] | undefined {
  switch (e.kind) {
    case "number":
      return [];
    case "axis":
      return mapped.has(e.name) ? [e.name] : [];
    case "binary": {
      const left = relaxedLoops(e.left, mapped);
      const right = relaxedLoops(e.right, mapped);
      if (!left || !right) return undefined;
      if (e.op === "%" && left.length > 0) return undefined;
      if (e.op === "-" && right.length > 0) return undefined;
      const isNegative = [e.left, e.right].some((side) => side.kind === "number" && side.value < 0);
      if (e.op === "*" && isNegative && left.length + right.length > 0) return undefined;
      return [...left, ...right];
    }
    case "negate": {
      const inner = relaxedLoops(e.value, mapped);
      return inner?.length === 0 ? inner : undefined;
    }
    default:
      return undefined;
  }
}

/** An index of an operand, and its text in a refusal. */
interface Index {
  readonly e: Expr;
  readonly text: string;
}

/**
 * The distinct indices of an operand's expression, cached for all points: one that several reads share counts once,
 * `x[k,k]` has two.
 */
const distinctIndices = memoised((bound: Expr): readonly Index[] => {
  const byText = new Map<string, Index[]>();
  for (const { index } of accessesIn(bound)) {
    const texts = index.map((e) => ({ e, text: printExpr(e, "index") }));
    for (const { text } of texts) {
      const own = texts.filter((other) => other.text === text);
      if (own.length > (byText.get(text)?.length ?? 0)) byText.set(text, own);
    }
  }
  return [...byText.values()].flat();
});

function combinations(
  rest: readonly (readonly [string, readonly string[]])[],
  chosen: Readonly<Record<string, string>>,
): Readonly<Record<string, string>>[] {
  const [first, ...others] = rest;
  if (!first) return [chosen];
  const [axis, loops] = first;
  return loops.flatMap((loop) => combinations(others, { ...chosen, [axis]: loop }));
}
