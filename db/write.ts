/** @file Writes facts. Each call is one transaction, which is on disk when the call returns. Recording the same fact again changes nothing. */

import { canonicalJson } from "../abstraction/candidate.ts";
import { equationText, pointCount } from "../abstraction/computation.ts";
import { UsageError } from "../abstraction/error.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import type { Trial } from "../abstraction/trial.ts";
import { idOfFacts, type Row, type Table } from "./facts.ts";
import { declarationHash } from "./identity.ts";
import { type Database, statement, write } from "./open.ts";
import { trialRow } from "./parse.ts";
import { impossibleTrial } from "./possible.ts";
import type { Conditions, Environment, Finals, RunStatus, Workload } from "./record.ts";
import { environmentRowOf, instructionOf, problemOf, runRowOf, trialRowOf, workloadRowOf } from "./rows.ts";
import { sealedText } from "./world.ts";

export interface NewTrial {
  readonly workload: Workload;
  readonly environment: Environment;
  /** Id of its run. */
  readonly run?: string;
  /** The instruction as now declared; left out when the candidate has none. */
  readonly intrinsic?: Intrinsic;
  readonly trial: Trial;
  readonly conditions: Conditions;
  /** The finals in which it was measured; left out for a kernel measured alone. */
  readonly finals?: Finals;
}

/** The id that a trial gets when it is recorded. */
export function trialId(given: NewTrial): string {
  return idOfRow(rowsOf(given).row);
}

/** @returns the trial's id, the same for the same facts */
export function recordTrial(db: Database, given: NewTrial): string {
  const { run } = given;
  const { workload, environment, row } = rowsOf(given);
  const { computation } = given.workload;
  const work = { points: pointCount(computation), equation: equationText(computation) };
  const problem = impossibleTrial(trialRow.parse(row), work, given.environment);
  if (problem !== undefined) throw new UsageError(`a trial that cannot be recorded: ${problem}`);
  write(db, "recording a trial", () => {
    if (run !== undefined) checkRun(db, run);
    insert(db, "workloads", workload);
    insert(db, "environments", environment);
    insert(db, "trials", sealed(db, "trials", row));
  });
  return idOfRow(row);
}

function rowsOf(given: NewTrial): { readonly workload: Row; readonly environment: Row; readonly row: Row } {
  const [workload, environment] = [workloadRowOf(given.workload), environmentRowOf(given.environment)];
  const { run, trial, conditions, finals, intrinsic } = given;
  const instruction = instructionOf(trial.candidate);
  if (intrinsic !== undefined && intrinsic.name !== instruction)
    throw new Error(`recordTrial: the candidate uses ${instruction}, given ${intrinsic.name}`);
  const row = trialRowOf({
    workload: idOfRow(workload),
    environment: idOfRow(environment),
    run,
    declaration: intrinsic && declarationHash(intrinsic),
    trial,
    conditions,
    finals,
  });
  return { workload, environment, row };
}

export interface NewRun {
  readonly workload: Workload;
  readonly environment: Environment;
  readonly seed: number;
  /** All other options that affect the search, as plain data. */
  readonly options: Readonly<Record<string, unknown>>;
  readonly budget: Readonly<Record<string, unknown>>;
  /** Milliseconds since 1970. */
  readonly started: number;
  /** Process id, which distinguishes searches that start in the same millisecond. */
  readonly process?: number;
}

/** @returns the run's id */
export function beginRun(db: Database, given: NewRun): string {
  const [workload, environment] = [workloadRowOf(given.workload), environmentRowOf(given.environment)];
  const row = runRowOf({
    workload: idOfRow(workload),
    environment: idOfRow(environment),
    seed: given.seed,
    options: canonicalJson(given.options),
    budget: canonicalJson(given.budget),
    process: given.process ?? process.pid,
    started: given.started,
  });
  write(db, "beginning a run", () => {
    insert(db, "workloads", workload);
    insert(db, "environments", environment);
    insert(db, "runs", row);
  });
  return idOfRow(row);
}

/** Ends a run. Repeating the same end changes nothing; a different one is an error. */
export function endRun(
  db: Database,
  run: string,
  { status, ended }: { readonly status: Exclude<RunStatus, "running">; readonly ended: number },
): void {
  write(db, "ending a run", () => {
    const found = checkRun(db, run);
    if (found === "running")
      db.sqlite.prepare("UPDATE runs SET status = ?, ended = ? WHERE id = ?").run(status, ended, run);
    else if (found !== status) throw new Error(`endRun: run ${run} is already ${String(found)}, not ${status}`);
  });
}

/** Records measured constants of a machine; the caller defines the data's shape. @returns the calibration's id */
export function recordCalibration(
  db: Database,
  given: { readonly environment: Environment; readonly data: unknown; readonly at: number },
): string {
  const environment = environmentRowOf(given.environment);
  const facts = { environment: idOfRow(environment), data: canonicalJson(given.data), at: given.at };
  const row = { id: idOfFacts("calibrations", facts), ...facts };
  const problem = problemOf("calibrations", row);
  if (problem !== undefined) throw new UsageError(`a calibration that cannot be recorded: ${problem}`);
  write(db, "recording a calibration", () => {
    insert(db, "environments", environment);
    insert(db, "calibrations", sealed(db, "calibrations", row));
  });
  return row.id;
}

/**
 * Inserts a row unless its id, the hash of its facts, already exists.
 * @returns whether it was new
 */
export function insert(db: Database, table: Table, row: Row): boolean {
  const columns = Object.keys(row);
  const values = columns.map((c) => `@${c}`);
  const sql = `INSERT INTO ${table} (${columns.join(", ")}) VALUES (${values.join(", ")}) ON CONFLICT (id) DO NOTHING`;
  return statement(db, sql).run(row).changes === 1;
}

/** @returns the run's status */
function checkRun(db: Database, run: string): unknown {
  const status = db.sqlite.prepare("SELECT status FROM runs WHERE id = ?").pluck().get(run);
  if (status === undefined) throw new UsageError(`${db.path} holds no run ${run}`, { hint: "begin it with beginRun" });
  return status;
}

/** The row as one that was measured here: only this file calls it, on what it was given by this program. */
function sealed(db: Database, table: "trials" | "calibrations", row: Row): Row {
  return { ...row, seal: db.seals.make(sealedText(table, row)) ?? null };
}

function idOfRow(row: Row): string {
  return String(row["id"]);
}
