/**
 * @file Predicts the time of plain loops: the operations of all points on the vectors that the compiler may use, and the bytes that move.
 *
 *     s[m] += x[m,k]      64 x 64 of f32, AVX2      512 vectors, an addition and a load each; 16 KiB from the first cache
 *
 * The prediction ranks plain loops beside other kernels of the same computation, of which the search measures both.
 */

import { type Computation, elementCount, outputOf, pointCount, targetOf } from "../abstraction/computation.ts";
import { isRecurrent } from "../abstraction/dependence.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { accessesIn, type Expr, isFloatFunction, readsIndices, walk } from "../abstraction/expression.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import type { WinogradTransform } from "../abstraction/winograd.ts";
import { NOT_OVERLAPPED } from "./lanes.ts";
import { overlapped } from "./rates.ts";
import type { ModelTarget } from "./target.ts";
import { transferCycles } from "./vectors.ts";

/** Bytes of the vectors that a compiler uses, by the feature that allows them; those of every x86-64 and AArch64 otherwise. */
const VECTOR_BYTES: Readonly<Record<string, number>> = { fma: 32, avx512f: 64 };
const LEAST_VECTOR_BYTES = 16;
/** Vector operations per cycle: two ports of every recent core. */
const PER_CYCLE = 2;
/** Operations of a function in plain arithmetic: range reduction and a polynomial. */
const FUNCTION_OPERATIONS = 24;
/** Cycles until a dependent operation may start. */
const LATENCY = 4;
/** Cycles of a loop besides its work: its branch, and the first load until the first store. A guess. */
export const PER_LOOP = 12;

/** Windows of Winograd's transforms in a loop. */
const WINDOWS = 64;

/** Seconds of a call. */
export function loopSeconds(computation: Computation, row: Intrinsic, threads: number, target: ModelTarget): number {
  const compute = computeCycles(computation, row, target);
  const memory = transferCycles(computation, target);
  const shared = isRecurrent(computation.equation) ? 1 : threads;
  return overlapped(compute, memory, NOT_OVERLAPPED) / target.clockHz.value / shared;
}

/** Cycles of one core for the arithmetic of all points. */
export function computeCycles(computation: Computation, row: Intrinsic, target: ModelTarget): number {
  const { equation, epilogue } = computation;
  const points = pointCount(computation);
  const operations = operationsOf(equation.value) + (equation.op === "=" ? 0 : 1);
  const loads = accessesIn(equation.value).length / target.loadsPerCycle.value;
  const isInOrder = isRecurrent(equation);
  const isScalar = isInOrder || readsIndices(equation.value);
  const lanes = isScalar ? 1 : lanesOf(computation, row);
  const each = isInOrder ? LATENCY * operations : Math.max(operations / PER_CYCLE, loads);
  const ending = epilogue
    ? (operationsOf(epilogue.equation.value) * elementCount(outputOf(computation))) / PER_CYCLE
    : 0;
  return (points * each) / lanes + ending / lanes;
}

/** Elements of a vector. */
function lanesOf(computation: Computation, row: Intrinsic): number {
  return (VECTOR_BYTES[row.isa] ?? LEAST_VECTOR_BYTES) / Math.max(4, bytesOf(outputOf(computation).dtype));
}

/** Seconds of one of Winograd's transforms, one dimension of its windows after the other, for rows of windows. */
export function transformSeconds(
  { computation, matrix }: WinogradTransform,
  row: Intrinsic,
  threads: number,
  target: ModelTarget,
): number {
  const columns = matrix[0]?.length ?? 0;
  const windows = elementCount(targetOf(computation)) / matrix.length ** 2;
  // Each element of what a dimension makes is a sum over the columns.
  const sums = matrix.length * columns + matrix.length ** 2;
  const vectors = (2 * sums * columns) / PER_CYCLE / lanesOf(computation, row);
  const compute = windows * (vectors + (sums / WINDOWS) * PER_LOOP);
  const memory = transferCycles(computation, target);
  return overlapped(compute, memory, NOT_OVERLAPPED) / target.clockHz.value / threads;
}

function operationsOf(value: Expr): number {
  return [...walk(value)].reduce((n, e) => {
    if (e.kind === "binary") return n + (accessesIn(e).length > 0 ? 1 : 0);
    if (e.kind === "call") return n + (isFloatFunction(e.fn) ? FUNCTION_OPERATIONS : 1);
    return n + (e.kind === "select" ? 2 : e.kind === "cast" ? 1 : 0);
  }, 0);
}
