/**
 * @file GPU rates stored in a database.
 *
 *     calibratedMachine(db, environment, nvidiaTarget("h100")).machine.loadedClockHz        { value: 1.61e9, source: "calibrated on NVIDIA H100 ..." }
 */

import { z } from "zod";
import type { Target } from "../../abstraction/machine.ts";
import { type CalibrationFilter, type Database, type Environment, recordCalibration } from "../../db/index.ts";
import { calibratedGpu, type GpuCalibration } from "../../perfmodel/calibrate-gpu.ts";
import { keptCalibration, type Stored, storedIn } from "./shared-calibration.ts";

/** The GPU with the rates that the database has for it; else with the table's. */
export function calibratedMachine(
  db: Database,
  environment: Environment,
  machine: Target,
  filter?: CalibrationFilter,
): { readonly machine: Target; readonly calibratedAt: number | undefined } {
  const stored = storedGpuCalibration(db, environment, filter);
  return stored
    ? { machine: calibratedGpu(machine, stored.calibration), calibratedAt: stored.at }
    : { machine, calibratedAt: undefined };
}

/** The GPU calibration stored in a database; undefined when it is damaged or is of a CPU. */
export function storedGpuCalibration(
  db: Database,
  environment: Environment,
  filter?: CalibrationFilter,
): Stored<GpuCalibration> | undefined {
  return storedIn(db, environment, readGpuCalibration, filter);
}

/** Stores rates of this GPU that were measured for another database, when this one has none of its own. */
export function takeOverRates(db: Database, environment: Environment): void {
  if (db.readonly || storedGpuCalibration(db, environment)) return;
  const kept = keptCalibration(environment, readGpuCalibration);
  if (kept) recordCalibration(db, { environment, data: kept.calibration, at: kept.at });
}

/** Parses stored GPU rates; undefined when the data is something else. */
export function readGpuCalibration(data: unknown): GpuCalibration | undefined {
  return gpuSchema.safeParse(data).data;
}

const positive = z.number().positive();
const measured = z.object({ median: positive, spread: z.number().nonnegative() });
const memory = { readBytesPerSecond: measured, latencyCycles: measured };
/** Data from a database is external input, so it is validated. */
const gpuSchema: z.ZodType<GpuCalibration> = z.object({
  kind: z.literal("gpu"),
  machine: z.string(),
  clockHz: measured,
  loadedClockHz: measured,
  instructions: z.record(z.string(), z.object({ issueCycles: measured, latencyCycles: measured })),
  l2: z.object({ ...memory, writeBytesPerSecond: measured }),
  dram: z.object({ ...memory, copyBytesPerSecond: measured }),
  shared: z.object({ readBytesPerCycle: measured, latencyCycles: measured }),
  launchSeconds: measured,
});
