/**
 * @file The model as a session uses it: calibrated once for this machine, stored, and corrected by the search's measurements.
 *
 *     const { calibration } = await calibrationFor(db, environment, runner, say);
 *     const predictor = predictorFor(calibration);
 *     predictor.predict(mapping, schedule)?.seconds
 */

import type { Schedule } from "../../abstraction/candidate.ts";
import { remembered } from "../../abstraction/collections.ts";
import type { Target } from "../../abstraction/machine.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import type { Prediction } from "../../abstraction/trial.ts";
import type { Database, Environment } from "../../db/index.ts";
import { INTRINSICS } from "../../intrinsics/index.ts";
import { type Calibration, type CompileAndRun, calibrate } from "../../perfmodel/calibrate.ts";
import { type Correction, type Costs, NO_CORRECTION } from "../../perfmodel/correct.ts";
import type { CountedCode } from "../../perfmodel/counted-code.ts";
import { createModel, createTerms } from "../../perfmodel/model.ts";
import { modelTarget } from "../../perfmodel/target.ts";
import { explainRun, runChild } from "../../runtime/child.ts";
import { codeFlags, compileSource } from "../../runtime/compiler.ts";
import { toolProblem } from "../../runtime/environment.ts";
import type { Runner } from "../../runtime/measure.ts";
import { compilerFeatures, nativeTarget } from "../../targets/index.ts";
import { calibrationIn } from "../calibrate/shared-calibration.ts";
import { readCalibrationData } from "../recorded.ts";

export interface Predictor {
  /** @param code the counted instructions of its compiled code */
  predict(
    mapping: Mapping,
    schedule: Schedule,
    how?: { readonly code?: CountedCode; readonly correction?: Correction },
  ): Prediction | undefined;
  /** The parts of a prediction, from which a correction is fitted. */
  costs(mapping: Mapping, schedule: Schedule): Costs | undefined;
}

/** A machine's model, by default this machine's. Without a calibration it uses the reference machine's rates. */
export function predictorFor(calibration?: Calibration, machine: Target = nativeTarget()): Predictor {
  const target = modelTarget(machine, calibration);
  let correctedBy = NO_CORRECTION;
  let models = new Map<Mapping, ReturnType<typeof createModel>>();
  const terms = new Map<Mapping, ReturnType<typeof createTerms>>();
  return {
    predict: (mapping, schedule, { code, correction = NO_CORRECTION } = {}) => {
      if (correction !== correctedBy) models = new Map();
      correctedBy = correction;
      return remembered(models, mapping, () => createModel(mapping, target, { correction }))(schedule, code);
    },
    costs: (mapping, schedule) => remembered(terms, mapping, () => createTerms(mapping, target))(schedule),
  };
}

interface CalibrationOptions {
  /** Measures even when a calibration is stored. */
  readonly anew?: boolean;
  /** This machine by default. */
  readonly machine?: Target;
  /** Aborts the calibration with an error. */
  readonly signal?: AbortSignal | undefined;
}

/** The calibration of this machine's environment, and whether it was measured now. */
export function calibrationFor(
  db: Database,
  environment: Environment,
  runner: Pick<Runner, "compiler" | "workdir" | "cores">,
  announce: (text: string) => void,
  { anew = false, machine = nativeTarget(), signal }: CalibrationOptions = {},
): Promise<{ readonly calibration: Calibration; readonly measured: boolean }> {
  const measure = (): Promise<Calibration> => {
    announce("calibrating this machine, once: some seconds");
    return calibrate(machine, INTRINSICS, compileAndRunWith(runner, signal));
  };
  return calibrationIn(db, environment, { read: readCalibrationData, measure, anew, announce, signal });
}

/** Compiles and runs while no other automap process measures or compiles: all cores share the memory. */
function compileAndRunWith(
  { compiler, workdir, cores }: Pick<Runner, "compiler" | "workdir" | "cores">,
  signal: AbortSignal | undefined,
): CompileAndRun {
  return async (source, features) => {
    const flags = codeFlags({ features: compilerFeatures(features) });
    const compiled = await compileSource(source, flags, ".out", { compiler, workdir, cores, signal });
    if (compiled.status !== "compiled") throw new Error(`calibration does not compile: ${compiled.log}`);
    const run = await cores.measuring(cores.processors, ([cpu = 0]) =>
      runChild([compiled.file], { timeLimitMs: 120_000, cpus: [cpu], signal }),
    );
    if (run.status !== "ok")
      throw toolProblem(run, "calibrating") ?? new Error(`calibration ${explainRun(run)}: ${run.stderr}`);
    return run.stdout;
  };
}
