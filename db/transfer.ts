/**
 * @file Moves records between files: export writes JSON lines; import checks each line, which may come from anybody.
 *
 *     {"kind":"header","format":"automap-records","version":1}
 *     {"kind":"environment","id":"9c0f...","target":"native","cpu":"...","isa":["avx512f"], ...}
 *     {"kind":"trial","id":"3f9a...","workload":"77d0...","candidate":{...},"median":0.0002301, ...}
 *
 * A line contains a row of a table; columns of JSON text are included as data. The id is the hash of the rest, so a line changed in transit is
 * detected, and importing it twice changes nothing. Merging two databases exports one and imports it into the other.
 */

import { closeSync, openSync, readSync, statSync } from "node:fs";
import { StringDecoder } from "node:string_decoder";
import Sqlite from "better-sqlite3";
import { canonicalJson } from "../abstraction/candidate.ts";
import { hasName } from "../abstraction/collections.ts";
import { checkNames, messageOf, reasonOf, UsageError, unreadable } from "../abstraction/error.ts";
import { visible } from "../abstraction/text.ts";
import {
  COLUMNS_OF,
  idOfFacts,
  isSealedTable,
  kindOf,
  LOCAL,
  noRows,
  type Row,
  TABLE_NAMES,
  type Table,
} from "./facts.ts";
import { shortId } from "./identity.ts";
import { type Database, statement, write } from "./open.ts";
import { idsWhere, type TrialFilter } from "./query.ts";
import { problemOf, problemOfTrial, provenanceOf, type Referred, rowHeld, worldIn, wrongField } from "./rows.ts";
import { withDatabase } from "./with-database.ts";
import { insert, insertSealed, replace, rowOf } from "./write.ts";

/** Version of the format; raised when older versions of automap could not read the lines. */
const EXPORT_VERSION = 1;
const FORMAT = "automap-records";
const HEADER = JSON.stringify({ kind: "header", format: FORMAT, version: EXPORT_VERSION });

// ---- Out

/**
 * Yields every record, or matching trials and the records they refer to, one per line and referenced records first. The file must not be written
 * through the same handle until the last line was taken.
 */
export function exportLines(db: Database, filter?: TrialFilter): Generator<string> {
  return linesWith(db, filter, false);
}

/** An export of rows, those that others refer to first. They are claims: nothing in it says where they were measured. */
export function* linesOfRows(rows: Iterable<readonly [table: Table, row: Row]>): Generator<string> {
  yield HEADER;
  for (const [table, row] of rows) yield lineOf(table, row, null);
}

/** @param sealed whether lines carry this machine's seals, for transfer between two files of one user */
function* linesWith(db: Database, filter: TrialFilter | undefined, sealed: boolean): Generator<string> {
  const chosen = filter && JSON.stringify(idsWhere(db, filter));
  yield HEADER;
  for (const table of TABLE_NAMES) {
    const where = chosen === undefined ? undefined : chosenRows(table);
    if (where === "") continue;
    const rows = db.sqlite
      .prepare<unknown[], object>(`SELECT * FROM ${table} ${where ?? ""} ORDER BY id`)
      .safeIntegers()
      .iterate(...(chosen === undefined ? [] : [chosen]));
    for (const held of rows) {
      const { [LOCAL]: seal, ...row } = rowHeld(held);
      yield lineOf(table, row, sealed ? seal : null);
    }
  }
}

function lineOf(table: Table, row: Row, seal: Row[string] | undefined): string {
  const mark = seal === null || seal === undefined ? {} : { [LOCAL]: seal };
  try {
    return JSON.stringify({ kind: kindOf(table), ...unpacked(table, row), ...mark });
  } catch (error) {
    // Nested lists too deep to serialise: as text they are refused on import.
    if (error instanceof RangeError) return JSON.stringify({ kind: kindOf(table), ...row, ...mark });
    throw error;
  }
}

/** The rows that selected trials refer to; empty for calibrations. */
function chosenRows(table: Table): string {
  const ids = "SELECT value FROM json_each(?)";
  switch (table) {
    case "trials":
      return `WHERE id IN (${ids})`;
    case "calibrations":
      return "";
    default:
      return `WHERE id IN (SELECT ${kindOf(table)} FROM trials WHERE id IN (${ids}))`;
  }
}

/** The filled fields of a row, with JSON columns as data. Invalid JSON stays text, which the import refuses. */
function unpacked(table: Table, row: Row): Record<string, unknown> {
  const filled = COLUMNS_OF[table].filter(({ name }) => (row[name] ?? null) !== null);
  const fields = filled.map(({ name, type }): [string, unknown] => {
    const value = row[name];
    return [name, type === "JSON" && typeof value === "string" ? (parsed(value) ?? value) : value];
  });
  return { id: row["id"], ...Object.fromEntries(fields) };
}

// ---- In

/** A line that was refused. */
export interface Rejection {
  /** From 1. */
  readonly line: number;
  readonly reason: string;
}

/** The result of an import. */
export interface ImportReport {
  /** New rows, by table. */
  readonly added: Readonly<Record<Table, number>>;
  /** Lines whose record already existed. */
  readonly known: number;
  readonly rejected: readonly Rejection[];
}

/** How lines are taken. */
export interface ImportOptions {
  /** Refuse the whole import for a single bad line. */
  readonly strict?: boolean;
}

/**
 * Imports every valid record whose references exist, in one transaction, and reports every other line.
 * @throws UsageError when the first line is not the header of an export that this automap can read
 */
export function importLines(db: Database, lines: Iterable<string>, options: ImportOptions = {}): ImportReport {
  checkNames(options, { strict: true }, "importLines");
  const { strict = false } = options;
  const added = noRows();
  const rejected: Rejection[] = [];
  let known = 0;
  try {
    write(db, "importing", () => {
      const world = worldIn(db);
      let number = 0;
      for (const line of lines) {
        number++;
        if (number === 1) checkHeader(line);
        else if (line.trim() !== "") {
          const taken = takeLine(db, line, world);
          if ("reason" in taken) {
            rejected.push({ line: number, reason: taken.reason });
            if (rejected.length > MOST_REJECTED)
              throw new UsageError(
                `more than ${MOST_REJECTED} lines are no records, line ${number}: ${taken.reason}`,
                "nothing was taken: this is no export of automap's, or one of a newer automap",
              );
          } else if (taken.isNew) added[taken.table]++;
          else known++;
        }
      }
      if (number === 0) throw new UsageError("the file to import is empty", HEADER_HINT);
      if (strict && rejected.length > 0) throw new Rejected();
    });
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    return { added: noRows(), known: 0, rejected };
  }
  return { added, known, rejected };
}

/** Most reported lines; a file with more is refused as a whole. */
const MOST_REJECTED = 100_000;

/** Ends a strict import's transaction. */
class Rejected extends Error {}

const HEADER_HINT = `an export begins with ${HEADER}`;

function checkHeader(line: string): void {
  const header = parsed(line);
  if (!isObject(header) || header["format"] !== FORMAT)
    throw new UsageError("line 1 is not the header of an export", HEADER_HINT);
  if (header["version"] !== EXPORT_VERSION)
    throw new UsageError(
      `the export is of version ${JSON.stringify(header["version"])}, this automap reads ${EXPORT_VERSION}`,
      "upgrade automap, or export again with this one",
    );
}

type Taken = { readonly table: Table; readonly isNew: boolean } | { readonly reason: string };

function takeLine(db: Database, line: string, world: Referred): Taken {
  const claim = readClaim(line);
  if ("reason" in claim) return claim;
  const { table, row } = claim;
  for (const { name, refers } of COLUMNS_OF[table]) {
    const id = row[name] ?? null;
    if (refers && id !== null && statement(db, `SELECT 1 FROM ${refers} WHERE id = ?`).get(id) === undefined)
      return {
        reason: `it refers to ${kindOf(refers)} ${shortId(String(id))}, which is neither in the lines before nor in the database`,
      };
  }
  const impossible = table === "trials" ? problemOfTrial(row, world) : undefined;
  if (impossible !== undefined) return { reason: impossible };
  try {
    const sealed = { ...row, [LOCAL]: claim.seal };
    // Between two files of one machine, sealed records stay local; a seal of another key does not count.
    const isOwn = isSealedTable(table) && provenanceOf(db, table, sealed) === "here";
    if (table === "runs") return { table, isNew: takeRun(db, isOwn ? sealed : row) };
    return { table, isNew: isOwn ? insertSealed(db, table, sealed) : insert(db, table, row) };
  } catch (error) {
    // Only this statement is rolled back. Errors such as a full disk are not the line's fault.
    if (error instanceof Sqlite.SqliteError && error.code.startsWith("SQLITE_CONSTRAINT"))
      return { reason: error.message };
    throw error;
  }
}

interface Claim {
  readonly table: Table;
  readonly row: Row;
  readonly seal: string | null;
}

/** Parses a line as a row with an id that matches its facts. A problem is returned as a reason, never thrown. */
function readClaim(line: string): Claim | { readonly reason: string } {
  try {
    const data = parsed(line);
    if (!isObject(data))
      return { reason: line.length > LONGEST ? `it is longer than ${LONGEST} characters` : "it is not a JSON object" };
    const { kind, [LOCAL]: seal, ...columns } = data;
    const table = TABLE_NAMES.find((name) => kindOf(name) === kind);
    if (table === undefined)
      return { reason: `its kind is ${excerpt(kind)}, not one of ${TABLE_NAMES.map(kindOf).join(", ")}` };
    const row = packed(table, columns);
    const wrong = wrongField(table, row);
    if (wrong !== undefined) return { reason: toldOf(wrong) };
    const id = idOfFacts(table, row);
    if (row["id"] !== id) return { reason: `its facts make the id ${shortId(id)}, it claims ${excerpt(row["id"])}` };
    const problem = problemOf(table, row);
    return problem === undefined
      ? { table, row, seal: typeof seal === "string" ? seal : null }
      : { reason: toldOf(problem) };
  } catch (error) {
    return { reason: toldOf(messageOf(error)) };
  }
}

const LONGEST_REASON = 300;

/** A reason on one line; it may quote the imported line. */
function toldOf(reason: string): string {
  const [first = ""] = reason.split("\n", 1);
  return visible(first.length > LONGEST_REASON ? `${first.slice(0, LONGEST_REASON)}...` : first);
}

/** Data as a row with exactly the table's columns, and JSON text where it holds data. @throws Error naming a surplus or missing field */
function packed(table: Table, { id, ...data }: Readonly<Record<string, unknown>>): Row {
  const columns = COLUMNS_OF[table];
  const named = { id: cellOf("id", id) };
  const surplus = Object.keys(data).find((field) => !hasName(columns, field));
  if (surplus !== undefined) throw new Error(`a ${kindOf(table)} has no field ${excerpt(surplus)}`);
  const cells = columns.map(({ name, type, optional, of }): [string, Row[string]] => {
    const value = data[name];
    if (value === undefined && !optional && of === undefined) throw new Error(`its field ${name} is missing`);
    if (value === undefined || value === null) return [name, null];
    return [name, type === "JSON" ? canonicalJson(value) : cellOf(name, value)];
  });
  return { ...named, ...Object.fromEntries(cells) };
}

function cellOf(name: string, value: unknown): string | number {
  if (typeof value === "string" || typeof value === "number") return value;
  throw new Error(
    `its field ${name} is ${value === undefined ? "missing" : `${excerpt(value)}, not a text or a number`}`,
  );
}

/**
 * Inserts a run, or settles how it ended. A run that was begun here ends as this machine says, and no import changes it. Of two accounts with equal
 * standing one that has ended is kept, and of two ends the earlier, so that the order of merging does not matter.
 * @returns whether it was new
 */
function takeRun(db: Database, row: Row): boolean {
  if (insert(db, "runs", row)) return true;
  const held = rowOf(db, "runs", String(row["id"]));
  const isOwn = (row[LOCAL] ?? null) !== null;
  const isHeldOwn = provenanceOf(db, "runs", held) === "here";
  if (isOwn === isHeldOwn ? isSettledBy(row, held) : isOwn) replace(db, "runs", row);
  return false;
}

/** Whether the first of two accounts of a run says more surely how it ended. */
function isSettledBy(one: Row, held: Row): boolean {
  const end = (row: Row): number => Number(row["ended"] ?? Number.POSITIVE_INFINITY);
  return end(one) < end(held) || (end(one) === end(held) && String(one["status"]) < String(held["status"]));
}

/**
 * Adds every record of another database; idempotent and independent of the order. Records measured on this machine keep that mark; all others are
 * imported.
 * @param other path of the other database
 * @throws UsageError when that file is missing or no database of automap
 */
export function mergeDatabase(db: Database, other: string): ImportReport {
  return withDatabase(other, (source) => importLines(db, linesWith(source, undefined, true)));
}

// ---- Lines

/** Bytes of the longest accepted line; automap writes shorter ones. */
const LONGEST = 4 * 2 ** 20;
const CHUNK = 2 ** 16;

/** The lines of a file, read piecewise. A line that is too long is cut and therefore refused. @throws UsageError when there is no such file */
export function linesOf(path: string): Generator<string> {
  let file: number;
  try {
    if (statSync(path).isDirectory()) throw new UsageError(`${path} is a directory`, "name a file in it");
    file = openSync(path, "r");
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw unreadable(`cannot read ${path}: ${reasonOf(error)}`, error);
  }
  return linesIn(file);
}

function* linesIn(file: number): Generator<string> {
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
  return visible(text.length > 40 ? `${text.slice(0, 40)}...` : text);
}
