/**
 * @file Records to text: rows of a table, a document, comma-separated values.
 */

import {
  labelOf,
  type Provenance,
  shapeOf,
  shortId,
  type TrialRecord,
  type WorkloadRecord,
  wordsOf,
} from "../../db/index.ts";
import { parseDataTypes, printDataTypes } from "../../operators/data-types.ts";
import { csvCell } from "../../report/csv.ts";
import { printTime, table } from "../../report/text.ts";
import { print, say } from "../output.ts";

export interface Summary {
  readonly id: string;
  /** All that makes the workload another than any other, in one line. */
  readonly workload: string;
  /** The user's own for it. */
  readonly name: string | null;
  readonly operator: string;
  readonly shape: Readonly<Record<string, number>>;
  readonly dtype: string;
  /** Of the inputs and of what is stored. */
  readonly types: string;
  readonly layout: string | null;
  readonly epilogue: string | null;
  readonly threads: number;
  readonly target: string;
  readonly provenance: Provenance;
  readonly intrinsic: string;
  readonly status: string;
  readonly microseconds: number | null;
  readonly predictedMicroseconds: number | null;
  readonly at: string;
}

export function summarise(trial: TrialRecord): Summary {
  const { id, workload, environment, provenance, conditions, intrinsic, measurement, prediction, at } = trial;
  const { types, layout, epilogue } = wordsOf(workload);
  return {
    id,
    workload: labelOf(workload),
    name: workload.name ?? null,
    operator: workload.operator,
    shape: shapeOf(workload),
    dtype: typesOf(trial),
    types,
    layout: layout || null,
    epilogue: epilogue || null,
    threads: conditions.threads,
    target: environment.target,
    provenance,
    intrinsic,
    status: measurement.status,
    microseconds: measurement.status === "ok" ? microseconds(measurement.median) : null,
    predictedMicroseconds: prediction === undefined ? null : microseconds(prediction.seconds),
    at: new Date(at).toISOString(),
  };
}

/** What `--dtype` reads: the output's type is written where it is not the usual one. */
export function typesOf({ workload }: TrialRecord): string {
  return printDataTypes(parseDataTypes(workload.dtype, workload.sum));
}

/** To the picosecond: what lies below is the noise of the conversion. */
function microseconds(seconds: number): number {
  return Number((seconds * 1e6).toFixed(6));
}

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

export function csvOf(trials: readonly Summary[]): string {
  const columns = [
    "id",
    "operator",
    "shape",
    "dtype",
    "target",
    "intrinsic",
    "status",
    "microseconds",
    "predictedMicroseconds",
    "at",
    "workload",
    "name",
    "types",
    "layout",
    "epilogue",
    "threads",
    "provenance",
  ] as const satisfies (keyof Summary)[];
  const cell = (value: Summary[keyof Summary]): string =>
    csvCell(typeof value === "object" && value !== null ? printShape(value) : value);
  return [columns.join(","), ...trials.map((t) => columns.map((c) => cell(t[c])).join(","))].join("\n");
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
    return [
      shortId(id),
      ...workloadCells(trial.workload),
      target,
      provenance === "here" ? "" : provenance,
      String(threads),
      intrinsic,
      `${measurement.status === "ok" ? printTime(measurement.median) : status}${finals === undefined ? "" : " in finals"}`,
      prediction === undefined ? "" : printTime(prediction.seconds),
      at.slice(0, 16),
      ...(more ? [more.of(trial)] : []),
    ];
  });
  print(table(withoutEmptyColumns([[...head, ...(more ? [more.title] : [])], ...rows])));
}

/** What {@link workloadCells} are of. */
export const WORKLOAD_COLUMNS = ["name", "workload", "shape", "types", "layout", "epilogue"] as const;
/** What few workloads have, and few trials. */
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

/** A table without those of the columns of workloads that have nothing under their head. */
export function withoutEmptyColumns([head = [], ...rows]: readonly (readonly string[])[]): string[][] {
  const kept = head.map((title, column) => !SELDOM.includes(title) || rows.some((cells) => cells[column] !== ""));
  return [head, ...rows].map((row) => row.filter((_, column) => kept[column]));
}

/** `c 64  h 56`. */
export function printShape(shape: Readonly<Record<string, number>>): string {
  return Object.entries(shape)
    .map(([name, value]) => `${name} ${value}`)
    .join("  ");
}
