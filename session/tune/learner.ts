/**
 * @file The model of a kind of candidates as a search uses it: its predictions, corrected by the search's measurements.
 *
 *     const model = learntParts(costsOf, (candidate, correction) => ...);      a weight for each part of a prediction
 *     const model = learntFactor(secondsOf);                                   one factor, for models that say no parts
 *     model.learn(trials);
 *     model.predict(candidate)?.seconds
 */

import type { Candidate } from "../../abstraction/candidate.ts";
import type { Prediction } from "../../abstraction/trial.ts";
import {
  type Correction,
  type Costs,
  commonFactor,
  fit as fitCorrection,
  NO_CORRECTION,
} from "../../perfmodel/correct.ts";
import { secondsOf, type TrialOf } from "../../tuner/trials.ts";

export interface Learner<K extends Candidate> {
  predict(candidate: K): Prediction | undefined;
  /** Corrects the model before any trial, by nothing when left out; corrections by trials start from there. */
  startFrom(prior?: Correction): void;
  /** Corrects the model by all trials so far. */
  learn(trials: readonly TrialOf<K>[]): void;
}

/** A model whose parts are corrected, see perfmodel/correct.ts. @param predict seconds under a correction */
export function learntParts<K extends Candidate>(
  costsOf: (candidate: K) => Costs | undefined,
  predict: (candidate: K, correction: Correction) => Prediction | undefined,
): Learner<K> {
  let prior = NO_CORRECTION;
  let correction = prior;
  return {
    predict: (candidate) => predict(candidate, correction),
    startFrom: (given = NO_CORRECTION) => {
      prior = given;
      correction = given;
    },
    learn: (trials) => {
      const observations = measured(trials, costsOf).map(([costs, measuredSeconds]) => ({ costs, measuredSeconds }));
      correction = fitCorrection(observations, prior);
    },
  };
}

/** A model whose predictions are multiplied by one factor. @param expected seconds without it; infinite when it cannot tell */
export function learntFactor<K extends Candidate>(expected: (candidate: K) => number): Learner<K> {
  let factor = 1;
  return {
    predict: (candidate) => predictionOf(expected(candidate), factor),
    startFrom: () => {
      factor = 1;
    },
    learn: (trials) => {
      factor = commonFactor(measured(trials, expected).map(([seconds, median]) => median / seconds));
    },
  };
}

/** The prediction of a model that says no parts; undefined when its seconds are not finite. */
export function predictionOf(seconds: number | undefined, factor = 1): Prediction | undefined {
  if (seconds === undefined || !Number.isFinite(seconds)) return undefined;
  return { seconds: seconds * factor, uncorrectedSeconds: seconds, levels: [] };
}

/** What the model says of each candidate that ran, with its measured seconds. */
function measured<K extends Candidate, T>(
  trials: readonly TrialOf<K>[],
  modelled: (candidate: K) => T | undefined,
): (readonly [modelled: T, seconds: number])[] {
  return trials.flatMap((trial) => {
    const seconds = secondsOf(trial);
    const said = seconds === undefined ? undefined : modelled(trial.candidate);
    return seconds === undefined || said === undefined ? [] : [[said, seconds] as const];
  });
}
