/** @file The operands of a mapping's instruction: what it writes, what it reads, which loops move them. */

import { axesIn } from "../../abstraction/expression.ts";
import { type Operand, operandOf } from "../../abstraction/intrinsic.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import type { LoopDimension } from "./dimensions.ts";

export function targetOperand({ intrinsic }: Mapping): Operand {
  return operandOf(intrinsic, intrinsic.computation.equation.target.tensor);
}

export function inputOperands(mapping: Mapping): Operand[] {
  const target = targetOperand(mapping);
  return mapping.intrinsic.operands.filter((o) => o !== target);
}

const knownLoops = new WeakMap<Mapping, ReadonlyMap<string, ReadonlySet<string>>>();

/** The loops that index each operand; worked out once a mapping. */
function loopsOf(mapping: Mapping): ReadonlyMap<string, ReadonlySet<string>> {
  const known =
    knownLoops.get(mapping) ??
    new Map(Object.entries(mapping.binding).map(([operand, bound]) => [operand, new Set(axesIn(bound))]));
  knownLoops.set(mapping, known);
  return known;
}

/** Whether an operand's element changes with a dimension. */
export function dependsOn(mapping: Mapping, operand: string, d: LoopDimension): boolean {
  const used = loopsOf(mapping).get(operand);
  return used !== undefined && d.loops.some((l) => used.has(l.name));
}

export function product(numbers: readonly number[]): number {
  return numbers.reduce((p, n) => p * n, 1);
}
