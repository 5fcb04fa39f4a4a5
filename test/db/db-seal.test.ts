/** @file Seals tell own measurements from imported ones, in files that anybody may have written. */

import { createHmac } from "node:crypto";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import Sqlite from "better-sqlite3";
import { beforeEach, describe, expect, it } from "vitest";
import { sealsOf } from "../../abstraction/seal.ts";
import {
  beginRun,
  best,
  calibrationOf,
  type Database,
  exportLines,
  importLines,
  mergeDatabase,
  openDatabase,
  queryTrials,
  recordCalibration,
  recordTrial,
  showTrial,
  verifyDatabase,
} from "../../db/index.ts";
import {
  CONV,
  candidate,
  eachWorkshop,
  MACHINE,
  measured,
  newTrial,
  tamper,
  toldIn,
  trial,
} from "../support/database.ts";
import { forgedLines, recordsIn } from "../support/forge.ts";

const shop = eachWorkshop();
let db: Database;
beforeEach(() => {
  db = at("automap.db");
});

/** A database of this user, or of one who has another key. */
function at(name: string, user = "me"): Database {
  return shop.open(name, { key: shop.path(`${user}.key`) });
}

const provenances = (of: Database): string[] => queryTrials(of).map((t) => t.provenance);
const median = (of: Database, imported = false): number[] =>
  best(of, {}, { imported }).map(({ measurement: m }) => (m.status === "ok" ? Math.round(m.median * 1e6) : 0));

/** The records of a database as lines, every time of them divided. */
function faster(of: Database, times: number): string[] {
  return forgedLines(recordsIn(exportLines(of)), (line) => {
    if (line.kind !== "trial" || line["status"] !== "ok") return;
    for (const column of ["median", "low", "high"]) line[column] = Number(line[column]) / times;
    line["samples"] = (line["samples"] as number[]).map((s) => s / times);
  });
}

describe("a key", () => {
  it.each([0, 31, 33])("of %i bytes makes no seal and confirms none", (bytes) => {
    const file = shop.path("own.key");
    writeFileSync(file, Buffer.alloc(bytes));
    const byIt = createHmac("sha256", Buffer.alloc(bytes)).update("trial 1").digest("hex").slice(0, 32);
    expect(sealsOf(file).make("trial 1")).toBeUndefined();
    expect(sealsOf(file).made("trial 1", byIt)).toBe(false);
    expect(readFileSync(file)).toHaveLength(bytes);
  });

  it("is made once, of 32 bytes that only its owner reads, and confirms what it sealed", () => {
    const seals = sealsOf(shop.path("state/own.key"));
    const seal = seals.make("trial 1");
    expect(readFileSync(seals.file)).toHaveLength(32);
    expect(statSync(seals.file).mode & 0o777).toBe(0o600);
    const again = sealsOf(seals.file);
    expect([again.made("trial 1", seal), again.made("trial 2", seal), again.made("trial 1", undefined)]).toEqual([
      true,
      false,
      false,
    ]);
  });
});

describe("the provenance of a trial", () => {
  it("is here for own measurements, and imported for lines and other users' files", () => {
    recordTrial(db, newTrial(60));
    expect(provenances(db)).toEqual(["here"]);
    const lines = [...exportLines(db)];
    expect(lines.join("\n")).not.toContain("seal");

    const imported = at("imported.db");
    importLines(imported, lines);
    expect(provenances(imported)).toEqual(["imported"]);
    const others = at("others.db", "other");
    recordTrial(others, newTrial(61));
    others.close();
    mergeDatabase(imported, shop.path("others.db"));
    expect(provenances(imported)).toEqual(["imported", "imported"]);
    // The whole file as its writer left it, and as it is here.
    for (const [user, provenance] of [
      ["other", "here"],
      ["me", "imported"],
    ] as const) {
      const file = at("others.db", user);
      expect(provenances(file)).toEqual([provenance]);
      file.close();
    }
  });

  it("stays here between two files of one user", () => {
    const second = at("second.db");
    recordTrial(second, newTrial(60));
    recordCalibration(second, { environment: MACHINE, data: { a: 1 }, at: 1 });
    second.close();
    const lines = shop.open("second.db", { readonly: true });
    importLines(db, exportLines(lines));
    expect(provenances(db)).toEqual(["imported"]);
    expect(mergeDatabase(db, shop.path("second.db"))).toMatchObject({ added: { trials: 0 }, known: 4, rejected: [] });
    expect(provenances(db)).toEqual(["here"]);
    expect(calibrationOf(db, MACHINE)?.provenance).toBe("here");
  });

  it("is lost when a seal is copied to other facts or to another row", () => {
    const id = recordTrial(db, newTrial(60));
    recordTrial(db, newTrial(70));
    db.close();
    const raw = new Sqlite(shop.path("automap.db"));
    tamper(raw, () => {
      raw.prepare("UPDATE trials SET seal = (SELECT seal FROM trials WHERE id = ?) WHERE id <> ?").run(id, id);
      raw.exec("UPDATE trials SET instructions = 99 WHERE median < 65e-6");
    });
    raw.close();
    db = at("automap.db");
    expect(provenances(db)).toEqual(["imported", "imported"]);
  });

  it("depends on a key that is made once and that nobody else can read", () => {
    recordTrial(db, newTrial(60));
    const key = readFileSync(shop.path("me.key"));
    expect(key).toHaveLength(32);
    expect(statSync(shop.path("me.key")).mode & 0o77).toBe(0);
    at("second.db").close();
    recordTrial(db, newTrial(61));
    expect(readFileSync(shop.path("me.key")).equals(key)).toBe(true);
    // Without it, nothing is known to be from here.
    writeFileSync(shop.path("me.key"), "damaged");
    const again = at("automap.db");
    expect(provenances(again)).toEqual(["imported", "imported"]);
  });

  it("is imported where no key can be kept", () => {
    writeFileSync(shop.path("file"), "");
    const keyless = shop.open("keyless.db", { key: shop.path("file/key") });
    recordTrial(keyless, newTrial(60));
    expect(provenances(keyless)).toEqual(["imported"]);
  });
});

describe("the best", () => {
  it("trial is the one measured here, however fast the imported ones claim to be", () => {
    recordTrial(db, newTrial(60, { trial: trial(measured(60), 1) }));
    const lines = faster(db, 10);
    expect(importLines(db, lines).added.trials).toBe(1);
    expect(median(db)).toEqual([60]);
    expect(db.sqlite.prepare("SELECT round(median * 1e6) FROM best").pluck().all()).toEqual([60]);
    // Alone, what was imported is the best there is, where somebody asks for it.
    const other = at("other.db");
    importLines(other, lines);
    expect(median(other)).toEqual([]);
    expect(median(other, true)).toEqual([6]);
  });

  it("trial is not decided by imported finals", () => {
    const options = { strategy: "genetic", threads: 1, offered: ["avx512.vpdpbusd"] };
    const run = beginRun(db, { workload: CONV, environment: MACHINE, seed: 1, options, budget: {}, started: 1 });
    const record = (us: number, time: number, block: number, place?: number): string =>
      recordTrial(db, {
        ...newTrial(us, { run, trial: trial(measured(us), time, candidate(block)) }),
        ...(place === undefined ? {} : { finals: { comparison: "finals", place } }),
      });
    record(60, 1, 1);
    const winner = record(61, 2, 2, 1);
    record(59, 2, 1, 2);
    expect(best(db).map((t) => t.id)).toEqual([winner]);
    // The same finals later, with another winner and the name of ours.
    const forged = forgedLines(recordsIn(exportLines(db)), (line) => {
      if (line.kind !== "trial" || line["place"] === undefined) return;
      Object.assign(line, { place: 3 - Number(line["place"]), at: 9e14 / 10 });
    });
    expect(importLines(db, forged).added.trials).toBe(2);
    expect(best(db).map((t) => t.id)).toEqual([winner]);
    expect(db.sqlite.prepare("SELECT id FROM best").pluck().all()).toEqual([winner]);
  });

  it("calibration is the one measured here, however many were imported", () => {
    recordCalibration(db, { environment: MACHINE, data: { clockHz: 1 }, at: 1 });
    const later = forgedLines(recordsIn(exportLines(db)), (line) => {
      if (line.kind === "calibration") Object.assign(line, { at: 1e14, data: { clockHz: 2 } });
    });
    expect(importLines(db, later).added.calibrations).toBe(1);
    expect(calibrationOf(db, MACHINE)).toMatchObject({ at: 1, provenance: "here" });
    // However many there are.
    for (let i = 0; i < 120; i++)
      importLines(
        db,
        forgedLines(recordsIn(later), (line) => {
          if (line.kind === "calibration") line["at"] = 2e13 + i;
        }),
      );
    expect(calibrationOf(db, MACHINE)).toMatchObject({ at: 1, provenance: "here" });
  });
});

describe("a file that somebody else wrote", () => {
  /** A whole database, then changed by SQL that automap would not run. */
  function written(name: string, ...sql: readonly string[]): string {
    const file = at(name, "other");
    recordTrial(file, newTrial(60));
    recordTrial(file, newTrial(70, { trial: trial({ status: "crashed", log: "why" }, 2) }));
    recordCalibration(file, { environment: MACHINE, data: {}, at: 1 });
    file.close();
    const raw = loosely(shop.path(name));
    for (const statement of sql) raw.exec(statement);
    raw.close();
    return shop.path(name);
  }
  /** A file in which anything can be written. */
  function loosely(path: string): Sqlite.Database {
    const raw = new Sqlite(path);
    raw.pragma("foreign_keys = OFF");
    raw.unsafeMode(true);
    return raw;
  }
  const ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)";

  it.each([
    [
      "a view without end in a table's place",
      [
        "DROP TABLE calibrations",
        `CREATE VIEW calibrations AS ${ENDLESS} SELECT i AS id, i AS environment, i AS data, i AS at, i AS seal FROM n`,
      ],
      /its calibrations is not what automap makes/,
    ],
    [
      "a virtual table in a table's place",
      ["DROP TABLE calibrations", "CREATE VIRTUAL TABLE calibrations USING fts5(id, environment, data, at, seal)"],
      /its calibrations is not what automap makes/,
    ],
    [
      "a trigger that writes what nobody recorded",
      ["CREATE TRIGGER more AFTER INSERT ON runs BEGIN DELETE FROM pruning; END"],
      /its more of runs is not what automap makes/,
    ],
    [
      "no trigger that keeps its facts",
      ["DROP TRIGGER trials_unchanged"],
      /foreign.db has no trials_unchanged of trials, which keeps its facts from being changed$/,
    ],
    [
      "another trigger under a name of ours",
      ["DROP TRIGGER trials_kept", "CREATE TRIGGER trials_kept BEFORE DELETE ON trials BEGIN SELECT 1; END"],
      /its trials_kept of trials is not what automap makes/,
    ],
    [
      "a column that is worked out at each look",
      ["DROP TABLE pruning", "CREATE TABLE pruning (reason TEXT, n GENERATED ALWAYS AS (length(reason)))"],
      /its pruning is not what automap makes/,
    ],
    [
      "a view without end under a name of ours",
      ["DROP VIEW best", `CREATE VIEW best AS ${ENDLESS} SELECT * FROM n`],
      /its best is not/,
    ],
  ])("with %s is not read at all", (_, sql, message) => {
    const path = written("foreign.db", ...sql);
    for (const readonly of [true, false]) expect(() => openDatabase(path, { readonly })).toThrow(message);
    expect(() => mergeDatabase(db, path)).toThrow(message);
    expect(queryTrials(db)).toEqual([]);
  });

  it("has the trigger that it lost again, when its owner puts it back as the message says", () => {
    const path = written("lost.db", "DROP TRIGGER trials_unchanged");
    const hint = toldIn(shop, () => openDatabase(path))
      .split("\n")
      .at(-1);
    const [, create = ""] = /'(CREATE TRIGGER .*)'$/.exec(hint ?? "") ?? [];
    const raw = loosely(path);
    raw.exec(create.replaceAll("'\\''", "'"));
    raw.close();
    expect(toldIn(shop, () => openDatabase(path).close())).toBe("nothing");
  });

  it("may have indexes and views of its own", () => {
    const path = written(
      "own.db",
      "CREATE INDEX mine ON trials (cache)",
      "CREATE VIEW mine_too AS SELECT id FROM trials",
      "ANALYZE",
    );
    expect(mergeDatabase(db, path)).toMatchObject({ added: { trials: 2 }, rejected: [] });
  });

  it.each([
    ["bytes for a text", "UPDATE environments SET cpu = x'ff00'"],
    ["an integer that no number holds", "UPDATE trials SET at = 9223372036854775807"],
    ["a prototype", `UPDATE workloads SET extents = replace(extents, '{', '{"__proto__":{"c":1},')`],
    ["what is no JSON", "UPDATE trials SET candidate = '{'"],
    ["a text of megabytes", "UPDATE environments SET cpu = hex(zeroblob(3000000))"],
    [
      "lists within lists",
      `UPDATE trials SET candidate = replace(hex(zeroblob(20000)), '00', '[') || replace(hex(zeroblob(20000)), '00', ']')`,
    ],
    ["an escape of a terminal", "UPDATE environments SET cpu = char(27) || '[2J'"],
    ["a tensor that another workload has", "UPDATE workloads SET points = 1"],
    [
      "a name of a dimension that ends a comment",
      `UPDATE workloads SET tensors = replace(tensors, '"p"', '"*/ x /*"')`,
    ],
    ["a reference to nothing", "DELETE FROM workloads"],
  ])("is merged without an impossible row: %s", (_, sql) => {
    // Tables without their checks hold anything.
    const path = written("foreign.db");
    const raw = loosely(path);
    if (!sql.includes("x'ff00'")) {
      raw.pragma("ignore_check_constraints = ON");
      tamper(raw, sql);
      raw.close();
    } else {
      // STRICT refuses them; another program's table would not.
      raw.pragma("writable_schema = ON");
      const kept = raw.prepare("SELECT sql FROM sqlite_schema WHERE name = 'environments'").pluck().get() as string;
      raw.prepare("UPDATE sqlite_schema SET sql = ? WHERE name = 'environments'").run(kept.replace(/ STRICT$/, ""));
      raw.close();
      const reopened = loosely(path);
      tamper(reopened, sql);
      reopened.pragma("writable_schema = ON");
      reopened.prepare("UPDATE sqlite_schema SET sql = ? WHERE name = 'environments'").run(kept);
      reopened.close();
    }
    const { rejected } = mergeDatabase(db, path);
    expect(rejected.length).toBeGreaterThan(0);
    expect(verifyDatabase(db).problems).toEqual([]);
    expect(queryTrials(db).length).toBeLessThan(2);

    // Read where it lies it is refused with a message, not taken for what it says.
    const direct = shop.open("foreign.db", { readonly: true });
    expect(() => queryTrials(direct)).toThrow(/is damaged|holds a number that automap never writes|that is not there/);
    expect(verifyDatabase(direct).problems.length).toBeGreaterThan(0);
  });

  it("with a duplicate key in its JSON is merged as the record its id names, and is not read directly", () => {
    const twice = `UPDATE trials SET candidate = replace(candidate, '"threads":1', '"threads":9,"threads":1')`;
    const path = written("twice.db");
    const raw = loosely(path);
    tamper(raw, twice);
    raw.close();
    expect(mergeDatabase(db, path)).toMatchObject({ added: { trials: 2 }, rejected: [] });
    expect(queryTrials(db)[0]?.candidate).toEqual(candidate());
    const direct = shop.open("twice.db", { readonly: true });
    expect(() => queryTrials(direct)).toThrow(/candidate: holds more than its fields, or is not canonical JSON/);
  });
});

it("a trial is shown with its provenance", () => {
  const id = recordTrial(db, newTrial(60));
  expect(showTrial(db, id).provenance).toBe("here");
});
