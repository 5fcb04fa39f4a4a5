/**
 * @file `automap db export|import|merge|verify|prune`: moves records between files, and checks whether a file can be trusted.
 *
 *     automap db export --op conv2d -o conv2d.jsonl
 *     automap db import conv2d.jsonl --db other.db
 *     automap db merge other.db
 *     automap db verify --remeasure 5
 *     automap db prune --until 2026-01-01 --yes
 */

import type { Command } from "commander";
import { z } from "zod";
import { UsageError } from "../../abstraction/error.ts";
import { seededRandom } from "../../abstraction/random.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import {
  type Database,
  exportLines,
  type ImportReport,
  importLines,
  linesOf,
  mergeDatabase,
  openDatabase,
  pruneTrials,
  type Remeasured,
  remeasure,
  shortId,
  verifyDatabase,
} from "../../db/index.ts";
import { counted, printTime } from "../../report/text.ts";
import type { Cli } from "../command.ts";
import { checkWritable, writeLines } from "../files.ts";
import { checkFleetWords, FLEET_OPTIONS } from "../fleet-place.ts";
import { flag, optionalWord, wholeNumber } from "../options.ts";
import {
  counts,
  documentOf,
  EXIT,
  type ExitCode,
  integer,
  partOf,
  print,
  printJson,
  say,
  style,
  text,
} from "../output.ts";
import { fitted } from "../terminal.ts";
import { withDatabase } from "../with-database.ts";
import { addFile, addFilters, addStatus, fileOptions, queryOptions, readTrialFilter } from "./filters.ts";
import type { Here } from "./here.ts";

const exportOptions = queryOptions.extend({ output: optionalWord });
const importOptions = fileOptions.extend({ strict: flag });
const verifyOptions = fileOptions.extend({
  remeasure: text
    .regex(/^[1-9]\d{0,4}$/, { error: "--remeasure must be a positive integer, for example --remeasure 5" })
    .transform(Number)
    .optional(),
  trustImported: flag,
  seed: wholeNumber.optional(),
  fleet: optionalWord,
  fleetKey: optionalWord,
  on: optionalWord,
});
const pruneOptions = queryOptions.extend({
  yes: flag,
  best: flag,
  stale: flag,
});

const rows = counts.describe("by table");
export const takenSchema = documentOf({
  added: rows,
  known: integer.describe("lines whose record was there already"),
  rejected: z.array(z.strictObject({ line: integer, reason: text })),
});
const verifySchema = documentOf({
  checked: rows,
  problems: z.array(z.strictObject({ what: text, why: text })),
  remeasured: z.array(
    z.strictObject({
      id: text,
      verdict: z.enum(["same", "faster", "slower", "fails"]),
      measurement: partOf<Measurement>("of now, seconds"),
    }),
  ),
});
const pruneSchema = documentOf({
  deleted: rows,
  dry: z.boolean().describe("true without --yes: nothing was deleted"),
});

export function registerFiles(db: Cli, here: Here): void {
  addStatus(addFilters(db.command("export")))
    .summary("write records as JSON lines")
    .option("-o, --output <file>", "file to write (default: stdout)")
    .examples(["automap db export --op conv2d -o conv2d.jsonl"])
    .runs(exportOptions, runExport);
  addFile(db.command("import"), takenSchema)
    .summary("take records from JSON lines, each checked; what is wrong is named and left out")
    .argument("<file>", "what automap db export wrote; - is stdin")
    .option("--strict", "import nothing if any line is bad")
    .examples(["automap db import conv2d.jsonl --db automap.db"], "Exit code 1 when a line was rejected.")
    .runs(importOptions, runImport);
  addFile(db.command("merge"), takenSchema)
    .summary("add every record of another database; doing it twice changes nothing")
    .argument("<other>", "a database of automap's; it is only read")
    .examples(["automap db merge laptop.db --db automap.db"])
    .runs(fileOptions, runMerge);
  addFile(db.command("verify"), verifySchema)
    .summary("whether the file is whole and every record what its id says")
    .option("--remeasure <n>", "also measure n trials of this machine again, or of the machines of a fleet")
    .option("--trust-imported", "with --remeasure: also build and run kernels of records that were not measured here")
    .option("--seed <n>", "seed that selects those trials (default 1)")
    .optionsOf(FLEET_OPTIONS)
    .examples(
      [
        "automap db verify --remeasure 5",
        "automap db verify --remeasure 20 --fleet redis://queue.lan --fleet-key desk.key",
      ],
      "Exit code 4 when something is wrong.",
    )
    .runs(verifyOptions, (given) => runVerify(given, here));
  addStatus(addFilters(db.command("prune"), pruneSchema))
    .summary("delete trials for good; the best of each computation stays")
    .option("--stale", "only trials that this machine may not trust")
    .option("--best", "also delete the best trial of a computation")
    .option("--yes", "really delete: without it the trials are only counted")
    .examples(["automap db prune --until 2026-01-01", "automap db prune --status crashed --yes"])
    .runs(pruneOptions, (given, command) => runPrune(given, command, here));
}

function runExport(given: z.infer<typeof exportOptions>, command: Command): ExitCode {
  const { output } = given;
  if (given.json) throw new UsageError("an export is JSON lines already", "leave --json out");
  if (output !== undefined) checkWritable("--output", output);
  return withDatabase(given.db, (db) => {
    const { limit, ...filter } = readTrialFilter(db, given, command);
    if (limit !== undefined)
      throw new UsageError("--limit does not belong to an export", "choose by --since, --op, --status");
    const { extents = {}, ...others } = filter;
    const all = Object.keys(others).length + Object.keys(extents).length === 0;
    const lines = exportLines(db, all ? undefined : filter);
    if (output === undefined) {
      for (const line of lines) print(line);
      return EXIT.ok;
    }
    const count = writeLines("--output", output, ended(lines), true);
    say(`${counted(count, "line")} written: ${output}`);
    return EXIT.ok;
  });
}

function* ended(lines: Iterable<string>): Iterable<string> {
  for (const line of lines) yield `${line}\n`;
}

function runImport(given: z.infer<typeof importOptions>, _command: Command, file: string): ExitCode {
  // A missing file is reported before a database is created for it.
  const lines = linesOf(file === "-" ? "/dev/stdin" : file);
  return withDatabase(
    given.db,
    (db) => concludeImport(importLines(db, lines, { strict: given.strict }), file, given),
    {},
  );
}

function runMerge(given: z.infer<typeof fileOptions>, _command: Command, other: string): ExitCode {
  // An unreadable file is reported before a database is created for it.
  openDatabase(other, { readonly: true }).close();
  return withDatabase(given.db, (db) => concludeImport(mergeDatabase(db, other), other, given), {});
}

/** A number of rows of a table; the table's name is a plural. */
function countOf(table: string, count: number): string {
  return counted(count, table.replace(/s$/, ""));
}

/** Says what an import took and what it refused. */
export function concludeImport(
  report: ImportReport,
  from: string,
  { db, json }: z.infer<typeof fileOptions>,
): ExitCode {
  const { added, known, rejected } = report;
  for (const { line, reason } of rejected) say(`automap: ${from}:${line}: ${reason}`);
  if (json) printJson(takenSchema, { added, known, rejected });
  else {
    const counts = Object.entries(added).flatMap(([name, count]) => (count === 0 ? [] : [countOf(name, count)]));
    print(
      `${db}: ${counts.join(", ") || "nothing new"}; ${known} known already${rejected.length === 0 ? "" : `; ${counted(rejected.length, "line")} rejected`}`,
    );
  }
  return rejected.length === 0 ? EXIT.ok : EXIT.failed;
}

async function runVerify(given: z.infer<typeof verifyOptions>, here: Here): Promise<ExitCode> {
  const { seed, trustImported, fleet } = given;
  const [lone] = Object.entries({ "trust-imported": trustImported, seed, fleet }).find(([, value]) => value) ?? [];
  if (lone !== undefined && given.remeasure === undefined)
    throw new UsageError(`--${lone} is for trials that are measured again`, "add --remeasure 5, or leave it out");
  checkFleetWords(given);
  return withDatabase(given.db, async (db) => {
    const { checked, problems } = verifyDatabase(db);
    const again = given.remeasure === undefined ? [] : await measureAgain(given.remeasure);
    const moved = again.filter((a) => verdictOf(a) !== "same" && verdictOf(a) !== "faster");
    if (given.json)
      printJson(verifySchema, {
        checked,
        problems,
        remeasured: again.map((a) => ({ id: a.trial.id, verdict: verdictOf(a), measurement: a.again })),
      });
    else {
      const rows = Object.entries(checked).map(([name, count]) => countOf(name, count));
      if (problems.length > 0) print(fitted(problems.map(({ what, why }) => [what, why])));
      print(
        `${given.db}: ${rows.join(", ")}; ${problems.length === 0 ? "whole" : style("red", counted(problems.length, "problem"))}`,
      );
      if (again.length > 0) print(fitted(again.map(rowOf)));
    }
    return problems.length === 0 && moved.length === 0 ? EXIT.ok : EXIT.wrong;

    async function measureAgain(count: number): Promise<Remeasured[]> {
      // What compiles and measures is loaded only for this.
      const { remeasurer, remeasurerInFleet } = await import("./remeasure.ts");
      const measuring = given.fleet === undefined ? await remeasurer(here, say) : await remeasurerInFleet(given, say);
      try {
        const filters = measuring.worlds.map((world) => ({ trusted: { ...world, policy: "exact" as const } }));
        const random = seededRandom(given.seed ?? 1);
        const imported = given.trustImported;
        const found = await remeasure(db, { count, filters, random, imported }, measuring.measure);
        if (found.length < count) {
          const others = imported ? "" : "; --trust-imported takes imported ones too";
          say(`automap: ${counted(found.length, "trial")} ${measuring.whose} can be measured again${others}`);
        }
        return found;
      } finally {
        await measuring.close();
      }
    }
  });
}

/** A kernel that is now slower or faster by less than this factor is the same kernel on a machine with more or less to do. */
const DRIFT = 1.1;

function verdictOf({ trial, again }: Remeasured): "same" | "faster" | "slower" | "fails" {
  const before = trial.measurement;
  if (before.status !== "ok" || again.status !== "ok") return "fails";
  if (again.interval[0] > DRIFT * before.interval[1]) return "slower";
  return before.interval[0] > DRIFT * again.interval[1] ? "faster" : "same";
}

function rowOf(remeasured: Remeasured): string[] {
  const { trial, again } = remeasured;
  const before = trial.measurement;
  return [
    shortId(trial.id),
    before.status === "ok" ? printTime(before.median) : before.status,
    "->",
    again.status === "ok" ? printTime(again.median) : again.status,
    verdictOf(remeasured),
    ...(again.worker === undefined ? [] : [`by ${again.worker}`]),
  ];
}

async function runPrune(given: z.infer<typeof pruneOptions>, command: Command, here: Here): Promise<ExitCode> {
  const stale = given.stale ? { ...(await here()), policy: "exact" as const } : undefined;
  const pruned = (db: Database): ExitCode => {
    const { limit, top, sort, ...chosen } = readTrialFilter(db, given, command);
    if (limit !== undefined || top !== undefined || sort !== undefined)
      throw new UsageError(
        "--limit, --top and --sort do not belong to a prune",
        "choose by --until, --status, --op or --stale",
      );
    const { extents = {}, ...others } = chosen;
    if (stale === undefined && Object.keys(others).length + Object.keys(extents).length === 0)
      throw new UsageError(
        "prune deletes what a filter names, and there is none",
        "for example automap db prune --until 2026-01-01, or --status crashed, or --stale",
      );
    const deleted = pruneTrials(
      db,
      { ...chosen, ...(stale ? { stale } : {}) },
      { reason: "automap db prune", best: given.best, dry: !given.yes },
    );
    if (given.json) printJson(pruneSchema, { deleted, dry: !given.yes });
    else {
      const counts = Object.entries(deleted).map(([name, count]) => countOf(name, count));
      print(`${given.db}: ${counts.join(", ")} ${given.yes ? "deleted" : "would go; --yes deletes them"}`);
    }
    return EXIT.ok;
  };
  return withDatabase(given.db, pruned, { existing: true });
}
