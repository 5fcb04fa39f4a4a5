/**
 * @file Judges one kernel here: C++ is measured on this machine's CPU, any other language runs under emulation.
 *
 *     await judgeKernel(conv1d, kernel)        { status: "ok", median: 3.1e-6, ... }                     C++ for this CPU
 *     await judgeKernel(conv1d, kernel)        { status: "emulated", log: "every element right ..." }    any other language
 */

import type { Computation } from "../../abstraction/computation.ts";
import { EnvironmentError } from "../../abstraction/error.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import { cacheFolder } from "../../runtime/cache.ts";
import { findCompiler } from "../../runtime/compiler.ts";
import { emulatedVerdict } from "../../runtime/emulated-verdict.ts";
import { createRunner } from "../../runtime/measure.ts";
import { referenceFor } from "../../runtime/reference/verify.ts";
import { closedBy } from "../../runtime/until.ts";
import { checkEmulatedMemory } from "../tune/memory.ts";

const INPUT_SEED = 1;

/** Options of {@link judgeKernel}. */
export interface JudgeKernelOptions {
  /** Threads of a C++ kernel, as its schedule names them; 1 by default. An emulation runs on one. */
  readonly threads?: number;
  /** Ends what is drawn, compiled and run. */
  readonly signal?: AbortSignal;
}

/**
 * Runs a kernel on random and on extreme inputs and compares every element of its output with the equation.
 * @returns `ok` with the times where this CPU ran it, `emulated` where every element is right under emulation, or how it failed
 * @throws EnvironmentError without a C++ compiler, UsageError for tensors that an emulation cannot hold, Error if aborted
 */
export async function judgeKernel(
  computation: Computation,
  kernel: Kernel,
  { threads = 1, signal }: JudgeKernelOptions = {},
): Promise<Measurement> {
  if (kernel.language === "c++") return measured(computation, kernel, threads, signal);
  checkEmulatedMemory(computation);
  const compiler = await findCompiler();
  if (compiler.status === "environment") throw new EnvironmentError(compiler);
  const reference = await referenceFor(computation, INPUT_SEED, { compiler, workdir: cacheFolder("runtime"), signal });
  return emulatedVerdict(kernel, reference, { signal });
}

async function measured(
  computation: Computation,
  kernel: Kernel,
  threads: number,
  signal: AbortSignal | undefined,
): Promise<Measurement> {
  const made = await createRunner({ threads });
  if (made.status === "environment") throw new EnvironmentError(made);
  const { runner } = made;
  const release = closedBy(signal, runner);
  try {
    return await runner.measure(kernel, await runner.reference(computation, INPUT_SEED));
  } finally {
    release();
    await runner.close();
  }
}
