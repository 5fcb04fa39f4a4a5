/** @file A compiler and runners of this machine. Nothing is skipped: a test fails where there is none. */

import { type Compiler, findCompiler } from "../../runtime/compiler.ts";
import { createRunner, type Runner, type RunnerOptions } from "../../runtime/measure.ts";
import { type CudaRunner, createCudaRunner } from "../../runtime/run/cuda.ts";

type Made<T> = { readonly status: "ready"; readonly runner: T } | Problem;
interface Problem {
  readonly status: "environment";
  readonly what: string;
  readonly remedy: string;
}

function ready<T>(made: Made<T>): T {
  if (made.status === "environment") throw new Error(`${made.what}: ${made.remedy}`);
  return made.runner;
}

export const runnerHere = async (options?: RunnerOptions): Promise<Runner> => ready(await createRunner(options));

export const emulatedGpu = async (): Promise<CudaRunner> => ready(await createCudaRunner({ emulated: true }));

export async function compilerHere(): Promise<Compiler> {
  const found = await findCompiler();
  if (found.status === "environment") throw new Error(`${found.what}: ${found.remedy}`);
  return found;
}
