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
import { finished, inSlices, type Step, type Steps } from "../abstraction/steps.ts";
import type { Prediction } from "../abstraction/trial.ts";
import { following } from "../runtime/until.ts";
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
export const enginesOf = (machine: Target): number => (isPredictedOnly(machine) ? levelOf(machine, "core").units : 1);

/** Candidates drawn when nothing is measured. */
const MODEL_DRAWS = 2000;
const DRAWS_A_STEP = 20;
/** Who stops a ranking waits for something to rank no longer than this. */
const PATIENCE_MS = 500;

/** What a ranking by the model may be told. */
export interface RankOptions
  extends Pick<TuneComputationOptions, "intrinsics" | "machine" | "threads" | "seed" | "kinds"> {
  /** Candidates to return at most; 10 by default. */
  readonly count?: number;
}

/** The shortest expected first; or why nothing maps. */
export type Ranking = readonly Expected[] | { readonly refused: readonly Reason[] };

const OPTIONS = { intrinsics: true, machine: true, threads: true, seed: true, kinds: true, count: true } as const;

/**
 * Ranks candidates by the model alone, with the reference machine's rates: no compiler is needed and nothing is measured.
 * @returns the shortest expected first, at most `count`; or why nothing maps
 */
export function rankByModel(computation: Computation, options: RankOptions = {}): Ranking {
  checkNames(options, OPTIONS, "rankByModel");
  return rankOf(computation, options, MODEL_DRAWS);
}

/** The same of so many candidates that are drawn. */
export const rankOf = (computation: Computation, options: RankOptions, draws: number): Ranking =>
  finished(rankInSteps(computation, options, draws));

/** What ends a ranking before it is done. */
export interface RankInTimeOptions extends RankOptions {
  /** From the call on; as long as it takes when left out. */
  readonly seconds?: number;
  /** Ends it too. */
  readonly signal?: AbortSignal;
}

/**
 * {@link rankByModel}, in slices with a turn of the event loop between them, until the time is up or the signal comes.
 * @returns the ranking; and where it was cut, how far it had come: what was not looked at is not ranked
 * @throws the reason of the signal when there was nothing to rank half a second after it
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

function* rankInSteps(computation: Computation, options: RankOptions, draws = MODEL_DRAWS): Steps<Ranking> {
  const { seed = 1, count = 10, kinds = "all", machine = nativeTarget() } = options;
  const threads = options.threads ?? enginesOf(machine);
  const offered = options.intrinsics ?? usableIntrinsics(machine);
  const found = yield* chooseSpace(computation, offered, { machine, threads, seed, kinds });
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
  return [...drawn.values()].sort((a, b) => a.prediction.seconds - b.prediction.seconds).slice(0, count);
}
