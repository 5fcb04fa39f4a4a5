/**
 * @file Decisions that correlate with time: the share of the variance of log time that each explains by itself.
 *
 *     decisionShares([{ seconds: 1e-4, decisions: [["tile m", "64"], ["stage", "2"]] }, ...])
 *     [{ name: "tile m", share: 0.61, trials: 60, values: [{ value: "128", trials: 21, best: 5e-5, ... }, ...] }, ...]
 *
 * The share is the epsilon squared of a one-way analysis of variance (Kelley 1935): eta squared minus what as many
 * values would explain by chance. A search samples unevenly and changes decisions together, so shares overlap, do not
 * add up to one, and do not show causes.
 */

import { ascending, groupsOf, sumOf, unique } from "../abstraction/collections.ts";

/** A successful trial. */
export interface Decided {
  /** Kind of the candidate. A decision is judged over the kinds that have it. */
  readonly kind: string;
  readonly seconds: number;
  readonly decisions: readonly (readonly [name: string, value: string])[];
}

export interface DecisionShare {
  readonly name: string;
  /** 0 to 1; undefined with too few trials for so many values. */
  readonly share: number | undefined;
  /** Successful trials of kinds that have the decision. */
  readonly trials: number;
  /** Numbers in ascending order, words by their median time. */
  readonly values: readonly DecisionValue[];
}

interface DecisionValue {
  readonly value: string;
  readonly trials: number;
  /** Seconds. */
  readonly best: number;
  readonly median: number;
}

/** The value of a decision that a candidate lacks. */
export const UNDECIDED = "none";
/** With fewer trials, or fewer trials a value, a share would be a guess. */
const FEWEST_TRIALS = 8;
const FEWEST_A_VALUE = 2;

/** Decisions with more than one value, the largest share first. */
export function decisionShares(trials: readonly Decided[]): DecisionShare[] {
  const usable = trials
    .filter(({ seconds }) => seconds > 0 && Number.isFinite(seconds))
    .map(({ kind, seconds, decisions }) => ({ kind, seconds, chosen: new Map([["kind", kind], ...decisions]) }));
  const names = unique(usable.flatMap(({ chosen }) => [...chosen.keys()]));
  return names
    .flatMap((name): DecisionShare[] => {
      const kinds = new Set(usable.flatMap(({ kind, chosen }) => (chosen.has(name) ? [kind] : [])));
      const own = usable.filter(({ kind }) => kinds.has(kind));
      const groups = [...groupsOf(own, ({ chosen }) => chosen.get(name) ?? UNDECIDED)].map(
        ([value, group]) => [value, group.map(({ seconds }) => seconds)] as const,
      );
      if (groups.length < 2) return [];
      const values = groups.map(([value, seconds]) => ({
        value,
        trials: seconds.length,
        best: Math.min(...seconds),
        median: middle(seconds),
      }));
      return [
        { name, share: shareOf(groups.map(([, seconds]) => seconds)), trials: own.length, values: inOrder(values) },
      ];
    })
    .sort((a, b) => (b.share ?? -1) - (a.share ?? -1) || (a.name < b.name ? -1 : 1));
}

/** Epsilon squared of log time, at least 0. */
function shareOf(groups: readonly (readonly number[])[]): number | undefined {
  const n = sumOf(groups, (group) => group.length);
  if (n < FEWEST_TRIALS || n < FEWEST_A_VALUE * groups.length) return undefined;
  const logs = groups.map((group) => group.map(Math.log));
  const mean = meanOf(logs.flat());
  const total = squares(logs.flat(), mean);
  if (total === 0) return undefined;
  const within = sumOf(logs, (group) => squares(group, meanOf(group)));
  return Math.max(0, 1 - ((within / total) * (n - 1)) / (n - groups.length));
}

const meanOf = (values: readonly number[]): number => sumOf(values) / values.length;
const squares = (values: readonly number[], mean: number): number => sumOf(values, (v) => (v - mean) ** 2);

function middle(values: readonly number[]): number {
  const sorted = ascending(values);
  return sorted[sorted.length >> 1] ?? 0;
}

/** Numbers in ascending order after missing values; words by their median time. */
function inOrder(values: readonly DecisionValue[]): DecisionValue[] {
  const size = ({ value }: DecisionValue): number => (value === UNDECIDED ? Number.NEGATIVE_INFINITY : Number(value));
  const numbers = values.every((v) => !Number.isNaN(size(v)));
  return values.toSorted((a, b) => (numbers ? Math.sign(size(a) - size(b)) : a.median - b.median));
}
