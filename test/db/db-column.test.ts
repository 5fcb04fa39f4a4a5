/** @file A column that the next schema adds is one entry of the table of columns: SQL, rows, records, documents, exports follow. */

import { copyFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, expect, it, vi } from "vitest";
import { z } from "zod";
import type { Column } from "../../db/columns.ts";
import {
  type Database,
  differencesOf,
  exportLines,
  importLines,
  queryTrials,
  recordTrial,
  showTrial,
  verifyDatabase,
} from "../../db/index.ts";
import { commandLine } from "../support/command-line.ts";
import { MACHINE, newTrial, toldIn, WARM, workshop } from "../support/database.ts";

vi.mock(import("../../db/columns.ts"), async (original) => {
  const actual = await original();
  const { environments, trials } = actual.COLUMNS;
  const joules: Column = {
    type: "REAL",
    check: "joules > 0",
    holds: z.number().positive(),
    optional: true,
    at: "conditions.joules",
    since: 2,
    shown: { label: "energy", text: (used: number) => `${used} J a call` },
  };
  const microcode: Column = { holds: z.string(), optional: true, since: 2 };
  return {
    ...actual,
    COLUMNS: { ...actual.COLUMNS, trials: { ...trials, joules }, environments: { ...environments, microcode } },
  };
});

const shop = workshop();
afterAll(shop.remove);

const schemaOf = (db: Database): unknown =>
  db.sqlite.prepare("SELECT type, name, sql FROM sqlite_schema ORDER BY type, name").all();
const measuredWith = (joules: number) => newTrial(60, { conditions: Object.assign({ joules }, WARM) });

it("is added to a file of schema 1, whose records stay as they are", () => {
  copyFileSync(join(import.meta.dirname, "../fixtures/schema-1.sqlite"), shop.path("old.db"));
  const reader = shop.open("old.db", { readonly: true });
  const lines = [...exportLines(reader)];
  expect(verifyDatabase(reader).problems).toEqual([]);

  const db = shop.open("old.db");
  expect(db.notice).toMatch(/was brought from schema 1 to 2; the file as it was is kept in .*old\.v1-backup\.db$/);
  expect([...exportLines(db)]).toEqual(lines);
  expect(verifyDatabase(db).problems).toEqual([]);
  const made = shop.open("new.db");
  expect(schemaOf(db)).toEqual(schemaOf(made));

  const id = recordTrial(db, measuredWith(0.5));
  expect(showTrial(db, id).conditions).toEqual({ ...WARM, joules: 0.5 });
  expect(db.sqlite.prepare("SELECT joules, microcode FROM records WHERE id = ?").get(id)).toEqual({
    joules: 0.5,
    microcode: null,
  });
});

it("is a fact that is written, read, shown, exported and imported", async () => {
  const db = shop.open("full.db");
  const bare = recordTrial(db, newTrial(60));
  const id = recordTrial(db, measuredWith(0.5));
  expect(id).not.toBe(bare);
  expect(toldIn(shop, () => recordTrial(db, measuredWith(-1)))).toMatch(/its field joules: Too small/);
  expect(queryTrials(db, { sort: "at" }).map(({ conditions }) => conditions)).toContainEqual({ ...WARM, joules: 0.5 });
  expect(verifyDatabase(db).problems).toEqual([]);

  const lines = [...exportLines(db)];
  expect(lines.filter((line) => line.includes('"joules":0.5'))).toHaveLength(1);
  const other = shop.open("other.db");
  expect(importLines(other, lines)).toMatchObject({ added: { trials: 2 }, rejected: [] });
  expect([...exportLines(other)]).toEqual(lines);
  const changed = lines.map((line) => line.replace('"joules":0.5', '"joules":0.25'));
  expect(importLines(other, changed).rejected).toMatchObject([
    { reason: expect.stringMatching(/its facts make the id/) },
  ]);

  expect((await commandLine(`db show ${id} --db ${db.path}`)).out).toMatch(/^ +energy +0\.5 J a call$/m);
  const { out } = await commandLine(`db show ${id} --json --db ${db.path}`);
  expect(JSON.parse(out)).toMatchObject({ trials: [{ conditions: { joules: 0.5 } }] });
});

it("of an environment is one more field that must agree", () => {
  const db = shop.open("worlds.db");
  const environment = Object.assign({ microcode: "0xa1" }, MACHINE);
  const found = showTrial(db, recordTrial(db, newTrial(60, { environment })));
  expect(found.environment).toMatchObject({ microcode: "0xa1" });
  expect(differencesOf(found, { environment })).toEqual([]);
  expect(differencesOf(found, { environment: MACHINE })).toEqual([
    { field: "microcode", recorded: "0xa1", here: undefined },
  ]);
});
