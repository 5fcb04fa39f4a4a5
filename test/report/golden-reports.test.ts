/**
 * @file Pages of reports and the data behind them, of made databases: test/golden/reports. Rules of every page are in report.test.ts.
 *
 *     vitest run test/report/golden-reports.test.ts --update       after a change that is meant
 */

import { afterAll, expect, it } from "vitest";
import type { Candidate, LaneTransform } from "../../abstraction/candidate.ts";
import { computationKey, defineComputation } from "../../abstraction/computation.ts";
import { type Database, openDatabase, recordTrial, type Workload } from "../../db/index.ts";
import { tasksOf } from "../../network/tasks.ts";
import { trialsCsv } from "../../report/downloads.ts";
import { networkPage } from "../../report/network-page.ts";
import { reportPage } from "../../report/page.ts";
import type { ReportData } from "../../report/report-data.ts";
import { type Choice, openGraph } from "../../session/network/network.ts";
import { gatherNetworkReport } from "../../session/report/network-report.ts";
import { gatherReport } from "../../session/report/report.ts";
import { VERSION } from "../../session/version.ts";
import { candidate, MACHINE, measured, newTrial, trial, WARM, workloadNamed, workshop } from "../support/database.ts";
import { NETWORK_REPORT } from "../support/network-report.ts";
import { onnx } from "../support/networks.ts";
import { dataText, pageText } from "../support/page-text.ts";
import { BEGAN, recordSearches } from "../support/searches.ts";

const shop = workshop();
afterAll(() => shop.remove());

/** A database that holds what some work records. */
function recorded<T>(name: string, work: (db: Database) => T): T {
  const db = openDatabase(shop.path(`${name}.db`));
  try {
    return work(db);
  } finally {
    for (const table of ["environments", "runs", "trials"])
      ids.push(...db.sqlite.prepare<[], string>(`SELECT id FROM ${table}`).pluck().all());
    db.close();
  }
}

/** Ids of everything that databases of this file hold: those of runs and of their trials are drawn, those of machines name a version. */
const ids: string[] = [];

/** A text without what differs from one process or version to the next: ids, by number, and folders. */
function settled(text: string): string {
  const seen: string[] = [];
  const known = new RegExp(ids.flatMap((id) => [id, id.slice(0, 12)]).join("|") || "$^", "g");
  const numbered = text.replaceAll(known, (id) => {
    const place = seen.indexOf(id.slice(0, 12));
    return `id ${place < 0 ? seen.push(id.slice(0, 12)) : place + 1}`;
  });
  return `${numbered.replaceAll(shop.path(""), "").replaceAll(VERSION, "VERSION")}\n`;
}

const golden = (name: string): string => `../golden/reports/${name}.txt`;

async function expectPage(name: string, data: ReportData): Promise<void> {
  await expect(settled(pageText(reportPage(data)))).toMatchFileSnapshot(golden(`${name}.page`));
}

it("two searches of a convolution, a window on lanes, a grid of a GPU with its clock", async () => {
  recordSearches(shop.path("searches.db"));
  const data = recorded("searches", (db) => gatherReport(db, {}, BEGAN));
  const few = data.subjects.map((subject) => ({ ...subject, trials: subject.trials.slice(0, 6) }));
  const runs = data.comparisons.map((one) => ({
    ...one,
    runs: one.runs.map((run) => ({ ...run, trials: run.trials.slice(0, 6) })),
  }));
  await expectPage("searches", { ...data, subjects: few, comparisons: runs });
  // Trials are in the table, mappings in the page.
  const shown = data.subjects.map(({ trials: _, best, ...subject }) => ({
    ...subject,
    best: { ...best, drawing: undefined },
  }));
  const compared = data.comparisons.map((one) => ({ ...one, runs: one.runs.map(({ trials: _, ...run }) => run) }));
  await expect(settled(dataText({ ...data, subjects: shown, comparisons: compared }))).toMatchFileSnapshot(
    golden("searches.data"),
  );
  await expect(settled(trialsCsv(data).replaceAll("\r", ""))).toMatchFileSnapshot(golden("searches.trials"));
});

function byTransform(transform: LaneTransform, tile: Readonly<Record<string, number>> = {}): Candidate {
  const schedule = { transform, tile, beside: {}, lanes: 16, inputs: "passed", streaming: false, threads: 1 } as const;
  return { kind: "design", intrinsic: "avx512.fma.f32", schedule };
}

const computed = (equation: string, extents: Readonly<Record<string, number>>): Workload => ({
  computation: defineComputation({
    equation,
    extents,
    tensors: Object.fromEntries([...new Set(equation.match(/[a-z](?=\[)/g))].map((name) => [name, "f32"] as const)),
  }),
  parameters: {},
});

const LANES: readonly (readonly [Workload, Candidate])[] = [
  [
    workloadNamed("conv2d", { c: 8, k: 8, h: 8, w: 8 }),
    byTransform({ loops: ["q", "s"], allocation: [1, 0], schedule: [[0, 1]] }, { q: 4 }),
  ],
  [
    workloadNamed("conv2d", { c: 64, k: 8, h: 56, w: 56 }),
    byTransform(
      {
        loops: ["q", "s", "c", "r"],
        allocation: [1, 0, 0, 0],
        schedule: [
          [0, 0, 1, 0],
          [0, 0, 0, 1],
          [0, 1, 0, 0],
        ],
      },
      { q: 16 },
    ),
  ],
  [
    computed("y[i,j] = 0.5*y[i-1,j] + x[i,j]", { i: 64, j: 64 }),
    byTransform({ loops: ["i", "j"], allocation: [0, 1], schedule: [[1, 0]] }),
  ],
  [computed("y[i] = y[i-1] + x[i]", { i: 64 }), byTransform({ loops: ["i"], allocation: [1], schedule: [[0]] })],
  [
    computed("u[t,i] = 0.25*u[t-1,i-1] + 0.5*u[t-1,i] + 0.25*u[t-1,i+1]", { t: 16, i: 1000 }),
    {
      kind: "steps",
      intrinsic: "avx512.fma.f32",
      schedule: { lanes: 16, rows: 1, vectors: 2, streaming: false, strip: 0, depth: 1, threads: 1 },
    },
  ],
];

it("designs on lanes, each drawn by its first lanes and steps", async () => {
  const data = recorded("lanes", (db) => {
    for (const [i, [workload, candidate]] of LANES.entries())
      recordTrial(db, {
        workload,
        environment: MACHINE,
        conditions: WARM,
        trial: trial(measured(10 + i), i, candidate),
      });
    return gatherReport(db, {}, BEGAN);
  });
  await expectPage("lanes", data);
});

it("failures, an imported claim of throttling, one trial alone, and none", async () => {
  const data = recorded("few", (db) => {
    recordTrial(db, newTrial(50, { conditions: { ...WARM, load: 0.3 } }));
    recordTrial(db, newTrial(1, { trial: trial({ status: "crashed", log: "signal 11\nmore" }, 2, candidate(2)) }));
    return gatherReport(db, { operator: "conv2d", dtype: "u8s8" }, BEGAN);
  });
  await expectPage("few", data);
  await expectPage("none", { ...data, subjects: [], rooflines: [], accuracy: [], comparisons: [] });
});

it("a network: its page from data, and its data from a database", async () => {
  await expect(settled(pageText(networkPage(NETWORK_REPORT)))).toMatchFileSnapshot(golden("network.page"));
  const graph = onnx(`
    hidden = MaxPool<kernel_shape=[2,2]>(Relu(Conv(x[1,3,6,6], [8,3,3,3]{drawn})))
    first = MatMul(Flatten(hidden), [72,16]{drawn})
    return Softmax(MatMul(first, [16,16]{drawn})), ReduceProd<keepdims=0>(first)
  `);
  const opened = openGraph(graph);
  const tasks = tasksOf(opened.program);
  const data = recorded("network", (db) => {
    const choices = tasks.map((task, i): Choice => {
      if (task.multiplyAdds === 0) return { kind: "loops", because: "it sums no products" };
      if (i % 2 === 1) return { kind: "loops", because: "nothing maps" };
      const workload = { computation: task.computation };
      const [, id = ""] = [30, 20, 25].map((microseconds, block) =>
        recordTrial(db, {
          ...newTrial(1, { workload }),
          trial: trial(measured(microseconds), block, candidate(block + 1)),
        }),
      );
      const kernel = { provenance: [] } as unknown as Extract<Choice, { kind: "record" }>["kernel"]; // it is not looked at
      return {
        kind: "record",
        family: "mapping",
        kernel,
        id: id.slice(0, 12),
        seconds: 20e-6,
        cache: "warm",
        place: "avx512.vpdpbusd k <- c",
      };
    });
    expect(new Set(tasks.map(({ computation }) => computationKey(computation))).size).toBe(tasks.length);
    return gatherNetworkReport(opened, new Map(tasks.map((task, i) => [task, choices[i] as Choice])), {
      db,
      environment: MACHINE,
      threads: 1,
      onGpu: false,
      model: "drawn.onnx",
      now: BEGAN,
    });
  });
  // Estimates are of this machine.
  const told = { ...data, tasks: data.tasks.map((row) => (row.time === "estimated" ? { ...row, seconds: 1 } : row)) };
  await expect(settled(dataText(told))).toMatchFileSnapshot(golden("network.data"));
});
