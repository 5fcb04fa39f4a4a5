/**
 * @file The rates of a machine that the kernel models need, and the formula that they share: the longer of two parts plus a share of the shorter.
 *
 *     overlapped(3, 1, 0.15)               3.15
 *     gridRate(h100, "dram")               bytes per second of all multiprocessors together
 */

import { memoised, sumOf } from "../abstraction/collections.ts";
import { type Computation, inputsOf, memoryElements, outputOf } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { type LevelName, levelOf, memoryOf, readRate, type Target, writeRate } from "../abstraction/machine.ts";
import type { MemoryLevel, ModelTarget } from "./target.ts";

/** @param share of the shorter part that does not overlap with the longer */
export const overlapped = (a: number, b: number, share: number): number => Math.max(a, b) + share * Math.min(a, b);

/** Bytes of all tensors, each read or written once. */
export const trafficOf = memoised((computation: Computation): number =>
  sumOf([...inputsOf(computation), outputOf(computation)], (t) => memoryElements(t) * bytesOf(t.dtype)),
);

// ---- cores

/** The innermost memory that holds so many bytes. */
export const levelHolding = ({ memory }: ModelTarget, bytes: number): MemoryLevel | undefined =>
  memory.find((m) => m.bytes !== undefined && m.bytes >= bytes) ?? memory.at(-1);

/** Streaming stores run at memory speed without fetching the lines they replace: 25 compared with 16 GB/s of reads. */
const STREAMED_TO_READ = 1.5;

/** Bytes per cycle of one core that reads from a level, and writes there or around the caches. */
export function ratesOf(
  level: MemoryLevel | undefined,
  streaming: boolean,
  target: ModelTarget,
): { readonly read: number; readonly write: number } {
  const read = level?.readBytesPerCycle.value ?? 1;
  const far = target.memory.at(-1)?.readBytesPerCycle.value ?? read;
  return { read, write: streaming ? STREAMED_TO_READ * far : (level?.writeBytesPerCycle.value ?? 1) };
}

// ---- multiprocessors

/** Bytes per second that one unit of a level reads from a memory; infinite where no source gives it. */
export const rateOn = (target: Target, memory: string, of: LevelName = "grid"): number =>
  readRate(target, memory, of)?.value ?? Number.POSITIVE_INFINITY;

/** The same of what a multiprocessor writes to the last cache. */
export const writeRateOf = (target: Target): number =>
  writeRate(target, "l2", "block")?.value ?? Number.POSITIVE_INFINITY;

/** Whether the last cache holds so many bytes, so that the call before left them there. */
export const staysNear = (target: Target, bytes: number): boolean =>
  bytes <= (memoryOf(target, "l2").bytes?.value ?? 0);

/** Quarters of all multiprocessors, each with a scheduler of warps. */
export const quartersOf = (target: Target): number => levelOf(target, "block").units * levelOf(target, "warp").units;

/** Seconds between two kernels of a stream. */
export const launchOf = ({ fixed }: Target): number => fixed["launch"]?.value ?? 0;
