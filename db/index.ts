/**
 * @file The database of trials: opened, written and queried.
 *
 *     const db = openDatabase("automap.db");
 *     const run = beginRun(db, { workload, environment, seed: 1, options: {}, budget: { trials: 100 }, started: Date.now() });
 *     const id = recordTrial(db, { workload, environment, run, intrinsic, trial, conditions: { threads: 1, cache: "warm" } });
 *     endRun(db, run, { status: "done", ended: Date.now() });
 *     best(db, { computation: workload.computation });
 */

export { type Provenance, type Seals, sealsOf } from "../abstraction/seal.ts";
export { type BestOptions, best } from "./best.ts";
export { DEFAULT_DATABASE, databaseWords } from "./default.ts";
export { DatabaseError } from "./error.ts";
export { Following, type News } from "./follow.ts";
export { extentsIn, intrinsicsIn, namesIn, operatorsIn, targetsIn, workersIn } from "./held.ts";
export { declarationHash, idOf, shortId } from "./identity.ts";
export {
  checkDatabase,
  checkPlace,
  type Database,
  type OpenOptions,
  openDatabase,
} from "./open.ts";
export { STATUSES } from "./parse.ts";
export { identityOf as fileAt, MEMORY } from "./place.ts";
export { type PruneOptions, pruneTrials } from "./prune.ts";
export {
  type CalibrationFilter,
  calibrationOf,
  countTrials,
  type Filter,
  queryTrials,
  type Range,
  type ResumeOptions,
  runsIn,
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
  type Finals,
  inputTypes,
  type RunRecord,
  type RunStatus,
  shapeOf,
  type TrialRecord,
  WORKLOAD_NAME,
  type Workload,
  type WorkloadRecord,
} from "./record.ts";
export { environmentRows, shownOf } from "./rows.ts";
export {
  exportLines,
  type ImportOptions,
  type ImportReport,
  importLines,
  linesOf,
  mergeDatabase,
  type Rejection,
} from "./transfer.ts";
export {
  type Difference,
  differencesOf,
  ENVIRONMENT_FIELDS,
  type EnvironmentField,
  environmentDifferences,
  POLICIES,
  type Policy,
  type Trust,
  type World,
} from "./trust.ts";
export {
  type Problem,
  type Remeasured,
  recordProblem,
  remeasure,
  type VerifyReport,
  verifyDatabase,
} from "./verify.ts";
export { withDatabase } from "./with-database.ts";
export { labelOf, type WordFilter, wordsOf } from "./words.ts";
export {
  beginRun,
  endRun,
  type NewRun,
  type NewTrial,
  recordCalibration,
  recordClock,
  recordTrial,
  trialId,
} from "./write.ts";
