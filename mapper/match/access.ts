/**
 * @file The binary matrices of a match and the algorithm that compares them (AMOS, ISCA 2022, Algorithm 1).
 *
 *     X  software access matrix     operands x loops             which loops index what each operand stands for
 *     Z  intrinsic access matrix    operands x intrinsic axes    which axes index each operand
 *     Y  matching matrix            intrinsic axes x loops       which loops feed which axis
 *
 * A match is right when X' = Z*Y agrees with X on the mapped loops and Z' = X*Y^T agrees with Z on the fed axes. (Over
 * all columns, as the algorithm is printed, it would pass one mapping of a convolution; over the mapped ones it passes
 * 49.)
 */

import {
  type BinaryMatrix,
  binaryMatrix,
  booleanProduct,
  differences,
  transpose,
} from "../../abstraction/binary-matrix.ts";
import { hasName, namesOf } from "../../abstraction/collections.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { axesIn } from "../../abstraction/expression.ts";
import { type Intrinsic, operandOf } from "../../abstraction/intrinsic.ts";
import type { Binding, Matching } from "../../abstraction/mapping.ts";

/** Operands as rows: inputs in the order the instruction reads them, then its target. */
function operandRows(intrinsic: Intrinsic): string[] {
  const [target, ...inputs] = namesOf(intrinsic.operands);
  return target === undefined ? inputs : [...inputs, target];
}

export function softwareAccessMatrix(computation: Computation, intrinsic: Intrinsic, binding: Binding): BinaryMatrix {
  const loops = namesOf(computation.axes);
  const used = new Map(Object.entries(binding).map(([operand, bound]) => [operand, new Set(axesIn(bound))]));
  return binaryMatrix(operandRows(intrinsic), loops, (row, column) => used.get(row)?.has(column) ?? false);
}

export function intrinsicAccessMatrix(intrinsic: Intrinsic): BinaryMatrix {
  const axes = namesOf(intrinsic.computation.axes);
  return binaryMatrix(operandRows(intrinsic), axes, (row, column) => hasName(operandOf(intrinsic, row).dims, column));
}

export function matchingMatrix(computation: Computation, intrinsic: Intrinsic, matching: Matching): BinaryMatrix {
  const axes = namesOf(intrinsic.computation.axes);
  const loops = namesOf(computation.axes);
  return binaryMatrix(axes, loops, (row, column) => matching[row]?.includes(column) ?? false);
}

export interface AccessMatrices {
  readonly x: BinaryMatrix;
  readonly y: BinaryMatrix;
  readonly z: BinaryMatrix;
  /** The product Z*Y. */
  readonly xPrime: BinaryMatrix;
  /** The product X*Y^T. */
  readonly zPrime: BinaryMatrix;
}

export function accessMatrices(
  computation: Computation,
  intrinsic: Intrinsic,
  binding: Binding,
  matching: Matching,
): AccessMatrices {
  const x = softwareAccessMatrix(computation, intrinsic, binding);
  const z = intrinsicAccessMatrix(intrinsic);
  const y = matchingMatrix(computation, intrinsic, matching);
  return { x, y, z, xPrime: booleanProduct(z, y), zPrime: booleanProduct(x, transpose(y)) };
}

/** A loop that one of two access matrices has for an operand and the other has not. */
export type Disagreement = ReturnType<typeof differences>[number];

/** Entries in which X' and X disagree, on mapped loops only. They decide whether a match is right. */
export function disagreementsWithX(x: BinaryMatrix, y: BinaryMatrix, xPrime: BinaryMatrix): Disagreement[] {
  const mapped = y.columns.filter((_, j) => y.bits.some((row) => row[j] === 1));
  return differences(xPrime, x, mapped);
}
