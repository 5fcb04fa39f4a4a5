/**
 * @file `automap db`: what was tried, what it took, what it can be trusted for. One command a task; export, import and the like in db/.
 *
 *     automap db best --op conv2d --c 64 --dtype u8s8
 *     automap db query --op conv2d --c 64..256 --status ok --since 7d --top 3
 *     automap db stale
 */

import type { Command } from "commander";
import { z } from "zod";
import { UsageError } from "../abstraction/error.ts";
import { best, countTrials, differencesOf, type Filter, POLICIES, queryTrials, SORTS } from "../db/index.ts";
import { registerFiles } from "./db/files.ts";
import {
  addFile,
  addFilters,
  addStatus,
  fileOptions,
  filterOptions,
  queryOptions,
  readFilter,
  readTrialFilter,
} from "./db/filters.ts";
import { countFields, type Here, printDifference, readPolicy, thisMachine } from "./db/here.ts";
import { csvOf, printTrials, summarise } from "./db/records.ts";
import { compareRecords, showRecord } from "./db/show.ts";
import { parseOptions } from "./options.ts";
import { EXIT, type ExitCode, print, printJson, say } from "./output.ts";
import { withDatabase } from "./with-database.ts";

const bestOptions = filterOptions.extend({
  trust: z.string().default("exact").transform(readPolicy),
  csv: z.boolean().optional(),
});

/** @param here the world records are held against */
export function registerDb(db: Command, finish: (code: ExitCode) => void, here: Here = thisMachine): void {
  addFilters(db.command("best"))
    .summary("the fastest trial of each computation, environment and thread count")
    .option("--trust <policy>", `whose records count: ${POLICIES.join(", ")} (default: exact, this very machine)`)
    .option("--csv", "print comma-separated values")
    .addHelpText(
      "after",
      [
        "",
        "Examples:",
        "  automap db best --op conv2d --c 64 --dtype u8s8",
        "  automap db best --trust isa",
        "",
        "exact: every field of the environment is this machine's, and the instruction is declared as it was.",
        "isa: the features agree and the declaration; compiler, kernel and the rest may differ. any: everything.",
      ].join("\n"),
    )
    .action(async (raw: unknown, command: Command) =>
      finish(await runBest(parseOptions(bestOptions, raw), command, here)),
    );
  addStatus(addFilters(db.command("query").alias("list")))
    .summary("the trials that match, failures too")
    .option("--sort <key>", `${SORTS.join(", ")} (default: time, fastest first)`)
    .option("--top <k>", "no more than the first k of each computation")
    .option("--csv", "print comma-separated values")
    .addHelpText(
      "after",
      [
        "",
        "Examples:",
        "  automap db query --op conv2d --c 64..256 --status ok --top 3",
        "  automap db query --intrinsic amx --since 7d --sort at --csv",
      ].join("\n"),
    )
    .action((raw: unknown, command: Command) => finish(runQuery(parseOptions(queryOptions, raw), command)));
  addFile(db.command("show"))
    .summary("one record: what ran, where, how its mapping looks, why it can be believed")
    .argument("<id>", "its first digits, as automap db query prints them")
    .addHelpText("after", "\nExample:\n  automap db show 3f9a1c77d0e2")
    .action(async (id: string, raw: unknown) => finish(await runShow(id, parseOptions(fileOptions, raw), here)));
  addFile(db.command("compare"))
    .summary("two records of one computation: the difference with its interval, or a tie")
    .argument("<a>", "the first digits of an id")
    .argument("<b>", "the first digits of an id")
    .addHelpText("after", "\nExample:\n  automap db compare 3f9a1c77d0e2 77d0e2a803b1")
    .action((a: string, b: string, raw: unknown) => finish(runCompare([a, b], parseOptions(fileOptions, raw))));
  addStatus(addFilters(db.command("stale")))
    .summary("records that this machine may not trust, and which field differs")
    .addHelpText("after", "\nExample:\n  automap db stale --op conv2d")
    .action(async (raw: unknown, command: Command) =>
      finish(await runStale(parseOptions(queryOptions, raw), command, here)),
    );
  registerFiles(db, finish, here);
}

async function runBest(given: z.infer<typeof bestOptions>, command: Command, here: Here): Promise<ExitCode> {
  if (given.json && given.csv) throw new UsageError("--json and --csv exclude each other");
  const world = await here();
  return withDatabase(given.db, (db) => {
    const filter = readFilter(db, given, command);
    const trust = { ...world, policy: given.trust };
    const trials = best(db, { ...filter, trusted: trust });
    const differs = new Map(trials.map((t) => [t.id, differencesOf(t, world)]));
    const { limit: _, ...unlimited } = filter;
    const leftOut = given.trust === "any" ? 0 : countTrials(db, { ...unlimited, status: "ok", stale: trust });
    if (given.json)
      printJson({
        trust: given.trust,
        trials: trials.map(summarise),
        stale: trials.flatMap(({ id }) => (differs.get(id)?.length ? [{ id, differs: differs.get(id) }] : [])),
        leftOut,
      });
    else if (given.csv) print(csvOf(trials.map(summarise)));
    else if (given.trust === "exact") printTrials(trials);
    else
      printTrials(trials, { title: "differs", of: ({ id }) => (differs.get(id) ?? []).map((d) => d.field).join(", ") });
    if (leftOut > 0) sayLeftOut({ ...unlimited, stale: trust }, leftOut);
    return EXIT.ok;

    function sayLeftOut(filtered: Filter, count: number): void {
      const fields = countFields(
        queryTrials(db, { ...filtered, status: "ok", limit: 100 }).map((t) => differencesOf(t, world)),
      );
      const wider = given.trust === "exact" ? "--trust isa or --trust any uses them" : "--trust any uses them";
      say(
        `automap: ${count} stale trials were left out, they differ in ${fields}; automap db stale lists them, ${wider}`,
      );
    }
  });
}

function runQuery(given: z.infer<typeof queryOptions>, command: Command): ExitCode {
  const { json, csv } = given;
  if (json && csv) throw new UsageError("--json and --csv exclude each other");
  return withDatabase(given.db, (db) => {
    const trials = queryTrials(db, readTrialFilter(db, given, command));
    if (json) printJson({ trials: trials.map(summarise) });
    else if (csv) print(csvOf(trials.map(summarise)));
    else printTrials(trials);
    return EXIT.ok;
  });
}

async function runShow(id: string, given: z.infer<typeof fileOptions>, here: Here): Promise<ExitCode> {
  const world = await here();
  withDatabase(given.db, (db) => showRecord(db, id, world, given.json ?? false));
  return EXIT.ok;
}

function runCompare(ids: readonly [string, string], given: z.infer<typeof fileOptions>): ExitCode {
  withDatabase(given.db, (db) => compareRecords(db, ids, given.json ?? false));
  return EXIT.ok;
}

async function runStale(given: z.infer<typeof queryOptions>, command: Command, here: Here): Promise<ExitCode> {
  const world = await here();
  return withDatabase(given.db, (db) => {
    const filter = { ...readTrialFilter(db, given, command), stale: { ...world, policy: "exact" as const } };
    const trials = queryTrials(db, filter);
    if (given.json) printJson({ trials: trials.map((t) => ({ ...summarise(t), differs: differencesOf(t, world) })) });
    else printTrials(trials, { title: "differs", of: (t) => differencesOf(t, world).map(printDifference).join("; ") });
    return EXIT.ok;
  });
}
