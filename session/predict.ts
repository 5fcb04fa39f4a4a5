/** @file The model of this machine as a session uses it. */

import type { Candidate, Schedule } from "../abstraction/candidate.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import type { Mapping } from "../abstraction/mapping.ts";
import type { Prediction } from "../abstraction/trial.ts";
import type { TrialOf } from "../tuner/trials.ts";

export interface Predictor {
  readonly issueCycles: (intrinsic: Intrinsic) => number;
  readonly predict: (mapping: Mapping, schedule: Schedule) => Prediction | undefined;
  readonly learn: (trials: readonly TrialOf<Candidate>[], mappingOf: (c: Candidate) => Mapping) => void;
}

export function predictorFor(_threads: number): Predictor {
  return { issueCycles: (i) => i.cost?.issueCycles ?? 1, predict: () => undefined, learn: () => undefined };
}
