/**
 * @file The finals of a search: its fastest kernels are measured in alternating batches in one process, and the outcome is recorded.
 *
 *     by itself    a 10.0 us   b 10.2 us   c 10.1 us            measured minutes apart
 *     in finals    b 10.1 us   a 10.6 us   c 10.7 us            b is used, and `db best` and `emit` take b
 *
 * The best kernel that the database holds of this computation in this world takes part: so finals decide over everything that was
 * measured before them, and a search never ends with less than was known. Where finals are cut short it ends with what `db best` names and
 * `emit` takes: the fastest that is recorded, as it was measured then.
 */

import { type Candidate, type CandidateKinds, candidateKey, isMapped } from "../../abstraction/candidate.ts";
import { namesOf, withName } from "../../abstraction/collections.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { attempt, faultOf, internal, type MachineFault } from "../../abstraction/error.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import type { Target } from "../../abstraction/machine.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import type { Measurement, Prediction } from "../../abstraction/trial.ts";
import {
  best,
  type Conditions,
  type Database,
  type Environment,
  type Finals,
  idOf,
  type NewTrial,
  recordTrial,
  type TrialRecord,
  trialId,
  type Workload,
} from "../../db/index.ts";
import { isDoneBefore } from "../../runtime/until.ts";
import { gpuTargetNamed } from "../../targets/index.ts";
import { rankingOf, type TrialOf } from "../../tuner/trials.ts";
import { kernelFor } from "../kinds/kernel.ts";
import type { SessionSpace } from "../kinds/session-space.ts";
import { mappingOf } from "../recorded.ts";
import type { Bench } from "./workplace.ts";

/** The winner of a search: its record, code and time. */
export interface TunedKernel {
  /** Id of its finals record, also when that record could not be written; id of its trial when the finals were cut short. */
  readonly id: string;
  /** What it computes. */
  readonly computation: Computation;
  /** How it is computed. */
  readonly candidate: Candidate;
  /** Undefined for a lane design. */
  readonly mapping: Mapping | undefined;
  /** Its measurement in the finals, or its own trial's when they were cut short. */
  readonly measurement: Extract<Measurement, { status: "ok" }>;
  /** The model's prediction. */
  readonly prediction: Prediction | undefined;
  /** The generated kernel. */
  readonly kernel: Kernel;
}

/** A search that has finished and now goes to finals. */
interface Finished {
  readonly db: Database;
  readonly workload: Workload;
  readonly environment: Environment;
  readonly run: string;
  readonly space: Pick<SessionSpace, "kernelOf" | "mappingOf">;
  readonly threads: number;
  /** State of the caches in which its kernels are measured. */
  readonly cache: Conditions["cache"];
  readonly kinds: CandidateKinds;
  /** Instructions that the search could choose from. */
  readonly offered: readonly Intrinsic[];
  /** Whether to measure again; true by default. Otherwise the fastest recorded kernel wins. */
  readonly finals?: boolean;
}

export interface Decided {
  /** Undefined when there is nothing to measure, or no contender works any more. */
  readonly winner?: TunedKernel;
  /** The fault that kept the finals from being recorded. Their outcome is still valid, but no record has it. */
  readonly unrecorded?: MachineFault;
  /** Set when the finals were cut short: the winner is then the fastest recorded kernel. */
  readonly isCut?: true;
}

interface Deciding {
  readonly now: () => number;
  /** Called with how many kernels are checked. */
  readonly onDone?: (done: number, of: number) => void;
  /** Ends the finals; nothing is waited for after it. */
  readonly late?: AbortSignal;
}

/** Measures the contenders and the best kernel known so far in alternating batches, records each, and returns the winner. */
export async function decide(
  contenders: readonly TrialOf<Candidate>[],
  search: Finished,
  bench: Pick<Bench, "compare">,
  { now, onDone, late }: Deciding,
): Promise<Decided> {
  // 1. The participants.
  const { computation } = search.workload;
  const machine = gpuTargetNamed(search.environment.target);
  const own = contenders.map((trial) => entrantOf(trial, search.space));
  if (search.finals === false) return fastestKnown(own, search);
  const entrants = [
    ...own,
    ...reigning(contenders, search).flatMap((trial) => recordedEntrant(trial, computation, machine)),
  ];
  if (entrants.length === 0) return {};

  // 2. Alternating batches.
  const kernels = entrants.map(({ kernel }) => kernel);
  onDone?.(0, kernels.length);
  const measuring = late?.aborted ? undefined : bench.compare(kernels, (done) => onDone?.(done, kernels.length));
  if (!measuring || !(await isDoneBefore(measuring, late))) return { isCut: true, ...fastestKnown(own, search) };
  const measurements = await measuring;
  const at = Math.max(now(), ...entrants.map(({ trial }) => trial.at + 1));
  const judged = entrants.map(({ trial, kernel, mapping }, i) => {
    const measurement = measurements[i] ?? internal("a kernel of the finals has no answer");
    return { ...trial, at, measurement, kernel, mapping };
  });

  // 3. The outcome.
  const ranking = rankingOf(judged).map(({ key }) => key);
  const comparison = idOf({ run: search.run, at, candidates: judged.map(({ key }) => key) });
  let decided: Decided = {};
  for (const trial of judged) {
    const place = ranking.indexOf(trial.key) + 1;
    const final = finalOf(trial, { comparison, place: place || undefined }, search);
    const unrecorded = faultOf(() => recordTrial(search.db, final));
    if (unrecorded) decided = { ...decided, unrecorded };
    const { candidate, measurement, prediction, kernel, mapping } = trial;
    if (place !== 1 || measurement.status !== "ok") continue;
    const id = trialId(final);
    decided = { ...decided, winner: { id, computation, candidate, mapping, measurement, prediction, kernel } };
  }
  return decided;
}

/** The record `db best` names, of this search or an earlier one, with the time measured then. */
function fastestKnown(own: readonly Entrant[], search: Finished): Pick<Decided, "winner"> {
  const { computation } = search.workload;
  for (const record of recordedBest(search).filter((t) => t.conditions.cache === search.cache)) {
    const key = candidateKey(record.candidate);
    const entrant =
      own.find(({ trial }) => trial.key === key) ??
      recordedEntrant({ ...record, key }, computation, gpuTargetNamed(search.environment.target))[0];
    const { id, candidate, measurement, prediction } = record;
    if (!entrant || measurement.status !== "ok") continue;
    const { kernel, mapping } = entrant;
    return { winner: { id, computation, candidate, mapping, measurement, prediction, kernel } };
  }
  return {};
}

interface Entrant {
  readonly trial: TrialOf<Candidate>;
  readonly kernel: Kernel;
  readonly mapping: Mapping | undefined;
}

function entrantOf(trial: TrialOf<Candidate>, space: Finished["space"]): Entrant {
  return { trial, kernel: space.kernelOf(trial.candidate), mapping: space.mappingOf(trial.candidate) };
}

/** A record as an entrant, with everything the search itself does not keep; empty when its mapping or design is no longer valid. */
function recordedEntrant(trial: TrialOf<Candidate>, computation: Computation, machine?: Target): Entrant[] {
  const { candidate } = trial;
  const found = attempt(() => {
    const mapping = isMapped(candidate) ? mappingOf(computation, candidate) : undefined;
    return { trial, kernel: kernelFor(computation, candidate, machine), mapping };
  });
  return found ? [found] : [];
}

/**
 * Kernels that challenge the contenders: the last winner, and the fastest not yet in any finals, such as one left by a search that was killed.
 * Contenders themselves are excluded. Kernels of imported records are not run without consent.
 */
function reigning(contenders: readonly TrialOf<Candidate>[], search: Finished): readonly TrialOf<Candidate>[] {
  const found = new Map<string, TrialOf<Candidate>>();
  for (const decided of [true, false])
    for (const known of recordedBest(search, decided)) {
      const key = candidateKey(known.candidate);
      found.set(key, { ...known, key });
    }
  for (const { key } of contenders) found.delete(key);
  return [...found.values()];
}

/**
 * Records of these instructions that were measured here, in this world, in any state of the caches. @param decided whether only records of finals
 * count
 */
function recordedBest(search: Finished, decided = false): readonly TrialRecord[] {
  const { db, workload, environment, offered, threads, kinds } = search;
  const filter = {
    computation: workload.computation,
    intrinsic: namesOf(offered),
    threads,
    trusted: { environment, intrinsics: offered, policy: "exact" },
  } as const;
  return best(db, filter, { kinds, decided });
}

function finalOf(
  { candidate, prediction, measurement, at }: TrialOf<Candidate>,
  finals: Finals,
  { workload, environment, run, threads, cache, offered }: Finished,
): NewTrial {
  const intrinsic = withName(offered, candidate.intrinsic);
  const conditions: Conditions = { threads, cache };
  return {
    workload,
    environment,
    run,
    trial: { candidate, prediction, measurement, at },
    conditions,
    finals,
    ...(intrinsic ? { intrinsic } : {}),
  };
}
