/** @file The names that occur in a database file. Filters accept them, and misspelt names are compared with them. */

import { identifier } from "../abstraction/schema.ts";
import { COLUMNS } from "./columns.ts";
import { type Database, read } from "./open.ts";
import { line, title, word } from "./parse-text.ts";
import { WORKLOAD_NAME } from "./record.ts";

/** Operators of the workloads in a file. */
export function operatorsIn(db: Database): string[] {
  return read(db, () => strings(db, "SELECT DISTINCT operator FROM workloads ORDER BY operator")).filter(is(title));
}

/** Names that users gave. */
export function namesIn(db: Database): string[] {
  return read(db, () => strings(db, "SELECT DISTINCT name FROM workloads WHERE name IS NOT NULL ORDER BY name")).filter(
    (name) => WORKLOAD_NAME.test(name),
  );
}

/** Targets of the trials in a file. */
export function targetsIn(db: Database): string[] {
  return read(db, () => strings(db, "SELECT DISTINCT target FROM environments ORDER BY target")).filter(is(line));
}

/** Workers of fleets that measured trials in a file. */
export function workersIn(db: Database): string[] {
  const sql = "SELECT DISTINCT worker FROM trials WHERE worker IS NOT NULL ORDER BY worker";
  return read(db, () => strings(db, sql)).filter((name) => COLUMNS.trials.worker.holds.safeParse(name).success);
}

/** Instructions of the trials in a file; each takes one step in an index. */
export function intrinsicsIn(db: Database): string[] {
  const sql = `
    WITH RECURSIVE used (name) AS (
      SELECT min(intrinsic) FROM trials
      UNION ALL SELECT (SELECT min(intrinsic) FROM trials WHERE intrinsic > name) FROM used WHERE name IS NOT NULL
    ) SELECT name FROM used WHERE name IS NOT NULL`;
  return read(db, () => strings(db, sql)).filter(is(word));
}

/** Axes and parameters of the workloads in a file. */
export function extentsIn(db: Database): string[] {
  return read(db, () =>
    strings(db, "SELECT DISTINCT key FROM workloads, json_each(json_patch(extents, parameters)) ORDER BY key"),
  ).filter(is(identifier));
}

/** Only values that a record may hold are offered to users. */
const is =
  (schema: typeof word) =>
  (text: string): boolean =>
    schema.safeParse(text).success;

/** The first column of every row. */
export function strings(db: Database, sql: string, values: readonly (string | number | null)[] = []): string[] {
  return db.sqlite
    .prepare(sql)
    .pluck()
    .all(...values)
    .map(String);
}
