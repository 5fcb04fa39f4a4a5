/** @file A search whose kernels take times that their texts decide, at home or in a fleet, and what is compared of it. */

import type { Measurement } from "../../abstraction/trial.ts";
import { usableIntrinsics } from "../../session/kinds/choose.ts";
import { type TuneComputationOptions, type TuneOutcome, tuneComputation } from "../../session/tune/tune.ts";
import { nativeTarget } from "../../targets/index.ts";
import { random } from "../../tuner/random.ts";
import { type FakeTimes, shareOf, took } from "./fake-runner.ts";
import { operation } from "./subjects.ts";

const matmul = operation("matmul m=32 n=32 k=32");

/** A few instructions: a search among all of them enumerates for a second. */
const SOME = usableIntrinsics(nativeTarget()).slice(0, 2);

/** What a kernel takes is decided by its text. */
export const BY_TEXT: FakeTimes = {
  alone: (kernel) => took((10 + shareOf(kernel)) * 1e-6),
  inTurns: (kernels) => kernels.map((kernel) => took((10 + shareOf(kernel)) * 1e-6, 0.001)),
};

export type Found = Extract<TuneOutcome, { trials: unknown }>;

/** A search that draws blindly, which is the cheapest, unless another strategy is asked for. */
export async function searched(database: string, options: Partial<TuneComputationOptions>): Promise<Found> {
  const outcome = await tuneComputation(
    { computation: matmul },
    {
      machine: nativeTarget(),
      trials: 10,
      seconds: 120,
      kinds: "mappings",
      strategy: random,
      intrinsics: SOME,
      seed: 3,
      ...options,
      database,
    },
  );
  if (!("trials" in outcome)) throw new Error(JSON.stringify(outcome));
  return outcome;
}

const withoutWorker = ({ worker: _, ...measured }: Measurement): object => measured;

/** A search without its times of day and without who measured. */
export const decisionsOf = ({ trials, best }: Found): object => ({
  trials: trials.map(({ at: _, measurement, ...trial }) => ({ ...trial, measurement: withoutWorker(measurement) })),
  best: best && { candidate: best.candidate, measurement: withoutWorker(best.measurement), source: best.kernel.source },
});
