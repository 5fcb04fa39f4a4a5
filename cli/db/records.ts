/**
 * @file Records to text: rows of a table, a document, comma-separated values.
 */

import { shapeOf, shortId, type TrialRecord } from "../../db/index.ts";
import { parseDataTypes, printDataTypes } from "../../operators/data-types.ts";
import { printTime, shapeText, table } from "../../report/text.ts";
import { print, say } from "../output.ts";

export interface Summary {
  readonly id: string;
  readonly operator: string;
  readonly shape: Readonly<Record<string, number>>;
  readonly dtype: string;
  readonly target: string;
  readonly intrinsic: string;
  readonly status: string;
  readonly microseconds: number | null;
  readonly predictedMicroseconds: number | null;
  readonly at: string;
}

export function summarise(trial: TrialRecord): Summary {
  const { id, workload, environment, intrinsic, measurement, prediction, at } = trial;
  return {
    id,
    operator: workload.operator,
    shape: shapeOf(workload),
    dtype: typesOf(trial),
    target: environment.target,
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
}: TrialRecord) {
  return { run: run ?? null, workload, environment, candidate, declaration, measurement, prediction, conditions };
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
  ] as const satisfies (keyof Summary)[];
  const cell = (value: Summary[keyof Summary]): string => {
    const text = value === null ? "" : typeof value === "object" ? printShape(value) : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
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
  const head = "id,operator,shape,types,target,threads,instruction,time,predicted,at (UTC)".split(",");
  const rows = trials.map((trial) => {
    const { id, operator, dtype, target, intrinsic, status, at } = summarise(trial);
    const { workload, conditions, measurement, prediction } = trial;
    return [
      shortId(id),
      operator,
      shapeText(workload),
      dtype,
      target,
      String(conditions.threads),
      intrinsic,
      measurement.status === "ok" ? printTime(measurement.median) : status,
      prediction === undefined ? "" : printTime(prediction.seconds),
      at.slice(0, 16),
      ...(more ? [more.of(trial)] : []),
    ];
  });
  print(table([[...head, ...(more ? [more.title] : [])], ...rows]));
}

/** `c 64  h 56`. */
export function printShape(shape: Readonly<Record<string, number>>): string {
  return Object.entries(shape)
    .map(([name, value]) => `${name} ${value}`)
    .join("  ");
}
