/** @file The file of a database: opened, refused, locked, full, damaged, migrated. */

import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import Sqlite from "better-sqlite3";
import { beforeEach, describe, expect, it } from "vitest";
import {
  checkDatabase,
  type Database,
  openDatabase,
  queryTrials,
  recordTrial,
  showTrial,
  trialId,
  verifyDatabase,
} from "../../db/index.ts";
import { read } from "../../db/open.ts";
import { MIGRATIONS } from "../../db/schema.ts";
import { eachWorkshop, newTrial, tamper, toldIn, trial, workloadNamed } from "../support/database.ts";

/** The schema of today. */
const RELEASED = MIGRATIONS.length;

const shop = eachWorkshop();
let db: Database;
beforeEach(() => {
  db = shop.open("automap.db");
});

/** Works as an automap of the next schema. */
function withNext<T>(sql: string, work: () => T): T {
  const migrations = MIGRATIONS as string[];
  migrations.push(sql);
  try {
    return work();
  } finally {
    migrations.pop();
  }
}

const told = (work: () => unknown): string => toldIn(shop, work);

describe("a file", () => {
  it("has settings that keep committed records", () => {
    const pragma = (what: string): unknown => db.sqlite.pragma(what, { simple: true });
    expect(
      ["journal_mode", "synchronous", "foreign_keys", "trusted_schema", "cell_size_check", "application_id"].map(
        pragma,
      ),
    ).toEqual(["wal", 2, 1, 0, 1, 0x616d6462]);
    expect(pragma("user_version")).toBe(RELEASED);
    const tables = db.sqlite.pragma("table_list") as { schema: string; name: string; type: string; strict: number }[];
    const ours = tables.filter((t) => t.type === "table" && !t.name.startsWith("sqlite_"));
    expect(ours.filter((t) => t.strict !== 1)).toEqual([]);
  });

  it("is read in one snapshot, whatever another process writes between two reads", () => {
    const count = (): unknown => db.sqlite.prepare("SELECT count(*) FROM trials").pluck().get();
    const other = shop.open("automap.db");
    const seen = read(db, () => {
      const before = count();
      recordTrial(other, newTrial(77));
      return [before, count()];
    });
    expect(seen[1]).toBe(seen[0]);
    expect(count()).toBe(Number(seen[0]) + 1);
  });

  it("that is no database of automap is refused and left unchanged", () => {
    const path = shop.path("other.db");
    const other = new Sqlite(path);
    other.exec("CREATE TABLE notes (text)");
    const before = readFileSync(path);
    expect(told(() => openDatabase(path))).toMatchInlineSnapshot(`
      "/other.db is a SQLite database, but not one of automap's
        name another file; this one was not touched"
    `);
    expect(readFileSync(path).equals(before)).toBe(true);
    writeFileSync(shop.path("text.db"), "once upon a time ".repeat(100));
    expect(told(() => shop.open("text.db"))).toMatchInlineSnapshot(`
      "/text.db is not a SQLite database
        name another file"
    `);
    mkdirSync(shop.path("folder"));
    expect(told(() => shop.open("folder"))).toMatchInlineSnapshot(`
      "/folder is a directory
        name a file in it"
    `);
    expect(told(() => shop.open("no/automap.db"))).toMatchInlineSnapshot(`
      "readonly: /no/automap.db cannot be written: there is no directory /no
        make it first, or name another"
    `);
  });

  it("that is only read leaves no log beside it", () => {
    openDatabase(shop.path("read.db")).close();
    openDatabase(shop.path("read.db"), { readonly: true }).close();
    expect([existsSync(shop.path("read.db-wal")), existsSync(shop.path("read.db-shm"))]).toEqual([false, false]);
  });

  it("that is missing or empty is created for writing, and refused for reading with how to make one", () => {
    expect(told(() => shop.open("new.db", { readonly: true }))).toMatchInlineSnapshot(`
      "there is no database at /new.db
        automap tune makes one: automap tune conv2d --db /new.db; or name yours"
    `);
    expect(existsSync(shop.path("new.db"))).toBe(false);
    writeFileSync(shop.path("new.db"), "");
    expect(told(() => shop.open("new.db", { readonly: true }))).toMatchInlineSnapshot(`
      "/new.db is empty
        automap tune fills it: automap tune --help"
    `);
    const made = shop.open("new.db");
    expect(queryTrials(made)).toEqual([]);
  });

  it("open for reading cannot be written", () => {
    const reader = shop.open("automap.db", { readonly: true });
    expect(told(() => recordTrial(reader, newTrial(60)))).toMatchInlineSnapshot(`
      "/automap.db is open for reading only
        open it without readonly to write"
    `);
  });

  it("that stays locked is given up with advice", () => {
    const holder = new Sqlite(shop.path("automap.db"));
    holder.exec("BEGIN IMMEDIATE");
    const hasty = shop.open("automap.db", { patience: 50 });
    expect(told(() => recordTrial(hasty, newTrial(60)))).toMatchInlineSnapshot(`
      "locked: /automap.db stayed locked by another process while recording a trial
        end the program that holds it (lsof names it) and run the same command again"
    `);
    holder.exec("ROLLBACK");
    expect(told(() => recordTrial(hasty, newTrial(60)))).toBe("nothing");
    holder.close();
  });

  it("on a full disk keeps its records and takes no part of a new one", () => {
    const id = recordTrial(db, newTrial(60));
    db.sqlite.pragma(`max_page_count = ${String(db.sqlite.pragma("page_count", { simple: true }))}`);
    const log = "x".repeat(20_000);
    expect(
      told(() =>
        recordTrial(db, newTrial(1, { workload: workloadNamed("matmul"), trial: trial({ status: "wrong", log }) })),
      ),
    ).toMatchInlineSnapshot(`
      "full: /automap.db: no space left on the device while recording a trial
        nothing of it was written; free some space and run the same command again"
    `);
    expect(queryTrials(db).map((t) => t.id)).toEqual([id]);
    expect(db.sqlite.prepare("SELECT count(*) FROM workloads").pluck().get()).toBe(1);
  });

  /** More than the file may hold from now on. */
  const GREEDY = "PRAGMA max_page_count = 1; CREATE TABLE t (x); INSERT INTO t VALUES (zeroblob(1000000))";

  it("that a full disk does not let begin is removed again, and one that was there is not", () => {
    const open = (name: string): string => withNext(GREEDY, () => told(() => shop.open(name)));
    expect(open("new.db")).toMatch(/^full: .*new.db: no space left on the device while opening it/);
    expect(readdirSync(shop.path("")).filter((name) => name.startsWith("new.db"))).toEqual([]);
    openDatabase(shop.path("old.db")).close();
    expect(open("old.db")).toMatch(/^full: /);
    expect(existsSync(shop.path("old.db"))).toBe(true);
  });

  it("with a damaged record names the record", () => {
    const id = recordTrial(db, newTrial(60));
    tamper(db.sqlite, 'UPDATE trials SET candidate = \'{"kind":"mapping","intrinsic":3}\'');
    expect(told(() => queryTrials(db)).replace(id.slice(0, 12), "ID")).toMatchInlineSnapshot(`
      "/automap.db: trial ID is damaged: its field candidate.intrinsic: Invalid input: expected string, received number
        something other than this automap wrote it; automap db verify --db /automap.db names every such row, and db merge into a new file takes the others"
    `);
  });
});

describe("the schema", () => {
  const path = (): string => shop.path("automap.db");
  const version = (of: Database): unknown => of.sqlite.pragma("user_version", { simple: true });

  it("is migrated after a backup of the file, and a reader takes the file as it is", () => {
    const id = recordTrial(db, newTrial(60));
    withNext("ALTER TABLE runs ADD COLUMN notes TEXT", () => {
      const reader = openDatabase(path(), { readonly: true });
      expect([version(reader), showTrial(reader, id).id]).toEqual([RELEASED, id]);
      const newer = openDatabase(path());
      expect(newer.notice?.replaceAll(shop.path(""), "")).toBe(
        `/automap.db was brought from schema ${RELEASED} to ${RELEASED + 1}; the file as it was is kept in /automap.v${RELEASED}-backup.db`,
      );
      expect([version(newer), showTrial(newer, id).id]).toEqual([RELEASED + 1, id]);
    });
    const backup = shop.open(`automap.v${RELEASED}-backup.db`, { readonly: true });
    expect(queryTrials(backup).map((t) => t.id)).toEqual([id]);
  });

  it.each([
    [
      "is newer",
      `user_version = ${RELEASED + 1}`,
      `was written by a newer automap (schema ${RELEASED + 1}, this one reads schemas up to ${RELEASED})
  upgrade automap, or name another file; this one was not touched`,
    ],
    [
      "was never released",
      "application_id = 0x616d6170",
      `was written by automap 0.1, whose records this automap cannot read
  tune again into another file; this one was not touched`,
    ],
  ])("that %s is refused, and says what to do", (_, pragma, says) => {
    recordTrial(db, newTrial(60));
    db.sqlite.pragma(pragma);
    db.close();
    const before = readFileSync(path());
    for (const readonly of [true, false])
      expect(told(() => openDatabase(path(), { readonly }))).toBe(`/automap.db ${says}`);
    expect(readFileSync(path()).equals(before)).toBe(true);
  });

  it("stays as it was when a migration fails", () => {
    withNext("CREATE TABLE notes (text); INSERT INTO nowhere VALUES (1)", () =>
      expect(() => openDatabase(path())).toThrow(/nowhere/),
    );
    expect(version(db)).toBe(RELEASED);
    expect(db.sqlite.prepare("SELECT count(*) FROM sqlite_schema WHERE name = 'notes'").pluck().get()).toBe(0);
  });
});

describe("a file that is deleted or replaced while it is open", () => {
  const RESCUED = "automap.rescued.db";

  /** The ids in a file; none where there is no file. */
  function idsIn(name: string): string[] {
    const held = shop.open(name, { readonly: true });
    expect(verifyDatabase(held).problems).toEqual([]);
    const ids = queryTrials(held, { sort: "at" }).map((t) => t.id);
    held.close();
    return ids;
  }
  const third = newTrial(62);

  it.each<[string, () => void, string]>([
    ["deleted", () => rmSync(shop.path("automap.db")), "/automap.db was deleted"],
    ["moved", () => renameSync(shop.path("automap.db"), shop.path("other.db")), "/automap.db was deleted"],
    [
      "replaced by another",
      () => {
        rmSync(shop.path("automap.db"));
        writeFileSync(shop.path("automap.db"), "");
      },
      "/automap.db was replaced",
    ],
    [
      "deleted with all that lies beside it",
      () => {
        for (const end of ["", "-wal", "-shm"]) rmSync(shop.path(`automap.db${end}`));
      },
      "/automap.db was deleted",
    ],
    ["robbed of its log", () => rmSync(shop.path("automap.db-wal")), "/automap.db-wal was deleted"],
    ["robbed of its log's index", () => rmSync(shop.path("automap.db-shm")), "/automap.db-shm was deleted"],
  ])("is noticed at the next record when it is %s, and all is saved beside it", (_, happens, says) => {
    const before = [60, 61].map((time) => recordTrial(db, newTrial(time)));
    happens();
    expect(told(() => recordTrial(db, third))).toBe(
      `moved: ${says} while recording a trial\n  all that it held, and what was measured since, is in /${RESCUED}: move it back, or go on with --db ${shop.path(RESCUED)}`.replace(
        `--db ${shop.path("")}`,
        "--db ",
      ),
    );
    expect(idsIn(RESCUED).toSorted()).toEqual([...before, trialId(third)].toSorted());
    // What is recorded all the same is saved too.
    expect(told(() => recordTrial(db, newTrial(63)))).toContain(RESCUED);
    expect(idsIn(RESCUED)).toHaveLength(4);
    expect(readdirSync(shop.path("")).filter((name) => name.includes("partial"))).toEqual([]);
  });

  it("keeps its log as long as the file itself is in its place", () => {
    recordTrial(db, newTrial(60));
    rmSync(shop.path("automap.db-shm"));
    expect(told(() => recordTrial(db, third))).toContain("automap.db-shm was deleted");
    expect(existsSync(shop.path("automap.db-wal"))).toBe(true);
  });

  it.each([false, true])("can be moved back, whether or not the writer ends properly: %s", (ends) => {
    const kept = [60, 61, 63].map((time) => recordTrial(db, newTrial(time)));
    // What the log holds now are some pages of a file whose others differ.
    db.sqlite.pragma("wal_checkpoint(TRUNCATE)");
    kept.push(recordTrial(db, newTrial(65)), trialId(third));
    rmSync(shop.path("automap.db"));
    expect(told(() => recordTrial(db, third))).toContain("move it back");
    if (ends) db.close();
    renameSync(shop.path(RESCUED), shop.path("automap.db"));
    expect(idsIn("automap.db").toSorted()).toEqual(kept.toSorted());
    const again = shop.open("automap.db");
    recordTrial(again, newTrial(64));
    expect(idsIn("automap.db")).toHaveLength(6);
  });

  it("keeps an earlier copy", () => {
    writeFileSync(shop.path(RESCUED), "earlier");
    recordTrial(db, newTrial(60));
    rmSync(shop.path("automap.db"));
    expect(told(() => recordTrial(db, third))).toContain("automap.rescued-2.db");
    expect(readFileSync(shop.path(RESCUED), "utf8")).toBe("earlier");
    expect(idsIn("automap.rescued-2.db")).toHaveLength(2);
  });

  it("is saved elsewhere when its folder is gone", () => {
    mkdirSync(shop.path("folder"));
    const gone = shop.open("folder/automap-gone.db");
    recordTrial(gone, newTrial(60));
    rmSync(shop.path("folder"), { recursive: true });
    const [, saved = ""] = /is in (\S+): /.exec(told(() => recordTrial(gone, third))) ?? [];
    try {
      const held = openDatabase(saved, { readonly: true });
      expect(queryTrials(held)).toHaveLength(2);
      held.close();
    } finally {
      rmSync(saved);
    }
  });

  it("is no matter to a database in memory, nor to one that stays where it is", () => {
    const memory = shop.open(":memory:");
    expect(told(() => recordTrial(memory, third))).toBe("nothing");
    const other = shop.open("automap.db");
    expect(told(() => recordTrial(other, third))).toBe("nothing");
    expect(told(() => recordTrial(db, newTrial(63)))).toBe("nothing");
    expect(readdirSync(shop.path("")).filter((name) => name.includes("rescued"))).toEqual([]);
  });
});

describe("a path", () => {
  it("that names no file is refused, and nothing is waited for", () => {
    execFileSync("mkfifo", [shop.path("pipe.db"), shop.path("log.db-wal")]);
    writeFileSync(shop.path("log.db"), "");
    for (const readonly of [true, false]) {
      const open = (path: string): string => told(() => openDatabase(path, { readonly }));
      expect(open(shop.path("pipe.db"))).toBe("/pipe.db is a pipe, a device or the like, not a file\n  name a file");
      expect(open(shop.path("log.db"))).toMatch(/^\/log.db-wal is a pipe/);
      expect(open("/dev/null")).toMatch(/^\/dev\/null is a pipe, a device/);
      for (const path of ["", " ", " automap.db", "automap.db\n"])
        expect(open(path)).toMatch(/ is no name for a database/);
    }
    expect(told(() => checkDatabase(shop.path("pipe.db")))).toContain("is a pipe");
  });

  it("in memory is refused where records are to be read", () => {
    expect(told(() => openDatabase(":memory:", { readonly: true }))).toBe(
      ":memory: is a new database each time, which holds nothing to read\n  name a file",
    );
  });
});
