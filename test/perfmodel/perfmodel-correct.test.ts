/** The correction: synthetic machines whose constants are known, few trials, many, and trials it has not seen. */

import { expect, test } from "vitest";
import { type Random, randomInteger, seededRandom } from "../../abstraction/random.ts";
import type { Costs } from "../../perfmodel/correct.ts";
import { apply, commonFactor, fit as fitCorrection, NO_CORRECTION, type Observation } from "../../perfmodel/correct.ts";
import { evaluate } from "../../tuner/evaluate.ts";

const PARTS = ["issue", "load", "read l2", "pack"] as const;

/** Parts from 1 to 1000 microseconds; the bounds as the model makes them of parts that overlap, packing apart. */
function randomCosts(random: Random): Costs {
  const terms = PARTS.map((name) => ({ name, seconds: 1e-6 * 10 ** (3 * random()) }));
  const [issue = 0, load = 0, read = 0, pack = 0] = terms.map((t) => t.seconds);
  return { terms, bounds: [Math.max(issue, load, read) + pack, issue + load + read + pack], traits: [] };
}

/** Measured on a machine whose parts take so many times what the model believes, with noise of a few percent. */
function observe(random: Random, count: number, factors: readonly number[], noise = 0.03): Observation[] {
  return Array.from({ length: count }, () => {
    const costs = randomCosts(random);
    const [issue = 0, load = 0, read = 0, pack = 0] = costs.terms.map((t, i) => t.seconds * (factors[i] ?? 1));
    const ideal = Math.max(issue, load, read) + pack;
    return { costs, measuredSeconds: ideal * (1 + noise * (2 * random() - 1)) };
  });
}

const judged = (trials: readonly Observation[], predict: (costs: Costs) => number) =>
  evaluate(trials.map(({ costs, measuredSeconds }) => ({ predicted: predict(costs), measured: measuredSeconds })));
const errorOf = (trials: readonly Observation[], predict: (costs: Costs) => number): number =>
  trials.reduce((sum, t) => sum + Math.abs(Math.log(predict(t.costs) / t.measuredSeconds)), 0) / trials.length;
const uncorrected = (costs: Costs): number => costs.bounds[0];

test("without trials the prediction lies half way between its two bounds", () => {
  const costs = randomCosts(seededRandom(1));
  expect(fitCorrection([])).toEqual(NO_CORRECTION);
  expect(apply(fitCorrection([]), costs)).toBeCloseTo(Math.sqrt(costs.bounds[0] * costs.bounds[1]), 12);
  expect(fitCorrection([{ costs, measuredSeconds: Number.NaN }])).toEqual(NO_CORRECTION);
});

test("a machine twice as slow throughout is a factor of two", () => {
  const random = seededRandom(2);
  const correction = fitCorrection(observe(random, 60, [2, 2, 2, 2]));
  for (const { costs } of observe(random, 20, [1, 1, 1, 1]))
    expect(apply(correction, costs) / costs.bounds[0]).toBeCloseTo(2, 0);
});

test("parts slower than modelled are found, and unseen trials are ranked better", () => {
  const random = seededRandom(3);
  const factors = [1, 1, 3, 0.4];
  const correction = fitCorrection(observe(random, 80, factors));
  const unseen = observe(random, 80, factors);
  const corrected = (costs: Costs): number => apply(correction, costs);
  expect(correction.weights["read l2"]).toBeGreaterThan(0.3);
  expect(correction.weights["pack"]).toBeLessThan(-0.3);
  expect(errorOf(unseen, corrected)).toBeLessThan(0.6 * errorOf(unseen, uncorrected));
  expect(judged(unseen, corrected).pairwise).toBeGreaterThan(judged(unseen, uncorrected).pairwise ?? 1);
  expect(judged(unseen, corrected).pairwise).toBeGreaterThan(0.9);
});

test("a machine on which nothing overlaps is learnt to be one", () => {
  const random = seededRandom(4);
  const serial = (count: number): Observation[] =>
    observe(random, count, [1, 1, 1, 1]).map(({ costs }) => ({ costs, measuredSeconds: costs.bounds[1] }));
  const correction = fitCorrection(serial(60));
  // From one half; the ridge keeps it from going all the way, and the weights of the parts do the rest.
  expect(correction.overlap).toBeGreaterThan(0.7);
  expect(errorOf(serial(20), (costs) => apply(correction, costs))).toBeLessThan(0.05);
});

test("two or three trials change the correction little and never absurdly", () => {
  for (let seed = 0; seed < 50; seed++) {
    const random = seededRandom(seed);
    const factors = PARTS.map(() => 0.7 + 0.6 * random());
    const correction = fitCorrection(observe(random, randomInteger(random, 1, 3), factors, 0.1));
    for (const { costs } of observe(random, 20, factors)) {
      const factor = apply(correction, costs) / costs.bounds[0];
      expect(factor).toBeGreaterThan(0.5);
      expect(factor).toBeLessThan(2);
    }
  }
});

test("trials of a machine that is as modelled change nothing", () => {
  const random = seededRandom(6);
  const correction = fitCorrection(observe(random, 40, [1, 1, 1, 1], 0.05));
  const unseen = observe(random, 40, [1, 1, 1, 1], 0.05);
  expect(errorOf(unseen, (costs) => apply(correction, costs))).toBeLessThan(errorOf(unseen, uncorrected) + 0.02);
});

test("the same trials in another order, or after a trip through JSON, give the same correction", () => {
  const trials = observe(seededRandom(7), 30, [1, 2, 1, 0.5]);
  const costs = randomCosts(seededRandom(8));
  const expected = apply(fitCorrection(trials), costs);
  expect(apply(fitCorrection([...trials].reverse()), costs)).toBeCloseTo(expected, 12);
  expect(apply(JSON.parse(JSON.stringify(fitCorrection(trials))), costs)).toBe(expected);
});

test("the cost of a trait is learnt beside the factors of the parts", () => {
  const random = seededRandom(9);
  const trials = observe(random, 60, [1, 1, 1, 1]).map((trial, i) => ({
    costs: { ...trial.costs, traits: [i % 2 === 0 ? "a padded" : "a tiled"] },
    measuredSeconds: trial.measuredSeconds * (i % 2 === 0 ? 1 : 2),
  }));
  const correction = fitCorrection(trials);
  const costs = randomCosts(random);
  const [padded, tiled] = ["a padded", "a tiled"].map((trait) => apply(correction, { ...costs, traits: [trait] }));
  expect((tiled ?? 0) / (padded ?? 1)).toBeGreaterThan(1.7);
  expect((tiled ?? 0) / (padded ?? 1)).toBeLessThan(2.1);
});

test("trials that ran beside another process change the correction little", () => {
  const random = seededRandom(7);
  const disturbed = observe(random, 80, [1, 1, 1, 1]).map((trial, i) =>
    i % 5 === 0 ? { ...trial, measuredSeconds: 3 * trial.measuredSeconds } : trial,
  );
  const quiet = disturbed.map((trial, i) =>
    i % 5 === 0 ? { ...trial, measuredSeconds: trial.measuredSeconds / 3 } : trial,
  );
  const beside = fitCorrection(disturbed);
  const alone = fitCorrection(quiet);
  const moved = observe(random, 80, [1, 1, 1, 1]).map(({ costs }) =>
    Math.log(apply(beside, costs) / apply(alone, costs)),
  );
  // Least squares would follow a fifth of the way: log(3) / 5 = 0.22.
  expect(moved.reduce((sum, x) => sum + x, 0) / moved.length).toBeLessThan(0.08);
});

test("a prior from other computations stands until there are trials, and a few trials refine it", () => {
  const random = seededRandom(11);
  const factors = [3, 0.5, 1, 2];
  const prior = fitCorrection(observe(random, 200, factors));
  expect(fitCorrection([], prior)).toEqual(prior);
  const few = observe(random, 4, factors);
  const unseen = observe(random, 200, factors);
  const error = (correction: typeof prior): number => errorOf(unseen, (costs) => apply(correction, costs));
  expect(error(fitCorrection(few, prior))).toBeLessThan(error(fitCorrection(few)) / 2);
  // Trials of another machine pull away from what the prior says.
  const slower = observe(
    random,
    40,
    factors.map((factor) => 4 * factor),
  );
  const moved = fitCorrection(slower, prior);
  expect(errorOf(slower, (costs) => apply(moved, costs))).toBeLessThan(
    errorOf(slower, (costs) => apply(prior, costs)) / 4,
  );
});

const medianError = (trials: readonly Observation[], predict: (costs: Costs) => number): number => {
  const errors = trials.map(({ costs, measuredSeconds }) => Math.abs(Math.log(measuredSeconds / predict(costs))));
  return errors.sort((a, b) => a - b)[errors.length >> 1] ?? 0;
};

test("a correction is no worse than none on the trials that it was fitted on", () => {
  for (let seed = 0; seed < 20; seed++) {
    const random = seededRandom(seed);
    const factors = seed % 2 === 0 ? [1, 1, 1, 1] : PARTS.map(() => 0.5 + random());
    // Few kernels of a search are far from the model, as those of another instruction are.
    const trials = observe(random, randomInteger(random, 1, 40), factors, 0.02).map((trial, i) =>
      i % 4 === 3 ? { ...trial, measuredSeconds: 1.4 * trial.measuredSeconds } : trial,
    );
    const corrected = medianError(trials, (costs) => apply(fitCorrection(trials), costs));
    expect(corrected).toBeLessThanOrEqual(medianError(trials, uncorrected));
    expect(corrected).toBeLessThanOrEqual(medianError(trials, (costs) => apply(NO_CORRECTION, costs)));
  }
});

test("a prior stands where trials do not improve on it", () => {
  const random = seededRandom(12);
  const prior = fitCorrection(observe(random, 200, [3, 0.5, 1, 2]));
  const trials = observe(random, 6, [1, 1, 1, 1]).map(({ costs }) => ({ costs, measuredSeconds: apply(prior, costs) }));
  expect(fitCorrection(trials, prior)).toEqual(prior);
});

test("the first trial scales all predictions by what it took", () => {
  const random = seededRandom(3);
  const first = randomCosts(random);
  const other = randomCosts(random);
  const alone = (costs: Costs): number => apply(NO_CORRECTION, costs);
  const learnt = fitCorrection([{ costs: first, measuredSeconds: 2 * alone(first) }]);
  const factor = (costs: Costs): number => apply(learnt, costs) / alone(costs);
  expect(factor(first)).toBeCloseTo(2, 10);
  expect(factor(other)).toBeCloseTo(2, 10);
});

test("a common factor is used where each ratio is nearer to that of the others than to 1", () => {
  expect(commonFactor([2.1, 2, 1.9])).toBe(2);
  expect(commonFactor([2, 2.1])).toBe(2.1);
  expect(commonFactor([])).toBe(1);
  // One alone is all that is known.
  expect(commonFactor([3])).toBe(3);
  // On both sides of 1: what fits one makes another worse.
  expect(commonFactor([0.7, 1.4])).toBe(1);
  expect(commonFactor([1, 1, 1, 1, 3, 3, 3, 3, 3])).toBe(3);
  expect(commonFactor([1, 1, 1, 1.01, 1.3, 1.3, 1.3])).toBe(1);
});
