/** @file What a session asks of the candidates of a computation, whatever their kind; and what it is told where there are none. */

import type { Candidate, CandidateKinds } from "../abstraction/candidate.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import type { Target } from "../abstraction/machine.ts";
import type { Mapping, Refusal } from "../abstraction/mapping.ts";
import type { Prediction } from "../abstraction/trial.ts";
import type { Calibration } from "../perfmodel/calibrate.ts";
import type { SearchSpace } from "../tuner/space.ts";
import type { TrialOf } from "../tuner/trials.ts";

export interface SessionSpace extends SearchSpace<Candidate> {
  /** Instructions that candidates of this space use. */
  readonly intrinsics: readonly Intrinsic[];
  intrinsicOf(candidate: Candidate): Intrinsic;
  /** Undefined for a design on lanes. */
  mappingOf(candidate: Candidate): Mapping | undefined;
  kernelOf(candidate: Candidate): Kernel;
  predict(candidate: Candidate): Prediction | undefined;
  /** Corrects the model by all trials so far. */
  learn(trials: readonly TrialOf<Candidate>[]): void;
}

export interface SessionSpaceOptions {
  readonly intrinsics: readonly Intrinsic[];
  /** Rates of the machine; those of the reference machine when left out. */
  readonly calibration?: Calibration | undefined;
  /** This machine by default. */
  readonly machine?: Target;
  readonly threads: number;
  readonly seed: number;
  readonly kinds?: CandidateKinds;
  /** Of the mappings those to search; all by default. */
  readonly keeps?: ((mapping: Mapping) => boolean) | undefined;
}

/** Why an instruction or lanes cannot compute it; a refusal of a mapping has more to say. */
export type Reason = Omit<Pick<Refusal, "rule" | "because" | "hint">, "rule"> & { readonly rule: string };
