/**
 * @file `automap explain` for a record: the measurement, the model's view of it level by level, and where the time goes.
 *
 *     automap explain 3f9a1c77d0e2 --db automap.db
 *     automap explain conv2d --dtype u8s8 --layout NHWC --candidate best
 */

import { z } from "zod";
import type { Candidate } from "../abstraction/candidate.ts";
import type { Computation } from "../abstraction/computation.ts";
import { automapCommand, NotFoundError } from "../abstraction/error.ts";
import { day } from "../abstraction/text.ts";
import { type Prediction, printClock } from "../abstraction/trial.ts";
import {
  best,
  type Database,
  DEFAULT_DATABASE,
  databaseWords,
  labelOf,
  shortId,
  showTrial,
  type TrialRecord,
} from "../db/index.ts";
import type { Costs } from "../perfmodel/correct.ts";
import { explainPrediction } from "../perfmodel/explain.ts";
import { candidateRows } from "../report/describe-candidate.ts";
import { indent, printTime } from "../report/text.ts";
import { contradictionText } from "../session/calibrate/contradiction.ts";
import { explainTrial, type TrialExplanation } from "../session/report/explain.ts";
import { type DesignCost, describeDesigns } from "../session/report/explain-designs.ts";
import { contradictionDocument, contradictionSchema } from "./contradiction.ts";
import { otherTypes } from "./db/records.ts";
import {
  counts,
  documentOf,
  EXIT,
  type ExitCode,
  number,
  partOf,
  print,
  printJson,
  say,
  style,
  text,
} from "./output.ts";
import { namesOf } from "./subject.ts";
import { fitted, wrapped } from "./terminal.ts";
import { withDatabase } from "./with-database.ts";

export const recordSchema = documentOf({
  id: text,
  workload: text,
  operator: text,
  shape: counts,
  candidate: partOf<Candidate>("instruction, matching and schedule: docs/schedule.md"),
  provenance: z.enum(["here", "imported"]),
  status: text,
  microseconds: number.nullable(),
  recordedPrediction: partOf<Prediction>("of the model when it was tried").nullable(),
  prediction: partOf<Prediction>("of the model now, level by level").nullable(),
  costs: partOf<Costs>("the parts of that prediction").nullable(),
  calibrationContradicted: contradictionSchema,
  designs: z
    .array(partOf<DesignCost>("of a design on lanes: the best schedule of a dataflow, and what it would have cost"))
    .nullable(),
  because: text.nullable().describe("why the model cannot explain it"),
});

interface Given {
  readonly db?: string | undefined;
  readonly intrinsic?: string | undefined;
  readonly json: boolean;
}

/** Whether a word is a record id: eight hex digits or more, which no operator name is. */
export function isRecordId(word: string): boolean {
  return /^[0-9a-f]{8,32}$/.test(word);
}

export function explainRecord(id: string, given: Given): ExitCode {
  return withDatabase(given.db ?? DEFAULT_DATABASE, (db) => explain(db, showTrial(db, id), given));
}

/** Explains the fastest record of a computation, on whatever machine it was made. */
export function explainBest(computation: Computation, given: Given): ExitCode {
  return withDatabase(given.db ?? DEFAULT_DATABASE, (db) => {
    const names = namesOf(given.intrinsic);
    const [trial] = best(db, { computation, ...(names ? { intrinsic: names } : {}) }, { imported: true });
    if (trial?.provenance === "imported")
      say(`automap: nothing of this ${computation.name} was measured here: record ${shortId(trial.id)} was imported`);
    if (trial) return explain(db, trial, given);
    const others = otherTypes(db, computation);
    throw new NotFoundError(
      `${db.path} holds no kernel of this ${computation.name} that worked`,
      `${others === undefined ? "" : `${others}; `}types, layout and extents must be those it was tuned with; ${automapCommand("db", "best", databaseWords(db.path))} lists what there is`,
    );
  });
}

function explain(db: Database, trial: TrialRecord, { json }: Given): ExitCode {
  const explained = explainTrial(db, trial);
  if (json) printJson(recordSchema, explanationDocument(trial, explained));
  else print(describe(trial, explained, db.path));
  return EXIT.ok;
}

function describe(trial: TrialRecord, explained: TrialExplanation, path: string): string {
  const { id, workload, candidate, measurement, prediction, environment, conditions } = trial;
  const measured =
    measurement.status === "ok"
      ? `${printTime(measurement.median)}, 95 % within ${printTime(measurement.interval[0])} to ${printTime(measurement.interval[1])}`
      : measurement.status;
  return [
    wrapped(`${style("bold", `trial ${shortId(id)}`)}   ${labelOf(workload)}   ${environment.cpu}`),
    "",
    fitted([
      ...candidateRows(candidate),
      [trial.provenance === "here" ? "measured" : "imported", measured],
      conditions.clock && ["clock", printClock(conditions.clock)],
      ["predicted", prediction ? `${printTime(prediction.seconds)} when it was tried` : "not when it was tried"],
    ]),
    "",
    explained.status === "designs"
      ? describeDesigns(explained)
      : explained.status === "unknown"
        ? wrapped(`the model cannot explain it: ${explained.because}`)
        : [
            `the model now, uncorrected, ${ratesText(explained, path)}`,
            indent(explainPrediction(explained.prediction, explained.costs)),
            ...comparison(trial, explained.prediction.seconds),
            ...(explained.contradiction ? [style("red", contradictionText(explained.contradiction, path))] : []),
          ].join("\n"),
    "",
    `record   ${automapCommand("db", "show", shortId(id), databaseWords(path))}`,
  ].join("\n");
}

function ratesText(
  { calibratedAt, ratesOf }: Extract<TrialExplanation, { readonly status: "explained" }>,
  path: string,
): string {
  if (ratesOf !== undefined && calibratedAt === undefined)
    return `with the rates of ${ratesOf} in the table of machines (${automapCommand("calibrate", "--target", "cuda", databaseWords(path))} measures this one's)`;
  return calibratedAt === undefined
    ? `with the rates of the reference machine (${automapCommand("calibrate", databaseWords(path))} measures this one's)`
    : `with the rates calibrated on ${day(calibratedAt)}`;
}

function comparison({ measurement }: TrialRecord, seconds: number): string[] {
  if (measurement.status !== "ok") return [];
  return [`measured is ${(measurement.median / seconds).toFixed(2)} times that`];
}

function explanationDocument(trial: TrialRecord, explained: TrialExplanation) {
  const { id, workload, candidate, measurement, prediction } = trial;
  return {
    id,
    workload: labelOf(workload),
    operator: workload.operator,
    shape: { ...workload.extents, ...workload.parameters },
    candidate,
    provenance: trial.provenance,
    status: measurement.status,
    microseconds: measurement.status === "ok" ? measurement.median * 1e6 : null,
    recordedPrediction: prediction ?? null,
    prediction: explained.status === "explained" ? explained.prediction : null,
    costs: explained.status === "explained" ? explained.costs : null,
    calibrationContradicted: explained.status === "explained" ? contradictionDocument(explained.contradiction) : null,
    designs: explained.status === "designs" ? explained.designs : null,
    because: explained.status === "unknown" ? explained.because : null,
  };
}
