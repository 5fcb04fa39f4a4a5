/**
 * @file Measures a recorded trial again, here or in a fleet: regenerates its kernel from the record, then checks and times it as a search would.
 */

import { isOnGpu } from "../../abstraction/candidate.ts";
import { EnvironmentError, type EnvironmentProblem, internal } from "../../abstraction/error.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import type { TrialRecord, World } from "../../db/index.ts";
import type { FleetPlace } from "../../fleet/place.ts";
import { intrinsicNamed } from "../../intrinsics/index.ts";
import { createRunner, type Runner } from "../../runtime/measure.ts";
import { type CudaRunner, createCudaRunner } from "../../runtime/run/cuda.ts";
import { kernelOfRecord } from "../../session/kinds/kernel.ts";
import { measureRecorded, measureRecordedOnGpu, subjectOf } from "../../session/package/imported.ts";
import { type FleetWords, fleetEnvironments, fleetPlaceOf } from "../fleet-place.ts";
import type { Here } from "./here.ts";

/** Measures records of some worlds again. */
interface Remeasurer {
  readonly worlds: readonly World[];
  /** Which trials these worlds have, as the words behind their number. */
  readonly whose: string;
  readonly measure: (trial: TrialRecord) => Promise<Measurement>;
  readonly close: () => Promise<void>;
}

/**
 * Of this machine.
 * @param onWait called with what is waited for
 * @throws EnvironmentError when this machine cannot measure, naming what it lacks
 */
export async function remeasurer(here: Here, onWait: (text: string) => void): Promise<Remeasurer> {
  const world = await here();
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
    worlds: [world],
    whose: "of exactly this machine",
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

/** Of the machines of a fleet's workers, by these. */
export async function remeasurerInFleet(words: FleetWords, announce: (text: string) => void): Promise<Remeasurer> {
  const environments = await fleetEnvironments(words, announce);
  const places = new Map<string, FleetPlace>();
  const placeOf = async (environment: string): Promise<FleetPlace> => {
    const open = places.get(environment);
    if (open) return open;
    const place =
      (await fleetPlaceOf({ ...words, on: `environment is ${environment}` }, announce)) ??
      internal("a fleet has a place");
    places.set(environment, place);
    return place;
  };
  return {
    worlds: environments.map((environment) => ({ environment, intrinsics: intrinsicNamed })),
    whose: "of exactly the workers' machines",
    measure: async (trial) => {
      const place = await placeOf(trial.environment.id);
      return place.again(kernelOfRecord(trial), subjectOf(trial), trial.conditions);
    },
    close: async () => {
      for (const place of places.values()) await place.close();
    },
  };
}

function withoutIt(problem: EnvironmentProblem): EnvironmentError {
  return new EnvironmentError({ ...problem, remedy: `${problem.remedy}; without it, leave --remeasure out` });
}
