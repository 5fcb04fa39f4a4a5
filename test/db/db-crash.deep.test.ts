/** @file Killed and concurrent writers: a committed row is never lost. */

import { writeFileSync } from "node:fs";
import { setTimeout as later } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { randomInteger, seededRandom } from "../../abstraction/random.ts";
import { type Database, openDatabase, queryTrials } from "../../db/index.ts";
import { newTrial, workshop } from "../support/database.ts";
import { compileProgram, type Started, startProgram } from "../support/program.ts";
import { inFull } from "../support/slow.ts";

const KILLS = inFull(100, 6);
const WRITERS = inFull(8, 3);
const EACH = inFull(2000, 150);
const FILES = inFull(200, 20);
const shop = workshop();

/** Records trial after trial and says each id once it is committed: node writer.js FILE COUNT FIRST. */
const WRITER = `
  import { readFileSync, writeSync } from "node:fs";
  import { openDatabase, recordTrial } from "./db/index.js";
  const [path, count, first] = process.argv.slice(2);
  const given = JSON.parse(readFileSync(new URL("given.json", import.meta.url), "utf8"));
  const db = openDatabase(path);
  for (let i = 0; i < Number(count); i++) {
    const id = recordTrial(db, { ...given, trial: { ...given.trial, at: Number(first) + i } });
    writeSync(1, id + "\\n");
  }
  db.close();
`;

/** Begins a record and is killed when all its rows but the last are written: node dying.js FILE TABLE. */
const DYING = `
  import { readFileSync } from "node:fs";
  import { beginRun, openDatabase, recordCalibration, recordTrial } from "./db/index.js";
  const [path, table] = process.argv.slice(2);
  const given = JSON.parse(readFileSync(new URL("given.json", import.meta.url), "utf8"));
  const { workload, environment } = given;
  const db = openDatabase(path);
  db.sqlite.function("die", () => process.kill(process.pid, "SIGKILL"));
  db.sqlite.exec("CREATE TEMP TRIGGER dying BEFORE INSERT ON " + table + " BEGIN SELECT die(); END");
  if (table === "trials") recordTrial(db, given);
  if (table === "runs") beginRun(db, { workload, environment, seed: 1, options: {}, budget: {}, started: 1 });
  if (table === "calibrations") recordCalibration(db, { environment, data: {}, at: 1 });
`;

/** Makes file after file, each at an instant that others keep too: node maker.js FOLDER COUNT START AT. */
const MAKER = `
  import { readFileSync } from "node:fs";
  import { openDatabase, recordTrial } from "./db/index.js";
  const [folder, count, start, at] = process.argv.slice(2);
  const given = JSON.parse(readFileSync(new URL("given.json", import.meta.url), "utf8"));
  for (let i = 0; i < Number(count); i++) {
    while (Date.now() < Number(start) + 20 * i);
    const db = openDatabase(folder + i + ".db");
    recordTrial(db, { ...given, trial: { ...given.trial, at: Number(at) } });
    db.close();
  }
`;

/** Reads everything again and again until it is told to stop, and says how much it saw: node reader.js FILE STOP. */
const READER = `
  import { existsSync, writeSync } from "node:fs";
  import { best, openDatabase, queryTrials } from "./db/index.js";
  const [path, stop] = process.argv.slice(2);
  const db = openDatabase(path, { readonly: true });
  while (!existsSync(stop)) {
    writeSync(1, queryTrials(db).length + "\\n");
    best(db);
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 50);
  }
  db.close();
`;

beforeAll(() => {
  compileProgram(shop.path(""), ["db/index.ts"]);
  writeFileSync(shop.path("writer.js"), WRITER);
  writeFileSync(shop.path("reader.js"), READER);
  writeFileSync(shop.path("maker.js"), MAKER);
  writeFileSync(shop.path("dying.js"), DYING);
  writeFileSync(shop.path("given.json"), JSON.stringify(newTrial(60)));
});
afterAll(() => shop.remove());

const start = (script: string, ...words: readonly string[]): Started => startProgram(shop.path(script), ...words);
const startWriter = (path: string, count: number, first: number): Started =>
  start("writer.js", path, String(count), String(first));

const idsIn = (db: Database): Set<string> => new Set(queryTrials(db).map((t) => t.id));

describe("a database whose writer is killed", () => {
  it(`is intact and holds every committed trial after each of ${KILLS} kills`, async () => {
    const random = seededRandom(5);
    const path = shop.path("killed.db");
    const promised: string[] = [];
    let midway = 0;
    for (let kill = 0; kill < KILLS; kill++) {
      const writer = startWriter(path, 1_000_000, 1_700_000_000_000 + kill * 1_000_000);
      // Most die while they write, some while they open the file, the first perhaps while it is made.
      if (kill % 5 === 0) await later(randomInteger(random, 100, 400));
      else {
        await writer.begun;
        await later(randomInteger(random, 0, 80));
      }
      writer.child.kill("SIGKILL");
      const { errors } = await writer.ended;
      expect(errors).toBe("");
      const committed = writer.lines();
      promised.push(...committed);
      if (committed.length > 0) midway++;

      const db = openDatabase(path);
      expect(db.sqlite.pragma("integrity_check", { simple: true })).toBe("ok");
      expect(db.sqlite.pragma("foreign_key_check")).toEqual([]);
      const held = idsIn(db);
      expect(promised.filter((id) => !held.has(id))).toEqual([]);
      db.close();
    }
    expect(midway).toBeGreaterThan(KILLS / 2);
  });
});

describe("a database whose writer is killed within a record", () => {
  it.each(["trials", "runs", "calibrations"])("holds nothing of it: %s", async (table) => {
    const path = shop.path(`${table}.db`);
    openDatabase(path).close();
    const writer = start("dying.js", path, table);
    expect((await writer.ended).errors).toBe("");
    expect(writer.child.signalCode).toBe("SIGKILL");
    const db = openDatabase(path);
    for (const one of ["environments", "workloads", table])
      expect(db.sqlite.prepare(`SELECT count(*) FROM ${one}`).pluck().get(), one).toBe(0);
    db.close();
  });
});

describe(`a database written by ${WRITERS} processes at once`, () => {
  it(`holds the ${EACH} trials of each, while two readers read`, async () => {
    const path = shop.path("shared.db");
    // All of them make the file.
    const writers = Array.from({ length: WRITERS }, (_, i) => startWriter(path, EACH, (i + 1) * 1_000_000));
    await Promise.all(writers.map((w) => w.begun));
    const readers = [start("reader.js", path, shop.path("stop")), start("reader.js", path, shop.path("stop"))];
    // Nobody was told of a lock, or of anything else.
    expect(await Promise.all(writers.map((w) => w.ended))).toEqual(writers.map(() => ({ code: 0, errors: "" })));
    // One that began late reads at least once.
    await Promise.all(readers.map((r) => r.begun));
    writeFileSync(shop.path("stop"), "");
    for (const reader of readers) {
      expect(await reader.ended).toEqual({ code: 0, errors: "" });
      const seen = reader.lines().map(Number);
      expect(seen.length).toBeGreaterThan(0);
      expect(seen).toEqual([...seen].sort((a, b) => a - b));
    }
    const db = openDatabase(path);
    const held = idsIn(db);
    expect(held.size).toBe(WRITERS * EACH);
    expect(writers.flatMap((w) => w.lines()).filter((id) => !held.has(id))).toEqual([]);
    expect(db.sqlite.pragma("integrity_check", { simple: true })).toBe("ok");
    db.close();
  });
});

describe("a database created by several processes at once", () => {
  // Found so: a process that looked while another made the file took it for someone else's, once in a hundred files.
  it("is created once and holds the trial of each", async () => {
    const files = FILES;
    const begin = Date.now() + 1000;
    const makers = [1, 2, 3].map((at) => start("maker.js", shop.path("made"), ...[files, begin, at].map(String)));
    expect(await Promise.all(makers.map((maker) => maker.ended))).toEqual(makers.map(() => ({ code: 0, errors: "" })));
    for (let i = 0; i < files; i++) {
      const db = openDatabase(shop.path(`made${i}.db`), { readonly: true });
      expect(queryTrials(db)).toHaveLength(3);
      db.close();
    }
  });
});
