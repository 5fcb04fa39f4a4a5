/**
 * @file Transfer from records of similar computations: their fastest schedules, where these are valid for this computation.
 *
 *     conv2d c 64 h 56 k 64, bias, relu             block k 2, q 14; ...   968 us     recorded
 *     conv2d c 64 h 56 k 64, bias, add, relu        block k 2, q 14; ...              measured first
 */

import { type Candidate, candidateKey } from "../abstraction/candidate.ts";
import { type Computation, computationKey, extentsOf } from "../abstraction/computation.ts";
import { printEquation } from "../abstraction/equation.ts";
import type { Mapping } from "../abstraction/mapping.ts";
import { computationOf, type Database, type Environment, queryTrials, type TrialRecord } from "../db/index.ts";
import { scheduleProblem } from "../mapper/schedule/mapped.ts";
import { secondsOf } from "../tuner/trials.ts";
import type { SessionSpace } from "./session-space.ts";

/** Transferred schedules to try. A choice rather than a tuned value: half of a round of eight. */
const MOST_TRANSFERRED = 4;
/** Records looked at of each computation. One measured again in finals counts twice. */
const TOP = 6;
/** Schedules taken of each computation: those of the same one differ little. */
const EACH = 2;
/** How much slower than the fastest of its computation a schedule may be. A short search may have found one good schedule only, or none. */
const SLOWER = 1.2;
/** Distance of another equation, such as one with a stride: that of sizes four times as large. */
const EQUATION_APART = 2;

interface Sought {
  readonly computation: Computation;
  readonly environment: Environment;
  readonly threads: number;
}

/** Records made here of other computations, the most similar first, whose schedules are valid for this one; each schedule once. */
export function nearRecords(
  db: Database,
  { computation, environment, threads }: Sought,
  space: SessionSpace,
): readonly TrialRecord[] {
  const trusted = { environment, intrinsics: space.intrinsics, policy: "exact" } as const;
  const own = computationKey(computation);
  const least = new Map<string, number>();
  const near = queryTrials(db, { threads, trusted, status: "ok", top: TOP })
    .flatMap((trial) => {
      const other = computationOf(trial.workload);
      const of = computationKey(other);
      const seconds = secondsOf(trial);
      if (trial.provenance !== "here" || of === own || seconds === undefined) return [];
      const distance = distanceBetween(computation, other);
      if (distance === undefined) return [];
      least.set(of, Math.min(seconds, least.get(of) ?? seconds));
      return [{ trial, of, seconds, distance }];
    })
    .filter(({ of, seconds }) => seconds <= SLOWER * (least.get(of) ?? seconds))
    .sort((a, b) => a.distance - b.distance || a.seconds - b.seconds);
  const fitting = new Map<string, TrialRecord>();
  const taken = new Map<string, number>();
  for (const { trial, of } of near) {
    if (fitting.size === MOST_TRANSFERRED) break;
    const [key, times] = [candidateKey(trial.candidate), taken.get(of) ?? 0];
    if (times === EACH || fitting.has(key) || !fits(trial.candidate, space)) continue;
    fitting.set(key, trial);
    taken.set(of, times + 1);
  }
  return [...fitting.values()];
}

/** The space with candidates that a guided strategy measures first, in turns with those that the model prefers. */
export function seededBy(space: SessionSpace, candidates: readonly Candidate[]): SessionSpace {
  return { ...space, transferred: candidates };
}

/** Distance between sizes, in doublings summed over all axes; undefined when the axes differ. */
function distanceBetween(a: Computation, b: Computation): number | undefined {
  const [own, other] = [extentsOf(a), extentsOf(b)];
  const names = Object.keys(own);
  if (names.length !== Object.keys(other).length || !names.every((name) => Object.hasOwn(other, name)))
    return undefined;
  const doublings = names.reduce((sum, name) => sum + Math.abs(Math.log2((own[name] ?? 1) / (other[name] ?? 1))), 0);
  return doublings + (printEquation(a.equation) === printEquation(b.equation) ? 0 : EQUATION_APART);
}

/** Whether a mapping of the space has this schedule. */
function fits(candidate: Candidate, space: SessionSpace): boolean {
  if (candidate.kind !== undefined) return false;
  const mapping = mappingIn(space, candidate);
  return mapping !== undefined && scheduleProblem(mapping, candidate.schedule) === undefined;
}

function mappingIn(space: SessionSpace, candidate: Candidate): Mapping | undefined {
  try {
    return space.mappingOf(candidate);
  } catch {
    // A space throws when given a candidate of another.
    return undefined;
  }
}
