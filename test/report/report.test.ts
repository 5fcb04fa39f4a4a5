/** @file The report: its content, its safety from injected scripts, and its accessibility. */

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Trial } from "../../abstraction/trial.ts";
import { beginRun, type Environment, openDatabase, recordCalibration, recordTrial } from "../../db/index.ts";
import { drawMappingSvg } from "../../report/draw-svg.ts";
import { escapeMarkup, html } from "../../report/html.ts";
import { junit } from "../../report/junit.ts";
import { reportPage } from "../../report/page.ts";
import { PAGE_SCRIPT, PAGE_STYLE } from "../../report/page-shell.ts";
import type { ReportData, TrialPoint } from "../../report/report-data.ts";
import { gatherReport } from "../../session/report/report.ts";
import { commandLine } from "../support/command-line.ts";
import { CONV, MACHINE, measured, newTrial, trial, VNNI, workloadNamed, workshop } from "../support/database.ts";
import { convolution } from "../support/searches.ts";
import { mappingsOnto } from "../support/subjects.ts";

const EVIL = `<script>alert("x")</script><img src=x onerror='alert(1)'>]]>&"'`;
const NOW = Date.UTC(2026, 10, 21, 12);
const CALIBRATION = {
  machine: "Testium 9000",
  clockHz: { median: 4e9, spread: 0 },
  memory: Object.fromEntries(
    // In the order of a canonical JSON text, not of the levels.
    [
      ["dram", 64, 4],
      ["l1", 1, 128],
      ["l2", 16, 32],
    ].map(([name, kib, rate]) => {
      const bytesPerCycle = { median: Number(rate), spread: 0 };
      const footprintBytes = Number(kib) * 16384;
      return [
        String(name),
        {
          footprintBytes,
          readBytesPerCycle: bytesPerCycle,
          writeBytesPerCycle: bytesPerCycle,
          copyBytesPerCycle: bytesPerCycle,
        },
      ];
    }),
  ),
  intrinsics: {
    "avx512.vpdpbusd": {
      issueCycles: { median: 0.5, spread: 0 },
      latencyCycles: { median: 5, spread: 0 },
      loadCycles: { a: { median: 0.5, spread: 0 }, b: { median: 0.5, spread: 0 } },
      storeCycles: { median: 1, spread: 0 },
    },
  },
  scalar: {},
};

const shop = workshop();
const FILE = shop.path("automap.db");
/** Of the fastest trial. */
let fastest = "";
let data: ReportData;

function predicted(microseconds: number): Trial["prediction"] {
  const seconds = microseconds * 1e-6;
  const level = { level: "l1", trips: 4, inner: 10, read: 3, write: 1, bound: "inner" as const };
  return { seconds, uncorrectedSeconds: seconds, levels: [level] };
}

/** The mapping of every trial. */
const [MAPPING] = mappingsOnto(CONV.computation, VNNI ?? fail());

beforeAll(() => {
  const db = openDatabase(FILE);
  const environment: Environment = { ...MACHINE, cpu: EVIL };
  const run = beginRun(db, { workload: CONV, environment, seed: 1, options: {}, budget: {}, started: NOW });
  const add = (block: number, trial: Pick<Trial, "measurement" | "prediction">, workload = CONV): string =>
    recordTrial(db, {
      ...newTrial(1, { workload, environment, run }),
      trial: { ...trial, candidate: convolution(block, 0), at: NOW + 1000 * block },
    });
  add(1, { measurement: measured(70), prediction: predicted(60) });
  fastest = add(2, { measurement: measured(50), prediction: predicted(55) });
  add(3, { measurement: measured(60), prediction: predicted(90) });
  add(4, { measurement: { status: "crashed", log: `${EVIL}\nmore` }, prediction: undefined });
  recordCalibration(db, { environment, data: CALIBRATION, at: NOW });
  db.close();
  const again = openDatabase(FILE, { readonly: true });
  data = gatherReport(again, {}, NOW);
  again.close();
});
afterAll(() => shop.remove());

describe("the data of a report", () => {
  it("holds the best of each workload, its trials in order and its failures", () => {
    const [subject, other] = data.subjects;
    expect(other).toBeUndefined();
    expect(subject?.best).toMatchObject({ id: fastest, seconds: expect.closeTo(50e-6, 12), levels: [{ level: "l1" }] });
    expect(subject?.trials.map((t) => t.status)).toEqual(["ok", "ok", "ok", "crashed"]);
    expect(subject?.failures).toEqual([{ name: "crashed", count: 1, example: EVIL }]);
  });

  it("has workloads by name, and of each message the beginning of its first line", () => {
    const path = shop.path("two.db");
    const db = openDatabase(path);
    const log = `${"0123456789".repeat(30)}\nmore`;
    for (const [i, name] of ["matmul", "conv2d"].entries())
      recordTrial(db, {
        ...newTrial(1, { workload: workloadNamed(name, {}, "u8s8") }),
        trial: trial({ status: "crashed", log }, NOW + i, convolution(1, 0)),
      });
    const { subjects } = gatherReport(db, {}, NOW);
    db.close();
    expect(subjects.map((s) => s.subject)).toEqual(["conv2d", "matmul"]);
    expect(subjects[0]?.failures[0]?.example).toBe(`${log.slice(0, 199)}…`);
  });

  it("judges the model by pairs without the diagonal", () => {
    // 70 < 60 < 50 measured; 60 > 55, but 90 is out of order with 60: two of three pairs are right.
    expect(data.accuracy).toHaveLength(1);
    expect(data.accuracy[0]).toMatchObject({ trials: 3, corrected: { pairwise: 2 / 3, recall: 1 } });
  });

  it("puts the trials under the ceilings of the calibration", () => {
    const [roof] = data.rooflines;
    // Innermost first, whatever the order of the record; 2 * 4 * 16 operations an issue, twice a cycle.
    expect(roof?.bandwidths.map((b) => b.name)).toEqual(["l1", "l2", "dram"]);
    expect(roof?.peaks).toEqual([{ name: "avx512.vpdpbusd", operationsPerSecond: (2 * 64 * 4e9) / 0.5 }]);
    // Two of the 168 products of a row and its taps, and of a column, are with padding.
    const points = 64 * 64 * 166 * 166;
    const best = roof?.points.find((p) => p.best);
    expect(best?.operationsPerSecond).toBeCloseTo((2 * points) / 50e-6, -3);
    expect(best?.intensity).toBeCloseTo((2 * points) / (64 * 56 * 56 + 64 * 64 * 9 + 4 * 64 * 56 * 56), 6);
    // 4.5 T operations/s of a peak of 1 T: the times are made up, the share is honest about it.
    expect(data.subjects[0]?.best?.ofRoof).toBeCloseTo((2 * points) / 50e-6 / 1.024e12, 6);
  });

  it("marks a roof that a kernel outran as unusable, and says how to measure it again", async () => {
    const page = reportPage(data);
    const said = data.rooflines[0]?.contradicted ?? "";
    expect(said.replace(fastest.slice(0, 12), "ID").replace(FILE, "FILE")).toBe(
      "the calibration of 2026-11-21 is contradicted by 1 of 1 kernels: conv2d c 64 h 56 w 56 k 64 r 3 s 3 pad 1, u8s8->s32 (trial ID) ran 4.41 times as fast as the rate of avx512.vpdpbusd in it allows; automap calibrate --force --db FILE measures it again",
    );
    const verdict = `<p class="verdict noisy"><strong>roofs not usable</strong>: ${escapeMarkup(said)}.</p>`;
    // Where the numbers are judged, and where the roofs are drawn.
    expect(page.split(verdict)).toHaveLength(3);
    const quiet = { ...data, rooflines: data.rooflines.map((r) => ({ ...r, contradicted: undefined })) };
    expect(reportPage(quiet)).not.toContain("not usable");
  });
});

describe("the page", () => {
  let page = "";
  beforeAll(async () => {
    const [subject] = data.subjects;
    if (!subject) throw new Error("no subject");
    expect(subject.best?.drawing).toMatchObject({ kind: "mapping", mapping: { id: MAPPING?.id } });
    const rows = [[EVIL, EVIL]] as const;
    const decided = subject.trials.map((t) => ({ ...t, id: EVIL, run: EVIL, intrinsic: EVIL, decisions: rows }));
    const best = subject.best && {
      ...subject.best,
      candidate: rows,
      judged: EVIL,
      roof: { seconds: 1, by: EVIL },
      clock: { hertz: 1e9, throttled: ["power-limit"] } as const,
    };
    const value = { value: EVIL, trials: 9, best: 1, median: 2 };
    const evil = {
      ...subject,
      noise: { verdict: "noisy" as const, meaning: EVIL },
      next: [{ because: EVIL, command: EVIL }],
      subject: EVIL,
      name: EVIL,
      label: EVIL,
      shape: `${EVIL} 1`,
      types: EVIL,
      epilogue: EVIL,
      equation: EVIL,
      trials: decided,
      decisions: [{ name: EVIL, share: 0.5, trials: 18, values: [value, { ...value, value: `${EVIL}2` }] }],
      best,
    };
    const run = {
      id: EVIL,
      environment: 0,
      started: NOW,
      isImported: true,
      status: "done",
      seed: 1,
      strategy: EVIL,
      threads: 1,
      trials: decided,
      failed: 0,
      source: EVIL,
      found: { trial: 1, after: 2 },
      noise: "noisy" as const,
      beside: { verdict: "tie" as const, says: EVIL, isSure: true },
      shared: { count: 2, ratio: 1 },
      best: { id: EVIL, seconds: 1, interval: [1, 2] as const, decisions: rows },
    };
    page = reportPage({
      ...data,
      source: EVIL,
      filter: EVIL,
      compared: { source: EVIL, onlyHere: [EVIL], onlyThere: [EVIL] },
      subjects: [evil, { ...evil, best: undefined }],
      comparisons: [{ label: EVIL, dtype: EVIL, runs: [run, { ...run, best: undefined }] }],
    });
  });

  it("runs no script, whatever the names of workloads and machines and the text of logs", () => {
    const tags = [...page.matchAll(/<([a-zA-Z!/][^\s>]*)/g)].map(([, tag]) => tag?.toLowerCase());
    const allowed =
      "html head meta title style body header h1 h2 h3 h4 p nav ul li a main script span g section div table caption thead tbody tr th td strong small code figure figcaption details summary article dl dt dd svg defs clippath g path rect text line";
    const known = new Set(allowed.split(" ").flatMap((t) => [t, `/${t}`]));
    expect(tags.filter((tag) => tag !== undefined && !known.has(tag) && tag !== "!doctype")).toEqual([]);
    expect(page).toContain("&lt;script&gt;alert(&quot;x&quot;)");
    // Every attribute is quoted, and none of them is a handler.
    const opening = [...page.matchAll(/<[a-z][^>]*>/gi)].map(([tag]) => tag.replaceAll(/="[^"]*"/g, "="));
    expect(opening.filter((tag) => !/^<[\w-]+(\s+[\w:-]+=)*\s*\/?>$/.test(tag) || /\son\w/i.test(tag))).toEqual([]);
  });

  it("lets a browser run only its own script and styles", () => {
    const policy =
      /http-equiv="Content-Security-Policy" content="([^"]*)"/.exec(page)?.[1]?.replaceAll("&#39;", "'") ?? "";
    const hashOf = (text: string) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
    const allowed = new Map(policy.split("; ").map((rule) => [rule.split(" ")[0], rule.split(" ").slice(1)]));
    expect([...allowed.keys()].sort()).toEqual(["base-uri", "default-src", "form-action", "script-src", "style-src"]);
    expect(allowed.get("default-src")).toEqual(["'none'"]);
    const [script, ...more] = [...page.matchAll(/<script>([\s\S]*?)<\/script>/g)].map(([, text]) => text ?? "");
    expect([script, more]).toEqual([PAGE_SCRIPT, []]);
    expect(allowed.get("script-src")).toEqual([hashOf(PAGE_SCRIPT)]);
    const styles = new Set([...page.matchAll(/<style>([\s\S]*?)<\/style>/g)].map(([, text]) => hashOf(text ?? "")));
    expect(styles.size).toBe(2);
    expect([...styles].filter((hash) => !allowed.get("style-src")?.includes(hash))).toEqual([]);
    expect(page).not.toMatch(/\sstyle=/);
  });

  it("fetches nothing from a network", () => {
    const links = [...page.matchAll(/(?:href|src|url)\s*[=(]\s*["']?([^"')\s]+)/g)]
      .filter(([text]) => text !== "src=x")
      .map(([, link]) => link ?? "");
    expect(links.length).toBeGreaterThan(4);
    const files = [...page.matchAll(/<a download="[\w.]+" href="(data:[^"]*)"/g)].map(([, link]) => link);
    expect(files).toHaveLength(2);
    expect(links.filter((link) => !link.startsWith("#") && !files.includes(link))).toEqual([]);
    expect(page.replaceAll(/xmlns(:\w+)?="[^"]*"/g, "")).not.toMatch(/https?:/);
  });

  it("has one main heading, no level left out, and links that lead somewhere", () => {
    const levels = [...page.matchAll(/<h(\d)/g)].map(([, level]) => Number(level));
    expect(levels.filter((l) => l === 1)).toHaveLength(1);
    expect(levels.filter((l, i) => l > (levels[i - 1] ?? 0) + 1)).toEqual([]);
    const ids = new Set([...page.matchAll(/\sid="([^"]+)"/g)].map(([, id]) => id));
    expect([...page.matchAll(/href="#([^"]+)"/g)].filter(([, to]) => !ids.has(to))).toEqual([]);
  });

  it("captions every table and names every picture", () => {
    const tables = page.match(/<table[^>]*>\s*<caption>/g) ?? [];
    expect(tables).toHaveLength(page.match(/<table/g)?.length ?? -1);
    const pictures = page.match(/<svg[^>]*>/g) ?? [];
    expect(pictures.length).toBeGreaterThanOrEqual(5);
    expect(pictures.filter((p) => !p.includes('role="img"') || !p.includes("aria-label="))).toEqual([]);
  });

  it("draws charts in colours that the page defines for light and for dark", () => {
    const charts = (page.match(/<svg class="chart"[\s\S]*?<\/svg>/g) ?? []).join("");
    expect(charts).toContain('class="mark s');
    expect(charts).not.toMatch(/\s(fill|stroke|color)=/);
    const [light = "", dark = ""] = PAGE_STYLE.split("prefers-color-scheme:dark");
    for (const [, name] of PAGE_STYLE.matchAll(/var\((--[\w-]+)\)/g)) {
      if (name === "--series") continue;
      expect(light).toContain(`${name}:`);
      expect(dark).toContain(`${name}:`);
    }
    for (const [, series] of charts.matchAll(/class="\w+ (s\d+)/g))
      expect(PAGE_STYLE).toContain(`.${series}{--series:`);
  });

  it("has one colour and one mark for a data type, in every chart and table", () => {
    const types = ["u8s8", "f32", "bf16"] as const;
    const [subject] = data.subjects;
    const [roofline] = data.rooflines;
    if (!subject || !roofline) throw new Error("no subject");
    const points = types.flatMap((dtype) => roofline.points.map((p) => ({ ...p, dtype })));
    const page = reportPage({
      ...data,
      subjects: types.map((dtype) => ({ ...subject, dtype, types: dtype })),
      rooflines: [{ ...roofline, points }],
    });
    const series = types.map((t) => new RegExp(`aria-label="${t}"><path class="mark (s\\d)`).exec(page)?.[1]);
    expect(new Set(series).size).toBe(3);
    for (const [i, dtype] of types.entries()) {
      const own = new Set(
        [...page.matchAll(new RegExp(`aria-label="${dtype}"><path class="mark (s\\d)`, "g"))].map(([, s]) => s),
      );
      expect([...own]).toEqual([series[i]]);
      const article = page.split(`<article id="w${i}">`)[1]?.split("</article>")[0] ?? "";
      const marks = new Set([...article.matchAll(/class="(?:mark|interval|bar|line-fast) (s\d)/g)].map(([, s]) => s));
      expect([...marks]).toEqual([series[i]]);
    }
  });

  it("gives every target of a link a unique name", () => {
    const ids = [...page.matchAll(/\sid="([^"]+)"/g)].map(([, id]) => id);
    expect(new Set(ids).size).toBe(ids.length);
  });

  it("is drawn for a single trial, for failures alone, and without rates", async () => {
    const [subject] = data.subjects;
    const [roofline] = data.rooflines;
    if (!subject || !roofline) throw new Error("no subject");
    const [first, , , last] = subject.trials;
    const only = (...trials: readonly (TrialPoint | undefined)[]) => ({
      ...data,
      subjects: [{ ...subject, trials: trials.filter((t) => t !== undefined) }],
      rooflines: [{ ...roofline, peaks: [], points: roofline.points.slice(0, 1) }],
    });
    for (const few of [
      only(first),
      only(last),
      only(first, last),
      { ...only(first), rooflines: [{ ...roofline, bandwidths: [] }] },
    ]) {
      const page = reportPage(few);
      expect(page.replace(PAGE_SCRIPT, "")).not.toMatch(/NaN|Infinity|undefined/);
    }
  });
});

describe("markup", () => {
  it("escapes everything that is not already markup", () => {
    expect(String(html`<b title="${EVIL}">${["<", html`<i>${"&"}</i>`, undefined, 1]}</b>`)).toBe(
      `<b title="${escapeMarkup(EVIL)}">&lt;<i>&amp;</i>1</b>`,
    );
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), (text) => {
        const escaped = escapeMarkup(text);
        expect(escaped).not.toMatch(/[<>"']/);
        expect(escaped.replaceAll(/&(amp|lt|gt|quot|#39);/g, "")).not.toContain("&");
        // biome-ignore lint/suspicious/noControlCharactersInRegex: XML allows none of these.
        expect(escaped).not.toMatch(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/);
      }),
    );
  });

  it("for JUnit counts failures and skips", () => {
    const passed = { suite: "a", name: "fine", seconds: 1e-6, outcome: { kind: "passed" as const } };
    const bad = { ...passed, name: EVIL, outcome: { kind: "failed" as const, message: "two\nlines <" } };
    const out = { ...passed, suite: "b", outcome: { kind: "skipped" as const, message: "gone" } };
    expect(junit("t", [passed, bad, out])).toBe(
      [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<testsuites name="t" tests="3" failures="1" errors="0" skipped="1">',
        '  <testsuite name="a" tests="2" failures="1" errors="0" skipped="0">',
        '    <testcase classname="t.a" name="fine" time="0.000001000"/>',
        `    <testcase classname="t.a" name="${escapeMarkup(EVIL)}" time="0.000001000"><failure message="two lines &lt;"/></testcase>`,
        "  </testsuite>",
        '  <testsuite name="b" tests="1" failures="0" errors="0" skipped="1">',
        '    <testcase classname="t.b" name="fine" time="0.000001000"><skipped message="gone"/></testcase>',
        "  </testsuite>",
        "</testsuites>",
        "",
      ].join("\n"),
    );
  });

  it("of a mapping's drawing has styles that apply to nothing else", () => {
    const style = /<style>(.*)<\/style>/.exec(drawMappingSvg(MAPPING ?? fail()))?.[1] ?? "";
    const selectors = [...style.matchAll(/(?:^|[{}])([^{}]+)\{/g)].map(([, s]) => s ?? "");
    expect(selectors.length).toBeGreaterThan(20);
    expect(selectors.filter((s) => !s.startsWith(".automap-mapping ") && !s.startsWith("@media"))).toEqual([]);
  });
});

describe("automap report", () => {
  it("writes the page to the given file", async () => {
    const file = shop.path("report.html");
    const { code, out, err } = await commandLine(["report", "--db", FILE, "--op", "c2d", "-o", file]);
    expect({ code, out }).toEqual({ code: 0, out: "" });
    expect(err).toContain("written: ");
    expect(readFileSync(file, "utf8")).toMatch(/^<!doctype html>[\s\S]*<\/html>\n$/);
    const { out: page } = await commandLine(["report", "--db", FILE, "-o", "-"]);
    expect(page).toMatch(/^<!doctype html>/);
  });
});

describe("automap explain of a record", () => {
  it("shows the time of each level and of each part", async () => {
    const { code, out } = await commandLine(["explain", fastest.slice(0, 12), "--db", FILE, "--json"]);
    expect(code).toBe(0);
    const found: unknown = JSON.parse(out);
    expect(found).toMatchObject({
      id: fastest,
      microseconds: expect.closeTo(50),
      recordedPrediction: {
        ...predicted(55),
        seconds: 55e-6,
        uncorrectedSeconds: 55e-6,
      },
    });
    expect(found).toMatchObject({
      because: null,
      prediction: { levels: expect.arrayContaining([expect.objectContaining({ level: "registers" })]) },
    });
    const { out: text } = await commandLine(["explain", fastest.slice(0, 12), "--db", FILE]);
    expect(text).toContain("with the rates calibrated on 2026-11-21");
    expect(text).toMatch(/level +trips +inner +read +write +bound/);
    expect(text).toMatch(/issue +[\d.]+ us/);
    expect(text).toMatch(/measured is [\d.]+ times that/);
  });

  it("finds the best of an operator given by its words", async () => {
    const words = "explain conv2d --c 64 --k 64 --h 56 --w 56 --dtype u8s8 --candidate best --json --db".split(" ");
    const { code, out } = await commandLine([...words, FILE]);
    expect(code).toBe(0);
    expect(JSON.parse(out)).toMatchObject({ id: fastest });
  });

  it("refuses a database without a record, and a record that is not there", async () => {
    expect((await commandLine(["explain", "conv2d", "--db", FILE])).err).toContain("--db goes with the id of a record");
    expect((await commandLine(["explain", "00000000", "--db", FILE])).code).toBe(3);
    const none = await commandLine(["explain", "matmul", "--candidate", "best", "--db", FILE]);
    expect(none.code).toBe(3);
    expect(none.err).toContain("holds no kernel of this matmul that worked");
  });
});

function fail(): never {
  throw new Error("the table of instructions has changed");
}
