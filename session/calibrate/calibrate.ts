/**
 * @file The model's figures for this machine, measured now or stored earlier, each with its source.
 *
 *     const { calibration } = await calibrateMachine("automap.db", { anew: true }, say);
 */

import { existsSync } from "node:fs";
import { automapCommand, type EnvironmentProblem, MachineFault, UsageError } from "../../abstraction/error.ts";
import { day } from "../../abstraction/text.ts";
import { calibrationOf, type Database, databaseWords, type Environment, withDatabase } from "../../db/index.ts";
import type { Calibration } from "../../perfmodel/calibrate.ts";
import { type ModelTarget, modelTarget } from "../../perfmodel/target.ts";
import { findCompiler } from "../../runtime/compiler.ts";
import type { Finding } from "../../runtime/doctor.ts";
import { createRunner } from "../../runtime/measure.ts";
import { nativeTarget } from "../../targets/index.ts";
import { calibrationFor } from "../tune/predict.ts";
import { type Contradiction, contradictionIn, contradictionText } from "./contradiction.ts";
import { environmentOf } from "./environment.ts";

export type CalibrateOutcome =
  | {
      readonly status: "calibrated";
      /** Whether this call measured it. */
      readonly measured: boolean;
      readonly environment: Environment;
      readonly calibration: Calibration;
      /** All figures the model uses, including those that are not measured. */
      readonly target: ModelTarget;
      /** Set when kernels measured in this environment, before or since, contradict the calibration. */
      readonly contradiction: Contradiction | undefined;
    }
  | { readonly status: "environment"; readonly problem: EnvironmentProblem };

/**
 * Calibrates this machine, or reads an earlier calibration. The result is stored in the database, where `tune` finds it.
 * @param anew whether to measure even when a calibration is stored
 * @throws UsageError when the file is not an automap database
 */
export async function calibrateMachine(
  database: string,
  { anew = false }: { readonly anew?: boolean } = {},
  announce: (text: string) => void = () => undefined,
): Promise<CalibrateOutcome> {
  const made = await createRunner({ threads: 1, onWait: announce });
  if (made.status === "environment") return { status: "environment", problem: made };
  const { runner } = made;
  try {
    const calibrated = async (db: Database): Promise<CalibrateOutcome> => {
      if (db.notice !== undefined) announce(db.notice);
      const environment = environmentOf(runner);
      const found = await calibrationFor(db, environment, runner, announce, { anew });
      const target = modelTarget(nativeTarget(), found.calibration);
      const contradiction = contradictionIn(db, environment, nativeTarget());
      return { status: "calibrated", ...found, environment, target, contradiction };
    };
    return await withDatabase(database, calibrated, {});
  } finally {
    await runner.close();
  }
}

/** Whether the calibration of this machine in a database can be trusted. Empty when there is no database or no compiler. */
export async function examineCalibration(database: string): Promise<readonly Finding[]> {
  const compiler = await findCompiler();
  if (compiler.status !== "found" || !existsSync(database)) return [];
  const common = {
    subject: "calibration",
    why: "the model starts from its rates, and a report holds kernels against them",
  };
  try {
    return withDatabase(database, (db) => {
      const environment = environmentOf({ compiler });
      const known = calibrationOf(db, environment);
      if (!known) return [{ ...common, status: "ok", detail: `none in ${database}: the first tune takes it` }];
      const contradiction = contradictionIn(db, environment, nativeTarget());
      const detail = contradiction
        ? contradictionText(contradiction, database)
        : `of ${day(known.at)}, no kernel contradicts it`;
      const remedy = `${automapCommand("calibrate", "--force", databaseWords(database))}`;
      return [contradiction ? { ...common, status: "doubtful", detail, remedy } : { ...common, status: "ok", detail }];
    });
  } catch (error) {
    if (!(error instanceof UsageError || error instanceof MachineFault)) throw error;
    return [{ ...common, status: "doubtful", detail: error.message, remedy: "name another database with --db" }];
  }
}
