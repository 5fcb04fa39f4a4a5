/**
 * @file Detects measurements that contradict a calibration: kernels that ran faster than the calibrated rates allow.
 *
 *     contradictionOf(trials, stored, machine)     { kernels: 1, of: 12, times: 1.38, bound: { name: "amx.tdpbusd", ... }, trial, at }
 *     contradictionText(found, "automap.db")       "the calibration of 2026-11-21 is contradicted by 1 of 12 kernels: ..."
 *
 * A calibration that was taken while something else ran gives roofs that are too low, and a model that is too slow. No kernel can be
 * faster than the machine, so one that seems to be says which of the two numbers to measure again.
 */

import { sortedBy } from "../../abstraction/collections.ts";
import { attempt, automapCommand } from "../../abstraction/error.ts";
import type { Target } from "../../abstraction/machine.ts";
import { day } from "../../abstraction/text.ts";
import {
  best,
  computationOf,
  type Database,
  databaseWords,
  type Environment,
  labelOf,
  shortId,
  type TrialRecord,
} from "../../db/index.ts";
import { intrinsicNamed } from "../../intrinsics/index.ts";
import type { Calibration } from "../../perfmodel/calibrate.ts";
import { type Bound, boundsOn, brokenBound } from "../../perfmodel/roof.ts";
import { isTimed } from "../../tuner/trials.ts";
import { storedCalibration } from "../recorded.ts";
import type { Stored } from "./shared-calibration.ts";

export interface Contradiction {
  /** Number of kernels that ran faster than the calibration allows, and number examined. */
  readonly kernels: number;
  readonly of: number;
  /** The worst of them: by what factor it beat the bound, and which bound. */
  readonly times: number;
  readonly bound: Bound;
  readonly trial: TrialRecord;
  /** When the calibration was made, milliseconds since 1970. */
  readonly at: number;
}

/**
 * Lower bounds that a calibration sets on a kernel's time, longest first; empty for a failed trial. @throws UsageError when the record is
 * damaged
 */
export function boundsOf(
  trial: TrialRecord,
  calibration: Calibration,
  machine: Pick<Target, "memories">,
): readonly Bound[] {
  const { candidate } = trial;
  // Winograd's transforms issue fewer products than the equation has.
  const intrinsic = candidate.kind === "winograd" ? undefined : intrinsicNamed(candidate.intrinsic);
  const { threads } = trial.conditions;
  return boundsOn(computationOf(trial.workload), { intrinsic, threads }, calibration, machine);
}

/** Compares trials of one environment with its calibration; undefined when they agree. */
export function contradictionOf(
  trials: readonly TrialRecord[],
  { calibration, at }: Stored<Calibration>,
  machine: Pick<Target, "memories">,
): Contradiction | undefined {
  const broken = trials.filter(isTimed).flatMap((trial) => {
    const { measurement } = trial;
    const bounds = attempt(() => boundsOf(trial, calibration, machine)) ?? [];
    const bound = brokenBound(bounds, measurement.interval[1]);
    return bound ? [{ trial, bound, times: bound.seconds / measurement.median }] : [];
  });
  const [worst] = sortedBy(broken, (a) => -a.times);
  return worst && { ...worst, kernels: broken.length, of: trials.length, at };
}

/** Compares the fastest kernels of this environment with its newest calibration; undefined when they agree or there is no calibration. */
export function contradictionIn(db: Database, environment: Environment, machine: Target): Contradiction | undefined {
  const known = storedCalibration(db, environment);
  if (!known) return undefined;
  // Imported measurements say nothing about rates measured here.
  const trials = best(db, { trusted: { environment, policy: "exact" } });
  return contradictionOf(trials, known, machine);
}

/** `the rate of avx512.vpdpbusd`, `the bandwidth of dram` */
export const rateOfBound = ({ kind, name }: Pick<Bound, "kind" | "name">): string =>
  `the ${kind === "instruction" ? "rate" : "bandwidth"} of ${name}`;

/** A sentence that states the contradiction and what to do about it. */
export function contradictionText(found: Contradiction, file: string): string {
  const { kernels, of, times, bound, trial, at } = found;
  return [
    `the calibration of ${day(at)} is contradicted by ${kernels} of ${of} kernels: ${labelOf(trial.workload)}`,
    `(trial ${shortId(trial.id)}) ran ${times.toFixed(2)} times as fast as ${rateOfBound(bound)} in it allows;`,
    `${automapCommand("calibrate", "--force", databaseWords(file))} measures it again`,
  ].join(" ");
}
