/**
 * @file The model of this machine as a session uses it: calibrated once and remembered, corrected by what the search measures.
 *
 *     const calibration = await calibrationFor(db, environment, INTRINSICS, runner, say);
 *     const predictor = predictorFor(calibration);
 *     predictor.predict(mapping, schedule)?.seconds
 */

import { z } from "zod";
import type { Candidate, Schedule } from "../abstraction/candidate.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import type { Mapping } from "../abstraction/mapping.ts";
import type { Prediction } from "../abstraction/trial.ts";
import { compilerFeatures } from "../codegen/cpp.ts";
import { calibrationOf, type Database, type Environment, recordCalibration } from "../db/index.ts";
import { type Calibration, type CompileAndRun, calibrate } from "../perfmodel/calibrate.ts";
import { type Correction, fit as fitCorrection, NO_CORRECTION, type Observation } from "../perfmodel/correct.ts";
import { createModel, createTerms } from "../perfmodel/model.ts";
import { modelTarget } from "../perfmodel/target.ts";
import { explainRun, runChild } from "../runtime/child.ts";
import { type Compiler, compileSource, kernelFlags } from "../runtime/compiler.ts";
import { nativeTarget } from "../targets/index.ts";
import type { TrialOf } from "../tuner/trials.ts";

export interface Predictor {
  readonly predict: (mapping: Mapping, schedule: Schedule) => Prediction | undefined;
  /** Fits the correction to all trials so far. */
  readonly learn: (trials: readonly TrialOf<Candidate>[], mappingOf: (c: Candidate) => Mapping) => void;
}

/** The model of this machine; without a calibration, with the reference machine's rates. */
export function predictorFor(calibration?: Calibration): Predictor {
  const target = modelTarget(nativeTarget(), calibration);
  let correction: Correction = NO_CORRECTION;
  let models = new Map<Mapping, (schedule: Schedule) => Prediction | undefined>();
  const terms = new Map<Mapping, ReturnType<typeof createTerms>>();
  const termsFor = (mapping: Mapping): ReturnType<typeof createTerms> => {
    const made = terms.get(mapping) ?? createTerms(mapping, target);
    terms.set(mapping, made);
    return made;
  };
  return {
    predict: (mapping, schedule) => {
      const model = models.get(mapping) ?? createModel(mapping, target, { correction });
      models.set(mapping, model);
      return model(schedule);
    },
    learn: (trials, mappingOf) => {
      const observations = trials.flatMap(({ candidate, measurement }): Observation[] => {
        if (measurement.status !== "ok") return [];
        const costs = termsFor(mappingOf(candidate))(candidate.schedule);
        return costs ? [{ costs, measuredSeconds: measurement.median }] : [];
      });
      correction = fitCorrection(observations);
      models = new Map();
    },
  };
}

const measured = z.object({ median: z.number(), spread: z.number() });
const memory = z.object({
  footprintBytes: z.number(),
  readBytesPerCycle: measured,
  writeBytesPerCycle: measured,
  copyBytesPerCycle: measured,
});
const instruction = z.object({
  issueCycles: measured,
  latencyCycles: measured,
  loadCycles: z.record(z.string(), measured),
  storeCycles: measured,
});
const scalarFigures = z.object({
  copyByte: measured,
  copyRun: measured,
  strided: measured,
  indexed: measured,
  scattered: measured,
  digit: measured,
  guard: measured,
});

/** What a database holds is outside input. */
const calibrationSchema = z.object({
  machine: z.string(),
  clockHz: measured,
  loadsPerCycle: measured.optional(),
  memory: z.record(z.string(), memory),
  intrinsics: z.record(z.string(), instruction),
  scalar: scalarFigures.partial(),
});

/** The calibration of this environment: remembered, or measured now and kept. */
export async function calibrationFor(
  db: Database,
  environment: Environment,
  rows: readonly Intrinsic[],
  runner: { readonly compiler: Compiler; readonly workdir: string },
  announce: (text: string) => void,
): Promise<Calibration> {
  const known = calibrationSchema.safeParse(calibrationOf(db, environment)?.data);
  if (known.success) return toCalibration(known.data);
  announce("calibrating this machine, once: some seconds");
  const calibration = await calibrate(nativeTarget(), rows, compileAndRunWith(runner));
  if (!db.readonly) recordCalibration(db, { environment, data: calibration, at: Date.now() });
  return calibration;
}

function toCalibration(data: z.infer<typeof calibrationSchema>): Calibration {
  const { loadsPerCycle, scalar, ...rest } = data;
  const present = Object.fromEntries(Object.entries(scalar).filter(([, figure]) => figure !== undefined));
  return { ...rest, loadsPerCycle, scalar: present };
}

function compileAndRunWith({ compiler, workdir }: { compiler: Compiler; workdir: string }): CompileAndRun {
  return async (source, features) => {
    const flags = kernelFlags({ features: compilerFeatures(features) }).filter((f) => f !== "-shared");
    const compiled = await compileSource(source, flags, ".out", { compiler, workdir });
    if (compiled.status !== "compiled") throw new Error(`calibration does not compile: ${compiled.log}`);
    const run = await runChild([compiled.file], { timeLimitMs: 120_000 });
    if (run.status !== "ok") throw new Error(`calibration ${explainRun(run)}: ${run.stderr}`);
    return run.stdout;
  };
}
