/** A record's id is the hash of its facts: other columns do not change it, and no fact can change unnoticed. */

import { copyFileSync, existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { COLUMNS_OF, idOfFacts, LOCAL, type Row, TABLE_NAMES, type Table } from "../../db/facts.ts";
import { type Database, exportLines, verifyDatabase } from "../../db/index.ts";
import { workshop } from "../support/database.ts";
import { recordEveryFact } from "../support/every-fact.ts";

const shop = workshop();
afterAll(shop.remove);

/** A file of schema 1 that holds every kind of fact. Deleted, it is made anew. */
const FROZEN = join(import.meta.dirname, "../fixtures/schema-1.sqlite");
if (!existsSync(FROZEN)) filled("frozen.db").sqlite.exec(`VACUUM INTO '${FROZEN}'`);

function filled(name: string): Database {
  const db = shop.open(name);
  recordEveryFact(db);
  return db;
}

let opened = 0;
function frozen(): Database {
  const name = `${opened++}.db`;
  copyFileSync(FROZEN, shop.path(name));
  return shop.open(name);
}

const rowsOf = (db: Database, table: Table): Row[] =>
  db.sqlite.prepare<[], Row>(`SELECT * FROM ${table} ORDER BY id`).all();

/** Columns as SQLite declares them. */
const declared = (db: Database, table: Table): { name: string; type: string }[] =>
  db.sqlite.pragma(`table_info(${table})`) as { name: string; type: string }[];

describe("a file of schema 1, as released", () => {
  it("is read as it is", () => {
    copyFileSync(FROZEN, shop.path("read.db"));
    const reader = shop.open("read.db", { readonly: true });
    expect(verifyDatabase(reader)).toEqual({
      checked: { environments: 2, workloads: 3, runs: 3, trials: 5, calibrations: 1 },
      problems: [],
    });
    expect(readFileSync(shop.path("read.db")).equals(readFileSync(FROZEN))).toBe(true);
  });

  it("holds what is recorded today, under the same ids, in tables of today", () => {
    const held = frozen();
    const made = filled("made.db");
    expect([...exportLines(held)]).toEqual([...exportLines(made)]);
    const schema = (of: Database): unknown =>
      of.sqlite.prepare("SELECT type, name, sql FROM sqlite_schema ORDER BY type, name").all();
    expect(schema(held)).toEqual(schema(made));
  });
});

describe("a fact", () => {
  it("that was changed is found, in every column of every record", () => {
    const db = frozen();
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
      for (const { name, type } of COLUMNS_OF[table].filter(({ changes }) => !changes)) {
        // Another value of its type, in all rows at once; then as it was.
        db.sqlite.exec("SAVEPOINT before");
        const other =
          type === undefined || type === "JSON" ? `coalesce(${name}, '') || 'x'` : `coalesce(${name}, 0) + 1`;
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
    expect(changed).toBeGreaterThan(180);
  });

  it("that is empty does not count for the id, so a column that is added changes none", () => {
    const db = frozen();
    for (const table of TABLE_NAMES)
      for (const row of rowsOf(db, table)) {
        const held = Object.fromEntries(Object.entries(row).filter(([, value]) => value !== null));
        expect(idOfFacts(table, { ...held, invented: null })).toBe(row["id"]);
      }
  });

  it("is held in a known column: each table declares exactly the columns that COLUMNS_OF lists", () => {
    const db = frozen();
    for (const table of TABLE_NAMES)
      expect(
        declared(db, table)
          .map((c) => c.name)
          .filter((name) => name !== LOCAL),
      ).toEqual(["id", ...COLUMNS_OF[table].map(({ name }) => name)]);
  });
});
