/**
 * @file What the data of a network's task ask of the memories of a CPU.
 *
 *     movedSeconds(computation, target)      of a step in plain loops
 *     cacheOfTask(task, target)              the caches that are like those it meets in the network
 */

import { sumOf } from "../../abstraction/collections.ts";
import { type Computation, inputsOf, memoryElements, outputOf, type Tensor } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { internal } from "../../abstraction/error.ts";
import { boundOfForm } from "../../abstraction/winograd.ts";
import type { Conditions } from "../../db/index.ts";
import type { Task } from "../../network/tasks.ts";
import type { MemoryLevel, ModelTarget } from "../../perfmodel/target.ts";

const bytesIn = (tensor: Tensor): number => memoryElements(tensor) * bytesOf(tensor.dtype);

/** Seconds that one core takes to read the inputs and write the output, each at the rate of the memory it fits in. */
export function movedSeconds(computation: Computation, target: ModelTarget): number {
  const output = bytesIn(outputOf(computation));
  const cycles = inputsOf(computation).reduce((sum, tensor) => {
    const bytes = bytesIn(tensor);
    return sum + bytes / levelHolding(bytes, target).readBytesPerCycle.value;
  }, output / levelHolding(output, target).writeBytesPerCycle.value);
  return cycles / target.clockHz.value;
}

function levelHolding(bytes: number, { memory }: ModelTarget): MemoryLevel {
  const level =
    memory.find((m) => m.bytes === undefined || m.bytes >= bytes) ??
    memory.at(-1) ??
    internal("a machine without memory");
  return level;
}

/**
 * Data of so many times a core's own caches come from further away in the network too. Steps of 1.7 times those of a Zen 4 took as long in ShuffleNet
 * as with warm caches, and twice as long with flushed ones; those of 3 times took 1.5 to 2.3 times as long in MobileNet (2026-11-23).
 */
const FURTHER_AWAY = 2;

/** Elements of a filter of 3 x 3 as F(4x4,3x3) reads it, of those that it has. */
const TRANSFORMED = 36 / 9;

/**
 * The state of the caches in which a task's kernels are measured: flushed where its data come from beyond a core's own caches. Warm where no weights are
 * read, or where several steps read the same ones, which stay where the step before left them.
 */
export function cacheOfTask({ computation, steps }: Task, { memory }: ModelTarget): Conditions["cache"] {
  const own = memory[1]?.bytes ?? Number.POSITIVE_INFINITY;
  const inputs = inputsOf(computation);
  const weights = inputs.filter((tensor) => tensor.constant);
  const bytes =
    sumOf([outputOf(computation), ...inputs], bytesIn) +
    (boundOfForm(computation) ? (TRANSFORMED - 1) * sumOf(weights, bytesIn) : 0);
  const read = new Set(steps.map(({ reads }) => weights.map(({ name }) => reads[name]?.name).join()));
  const isReadAgain = steps.length > 1 && read.size === 1;
  return bytes > FURTHER_AWAY * own && weights.length > 0 && !isReadAgain ? "flushed" : "warm";
}
