/** @file Measures a recorded trial again: regenerates its kernel from the record, then checks and times it as a search would. */

import { isOnGpu } from "../../abstraction/candidate.ts";
import { EnvironmentError, type EnvironmentProblem } from "../../abstraction/error.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import type { TrialRecord } from "../../db/index.ts";
import { createRunner, type Runner } from "../../runtime/measure.ts";
import { type CudaRunner, createCudaRunner } from "../../runtime/run/cuda.ts";
import { measureRecorded, measureRecordedOnGpu } from "../../session/package/imported.ts";

/**
 * @param onWait called with what is waited for
 * @throws EnvironmentError when this machine cannot measure, naming what it lacks
 */
export async function remeasurer(onWait: (text: string) => void): Promise<{
  readonly measure: (trial: TrialRecord) => Promise<Measurement>;
  readonly close: () => Promise<void>;
}> {
  const runners = new Map<number, Runner>();
  const runnerOf = async (threads: number): Promise<Runner> => {
    const known = runners.get(threads);
    if (known) return known;
    const made = await createRunner({ threads, onWait });
    if (made.status === "environment") throw withoutIt(made);
    runners.set(threads, made.runner);
    return made.runner;
  };
  let gpu: CudaRunner | undefined;
  const runnerOnGpu = async (): Promise<CudaRunner> => {
    if (gpu) return gpu;
    const made = await createCudaRunner({ onWait });
    if (made.status === "environment") throw withoutIt(made);
    gpu = made.runner;
    return gpu;
  };
  return {
    measure: async (trial) => {
      const { threads, cache } = trial.conditions;
      return isOnGpu(trial.candidate)
        ? measureRecordedOnGpu(await runnerOnGpu(), trial, { cache })
        : measureRecorded(await runnerOf(threads), trial, { cache });
    },
    close: async () => {
      for (const runner of [...runners.values(), ...(gpu ? [gpu] : [])]) await runner.close();
    },
  };
}

function withoutIt(problem: EnvironmentProblem): EnvironmentError {
  return new EnvironmentError({ ...problem, remedy: `${problem.remedy}; without it, leave --remeasure out` });
}
