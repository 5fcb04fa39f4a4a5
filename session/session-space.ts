/** @file The interface of a session to candidates of any kind, and the reasons it gets when there are none. */

import type { Candidate, CandidateKinds } from "../abstraction/candidate.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import type { Target } from "../abstraction/machine.ts";
import type { Mapping, Refusal } from "../abstraction/mapping.ts";
import type { Prediction } from "../abstraction/trial.ts";
import type { Calibration } from "../perfmodel/calibrate.ts";
import type { Correction } from "../perfmodel/correct.ts";
import type { ScheduledCandidate } from "../tuner/mapping-space.ts";
import type { SearchSpace } from "../tuner/space.ts";
import type { TrialOf } from "../tuner/trials.ts";

export interface SessionSpace extends SearchSpace<Candidate> {
  /** Instructions that candidates of this space use. */
  readonly intrinsics: readonly Intrinsic[];
  intrinsicOf(candidate: Candidate): Intrinsic;
  /** Undefined for a lane design. */
  mappingOf(candidate: Candidate): Mapping | undefined;
  kernelOf(candidate: Candidate): Kernel;
  /**
   * A candidate of a similar computation, with its mapping, as one of this space; undefined where it has none. On a GPU the space takes in a mapping
   * that its enumeration left out.
   */
  carried?(candidate: ScheduledCandidate, from: Mapping): ScheduledCandidate | undefined;
  predict(candidate: Candidate): Prediction | undefined;
  /** Corrects the model before any trial, by nothing when left out; corrections by trials start from there. Left out on a GPU. */
  startFrom?(prior?: Correction): void;
  /** Corrects the model by all trials so far. */
  learn(trials: readonly TrialOf<Candidate>[]): void;
}

export interface SessionSpaceOptions {
  readonly intrinsics: readonly Intrinsic[];
  /** Rates of the machine; the reference machine's when left out. */
  readonly calibration?: Calibration | undefined;
  /** This machine by default. */
  readonly machine?: Target;
  readonly threads: number;
  readonly seed: number;
  readonly kinds?: CandidateKinds;
  /** Selects the mappings to search; all by default. */
  readonly keeps?: ((mapping: Mapping) => boolean) | undefined;
}

/** Why an instruction, or lanes, cannot compute it. The refusal of a mapping has more detail. */
export type Reason = Omit<Pick<Refusal, "rule" | "because" | "hint">, "rule"> & { readonly rule: string };
