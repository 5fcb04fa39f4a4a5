/**
 * @file A report of whole searches: runs compared, designs on lanes, a GPU with its grid and clock, data to download.
 */

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { defineComputation } from "../../abstraction/computation.ts";
import type { NoiseVerdict } from "../../abstraction/noise.ts";
import { beginRun, openDatabase, recordTrial, type Workload } from "../../db/index.ts";
import { trialsCsv } from "../../report/downloads.ts";
import { reportPage } from "../../report/page.ts";
import type { ReportData, Subject, TrialPoint } from "../../report/report-data.ts";
import { besideOf, gatherReport } from "../../session/report/report.ts";
import { commandLine } from "../support/command-line.ts";
import { MACHINE, measured, newTrial, trial, workloadNamed, workshop } from "../support/database.ts";
import { BEGAN, recordSearches } from "../support/searches.ts";

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
    expect((await commandLine(["report", "--db", FILE, "--run", "ffffffffffff", "-o", "-"])).code).toBe(3);
  });

  it("say when each search found its fastest kernel", () => {
    const [comparison] = data.comparisons;
    for (const { trials, found } of comparison?.runs ?? []) {
      const seconds = trials.map((t) => t.seconds ?? Number.POSITIVE_INFINITY);
      expect(found?.trial).toBe(seconds.indexOf(Math.min(...seconds)) + 1);
      expect(page).toContain(
        `<td data-v="${found?.trial}" data-label="found" role="cell">trial ${found?.trial}, after`,
      );
    }
  });

  const side = (low: number, high: number, noise: NoiseVerdict = "quiet") => ({
    best: { id: "", seconds: low, interval: [low, high] as const, decisions: [] },
    noise,
    shared: undefined,
  });

  it.each([
    [
      "overlapping intervals are noise",
      side(10, 12),
      side(11, 13),
      "no difference beyond noise: the intervals overlap",
      true,
    ],
    ["a faster one", side(20, 22), side(10, 11), "1.818 to 2.200 times as fast", true],
    ["a slower one", side(10, 11), side(20, 22), "1.818 to 2.200 times as slow", true],
    [
      "a noisy one is not sure",
      side(20, 22),
      side(10, 11, "noisy"),
      "1.818 to 2.200 times as fast, but this run is noisy",
      false,
    ],
    [
      "a noisy tie is not sure",
      side(10, 12, "noisy"),
      side(11, 13),
      "no difference beyond noise: the intervals overlap, and times are noisy",
      false,
    ],
    [
      "the machine explains what the same kernels gained too",
      side(20, 22),
      { ...side(10, 11), shared: { count: 3, ratio: 0.5 } },
      "1.818 to 2.200 times as fast, but the same kernels differ as much, so the machine explains it",
      false,
    ],
    [
      "two kernels say nothing of the machine",
      side(20, 22),
      { ...side(10, 11), shared: { count: 2, ratio: 0.5 } },
      "1.818 to 2.200 times as fast",
      true,
    ],
  ])("are judged: %s", (_, first, second, says, isSure) => {
    expect(besideOf(first, second)).toMatchObject({ says, isSure });
  });
});

describe("two databases", () => {
  const OTHER = shop.path("other.db");
  beforeAll(() => {
    recordSearches(OTHER, 0.5);
    const db = openDatabase(OTHER);
    const workload = workloadNamed("matmul", { m: 32, n: 32, k: 64 }, "u8s8");
    const run = beginRun(db, { workload, environment: MACHINE, seed: 1, options: {}, budget: {}, started: BEGAN });
    recordTrial(db, { ...newTrial(3, { workload }), run });
    db.close();
  });

  it("are compared by the fastest run of each workload, and what only one has is listed", async () => {
    const { out, err, code } = await commandLine(["report", "--db", FILE, "--compare", OTHER, "-o", "-"]);
    expect([code, err]).toEqual([0, ""]);
    expect(out).toContain(`<h2>Compared with ${OTHER}</h2>`);
    expect(out).toContain(`${OTHER} beside ${FILE}: `);
    expect(out).toContain(`Only in ${OTHER}: 1 workload`);
    const db = openDatabase(FILE, { readonly: true });
    const other = openDatabase(OTHER, { readonly: true });
    const { comparisons, compared, subjects } = gatherReport(db, {}, 1, other);
    db.close();
    other.close();
    expect(subjects).toHaveLength(data.subjects.length);
    expect(compared).toMatchObject({ source: OTHER, onlyHere: [], onlyThere: ["matmul m 32 n 32 k 64, u8s8->s32"] });
    for (const { runs } of comparisons) {
      expect(runs.map(({ source }) => source)).toEqual([FILE, OTHER]);
      expect(runs[1]?.beside?.verdict).toBe("faster");
      expect((runs[1]?.best?.seconds ?? 0) / (runs[0]?.best?.seconds ?? 0)).toBeCloseTo(0.5, 6);
    }
    expect(comparisons.length).toBeGreaterThan(0);
  });

  it.each([
    [["--compare", "none.db"], "none.db", 3],
    [["--compare", OTHER, "--run", "d731c22881a0"], "--run and --compare do not go together", 2],
    [["--compare", OTHER, "--network", "resnet18"], "--compare is of the report of a database", 2],
    [["--compare", ""], "--compare must name a database", 2],
  ])("are refused with %j", async (words, message, expected) => {
    const { code, err } = await commandLine(["report", "--db", FILE, ...words, "-o", "-"]);
    expect(code).toBe(expected);
    expect(err).toContain(message);
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

describe("a chart that would show nothing is left out:", () => {
  const chartsIn = (changed: Partial<ReportData>): string[] =>
    [...reportPage({ ...data, ...changed }).matchAll(/class="chart"[^>]*aria-label="([^"]*)"/g)].map(
      ([, label]) => label ?? "",
    );
  const convolution = () => subjectOf("conv2d");

  it("the model beside two trials", () => {
    const few = { ...convolution(), trials: convolution().trials.slice(0, 2) };
    expect(chartsIn({}).join()).toContain("The model against measurement");
    expect(chartsIn({ subjects: [few] }).join()).not.toContain("The model against measurement");
    expect(reportPage({ ...data, subjects: [few] })).toContain(
      "The model is not judged: 2 trials have both a prediction and a time.",
    );
  });

  it("runs over seconds that no trial has, and runs without a time", () => {
    const runsWith = (change: Partial<TrialPoint>) =>
      data.comparisons.map((c) => ({
        ...c,
        runs: c.runs.map((r) => ({ ...r, trials: r.trials.map((t) => ({ ...t, ...change })) })),
      }));
    const ofRuns = (changed: Partial<ReportData>) =>
      chartsIn(changed).flatMap((label) => /^The best so far .* over (.*)/.exec(label)?.[1] ?? []);
    expect(ofRuns({})).toEqual(["trial", "seconds since the run began"]);
    expect(ofRuns({ comparisons: runsWith({ after: undefined }) })).toEqual(["trial"]);
    expect(ofRuns({ comparisons: runsWith({ seconds: undefined }) })).toEqual([]);
  });

  it("decisions of which none accounts for a share", () => {
    const decisions = convolution().decisions.map((d) => ({ ...d, share: 0 }));
    const page = reportPage({ ...data, subjects: [{ ...convolution(), decisions }] });
    expect(page).not.toContain("Share of the variance");
    expect(page).toContain("do not show which decisions mattered");
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
