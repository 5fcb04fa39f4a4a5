/**
 * @file Sums of terms in the order they are printed: additions before subtractions, digits of a mixed radix.
 *
 *     sumOf([-1 t, 1 lane], 3)  =  lane - t + 3        digitOf(lane, 4, 3)  =  lane/4 % 3
 */

import { affineForm } from "../../abstraction/affine.ts";
import { product } from "../../abstraction/collections.ts";
import { axis, type Expr, minus, number, over, plus, remainder, times } from "../../abstraction/expression.ts";
import type { Vector } from "./vector.ts";

/** The weight of each digit; the last digit varies fastest. */
export function weights(extents: readonly number[]): number[] {
  return extents.map((_, r) => product(extents.slice(r + 1)));
}

/** Several rows as one row of mixed radix. */
export function rowOf(rows: readonly Vector[], radix: readonly number[]): number[] {
  return (rows[0] ?? []).map((_, i) => rows.reduce((sum, row, r) => sum + (row[i] ?? 0) * (radix[r] ?? 0), 0));
}

export function digitOf(e: Expr, weight: number, extent: number | undefined): Expr {
  const quotient = over(e, weight);
  return extent === undefined ? quotient : remainder(quotient, extent);
}

export interface Term {
  readonly coefficient: number;
  readonly value: Expr;
}

/** `lane - t + 3`: added terms before subtracted ones. */
export function sumOf(terms: readonly Term[], constant: number): Expr {
  const added = terms.filter((t) => t.coefficient > 0);
  const taken = terms.filter((t) => t.coefficient < 0);
  const first = added.length === 0 && constant > 0 ? number(constant) : number(0);
  let sum: Expr = first;
  for (const { coefficient, value } of added) sum = plus(sum, times(coefficient, value));
  for (const { coefficient, value } of taken) sum = minus(sum, times(-coefficient, value));
  return first.kind === "number" && first.value !== 0 ? sum : plus(sum, constant);
}

/** An affine index in canonical order; other expressions unchanged. */
export function simplified(e: Expr): Expr {
  const form = affineForm(e);
  if (!form) return e;
  return sumOf(
    [...form.terms].map(([name, coefficient]) => ({ coefficient, value: axis(name) })),
    form.constant,
  );
}
