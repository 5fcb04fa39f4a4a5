/**
 * @file Records between files: export writes JSON lines, import checks each line as what it is, a stranger's claim.
 *
 *     {"kind":"header","format":"automap-records","version":1}
 *     {"kind":"environment","id":"9c0f...","target":"native","cpu":"...","isa":["avx512f"], ...}
 *     {"kind":"trial","id":"3f9a...","workload":"77d0...","candidate":{...},"median":0.0002301, ...}
 *
 * A line holds a row of a table, columns of JSON text as the data they hold. The id is the hash of the rest, so a line that was
 * changed on the way is seen, and importing it twice changes nothing. Merging two databases is the export of one read by the other.
 */

import { closeSync, openSync, readSync } from "node:fs";
import { StringDecoder } from "node:string_decoder";
import Sqlite from "better-sqlite3";
import { z } from "zod";
import { canonicalJson } from "../abstraction/candidate.ts";
import { UsageError } from "../abstraction/error.ts";
import { shortId } from "./identity.ts";
import { type Database, openDatabase, statement, write } from "./open.ts";
import { idsWhere, type TrialFilter } from "./query.ts";
import { computationOf } from "./record.ts";
import {
  environmentOf,
  environmentRowOf,
  idOfFacts,
  LATER_COLUMNS,
  problemOf,
  type Row,
  TABLE_NAMES,
  TABLES,
  type Table,
  trialRow,
  workloadOf,
  workloadRowOf,
} from "./rows.ts";
import { insert } from "./write.ts";

/** Of the lines; raised when an older automap could not read them. */
export const EXPORT_VERSION = 1;
const FORMAT = "automap-records";

/** A line is named by the table in the singular. */
const KINDS: Readonly<Record<Table, string>> = {
  environments: "environment",
  workloads: "workload",
  runs: "run",
  trials: "trial",
  calibrations: "calibration",
};

/** What a row of a table refers to. */
const REFERENCES: Readonly<Record<Table, Readonly<Record<string, Table>>>> = {
  environments: {},
  workloads: {},
  runs: { workload: "workloads", environment: "environments" },
  trials: { run: "runs", workload: "workloads", environment: "environments" },
  calibrations: { environment: "environments" },
};

// ---- Out

/**
 * Every record, or the trials that match with what they refer to; one line each without its end, what is referred to first.
 * The file must not be written through the same handle before the last line was taken.
 */
export function* exportLines(db: Database, filter?: TrialFilter): Generator<string> {
  const chosen = filter && JSON.stringify(idsWhere(db, filter));
  yield JSON.stringify({ kind: "header", format: FORMAT, version: EXPORT_VERSION });
  for (const table of TABLE_NAMES) {
    const where = chosen === undefined ? undefined : chosenRows(table);
    if (where === "") continue;
    const rows = db.sqlite
      .prepare<unknown[], Row>(`SELECT * FROM ${table} ${where ?? ""} ORDER BY id`)
      .iterate(...(chosen === undefined ? [] : [chosen]));
    for (const row of rows) yield JSON.stringify({ kind: KINDS[table], ...unpacked(table, row) });
  }
}

/** The rows that chosen trials need; nothing for calibrations. */
function chosenRows(table: Table): string {
  const ids = "SELECT value FROM json_each(?)";
  switch (table) {
    case "trials":
      return `WHERE id IN (${ids})`;
    case "calibrations":
      return "";
    default:
      return `WHERE id IN (SELECT ${KINDS[table]} FROM trials WHERE id IN (${ids}))`;
  }
}

/** Columns of JSON text as data; a later column that holds nothing is left out, so that an older automap can read the line. */
function unpacked(table: Table, row: Row): Record<string, unknown> {
  const texts: readonly string[] = TABLES[table].json;
  return Object.fromEntries(
    Object.entries(row)
      .filter(([name, value]) => value !== null || !LATER_COLUMNS.includes(name))
      .map(([name, value]) => [name, texts.includes(name) && typeof value === "string" ? JSON.parse(value) : value]),
  );
}

// ---- In

export interface Rejection {
  /** From 1. */
  readonly line: number;
  readonly reason: string;
}

export interface ImportReport {
  /** New rows, by table. */
  readonly added: Readonly<Record<Table, number>>;
  /** Lines whose record was there already. */
  readonly known: number;
  readonly rejected: readonly Rejection[];
}

export interface ImportOptions {
  /** One bad line, and nothing is taken. */
  readonly strict?: boolean;
}

/**
 * Takes every line that is a whole, true record whose world is there, in one transaction, and names each other one.
 * @throws UsageError when the first line is not the header of an export this automap can read
 */
export function importLines(
  db: Database,
  lines: Iterable<string>,
  { strict = false }: ImportOptions = {},
): ImportReport {
  const added = { environments: 0, workloads: 0, runs: 0, trials: 0, calibrations: 0 };
  const rejected: Rejection[] = [];
  let known = 0;
  try {
    write(db, "importing", () => {
      let number = 0;
      for (const line of lines) {
        number++;
        if (number === 1) checkHeader(line);
        else if (line.trim() !== "") {
          const taken = takeLine(db, line);
          if ("reason" in taken) rejected.push({ line: number, reason: taken.reason });
          else if (taken.isNew) added[taken.table]++;
          else known++;
        }
      }
      if (number === 0) throw new UsageError("the file to import is empty", { hint: HEADER_HINT });
      if (strict && rejected.length > 0) throw new Rejected();
    });
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    return { added: { environments: 0, workloads: 0, runs: 0, trials: 0, calibrations: 0 }, known: 0, rejected };
  }
  return { added, known, rejected };
}

/** Ends a strict import's transaction. */
class Rejected extends Error {}

const HEADER_HINT = `an export begins with {"kind":"header","format":"${FORMAT}","version":${EXPORT_VERSION}}`;

function checkHeader(line: string): void {
  const header = parsed(line);
  if (!isObject(header) || header["format"] !== FORMAT)
    throw new UsageError("line 1 is not the header of an export", { hint: HEADER_HINT });
  if (header["version"] !== EXPORT_VERSION)
    throw new UsageError(
      `the export is of version ${JSON.stringify(header["version"])}, this automap reads ${EXPORT_VERSION}`,
      { hint: "upgrade automap, or export again with this one" },
    );
}

type Taken = { readonly table: Table; readonly isNew: boolean } | { readonly reason: string };

function takeLine(db: Database, line: string): Taken {
  const claim = readClaim(line);
  if ("reason" in claim) return claim;
  const { table, row } = claim;
  for (const [column, to] of Object.entries(REFERENCES[table])) {
    const id = row[column];
    if (id !== null && id !== undefined && statement(db, `SELECT 1 FROM ${to} WHERE id = ?`).get(id) === undefined)
      return {
        reason: `it refers to ${KINDS[to]} ${shortId(String(id))}, which is neither in the lines before nor in the database`,
      };
  }
  try {
    const isNew = insert(db, table, row);
    if (!isNew && table === "runs") settleRun(db, row);
    return { table, isNew };
  } catch (error) {
    // The statement alone is undone; that the disk is full is no fault of the line.
    if (error instanceof Sqlite.SqliteError && error.code.startsWith("SQLITE_CONSTRAINT"))
      return { reason: error.message };
    throw error;
  }
}

/** What a line claims to be: a row whose id its facts make. Whatever is wrong with it is a reason, never an exception. */
function readClaim(line: string): { readonly table: Table; readonly row: Row } | { readonly reason: string } {
  try {
    const data = parsed(line);
    if (!isObject(data))
      return { reason: line.length > LONGEST ? `it is longer than ${LONGEST} characters` : "it is not a JSON object" };
    const { kind, ...columns } = data;
    const table = TABLE_NAMES.find((name) => KINDS[name] === kind);
    if (table === undefined)
      return { reason: `its kind is ${excerpt(kind)}, not one of ${Object.values(KINDS).join(", ")}` };
    const row = packed(table, columns);
    const problem = problemOf(TABLES[table].schema, row);
    if (problem !== undefined) return { reason: problem };
    const id = idOfFacts(table, row);
    if (row["id"] !== id) return { reason: `its facts make the id ${shortId(id)}, it claims ${excerpt(row["id"])}` };
    const untrue = untruthOf(table, row);
    return untrue === undefined ? { table, row } : { reason: untrue };
  } catch (error) {
    return { reason: (error instanceof Error ? error.message : String(error)).split("\n", 1)[0] ?? "" };
  }
}

/** What rows of one table have to be besides well-formed: a workload's parts must make its computation again. */
function untruthOf(table: Table, row: Row): string | undefined {
  const again = (made: Row, what: string): string | undefined =>
    canonicalJson(made) === canonicalJson(row) ? undefined : `its parts do not make the ${what} it claims to be`;
  switch (table) {
    case "environments":
      return again(environmentRowOf(environmentOf(row, "the line")), "environment");
    case "workloads": {
      const workload = workloadOf(row, "the line");
      return again(
        workloadRowOf({ computation: computationOf(workload), parameters: workload.parameters }),
        "workload",
      );
    }
    case "runs":
      return (row["status"] === "running") === (row["ended"] === null) ? undefined : "its status and its end disagree";
    case "trials":
      return impossible(trialRow.parse(row));
    default:
      return undefined;
  }
}

/** What no measurement can have said. */
function impossible(trial: z.infer<typeof trialRow>): string | undefined {
  const { intrinsic } = z.object({ intrinsic: z.string().optional() }).parse(trial.candidate);
  if (intrinsic !== undefined && intrinsic !== trial.intrinsic)
    return `its candidate uses ${intrinsic}, its field intrinsic says ${trial.intrinsic}`;
  if (trial.status !== "ok") return undefined;
  const { median, low, high, samples } = trial;
  if (median < Math.min(...samples) || median > Math.max(...samples)) return "its median lies outside its samples";
  return low <= median && median <= high ? undefined : "its median lies outside its interval";
}

/** Data as a row of the table: exactly its columns, JSON text where it holds data. @throws Error naming a field that is too many or missing */
function packed(table: Table, data: Readonly<Record<string, unknown>>): Row {
  const names = columnsOf(table);
  const surplus = Object.keys(data).find((name) => !names.includes(name));
  if (surplus !== undefined) throw new Error(`a ${KINDS[table]} has no field ${excerpt(surplus)}`);
  const texts: readonly string[] = TABLES[table].json;
  return Object.fromEntries(
    names.map((name) => {
      const value = LATER_COLUMNS.includes(name) ? (data[name] ?? null) : data[name];
      if (value === undefined) throw new Error(`its field ${name} is missing`);
      if (value === null) return [name, null];
      if (texts.includes(name)) return [name, canonicalJson(value)];
      if (typeof value === "string" || typeof value === "number") return [name, value];
      throw new Error(`its field ${name} is ${excerpt(value)}, not a text or a number`);
    }),
  );
}

const COLUMNS: Readonly<Record<Table, readonly string[]>> = {
  environments: "id target cpu cores isa compiler compiler_version flags kernel driver node automap".split(" "),
  workloads: "id operator computation equation extents parameters tensors dtype sum points".split(" "),
  runs: "id workload environment seed options budget process started ended status".split(" "),
  trials: [
    ..."id run workload environment candidate intrinsic declaration status log median low high samples".split(" "),
    ..."instructions predicted uncorrected levels threads cache affinity at".split(" "),
    ...LATER_COLUMNS,
  ],
  calibrations: "id environment data at".split(" "),
};

export function columnsOf(table: Table): readonly string[] {
  return COLUMNS[table];
}

/** A run that ended anywhere has ended; of two ends the earlier is kept, so that the order of merging does not matter. */
function settleRun(db: Database, row: Row): void {
  const { id, ended, status } = row;
  if (ended === null || ended === undefined) return;
  const held = statement(db, "SELECT ended, status FROM runs WHERE id = ?").get(id) as Row;
  if (held["ended"] === null) {
    statement(db, "UPDATE runs SET ended = ?, status = ? WHERE id = ?").run(ended, status, id);
    return;
  }
  const [theirs, ours] = [
    [ended, status],
    [held["ended"], held["status"]],
  ];
  const isEarlier =
    Number(theirs[0]) < Number(ours[0]) || (theirs[0] === ours[0] && String(theirs[1]) < String(ours[1]));
  if (!isEarlier) return;
  // The one change of a fact: the row is taken out and put back, which only a prune may do.
  statement(db, "INSERT INTO pruning VALUES ('two ends of one run')").run();
  db.sqlite.pragma("defer_foreign_keys = ON");
  statement(db, "DELETE FROM runs WHERE id = ?").run(id);
  insert(db, "runs", row);
  statement(db, "DELETE FROM pruning").run();
}

/** Adds every record of another database. Done twice, or the other way round, it gives the same. */
export function mergeDatabase(db: Database, other: string): ImportReport {
  const source = openDatabase(other, { readonly: true });
  try {
    return importLines(db, exportLines(source));
  } finally {
    source.close();
  }
}

// ---- Lines

/** Longer lines are none of automap's. */
const LONGEST = 16 * 2 ** 20;
const CHUNK = 2 ** 16;

/** The lines of a file, read piece by piece; a line that is too long is cut, and so refused. @throws UsageError when there is no such file */
export function* linesOf(path: string): Generator<string> {
  let file: number;
  try {
    file = openSync(path, "r");
  } catch (error) {
    throw new UsageError(`cannot read ${path}: ${error instanceof Error ? error.message : String(error)}`);
  }
  try {
    const decoder = new StringDecoder("utf8");
    const buffer = Buffer.alloc(CHUNK);
    let rest = "";
    for (let size = readSync(file, buffer); size > 0; size = readSync(file, buffer)) {
      const parts = decoder.write(buffer.subarray(0, size)).split("\n");
      parts[0] = rest.length > LONGEST ? rest : rest + (parts[0] ?? "");
      rest = parts.pop() ?? "";
      yield* parts;
    }
    if (rest !== "") yield rest;
  } finally {
    closeSync(file);
  }
}

function parsed(line: string): unknown {
  if (line.length > LONGEST) return undefined;
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function excerpt(value: unknown): string {
  const text = JSON.stringify(value) ?? "undefined";
  return text.length > 40 ? `${text.slice(0, 40)}...` : text;
}
