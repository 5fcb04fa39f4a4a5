/** @file Labels tell workloads apart wherever they are listed, and filters select them by each difference. */

import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { defineComputation } from "../abstraction/computation.ts";
import {
  beginRun,
  best,
  endRun,
  exportLines,
  importLines,
  labelOf,
  openDatabase,
  queryTrials,
  recordTrial,
  type TrialFilter,
  verifyDatabase,
  type Workload,
} from "../db/index.ts";
import { commandLine } from "./support/command-line.ts";
import {
  CONV,
  candidate,
  MACHINE,
  measured,
  newTrial,
  trial,
  VNNI,
  workloadNamed,
  workshop,
} from "./support/database.ts";

const shop = workshop();
const FILE = shop.path("automap.db");
const SLOWER = shop.path("slower.db");
afterAll(() => shop.remove());

const SHAPE = { c: 64, k: 64, h: 56, w: 56 };
const bare = (equation: string, epilogue?: string): Workload => ({
  computation: defineComputation({
    equation,
    ...(epilogue === undefined ? {} : { epilogue }),
    extents: { m: 64, n: 32, k: 16 },
    tensors: { a: "u8", b: "s8" },
  }),
});

/** By a word for each. All ran once; those before the last two on one thread. */
const WORKLOADS: Readonly<Record<string, Workload>> = {
  plain: CONV,
  relu: workloadNamed("conv2d", SHAPE, "u8s8", { epilogue: "relu" }),
  requantized: workloadNamed("conv2d", SHAPE, "u8s8", { epilogue: "requantize" }),
  last: workloadNamed("conv2d", SHAPE, "u8s8", { layouts: "NHWC" }),
  weights: workloadNamed("conv2d", SHAPE, "u8s8", { layouts: { w: "KRSC" } }),
  both: workloadNamed("conv2d", SHAPE, "u8s8", { layouts: "NHWC", epilogue: "requantize" }),
  unpadded: workloadNamed("conv2d", { ...SHAPE, pad: 0 }, "u8s8"),
  product: bare("c[m,n] += s32(a[m,k]) * s32(b[k,n])"),
  transposed: bare("c[m,n] += s32(a[k,m]) * s32(b[k,n])"),
  clamped: bare("c[m,n] += s32(a[m,k]) * s32(b[k,n])", "res[m,n] = min(c[m,n], 6)"),
  named: { ...workloadNamed("matmul", { m: 8 }), name: "model/fc1" },
  unnamed: workloadNamed("matmul", { m: 8 }),
};
const words = Object.keys(WORKLOADS);
/** The word of a trial, by its time. */
const wordOf = ({ measurement }: { measurement: { status: string; median?: number } }): string =>
  words[Math.round((measurement.median ?? 0) * 1e5) - 1] ?? "";
const RUN = { environment: MACHINE, seed: 1, options: {}, budget: {}, started: 5 };
let run = "";

beforeAll(() => {
  for (const [file, factor] of [
    [FILE, 10],
    [SLOWER, 30],
  ] as const) {
    const db = openDatabase(file);
    run = beginRun(db, { ...RUN, workload: CONV });
    for (const [i, workload] of Object.values(WORKLOADS).entries()) {
      const threads = i < words.length - 2 ? 1 : 2;
      recordTrial(db, {
        ...newTrial(1, { workload, conditions: { threads, cache: "warm" } }),
        trial: trial(measured(factor * (i + 1)), 9, candidate(1, VNNI?.name, threads)),
        ...(workload === CONV ? { run } : {}),
      });
    }
    endRun(db, run, { status: "done", ended: 9 });
    db.close();
  }
});

const LABELS = [
  "conv2d c 64 h 56 w 56 k 64 r 3 s 3 pad 1, u8s8->s32",
  "conv2d c 64 h 56 w 56 k 64 r 3 s 3 pad 1, u8s8->s32, relu",
  "conv2d c 64 h 56 w 56 k 64 r 3 s 3 pad 1, u8s8->u8, requantize",
  "conv2d c 64 h 56 w 56 k 64 r 3 s 3 pad 1, u8s8->s32, NHWC",
  "conv2d c 64 h 56 w 56 k 64 r 3 s 3 pad 1, u8s8->s32, w=KRSC",
  "conv2d c 64 h 56 w 56 k 64 r 3 s 3 pad 1, u8s8->u8, NHWC, requantize",
  "conv2d c 64 h 56 w 56 k 64 r 3 s 3 pad 0, u8s8->s32",
  "c[m,n] += s32(a[m,k]) * s32(b[k,n]), m 64 n 32 k 16, u8s8->s32",
  "c[m,n] += s32(a[k,m]) * s32(b[k,n]), m 64 n 32 k 16, u8s8->s32",
  "c[m,n] += s32(a[m,k]) * s32(b[k,n]), m 64 n 32 k 16, u8s8->s32, res[m,n] = min(c[m,n], 6)",
  "model/fc1: matmul m 8 n 1024 k 1024, f32->f32",
];

describe("workloads that differ in their labels are told apart", () => {
  it("by automap db best, as a table and as a document", async () => {
    const { out } = await commandLine(["db", "best", "--trust", "any", "--db", FILE]);
    expect(out.split("\n").map((line) => line.slice(14).replace(/ +(native|target) .*/, ""))).toMatchInlineSnapshot(`
      [
        "name       workload                             shape                                    types      layout  epilogue",
        "           conv2d                               c 64  h 56  w 56  k 64  r 3  s 3  pad 1  u8s8->s32",
        "           conv2d                               c 64  h 56  w 56  k 64  r 3  s 3  pad 1  u8s8->s32          relu",
        "           conv2d                               c 64  h 56  w 56  k 64  r 3  s 3  pad 1  u8s8->u8           requantize",
        "           conv2d                               c 64  h 56  w 56  k 64  r 3  s 3  pad 1  u8s8->s32  NHWC",
        "           conv2d                               c 64  h 56  w 56  k 64  r 3  s 3  pad 1  u8s8->s32  w=KRSC",
        "           conv2d                               c 64  h 56  w 56  k 64  r 3  s 3  pad 1  u8s8->u8   NHWC    requantize",
        "           conv2d                               c 64  h 56  w 56  k 64  r 3  s 3  pad 0  u8s8->s32",
        "           c[m,n] += s32(a[m,k]) * s32(b[k,n])  m 64  n 32  k 16                         u8s8->s32",
        "           c[m,n] += s32(a[k,m]) * s32(b[k,n])  m 64  n 32  k 16                         u8s8->s32",
        "           c[m,n] += s32(a[m,k]) * s32(b[k,n])  m 64  n 32  k 16                         u8s8->s32          res[m,n] = min(c[m,n], 6)",
        "model/fc1  matmul                               m 8  n 1024  k 1024                      f32->f32",
        "",
      ]
    `);
    const document = JSON.parse((await commandLine(["db", "best", "--trust", "any", "--db", FILE, "--json"])).out);
    expect(document.trials.map((t: { workload: string }) => t.workload)).toEqual(LABELS);
  });

  it("by automap check and its JUnit", async () => {
    const xml = shop.path("check.xml");
    const line = ["check", "--baseline", FILE, "--db", SLOWER, "--junit", xml];
    const { out, code } = await commandLine(line);
    expect(code).toBe(5);
    const found = (text: string, pattern: RegExp): string[] =>
      [...text.matchAll(pattern)].map(([, name = ""]) => name.replaceAll("&gt;", ">"));
    const expected = LABELS.map(
      (label) => `${label}, ${label.startsWith("model") ? "2 threads" : "1 thread"}, Testium 9000`,
    );
    expect(found(out, /REGRESSION {2}(.*?) {2,}/g).sort()).toEqual(expected.sort());
    expect(found(readFileSync(xml, "utf8"), /<testcase [^>]*? name="(.*?)"/g).sort()).toEqual(expected);
  });

  it("by the report", async () => {
    const page = shop.path("report.html");
    expect((await commandLine(["report", "--db", FILE, "-o", page])).code).toBe(0);
    const headings = [...readFileSync(page, "utf8").matchAll(/<h3>(?:<svg.*?<\/svg>)?(.*?)<\/h3>/g)].map(
      ([, text]) => text,
    );
    expect(new Set(headings).size).toBe(LABELS.length);
    expect(headings).toContain(
      "conv2d <small>c 64  h 56  w 56  k 64  r 3  s 3  pad 1, u8s8-&gt;u8, NHWC, requantize, 1 thread</small>",
    );
    expect(headings).toContain("model/fc1: matmul <small>m 8  n 1024  k 1024, f32-&gt;f32, 2 threads</small>");
  });

  it("by automap explain, db show, db compare and replay", async () => {
    const db = openDatabase(FILE, { readonly: true });
    const [relu, plain] = ["relu", "none"].map((epilogue) => best(db, { operator: "conv2d", epilogue })[0]?.id ?? "");
    db.close();
    for (const line of [`explain ${relu} --db`, `db show ${relu} --db`])
      expect((await commandLine([...line.split(" "), FILE])).out).toContain(LABELS[1]);
    expect((await commandLine(["db", "compare", String(relu), String(plain), "--db", FILE])).err).toContain(
      `is ${LABELS[1]}; ${plain?.slice(0, 12)} is ${LABELS[0]}`,
    );
    expect((await commandLine(["replay", "--db", FILE])).out).toContain(
      "conv2d    c 64  h 56  w 56  k 64  r 3  s 3  pad 1",
    );
  });
});

describe("workloads are selected", () => {
  const conv = ["plain", "relu", "requantized", "last", "weights", "both", "unpadded"];
  it.each<[string, TrialFilter, string[]]>([
    ["--epilogue relu", { epilogue: "relu" }, ["relu"]],
    ["--epilogue requantize --layout NHWC", { epilogue: "requantize", layout: "NHWC" }, ["both"]],
    ["--epilogue none --op conv2d", { epilogue: "none", operator: "conv2d" }, ["plain", "last", "weights", "unpadded"]],
    ['--epilogue "res[m,n]=min(c[m,n],6)"', { epilogue: "res[m,n]=min(c[m,n],6)" }, ["clamped"]],
    ["--layout NHWC", { layout: "NHWC" }, ["last", "both"]],
    ["--layout NCHW", { layout: "NCHW" }, ["plain", "relu", "requantized", "unpadded"]],
    ["--layout w=KRSC", { layout: "w=KRSC" }, ["weights"]],
    ["--layout in=NHWC,w=KCRS", { layout: "in=NHWC,w=KCRS" }, ["last", "both"]],
    ["--layout a=MK --dtype u8s8", { layout: "a=MK", dtype: "u8s8" }, ["product", "clamped"]],
    ["--dtype u8s8", { dtype: "u8s8" }, words.slice(0, -2)],
    ["--dtype u8s8->u8", { dtype: "u8s8->u8" }, ["requantized", "both"]],
    ["--dtype u8s8->s32 --op conv2d", { dtype: "u8s8->s32", operator: "conv2d" }, conv],
    ["--threads 2", { threads: 2 }, ["named", "unnamed"]],
    ["--threads 1 --epilogue relu", { threads: 1, epilogue: "relu" }, ["relu"]],
    ["--threads 7", { threads: 7 }, []],
    ["--name model/fc1", { name: "model/fc1" }, ["named", "unnamed"]],
  ])("by %s, on the command line and in TypeScript", async (line, filter, expected) => {
    const options = /"/.test(line) ? line.split(/ (?=")/).map((w) => w.replaceAll('"', "")) : line.split(" ");
    const db = openDatabase(FILE, { readonly: true });
    try {
      expect(queryTrials(db, filter).map(wordOf)).toEqual(expected);
      expect(queryTrials(db, { ...filter, limit: 2 }).map(wordOf)).toEqual(expected.slice(0, 2));
    } finally {
      db.close();
    }
    const { out, code } = await commandLine(["db", "query", ...options, "--json", "--db", FILE]);
    expect(code).toBe(0);
    const trials = (JSON.parse(out) as { trials: { microseconds: number }[] }).trials;
    expect(trials.map((t) => words[Math.round(t.microseconds / 10) - 1])).toEqual(expected);
  });

  it("by the run that measured them", async () => {
    const db = openDatabase(FILE, { readonly: true });
    expect(queryTrials(db, { run }).map(wordOf)).toEqual(["plain"]);
    expect(queryTrials(db, { run: "0000" })).toEqual([]);
    db.close();
    const { out } = await commandLine(["db", "query", "--run", run.slice(0, 8), "--json", "--db", FILE]);
    expect(JSON.parse(out).trials).toHaveLength(1);
  });

  it.each([
    ["--epilogue rleu", 'unknown epilogue "rleu"\n  did you mean "relu"?'],
    ["--epilogue a=", 'expected "[" after the target "a"'],
    ["--layout nhwc", '--layout: "nhwc" is no layout'],
    ["--layout in=NHWC,NHWC", "is no layout"],
    ["--threads 0", "--threads must be a positive integer"],
    ["--run 00000000", "holds no run 00000000"],
    ["--name model/fc2", 'nothing was tuned under the name "model/fc2"\n  did you mean "model/fc1"?'],
  ])("not by %s, with the reason", async (line, message) => {
    const { err, code } = await commandLine(["db", "query", ...line.split(" "), "--db", FILE]);
    expect(code).toBe(2);
    expect(err).toContain(message);
  });
});

describe("a name", () => {
  const named = { ...CONV, name: "resnet18/layer1.0" };
  const inMemory = (...trials: readonly Workload[]) => {
    const db = openDatabase(":memory:");
    for (const [i, workload] of trials.entries())
      recordTrial(db, newTrial(10 + i, { workload, trial: trial(measured(10 + i), i) }));
    return db;
  };

  it("changes no id where there is none, so that older files and exports stay unchanged", () => {
    const db = inMemory(CONV);
    const lines = [...exportLines(db)];
    expect(lines.join("\n")).not.toContain('"name"');
    // As in the file that was released with schema 1.
    expect(queryTrials(db)[0]?.workload.id).toBe("53f6dc93df7479785e12b064158b51ba");
  });

  it("is exported, imported and merged as a record of its own of the same computation", () => {
    const db = inMemory(named, CONV);
    const other = inMemory();
    expect(importLines(other, exportLines(db))).toMatchObject({ added: { workloads: 2, trials: 2 }, rejected: [] });
    expect(verifyDatabase(other).problems).toEqual([]);
    // Both are one computation, which has one best; whatever record it comes from, it is called by the name.
    expect(best(other, {}, { imported: true }).map((t) => labelOf(t.workload))).toEqual([
      `resnet18/layer1.0: ${LABELS[0]}`,
    ]);
    expect(new Set(queryTrials(other).map((t) => labelOf(t.workload)))).toEqual(
      new Set([`resnet18/layer1.0: ${LABELS[0]}`]),
    );
  });

  it.each(["", "two words", "-o", "a\u001b[31m", "x".repeat(81), "naïve"])("is refused when it is %j", (name) => {
    const db = openDatabase(":memory:");
    expect(() => recordTrial(db, newTrial(1, { workload: { ...CONV, name } }))).toThrow(
      /a workload that cannot be recorded/,
    );
    const lines = [...exportLines(inMemory(named))].map((line) =>
      line.replace('"resnet18/layer1.0"', JSON.stringify(name)),
    );
    expect(importLines(openDatabase(":memory:"), lines).rejected[0]?.reason).toMatch(/its field name/);
  });
});
