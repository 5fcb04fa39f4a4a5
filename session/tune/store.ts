/**
 * @file The database as a search uses it: earlier measurements made here are known, and each new trial is recorded.
 *
 *     storeIn(db, { workload, environment, run, space, threads: 1, cache: "warm" }).known(key)?.measurement
 */

import { type Candidate, candidateKey } from "../../abstraction/candidate.ts";
import { remembered } from "../../abstraction/collections.ts";
import {
  type Conditions,
  type Database,
  type Environment,
  recordTrial,
  type TrialRecord,
  trialsOf,
  type Workload,
} from "../../db/index.ts";
import type { TrialStore } from "../../tuner/search.ts";
import type { SessionSpace } from "../kinds/session-space.ts";

/** The search whose trials are stored. */
interface Searched {
  readonly workload: Workload;
  readonly environment: Environment;
  readonly run: string;
  readonly space: SessionSpace;
  readonly threads: number;
  readonly cache: Conditions["cache"];
}

/** The database as the search uses it: it knows the measurements made in exactly this world. */
export function storeIn(
  db: Database,
  { workload, environment, run, space, threads, cache }: Searched,
): TrialStore<Candidate> {
  // An imported record is a claim, and its kernel is not run without consent.
  const earlier = trialsOf(db, workload, environment, { intrinsics: space.intrinsics }).filter(
    (t) => t.conditions.threads === threads && t.conditions.cache === cache && t.provenance === "here",
  );
  return {
    ...storeOf(earlier),
    record: (trial) => {
      const intrinsic = space.intrinsicOf(trial.candidate);
      const { candidate, prediction, measurement, at } = trial;
      const conditions = { threads, cache };
      const made = { candidate, prediction, measurement, at };
      recordTrial(db, { workload, environment, run, intrinsic, trial: made, conditions });
    },
  };
}

/** The first record of each candidate, by its key. */
export function byCandidate(trials: readonly TrialRecord[]): Map<string, TrialRecord> {
  const found = new Map<string, TrialRecord>();
  for (const trial of trials) remembered(found, candidateKey(trial.candidate), () => trial);
  return found;
}

/** A store that knows earlier trials and records nothing. */
export function storeOf(earlier: readonly TrialRecord[]): TrialStore<Candidate> {
  const known = new Map(earlier.map((t) => [candidateKey(t.candidate), t]));
  return {
    known: (key) => known.get(key),
    recorded: () => earlier.map((t) => t.candidate),
    record: () => undefined,
  };
}
