/** @file `automap db` against SQLite itself; what it prints and refuses stands in test/golden/commands/records.txt. */

import { afterAll, expect, it } from "vitest";
import { openDatabase, recordTrial } from "../../db/index.ts";
import { commandLine } from "../support/command-line.ts";
import { newTrial, tamper, workshop } from "../support/database.ts";

const shop = workshop();
afterAll(() => shop.remove());

it("automap db verify finds a changed number, and exits with 4", async () => {
  const path = shop.path("changed.db");
  const db = openDatabase(path);
  recordTrial(db, newTrial(60));
  tamper(db.sqlite, "UPDATE trials SET median = 1e-9");
  db.close();
  const { out, code } = await commandLine(["db", "verify", "--db", path]);
  expect(code).toBe(4);
  expect(out).toMatch(/^trial \w{12} {2}its facts make the id \w{12}: something changed it\n.*1 problem\n$/);
});

it("automap db columns lists the columns that SQL finds, each with its type", async () => {
  const all = await commandLine("db columns --json");
  const { columns } = JSON.parse(all.out) as { columns: { table: string; column: string; type: string }[] };
  const db = openDatabase(shop.path("columns.db"));
  for (const { table, column, type } of columns) {
    const declared = db.sqlite.prepare(`SELECT type FROM pragma_table_info('${table}') WHERE name = ?`).get(column);
    expect({ table, column, ...(declared as object) }).toEqual({
      table,
      column,
      type: type === "JSON" ? "TEXT" : type,
    });
  }
  db.close();
});
