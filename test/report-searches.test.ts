/**
 * @file A report of whole searches: runs compared, designs on lanes, a GPU with its grid and clock, data to download.
 */

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { defineComputation } from "../abstraction/computation.ts";
import { openDatabase, recordTrial, type Workload } from "../db/index.ts";
import { trialsCsv } from "../report/downloads.ts";
import { reportPage } from "../report/page.ts";
import type { ReportData, Subject } from "../report/report-data.ts";
import { gatherReport } from "../session/report.ts";
import { commandLine } from "./support/command-line.ts";
import { measured, newTrial, trial, workshop } from "./support/database.ts";
import { recordSearches } from "./support/searches.ts";

const shop = workshop();
afterAll(() => shop.remove());
const FILE = shop.path("searches.db");
let runs: readonly [string, string];
let data: ReportData;
let page = "";

function gathered(filter: Parameters<typeof gatherReport>[1]): ReportData {
  const db = openDatabase(FILE, { readonly: true });
  try {
    return gatherReport(db, filter, 1);
  } finally {
    db.close();
  }
}

beforeAll(() => {
  runs = recordSearches(FILE);
  data = gathered({});
  page = reportPage(data);
});

const subjectOf = (name: string): Subject => {
  const found = data.subjects.find((s) => s.subject === name);
  if (!found) throw new Error(`no ${name}`);
  return found;
};

describe("runs of one workload", () => {
  it("stand beside each other with their winners and the kernels they share", () => {
    const [comparison, ...more] = data.comparisons;
    expect(more).toEqual([]);
    expect(comparison?.runs.map((r) => [r.id, r.seed, r.trials.length, r.failed])).toEqual([
      [runs[0], 1, 13, 1],
      [runs[1], 2, 10, 0],
    ]);
    expect(comparison?.runs[0]?.best?.seconds).toBeCloseTo(50e-6, 12);
    expect(comparison?.runs[0]?.shared).toBeUndefined();
    expect(comparison?.runs[1]?.shared).toEqual({ count: 2, ratio: expect.closeTo(1.02, 9) });
    // 50 us within 5 % against 67.32 us within 5 %.
    expect(page).toContain(
      `${((67.32 * 0.95) / (50 * 1.05)).toFixed(3)} to ${((67.32 * 1.05) / (50 * 0.95)).toFixed(3)} times as slow`,
    );
  });

  it("are compared with the run that was named first", async () => {
    const other = gathered({ runs: [runs[1], runs[0]] });
    expect(other.comparisons[0]?.runs.map((r) => r.id)).toEqual([runs[1], runs[0]]);
    expect(other.subjects).toHaveLength(1);
    expect(reportPage(other)).toContain("times as fast");
    const ran = await commandLine(["report", "--db", FILE, "--run", runs[1].slice(0, 12), "--run", runs[0], "-o", "-"]);
    expect(ran.out).toContain(`runs ${runs[1].slice(0, 12)} and ${runs[0].slice(0, 12)}`);
    expect((await commandLine(["report", "--db", FILE, "--run", "ffffffffffff", "-o", "-"])).code).toBe(2);
  });

  it("count as equal where their intervals overlap", () => {
    const [comparison] = data.comparisons;
    const [first] = comparison?.runs ?? [];
    if (!comparison || !first) throw new Error("no comparison");
    expect(reportPage({ ...data, comparisons: [{ ...comparison, runs: [first, first] }] })).toContain(
      "no difference: intervals overlap",
    );
  });
});

describe("a workload", () => {
  it("counts time from the beginning of its run", () => {
    expect(subjectOf("conv1d-single").trials.map((t) => t.after)).toEqual(
      Array.from({ length: 10 }, (_, i) => 0.5 * (i + 1)),
    );
    expect(page).toContain("over seconds since the run began");
  });

  it("lists the decisions that time depends on", () => {
    const [most] = subjectOf("conv1d-single").decisions;
    expect(most).toMatchObject({ name: "rows", trials: 10 });
    expect(most?.share).toBeGreaterThan(0.8);
  });

  it("on lanes is drawn as elements on lanes", () => {
    expect(subjectOf("conv1d-single").best?.drawing).toEqual({
      kind: "lanes",
      design: { dataflow: "SBM", lanes: 16, columns: 5 },
    });
    expect(page).toContain("12 of 16 lanes end with a whole sum");
  });

  it("on a GPU is drawn as blocks and warpgroups, with its clock", () => {
    expect(page).toContain("32 x 16 blocks");
    expect(page).toContain("2 x 1 warpgroups");
    expect(page).toContain("k 4096: 64 steps of 64, 2 stages in shared memory");
    expect(page).toContain("1980 MHz while it was timed, not throttled");
    expect(data.noise.facts.at(-1)).toEqual(["throttled while timed", "30.0 %: power-limit", "trials (10)"]);
  });

  it("on a GPU is placed under the roofs of all its multiprocessors", () => {
    const roofline = data.rooflines.find((r) => r.of === "GPU");
    // 2 * 64 * 64 * 16 operations in 32 cycles of each of 132 multiprocessors.
    expect(roofline?.peaks[0]?.operationsPerSecond).toBeCloseTo(4096 * 132 * 1.775e9, -6);
    expect(roofline?.bandwidths.map((b) => b.name)).toEqual(["l2", "dram"]);
    expect(roofline?.rates).toContainEqual(["dram, latency", "699 cycles, 393.8 ns"]);
    expect(subjectOf("matmul").best?.ofRoof).toBeCloseTo((2 * 4096 ** 3) / (4096 * 132 * 1.775e9) / 250e-6, 3);
  });
});

describe("the data of a page", () => {
  it("have one line for each trial and one column for each decision", () => {
    const [head = "", ...lines] = trialsCsv(data).trimEnd().split("\r\n");
    expect(lines).toHaveLength(13 + 10 + 10 + 10);
    expect(head.split(",")).toEqual(
      expect.arrayContaining(["record", "run", "seconds", "clockHz", "tile m", "rows", "block q"]),
    );
    const cells = lines.map((line) => line.replaceAll(/"(?:[^"]|"")*"/g, "").split(",").length);
    expect(new Set(cells).size).toBe(1);
  });

  it("are offered in links that need no script", () => {
    const files = [...page.matchAll(/download="([^"]+)" href="data:[\w/]+;charset=utf-8;base64,([^"]*)"/g)];
    const texts = Object.fromEntries(
      files.map(([, name, text]) => [name, Buffer.from(text ?? "", "base64").toString()]),
    );
    expect(texts["trials.csv"]).toBe(trialsCsv(data));
    expect(JSON.parse(texts["report.json"] ?? "")).toMatchObject({ version: data.version, subjects: [{}, {}, {}] });
  });

  it("hold no formula that a spreadsheet would obey", () => {
    const [subject] = data.subjects;
    if (!subject) throw new Error("no subject");
    const trials = subject.trials.map((t) => ({ ...t, decisions: [["=1+1", '@x","y']] as const }));
    const csv = trialsCsv({ ...data, subjects: [{ ...subject, name: "=cmd()", trials }] });
    expect(csv.split(/[,\r\n]/).filter((cell) => /^"?[=+@\t]/.test(cell))).toEqual([]);
  });
});

describe("a workload that only its tensors tell apart", () => {
  it.each([
    ["a weight", { dtype: "s8", constant: true }, "b constant"],
    ["rows further apart", { dtype: "s8", storage: "64*k + n" }, "b:s8[16,32]@64*k+n"],
  ] as const)("says of %s what is unusual in its own section, and not in the overview", (_, b, unusual) => {
    const constant: Workload = {
      computation: defineComputation({
        equation: "c[m,n] += s32(a[m,k]) * s32(b[k,n])",
        extents: { m: 64, n: 32, k: 16 },
        tensors: { a: "u8", b },
      }),
    };
    const file = shop.path(`${unusual.slice(0, 4)}.db`);
    const db = openDatabase(file);
    recordTrial(db, newTrial(1, { workload: constant, trial: trial(measured(10), 1) }));
    const told = gatherReport(db, {}, 1);
    db.close();
    expect(told.subjects.map(({ layout, besides }) => ({ layout, besides }))).toEqual([
      { layout: "", besides: unusual },
    ]);
    const [overview = "", section = ""] = reportPage(told).split("<article");
    expect(overview).not.toContain(unusual);
    expect(section).toContain(`<p><code>${unusual}</code></p>`);
    expect(trialsCsv(told)).toContain(unusual);
  });
});
