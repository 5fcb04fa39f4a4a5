/** @file The operands of a mapping's instruction: what it writes, what it reads, and which loops move them. */

import { axesIn } from "../../abstraction/expression.ts";
import { type Operand, operandOf } from "../../abstraction/intrinsic.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { memoised } from "../../abstraction/memoised.ts";
import type { LoopDimension } from "./dimensions.ts";

export function targetOperand({ intrinsic }: Mapping): Operand {
  return operandOf(intrinsic, intrinsic.computation.equation.target.tensor);
}

export function inputOperands(mapping: Mapping): Operand[] {
  const target = targetOperand(mapping);
  return mapping.intrinsic.operands.filter((o) => o !== target);
}

/** The loops that index each operand. */
const loopsOf = memoised(
  ({ binding }: Mapping): ReadonlyMap<string, ReadonlySet<string>> =>
    new Map(Object.entries(binding).map(([operand, bound]) => [operand, new Set(axesIn(bound))])),
);

/** Whether an operand's element changes with a dimension. */
export function dependsOn(mapping: Mapping, operand: string, d: LoopDimension): boolean {
  const used = loopsOf(mapping).get(operand);
  return used !== undefined && d.loops.some((l) => used.has(l.name));
}

export function product(numbers: readonly number[]): number {
  return numbers.reduce((p, n) => p * n, 1);
}
