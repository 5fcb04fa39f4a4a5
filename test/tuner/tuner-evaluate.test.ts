/** @file The accuracy of predictions, against cases worked out by hand. */

import { describe, expect, it } from "vitest";
import { seededRandom } from "../../abstraction/random.ts";
import {
  evaluate,
  evaluateTogether,
  type Judged,
  judged,
  lossOf,
  pairwiseAccuracy,
  topRecall,
} from "../../tuner/evaluate.ts";
import { failed, predicts, took } from "../support/fake-space.ts";

const pairs = (measured: readonly number[], predicted: readonly number[]): Judged[] =>
  measured.map((m, i) => ({ measured: m, predicted: predicted[i] ?? 0 }));

describe("pairwise accuracy", () => {
  it("is 1 for a perfect ranking and 0 for its reverse, whatever the scale", () => {
    expect(pairwiseAccuracy(pairs([1, 2, 3], [10, 20, 30]))).toBe(1);
    expect(pairwiseAccuracy(pairs([1, 2, 3], [30, 20, 10]))).toBe(0);
  });

  it("counts both orders of a swapped pair as wrong: 4 of 6, 7 of 9 with the diagonal", () => {
    const swapped = pairs([1, 2, 3], [10, 30, 20]);
    expect(pairwiseAccuracy(swapped)).toBe(4 / 6);
    expect(pairwiseAccuracy(swapped, { diagonal: true })).toBe(7 / 9);
  });

  it("counts half of a pair that only one side calls equal as wrong, none that both call equal", () => {
    expect(pairwiseAccuracy(pairs([1, 2], [5, 5]))).toBe(1 / 2);
    expect(pairwiseAccuracy(pairs([1, 1], [5, 5]))).toBe(1);
    expect(pairwiseAccuracy(pairs([1, 1], [5, 6]))).toBe(1 / 2);
  });

  it("has no value without a pair", () => {
    expect(pairwiseAccuracy([])).toBeUndefined();
    expect(pairwiseAccuracy(pairs([1], [1]))).toBeUndefined();
    expect(pairwiseAccuracy(pairs([1], [1]), { diagonal: true })).toBe(1);
  });
});

describe("the loss of a first choice", () => {
  it("is how many times as long as the fastest it takes, or the best of the first few", () => {
    const ranked = pairs([2, 3, 1, 4], [10, 30, 40, 20]);
    expect([1, 2, 3, 4, 9].map((tried) => lossOf(ranked, tried))).toEqual([2, 2, 2, 1, 1]);
    expect(lossOf([], 1)).toBeUndefined();
  });
});

describe("the accuracy on several workloads", () => {
  it("counts pairs within each workload, weighted by their number", () => {
    // 2 of 2 pairs, then 4 of 6; across them every pair would be right.
    const small = pairs([1, 2], [1, 2]);
    const large = pairs([100, 200, 300], [100, 300, 200]);
    expect(evaluateTogether([small, large]).pairwise).toBeCloseTo((2 + 4) / 8, 12);
    expect(evaluateTogether([small, large, pairs([7], [9])])).toEqual(evaluateTogether([small, large]));
    expect(evaluateTogether([small, large])).toMatchObject({ count: 5, recall: 1 });
  });

  it("has no value where no workload has a pair", () => {
    expect(evaluateTogether([pairs([1], [1]), []])).toMatchObject({ count: 0, pairwise: undefined, recall: undefined });
  });
});

describe("recall of the top 40 %", () => {
  it("looks at 2 of 5: the two fastest are predicted 1st and 4th, one of two", () => {
    expect(topRecall(pairs([1, 2, 3, 4, 5], [1, 40, 3, 30, 50]))).toBe(1 / 2);
  });

  it("is 1 when the set is right, in whatever order", () => {
    expect(topRecall(pairs([1, 2, 3, 4, 5], [2, 1, 9, 8, 7]))).toBe(1);
  });

  it("gives a model with equal predictions its average by chance: 2 of 5", () => {
    expect(topRecall(pairs([1, 2, 3, 4, 5], [7, 7, 7, 7, 7]))).toBeCloseTo(2 / 5, 12);
  });

  it("shares the last place among equal predictions: one certain and half of the second", () => {
    expect(topRecall(pairs([1, 2, 3, 4, 5], [1, 2, 2, 8, 9]))).toBe(0.75);
  });

  it("looks at one trial at least, and has no value for none", () => {
    expect(topRecall(pairs([1], [3]))).toBe(1);
    expect(topRecall(pairs([1, 2], [4, 3]))).toBe(0);
    expect(topRecall([])).toBeUndefined();
  });
});

describe("an evaluation", () => {
  it("takes the trials that worked and were predicted, and counts them", () => {
    const prediction = { ...predicts(2), uncorrectedSeconds: 7 };
    const trials = [
      { prediction, measurement: took(1) },
      { prediction, measurement: failed("crashed") },
      { prediction: undefined, measurement: took(3) },
    ];
    expect(judged(trials)).toEqual([{ predicted: 2, measured: 1 }]);
    expect(judged(trials, "uncorrectedSeconds")).toEqual([{ predicted: 7, measured: 1 }]);
    expect(evaluate(pairs([1, 2, 3], [10, 30, 20]))).toEqual({
      count: 3,
      pairwise: 4 / 6,
      pairwisePublished: 7 / 9,
      recall: 1,
    });
  });
});

describe("many trials", () => {
  const random = seededRandom(7);
  const drawn = (count: number, values: number): Judged[] =>
    Array.from({ length: count }, () => ({
      predicted: Math.floor(values * random()),
      measured: Math.floor(values * random()),
    }));

  it.each([3, 10, 1000])("are judged pair by pair, as few as %i values as they take", (values) => {
    const all = drawn(120, values);
    const agree = all.flatMap((a, i) =>
      all.filter((b, j) => i !== j && a.measured < b.measured === a.predicted < b.predicted),
    );
    expect(pairwiseAccuracy(all)).toBe(agree.length / (120 * 119));
    const k = 48;
    const among = (which: keyof Judged, value: number): number => {
      const lower = all.filter((other) => other[which] < value).length;
      return Math.min(1, Math.max(0, (k - lower) / all.filter((other) => other[which] === value).length));
    };
    const recalled = all.reduce((sum, t) => sum + among("predicted", t.predicted) * among("measured", t.measured), 0);
    expect(topRecall(all)).toBe(recalled / k);
  });

  it("are judged in less time than their pairs would take", () => {
    const begun = process.cpuUsage().user;
    expect(evaluate(drawn(20_000, 1e9)).pairwise).toBeCloseTo(0.5, 1);
    expect((process.cpuUsage().user - begun) / 1e6).toBeLessThan(2);
  });
});
