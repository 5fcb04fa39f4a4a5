/**
 * @file A computation's least time on this machine: its products at the best measured issue rate, and each tensor moved
 * once at the bandwidth of the memory level that holds them all.
 *
 *     rooflineOf(conv2d, nativeIntrinsics(), target, 1)    { compute: 36.5, memory: 15.4, level: "l2" }     in us (AMX)
 *
 * Both rates come from `automap calibrate`: from registers, and over footprints of each level. Excluded are copies,
 * vector tails and repeated reads.
 */

import {
  type Computation,
  inputsOf,
  memoryElements,
  outputOf,
  pointCount,
  type Tensor,
} from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { partsOf } from "../../abstraction/epilogue.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import { type ModelTarget, timingOf } from "../../perfmodel/target.ts";

export interface Roofline {
  /** Microseconds on all threads together. */
  readonly compute: number;
  readonly memory: number;
  /** The level that holds all tensors of a thread's share. */
  readonly level: string;
}

/**
 * @param intrinsics allowed in a kernel; at least one must have the computation's types
 * @returns undefined when none of them has the computation's types
 */
export function rooflineOf(
  computation: Computation,
  intrinsics: readonly Intrinsic[],
  target: ModelTarget,
  threads: number,
): Roofline | undefined {
  const { sum } = partsOf(computation);
  const types = typesOf(sum);
  const rates = intrinsics
    .filter((row) => typesOf(row.computation) === types)
    .map((row) => pointCount(row.computation) / timingOf(target, row).issueCycles);
  if (rates.length === 0) return undefined;
  const clock = target.clockHz.value * threads;
  const bytes = (tensors: readonly Tensor[]): number =>
    tensors.reduce((total, t) => total + memoryElements(t) * bytesOf(t.dtype), 0);
  const read = bytes(inputsOf(computation));
  const written = bytes([outputOf(computation)]);
  const level =
    target.memory.find((m) => m.bytes === undefined || m.bytes >= (read + written) / threads) ?? target.memory.at(-1);
  if (!level) return undefined;
  return {
    compute: (1e6 * pointCount(sum)) / Math.max(...rates) / clock,
    memory: (1e6 * (read / level.readBytesPerCycle.value + written / level.writeBytesPerCycle.value)) / clock,
    level: level.name,
  };
}

/** Element types of the inputs, in any order, and of the sum. */
function typesOf(computation: Computation): string {
  const inputs = inputsOf(computation).map((t) => t.dtype);
  return [...inputs].sort().join() + outputOf(computation).dtype;
}
