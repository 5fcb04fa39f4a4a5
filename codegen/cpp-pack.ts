/**
 * @file Prints loops that only copy a run of elements contiguous on both sides as one memory copy.
 *
 *     for (long s_copy = 0; s_copy < 7; s_copy++) {
 *       for (long c_copy = 0; c_copy < 3; c_copy++) {
 *         in_windowed[32 * q_copy + 3 * s_copy + c_copy] = in[6 * q_copy + 3 * s_copy + c_copy];
 *       }
 *     }                                          ->  memcpy(in_windowed + 32 * q_copy, in + 6 * q_copy, 42);
 *
 * Short runs become a few overlapping vector moves, long ones a call of the library; as loops, g++ would move them
 * element by element.
 */

import { bytesOf } from "../abstraction/dtype.ts";
import { identityOf } from "../abstraction/equation.ts";
import { axesIn, type Expr } from "../abstraction/expression.ts";
import { type Code, code } from "../abstraction/source-text.ts";
import { allOf, type CExpressions } from "./c-expressions.ts";
import type { CopyLoops } from "./copy-loops.ts";

/** The copy that replaces a loop nest; undefined if its elements are not contiguous. */
export function packedRun(copied: CopyLoops, c: CExpressions): readonly Code[] | undefined {
  const { loops, extents, dtype, isMasked, to, from, tests, pointers } = copied;
  if (isMasked || loops.some((l) => l.mode !== "serial")) return undefined;

  // 1. The fused loops advance by one element on both sides.
  const moving = new Set(loops.map((l) => l.axis));
  const toSteps = stepsOf(to.at, moving);
  const fromSteps = stepsOf(from.at, moving);
  if (!toSteps || !fromSteps) return undefined;
  let run = 1;
  for (const { axis, extent } of [...loops].reverse()) {
    if (extent > 1 && (toSteps.get(axis) !== run || fromSteps.get(axis) !== run)) return undefined;
    run *= extent;
  }

  // 2. The bounds tests, if any, do not depend on these loops.
  if (tests.some((g) => axesIn(g).some((name) => moving.has(name)))) return undefined;
  const bytes = run * bytesOf(dtype);
  const [destination, origin] = pointers();
  const copy = code`memcpy(${destination}, ${origin}, ${bytes});`;
  if (tests.length === 0) return [copy];
  if (identityOf(c.computation.equation.op, dtype) !== 0) return undefined;
  const inside = allOf(tests.map((g) => c.condition(g, extents)));
  return [code`if (${inside}) ${copy}`, code`else memset(${destination}, 0, ${bytes});`];
}

/** The change of an index with each of some loops; undefined when it is not linear in them. What the other loops make of it is no matter. */
function stepsOf(e: Expr, moving: ReadonlySet<string>): ReadonlyMap<string, number> | undefined {
  const own = axesIn(e).filter((name) => moving.has(name));
  if (own.length === 0) return new Map();
  if (e.kind === "axis") return new Map([[e.name, 1]]);
  if (e.kind !== "binary") return undefined;
  const { op, left, right } = e;
  if (op !== "+" && op !== "-" && op !== "*") return undefined;
  const first = stepsOf(left, moving);
  const second = stepsOf(right, moving);
  const factor = left.kind === "number" ? left.value : right.kind === "number" ? right.value : undefined;
  if (!first || !second || (op === "*" && factor === undefined)) return undefined;
  const step = (name: string): number => {
    const l = first.get(name) ?? 0;
    const r = second.get(name) ?? 0;
    return op === "+" ? l + r : op === "-" ? l - r : (l + r) * (factor ?? 0);
  };
  return new Map(own.map((name) => [name, step(name)]));
}
