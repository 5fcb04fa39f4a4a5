/**
 * @file The enumeration rule of AMOS: a mapping is a union of match points.
 *
 * A match point feeds each axis of the instruction by one loop, all other loops held at their first step, and must leave every
 * operand read indexed by exactly the instruction's axes: added constants and positive factors are overlooked, `const - x` is not,
 * and a window `p + r` with both loops mapped is no plain index. So p and r, or q and s, never feed one mapping alone:
 *
 *     conv2d on a matrix product    7 points: (n,k,c) (n,k,r) (n,k,s) (p,k,c) (p,k,s) (q,k,c) (q,k,r)      35 unions
 *
 * Source: AMOS, ISCA 2022, and its released matcher; the axes must be fed by disjoint sets of loops here.
 */

import { bitAt } from "../abstraction/binary-matrix.ts";
import { accessesIn, type Expr, printExpr } from "../abstraction/expression.ts";
import type { Matching } from "../abstraction/mapping.ts";
import type { Problem } from "./problem.ts";

/** Why a valid gather is no union of match points; undefined when it is one. */
export function matchPointProblem(problem: Problem, matching: Matching): string | undefined {
  const fed = Object.entries(matching).filter(([, loops]) => loops.length > 0);
  for (const [axis, loops] of fed) {
    const others = fed.filter(([name]) => name !== axis);
    for (const loop of loops) {
      if (!someCombination(others, { [axis]: loop }, (point) => isMatchPoint(problem, point))) {
        const partners = others.map(([name, l]) => `${name} <- ${l.join(",")}`).join(", ");
        return `no match point feeds ${axis} by ${loop} beside ${partners}: ${windowReason(
          problem,
          loop,
          others.flatMap(([, l]) => l),
        )}`;
      }
    }
  }
  return undefined;
}

/** Whether one loop per axis leaves each operand read indexed by exactly the axes the instruction indexes it by. */
function isMatchPoint(problem: Problem, point: Readonly<Record<string, string>>): boolean {
  const mapped = new Map(Object.entries(point).map(([axis, loop]) => [loop, axis]));
  return problem.x.rows.slice(0, -1).every((operand) => {
    const bound = problem.binding[operand];
    if (bound === undefined) return false;
    const wanted = new Set(Object.keys(point).filter((axis) => bitAt(problem.z, operand, axis) === 1));
    for (const index of distinctIndices(bound)) {
      const loops = relaxedLoops(index, mapped);
      if (loops === undefined || loops.length > 1) return false;
      const [loop] = loops;
      if (loop === undefined) continue;
      const axis = mapped.get(loop);
      if (axis === undefined || !wanted.delete(axis)) return false;
    }
    return wanted.size === 0;
  });
}

/**
 * Mapped loops left in an index when added constants and positive factors and divisors are overlooked; undefined when the index is not
 * a plain one: a loop with a negative factor, or under a remainder.
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

function distinctIndices(bound: Expr): Expr[] {
  const byText = new Map<string, Expr>();
  for (const a of accessesIn(bound)) for (const e of a.index) byText.set(printExpr(e), e);
  return [...byText.values()];
}

function someCombination(
  rest: readonly (readonly [string, readonly string[]])[],
  chosen: Readonly<Record<string, string>>,
  test: (point: Readonly<Record<string, string>>) => boolean,
): boolean {
  const [first, ...others] = rest;
  if (!first) return test(chosen);
  const [axis, loops] = first;
  return loops.some((loop) => someCombination(others, { ...chosen, [axis]: loop }, test));
}

/** Names the index that stands in the way. */
function windowReason(problem: Problem, loop: string, partners: readonly string[]): string {
  for (const bound of Object.values(problem.binding)) {
    for (const index of distinctIndices(bound)) {
      const text = printExpr(index, "index");
      const names = new Set(text.match(/[A-Za-z_]\w*/g) ?? []);
      const partner = partners.find((p) => names.has(p));
      if (names.has(loop) && partner !== undefined)
        return `${text} is a window over ${loop} and ${partner}, not a plain index`;
    }
  }
  for (const bound of Object.values(problem.binding)) {
    for (const index of distinctIndices(bound)) {
      const names = new Set(printExpr(index, "index").match(/[A-Za-z_]\w*/g) ?? []);
      if (names.has(loop)) return `${printExpr(index, "index")} is not a plain index of ${loop}`;
    }
  }
  return `${loop} indexes no operand plainly`;
}
