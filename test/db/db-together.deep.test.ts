/**
 * @file Databases that several processes create and fill at the same moment, while another reads them, and one that a full disk does not let
 * begin.
 */

import { spawn } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import Sqlite from "better-sqlite3";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { DatabaseError, explained } from "../../db/error.ts";
import { newTrial, workshop } from "../support/database.ts";
import { compileProgram } from "../support/program.ts";

const shop = workshop();
const PROGRAM = `node_modules/.cache/automap-together-${process.pid}`;
const PROCESSES = 4;
const ROUNDS = 3;
/** Runs that each process records, on a machine of its own each: two rows a record. */
const RECORDS = 10;

beforeAll(() => {
  compileProgram(PROGRAM, ["db/index.ts"]);
  // Each waits for the same instant, opens the file, and writes records of its own.
  writeFileSync(
    join(PROGRAM, "main.js"),
    `import { beginRun, openDatabase } from "./db/index.js";
const [file, at, seed, given] = process.argv.slice(2);
while (Date.now() < Number(at));
const db = openDatabase(file);
const { workload, environment } = JSON.parse(given);
for (let i = 0; i < ${RECORDS}; i++) {
  const own = { ...environment, cpu: seed + " " + i };
  beginRun(db, { workload, environment: own, seed: Number(seed), options: {}, budget: {}, started: Number(seed) });
}
db.close();
`,
  );
});
afterAll(() => {
  rmSync(PROGRAM, { recursive: true, force: true });
  shop.remove();
});

/** What a process said and its exit code. */
function ended(file: string, at: number, seed: number): Promise<string> {
  const { workload, environment } = newTrial(1);
  const given = JSON.stringify({ workload, environment });
  const child = spawn(process.execPath, [join(PROGRAM, "main.js"), file, String(at), String(seed), given]);
  let said = "";
  child.stderr.on("data", (data) => {
    said += String(data);
  });
  return new Promise((resolve) => child.on("close", (code) => resolve(`${code}${said}`)));
}

function attempt<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch {
    return undefined;
  }
}

/** Rows of a table of the file as another process sees it. */
function counted(file: string, rows: string): unknown {
  const db = new Sqlite(file, { readonly: true });
  const count = db.prepare(`SELECT count(*) FROM ${rows}`).pluck().get();
  db.close();
  return count;
}

describe("a database", () => {
  it("is created by several processes at once, holds what each wrote, and shows no part of a record meanwhile", async () => {
    const read: unknown[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const file = shop.path(`together ${round}.db`);
      const at = Date.now() + 1500;
      let running = true;
      const all = Promise.all(Array.from({ length: PROCESSES }, (_, seed) => ended(file, at, seed + 1))).finally(() => {
        running = false;
      });
      while (running) {
        await setTimeout(1);
        // A writer that begins the file, or the last that closes it, locks readers out.
        const halves = attempt(() => counted(file, "environments WHERE id NOT IN (SELECT environment FROM runs)"));
        if (halves !== undefined) read.push(halves);
      }
      expect(await all).toEqual(Array.from({ length: PROCESSES }, () => "0"));
      expect(counted(file, "runs")).toBe(PROCESSES * RECORDS);
    }
    expect(new Set(read)).toEqual(new Set([0]));
  });

  it("that cannot be begun for want of room says that the disk is full", () => {
    const error = new Sqlite.SqliteError("disk I/O error", "SQLITE_IOERR_SHMSIZE");
    const told = explained(error, "a.db", "opening it");
    expect(told).toBeInstanceOf(DatabaseError);
    expect(String(told)).toContain("a.db: no space left on the device while opening it");
  });
});
