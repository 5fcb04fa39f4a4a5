/**
 * @file The figures the model works with on this machine: measured now or remembered, each with where it comes from.
 *
 *     const { calibration } = await calibrateMachine("automap.db", { anew: true }, say);
 */

import { type Environment, openDatabase } from "../db/index.ts";
import { INTRINSICS } from "../intrinsics/index.ts";
import type { Calibration } from "../perfmodel/calibrate.ts";
import { type ModelTarget, modelTarget } from "../perfmodel/target.ts";
import type { EnvironmentProblem } from "../runtime/compiler.ts";
import { createRunner } from "../runtime/measure.ts";
import { nativeTarget } from "../targets/index.ts";
import { calibrationFor } from "./predict.ts";
import { environmentOf } from "./tune.ts";

export type CalibrateOutcome =
  | {
      readonly status: "calibrated";
      /** Whether it was measured by this call. */
      readonly measured: boolean;
      readonly environment: Environment;
      readonly calibration: Calibration;
      /** Everything the model uses, those figures included that are not measured. */
      readonly target: ModelTarget;
    }
  | { readonly status: "environment"; readonly problem: EnvironmentProblem };

/**
 * Calibrates this machine, or reads what an earlier calibration left; kept in the database, where `tuneComputation` finds it.
 * @param anew to measure even when one is remembered
 * @throws UsageError when the database is none of automap's
 */
export async function calibrateMachine(
  database: string,
  { anew = false }: { readonly anew?: boolean } = {},
  announce: (text: string) => void = () => undefined,
): Promise<CalibrateOutcome> {
  const made = await createRunner({ threads: 1 });
  if (made.status === "environment") return { status: "environment", problem: made };
  const { runner } = made;
  try {
    const db = openDatabase(database);
    try {
      if (db.notice !== undefined) announce(db.notice);
      const environment = environmentOf(runner);
      let measured = false;
      const say = (text: string): void => {
        measured = true;
        announce(text);
      };
      const calibration = await calibrationFor(db, environment, INTRINSICS, runner, say, { anew });
      const target = modelTarget(nativeTarget(), calibration);
      return { status: "calibrated", measured, environment, calibration, target };
    } finally {
      db.close();
    }
  } finally {
    await runner.close();
  }
}
