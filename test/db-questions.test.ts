/**
 * @file Queries over several records: the best of a list, two runs, two instructions, failures by reason; and their
 * JSON schemas.
 */

import { writeFileSync } from "node:fs";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { beginRun, openDatabase, recordTrial } from "../db/index.ts";
import { widest } from "./support/cli.ts";
import { commandLine } from "./support/command-line.ts";
import { CONV, candidate, MACHINE, measured, newTrial, trial, workloadNamed, workshop } from "./support/database.ts";

const shop = workshop();
const FILE = shop.path("automap.db");
const runs: string[] = [];
const MATMUL = { ...workloadNamed("matmul", { m: 128, n: 64, k: 256 }, "u8s8"), name: "net/head" };

beforeAll(() => {
  const db = openDatabase(FILE);
  const { intrinsic: _, ...without } = newTrial(1);
  const begin = (seed: number): string => {
    const run = beginRun(db, { workload: CONV, environment: MACHINE, seed, options: {}, budget: {}, started: seed });
    runs.push(run.slice(0, 12));
    return run;
  };
  const first = begin(1);
  const second = begin(2);
  const tried = (microseconds: number, block: number, at: number) => ({
    trial: trial(measured(microseconds), at, candidate(block)),
  });
  recordTrial(db, newTrial(1, { run: first, ...tried(100, 1, 1) }));
  recordTrial(db, newTrial(1, { run: first, ...tried(80, 2, 2) }));
  recordTrial(db, newTrial(1, { run: second, ...tried(104, 1, 3) }));
  recordTrial(db, newTrial(1, { run: second, ...tried(40, 3, 4) }));
  const failed = (at: number, log: string) => trial({ status: "compile-failed", log }, at, candidate(at));
  recordTrial(db, newTrial(1, { run: first, trial: failed(5, "exit code 1\nkernel.cpp:12:4: error: no member 17") }));
  recordTrial(db, newTrial(1, { run: first, trial: failed(6, "exit code 1\nkernel.cpp:99:4: error: no member 3") }));
  recordTrial(db, newTrial(1, { run: first, trial: trial({ status: "crashed", log: "signal 11" }, 7, candidate(7)) }));
  const amx = candidate(1, "amx.tdpbusd");
  recordTrial(db, { ...without, trial: trial(measured(20), 8, amx) });
  recordTrial(db, { ...without, workload: MATMUL, trial: trial(measured(8), 9, amx) });
  db.close();
});
afterAll(() => shop.remove());

async function printed(line: string): Promise<{ out: string; err: string }> {
  const { code, out, err } = await commandLine(`${line} --db ${FILE}`);
  expect({ code, err: code === 0 ? "" : err }).toEqual({ code: 0, err: "" });
  return { out: out.replace(/[0-9a-f]{12}/g, "ID"), err };
}

describe("a table of trials", () => {
  const { stdout } = process;
  const was = { isTTY: stdout.isTTY, columns: stdout.columns };
  afterEach(() => void Object.assign(stdout, was));

  it("fits a terminal and names the columns left out; a pipe gets all columns", async () => {
    const piped = await printed("db query --status ok");
    expect(piped.err).toBe("");
    expect(widest(piped.out)).toBeGreaterThan(100);
    Object.assign(stdout, { isTTY: true, columns: 80 });
    const told = await commandLine(`db query --status ok --db ${FILE}`);
    expect(widest(told.out)).toBeLessThanOrEqual(80);
    expect(told.out).toMatch(/^id .* workload .* shape .* time/);
    expect(told.err).toMatch(/^automap: no room on 80 columns for at \(UTC\), predicted, .*; --json has everything\n$/);
    Object.assign(stdout, { columns: 200 });
    expect((await commandLine(`db query --status ok --db ${FILE}`)).err).toBe("");
  });

  it("has all columns on a terminal of unknown width", async () => {
    const piped = await printed("db query --status ok");
    for (const columns of [0, undefined]) {
      Object.assign(stdout, { isTTY: true, columns });
      expect(await printed("db query --status ok")).toEqual(piped);
    }
  });
});

describe("automap db best of a list", () => {
  it("takes names or arguments of tune, in the list's order, and names those without a record", async () => {
    const list = shop.path("layers.txt");
    writeFileSync(
      list,
      "# two layers and one that is not there\nnet/head\nconv2d --c 64 --dtype u8s8\n\nconv2d --c 65\n",
    );
    const { out, err } = await printed(`db best --trust any --layers ${list}`);
    expect(out.split("\n").slice(1, 3)).toEqual([
      expect.stringMatching(/^ID {2}net\/head {2}matmul .* amx\.tdpbusd .* 8 us/),
      expect.stringMatching(/^ID {12}conv2d .* amx\.tdpbusd .* 20 us/),
    ]);
    expect(err).toBe("automap: conv2d --c 65: no trial matches\n");
    const { layers } = JSON.parse((await printed(`db best --trust any --json --layers ${list}`)).out);
    expect(layers.map(({ best }: { best: unknown }) => best === null)).toEqual([false, false, true]);
    expect((await printed("db best --trust any --name net/head,net/head")).out.match(/net\/head/g)).toHaveLength(2);
  });
});

describe("automap db compare", () => {
  it("on two runs gives their difference with its interval, and the candidates both tried", async () => {
    const { out } = await printed(`db compare --run ${runs[0]} --run ${runs[1]}`);
    expect(out).toMatchInlineSnapshot(`
      "a  run ID
      b  run ID

      workload                                             a                      b                      b - a (95 %)
      conv2d c 64 h 56 w 56 k 64 r 3 s 3 pad 1, u8s8->s32  80 us avx512.vpdpbusd  40 us avx512.vpdpbusd  -40 us (-52 us to -28 us)  b is faster, 50.0 %

      both   1 computation
      tried  1 candidate by both, which take 1.040 of a's time in b (median); 4 by a only, 1 by b only
      "
    `);
  });

  it("on two instructions compares the computations of both, and names those of only one", async () => {
    const { out } = await printed("db compare --intrinsic vnni --intrinsic amx");
    expect(out).toMatchInlineSnapshot(`
      "a  vnni
      b  amx

      workload                                             a                      b                  b - a (95 %)
      conv2d c 64 h 56 w 56 k 64 r 3 s 3 pad 1, u8s8->s32  40 us avx512.vpdpbusd  20 us amx.tdpbusd  -20 us (-26 us to -14 us)  b is faster, 50.0 %

      both    1 computation
      only b  net/head: matmul m 128 n 64 k 256, u8s8->s32
      "
    `);
  });
});

describe("automap db failures", () => {
  it("groups similar failures, the most frequent first", async () => {
    expect((await printed("db failures")).out).toMatchInlineSnapshot(`
      "count  status          latest        instructions     reason
      2      compile-failed  ID  avx512.vpdpbusd  error: no member #
      1      crashed         ID  avx512.vpdpbusd  signal 11
      "
    `);
    expect((await commandLine(`db failures --op matmul --db ${FILE}`)).err).toBe(
      "automap: no trial that matches failed\n",
    );
  });
});

describe("comma-separated values", () => {
  it("have a column for each parameter, each end of the interval, and the run", async () => {
    const { out } = await printed("db query --op matmul --csv");
    expect(out).toMatchInlineSnapshot(`
      "id,run,name,workload,operator,k,m,n,dtype,types,layout,epilogue,threads,cache,target,provenance,intrinsic,status,microseconds,low,high,predictedMicroseconds,at
      IDIDbf0b6f62,,net/head,"net/head: matmul m 128 n 64 k 256, u8s8->s32",matmul,256,128,64,u8s8,u8s8->s32,,,1,warm,native,here,amx.tdpbusd,ok,8,7.6,8.4,,1970-01-01T00:00:00.009Z
      "
    `);
  });
});

describe("--json-schema", () => {
  const lines = [
    "db query",
    "db best --trust any",
    "db best --trust any --name net/head,net/head",
    "db stale",
    "db failures",
    "db compare --intrinsic vnni --intrinsic amx",
    "db compare RUNS",
  ];
  it.each(lines)("describes the output of %s --json", async (line) => {
    const [command = ""] = / (?:--|RUNS)/.test(line) ? line.split(/ (?:--|RUNS)/) : [line];
    const schema = await commandLine(`${command} --json-schema`);
    expect(schema.code).toBe(0);
    const { out } = await commandLine(
      `${line.replace("RUNS", `--run ${runs[0]} --run ${runs[1]}`)} --json --db ${FILE}`,
    );
    expect(() => z.fromJSONSchema(JSON.parse(schema.out)).parse(JSON.parse(out))).not.toThrow();
    expect(() => z.fromJSONSchema(JSON.parse(schema.out)).parse({ schemaVersion: 1, other: [] })).toThrow();
  });
});
