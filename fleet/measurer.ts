/**
 * @file How a worker measures the kernels of one computation: on its CPU or on its GPU, with inputs and answers that are drawn once.
 *
 *     const measurer = await openMeasurer(runner, subject, signal);
 *     await measurer.prepare([kernel], signal);
 *     await measurer.time([kernel], { goal: 4e-5, cache: "warm" }, signal)       [{ status: "ok", median: 3.9e-5, ... }]
 */

import { defined } from "../abstraction/collections.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import type { Measurement } from "../abstraction/trial.ts";
import { keptKernel } from "../runtime/compiler.ts";
import type { Runner } from "../runtime/measure.ts";
import type { CudaRunner } from "../runtime/run/cuda.ts";
import { checkMemory } from "../session/tune/memory.ts";
import { FINAL, INPUT_SEED, TRIAL } from "../session/tune/workplace.ts";
import type { Subject } from "./jobs.ts";

/** Conditions of a measurement. */
export interface Timing {
  readonly cache: "warm" | "flushed";
  /** The best time so far. */
  readonly goal?: number | undefined;
  /** Whether the kernels are timed in turns, as contenders of finals are; otherwise there is one. */
  readonly inTurns: boolean;
}

export interface Measurer {
  /** Input sets left out of the check, and why, as far as that is known before the first kernel. */
  readonly leftOut: readonly { readonly name: string; readonly because: string }[] | undefined;
  /** Where a binary of a kernel would be kept, to be found by {@link prepare}; undefined where only own ones are used. */
  readonly entryOf: (kernel: Kernel) => string | undefined;
  /** Compiles kernels, or takes those that are kept. Their errors are those of the measurement. */
  readonly prepare: (kernels: readonly Kernel[], signal: AbortSignal) => Promise<void>;
  /** Fewer measurements than kernels when it was stopped. */
  readonly time: (kernels: readonly Kernel[], timing: Timing, signal: AbortSignal) => Promise<readonly Measurement[]>;
  readonly close: () => Promise<void>;
}

/** Draws inputs and computes the answers. The runner is closed with the measurer, or when that fails. */
export async function openMeasurer(
  runner: Runner | CudaRunner,
  subject: Subject,
  signal: AbortSignal,
): Promise<Measurer> {
  try {
    return "device" in runner ? await onGpu(runner, subject) : await onCpu(runner, subject, signal);
  } catch (error) {
    await runner.close();
    throw error;
  }
}

async function onCpu(runner: Runner, { computation, fixed }: Subject, signal: AbortSignal): Promise<Measurer> {
  checkMemory(computation);
  const reference = await runner.reference(computation, INPUT_SEED, { ...defined({ fixed }), signal });
  return {
    leftOut: reference.leftOut,
    entryOf: (kernel) => keptKernel(kernel, runner),
    prepare: async (kernels, stop) => {
      await Promise.all(kernels.map((kernel) => runner.compile(kernel, stop)));
    },
    time: async (kernels, { cache, goal, inTurns }, stop) => {
      if (inTurns) return runner.compareKernels(kernels, reference, { cache });
      const found: Measurement[] = [];
      for await (const one of runner.race(kernels, reference, { ...TRIAL, cache, goal, signal: stop })) found.push(one);
      return found;
    },
    close: () => runner.close(),
  };
}

async function onGpu(runner: CudaRunner, { computation, fixed }: Subject): Promise<Measurer> {
  const reference = await runner.reference(computation, INPUT_SEED, defined({ fixed }));
  return {
    leftOut: undefined,
    entryOf: () => undefined,
    prepare: async (kernels) => {
      await Promise.all(kernels.map((kernel) => runner.compile(kernel)));
    },
    time: (kernels, { goal, inTurns }) =>
      runner.measureTogether(kernels, reference, inTurns ? FINAL : { race: { goal } }),
    close: () => runner.close(),
  };
}
