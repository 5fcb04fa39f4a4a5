/**
 * @file `automap report`: what a database holds as one HTML page that needs no server and no network.
 *
 *     automap report --db automap.db -o report.html
 *     automap report --op conv2d --dtype u8s8 -o - > page.html
 */

import type { Command } from "commander";
import { z } from "zod";
import { DEFAULT_DATABASE, operatorsIn, showRun } from "../db/index.ts";
import { reportPage } from "../report/page.ts";
import { gatherReport } from "../session/report.ts";
import { readOperator, readTypes } from "./db/filters.ts";
import { checkWritable, writeOutput } from "./files.ts";
import { parseOptions } from "./options.ts";
import { EXIT, type ExitCode, print, say } from "./output.ts";
import { withDatabase } from "./with-database.ts";

const options = z.object({
  db: z.string().min(1).default(DEFAULT_DATABASE),
  output: z.string().min(1).default("report.html"),
  op: z.string().optional(),
  dtype: z.string().optional(),
  run: z.array(z.string().min(1)).optional(),
});
type Options = z.infer<typeof options>;

export function registerReport(command: Command, finish: (code: ExitCode) => void): void {
  command
    .option("--db <file>", "the database (default: automap.db in this directory)")
    .option("-o, --output <file>", "where to write it; - for stdout (default: report.html)")
    .option("--op <operator>", "only this operator, by name or alias")
    .option("--dtype <types>", "only these types of the inputs: f16, u8s8")
    .option(
      "--run <id>",
      "only this run; given again, runs beside the first one",
      (id: string, before: readonly string[] = []) => [...before, id],
    )
    .addHelpText(
      "after",
      [
        "",
        "Examples:",
        "  automap report -o report.html",
        "  automap report --op conv2d --dtype u8s8 --db automap.db -o conv2d.html",
        "  automap report --run d731c22881a0 --run 3ba774d9c87a -o compared.html",
        "",
        "The page is one file that fetches nothing: it can be mailed, archived and printed.",
        "Its tables sort, and its trials can be saved from it as CSV and JSON.",
      ].join("\n"),
    )
    .action(async (raw: unknown) => finish(await report(parseOptions(options, raw))));
}

async function report({ db: file, output, op, dtype, run }: Options): Promise<ExitCode> {
  if (output !== "-") checkWritable("--output", output);
  return withDatabase(file, async (db) => {
    const filter = {
      ...(op === undefined ? {} : { operator: readOperator(op, operatorsIn(db)) }),
      ...(dtype === undefined ? {} : { dtype: readTypes(dtype) }),
      ...(run === undefined ? {} : { runs: [...new Set(run.map((id) => showRun(db, id).id))] }),
    };
    const data = gatherReport(db, filter, Date.now());
    if (data.subjects.length === 0) say("automap: no trial matches; the page says so");
    const page = reportPage(data);
    if (output === "-") {
      print(page.trimEnd());
      return EXIT.ok;
    }
    writeOutput("--output", output, page);
    say(`written: ${output}, ${(page.length / 1024).toFixed(0)} KiB`);
    return EXIT.ok;
  });
}
