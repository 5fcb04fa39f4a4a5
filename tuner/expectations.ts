/**
 * @file The model as a search uses it: evaluated once for each candidate, and scaled to the measurements.
 *
 *     expected = predicted * median over the trials (measured / predicted) where that improves on 1
 *
 * The scaling keeps the predictions of a model that ranks well but is wrong by a factor comparable with measured medians.
 */

import type { Prediction } from "../abstraction/trial.ts";
import { commonFactor } from "../perfmodel/correct.ts";
import type { SearchSpace } from "./space.ts";
import { secondsOf, type TrialOf } from "./trials.ts";

export interface Expectations<C> {
  /** The model's prediction; undefined when it has none, or its seconds are not positive and finite. */
  predicted(candidate: C): Prediction | undefined;
  /** Its seconds, scaled to the trials. */
  expected(candidate: C): number | undefined;
  /** Scales to these trials. */
  scaleTo(trials: readonly TrialOf<C>[]): void;
  /** Discards cached predictions after the model has learnt. */
  forget(): void;
}

export function expectationsOf<C>(
  space: SearchSpace<C>,
  predict: (candidate: C) => Prediction | undefined,
): Expectations<C> {
  const asked = new Map<string, Prediction | undefined>();
  let scale = 1;
  const predicted = (candidate: C): Prediction | undefined => {
    const key = space.key(candidate);
    if (!asked.has(key)) {
      const prediction = predict(candidate);
      asked.set(key, prediction && isDuration(prediction.seconds) ? prediction : undefined);
    }
    return asked.get(key);
  };
  return {
    predicted,
    expected: (candidate) => {
      const seconds = predicted(candidate)?.seconds;
      return seconds === undefined ? undefined : seconds * scale;
    },
    scaleTo: (trials) => {
      const ratios = trials.flatMap((trial) => {
        const measured = secondsOf(trial);
        const seconds = predicted(trial.candidate)?.seconds;
        return measured === undefined || seconds === undefined ? [] : [measured / seconds];
      });
      scale = commonFactor(ratios);
    },
    forget: () => asked.clear(),
  };
}

function isDuration(seconds: number): boolean {
  return seconds > 0 && Number.isFinite(seconds);
}
