/**
 * @file Ranks the kernels of a computation by the model alone: nothing is compiled or measured.
 *
 *     rankByModel(conv2d, { machine: nvidiaTarget("h100"), count: 1 })         the kernel expected to be the fastest, or why nothing maps
 */

import type { Candidate } from "../abstraction/candidate.ts";
import type { Computation } from "../abstraction/computation.ts";
import { checkNames } from "../abstraction/error.ts";
import { levelOf, type Target } from "../abstraction/machine.ts";
import type { Mapping } from "../abstraction/mapping.ts";
import { seededRandom } from "../abstraction/random.ts";
import { finished } from "../abstraction/steps.ts";
import type { Prediction } from "../abstraction/trial.ts";
import { isPredictedOnly, nativeTarget } from "../targets/index.ts";
import { chooseSpace, usableIntrinsics } from "./choose.ts";
import type { Reason } from "./session-space.ts";
import type { TuneComputationOptions } from "./tune.ts";

/** A candidate and what the model expects of it. */
export interface Expected {
  readonly computation: Computation;
  readonly candidate: Candidate;
  /** Undefined for a design on lanes. */
  readonly mapping: Mapping | undefined;
  readonly prediction: Prediction;
}

/** Threads that share a kernel unless another number is asked for: all engines of a GPU whose threads are the schedule's. */
const enginesOf = (machine: Target): number => (isPredictedOnly(machine) ? levelOf(machine, "core").units : 1);

/** Candidates drawn when nothing is measured. */
const MODEL_DRAWS = 2000;

/** What a ranking by the model may be told. */
export interface RankOptions
  extends Pick<TuneComputationOptions, "intrinsics" | "machine" | "threads" | "seed" | "kinds"> {
  /** Candidates to return at most; 10 by default. */
  readonly count?: number;
}

const OPTIONS = { intrinsics: true, machine: true, threads: true, seed: true, kinds: true, count: true } as const;

/**
 * Ranks candidates by the model alone, with the reference machine's rates: no compiler is needed and nothing is measured.
 * @returns the shortest expected first, at most `count`; or why nothing maps
 */
export function rankByModel(
  computation: Computation,
  options: RankOptions = {},
): readonly Expected[] | { readonly refused: readonly Reason[] } {
  checkNames(options, OPTIONS, "rankByModel");
  const { seed = 1, count = 10, kinds = "all", machine = nativeTarget() } = options;
  const threads = options.threads ?? enginesOf(machine);
  const offered = options.intrinsics ?? usableIntrinsics(machine);
  const found = finished(chooseSpace(computation, offered, { machine, threads, seed, kinds }));
  if ("refused" in found) return found;
  const { space } = found;
  const random = seededRandom(seed);
  const drawn = new Map<string, Expected>();
  for (let i = 0; i < MODEL_DRAWS; i++) {
    const candidate = space.random(random);
    const prediction = space.predict(candidate);
    if (prediction)
      drawn.set(space.key(candidate), { computation, candidate, mapping: space.mappingOf(candidate), prediction });
  }
  return [...drawn.values()].sort((a, b) => a.prediction.seconds - b.prediction.seconds).slice(0, count);
}
