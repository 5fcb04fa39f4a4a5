/**
 * @file `automap replay`: repeats a search's decisions from its records, without hardware, and reports where they differ.
 *
 *     automap replay                 the runs a database holds
 *     automap replay 3f9a1c77        all of one
 */

import type { Command } from "commander";
import { z } from "zod";
import type { Candidate } from "../abstraction/candidate.ts";
import { present } from "../abstraction/collections.ts";
import { automapCommand } from "../abstraction/error.ts";
import { type Database, databaseWords, labelOf, type RunRecord, runsIn, shortId } from "../db/index.ts";
import { candidateText } from "../report/describe-candidate.ts";
import { counted, indent, printTime } from "../report/text.ts";
import { type Replay, replayRun } from "../session/tune/replay.ts";
import { secondsOf } from "../tuner/trials.ts";
import type { Cli } from "./command.ts";
import { WORKLOAD_COLUMNS, withoutEmptyColumns, workloadCells } from "./db/records.ts";
import { databaseFile, flag } from "./options.ts";
import {
  counts,
  documentOf,
  EXIT,
  type ExitCode,
  integer,
  number,
  type PartsOf,
  partOf,
  print,
  printJson,
  say,
  style,
  text,
  texts,
} from "./output.ts";
import { fitted, printFitted, wrapped } from "./terminal.ts";
import { withDatabase } from "./with-database.ts";

const options = z.object({ db: databaseFile, json: flag });
type Options = z.infer<typeof options>;

const runSchema = z.strictObject({
  id: text,
  workload: text,
  operator: text,
  shape: counts,
  dtype: text,
  seed: integer,
  options: z.looseObject({}).describe("all that decides what the search does"),
  budget: z.looseObject({}),
  provenance: z.enum(["here", "imported"]),
  started: number.describe("milliseconds since 1970"),
  ended: number.optional(),
  status: text.describe("running without a living process: it was killed"),
});
const runsSchema = documentOf({ runs: z.array(runSchema.extend({ trials: integer })) });
const replayedSchema = documentOf({
  run: runSchema,
  identical: z.boolean().describe("bit for bit"),
  divergence: z.strictObject({ trial: integer, because: text }).nullable(),
  status: text,
  known: integer.describe("trials that it knew from earlier runs"),
  assumed: texts.describe("what is not recorded"),
  best: text.nullable().describe("key of the candidate"),
  trials: z.array(
    z.strictObject({
      candidate: partOf<Candidate>("instruction, matching and schedule: docs/schedule.md"),
      status: text,
      microseconds: number.nullable(),
      predictedMicroseconds: number.nullable(),
    }),
  ),
});

export function register(command: Cli): void {
  command
    .json(z.union([runsSchema, replayedSchema]))
    .argument("[run]", "the first digits of a run's id; without one, the runs are listed")
    .option("--db <file>", "the database (default: automap.db in this directory)")
    .examples(
      ["automap replay --db automap.db", "automap replay 3f9a1c77"],
      "The same seed, strategy and answers give the same candidates with bit-identical predictions;",
      "exit code 1 when they do not, with the first trial that differs.",
    )
    .runs(options, replay);
}

async function replay(given: Options, _command: Command, run?: string): Promise<ExitCode> {
  return withDatabase(given.db, async (db) => {
    if (run === undefined) return list(db, given);
    const replayed = await replayRun(db, run);
    if (given.json) printJson(replayedSchema, replayDocument(replayed));
    else print(describeReplay(replayed, given.db));
    return replayed.divergence ? EXIT.failed : EXIT.ok;
  });
}

// ---- The runs there are

function list(db: Database, given: Options): ExitCode {
  const runs = runsIn(db);
  if (given.json) {
    const documents = runs.map(({ run, trials }) => ({ ...runDocument(run), trials }));
    printJson(runsSchema, { runs: documents });
    return EXIT.ok;
  }
  if (runs.length === 0) say(`automap: ${db.path} holds no runs; automap tune makes them`);
  else {
    const rows = runs.map(({ run, trials }) => [
      shortId(run.id),
      ...workloadCells(run.workload),
      String(run.options["strategy"] ?? ""),
      String(run.seed),
      String(trials),
      `${run.status === "running" ? "not ended" : run.status}${run.provenance === "here" ? "" : ", imported"}`,
      new Date(run.started).toISOString().slice(0, 16),
    ]);
    const head = ["run", ...WORKLOAD_COLUMNS, "strategy", "seed", "trials", "status", "at (UTC)"];
    printFitted(withoutEmptyColumns([head, ...rows]), SPARED);
  }
  return EXIT.ok;
}

/** Columns left out on a narrow terminal, in this order. */
const SPARED = ["at (UTC)", "types", "seed", "strategy", "layout", "epilogue", "name"];

// ---- One of them

/** What a replay showed, as text. @param file the database, for the commands to paste */
export function describeReplay(replayed: Replay, file: string): string {
  const { run, trials, known, best, divergence, assumed } = replayed;
  let lowest = Number.POSITIVE_INFINITY;
  const rows = trials.flatMap((trial, i) => {
    const seconds = secondsOf(trial);
    const leads = seconds !== undefined && seconds < lowest;
    if (leads) lowest = seconds;
    const failed = seconds === undefined ? trial.measurement.status : "";
    return leads || failed !== ""
      ? [[`trial ${i + 1}`, failed || printTime(seconds ?? 0), candidateText(trial.candidate)]]
      : [];
  });
  const own = trials.length - known;
  return present([
    wrapped(
      `${style("bold", `run ${run.id}`)}${run.provenance === "here" ? "" : ", imported"}   ${labelOf(run.workload)}   seed ${run.seed}   strategy ${String(run.options["strategy"])}`,
    ),
    "",
    indent(fitted(rows, 2)),
    "",
    wrapped(
      `${counted(trials.length, "trial")} gone through: ${own} of this run, ${known} it knew from earlier runs; ${ending(replayed.status)}`,
    ),
    best && fitted([["best", printTime(secondsOf(best) ?? 0), candidateText(best.candidate)]]),
    ...assumed.map((what) => wrapped(`not recorded, so assumed: ${what}`)),
    divergence
      ? wrapped(style("red", `diverges at trial ${divergence.trial}: ${divergence.because}`))
      : wrapped(style("green", "bit for bit: the same candidates in the same order, each with the same prediction")),
    divergence && `the record   ${automapCommand("db", "query", "--sort", "at", databaseWords(file))}`,
  ]).join("\n");
}

function ending(status: Replay["status"]): string {
  switch (status) {
    case "recorded-end":
      return "there the run had ended";
    case "interrupted":
      return "stopped where it diverged";
    default:
      return status;
  }
}

function runDocument(run: RunRecord) {
  const { id, workload, seed, options: given, budget, provenance, started, ended, status } = run;
  const { operator, parameters, extents, dtype } = workload;
  return {
    id,
    workload: labelOf(workload),
    operator,
    shape: { ...extents, ...parameters },
    dtype,
    seed,
    options: given,
    budget,
    provenance,
    started,
    ended,
    status,
  };
}

function replayDocument({
  run,
  trials,
  known,
  best,
  status,
  divergence,
  assumed,
}: Replay): PartsOf<typeof replayedSchema> {
  return {
    run: runDocument(run),
    identical: divergence === undefined,
    divergence: divergence ?? null,
    status,
    known,
    assumed,
    best: best?.key ?? null,
    trials: trials.map(({ candidate, prediction, measurement }) => ({
      candidate,
      status: measurement.status,
      microseconds: measurement.status === "ok" ? measurement.median * 1e6 : null,
      predictedMicroseconds: prediction ? prediction.seconds * 1e6 : null,
    })),
  };
}
