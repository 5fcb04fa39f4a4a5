/**
 * @file Reconstructs what a record refers to: the mapping of a candidate, and the calibration of a search.
 *
 *     const computation = computationOf(trial.workload);
 *     mappingOf(computation, trial.candidate).waste
 *     storedCalibration(db, trial.environment, { until: trial.at })?.calibration.clockHz.median
 */

import { z } from "zod";
import { type Candidate, isMapped } from "../abstraction/candidate.ts";
import type { Computation } from "../abstraction/computation.ts";
import { UsageError } from "../abstraction/error.ts";
import { printExpr } from "../abstraction/expression.ts";
import type { Target } from "../abstraction/machine.ts";
import { type Mapping, printMatching } from "../abstraction/mapping.ts";
import {
  type CalibrationFilter,
  type Database,
  type Environment,
  type RunRecord,
  showRun,
  type TrialRecord,
} from "../db/index.ts";
import { bindOperands } from "../mapper/match/bind.ts";
import { rewrittenAs } from "../mapper/match/phases.ts";
import { defineProblem } from "../mapper/match/problem.ts";
import { validate } from "../mapper/match/validate.ts";
import type { Calibration } from "../perfmodel/calibrate.ts";
import { candidateText } from "../report/describe-candidate.ts";
import { gpuTargetNamed, type MachineRecord, nativeTarget, targetOf } from "../targets/index.ts";
import { calibratedMachine } from "./calibrate/gpu-rates.ts";
import { type Stored, storedIn } from "./calibrate/shared-calibration.ts";
import { declaredAs } from "./package/declared.ts";

/**
 * The mapping of a recorded candidate, validated again by the current rules.
 * @throws UsageError when its instruction, binding or matching does not exist or is no longer valid
 */
export function mappingOf(stated: Computation, candidate: Candidate): Mapping {
  if (!isMapped(candidate))
    throw new UsageError(`a candidate of the kind ${candidate.kind} has no mapping: ${candidateText(candidate)}`);
  const { intrinsic: name, matching, operands, rewriting } = candidate;
  const computation = rewriting === undefined ? stated : rewrittenAs(stated, rewriting);
  if (typeof computation === "string") throw new UsageError(`${stated.name} has no ${rewriting}: ${computation}`);
  const intrinsic = declaredAs(name);
  const { bindings } = bindOperands(computation, intrinsic, true);
  const binding = bindings.find((b) => Object.entries(b).every(([o, bound]) => operands[o] === printExpr(bound)));
  if (!binding) {
    const texts = Object.entries(operands).map(([o, text]) => `${o} = ${text}`);
    throw new UsageError(`${computation.name} does not bind to ${name} as ${texts.join(", ")}`);
  }
  const verdict = validate(defineProblem(computation, intrinsic, binding), matching, { rule: "gather", strict: false });
  if (verdict.ok) return verdict.mapping;
  throw new UsageError(`${printMatching(matching, "  ")} no longer maps onto ${name}: ${verdict.refusal.because}`);
}

/** Lines for a kernel's header that express the equation's loops in the kernel's loops. */
export function rewritingNotes({ computation: { rewriting } }: Mapping): string[] {
  return rewriting ? [`${rewriting.kind.padEnd(9)} ${rewriting.places.join("   ")}`] : [];
}

/** The newest calibration of exactly this environment that was measured here. A damaged one is ignored. */
export function storedCalibration(
  db: Database,
  environment: Environment,
  filter?: CalibrationFilter,
): Stored<Calibration> | undefined {
  return storedIn(db, environment, readCalibrationData, filter);
}

const machineSchema: z.ZodType<MachineRecord> = z.object({
  name: z.string(),
  isa: z.array(z.string()),
  clockHz: z.number().positive().optional(),
  levels: z.array(z.object({ name: z.string(), units: z.number(), bytes: z.number().optional() })),
  source: z.string(),
});

/** The machine a run searched for, its caches included; undefined for a run that did not record it. */
export function recordedTarget(run: RunRecord): Target | undefined {
  const found = machineSchema.safeParse(run.options["target"]);
  if (!found.success) return undefined;
  return gpuTargetNamed(found.data.name) ?? targetOf(found.data);
}

/**
 * The machine of a trial: its calibration, and its caches as the run recorded them, else those of this machine. An imported trial is explained by the
 * rates imported with it.
 */
export function recordedMachine(
  db: Database,
  { environment, run, provenance }: TrialRecord,
): {
  readonly calibration: Calibration | undefined;
  readonly calibratedAt: number | undefined;
  readonly machine: Target;
} {
  const filter = { imported: provenance === "imported" };
  const stored = storedCalibration(db, environment, filter);
  const machine = run === undefined ? undefined : recordedTarget(showRun(db, run));
  const gpu = gpuTargetNamed(environment.target);
  if (gpu) return { calibration: undefined, ...calibratedMachine(db, environment, machine ?? gpu, filter) };
  return {
    calibration: stored?.calibration,
    calibratedAt: stored?.at,
    machine: machine ?? nativeTarget(),
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
  gatheredLane: measured,
  scatteredLane: measured,
});

/** Data from a database is external input, so it is validated. */
const calibrationSchema = z.object({
  machine: z.string(),
  clockHz: measured,
  loadsPerCycle: measured.optional(),
  memory: z.record(z.string(), memory),
  intrinsics: z.record(z.string(), instruction),
  scalar: scalarFigures.partial(),
});

/** Parses the calibration in a record; undefined when it is damaged or of another version. */
export function readCalibrationData(data: unknown): Calibration | undefined {
  const known = calibrationSchema.safeParse(data);
  if (!known.success) return undefined;
  const { loadsPerCycle, scalar, ...rest } = known.data;
  const present = Object.fromEntries(Object.entries(scalar).filter(([, figure]) => figure !== undefined));
  return { ...rest, loadsPerCycle, scalar: present };
}
