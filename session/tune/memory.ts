/**
 * @file Checks that a search's memory is available before it is allocated.
 *
 *     checkMemory(conv2d)     throws: the inputs and answers of conv2d need 1.9 TB while they are drawn; this machine has 7.8 GB
 */

import { totalmem } from "node:os";
import { sumOf } from "../../abstraction/collections.ts";
import { type Computation, inputsOf, memoryElements, outputOf, targetOf } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { UsageError } from "../../abstraction/error.ts";
import { sizesText } from "../../abstraction/text.ts";
import { MOST_BYTES } from "../../runtime/emulated-kernel.ts";

/** Sets of inputs that a reference holds at once: exact, random, extreme. */
const SETS = 3;
/** Bytes of a double: values are drawn and compared as doubles, and the absolute values of each input are kept too. */
const DOUBLE = 8;
/** The largest number of elements of a Node array. */
const LONGEST = 2 ** 32 - 1;

/** Peak bytes of the inputs, the expected results and their tolerances together. */
export function memoryNeeded(computation: Computation): number {
  const inputs = sumOf(
    inputsOf(computation),
    (tensor) => memoryElements(tensor) * (2 * DOUBLE + SETS * bytesOf(tensor.dtype)),
  );
  return inputs + memoryElements(outputOf(computation)) * (SETS + 1) * 2 * DOUBLE;
}

/**
 * @param available bytes of memory that this process may use
 * @throws UsageError when the computation needs more to be measured
 */
export function checkMemory(computation: Computation, available = memoryHere()): void {
  const tensors = [...inputsOf(computation), targetOf(computation), outputOf(computation)];
  const longest = tensors.reduce((a, b) => (memoryElements(b) > memoryElements(a) ? b : a));
  const needed = memoryNeeded(computation);
  const sized = sizesText(longest.dims);
  const hint = `${longest.name} is the largest (${sized}): give smaller extents, or --model-only, which measures nothing`;
  if (needed > available)
    throw new UsageError(
      `inputs and answers of ${computation.name} need ${sizeText(needed)} while kernels are checked; this machine has ${sizeText(available)}`,
      hint,
    );
  if (memoryElements(longest) > LONGEST)
    throw new UsageError(`${longest.name} of ${computation.name} has more than ${LONGEST} elements`, hint);
}

/** Of a tensor while a program emulates a kernel: as it is written for it or read back, in its file, which may be in memory, and its own. */
const PROGRAM_COPIES = 3;

/** Bytes that sets of inputs and answers take together with the program that emulates a kernel on one of them. */
export function memoryEmulating(computation: Computation): number {
  const output = outputOf(computation);
  const inputs = sumOf(
    inputsOf(computation),
    (tensor) => memoryElements(tensor) * (DOUBLE + (SETS + PROGRAM_COPIES) * bytesOf(tensor.dtype)),
  );
  return inputs + memoryElements(output) * ((2 * SETS + 1) * DOUBLE + PROGRAM_COPIES * bytesOf(output.dtype));
}

/**
 * @param available bytes of memory that this process and those it starts may take
 * @throws UsageError when kernels of a computation cannot be emulated in it, or a tensor is larger than emulation holds
 */
export function checkEmulatedMemory(computation: Computation, available = memoryHere()): void {
  checkMemory(computation, available);
  const hint = "give smaller extents, or --model-only, which runs nothing";
  for (const tensor of [outputOf(computation), ...inputsOf(computation)]) {
    const bytes = memoryElements(tensor) * bytesOf(tensor.dtype);
    if (bytes > MOST_BYTES)
      throw new UsageError(
        `${tensor.name} of ${computation.name} has ${bytes} bytes: a tensor under emulation has no more than ${MOST_BYTES}`,
        hint,
      );
  }
  const needed = memoryEmulating(computation);
  if (needed > available)
    throw new UsageError(
      `inputs and answers of ${computation.name} need ${sizeText(needed)} while kernels are emulated; this machine has ${sizeText(available)}`,
      hint,
    );
}

/** The machine's memory, or a container's limit. */
function memoryHere(): number {
  const limit = process.constrainedMemory();
  return limit > 0 ? Math.min(limit, totalmem()) : totalmem();
}

/** `7.80 GB` */
export function sizeText(bytes: number): string {
  const units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
  const step = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log10(bytes) / 3)));
  return `${(bytes / 1000 ** step).toPrecision(3)} ${units[step]}`;
}
