/**
 * @file Evaluates how well predictions rank measurements, in the way AMOS evaluates its model (ISCA 2022, section 7.2, and its
 * tests/python/auto_tensorize/tenet/validate_conv2d_cuda_perf_model_fp16.py).
 *
 *     measured 1 2 3   predicted 10 30 20     2 and 3 are swapped: 4 of 6 ordered pairs agree, 7 of 9 with the diagonal
 *
 * AMOS reports 85.69 % pairwise accuracy and 91.4 % recall of the top 40 %, and counts the diagonal, which always agrees.
 */

import { groupsOf, sortedBy, sumOf, unique } from "../abstraction/collections.ts";
import type { Prediction, Trial } from "../abstraction/trial.ts";
import { secondsOf } from "./trials.ts";

export interface Judged {
  readonly predicted: number;
  readonly measured: number;
}

interface Evaluation {
  readonly count: number;
  /** Fraction of the ordered pairs that prediction and measurement order the same way; undefined for fewer than two trials. */
  readonly pairwise: number | undefined;
  /** The same including each trial paired with itself, as published. */
  readonly pairwisePublished: number | undefined;
  /** Fraction of the fastest 40 % that are among the 40 % predicted fastest. */
  readonly recall: number | undefined;
}

/** The fraction that `recall` considers. */
const TOP = 0.4;

/** For each run that worked, the prediction at the time it was proposed, before its result could correct the model. */
export function judged(
  trials: readonly Pick<Trial, "prediction" | "measurement">[],
  which: keyof Pick<Prediction, "seconds" | "uncorrectedSeconds"> = "seconds",
): Judged[] {
  return trials.flatMap((trial) => {
    const measured = secondsOf(trial);
    return measured === undefined || !trial.prediction ? [] : [{ predicted: trial.prediction[which], measured }];
  });
}

export function evaluate(pairs: readonly Judged[]): Evaluation {
  return {
    count: pairs.length,
    pairwise: pairwiseAccuracy(pairs),
    pairwisePublished: pairwiseAccuracy(pairs, { diagonal: true }),
    recall: topRecall(pairs),
  };
}

/**
 * The same over several workloads. Pairs are formed only within a workload, since ranking one shape as slower than another is trivial. Pairwise
 * accuracy weights workloads by their pairs, recall by their trials; those with a single trial do not count.
 */
export function evaluateTogether(workloads: readonly (readonly Judged[])[]): Evaluation {
  const parts = workloads.filter((pairs) => pairs.length >= 2).map(evaluate);
  const mean = (
    of: "pairwise" | "pairwisePublished" | "recall",
    weight: (count: number) => number,
  ): number | undefined => {
    const total = sumOf(parts, (p) => weight(p.count));
    return total === 0 ? undefined : sumOf(parts, (p) => weight(p.count) * (p[of] ?? 0)) / total;
  };
  return {
    count: sumOf(parts, (p) => p.count),
    pairwise: mean("pairwise", (n) => n * (n - 1)),
    pairwisePublished: mean("pairwisePublished", (n) => n * n),
    recall: mean("recall", (n) => n),
  };
}

/** Fraction of the ordered pairs (i, j) for which `measured i < measured j` and `predicted i < predicted j` are both true or both false. */
export function pairwiseAccuracy(pairs: readonly Judged[], { diagonal = false } = {}): number | undefined {
  const count = pairs.length;
  const others = count * (count - 1);
  const total = diagonal ? count ** 2 : others;
  if (total === 0) return undefined;
  const rising = risingPairs(pairs);
  const measured = pairsApart(pairs.map((pair) => pair.measured));
  const predicted = pairsApart(pairs.map((pair) => pair.predicted));
  // Both are true of the rising pairs; both are false of those left when the pairs of either kind are taken away, the rising ones once too often.
  const agree = 2 * rising + others - measured - predicted;
  return (agree + (diagonal ? count : 0)) / total;
}

/** Number of pairs (i, j) with value i < value j. */
function pairsApart(values: readonly number[]): number {
  const equal = sumOf(groupsOf(values, (value) => value).values(), (same) => same.length ** 2);
  return (values.length ** 2 - equal) / 2;
}

/** Number of pairs (i, j) with measured i < measured j and predicted i < predicted j, in n log n steps. */
function risingPairs(pairs: readonly Judged[]): number {
  const predicted = unique(pairs.map((pair) => pair.predicted)).sort(byValue);
  const ranks = new Map(predicted.map((value, i) => [value, i + 1]));
  // A Fenwick tree: each place counts the predictions met so far of a range of ranks that ends there.
  const counts = new Array<number>(ranks.size + 1).fill(0);
  let rising = 0;
  for (const [, same] of [...groupsOf(pairs, (pair) => pair.measured)].sort(([a], [b]) => a - b)) {
    const own = same.map((pair) => ranks.get(pair.predicted) ?? 0);
    for (const rank of own) {
      for (let at = rank - 1; at > 0; at -= at & -at) rising += counts[at] ?? 0;
    }
    for (const rank of own) {
      for (let at = rank; at <= ranks.size; at += at & -at) counts[at] = (counts[at] ?? 0) + 1;
    }
  }
  return rising;
}

const byValue = (a: number, b: number): number => a - b;

/**
 * Fraction of the k fastest that are among the k predicted fastest, where k is {@link TOP} of all, rounded, at least 1. Trials that share the k-th
 * place count in part, as if lots were drawn: a model that predicts the same time for all gets a recall of k/n.
 */
export function topRecall(pairs: readonly Judged[]): number | undefined {
  if (pairs.length === 0) return undefined;
  const k = Math.min(pairs.length, Math.max(1, Math.round(TOP * pairs.length)));
  const predicted = amongFirst(
    pairs.map((pair) => pair.predicted),
    k,
  );
  const measured = amongFirst(
    pairs.map((pair) => pair.measured),
    k,
  );
  return sumOf(pairs, (pair) => predicted(pair.predicted) * measured(pair.measured)) / k;
}

/** How many times as long as the fastest the best of the `tried` that are predicted fastest takes; undefined where there is none. */
export function lossOf(pairs: readonly Judged[], tried: number): number | undefined {
  const best = (of: readonly Judged[]): number => Math.min(...of.map(({ measured }) => measured));
  const ranked = sortedBy(pairs, (a) => a.predicted);
  return pairs.length === 0 ? undefined : best(ranked.slice(0, tried)) / best(pairs);
}

/** The probability that a value is among the `k` lowest: 1, 0, or a fraction for equal values that share the last places. */
function amongFirst(values: readonly number[], k: number): (value: number) => number {
  const shares = new Map<number, number>();
  let lower = 0;
  for (const [value, { length }] of [...groupsOf(values, (each) => each)].sort(([a], [b]) => a - b)) {
    shares.set(value, Math.min(1, Math.max(0, (k - lower) / length)));
    lower += length;
  }
  return (value) => shares.get(value) ?? 0;
}
