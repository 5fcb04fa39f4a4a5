/**
 * @file Substitutes the loops of a computation: each becomes an affine index of other loops.
 *
 *     replaced(filter, q -> q*16+q_in, s -> s-q_in)        out[q] += in[q+s] * w[s]  ->  out[q*16+q_in] += in[q*16+s] * w[s-q_in]
 */

import { affineForm, evaluateIndex, exprOf } from "../../abstraction/affine.ts";
import { hasName } from "../../abstraction/collections.ts";
import { type Axis, type Computation, targetOf } from "../../abstraction/computation.ts";
import { conjunctsOf } from "../../abstraction/condition.ts";
import { axesIn, type Expr, guarded, number, rewrite, substitute } from "../../abstraction/expression.ts";

/** The Euclidean remainder, never negative. */
export const modulo = (a: number, by: number): number => ((a % by) + by) % by;

/** A rewritten computation, what became of each loop, and the loops that are phases. */
export interface Rewritten {
  readonly computation: Computation;
  readonly places: ReadonlyMap<string, Expr>;
  readonly phases?: readonly string[];
}

/** A name that no loop of the computation has. */
export const freshAxis = (computation: Computation, wish: string): string =>
  hasName(computation.axes, wish) ? freshAxis(computation, `${wish}_`) : wish;

/** The computation with other extents of some loops. */
export const resized = (computation: Computation, extents: ReadonlyMap<string, number>): Computation => ({
  ...computation,
  axes: computation.axes.map((a) => ({ ...a, extent: extents.get(a.name) ?? a.extent })),
});

/** Why padding a kept loop could write real elements of the output; undefined if it cannot. */
export function endsProblem({ equation, ...computation }: Computation, kept: Axis): string | undefined {
  const { index } = equation.target;
  const at = index.findIndex((e) => e.kind === "axis" && e.name === kept.name);
  const target = targetOf({ equation, ...computation });
  const alone = index.every((e, i) => i === at || !axesIn(e).includes(kept.name));
  if (at >= 0 && alone && target.dims[at]?.extent === kept.extent) return undefined;
  return `${kept.name} alone does not run from one end of ${target.name} to the other, and phases begin and end beyond them`;
}

/**
 * The computation with each loop replaced by an index in loops of the same names; conditions that hold everywhere are
 * dropped.
 */
export function replaced(
  computation: Computation,
  places: ReadonlyMap<string, Expr>,
  more: readonly Expr[] = [],
): Computation {
  const { where, ...equation } = computation.equation;
  const at = (e: Expr): Expr => (e.kind === "access" ? { ...e, index: e.index.map(normal) } : e);
  const stated = conjunctsOf(where).map((part) => normal(substitute(part, places, "index")));
  const target = {
    ...equation.target,
    index: equation.target.index.map((e) => normal(substitute(e, places, "index"))),
  };
  const value = rewrite(substitute(equation.value, places, "value"), at, "value");
  const conditions = [...stated.filter((part) => !isCertain(part)), ...more];
  return { ...computation, equation: guarded({ ...equation, target, value }, conditions) };
}

const isCertain = (part: Expr): boolean => axesIn(part).length === 0 && evaluateIndex(part, {}) !== 0;

/** An index or condition in normal form: sums of loops merged, and common constant divisors divided out. */
export function normal(e: Expr): Expr {
  return rewrite(e, divided, "index");
}

function divided(e: Expr): Expr {
  const own = affineForm(e);
  if (own) return exprOf(own);
  if (e.kind !== "binary" || e.right.kind !== "number" || (e.op !== "/" && e.op !== "%")) return e;
  const form = affineForm(e.left);
  const by = e.right.value;
  if (!form || [...form.terms.values()].some((c) => c % by !== 0)) return e;
  if (e.op === "%") return number(modulo(form.constant, by));
  const terms = new Map([...form.terms].map(([name, c]) => [name, c / by]));
  return exprOf({ constant: Math.floor(form.constant / by), terms });
}
