/**
 * @file `automap db show|compare`: one record in full, and the comparison of two.
 *
 *     automap db show 3f9a1c77d0e2
 *     automap db compare 3f9a1c77d0e2 77d0e2a803b1
 */

import { z } from "zod";
import { attempt, automapCommand, UsageError } from "../../abstraction/error.ts";
import type { Measurement, Prediction } from "../../abstraction/trial.ts";
import {
  computationOf,
  type Database,
  databaseWords,
  differencesOf,
  environmentDifferences,
  environmentRows,
  labelOf,
  recordProblem,
  shortId,
  shownOf,
  showTrial,
  type TrialRecord,
  type World,
  wordsOf,
} from "../../db/index.ts";
import { candidateRows } from "../../report/describe-candidate.ts";
import { drawMapping } from "../../report/draw-mapping.ts";
import { indent, printTime, type Rows } from "../../report/text.ts";
import { compareTimes, summariseDifference } from "../../runtime/statistics.ts";
import { mappingOf } from "../../session/recorded.ts";
import type { TimedRecord } from "../../session/report/report-trials.ts";
import { isTimed } from "../../tuner/trials.ts";
import { documentOf, number, print, printJson, say, style } from "../output.ts";
import { fitted, wrapped } from "../terminal.ts";
import { printDifference } from "./here.ts";
import {
  details,
  detailsShape,
  differenceSchema,
  intervalOf,
  intervalSchema,
  microseconds,
  printShape,
  summarise,
  summarySchema,
} from "./records.ts";

export const pairSchema = z.strictObject({
  a: summarySchema,
  b: summarySchema,
  verdict: z.enum(["a", "b", "tie"]).describe("which is faster; tie where the intervals overlap"),
  difference: z.strictObject({
    microseconds: number.describe("b - a"),
    interval: intervalSchema,
    ratio: number.describe("b / a"),
  }),
});

/** The document of two records. */
export const pairDocument = documentOf(pairSchema.shape);

export const showDocument = documentOf({
  trials: z.array(summarySchema.extend({ ...detailsShape, differs: z.array(differenceSchema) })),
});

export function showRecord(db: Database, id: string, world: World, json: boolean): void {
  const trial = showTrial(db, id);
  if (json) {
    const differs = differencesOf(trial, world);
    printJson(showDocument, { trials: [{ ...summarise(trial), ...details(trial), differs }] });
  } else print(describe(db, trial, world));
}

function describe(db: Database, trial: TrialRecord, world: World): string {
  const problem = recordProblem(db, trial.id);
  const { id, run, workload, environment, measurement, prediction, at } = trial;
  const words = wordsOf(workload);
  return [
    wrapped(
      `${style("bold", `trial ${id}`)}   ${new Date(at).toISOString()}${run === undefined ? "" : `   run ${shortId(run)}`}`,
    ),
    section("workload", [
      ["label", labelOf(workload)],
      ["name", workload.name ?? ""],
      ["operator", workload.operator],
      ["equation", workload.equation],
      ["extents", printShape(workload.extents)],
      ["parameters", printShape(workload.parameters)],
      ["types", words.types],
      ["layout", words.layout],
      ["epilogue", words.epilogue],
    ]),
    section("candidate", rowsOf(trial)),
    section("environment", environmentRows(environment)),
    section("conditions", [...shownOf(trial), ["finals", finalsText(trial)]]),
    section("measured", measuredRows(measurement)),
    ...(prediction === undefined ? [] : [section("predicted", predictedRows(prediction, measurement))]),
    section("proof", proofRows(trial, world, problem)),
    `mapping\n${indent(fitted([[drawn(trial)]], 2))}`,
    style("dim", `every sample: ${automapCommand("db", "show", shortId(id), "--json", databaseWords(db.path))}`),
  ].join("\n\n");
}

function section(title: string, rows: Rows): string {
  const told = rows.filter(([, text]) => text !== "");
  return `${title}\n${indent(fitted(told, 2))}`;
}

function finalsText({ finals }: TrialRecord): string {
  if (finals === undefined) return "";
  const place = finals.place === undefined ? "failed" : finals.place === 1 ? "won" : `place ${finals.place}`;
  return `${place}, measured in turns with the others of ${shortId(finals.comparison)}`;
}

/** Rows that describe the candidate, with its instruction as declared at the time. */
function rowsOf({ candidate, intrinsic, declaration }: TrialRecord): string[][] {
  const name = [
    "instruction",
    `${intrinsic}${declaration === undefined ? "" : ` (declaration ${shortId(declaration)})`}`,
  ];
  return [name, ...candidateRows(candidate).flatMap(([what, text]) => (what === "instruction" ? [] : [[what, text]]))];
}

function measuredRows(measurement: Measurement): string[][] {
  if (measurement.status !== "ok")
    return [
      ["status", style("red", measurement.status)],
      ["log", measurement.log.trimEnd()],
    ];
  const { median, interval, samples, lostTo } = measurement;
  return [
    ["status", lostTo === undefined ? "ok" : `ok, dropped early: every batch was slower than ${printTime(lostTo)}`],
    ["median", `${printTime(median)}   95 % within ${printTime(interval[0])} to ${printTime(interval[1])}`],
    ["samples", `${samples.length}, ${printTime(Math.min(...samples))} to ${printTime(Math.max(...samples))}`],
  ];
}

function predictedRows(prediction: Prediction, measurement: Measurement): string[][] {
  const off =
    measurement.status === "ok" ? `   ${(prediction.seconds / measurement.median).toFixed(2)} of the measured` : "";
  return [
    ["time", `${printTime(prediction.seconds)}${off}`],
    ["uncorrected", printTime(prediction.uncorrectedSeconds)],
    ...prediction.levels.map((l) => [
      l.level,
      `${digits(l.trips)} trips   cycles of one: inner ${digits(l.inner)}   read ${digits(l.read)}   write ${digits(l.write)}   bound by ${l.bound}`,
    ]),
  ];
}

function digits(number: number): string {
  return String(Number(number.toPrecision(4)));
}

/** Rows on why the measurement can be trusted, and where. */
function proofRows(trial: TrialRecord, world: World, problem: string | undefined): string[][] {
  const { measurement, declaration } = trial;
  const differences = differencesOf(trial, world);
  const otherwise = differences.find((d) => d.field === "declaration");
  return [
    ["origin", originOf(trial)],
    ["record", problem === undefined ? "its id is the hash of its facts" : style("red", problem)],
    ...(measurement.status === "ok"
      ? [
          [
            "output",
            "checked against the equation in every element, on random and on extreme data, before it was timed",
          ],
          ["instruction", `${measurement.instructions} in the disassembly`],
        ]
      : []),
    [
      "declaration",
      declaration === undefined ? "none recorded" : otherwise ? printDifference(otherwise) : "as it is declared now",
    ],
    [
      "here",
      differences.length === 0 ? "this machine is the record's world" : differences.map(printDifference).join("\n"),
    ],
  ];
}

function originOf({ provenance, conditions: { worker } }: TrialRecord): string {
  if (provenance !== "here") return "imported: measured elsewhere, or so whoever wrote it says";
  return worker === undefined
    ? "measured here"
    : `measured for this machine by worker ${worker} of a fleet, which signed it`;
}

function drawn({ workload, candidate }: TrialRecord): string {
  return attempt(
    () => drawMapping(mappingOf(computationOf(workload), candidate)),
    ({ message }) => `cannot be drawn: ${message}`,
  );
}

/** Seed of the resamples. Any value would do, but the result must not change from call to call. */
const SEED = 1;

export function compareRecords(db: Database, ids: readonly [string, string], json: boolean): void {
  const first = showTrial(db, ids[0]);
  const second = showTrial(db, ids[1]);
  checkAlike("records", first, second);
  const a = timed(first, db);
  const b = timed(second, db);
  for (const difference of differing(a, b)) say(`automap: not under the same conditions: ${difference}`);
  if (json) {
    printJson(pairDocument, pairOf([a, b]));
    return;
  }
  const { difference, verdict } = timesOf([a, b]);
  const row = (name: string, { id, intrinsic, provenance, measurement }: TimedRecord): string[] => [
    name,
    `${shortId(id)}${provenance === "here" ? "" : ", imported"}`,
    intrinsic,
    printTime(measurement.median),
    `95 % within ${printTime(measurement.interval[0])} to ${printTime(measurement.interval[1])}`,
  ];
  const size = (seconds: number): string => `${seconds < 0 ? "-" : ""}${printTime(Math.abs(seconds))}`;
  const [low, high] = difference.interval;
  const share = `${(100 * Math.abs(b.measurement.median / a.measurement.median - 1)).toFixed(1)} %`;
  print(
    [
      fitted([row("a", a), row("b", b)]),
      "",
      verdict === "tie"
        ? "tie: the intervals overlap"
        : `b is ${printTime(Math.abs(difference.median))} (${share}) ${verdict} than a`,
      `b - a is ${size(difference.median)}, 95 % within ${size(low)} to ${size(high)}`,
    ].join("\n"),
  );
}

/** @throws UsageError when they are of different computations */
export function checkAlike(what: "records" | "runs", ...[a, b]: readonly [Subject, Subject]): void {
  if (a.workload.computation === b.workload.computation) return;
  throw new UsageError(
    `the two ${what} are of different computations: their times say nothing about each other`,
    `${shortId(a.id)} is ${labelOf(a.workload)}; ${shortId(b.id)} is ${labelOf(b.workload)}`,
  );
}

type Subject = Pick<TrialRecord, "id" | "workload">;
export type Pair = readonly [TimedRecord, TimedRecord];

/** The difference of two trials in seconds, with its interval, and which is faster. */
const timesOf = ([a, b]: Pair) => ({
  difference: summariseDifference(b.measurement.samples, a.measurement.samples, SEED),
  verdict: compareTimes(b.measurement, a.measurement),
});

/** The comparison of two trials, as documents have it. */
export function pairOf(pair: Pair): z.infer<typeof pairSchema> {
  const { difference, verdict } = timesOf(pair);
  const [a, b] = pair;
  return {
    a: summarise(a),
    b: summarise(b),
    verdict: verdict === "tie" ? "tie" : verdict === "faster" ? "b" : "a",
    difference: {
      microseconds: microseconds(difference.median),
      interval: intervalOf(difference.interval),
      ratio: b.measurement.median / a.measurement.median,
    },
  };
}

function timed(trial: TrialRecord, { path }: Database): TimedRecord {
  if (isTimed(trial)) return trial;
  const { id, measurement } = trial;
  throw new UsageError(
    `trial ${shortId(id)} has no time: it ended as ${measurement.status}`,
    `${automapCommand("db", "query", "--status", "ok", databaseWords(path))} lists those that have one`,
  );
}

export function differing(a: TrialRecord, b: TrialRecord): string[] {
  const conditions = (["threads", "cache"] as const)
    .filter((name) => a.conditions[name] !== b.conditions[name])
    .map((name) => `${name} ${a.conditions[name]} and ${b.conditions[name]}`);
  const world = environmentDifferences(a.environment, b.environment).map(
    ({ field, recorded, here }) => `${field} ${recorded ?? "none"} and ${here ?? "none"}`,
  );
  const measured = ({ provenance }: TrialRecord): string => (provenance === "here" ? "measured here" : "imported");
  return [...(a.provenance === b.provenance ? [] : [`${measured(a)} and ${measured(b)}`]), ...conditions, ...world];
}
