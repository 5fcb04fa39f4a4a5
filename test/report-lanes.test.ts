/**
 * @file How a report draws designs on lanes: a transform's first steps, the window of a step in time; and when trials
 * came.
 */

import { afterAll, describe, expect, it } from "vitest";
import type { Candidate, LaneTransform } from "../abstraction/candidate.ts";
import { defineComputation } from "../abstraction/computation.ts";
import { openDatabase, recordTrial, type Workload } from "../db/index.ts";
import { convergenceChart } from "../report/charts.ts";
import { reportPage } from "../report/page.ts";
import type { Subject } from "../report/report-data.ts";
import { gatherReport } from "../session/report.ts";
import { MACHINE, measured, trial, WARM, workloadNamed, workshop } from "./support/database.ts";

const shop = workshop();
afterAll(() => shop.remove());

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

/** The page of one trial, and what it is of. */
function reported(name: string, workload: Workload, candidate: Candidate): { subject: Subject; page: string } {
  const db = openDatabase(shop.path(`${name}.db`));
  recordTrial(db, {
    workload,
    environment: MACHINE,
    conditions: WARM,
    trial: trial(measured(10), undefined, candidate),
  });
  const data = gatherReport(db, {}, 1);
  db.close();
  const [subject] = data.subjects;
  if (!subject) throw new Error("no subject");
  return { subject, page: reportPage(data) };
}

/** The labels of the cells of each operand, step by step. */
const cellsOf = (page: string): string[] =>
  [...page.matchAll(/class="cell"[^>]*>([^<]*)</g)].map(([, label]) => label ?? "");

describe("a design given by its transform", () => {
  it("is drawn step by step: neighbouring elements move over lanes, sums stay", () => {
    const transform = { loops: ["q", "s"], allocation: [1, 0], schedule: [[0, 1]] };
    const { page, subject } = reported(
      "row",
      workloadNamed("conv2d", { c: 8, k: 8, h: 8, w: 8 }),
      byTransform(transform, { q: 4 }),
    );
    expect(subject.best?.drawing.kind).toBe("array");
    // Lanes hold in[q+s-1], w[s], out[q]: 4 of each at each of 3 steps.
    const row = (labels: readonly number[]): string[] => labels.map(String);
    const [input, filter, output] = [0, 1, 2].map((operand) => cellsOf(page).slice(12 * operand, 12 * operand + 12));
    expect(input).toEqual(row([-1, 0, 1, 2, 0, 1, 2, 3, 1, 2, 3, 4]));
    expect(filter).toEqual(row([0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]));
    expect(output).toEqual(row([0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3]));
    expect(page).not.toContain("drawn with");
  });

  it("is cut to its first lanes and steps, and the drawing says so", () => {
    const transform = {
      loops: ["q", "s", "c", "r"],
      allocation: [1, 0, 0, 0],
      schedule: [
        [0, 0, 1, 0],
        [0, 0, 0, 1],
        [0, 1, 0, 0],
      ],
    };
    const { page } = reported(
      "cut",
      workloadNamed("conv2d", { c: 64, k: 8, h: 56, w: 56 }),
      byTransform(transform, { q: 16 }),
    );
    expect(page).toContain("drawn with q 8 of 16, c 1 of 64");
    expect(cellsOf(page)).toHaveLength(3 * 8 * 9);
    const [, drawing = ""] = /<svg class="automap-array"([\s\S]*?)<\/svg>/.exec(page) ?? [];
    const height = Number(/ height="(\d+)"/.exec(drawing)?.[1]);
    const ends = [...drawing.matchAll(/<text class="cell" x="[^"]*" y="(\d+)"/g)].map(([, y]) => Number(y));
    // Below the last row is as much room as between panels.
    expect(height - Math.max(...ends)).toBe(37);
  });

  it("of a recurrence is drawn with the values each step reads from the step before", () => {
    const workload = computed("y[i,j] = 0.5*y[i-1,j] + x[i,j]", { i: 64, j: 64 });
    const { page } = reported(
      "recurrence",
      workload,
      byTransform({ loops: ["i", "j"], allocation: [0, 1], schedule: [[1, 0]] }),
    );
    expect(page).toContain("drawn with i 8 of 64, j 8 of 64");
  });

  it("of an operator without steps says why there is no drawing", () => {
    const workload = computed("y[i] = y[i-1] + x[i]", { i: 64 });
    const { page } = reported("prefix", workload, byTransform({ loops: ["i"], allocation: [1], schedule: [[0]] }));
    expect(page).toContain("There is no drawing: a prefix takes no steps of time");
  });
});

describe("a stencil in time", () => {
  it("is drawn as the window that one step sweeps over", () => {
    const workload = computed("u[t,i] = 0.25*u[t-1,i-1] + 0.5*u[t-1,i] + 0.25*u[t-1,i+1]", { t: 16, i: 1000 });
    const { subject } = reported("steps", workload, {
      kind: "steps",
      intrinsic: "avx512.fma.f32",
      schedule: { lanes: 16, rows: 1, vectors: 2, streaming: false, strip: 0, depth: 1, threads: 1 },
    });
    expect(subject.best?.drawing).toEqual({ kind: "lanes", design: { dataflow: "FBS-load", lanes: 16, columns: 3 } });
  });
});

describe("time over seconds", () => {
  it("begins just before the first trial, even if the search prepared for long", () => {
    const { subject } = reported(
      "after",
      workloadNamed("matmul", { m: 64, n: 64, k: 64 }),
      byTransform({ loops: ["n"], allocation: [1], schedule: [[0]] }),
    );
    const [first] = subject.trials;
    if (!first) throw new Error("no trial");
    const at = (seconds: readonly number[]): string =>
      convergenceChart({ ...subject, trials: seconds.map((after) => ({ ...first, after })) }, 0, "seconds").text;
    const ticks = (text: string): number[] =>
      [...text.matchAll(/y="225" text-anchor="middle">([\d.]+)</g)].map(([, tick]) => Number(tick));
    expect(Math.min(...ticks(at([6, 6.5, 7])))).toBeGreaterThan(5);
    expect(Math.min(...ticks(at([1, 6.5, 7])))).toBe(0);
  });
});
