/**
 * A record's id is the hash of the facts of its schema version: other columns do not change it, and no fact can change
 * unnoticed.
 */

import { copyFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { columnsOf, idOfFacts, isLater, LOCAL, type Row, TABLE_NAMES, type Table } from "../db/facts.ts";
import {
  type Database,
  exportLines,
  idOf,
  importLines,
  mergeDatabase,
  openDatabase,
  queryTrials,
  recordTrial,
  verifyDatabase,
} from "../db/index.ts";
import { MIGRATIONS, type Migration, SCHEMA_VERSION } from "../db/schema.ts";
import { newTrial, workshop } from "./support/database.ts";

const shop = workshop();
afterAll(() => shop.remove());

/** Every released schema, and a file that holds every kind of fact. */
const FROZEN = [...MIGRATIONS.map((m) => `schema-${m.version}`), "every-fact"];

let opened = 0;
function frozen(name: string, migrations: readonly Migration[] = MIGRATIONS): Database {
  const path = shop.path(`${name}-${opened++}.db`);
  copyFileSync(join(import.meta.dirname, `fixtures/${name}.sqlite`), path);
  return openDatabase(path, {}, migrations);
}

/** The next schema: every table has a column more, which holds something in every record. */
const NEXT: Migration = {
  version: SCHEMA_VERSION + 1,
  summary: "a column in each table",
  additive: true,
  sql: TABLE_NAMES.map((table) => `ALTER TABLE ${table} ADD COLUMN invented TEXT NOT NULL DEFAULT 'something';`).join(
    "",
  ),
};

const rowsOf = (db: Database, table: Table): Row[] =>
  db.sqlite.prepare<[], Row>(`SELECT * FROM ${table} ORDER BY id`).all();

/** Columns as SQLite declares them. */
const declared = (db: Database, table: Table): { name: string; type: string }[] =>
  db.sqlite.pragma(`table_info(${table})`) as { name: string; type: string }[];

describe("a column that is added to each table", () => {
  it.each(FROZEN)("leaves every record of %s unchanged, under its id", (name) => {
    const before = frozen(name);
    const ids = TABLE_NAMES.map((table) => rowsOf(before, table).map((row) => row["id"]));
    before.close();
    const db = frozen(name, [...MIGRATIONS, NEXT]);
    for (const table of TABLE_NAMES)
      expect(new Set(rowsOf(db, table).map((r) => r["invented"]))).toEqual(new Set(["something"]));
    const { checked, problems } = verifyDatabase(db);
    expect(problems).toEqual([]);
    expect(Math.min(...Object.values(checked))).toBeGreaterThan(0);
    expect(TABLE_NAMES.map((table) => rowsOf(db, table).map((row) => row["id"]))).toEqual(ids);

    // They travel, and what is measured again is found under the same id.
    const other = openDatabase(shop.path(`other-${opened++}.db`));
    expect(importLines(other, exportLines(db)).rejected).toEqual([]);
    expect(queryTrials(other)).toEqual(queryTrials(db).map((t) => ({ ...t, provenance: "imported" })));
    expect(recordTrial(db, newTrial(61))).toBe(recordTrial(other, newTrial(61)));
    db.close();

    // This automap, to which the file is of a newer one, believes it and takes its records.
    const older = openDatabase(db.path, { readonly: true });
    expect(verifyDatabase(older).problems).toEqual([]);
    expect(mergeDatabase(other, db.path).rejected).toEqual([]);
    older.close();
    other.close();
  });
});

describe("a fact", () => {
  it("that was changed is found, in every column of every record", () => {
    const db = frozen("every-fact");
    db.sqlite.pragma("foreign_keys = OFF");
    db.sqlite.pragma("ignore_check_constraints = ON");
    for (const name of db.sqlite
      .prepare<[], string>("SELECT name FROM sqlite_schema WHERE type = 'trigger'")
      .pluck()
      .all())
      db.sqlite.exec(`DROP TRIGGER ${name}`);
    const unseen: string[] = [];
    let changed = 0;
    for (const table of TABLE_NAMES) {
      const facts = columnsOf(table).filter(
        (name) => !["id", "ended", "status"].includes(name) || (table === "trials" && name === "status"),
      );
      for (const { name, type } of declared(db, table).filter((c) => facts.includes(c.name))) {
        // Another value of its type, in all rows at once; then as it was.
        db.sqlite.exec("SAVEPOINT before");
        const other = type === "TEXT" ? `coalesce(${name}, '') || 'x'` : `coalesce(${name}, 0) + 1`;
        const { changes } = db.sqlite.prepare(`UPDATE ${table} SET ${name} = ${other}`).run();
        const found = new Set(
          verifyDatabase(db)
            .problems.filter(({ why }) => why.includes("its facts make the id"))
            .map(({ what }) => what),
        );
        for (const { id } of rowsOf(db, table))
          if (!found.has(`${table.slice(0, -1)} ${String(id).slice(0, 12)}`)) unseen.push(`${table}.${name} of ${id}`);
        changed += changes;
        db.sqlite.exec("ROLLBACK TO before; RELEASE before");
      }
    }
    expect(unseen).toEqual([]);
    expect(changed).toBeGreaterThan(200);
    db.close();
  });

  it("that a later version added changes the id of a row only when it has a value", () => {
    const db = frozen("every-fact");
    for (const table of TABLE_NAMES)
      for (const row of rowsOf(db, table)) {
        const later = columnsOf(table).filter((name) => isLater(table, name));
        const first = Object.fromEntries(Object.entries(row).filter(([name]) => !later.includes(name)));
        const nothing = Object.fromEntries(later.map((name) => [name, null]));
        expect(idOfFacts(table, { ...first, ...nothing })).toBe(idOfFacts(table, first));
        const ids = later.map((name) => idOfFacts(table, { ...first, [name]: 1 }));
        expect(new Set([idOfFacts(table, first), ...ids]).size).toBe(1 + later.length);
      }
    db.close();
  });

  it("is held in a known column: each table declares exactly the columns that columnsOf lists", () => {
    const db = frozen("every-fact");
    for (const table of TABLE_NAMES)
      expect(
        declared(db, table)
          .map((c) => c.name)
          .filter((name) => name !== LOCAL),
      ).toEqual(columnsOf(table));
    db.close();
  });

  it("that a newer automap added is not mistaken for a change, and is exported", () => {
    const db = frozen("every-fact");
    db.sqlite.exec("ALTER TABLE calibrations ADD COLUMN clock INTEGER");
    const [row] = rowsOf(db, "calibrations");
    const facts = { environment: row?.["environment"], data: row?.["data"], at: 1, clock: 7 };
    const id = idOf(facts);
    db.sqlite
      .prepare(
        "INSERT INTO calibrations (id, environment, data, at, clock) VALUES (@id, @environment, @data, @at, @clock)",
      )
      .run({ id, ...facts });
    expect(verifyDatabase(db).problems).toEqual([
      {
        what: `calibration ${id.slice(0, 12)}`,
        why: "its id cannot be checked: it holds clock, which this automap does not know; verify it with the automap that wrote it",
      },
    ]);
    const lines = [...exportLines(db)].map((line): unknown => JSON.parse(line));
    expect(lines).toContainEqual(expect.objectContaining({ id, clock: 7 }));
    db.close();
  });
});
