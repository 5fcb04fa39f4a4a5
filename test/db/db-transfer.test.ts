/** @file Records between files: an export can be imported, foreign lines are checked one by one, merging is a union. */

import { existsSync, writeFileSync } from "node:fs";
import Sqlite from "better-sqlite3";
import { beforeEach, describe, expect, it } from "vitest";
import type { LaneCandidate } from "../../abstraction/candidate.ts";
import { UsageError } from "../../abstraction/error.ts";
import { pick, type Random, randomInteger, seededRandom } from "../../abstraction/random.ts";
import { COLUMNS_OF, TABLE_NAMES } from "../../db/facts.ts";
import {
  beginRun,
  type Database,
  endRun,
  exportLines,
  importLines,
  linesOf,
  mergeDatabase,
  openDatabase,
  queryTrials,
  recordCalibration,
  recordTrial,
  remeasure,
  showRun,
  verifyDatabase,
} from "../../db/index.ts";
import { CONV, eachWorkshop, MACHINE, measured, newTrial, tamper, trial, workloadNamed } from "../support/database.ts";
import { idOf, type Line } from "../support/forge.ts";
import fc from "../support/property.ts";
import { inFull } from "../support/slow.ts";
import { windowSchedule } from "../support/window.ts";

const FUZZED = inFull(10_000, 1000);
const MERGES = inFull(40, 3);

const shop = eachWorkshop();
let db: Database;
beforeEach(() => {
  db = shop.open("automap.db");
});

const begun = { workload: CONV, environment: MACHINE, seed: 7, options: {}, budget: {}, started: 100, process: 1 };

/** A run with a success and a failure, another computation, a calibration. */
function fill(target: Database): void {
  const run = beginRun(target, begun);
  recordTrial(target, newTrial(60, { run }));
  recordTrial(target, newTrial(70, { run, trial: trial({ status: "wrong", log: 'a "quoted"\nlog' }, 5) }));
  recordTrial(
    target,
    newTrial(8, { workload: workloadNamed("matmul", { m: 8 }), environment: { ...MACHINE, driver: "1" } }),
  );
  recordCalibration(target, { environment: MACHINE, data: { l1: [2, null] }, at: 3 });
  endRun(target, run, { status: "done", ended: 200 });
}

/** Every row of every table, without what holds on one machine only. */
function contents(of: Database): unknown[] {
  return TABLE_NAMES.map((table) =>
    of.sqlite.prepare(`SELECT id, ${COLUMNS_OF[table].map(({ name }) => name)} FROM ${table} ORDER BY id`).all(),
  );
}

describe("an export", () => {
  it("is imported without a change, and importing it twice adds nothing", () => {
    fill(db);
    const lines = [...exportLines(db)];
    expect(lines[0]).toBe('{"kind":"header","format":"automap-records","version":1}');
    const other = shop.open("other.db");
    expect(importLines(other, lines)).toEqual({
      added: { environments: 2, workloads: 2, runs: 1, trials: 3, calibrations: 1 },
      known: 0,
      rejected: [],
    });
    expect(contents(other)).toEqual(contents(db));
    expect([...exportLines(other)]).toEqual(lines);
    expect(importLines(other, lines)).toMatchObject({ added: { trials: 0, runs: 0 }, known: 9, rejected: [] });
    expect(contents(other)).toEqual(contents(db));
  });

  it("of selected trials holds only the records they refer to", () => {
    fill(db);
    const kinds = [...exportLines(db, { operator: "matmul" })].map(
      (line) => (JSON.parse(line) as { kind: string }).kind,
    );
    expect(kinds).toEqual(["header", "environment", "workload", "trial"]);
    const other = shop.open(":memory:");
    importLines(other, exportLines(db, { operator: "conv2d", status: "ok" }));
    expect(queryTrials(other).map((t) => t.workload.operator)).toEqual(["conv2d"]);
    expect(verifyDatabase(other).problems).toEqual([]);
  });

  it("is read from a file in pieces", () => {
    const long = "é".repeat(100_000);
    writeFileSync(shop.path("lines"), `one\n${long}\n\nlast`);
    expect([...linesOf(shop.path("lines"))]).toEqual(["one", long, "", "last"]);
    expect(() => [...linesOf(shop.path("none"))]).toThrow(UsageError);
  });
});

describe("an import", () => {
  type Facts = Readonly<Record<string, unknown>>;
  const factsOf = (line: string): Record<string, unknown> => JSON.parse(line) as Record<string, unknown>;
  const changed = (line: string, facts: Facts): string => JSON.stringify({ ...factsOf(line), ...facts });
  /** The line with facts changed and an id that fits them again. */
  const forged = (line: string, facts: Facts = {}): string => {
    const made = { ...factsOf(line), ...facts };
    return JSON.stringify({ ...made, id: idOf(made as Line) });
  };

  it("names the fault of a line, and takes the other lines", () => {
    fill(db);
    const [header = "", ...lines] = [...exportLines(db)];
    const of = (kind: string): string => lines.find((line) => line.includes(`"kind":"${kind}"`)) ?? "";
    const ok = lines.find((line) => line.includes('"status":"ok"')) ?? "";
    const bad: [string, RegExp][] = [
      ["{", /^it is not a JSON object$/],
      ["[1]", /^it is not a JSON object$/],
      ['{"kind":"spell"}', /^its kind is "spell", not one of environment, workload, run, trial, calibration$/],
      [changed(ok, { median: 1e-9 }), /^its facts make the id \w{12}, it claims "\w{32}"$/],
      [changed(ok, { at: undefined }), /^its field at is missing$/],
      [changed(ok, { speed: 1 }), /^a trial has no field "speed"$/],
      [changed(ok, { samples: ["fast"] }), /^its field samples.0: Invalid input: expected number/],
      [forged(ok, { median: 1e-9 }), /^its median lies outside its samples$/],
      [forged(ok, { high: 58e-6 }), /^its median lies outside its interval$/],
      [forged(ok, { intrinsic: "amx.tdpbusd" }), /^its candidate uses avx512.vpdpbusd, its field/],
      [forged(ok, { workload: "0".repeat(32) }), /^it refers to workload 000000000000, which is neither/],
      [forged(ok, { log: "failed, too" }), /^CHECK constraint failed/],
      [forged(of("workload"), { points: 3 }), /^its parts do not make the workload it claims to be$/],
      [forged(of("workload"), { equation: "out[i] = " }), /equation|expression|expected/],
      [forged(of("environment"), { isa: ["b", "a"] }), /^its parts do not make the environment/],
      [changed(of("run"), { status: "running" }), /^its field ended: disagrees with its status$/],
    ];
    const report = importLines(shop.open(":memory:"), [header, ...lines, ...bad.map(([line]) => line)]);
    expect(report.added.trials).toBe(3);
    expect(report.rejected.map((r) => r.line)).toEqual(bad.map((_, i) => i + 2 + lines.length));
    for (const [i, [, reason]] of bad.entries()) expect(report.rejected[i]?.reason).toMatch(reason);
  });

  it("takes a time that is the mean of two samples, and none that no call can take", () => {
    fill(db);
    const [header = "", ...lines] = [...exportLines(db)];
    const ok = lines.find((line) => line.includes('"status":"ok"')) ?? "";
    const timed = (median: number, samples: readonly number[]): string =>
      forged(ok, { median, samples, low: 0.9 * median, high: 1.1 * median });
    const two = timed(2e-4, [1e-4, 3e-4]);
    expect(importLines(shop.open(":memory:"), [header, ...lines, two])).toMatchObject({
      rejected: [],
      added: { trials: 4 },
    });
    const { rejected } = importLines(shop.open(":memory:"), [header, ...lines, timed(1e-12, [1e-12])]);
    expect(rejected.map(({ reason }) => reason)).toEqual([
      "its median of 1.00e-12 s is shorter than any call: 5 cycles at 10 GHz are 5.00e-10 s",
    ]);
  });

  it("that is strict takes nothing when one line is wrong", () => {
    fill(db);
    const other = shop.open("other.db");
    const lines = [...exportLines(db), "{}"];
    expect(importLines(other, lines, { strict: true })).toMatchObject({
      added: { trials: 0 },
      rejected: [{ line: 11 }],
    });
    expect(contents(other).flat()).toEqual([]);
    expect(importLines(other, lines.slice(0, -1), { strict: true })).toMatchObject({ added: { trials: 3 } });
  });

  it.each([
    ["nothing", [], /empty/],
    ["something else", ["id,operator"], /line 1 is not the header of an export/],
    [
      "a later version",
      ['{"kind":"header","format":"automap-records","version":9}'],
      /of version 9, this automap reads 1/,
    ],
  ])("of %s is refused whole", (_, lines, message) => {
    expect(() => importLines(db, lines)).toThrow(message);
    expect(() => importLines(db, lines)).toThrow(UsageError);
  });

  it("that fails half way changes nothing", () => {
    fill(db);
    const other = shop.open("other.db");
    function* broken(): Generator<string> {
      yield* [...exportLines(db)].slice(0, -1);
      throw new Error("the pipe broke");
    }
    expect(() => importLines(other, broken())).toThrow("the pipe broke");
    expect(contents(other).flat()).toEqual([]);
  });

  it(`of ${FUZZED} fuzzed lines takes only whole records and names every rejected line`, () => {
    for (let i = 0; i < 20; i++) recordTrial(db, newTrial(60 + i, { trial: trial(measured(60 + i), i) }));
    fill(db);
    const [header = "", ...lines] = [...exportLines(db)];
    const random = seededRandom(9);
    const fuzzed = Array.from({ length: FUZZED }, () => fuzz(pick(random, lines), random));
    const other = shop.open("other.db");
    const report = importLines(other, [header, ...fuzzed]);

    const blank = fuzzed.filter((line) => line.trim() === "").length;
    const taken = Object.values(report.added).reduce((sum, count) => sum + count, 0);
    expect(taken + report.known + report.rejected.length + blank).toBe(FUZZED);
    expect(report.rejected.every(({ line, reason }) => line > 1 && reason !== "")).toBe(true);
    expect(new Set(report.rejected.map((r) => r.line)).size).toBe(report.rejected.length);
    expect(report.rejected.length).toBeGreaterThan(FUZZED / 2);
    expect(report.added.trials).toBeGreaterThan(20);
    // Imported records are consistent: each matches its id, has its environment and is readable.
    expect(verifyDatabase(other).problems).toEqual([]);
    expect(queryTrials(other)).toHaveLength(report.added.trials);
  });

  const HOSTILE = [
    "null",
    '{"kind":"trial","__proto__":{"id":"x"}}',
    `{"kind":"workload","tensors":${"[".repeat(20_000)}${"]".repeat(20_000)}}`,
    `{"kind":"workload","equation":"${"(".repeat(20_000)}"}`,
    '{"kind":"trial","at":1e999}',
    "\u0000",
    "",
  ];

  /** The line cut, garbled, its facts changed with or without an id that fits, or as it was. */
  function fuzz(line: string, random: Random): string {
    const at = randomInteger(random, 0, line.length - 1);
    const values = [
      null,
      -1,
      0,
      1.5,
      2 ** 53,
      "",
      "x",
      "ok",
      [],
      {},
      [null],
      { a: 1 },
      true,
      "'; DROP TABLE trials; --",
    ];
    const anyChange = (): string => {
      const data = factsOf(line);
      const name = pick(random, Object.keys(data));
      const how = random();
      if (how < 0.2) delete data[name];
      else if (how < 0.3) data[pick(random, ["", "extra", "__proto__", "constructor"])] = pick(random, values);
      else data[name] = pick(random, values);
      return JSON.stringify(data);
    };
    switch (randomInteger(random, 0, 6)) {
      case 0:
        return line;
      case 1:
        return line.slice(0, at);
      case 2:
        return `${line.slice(0, at)}${String.fromCharCode(randomInteger(random, 1, 300))}${line.slice(at + 1)}`;
      case 3:
        return pick(random, HOSTILE);
      case 4:
        return anyChange();
      default:
        return forged(anyChange());
    }
  }
});

describe("merging", () => {
  /** Small databases that share some of their records: which trials, which runs, and whether the runs have ended. */
  const part = fc.record({
    trials: fc.uniqueArray(fc.integer({ min: 1, max: 6 }), { maxLength: 4 }),
    inRun: fc.boolean(),
    ended: fc.option(
      fc.constantFrom<{ readonly status: "done" | "interrupted"; readonly ended: number }>(
        { status: "done", ended: 300 },
        { status: "interrupted", ended: 250 },
      ),
      { nil: undefined },
    ),
    calibrated: fc.boolean(),
  });
  type Part = typeof part extends fc.Arbitrary<infer T> ? T : never;

  function made(name: string, { trials, inRun, ended, calibrated }: Part): string {
    const path = shop.path(name);
    const target = openDatabase(path);
    const run = beginRun(target, begun);
    for (const i of trials) recordTrial(target, newTrial(10 * i, inRun ? { run } : {}));
    if (calibrated) recordCalibration(target, { environment: MACHINE, data: {}, at: 1 });
    if (ended) endRun(target, run, ended);
    target.close();
    return path;
  }
  const held = (path: string): unknown[] => {
    const target = openDatabase(path, { readonly: true });
    expect(verifyDatabase(target).problems).toEqual([]);
    const all = contents(target);
    target.close();
    return all;
  };
  const merged = (into: string, ...others: string[]): unknown[] => {
    const target = openDatabase(into);
    for (const other of others) mergeDatabase(target, other);
    target.close();
    return held(into);
  };

  it("is commutative, associative and idempotent", () => {
    let turn = 0;
    fc.assert(
      fc.property(part, part, part, (a, b, c) => {
        turn++;
        const file = (name: string, of: Part): string => made(`${turn}-${name}.db`, of);
        const ab = merged(file("a", a), file("b", b));
        const ba = merged(file("b2", b), file("a2", a));
        expect(ab).toEqual(ba);
        const path = shop.path(`${turn}-a.db`);
        expect(merged(path, shop.path(`${turn}-b.db`), shop.path(`${turn}-b2.db`), path)).toEqual(ab);
        const third = file("c", c);
        expect(merged(path, third)).toEqual(merged(third, shop.path(`${turn}-b2.db`)));
      }),
      { numRuns: MERGES },
    );
  });

  it("keeps the same of two ends at one time, whichever comes first", () => {
    const ends = (name: string, status: "done" | "interrupted"): string =>
      made(name, { trials: [1], inRun: true, ended: { status, ended: 300 }, calibrated: false });
    const both = merged(ends("done.db", "done"), ends("interrupted.db", "interrupted"));
    expect(merged(ends("interrupted2.db", "interrupted"), ends("done2.db", "done"))).toEqual(both);
  });

  it("marks a run as ended that ended elsewhere", () => {
    const run = beginRun(db, begun);
    const path = made("ended.db", {
      trials: [1],
      inRun: true,
      ended: { status: "done", ended: 300 },
      calibrated: false,
    });
    mergeDatabase(db, path);
    expect(showRun(db, run)).toMatchObject({ status: "done", ended: 300 });
  });

  it("with a file that is no database changes nothing", () => {
    writeFileSync(shop.path("text"), "no database".repeat(100));
    expect(() => mergeDatabase(db, shop.path("text"))).toThrow(/not a SQLite database/);
    expect(() => mergeDatabase(db, shop.path("none"))).toThrow(/there is no database/);
    expect(existsSync(shop.path("none"))).toBe(false);
  });
});

describe("verifying", () => {
  it("finds no problem in an intact file", () => {
    fill(db);
    expect(verifyDatabase(db)).toEqual({
      checked: { environments: 2, workloads: 2, runs: 1, trials: 3, calibrations: 1 },
      problems: [],
    });
  });

  it("finds a changed number, a missing row and an inconsistent workload", () => {
    fill(db);
    db.close();
    const raw = new Sqlite(shop.path("automap.db"));
    raw.pragma("foreign_keys = OFF");
    tamper(
      raw,
      `UPDATE trials SET median = median / 2 WHERE status = 'ok' AND run IS NOT NULL;
       UPDATE workloads SET points = 5 WHERE operator = 'matmul'; DELETE FROM runs`,
    );
    raw.close();
    db = shop.open("automap.db");
    const { problems } = verifyDatabase(db);
    expect(problems.map((p) => p.what.replace(/ \w+$/, "")).sort()).toEqual([
      "reference",
      "reference",
      "trial",
      "workload",
    ]);
    expect(problems.find((p) => p.what.startsWith("trial"))?.why).toMatch(
      /^its facts make the id \w{12}: something changed it$/,
    );
  });

  it("measures a sample again by a given function, the same sample for the same seed", async () => {
    for (let i = 1; i <= 5; i++) recordTrial(db, newTrial(10 * i));
    recordTrial(db, newTrial(90, { trial: trial({ status: "crashed", log: "" }) }));
    const asked: number[] = [];
    const again = (count: number): Promise<{ trial: { id: string } }[]> =>
      remeasure(db, { count, filters: [{}], random: seededRandom(3) }, async (t) => {
        asked.push(t.measurement.status === "ok" ? Math.round(t.measurement.median * 1e6) : 0);
        return measured(7);
      });
    const three = await again(3);
    expect(new Set(asked).size).toBe(3);
    expect((await again(3)).map((r) => r.trial.id)).toEqual(three.map((r) => r.trial.id));
    expect(await again(99)).toHaveLength(5);
  });
});

it("an import takes a design on lanes, and names the unknown kind of another candidate", () => {
  const lanes: LaneCandidate = {
    kind: "window",
    intrinsic: "avx512.lanes",
    schedule: windowSchedule({ rows: 4 }),
  };
  const { intrinsic: _, ...given } = newTrial(5, { trial: trial(measured(5), 1, lanes) });
  recordTrial(db, given);
  const lines = [...exportLines(db)];
  const other = shop.open(":memory:");
  importLines(other, lines);
  expect(queryTrials(other).map((t) => [t.intrinsic, t.candidate])).toEqual([["avx512.lanes", lanes]]);
  const refusals = (from: string, to: string): string[] =>
    importLines(
      shop.open(":memory:"),
      lines.map((text) => text.replace(from, to)),
    ).rejected.map((r) => r.reason);
  expect(refusals('"kind":"window"', '"kind":"waves"')).toEqual([expect.stringMatching(/"waves", which this automap/)]);
  expect(refusals('"lanes":16', '"lanes":"wide"')).toEqual([expect.stringMatching(/lanes.*number/)]);
});
