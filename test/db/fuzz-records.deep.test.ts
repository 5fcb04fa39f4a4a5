/**
 * @file Records changed at random, with ids that fit, the whole way: import, merge, show, explain, report, package, kernel, call.
 *
 * Each is refused with a reason, or used; nothing crashes, takes long or takes much memory. In full: AUTOMAP_SLOW=1, 20,000 records; AUTOMAP_SEED and
 * AUTOMAP_TEST_CASES make parts of them that run beside one another.
 */

import { afterAll, describe, expect, it } from "vitest";
import type { DesignCandidate, LaneCandidate } from "../../abstraction/candidate.ts";
import { defineComputation } from "../../abstraction/computation.ts";
import { UsageError } from "../../abstraction/error.ts";
import { pick, type Random, randomInteger, seededRandom } from "../../abstraction/random.ts";
import { isVisible } from "../../abstraction/text.ts";
import { csvOf, summarise } from "../../cli/db/records.ts";
import {
  beginRun,
  computationOf,
  type Database,
  endRun,
  exportLines,
  importLines,
  mergeDatabase,
  openDatabase,
  queryTrials,
  recordCalibration,
  recordTrial,
  showTrial,
  type TrialRecord,
  verifyDatabase,
} from "../../db/index.ts";
import { packageFiles } from "../../package/index.ts";
import { reportPage } from "../../report/page.ts";
import { PAGE_SCRIPT } from "../../report/page-shell.ts";
import { environmentOf } from "../../session/calibrate/environment.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { subjectOf } from "../../session/package/emit.ts";
import { checkFenced } from "../../session/package/imported.ts";
import { explainTrial } from "../../session/report/explain.ts";
import { gatherReport } from "../../session/report/report.ts";
import { measured, trial, workshop } from "../support/database.ts";
import { STEP_SCHEDULE } from "../support/drawn/steps.ts";
import { forgedLines, type Line, type Path, plant, recordsIn } from "../support/forge.ts";
import { compilerHere } from "../support/here.ts";
import { LANES, recordPlain } from "../support/packages.ts";
import { processorWatch } from "../support/processor-time.ts";
import { inFull } from "../support/slow.ts";
import { operation } from "../support/subjects.ts";

const shop = workshop();
afterAll(() => shop.remove());

const RECORDS = Number(process.env["AUTOMAP_TEST_CASES"] ?? inFull(20_000, 40));
/** Lines imported at once: each with all it refers to. */
const AT_ONCE = 100;
/** Kernels of what was taken that are built and run, fenced. */
const CALLED = inFull(100, 2);
/** Nothing made of one record takes longer: the largest honest layers take a tenth of it. */
const MOST_SECONDS = 10;
const MOST_BYTES_KEPT = 1.5 * 2 ** 30;

/** A design on lanes by its transform: a filter by SBM, and passes side by side. */
const ARRAY: DesignCandidate = {
  kind: "design",
  intrinsic: "avx512.fma.f32",
  schedule: {
    transform: { loops: ["p", "r"], allocation: [1, 1], schedule: [[0, 1]] },
    lanes: 16,
    tile: { p: 12 },
    beside: { p: 2 },
    inputs: "loaded",
    streaming: false,
    threads: 1,
  },
};

/** Steps of heat on a plane, four a pass. */
const HEAT = defineComputation({
  name: "heat",
  equation: "u[t,i,j] = 0.5*u[t-1,i,j] + 0.125*(u[t-1,i-1,j] + u[t-1,i+1,j] + u[t-1,i,j-1] + u[t-1,i,j+1])",
  extents: { t: 8, i: 20, j: 40 },
  tensors: { u: "f32" },
});
const HEAT_STEPS: LaneCandidate = {
  kind: "steps",
  intrinsic: "avx512.fma.f32",
  schedule: { ...STEP_SCHEDULE, lanes: 16, vectors: 2, depth: 4 },
};

/**
 * Lines of honest records of every kind: mappings in several types, with and without an epilogue, designs on lanes by name and by transform, a
 * stencil in time, failures, a run.
 */
async function honestLines(): Promise<Line[]> {
  const environment = environmentOf({ compiler: await compilerHere() });
  const file = shop.path("honest.db");
  recordPlain(file, operation("conv2d n=1 c=16 k=16 h=9 w=9", "u8s8"), environment);
  recordPlain(file, operation("conv2d n=1 c=16 k=16 h=5 w=5", "f32", { epilogue: "relu" }), environment);
  recordPlain(file, operation("matmul m=40 n=48 k=56"), environment);
  const db = openDatabase(file);
  const line = operation("conv1d-single l=20000 r=5");
  const conditions = { threads: 1, cache: "warm" as const };
  const workload = { computation: line };
  const run = beginRun(db, {
    workload,
    environment,
    seed: 1,
    options: { strategy: "genetic" },
    budget: { trials: 2 },
    started: 1,
    process: 1,
  });
  recordTrial(db, { run, workload, environment, trial: trial(measured(900), 1, LANES), conditions });
  recordTrial(db, {
    workload,
    environment,
    trial: trial({ status: "wrong", log: "off by one" }, 2, LANES),
    conditions,
  });
  recordTrial(db, { workload, environment, trial: trial(measured(800), 3, ARRAY), conditions });
  recordTrial(db, {
    workload: { computation: HEAT },
    environment,
    trial: trial(measured(700), 4, HEAT_STEPS),
    conditions,
  });
  recordCalibration(db, { environment, data: { machine: "a CPU", memory: { l1: { read: 1 } } }, at: 7 });
  endRun(db, run, { status: "done", ended: 9 });
  const lines = recordsIn(exportLines(db));
  db.close();
  return lines;
}

/** Places of a record, with what stands there. */
function placesIn(value: unknown, path: Path = []): { readonly path: Path; readonly value: unknown }[] {
  const here = path.length === 0 ? [] : [{ path, value }];
  if (value === null || typeof value !== "object") return here;
  return [
    ...here,
    ...Object.entries(value).flatMap(([key, inner]) =>
      placesIn(inner, [...path, Array.isArray(value) ? Number(key) : key]),
    ),
  ];
}

const STRANGE: readonly unknown[] = [
  null,
  true,
  "",
  "x",
  -1,
  0,
  1.5,
  2 ** 31,
  2 ** 53,
  1e308,
  [],
  {},
  [[]],
  "k/0",
  "k/8",
  "*/",
  "\u001b[2J",
  "=1",
  "__proto__",
  "x".repeat(5000),
];

/** A change of one place or two: what stands elsewhere in a record, something near, something strange, nothing. */
function change(line: Line, others: readonly Line[], random: Random): void {
  for (let n = randomInteger(random, 1, 2); n > 0; n--) {
    const places = placesIn(line).filter(({ path }) => !["kind", "id"].includes(String(path[0])));
    const { path, value } = pick(random, places);
    const how = random();
    const place = { path, isName: false };
    if (how < 0.3) plant(line, place, near(value, random));
    else if (how < 0.6) {
      const same = others
        .flatMap((o) => placesIn(o))
        .filter((p) => p.path.at(-1) === path.at(-1) || typeof p.value === typeof value);
      plant(line, place, structuredClone(pick(random, same).value));
    } else if (how < 0.8) plant(line, place, pick(random, STRANGE));
    else if (how < 0.9 && typeof path.at(-1) === "string")
      plant(line, { path, isName: true }, pick(random, ["k", "planted", "a b", "__proto__"]));
    else remove(line, path);
  }
}

function near(value: unknown, random: Random): unknown {
  if (typeof value === "number")
    return pick(random, [value + 1, value - 1, value * 2, value * 16, value * 1000, Math.floor(value / 2), -value]);
  if (typeof value === "string")
    return pick(random, [
      `${value}x`,
      value.slice(1),
      value.replace(/\d+/, (d) => String(Number(d) * 64)),
      value.toUpperCase(),
    ]);
  if (Array.isArray(value))
    return pick(random, [[...value].reverse(), [...value, ...value], value.slice(1), Array(3000).fill(value[0] ?? 0)]);
  if (value !== null && typeof value === "object")
    return Object.fromEntries(
      Object.entries(value)
        .reverse()
        .slice(randomInteger(random, 0, 1)),
    );
  return !value;
}

function remove(line: Line, path: Path): void {
  let holder: unknown = line;
  for (const key of path.slice(0, -1)) holder = (holder as Record<string, unknown>)[key];
  const last = path.at(-1) ?? "";
  if (Array.isArray(holder)) holder.splice(Number(last), 1);
  else delete (holder as Record<string, unknown>)[last];
}

/** What is made of a record, a step each. */
const USES: Readonly<Record<string, (record: TrialRecord, db: Database) => unknown>> = {
  show: (record) => csvOf([summarise(record)]),
  explain: (record, db) => explainTrial(db, record),
  kernel: (record) => kernelFor(computationOf(record.workload), record.candidate).source,
  package: (record) => packageFiles(subjectOf(record, { name: "probe" })),
};

describe("records changed at random", () => {
  it(`are refused with a reason or used in every command: ${RECORDS} of them`, async () => {
    const random = seededRandom(Number(process.env["AUTOMAP_SEED"] ?? 5));
    const honest = await honestLines();
    const changeable = honest.filter(({ kind }) => kind !== "header");
    const all = forgedLines(honest, () => undefined);
    const known = new Set(all);
    const wrong: string[] = [];
    const used = new Map<string, number>();
    const taken: TrialRecord[] = [];
    const before = process.memoryUsage().rss;

    for (let done = 0; done < RECORDS; done += AT_ONCE) {
      const lines = Array.from({ length: Math.min(AT_ONCE, RECORDS - done) }, () => {
        const of = pick(random, changeable);
        return forgedLines(honest, (line) => {
          if (line["id"] === of["id"]) change(line, honest, random);
        }).filter((line) => !known.has(line));
      }).flat();
      const db = openDatabase(":memory:");
      const file = shop.path(`batch ${done}.db`);
      const merged = openDatabase(file);
      timed("import", lines.length * 0.05, wrong, () =>
        importLines(db, [...all, ...lines]).rejected.forEach(({ reason }) => {
          if (!isVisible(reason) || reason.length > 500)
            wrong.push(`import says ${JSON.stringify(reason.slice(0, 300))}`);
        }),
      );
      importLines(merged, [...all, ...lines]);
      merged.close();
      const again = openDatabase(":memory:");
      mergeDatabase(again, file);
      expect([...exportLines(again)].sort()).toEqual([...exportLines(db)].sort());
      expect(verifyDatabase(again).problems).toEqual([]);
      again.close();

      for (const { id } of queryTrials(db)) {
        const record = showTrial(db, id);
        for (const [use, make] of Object.entries(USES))
          timed(
            `${use} of ${JSON.stringify({ candidate: record.candidate, extents: record.workload.extents }).slice(0, 600)}`,
            MOST_SECONDS,
            wrong,
            () => {
              try {
                make(record, db);
                used.set(use, (used.get(use) ?? 0) + 1);
              } catch (error) {
                if (!(error instanceof UsageError)) throw error;
              }
            },
          );
        taken.push(record);
      }
      const page = reportPage(gatherReport(db, {}, 1));
      if (/planted\(|<script/.test(page.replace(`<script>${PAGE_SCRIPT}`, ""))) wrong.push("the report obeys");
      db.close();
    }

    expect(wrong.slice(0, 10).join("\n\n")).toBe("");
    expect(process.memoryUsage().rss - before).toBeLessThan(MOST_BYTES_KEPT);
    for (const use of Object.keys(USES)) expect(used.get(use) ?? 0, use).toBeGreaterThan(RECORDS / 20);

    const compiler = await compilerHere();
    for (let n = 0; n < CALLED; n++) {
      const record = pick(random, taken);
      try {
        const { status } = await checkFenced(record, compiler);
        expect(["right", "wrong"], JSON.stringify(record.candidate)).toContain(status);
      } catch (error) {
        if (!(error instanceof UsageError)) throw error;
      }
    }
  });
});

function timed(what: string, most: number, wrong: string[], work: () => void): void {
  const seconds = processorWatch();
  try {
    work();
  } catch (error) {
    wrong.push(`${what}: ${error instanceof Error ? error.stack : String(error)}`);
  }
  if (seconds() > most) wrong.push(`${what}: ${seconds().toFixed(1)} s`);
}
