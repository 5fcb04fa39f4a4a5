/** @file Formats records as table rows, as a JSON document, or as comma-separated values. */

import { z } from "zod";
import type { Extents } from "../../abstraction/affine.ts";
import { present, unique } from "../../abstraction/collections.ts";
import type { Computation } from "../../abstraction/computation.ts";
import {
  best,
  type Database,
  inputTypes,
  labelOf,
  shapeOf,
  shortId,
  type TrialRecord,
  type WorkloadRecord,
  wordsOf,
} from "../../db/index.ts";
import { parseDataTypes, printDataTypes } from "../../operators/data-types.ts";
import { csvCell } from "../../report/csv.ts";
import { printTime, type Rows } from "../../report/text.ts";
import { counts, integer, number, partOf, say, text } from "../output.ts";
import { printFitted } from "../terminal.ts";

const id = text.describe("hash of its facts: 32 hexadecimal digits");
export const intervalSchema = z.tuple([number, number]).describe("95 % within, microseconds");

/** A trial as it appears in documents and tables. */
export const summarySchema = z.strictObject({
  id,
  run: id.nullable(),
  workload: text.describe("all that makes the workload another than any other, in one line"),
  name: text.nullable().describe("the user's own for it"),
  operator: text,
  shape: counts.describe("extents of axes and values of parameters"),
  dtype: text.describe("as --dtype reads it"),
  types: text.describe("of the inputs and of what is stored"),
  layout: text.nullable(),
  epilogue: text.nullable(),
  threads: integer,
  cache: text.describe("warm: the call before has just used the data"),
  target: text,
  provenance: z.enum(["here", "imported"]),
  intrinsic: text,
  status: text.describe("ok, or how it failed"),
  microseconds: number.nullable().describe("median of a call; null when it failed"),
  interval: intervalSchema.nullable(),
  predictedMicroseconds: number.nullable().describe("null where the model could not say"),
  at: text.describe("when it was measured, ISO 8601"),
});
export type Summary = z.infer<typeof summarySchema>;

/** A field in which the record's world differs from this one. */
export const differenceSchema = z.strictObject({
  field: text,
  recorded: text.optional(),
  here: text.optional(),
});

export function summarise(trial: TrialRecord): Summary {
  const { id, run, workload, environment, provenance, conditions, intrinsic, measurement, prediction, at } = trial;
  const { types, layout, epilogue } = wordsOf(workload);
  return {
    id,
    run: run ?? null,
    workload: labelOf(workload),
    name: workload.name ?? null,
    operator: workload.operator,
    shape: shapeOf(workload),
    dtype: typesOf(trial),
    types,
    layout: layout || null,
    epilogue: epilogue || null,
    threads: conditions.threads,
    cache: conditions.cache,
    target: environment.target,
    provenance,
    intrinsic,
    status: measurement.status,
    microseconds: measurement.status === "ok" ? microseconds(measurement.median) : null,
    interval: measurement.status === "ok" ? intervalOf(measurement.interval) : null,
    predictedMicroseconds: prediction === undefined ? null : microseconds(prediction.seconds),
    at: new Date(at).toISOString(),
  };
}

/** Types in the form that `--dtype` reads. The output's type is written only when it is not the default. */
export function typesOf({ workload }: TrialRecord): string {
  return printDataTypes(parseDataTypes(workload.dtype, workload.sum));
}

/** Hint where there is no record of a computation: the other types of inputs that there are records of it in, of the same extents. */
export function otherTypes(db: Database, computation: Computation): string | undefined {
  const extents = Object.fromEntries(computation.axes.map(({ name, extent }) => [name, { min: extent, max: extent }]));
  const held = best(db, { operator: computation.name, extents });
  const others = held.filter(({ workload }) => workload.dtype !== inputTypes(computation));
  const words = unique(others.map(typesOf))
    .sort()
    .map((types) => `--dtype ${types}`);
  return words.length === 0 ? undefined : `there are records of it with ${words.join(", ")}`;
}

/** Microseconds to the picosecond; lower digits are conversion noise. */
export function microseconds(seconds: number): number {
  return Number((seconds * 1e6).toFixed(6));
}

export function intervalOf([low, high]: readonly [number, number]): [number, number] {
  return [microseconds(low), microseconds(high)];
}

/** Facts of a trial that a document has besides its summary. */
export const detailsShape = {
  workload: partOf<TrialRecord["workload"]>("the computation: equation, extents, tensors"),
  environment: partOf<TrialRecord["environment"]>("the machine, its compiler, its driver"),
  candidate: partOf<TrialRecord["candidate"]>("instruction, matching and schedule: docs/schedule.md"),
  declaration: text.optional().describe("hash of the instruction's declaration"),
  measurement: partOf<TrialRecord["measurement"]>("every sample, seconds"),
  prediction: partOf<NonNullable<TrialRecord["prediction"]>>("of the model, level by level").optional(),
  conditions: partOf<TrialRecord["conditions"]>("threads, cache, processors, clock"),
  finals: partOf<NonNullable<TrialRecord["finals"]>>("of a winner measured in turns with others").nullable(),
};

export function details({
  run,
  workload,
  environment,
  candidate,
  declaration,
  measurement,
  prediction,
  conditions,
  finals,
}: TrialRecord) {
  const facts = { workload, environment, candidate, declaration, measurement, prediction, conditions };
  return { run: run ?? null, ...facts, finals: finals ?? null };
}

/** Columns of comma-separated values, before and after those of the shape. */
const CSV = [
  ["id", "run", "name", "workload", "operator"],
  ["dtype", "types", "layout", "epilogue", "threads", "cache", "target", "provenance", "intrinsic", "status"],
] as const satisfies (keyof Summary)[][];

/** One line a trial. Every axis and parameter that any trial has gets a column, and so does each end of the interval. */
export function csvOf(trials: readonly Summary[]): string {
  const shape = unique(trials.flatMap((trial) => Object.keys(trial.shape)));
  const [before, after] = CSV;
  const head = [...before, ...shape, ...after, "microseconds", "low", "high", "predictedMicroseconds", "at"];
  const rows = trials.map((trial) => [
    ...before.map((column) => trial[column]),
    ...shape.map((axis) => trial.shape[axis] ?? null),
    ...after.map((column) => trial[column]),
    trial.microseconds,
    ...(trial.interval ?? [null, null]),
    trial.predictedMicroseconds,
    trial.at,
  ]);
  return [head.join(","), ...rows.map((cells) => cells.map(csvCell).join(","))].join("\n");
}

/** One line a trial; `more` adds a column. */
export function printTrials(
  trials: readonly TrialRecord[],
  more?: { readonly title: string; readonly of: (trial: TrialRecord) => string },
): void {
  if (trials.length === 0) {
    say("automap: no trial matches");
    return;
  }
  const head = ["id", ...WORKLOAD_COLUMNS, ..."target,origin,threads,instruction,time,predicted,at (UTC)".split(",")];
  const rows = trials.map((trial) => {
    const { id, target, provenance, threads, intrinsic, status, at } = summarise(trial);
    const { measurement, prediction, finals } = trial;
    return present([
      shortId(id),
      ...workloadCells(trial.workload),
      target,
      provenance === "here" ? (trial.conditions.worker ?? "") : provenance,
      String(threads),
      intrinsic,
      `${measurement.status === "ok" ? printTime(measurement.median) : status}${finals === undefined ? "" : " in finals"}`,
      prediction === undefined ? "" : printTime(prediction.seconds),
      at.slice(0, 16),
      more?.of(trial),
    ]);
  });
  const whole = withoutEmptyColumns([present([...head, more?.title]), ...rows]);
  printFitted(whole, SPARED);
}

/** Columns dropped on a narrow terminal, in this order. `db show` prints them for each record. */
const SPARED: readonly string[] = [
  "at (UTC)",
  "predicted",
  "target",
  "types",
  "threads",
  "layout",
  "epilogue",
  "origin",
  "instruction",
  "name",
];

/** Titles of {@link workloadCells}. */
export const WORKLOAD_COLUMNS = ["name", "workload", "shape", "types", "layout", "epilogue"] as const;
/** Columns that few workloads and few trials have a value for. */
const SELDOM: readonly string[] = ["name", "layout", "epilogue", "origin"];

export function workloadCells(workload: WorkloadRecord): string[] {
  const { subject, shape, types, layout, epilogue, besides } = wordsOf(workload);
  return [
    workload.name ?? "",
    subject,
    shape,
    types,
    [layout, besides].filter((part) => part !== "").join(" "),
    epilogue,
  ];
}

/** Drops workload columns that have no value in any row. */
export function withoutEmptyColumns([head = [], ...rows]: Rows): string[][] {
  const kept = head.map((title, column) => !SELDOM.includes(title) || rows.some((cells) => cells[column] !== ""));
  return [head, ...rows].map((row) => row.filter((_, column) => kept[column]));
}

/** Formats `c 64  h 56`. */
export function printShape(shape: Extents): string {
  return Object.entries(shape)
    .map(([name, value]) => `${name} ${value}`)
    .join("  ");
}
