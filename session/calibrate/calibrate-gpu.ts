/**
 * @file Measures the rates of this machine's GPU on demand and stores them in the database. The model uses them instead of the table's.
 *
 *     const outcome = await calibrateGpuHere(nvidiaTarget("h100"), "automap.db", { anew: true }, say);
 *     if (outcome.status === "calibrated") outcome.calibration.loadedClockHz        { median: 1.61e9, spread: 0.002 }
 */

import { existsSync } from "node:fs";
import { unique } from "../../abstraction/collections.ts";
import {
  automapCommand,
  EnvironmentError,
  type EnvironmentProblem,
  MachineFault,
  UsageError,
} from "../../abstraction/error.ts";
import type { Target } from "../../abstraction/machine.ts";
import { day } from "../../abstraction/text.ts";
import { type Database, databaseWords, type Environment, withDatabase } from "../../db/index.ts";
import { INTRINSICS } from "../../intrinsics/index.ts";
import { searchedWgmma } from "../../intrinsics/wgmma.ts";
import { calibratedGpu, calibrateGpu, type GpuCalibration } from "../../perfmodel/calibrate-gpu.ts";
import type { Finding } from "../../runtime/doctor.ts";
import type { CudaRunner } from "../../runtime/run/cuda.ts";
import { findCudaDevice } from "../../runtime/run/cuda-device.ts";
import { gpuTargetOf } from "../../targets/index.ts";
import { runnerOnGpu } from "../tune/workplace.ts";
import { gpuEnvironment } from "./environment.ts";
import { readGpuCalibration, storedGpuCalibration } from "./gpu-rates.ts";
import { calibrationIn } from "./shared-calibration.ts";

export type GpuCalibrateOutcome =
  | {
      readonly status: "calibrated";
      /** Whether this call measured it. */
      readonly measured: boolean;
      readonly environment: Environment;
      readonly calibration: GpuCalibration;
      /** The machine description the model uses. */
      readonly machine: Target;
    }
  | { readonly status: "environment"; readonly problem: EnvironmentProblem };

/**
 * Instructions whose rates are measured: those of the table, and the wgmma widths that searches try. wgmma is measured in f16 only, since other
 * types issue at the same rate.
 */
function rows(): typeof INTRINSICS {
  const widths = searchedWgmma().filter((row) => row.name.endsWith(".f32.f16"));
  return unique([...INTRINSICS, ...widths]);
}

/**
 * Calibrates this machine's GPU, or reads an earlier calibration.
 * @param anew whether to measure even when a calibration is stored
 * @param runner runs the kernels; an emulated one has no rates
 * @throws EnvironmentError when the GPU here is a different one; UsageError when the file is not an automap database
 */
export async function calibrateGpuHere(
  target: Target,
  database: string,
  { anew = false, runner: given }: { readonly anew?: boolean; readonly runner?: CudaRunner } = {},
  announce: (text: string) => void = () => undefined,
): Promise<GpuCalibrateOutcome> {
  const runner = given ?? (await runnerOnGpu(target, announce));
  if ("status" in runner) return { status: "environment", problem: runner };
  try {
    const calibrated = async (db: Database): Promise<GpuCalibrateOutcome> => {
      if (db.notice !== undefined) announce(db.notice);
      const environment = gpuEnvironment(runner.device, target);
      const found = await gpuRates(db, runner, target, { anew, announce });
      return { status: "calibrated", ...found, environment, machine: calibratedGpu(target, found.calibration) };
    };
    return await withDatabase(database, calibrated, {});
  } catch (error) {
    if (error instanceof EnvironmentError) return { status: "environment", problem: error.problem };
    throw error;
  } finally {
    if (!given) await runner.close();
  }
}

/** The rates of a GPU: stored ones, or measured now and stored. @throws EnvironmentError when it is emulated */
export function gpuRates(
  db: Database,
  runner: CudaRunner,
  target: Target,
  { anew, announce }: { readonly anew: boolean; readonly announce: (text: string) => void },
): Promise<{ readonly calibration: GpuCalibration; readonly measured: boolean }> {
  if (runner.emulated)
    throw new EnvironmentError({
      what: "this GPU is emulated on the CPU: it has no rates",
      why: "a calibration is of the machine that kernels are timed on",
      remedy: "run it where a GPU is, or leave it: the table of machines has figures of each GPU",
    });
  const measure = (): Promise<GpuCalibration> => {
    announce(`calibrating ${runner.device.name}: compiling and running probes`);
    return calibrateGpu(target, runner.device.name, rows(), (libraries) =>
      runner.probe(libraries.map((l) => l.source)),
    );
  };
  const environment = gpuEnvironment(runner.device, target);
  return calibrationIn(db, environment, { read: readGpuCalibration, measure, anew, announce });
}

/** The GPU rates stored in a database, as findings of `automap doctor`. Empty when there is no GPU or no database. */
export async function examineGpuCalibration(database: string): Promise<readonly Finding[]> {
  if (!existsSync(database)) return [];
  const device = await findCudaDevice();
  if ("status" in device) return [];
  const common = { subject: "GPU rates", why: "the model ranks kernels for the GPU with them" };
  try {
    const known = withDatabase(database, (db) => storedGpuCalibration(db, gpuEnvironment(device, gpuTargetOf(device))));
    const detail = known
      ? `calibrated on ${day(known.at)}: ${(known.calibration.loadedClockHz.median / 1e9).toFixed(2)} GHz under load, ${(known.calibration.dram.copyBytesPerSecond.median / 1e12).toFixed(2)} TB/s`
      : `those of ${gpuTargetOf(device).name} in the table of machines; ${automapCommand("calibrate", "--target", "cuda", databaseWords(database))} measures this one's`;
    return [{ ...common, status: "ok", detail }];
  } catch (error) {
    if (!(error instanceof UsageError || error instanceof MachineFault)) throw error;
    return [];
  }
}
