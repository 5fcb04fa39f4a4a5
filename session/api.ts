/**
 * @file The verbs of the public API: search, and what can be asked of a choice, which is a candidate with its computation.
 *
 *     const outcome = await tune(conv2d, nativeTarget(), { trials: 100, signal, onEvent });
 *     if ("best" in outcome && outcome.best) {
 *       generate(outcome.best).source
 *       predict(outcome.best)?.seconds
 *     }
 */

import { type Candidate, isOnGpu } from "../abstraction/candidate.ts";
import type { Computation } from "../abstraction/computation.ts";
import { UsageError } from "../abstraction/error.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import type { Target } from "../abstraction/machine.ts";
import type { Prediction } from "../abstraction/trial.ts";
import { intrinsicsNamed } from "../intrinsics/index.ts";
import type { Calibration } from "../perfmodel/calibrate.ts";
import { modelTarget } from "../perfmodel/target.ts";
import { isGpu, nativeTarget } from "../targets/index.ts";
import { laneSpace } from "../tuner/lane-candidates.ts";
import { choiceOnGpu, predictOnGpu } from "./grid-space.ts";
import { kernelFor } from "./kernel.ts";
import { predictorFor } from "./predict.ts";
import { mappingOf } from "./recorded.ts";
import { type TuneComputationOptions, type TuneOutcome, type TuneSubject, tuneComputation } from "./tune.ts";

/** A candidate and what it computes: the best of a search, a record, or one of your own. */
export interface Choice {
  readonly computation: Computation;
  readonly candidate: Candidate;
  /** The GPU that blocks and warps are laid out for; the first of the table that can run it when left out. */
  readonly machine?: Target;
}

export type TuneOptions = TuneComputationOptions & Omit<TuneSubject, "computation">;

/**
 * Searches for the fastest kernel of a computation on a target.
 * @param target this machine, or this machine with some of its ISA features left out
 * @throws UsageError when this machine lacks a feature of the target: kernels are measured here
 */
export async function tune(
  computation: Computation,
  target: Target = nativeTarget(),
  options: TuneOptions = {},
): Promise<TuneOutcome> {
  const here = nativeTarget().isa;
  // Which GPU is here is found when it is asked for.
  const lacking = isGpu(target) ? [] : target.isa.filter((feature) => !here.includes(feature));
  if (lacking.length > 0)
    throw new UsageError(
      `this machine lacks ${lacking.join(", ")} of ${target.name}: kernels are measured where they are tuned`,
      {
        hint: "rankByModel ranks candidates without measuring; mappings() works for any instruction of the table",
      },
    );
  const { parameters, fixed, name, ...rest } = options;
  return tuneComputation(
    { computation, name, ...(parameters ? { parameters } : {}), ...(fixed ? { fixed } : {}) },
    { ...rest, machine: target },
  );
}

/** The kernel of a choice. @throws UsageError when its mapping or design is no longer valid, or is not of an x86 CPU */
export function generate({ computation, candidate, machine }: Choice): Kernel {
  return kernelFor(computation, candidate, machine);
}

/**
 * What the model expects of a choice, uncorrected; undefined when its schedule cannot be lowered.
 * @param calibration rates of the machine; those of the reference machine when left out
 * @throws UsageError when its mapping is no longer valid
 */
export function predict(
  { computation, candidate }: Choice,
  target: Target = nativeTarget(),
  calibration?: Calibration,
): Prediction | undefined {
  if (isOnGpu(candidate)) {
    const choice = choiceOnGpu(computation, candidate, target);
    return predictOnGpu(choice, choice.machine);
  }
  if (candidate.kind === undefined)
    return predictorFor(calibration, target).predict(mappingOf(computation, candidate), candidate.schedule);
  const [instruction] = intrinsicsNamed(candidate.intrinsic);
  const space = laneSpace(computation, {
    threads: candidate.schedule.threads,
    target: modelTarget(target, calibration),
  });
  if (!instruction || "rule" in space) return undefined;
  const seconds = space.expectedSeconds(candidate.schedule);
  return Number.isFinite(seconds) ? { seconds, uncorrectedSeconds: seconds, levels: [] } : undefined;
}
