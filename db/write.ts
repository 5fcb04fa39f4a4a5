/** @file Writes facts. Each call is one transaction, which is on disk when the call returns. Recording the same fact again changes nothing. */

import { equationText, pointCount } from "../abstraction/computation.ts";
import { automapCommand, UsageError } from "../abstraction/error.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import { day } from "../abstraction/text.ts";
import type { Trial } from "../abstraction/trial.ts";
import { databaseWords } from "./default.ts";
import type { Row, SealedTable, Table } from "./facts.ts";
import { declarationHash, shortId } from "./identity.ts";
import { type Database, statement, write } from "./open.ts";
import { impossibleTrial } from "./possible.ts";
import type { Conditions, Environment, Finals, RunStatus, Workload } from "./record.ts";
import { environmentRowOf, provenanceOf, rowFrom, sealed, trialRowOf, workloadRowOf } from "./rows.ts";

/** How far a clock may be set back between two searches, milliseconds; beyond that one of the two times is wrong. */
const SET_BACK = 24 * 60 * 60 * 1000;

/**
 * The clock by which a search dates its records, milliseconds since 1970. It is later than every record made here and is never set back, because the
 * times of records order them: finals decide over what was measured before.
 * @throws UsageError where a record made here is dated more than a day from now
 */
export function recordClock(db: Database, wall: () => number = Date.now): () => number {
  const dated = "SELECT * FROM trials WHERE seal IS NOT NULL ORDER BY at DESC";
  let newest: Row | undefined;
  for (const row of statement(db, dated).iterate()) {
    newest = row as Row; // a row of trials
    if (provenanceOf(db, "trials", newest) === "here") break;
    newest = undefined;
  }
  const after = Number(newest?.["at"] ?? 0);
  const begun = wall();
  if (newest && after > begun + SET_BACK) {
    throw new UsageError(
      `trial ${shortId(idOfRow(newest))} of ${db.path} is dated ${day(after)}, and this machine's clock says ${day(begun)}: one of the two is wrong, and records are ordered by their times`,
      `set the clock; or, if it is right, ${automapCommand("db", "prune", databaseWords(db.path), "--since", day(begun + SET_BACK), "--best")} deletes what is dated later`,
    );
  }
  const started = performance.now();
  return () => Math.max(begun, after + 1) + Math.round(performance.now() - started);
}

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
  const { workload, environment, facts, row } = rowsOf(given);
  const { computation } = given.workload;
  const work = { points: pointCount(computation), equation: equationText(computation) };
  const problem = impossibleTrial(facts, work, given.environment);
  if (problem !== undefined) throw new UsageError(`a trial that cannot be recorded: ${problem}`);
  write(db, "recording a trial", () => {
    if (run !== undefined) checkRun(db, run);
    insert(db, "workloads", workload);
    insert(db, "environments", environment);
    insertSealed(db, "trials", sealed(db, "trials", row));
  });
  return idOfRow(row);
}

function rowsOf(given: NewTrial) {
  const workload = workloadRowOf(given.workload);
  const environment = environmentRowOf(given.environment);
  const { run, trial, conditions, finals, intrinsic } = given;
  const instruction = trial.candidate.intrinsic;
  if (intrinsic !== undefined && intrinsic.name !== instruction)
    throw new Error(`recordTrial: the candidate uses ${instruction}, given ${intrinsic.name}`);
  const facts = {
    ...trial,
    workload: idOfRow(workload),
    environment: idOfRow(environment),
    run,
    intrinsic: instruction,
    declaration: intrinsic && declarationHash(intrinsic),
    conditions,
    finals,
  };
  return { workload, environment, facts, row: trialRowOf(facts) };
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
  const workload = workloadRowOf(given.workload);
  const environment = environmentRowOf(given.environment);
  const { seed, options, budget, started } = given;
  const row = rowFrom("runs", {
    workload: idOfRow(workload),
    environment: idOfRow(environment),
    seed,
    options,
    budget,
    process: given.process ?? process.pid,
    started,
    ended: undefined,
    status: "running",
  });
  write(db, "beginning a run", () => {
    insert(db, "workloads", workload);
    insert(db, "environments", environment);
    insertSealed(db, "runs", sealed(db, "runs", row));
  });
  return idOfRow(row);
}

/**
 * Ends a run that was begun here. Repeating the same end changes nothing; a different one is an error. An end that is not sealed here, as an import
 * can bring one where no key can be stored, is a claim, and this one takes its place.
 * @param end milliseconds since 1970; a clock that was set back ends a run when it began
 */
export function endRun(
  db: Database,
  run: string,
  { status, ended }: { readonly status: Exclude<RunStatus, "running">; readonly ended: number },
): void {
  write(db, "ending a run", () => {
    const held = checkRun(db, run);
    const end = { status, ended: Math.max(ended, Number(held["started"])) };
    const row = sealed(db, "runs", { ...held, ...end });
    if (held["status"] === "running")
      statement(db, "UPDATE runs SET status = @status, ended = @ended, seal = @seal WHERE id = @id").run(row);
    else if (provenanceOf(db, "runs", held) === "imported") replace(db, "runs", row);
    else if (held["status"] !== status)
      throw new Error(`endRun: run ${run} is already ${String(held["status"])}, not ${status}`);
  });
}

/** Records measured constants of a machine; the caller defines the data's shape. @returns the calibration's id */
export function recordCalibration(
  db: Database,
  given: { readonly environment: Environment; readonly data: unknown; readonly at: number },
): string {
  const environment = environmentRowOf(given.environment);
  const { data, at } = given;
  const row = rowFrom("calibrations", { environment: idOfRow(environment), data, at });
  write(db, "recording a calibration", () => {
    insert(db, "environments", environment);
    insertSealed(db, "calibrations", sealed(db, "calibrations", row));
  });
  return idOfRow(row);
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

/**
 * Inserts a sealed row. A record that was imported without its seal gets it, so that the order of importing and measuring does not matter.
 * @returns whether it was new
 */
export function insertSealed(db: Database, table: SealedTable, row: Row): boolean {
  const isNew = insert(db, table, row);
  const held = isNew ? row : rowOf(db, table, idOfRow(row));
  if (held["seal"] !== row["seal"] && provenanceOf(db, table, held) === "imported") replace(db, table, row);
  return isNew;
}

/** Deletes and inserts a row, because triggers forbid updates. Only a prune may otherwise delete. */
export function replace(db: Database, table: Table, row: Row): void {
  statement(db, "INSERT INTO pruning VALUES ('two accounts of one record')").run();
  db.sqlite.pragma("defer_foreign_keys = ON");
  statement(db, `DELETE FROM ${table} WHERE id = ?`).run(row["id"]);
  insert(db, table, row);
  statement(db, "DELETE FROM pruning").run();
}

export function rowOf(db: Database, table: Table, id: string): Row {
  return statement(db, `SELECT * FROM ${table} WHERE id = ?`).get(id) as Row; // of a record that is there
}

/** @returns the run's row */
function checkRun(db: Database, run: string): Row {
  const found = statement(db, "SELECT * FROM runs WHERE id = ?").get(run);
  if (found === undefined) throw new UsageError(`${db.path} holds no run ${run}`, "begin it with beginRun");
  return found as Row; // a row of runs
}

function idOfRow(row: Row): string {
  return String(row["id"]);
}
