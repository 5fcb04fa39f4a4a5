/**
 * @file `automap db`: queries and maintenance of the database. One subcommand a task; export, import and similar ones are in db/.
 *
 *     automap db best --op conv2d --c 64 --dtype u8s8
 *     automap db query --op conv2d --c 64..256 --status ok --since 7d --top 3
 *     automap db stale
 */

import type { Command } from "commander";
import { z } from "zod";
import { isDefined } from "../abstraction/collections.ts";
import { automapCommand, UsageError } from "../abstraction/error.ts";
import {
  best,
  countTrials,
  databaseWords,
  differencesOf,
  type Filter,
  POLICIES,
  queryTrials,
  SORTS,
} from "../db/index.ts";
import type { Cli } from "./command.ts";
import { registerColumns } from "./db/columns.ts";
import { failuresDocument, printFailures } from "./db/failures.ts";
import { registerFiles } from "./db/files.ts";
import {
  addFile,
  addFilters,
  addStatus,
  fileOptions,
  filterOptions,
  queryOptions,
  readFilter,
  readInstructions,
  readTrialFilter,
} from "./db/filters.ts";
import { countFields, type Here, printDifference, readPolicy, thisMachine } from "./db/here.ts";
import { bestOfLayers, layersAsked, layersSchema } from "./db/layers.ts";
import { csvOf, differenceSchema, printTrials, summarise, summarySchema } from "./db/records.ts";
import { compareRecords, showDocument, showRecord } from "./db/show.ts";
import { compareDocument, compareSides, sidesOfRuns } from "./db/sides.ts";
import { flag, optionalWord, unexpected } from "./options.ts";
import { documentOf, EXIT, type ExitCode, integer, print, printJson, say, text, texts } from "./output.ts";
import { withDatabase } from "./with-database.ts";

const bestOptions = filterOptions.extend({
  trust: text.default("exact").transform(readPolicy),
  layers: optionalWord,
  csv: flag,
});

const twice = (word: string, before: readonly string[] | undefined = []): readonly string[] => [...before, word];
/** Filters of other commands that `compare` takes in pairs. */
const PAIRS: Readonly<Record<string, string>> = {
  "--run": "given twice: two runs of one computation",
  "--intrinsic": "given twice: the best with each, of every computation that has both",
};
const pairOption = texts.optional();
const compareOptions = filterOptions.extend({ run: pairOption, intrinsic: pairOption });

const differs = z.array(differenceSchema);
const queryDocument = documentOf({ trials: z.array(summarySchema) });
const staleDocument = documentOf({ trials: z.array(summarySchema.extend({ differs })) });
const bestDocument = documentOf({
  trust: z.enum(POLICIES),
  trials: z.array(summarySchema),
  layers: layersSchema,
  stale: z.array(z.strictObject({ id: text, differs })).describe("those used although a field of their world differs"),
  leftOut: integer.describe("trials that --trust leaves out"),
});

/** @param here the world that records are compared with */
export function register(db: Cli, here: Here = thisMachine): void {
  db.examples(["automap db best --op conv2d", "automap db show 3f9a1c77d0e2"]);
  addFilters(db.command("best"), bestDocument)
    .summary("the fastest trial of each computation, environment and thread count")
    .option("--trust <policy>", `whose records count: ${POLICIES.join(", ")} (default: exact, this very machine)`)
    .option("--layers <file>", "the best for each line of a file: a name, or conv2d --c 64 --dtype u8s8")
    .option("--csv", "print comma-separated values")
    .examples(
      [
        "automap db best --name model/layer1,model/layer2",
        "automap db best --layers layers.txt --csv",
        "automap db best --op conv2d --c 64 --dtype u8s8",
        "automap db best --trust isa",
      ],
      "exact: every field of the environment is this machine's, and the instruction is declared as it was.",
      "isa: the features agree and the declaration; compiler, kernel and the rest may differ. any: everything.",
    )
    .runs(bestOptions, (given, command) => runBest(given, command, here));
  addStatus(addFilters(db.command("query").alias("list"), queryDocument))
    .summary("the trials that match, failures too")
    .option("--sort <key>", `${SORTS.join(", ")} (default: time, fastest first)`)
    .option("--top <k>", "at most k records of each computation")
    .option("--csv", "print comma-separated values")
    .examples([
      "automap db query --op conv2d --c 64..256 --status ok --top 3",
      "automap db query --intrinsic amx --since 7d --sort at --csv",
    ])
    .runs(queryOptions, runQuery);
  addFile(db.command("show"), showDocument)
    .summary("one record: what ran, where, how its mapping looks, why it can be believed")
    .argument("<id>", "its first digits, as automap db query prints them")
    .examples(["automap db show 3f9a1c77d0e2"])
    .runs(fileOptions, (given, _command, id: string) => runShow(id, given, here));
  registerCompare(db);
  addStatus(addFilters(db.command("failures"), failuresDocument))
    .summary("what failed, by reason, the most frequent first")
    .examples(["automap db failures --op conv2d --since 7d"])
    .runs(queryOptions, runFailures);
  addStatus(addFilters(db.command("stale"), staleDocument))
    .summary("records that this machine may not trust, and which field differs")
    .examples(["automap db stale --op conv2d"])
    .runs(queryOptions, (given, command) => runStale(given, command, here));
  registerColumns(db);
  registerFiles(db, here);
}

function registerCompare(db: Cli): void {
  const compare = addFilters(db.command("compare"), compareDocument);
  for (const option of compare.options) {
    const pair = PAIRS[option.long ?? ""];
    if (pair === undefined) continue;
    option.description = pair;
    option.argParser(twice);
  }
  compare
    .summary(
      "two records, two runs or two instructions: the difference with its interval, or a tie; and what they share",
    )
    .argument("[a]", "the first digits of an id")
    .argument("[b]", "the first digits of an id")
    .examples([
      "automap db compare 3f9a1c77d0e2 77d0e2a803b1",
      "automap db compare --run 3f9a1c77 --run 77d0e2a8",
      "automap db compare --intrinsic vnni --intrinsic amx --op conv2d",
    ])
    .runs(compareOptions, runCompare);
}

async function runBest(given: z.infer<typeof bestOptions>, command: Command, here: Here): Promise<ExitCode> {
  if (given.json && given.csv) throw new UsageError("--json and --csv exclude each other");
  const world = await here();
  const asked = layersAsked(given);
  return withDatabase(given.db, (db) => {
    const filter = readFilter(db, asked ? { ...given, name: undefined } : given, command);
    const trust = { ...world, policy: given.trust };
    const layers = asked && bestOfLayers(db, asked, filter, trust);
    const trials = layers
      ? layers.flatMap(({ best: first }) => first ?? [])
      : best(db, { ...filter, trusted: trust }, { imported: true });
    const differs = new Map(trials.map((t) => [t.id, differencesOf(t, world)]));
    const { limit: _, ...unlimited } = filter;
    const leftOut = given.trust === "any" ? 0 : countTrials(db, { ...unlimited, status: "ok", stale: trust });
    if (given.json)
      printJson(bestDocument, {
        trust: given.trust,
        trials: trials.map(summarise),
        ...(layers && {
          layers: layers.map(({ layer, best: first }) => ({ layer, best: first ? summarise(first) : null })),
        }),
        stale: [...differs].flatMap(([id, fields]) => (fields.length > 0 ? [{ id, differs: fields }] : [])),
        leftOut,
      });
    else if (given.csv) print(csvOf(trials.map(summarise)));
    else if (given.trust === "exact") printTrials(trials);
    else
      printTrials(trials, { title: "differs", of: ({ id }) => (differs.get(id) ?? []).map((d) => d.field).join(", ") });
    for (const { layer, best: first } of layers ?? []) if (!first) say(`automap: ${layer}: no trial matches`);
    if (leftOut > 0) sayLeftOut({ ...unlimited, stale: trust }, leftOut);
    return EXIT.ok;

    function sayLeftOut(filtered: Filter, count: number): void {
      const fields = countFields(
        queryTrials(db, { ...filtered, status: "ok", limit: 100 }).map((t) => differencesOf(t, world)),
      );
      const wider = given.trust === "exact" ? "--trust isa or --trust any uses them" : "--trust any uses them";
      say(
        `automap: ${count} stale trials were left out, they differ in ${fields}; ${automapCommand("db", "stale", databaseWords(given.db))} lists them, ${wider}`,
      );
    }
  });
}

function runQuery(given: z.infer<typeof queryOptions>, command: Command): ExitCode {
  const { json, csv } = given;
  if (json && csv) throw new UsageError("--json and --csv exclude each other");
  return withDatabase(given.db, (db) => {
    const trials = queryTrials(db, readTrialFilter(db, given, command));
    if (json) printJson(queryDocument, { trials: trials.map(summarise) });
    else if (csv) print(csvOf(trials.map(summarise)));
    else printTrials(trials);
    return EXIT.ok;
  });
}

async function runShow(id: string, given: z.infer<typeof fileOptions>, here: Here): Promise<ExitCode> {
  const world = await here();
  withDatabase(given.db, (db) => showRecord(db, id, world, given.json));
  return EXIT.ok;
}

function runCompare({ run, intrinsic, ...given }: z.infer<typeof compareOptions>, command: Command): ExitCode {
  const ids = run || intrinsic ? undefined : command.args;
  const pairs = [run, intrinsic, ids].filter(isDefined);
  const [pair] = pairs;
  const [a, b, more] = pair ?? [];
  if (pairs.length !== 1 || a === undefined || b === undefined || more !== undefined)
    throw new UsageError(
      "compare needs two of one kind: two records, two --run or two --intrinsic",
      "for example automap db compare --run 3f9a1c77 --run 77d0e2a8",
    );
  const json = given.json;
  return withDatabase(given.db, (db) => {
    if (pair === ids) compareRecords(db, [a, b], json);
    else if (pair === run) {
      const [stray] = command.args;
      if (stray !== undefined)
        throw unexpected(stray, command, "a run has its computation; only --intrinsic takes filters");
      compareSides(db, sidesOfRuns(db, [a, b]), { json, isOneWorld: false });
    } else {
      const filter = readFilter(db, given, command);
      const side = (word: string) => ({ label: word, filter: { ...filter, intrinsic: readInstructions(db, word) } });
      compareSides(db, [side(a), side(b)], { json, isOneWorld: true });
    }
    return EXIT.ok;
  });
}

function runFailures(given: z.infer<typeof queryOptions>, command: Command): ExitCode {
  return withDatabase(given.db, (db) => {
    printFailures(db, readTrialFilter(db, given, command), given.json);
    return EXIT.ok;
  });
}

async function runStale(given: z.infer<typeof queryOptions>, command: Command, here: Here): Promise<ExitCode> {
  const world = await here();
  return withDatabase(given.db, (db) => {
    const filter = { ...readTrialFilter(db, given, command), stale: { ...world, policy: "exact" as const } };
    const trials = queryTrials(db, filter);
    if (given.json)
      printJson(staleDocument, { trials: trials.map((t) => ({ ...summarise(t), differs: differencesOf(t, world) })) });
    else printTrials(trials, { title: "differs", of: (t) => differencesOf(t, world).map(printDifference).join("; ") });
    return EXIT.ok;
  });
}
