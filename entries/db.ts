/**
 * @file The entry automap/db: everything about databases of trials, their reports, and what is read from them.
 *
 *     import { exportLines, importLines, openDatabase, verifyDatabase } from "automap/db";
 *
 * @module automap/db
 */

export {
  type BestOptions,
  best,
  type Conditions,
  computationOf,
  type Database,
  DatabaseError,
  type Difference,
  differencesOf,
  type Environment,
  type EnvironmentRecord,
  exportLines,
  type Filter,
  type Finals,
  type ImportOptions,
  type ImportReport,
  importLines,
  labelOf,
  mergeDatabase,
  type OpenOptions,
  openDatabase,
  POLICIES,
  type Policy,
  type Provenance,
  type PruneOptions,
  pruneTrials,
  queryTrials,
  type Range,
  type Rejection,
  type RunRecord,
  showTrial,
  type TrialFilter,
  type TrialRecord,
  type Trust,
  type VerifyReport,
  verifyDatabase,
  type WorkloadRecord,
  type World,
} from "../db/index.ts";
export { reportPage } from "../report/page.ts";
export type { ReportData } from "../report/report-data.ts";
export { type Checked, compareBest, type Finding } from "../session/report/check.ts";
export { gatherReport, type ReportFilter } from "../session/report/report.ts";
export { type Divergence, type Replay, replayRun } from "../session/tune/replay.ts";
