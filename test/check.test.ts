/** @file `automap check`: what counts as a regression, and its report for a build server. */

import { readFileSync } from "node:fs";
import { afterAll, describe, expect, it } from "vitest";
import type { Measurement } from "../abstraction/trial.ts";
import { type NewTrial, openDatabase, recordTrial } from "../db/index.ts";
import { commandLine } from "./support/command-line.ts";
import { candidate, MACHINE, newTrial, trial, VNNI, workloadNamed, workshop } from "./support/database.ts";

const shop = workshop();
afterAll(() => shop.remove());

let files = 0;
/** A database of such trials. */
function database(...trials: readonly NewTrial[]): string {
  const file = shop.path(`trials ${files++}.db`);
  const db = openDatabase(file);
  for (const one of trials) recordTrial(db, one);
  db.close();
  return file;
}

/** A trial of so many microseconds, its interval as wide to both sides. */
function took(microseconds: number, spread: number, given: Partial<NewTrial> = {}, block = 1): NewTrial {
  const median = microseconds * 1e-6;
  const tried = candidate(block, VNNI?.name, given.conditions?.threads);
  const measurement: Measurement = {
    status: "ok",
    samples: [median],
    median,
    interval: [median * (1 - spread), median * (1 + spread)],
    instructions: 1,
  };
  return newTrial(1, { trial: trial(measurement, 1_700_000_000_000, tried), ...given });
}

const crashed = (): NewTrial => newTrial(1, { trial: trial({ status: "crashed", log: "signal 11" }) });
const MATMUL = workloadNamed("matmul", { m: 32, n: 32, k: 32 }, "u8s8");

async function check(before: string, after: string, ...words: readonly string[]) {
  const { code, out, err } = await commandLine(["check", "--baseline", before, "--db", after, "--json", ...words]);
  const document =
    out === "" ? undefined : (JSON.parse(out) as { findings: { verdict: string; ratio: number | null }[] });
  return { code, err, verdicts: document?.findings.map((f) => f.verdict), document };
}

describe("automap check", () => {
  it.each([
    { what: "slower beyond all doubt", before: took(100, 0.01), after: took(110, 0.01), verdict: "slower", code: 5 },
    {
      what: "slower by less than is allowed",
      before: took(100, 0.001),
      after: took(102.5, 0.001),
      verdict: "same",
      code: 0,
    },
    // 100 .. 106 against 104.8 .. 115: the medians say 10 %, the intervals do not.
    { what: "slower within the noise", before: took(100, 0.06), after: took(110, 0.047), verdict: "same", code: 0 },
    {
      what: "apart by less than the share",
      before: took(100, 0.01),
      after: took(104.5, 0.01),
      verdict: "same",
      code: 0,
    },
    { what: "faster", before: took(100, 0.01), after: took(90, 0.01), verdict: "faster", code: 0 },
    { what: "failing now", before: took(100, 0.01), after: crashed(), verdict: "failing", code: 5 },
    { what: "failing before and now", before: crashed(), after: crashed(), verdict: "same", code: 0 },
    { what: "working at last", before: crashed(), after: took(100, 0.01), verdict: "new", code: 0 },
  ])("calls a time $verdict when it is $what", async ({ before, after, verdict, code }) => {
    expect(await check(database(before), database(after))).toMatchObject({ verdicts: [verdict], code });
  });

  it("compares the best trials, not the last", async () => {
    const after = database(took(300, 0.01, {}, 2), took(99, 0.01, {}, 3), took(200, 0.01, {}, 4));
    expect(await check(database(took(100, 0.01)), after)).toMatchObject({ verdicts: ["same"], code: 0 });
  });

  it("reads the allowed share as per cent or as a number", async () => {
    const before = database(took(100, 0.001));
    const after = database(took(108, 0.001));
    expect((await check(before, after, "--max-regression", "10%")).code).toBe(0);
    expect((await check(before, after, "--max-regression", "0.1")).code).toBe(0);
    expect((await check(before, after, "--max-regression", "5 %")).code).toBe(5);
    for (const wrong of ["-3%", "much", "3", ""]) {
      const { code, err } = await check(before, after, "--max-regression", wrong);
      expect({ wrong, code }).toEqual({ wrong, code: 2 });
      expect(err).toContain("--max-regression must be a share such as 3% or 0.03");
    }
  });

  it("reports a missing workload, and fails for it only when all are required", async () => {
    const before = database(took(100, 0.01), took(5, 0.01, { workload: MATMUL }));
    const after = database(took(100, 0.01));
    expect(await check(before, after)).toMatchObject({ verdicts: ["missing", "same"], code: 0 });
    expect((await check(before, after, "--require-all")).code).toBe(5);
    expect((await check(before, after, "--op", "conv2d", "--require-all")).verdicts).toEqual(["same"]);
  });

  it("does not pass when there is nothing to compare", async () => {
    const other = took(500, 0.01, { environment: { ...MACHINE, cpu: "another" } });
    const { code, err, verdicts } = await check(database(took(100, 0.01)), database(other));
    expect({ code, verdicts }).toEqual({ code: 1, verdicts: ["missing", "new"] });
    expect(err).toContain("nothing is checked");
    const { out } = await commandLine(["check", "--baseline", database(took(100, 0.01)), "--db", database(other)]);
    expect(out).toContain("not accepted: nothing was compared");
  });

  it("compares across tool versions, and says which differ", async () => {
    const newer = { ...MACHINE, automap: "9.9.9", compiler: { ...MACHINE.compiler, version: "14.0" } };
    const { document, code } = await check(
      database(took(100, 0.01)),
      database(took(150, 0.01, { environment: newer })),
    );
    expect(code).toBe(5);
    expect(document?.findings[0]).toMatchObject({ environmentDiffersIn: ["compiler_version", "automap"], fails: true });
  });

  it("compares trials of equal thread counts only", async () => {
    const two = took(60, 0.01, { conditions: { threads: 2, cache: "warm" } });
    expect((await check(database(took(100, 0.01)), database(two))).verdicts).toEqual(["missing", "new"]);
  });

  it("writes JUnit XML that a build server reads", async () => {
    const before = database(took(100, 0.01), took(5, 0.01, { workload: MATMUL }));
    const xml = shop.path("check.xml");
    const { code } = await check(before, database(took(150, 0.01)), "--junit", xml);
    expect(code).toBe(5);
    expect(readFileSync(xml, "utf8")).toMatchInlineSnapshot(`
      "<?xml version="1.0" encoding="UTF-8"?>
      <testsuites name="automap check" tests="2" failures="1" errors="0" skipped="1">
        <testsuite name="conv2d" tests="1" failures="1" errors="0" skipped="0">
          <testcase classname="automap check.conv2d" name="conv2d c 64 h 56 w 56 k 64 r 3 s 3 pad 1, u8s8-&gt;s32, 1 thread, Testium 9000" time="0.000150000"><failure message="regression: 100 us (99 us to 101 us) before, 150 us (148.5 us to 151.5 us) now"/></testcase>
        </testsuite>
        <testsuite name="matmul" tests="1" failures="0" errors="0" skipped="1">
          <testcase classname="automap check.matmul" name="matmul m 32 n 32 k 32, u8s8-&gt;s32, 1 thread, Testium 9000" time="0.000000000"><skipped message="missing: 5 us (4.95 us to 5.05 us) before, - now"/></testcase>
        </testsuite>
      </testsuites>
      "
    `);
  });

  it("needs a baseline", async () => {
    const { code, err } = await commandLine(["check", "--db", database(took(100, 0.01))]);
    expect({ code, err }).toEqual({
      code: 2,
      err: "automap: check needs --baseline: the database to hold the new one against\n",
    });
  });
});
