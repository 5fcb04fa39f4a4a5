/**
 * @file A report of whole searches: runs compared, designs on lanes, a GPU with its grid and clock, data to download.
 */

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { defineComputation } from "../../abstraction/computation.ts";
import { openDatabase, recordTrial, type Workload } from "../../db/index.ts";
import { trialsCsv } from "../../report/downloads.ts";
import { reportPage } from "../../report/page.ts";
import type { ReportData, Subject } from "../../report/report-data.ts";
import { gatherReport } from "../../session/report/report.ts";
import { commandLine } from "../support/command-line.ts";
import { measured, newTrial, trial, workshop } from "../support/database.ts";
import { recordSearches } from "../support/searches.ts";

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
