/**
 * @file Ranks the kernels of a computation by the model alone. Nothing is compiled or measured.
 *
 *     rankByModel(conv2d, { machine: nvidiaTarget("h100"), count: 1 })         the kernel expected to be the fastest, or why nothing maps
 */

import type { Candidate } from "../../abstraction/candidate.ts";
import { sortedBy } from "../../abstraction/collections.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { checkNames } from "../../abstraction/error.ts";
import { levelOf, type Target } from "../../abstraction/machine.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { finished, inSlices, type Step, type Steps } from "../../abstraction/steps.ts";
import type { Prediction } from "../../abstraction/trial.ts";
import type { Calibration } from "../../perfmodel/calibrate.ts";
import { following } from "../../runtime/until.ts";
import { isPredictedOnly, nativeTarget } from "../../targets/index.ts";
import { chooseSpace, usableIntrinsics } from "../kinds/choose.ts";
import type { Reason } from "../kinds/session-space.ts";
import type { TuneComputationOptions } from "./tune.ts";

/** A candidate with the model's prediction for it. */
export interface Expected {
  readonly computation: Computation;
  readonly candidate: Candidate;
  /** Undefined for a lane design. */
  readonly mapping: Mapping | undefined;
  readonly prediction: Prediction;
}

/** Default number of threads that share a kernel: all engines of a GPU whose schedules divide the work among threads, else one. */
export const enginesOf = (machine: Target): number => (isPredictedOnly(machine) ? levelOf(machine, "core").units : 1);

/** Candidates drawn when nothing is measured. */
const MODEL_DRAWS = 2000;
const DRAWS_A_STEP = 20;
/** Longest wait, after a stop, for a first candidate to rank. */
const PATIENCE_MS = 500;

/** Options of a ranking by the model. */
export interface RankOptions
  extends Pick<TuneComputationOptions, "intrinsics" | "machine" | "threads" | "seed" | "kinds"> {
  /** Largest number of candidates to return; 10 by default. */
  readonly count?: number;
}

/** Candidates in order of predicted time, shortest first; or why nothing maps. */
export type Ranking = readonly Expected[] | { readonly refused: readonly Reason[] };

const OPTIONS = { intrinsics: true, machine: true, threads: true, seed: true, kinds: true, count: true } as const;

/**
 * Ranks candidates by the model alone, with the reference machine's rates. It needs no compiler, and nothing is measured.
 * @returns at most `count` candidates, shortest predicted time first; or why nothing maps
 */
export function rankByModel(computation: Computation, options: RankOptions = {}): Ranking {
  checkNames(options, OPTIONS, "rankByModel");
  return rankOf(computation, options, MODEL_DRAWS);
}

/** Rates measured on the machine instead of the reference machine's. */
interface Calibrated {
  readonly calibration?: Calibration | undefined;
}

/** The same with the given number of draws, and with this machine's rates where they are known. */
export const rankOf = (computation: Computation, options: RankOptions & Calibrated, draws: number): Ranking =>
  finished(rankInSteps(computation, options, draws));

/** What ends a ranking early. */
export interface RankInTimeOptions extends RankOptions {
  /** Time limit in seconds from the call on; unlimited when left out. */
  readonly seconds?: number;
  /** Ends the ranking too. */
  readonly signal?: AbortSignal;
}

/**
 * {@link rankByModel} in slices, yielding to the event loop between them, until the time is up or the signal is aborted.
 * @returns the ranking and, if it was cut short, its progress; candidates not reached are not ranked
 * @throws the signal's reason when there was still nothing to rank half a second after the abort
 */
export async function rankByModelInTime(
  computation: Computation,
  { seconds = Number.POSITIVE_INFINITY, signal, ...options }: RankInTimeOptions = {},
): Promise<{ readonly ranking: Ranking; readonly cut: Step | undefined }> {
  checkNames(options, OPTIONS, "rankByModelInTime");
  const ends = Date.now() + 1000 * seconds;
  const late = signal && following(signal, PATIENCE_MS);
  try {
    const { value, cut } = await inSlices(rankInSteps(computation, options), {
      isEnough: () => signal?.aborted === true || Date.now() > ends,
      signal: late?.signal,
    });
    return { ranking: value, cut: cut?.at };
  } finally {
    late?.letGo();
  }
}

function* rankInSteps(
  computation: Computation,
  options: RankOptions & Calibrated,
  draws = MODEL_DRAWS,
): Steps<Ranking> {
  const { seed = 1, count = 10, kinds = "all", machine = nativeTarget(), calibration } = options;
  const threads = options.threads ?? enginesOf(machine);
  const offered = options.intrinsics ?? usableIntrinsics(machine);
  const found = yield* chooseSpace(computation, offered, { machine, threads, seed, kinds, calibration });
  if ("refused" in found) return found;
  const { space } = found;
  const random = seededRandom(seed);
  const drawn = new Map<string, Expected>();
  for (let i = 1; i <= draws; i++) {
    const candidate = space.random(random);
    const prediction = space.predict(candidate);
    if (prediction)
      drawn.set(space.key(candidate), { computation, candidate, mapping: space.mappingOf(candidate), prediction });
    if (i % DRAWS_A_STEP === 0 && (yield { what: "schedules", done: i, of: draws }) && drawn.size > 0) break;
  }
  return sortedBy(drawn.values(), (a) => a.prediction.seconds).slice(0, count);
}
