/**
 * @file The database of what was tried: opened, written, asked.
 *
 *     const db = openDatabase("automap.db");
 *     const run = beginRun(db, { workload, environment, seed: 1, options: {}, budget: { trials: 100 }, started: Date.now() });
 *     const id = recordTrial(db, { workload, environment, run, intrinsic, trial, conditions: { threads: 1, cache: "warm" } });
 *     endRun(db, run, { status: "done", ended: Date.now() });
 *     best(db, { computation: workload.computation });
 */

export { DatabaseError } from "./error.ts";
export { declarationHash, idOf, shortId } from "./identity.ts";
export { type Database, type OpenOptions, openDatabase } from "./open.ts";
export {
  best,
  calibrationOf,
  ENVIRONMENT_FIELDS,
  type EnvironmentField,
  extentsIn,
  type Filter,
  operatorsIn,
  queryTrials,
  type Range,
  type ResumeOptions,
  SORTS,
  type Sort,
  showRun,
  showTrial,
  type TrialFilter,
  trialsOf,
} from "./query.ts";
export {
  type Conditions,
  computationOf,
  type Environment,
  type EnvironmentRecord,
  type RunRecord,
  type RunStatus,
  STATUSES,
  shapeOf,
  type TrialRecord,
  type Workload,
  type WorkloadRecord,
} from "./record.ts";
export { beginRun, endRun, type NewRun, type NewTrial, recordCalibration, recordTrial } from "./write.ts";
