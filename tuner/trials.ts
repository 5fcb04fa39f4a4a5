/**
 * @file Trials of a search, and the choice of the winner. A failed trial never wins.
 *
 * The **leader** is the trial with the lowest median. Trials whose 95 % intervals overlap with the leader's tie with it, and the
 * three of them with the lowest medians are the **finalists**. Among finalists the shorter prediction wins, then the key that sorts
 * first; a trial that the model could not predict comes last.
 *
 *     |--a--|                         a leads, b ties with it, c does not
 *         |----b----|                 b wins if the model expected it to be faster than a
 *                |--c--|
 *
 * A trial that ran while another process used the machine looks slow, in some or all of its samples. **Contenders** are therefore measured again
 * together with the finalists: trials that were at least once faster than the leader's median, and trials for which the model, corrected by all
 * others, predicts it.
 */

import type { Measurement, Trial } from "../abstraction/trial.ts";

/** A trial of any kind of candidate; `TrialOf<Candidate>` is a `Trial`. */
export interface TrialOf<C> extends Omit<Trial, "candidate"> {
  readonly key: string;
  readonly candidate: C;
}

/** A measurement with times. */
type TimedMeasurement = Extract<Measurement, { status: "ok" }>;
/** A trial, or a record of one, that worked. */
export type Timed<T> = T & { readonly measurement: TimedMeasurement };

/** Most finalists. */
const FINALISTS = 3;

/** The median of a run that worked; undefined for others. */
export function secondsOf(trial: Pick<Trial, "measurement">): number | undefined {
  return trial.measurement.status === "ok" ? trial.measurement.median : undefined;
}

/** The trials that tie with the leader, the winner first; empty when every run failed. */
export function finalistsOf<C>(trials: readonly TrialOf<C>[]): TrialOf<C>[] {
  const fastestFirst = trials
    .filter(isTimed)
    .sort((a, b) => a.measurement.median - b.measurement.median || byRule(a, b));
  const [leader] = fastestFirst;
  if (!leader) return [];
  return fastestFirst
    .filter((trial) => overlap(trial.measurement.interval, leader.measurement.interval))
    .slice(0, FINALISTS)
    .sort(byRule);
}

/** All runs that worked: the finalists in their order, then the others, shortest median first. */
export function rankingOf<C>(trials: readonly TrialOf<C>[]): TrialOf<C>[] {
  const finalists = finalistsOf(trials);
  const others = trials.filter(isTimed).filter((trial) => !finalists.some((f) => f.key === trial.key));
  return [...finalists, ...others.sort((a, b) => a.measurement.median - b.measurement.median || byRule(a, b))];
}

/** Trials of each kind that get a second chance. */
const SECOND_CHANCES = 3;

/**
 * The finalists, then at most {@link SECOND_CHANCES} trials whose fastest sample, and as many whose prediction, is below the leader's median,
 * the most promising first.
 */
export function contendersOf<C>(
  trials: readonly TrialOf<C>[],
  expected: (candidate: C) => number | undefined,
): TrialOf<C>[] {
  const contenders = finalistsOf(trials);
  const timed = trials.filter(isTimed);
  const goal = Math.min(...timed.map((t) => t.measurement.median));
  const hopes = [
    (trial: Timed<TrialOf<C>>) => Math.min(...trial.measurement.samples),
    (trial: Timed<TrialOf<C>>) => expected(trial.candidate) ?? goal,
  ];
  for (const hopeOf of hopes) {
    const others = timed
      .filter((trial) => !contenders.some((c) => c.key === trial.key))
      .map((trial) => ({ trial, hope: hopeOf(trial) }))
      .filter(({ hope }) => hope < goal)
      .sort((a, b) => a.hope - b.hope || inOrder(a.trial.key, b.trial.key));
    contenders.push(...others.slice(0, SECOND_CHANCES).map(({ trial }) => trial));
  }
  return contenders;
}

export function isTimed<T extends Pick<Trial, "measurement">>(trial: T): trial is Timed<T> {
  return trial.measurement.status === "ok";
}

function overlap(a: TimedMeasurement["interval"], b: TimedMeasurement["interval"]): boolean {
  return a[0] <= b[1] && b[0] <= a[1];
}

function byRule<C>(a: TrialOf<C>, b: TrialOf<C>): number {
  if (a.prediction && b.prediction && a.prediction.seconds !== b.prediction.seconds)
    return a.prediction.seconds - b.prediction.seconds;
  if (!a.prediction !== !b.prediction) return a.prediction ? -1 : 1;
  return inOrder(a.key, b.key);
}

/** Compares texts by code unit, the same in every locale. */
export function inOrder(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
