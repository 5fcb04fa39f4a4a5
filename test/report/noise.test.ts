/** @file The verdict on how reliable measurements are, and that every command gives the same one. */

import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { noiseVerdict } from "../../abstraction/noise.ts";
import { conclude } from "../../cli/tune-outcome.ts";
import { openDatabase } from "../../db/index.ts";
import { reportPage } from "../../report/page.ts";
import type { Compiler } from "../../runtime/compiler.ts";
import { noiseFinding } from "../../runtime/doctor.ts";
import { gatherReport } from "../../session/report/report.ts";
import { tuneComputation } from "../../session/tune/tune.ts";
import { captured } from "../support/command-line.ts";
import { fakeRunner, took, withCalibration } from "../support/fake-runner.ts";
import { compilerHere } from "../support/here.ts";
import { scratchFolder } from "../support/scratch.ts";
import { stated } from "../support/subjects.ts";

const STEADY = { widths: [0.001, 0.002], drifts: [0.001], repeats: [0.002] };

describe("the verdict", () => {
  it.each([
    ["quiet", "steady times, and the load of the operating system", { loads: [0.01, 0.02] }],
    ["quiet", "steady times, and no load that is known", {}],
    ["usable", "one kernel beside other programs", { loads: [...Array(100).fill(0), 0.79] }],
    ["usable", "a little load all the time", { loads: [0.04, 0.05, 0.06] }],
    ["noisy", "other programs that took most of the processor", { loads: [0.79, 0.79] }],
    ["noisy", "other programs that took most of it for one kernel in five", { loads: [0, 0, 0, 0, 0.79] }],
    ["usable", "one kernel on a throttled clock", { throttled: 1 }],
    ["usable", "intervals of some percent", { widths: [0.02, 0.03] }],
    ["noisy", "kernels that take another time when measured again", { repeats: [0.3] }],
    ["unknown", "nothing that was timed", { widths: [] }],
  ] as const)("is %s for %s", (verdict, _, signs) => {
    expect(noiseVerdict({ ...STEADY, ...signs }).verdict).toBe(verdict);
  });
});

describe("a search beside other programs", () => {
  const folder = scratchFolder();
  let compiler: Compiler;
  beforeAll(async () => {
    compiler = await compilerHere();
  });
  const matmul = stated("c[i,j] += a[i,k] * b[k,j] --i 16 --j 16 --k 16");

  it.each([
    [0.79, "noisy"],
    [0.01, "quiet"],
  ])("that took %d of the processor is called the same by tune and by the report", async (load, verdict) => {
    const steady = { ...took(1e-6, 0.001), ran: { cpus: [0], load } };
    const runner = fakeRunner(compiler, { alone: () => steady, inTurns: (all) => all.map(() => steady) });
    const database = withCalibration(join(folder, `${load}.db`), compiler);
    const outcome = await tuneComputation({ computation: matmul }, { database, runner, trials: 4 });
    const { err } = await captured(() => conclude(outcome, {}, 4));
    const db = openDatabase(database, { readonly: true });
    const data = gatherReport(db, {}, 0);
    db.close();
    expect(data.noise.verdict).toBe(verdict);
    expect(reportPage(data)).toContain(`<strong>${verdict}</strong>: ${data.noise.meaning}`);
    expect(err).toContain(`${verdict}: ${data.noise.meaning}`);
    expect(err.includes("other programs took up to 79.0 % of the processor")).toBe(load === 0.79);
  });

  it("is what doctor warns of, in the same word", () => {
    const baseline = { median: 1e-3, interval: [0.999e-3, 1.001e-3], samples: [1e-3, 1e-3, 1e-3] } as const;
    expect(noiseFinding({ ...baseline, load: 0.79 })).toMatchObject({
      status: "doubtful",
      detail: expect.stringMatching(/^noisy: .*other programs took 79\.0 % of the processor/),
    });
    expect(noiseFinding({ ...baseline, load: 0.01 })).toMatchObject({
      status: "ok",
      detail: expect.stringMatching(/^quiet: /),
    });
  });
});
