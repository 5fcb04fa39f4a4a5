/**
 * @file A scalar statement over named axes: the one notation for operators and instructions.
 *
 *     c[m,n] += s32(a[m,k]) * s32(b[k,n])
 *     out[n,k,h,w] += f32(in[n,c,(h-r+1)/2,w]) * f32(v[c,k,r]) where (h-r+1)%2 == 0
 *
 * Axes that do not index the target are summed (or maximised ...). A read outside a tensor gives the identity
 * of the combine: padding is part of the notation. Points where the condition fails contribute nothing.
 */

import { type DType, isInteger, rangeOf } from "./dtype.ts";
import { type Access, accessesIn, allOf, axesIn, type Expr, printAccess, printExpr, substitute } from "./expression.ts";

/**
 * How a value joins what the target holds. The values of all summed points are folded exactly first and join once,
 * which is what a saturating instruction does: `sat+=` clamps the sum, not each step.
 */
export const COMBINE_OPS = ["=", "+=", "sat+=", "max=", "min="] as const;
export type CombineOp = (typeof COMBINE_OPS)[number];

/** One assignment for every point of the axes: `target op= value where condition`. */
export interface Equation {
  /** The element that is assigned. */
  readonly target: Access;
  /** How a value joins the element: `=`, `+=`, `max=`, `min=`, `sat+=`. */
  readonly op: CombineOp;
  /** What is assigned or combined. */
  readonly value: Expr;
  /** Points that it leaves out are not computed. */
  readonly where?: Expr;
  /** In an epilogue: equations that assign other elements of the same tensor and read only inputs. */
  readonly beside?: readonly Equation[];
}

/** The text `parseEquation` reads back: the cache key of a computation and the name of its test. */
export function printEquation({ target, op, value, where, beside = [] }: Equation): string {
  const condition = where === undefined ? "" : ` where ${printExpr(where)}`;
  return [`${printAccess(target)} ${op} ${printExpr(value)}${condition}`, ...beside.map(printEquation)].join(", ");
}

/** Axes in order of first appearance, target first. */
export function axesOf({ target, value, where }: Equation): string[] {
  return [...new Set([...axesIn(target), ...axesIn(value), ...(where === undefined ? [] : axesIn(where))])];
}

/** Axes that index the target; all others are summed. */
export function spatialAxesOf({ target }: Equation): string[] {
  return axesIn(target);
}

/** Every tensor element the equation mentions: the target, then the reads left to right. */
export function accessesOf({ target, value, where }: Equation): Access[] {
  return [target, ...accessesIn(value), ...(where === undefined ? [] : accessesIn(where))];
}

/** Names of the tensors, each once: the target, then the reads, then those read by equations beside it. */
export function tensorsOf(equation: Equation): string[] {
  const all = [equation, ...(equation.beside ?? [])].flatMap(accessesOf);
  return [...new Set(all.map((a) => a.tensor))];
}

/** The target's value before anything is combined, and the value of a read outside a tensor. */
export function identityOf(op: CombineOp, dtype: DType): number {
  switch (op) {
    case "=":
    case "+=":
    case "sat+=":
      return 0;
    case "max=":
      return isInteger(dtype) ? rangeOf(dtype)[0] : Number.NEGATIVE_INFINITY;
    case "min=":
      return isInteger(dtype) ? rangeOf(dtype)[1] : Number.POSITIVE_INFINITY;
    default:
      return op satisfies never;
  }
}

/** Replaces axes or parameters throughout. */
export function substituteAxes(equation: Equation, replacements: ReadonlyMap<string, Expr>): Equation {
  const again = (e: Expr): Expr => substitute(e, replacements, "index");
  const { target, op, value, where, beside } = equation;
  const result = {
    target: { ...target, index: target.index.map(again) },
    op,
    value: substitute(value, replacements, "value"),
  };
  return {
    ...result,
    ...(where !== undefined && { where: again(where) }),
    ...(beside && { beside: beside.map((other) => substituteAxes(other, replacements)) }),
  };
}

/** An equation that holds only where further conditions do. */
export function guarded(equation: Equation, conditions: readonly Expr[]): Equation {
  const where = allOf([equation.where, ...conditions]);
  return where ? { ...equation, where } : equation;
}
