/** @file The operands of a mapping's instruction: what it writes, what it reads, and which loops move them. */

import { memoised } from "../../abstraction/collections.ts";
import type { Computation } from "../../abstraction/computation.ts";
import type { DType } from "../../abstraction/dtype.ts";
import { axesIn, type Expr } from "../../abstraction/expression.ts";
import { type Operand, operandOf } from "../../abstraction/intrinsic.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { widenedLoad } from "../../targets/registers.ts";
import type { LoopDimension } from "./dimensions.ts";

export function targetOperand({ intrinsic }: Mapping): Operand {
  return operandOf(intrinsic, intrinsic.computation.equation.target.tensor);
}

export function inputOperands(mapping: Mapping): Operand[] {
  const target = targetOperand(mapping);
  return mapping.intrinsic.operands.filter((o) => o !== target);
}

/** How the tiles of an operand lie in memory: the type of their elements, and what an element is made of. */
export interface PackedForm {
  readonly dtype: DType;
  readonly value: Expr;
}

/**
 * The form in which an operand is packed. Where it is a conversion of an element to a wider type, and a load converts, its tiles keep the narrow type:
 * `f32(w[k,n])` of s8 takes a quarter of the memory.
 */
export function packedForm(operand: Operand, bound: Expr, { tensors }: Pick<Computation, "tensors">): PackedForm {
  const read = bound.kind === "cast" && bound.dtype === operand.dtype ? bound.value : undefined;
  const stored = read?.kind === "access" ? tensors[read.tensor]?.dtype : undefined;
  if (read !== undefined && stored !== undefined && widenedLoad(operand, stored) !== undefined)
    return { dtype: stored, value: read };
  return { dtype: operand.dtype, value: bound };
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
