/**
 * @file What was imported decides nothing: seals, calibrations, `automap check`, runs and clocks. Every lookup of a record stands in imported-claims.test.ts.
 */

import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import {
  beginRun,
  best,
  calibrationOf,
  type Database,
  endRun,
  exportLines,
  importLines,
  mergeDatabase,
  pruneTrials,
  queryTrials,
  recordCalibration,
  recordClock,
  recordTrial,
  runsIn,
  showRun,
} from "../../db/index.ts";
import { CONV, MACHINE, measured, newTrial, toldIn, trial, workshop } from "../support/database.ts";
import { forgedLines, recordsIn } from "../support/forge.ts";
import { sourceFiles } from "../support/imports.ts";

const shop = workshop();
afterAll(shop.remove);

/** Microseconds. */
const HERE = 100;
const CLAIMED = 10;

/** Lines of a stranger's database, whose trials are another candidate and claim 10 us. */
function claims(): string[] {
  const theirs = shop.open(`theirs ${made++}.db`, { key: shop.path("their.key") });
  recordTrial(theirs, newTrial(CLAIMED, { trial: trial(measured(CLAIMED), 9e12) }));
  const lines = [...exportLines(theirs)];
  return lines;
}

let made = 0;
/** A database with a kernel measured here, if any, and the imported claim. */
function database(given: { readonly here: boolean } = { here: true }): Database {
  const db = shop.open(`mixed ${made++}.db`);
  if (given.here) recordTrial(db, newTrial(HERE));
  expect(importLines(db, claims()).rejected).toEqual([]);
  return db;
}

const microseconds = (seconds: unknown): number => Math.round(Number(seconds) * 1e6);
const timesOf = (all: readonly { readonly measurement: { readonly status: string } }[]): (number | undefined)[] =>
  all.map(({ measurement }) => ("median" in measurement ? microseconds(measurement.median) : undefined));

describe("a lookup in a database with an imported claim of a tenth of its time", () => {
  let mixed: Database;
  let claimed: Database;
  beforeAll(() => {
    mixed = database();
    claimed = database({ here: false });
  });

  it("finds an imported record when asked for one, and after any measured here", () => {
    const found = (db: Database): unknown[] =>
      best(db, {}, { imported: true }).map(({ provenance, measurement }) => [
        provenance,
        ...timesOf([{ measurement }]),
      ]);
    expect(found(mixed)).toEqual([["here", HERE]]);
    expect(found(claimed)).toEqual([["imported", CLAIMED]]);
  });

  it("takes a made-up seal for none, even where such records fill a list", () => {
    const db = database();
    const lines = recordsIn(claims());
    const theirs = shop.open(`sealed ${made++}.db`, { key: shop.path("their.key") });
    for (let i = 1; i <= 30; i++)
      recordTrial(theirs, newTrial(100, { trial: trial(measured(10 + i / 100), 1_700_000_000_000 + i) }));
    importLines(db, [JSON.stringify(lines[0]), ...exportLines(theirs)].slice(1));
    db.sqlite.exec("DROP TRIGGER trials_unchanged");
    db.sqlite.exec("UPDATE trials SET seal = 'made up' WHERE seal IS NULL");
    expect(timesOf(queryTrials(db, { status: "ok", provenance: "here", limit: 5 }))).toEqual([HERE]);
    expect(timesOf(queryTrials(db, { status: "ok", provenance: "here", top: 24 }))).toEqual([HERE]);
    expect(timesOf(best(db))).toEqual([HERE]);
  });
});

it("every lookup of records in the sources says whether it takes imported ones", () => {
  // Who takes them: what shows records and names their origin, and what a user asked for by --trust-imported.
  const SHOWN = [
    "cli/check.ts",
    "cli/db.ts",
    "cli/db/layers.ts",
    "cli/db/sides.ts",
    "cli/emit.ts",
    "cli/explain.ts",
    "db/best.ts",
    "db/prune.ts",
    "session/recorded.ts",
    "session/report/report-roofline.ts",
    "session/report/report.ts",
    "session/tune/replay.ts",
  ];
  const takers = sourceFiles().filter((file) =>
    /\bimported: (?:true|given\.trustImported|provenance === "imported")/.test(readFileSync(file, "utf8")),
  );
  expect(takers.sort()).toEqual(SHOWN);
});

describe("an imported calibration", () => {
  it("gives no search its rates, and is found where it is asked for", () => {
    const theirs = shop.open("rates.db", { key: shop.path("their.key") });
    recordCalibration(theirs, { environment: MACHINE, data: { l1: 1 }, at: 9 });
    const db = shop.open("rated.db");
    importLines(db, exportLines(theirs));
    expect(calibrationOf(db, MACHINE)).toBeUndefined();
    expect(calibrationOf(db, MACHINE, { imported: true })).toMatchObject({ provenance: "imported", at: 9 });
    // The same rates, measured here after all.
    recordCalibration(db, { environment: MACHINE, data: { l1: 1 }, at: 9 });
    expect(calibrationOf(db, MACHINE)).toMatchObject({ provenance: "here" });
  });
});

describe("a run that was begun here", () => {
  const begin = (db: Database, started = 1000): string =>
    beginRun(db, { workload: CONV, environment: MACHINE, seed: 1, options: {}, budget: { trials: 1 }, started });
  /** The lines of this run as a stranger tells its end. */
  const told = (db: Database, status: string, ended: number): string[] =>
    forgedLines(recordsIn(exportLines(db)), (record) => {
      if (record.kind === "run") Object.assign(record, { status, ended });
    });

  it("ends as this machine says: no import ends it, or ends it otherwise", () => {
    const db = shop.open("runs.db");
    const run = begin(db);
    expect(importLines(db, told(db, "done", 2000)).rejected).toEqual([]);
    expect(showRun(db, run)).toMatchObject({ status: "running", provenance: "here" });
    endRun(db, run, { status: "interrupted", ended: 3000 });
    importLines(db, told(db, "done", 2000));
    expect(showRun(db, run)).toMatchObject({ status: "interrupted", ended: 3000, provenance: "here" });
  });

  it("is refused where it ended before it started", () => {
    const db = shop.open("early.db");
    begin(db);
    const other = shop.open("early other.db");
    const { rejected } = importLines(other, told(db, "done", 999));
    expect(rejected.map(({ reason }) => reason)).toEqual(["its field ended: lies before its start"]);
    expect(runsIn(other)).toEqual([]);
    const run = begin(db, 5000);
    endRun(db, run, { status: "done", ended: 10 });
    expect(showRun(db, run).ended).toBe(5000);
  });

  it("is the same in whichever order files of this machine are merged", () => {
    const files = ["one", "two"].map((name) => shop.open(`${name}.db`));
    const [one, two] = files as [Database, Database];
    const run = begin(one);
    mergeDatabase(two, one.path);
    endRun(one, run, { status: "done", ended: 2000 });
    const [three, four] = ["three", "four"].map((name) => shop.open(`${name}.db`)) as [Database, Database];
    for (const from of [one, two]) mergeDatabase(three, from.path);
    for (const from of [two, one]) mergeDatabase(four, from.path);
    importLines(three, told(one, "failed", 1500));
    for (const db of [three, four])
      expect(showRun(db, run)).toMatchObject({ status: "done", ended: 2000, provenance: "here" });
  });
});

describe("the clock of a database", () => {
  const NOW = 1_800_000_000_000;
  const YEARS = 10 * 365 * 24 * 3600 * 1000;

  it("goes on after the newest record made here, wherever the machine's clock stands", () => {
    const db = shop.open("clock.db");
    expect(recordClock(db, () => NOW)()).toBeGreaterThanOrEqual(NOW);
    recordTrial(db, newTrial(100, { trial: trial(measured(100), NOW + 5000) }));
    expect(recordClock(db, () => NOW)()).toBeGreaterThan(NOW + 5000);
    // Imported times are claims.
    importLines(db, claims());
    expect(recordClock(db, () => NOW)()).toBeLessThan(NOW + YEARS);
  });

  it("refuses to date a search before records made here, and says how to go on", () => {
    const db = shop.open("ahead.db");
    recordTrial(db, newTrial(100, { trial: trial(measured(100), NOW + YEARS) }));
    expect(toldIn(shop, () => recordClock(db, () => NOW)).replace(/trial \w+/, "trial ID")).toMatchInlineSnapshot(`
      "trial ID of /ahead.db is dated 2037-01-12, and this machine's clock says 2027-01-15: one of the two is wrong, and records are ordered by their times
        set the clock; or, if it is right, automap db prune --db /ahead.db --since 2027-01-16 --best deletes what is dated later"
    `);
    pruneTrials(db, { since: NOW + 1 }, { reason: "a wrong clock", best: true });
    expect(recordClock(db, () => NOW)()).toBeGreaterThanOrEqual(NOW);
  });
});
