/** @file The interface between a session and the kinds of candidates: a space, or the reasons why there is none. */

import type { Candidate, CandidateKinds, Kind } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import type { Target } from "../../abstraction/machine.ts";
import type { Mapping, Refusal } from "../../abstraction/mapping.ts";
import type { Steps } from "../../abstraction/steps.ts";
import type { Prediction } from "../../abstraction/trial.ts";
import type { Calibration } from "../../perfmodel/calibrate.ts";
import type { ScheduledCandidate } from "../../tuner/mapping-space.ts";
import type { SearchSpace } from "../../tuner/space.ts";
import type { Learner } from "../tune/learner.ts";

export interface SessionSpace extends SearchSpace<Candidate>, Learner<Candidate> {
  /** Instructions that candidates of this space use. */
  readonly intrinsics: readonly Intrinsic[];
  intrinsicOf(candidate: Candidate): Intrinsic;
  /** Undefined for a candidate that maps nothing. */
  mappingOf(candidate: Candidate): Mapping | undefined;
  kernelOf(candidate: Candidate): Kernel;
  /**
   * A candidate of a similar computation, with its mapping, as one of this space; undefined where it has none. On a GPU the space takes in a mapping
   * that its enumeration left out.
   */
  carried(candidate: ScheduledCandidate, from: Mapping): ScheduledCandidate | undefined;
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

/** What a search asks of each kind. */
export interface Search extends SessionSpaceOptions {
  readonly computation: Computation;
  readonly machine: Target;
  readonly kinds: CandidateKinds;
  /** Instructions, and rows that stand for plain loops. */
  readonly intrinsics: readonly Intrinsic[];
  readonly loops: readonly Intrinsic[];
}

/** The candidates of one kind that a search chooses from. */
export interface KindSpace<K extends Candidate = Candidate> {
  readonly kind: K["kind"];
  readonly space: SearchSpace<K>;
  readonly model: Learner<K>;
  /** Instructions that candidates of this space use. */
  readonly intrinsics: readonly Intrinsic[];
  kernelOf(candidate: K): Kernel;
  /** Left out where nothing is mapped. */
  mappingOf?(candidate: K): Mapping;
  /** As in {@link SessionSpace.carried}. */
  carried?(candidate: ScheduledCandidate, from: Mapping): ScheduledCandidate | undefined;
  /** The candidate that is expected to be the fastest, by which kinds are compared. Left out on a CPU, whose models agree. */
  readonly best?: { readonly candidate: K; readonly seconds: number } | undefined;
}

/** How a kernel is launched relative to others in a stream. */
export interface InStream {
  /** Whether it may begin while the kernel before it still runs and then wait for that kernel's end. */
  readonly chained?: boolean;
}

/** The machine of a record. */
export interface Measured {
  readonly machine: Target;
  readonly calibration?: Calibration | undefined;
}

/** What a session does with the candidates of a kind. */
export interface SessionKind<K extends Candidate = Candidate> {
  readonly kind: Kind;
  /** Kinds that compute alike; the family decides whether a search looks for candidates beside those found before. */
  readonly family: "mapping" | "form" | "window" | "design" | "loops";
  /** Whether its candidates compute programs of several equations; a single one when left out. */
  readonly ofPrograms?: true;
  /** Whether candidates of the kind may compute it on a machine. */
  isFor(computation: Computation, machine: Target): boolean;
  /**
   * The candidates that a search chooses from, or why there are none.
   * @param before the spaces of kinds that were searched before
   */
  spaceOf(search: Search, before: readonly KindSpace[]): Steps<KindSpace<K> | readonly Reason[]>;
  /**
   * The kernel of a recorded candidate.
   * @param machine the GPU that a grid was made for; when left out, the first GPU of the table that can run it
   * @throws UsageError when the candidate is no longer valid, or no kernel can be generated for its instruction
   */
  kernelOf(computation: Computation, candidate: K, machine: Target | undefined, inStream: InStream): Kernel;
  /**
   * The kernel that a network takes on a machine without a search; left out by kinds that a network only takes from records or by the model.
   * @throws UsageError why there is none
   */
  usual?(computation: Computation, machine: Target, inStream: InStream): Kernel;
  /** The model's uncorrected prediction for a recorded candidate; undefined when its schedule cannot be lowered. @throws UsageError as above */
  predict(computation: Computation, candidate: K, on: Measured): Prediction | undefined;
}

/** Whether the result is a list of reasons rather than a space. */
export function isRefusals<S extends object, R>(space: S | readonly R[]): space is readonly R[] {
  return Array.isArray(space);
}
