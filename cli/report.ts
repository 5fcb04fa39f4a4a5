/**
 * @file `automap report`: the contents of a database as one HTML page that needs no server and no network.
 *
 *     automap report --db automap.db -o report.html
 *     automap report --op conv2d --dtype u8s8 -o - > page.html
 *     automap report --db before.db --compare after.db
 *     automap report --network resnet18 --db networks.db -o resnet18.html
 */

import { resolve } from "node:path";

import { z } from "zod";
import { defined, unique } from "../abstraction/collections.ts";
import { automapCommand, NotFoundError, UsageError } from "../abstraction/error.ts";
import { databaseWords, operatorsIn, showRun } from "../db/index.ts";
import { reportPage } from "../report/page.ts";
import { gatherReport } from "../session/report/report.ts";
import type { Cli } from "./command.ts";
import { readOperator, readTypes } from "./db/filters.ts";
import { checkWritable, writeOutput } from "./files.ts";
import { collect, databaseFile, optionalFlag, optionalText, positiveInteger, unexpected } from "./options.ts";
import { EXIT, type ExitCode, print, say, text, texts } from "./output.ts";
import { withDatabase } from "./with-database.ts";

const options = z.object({
  db: databaseFile,
  output: text.min(1).default("report.html"),
  op: optionalText,
  dtype: optionalText,
  run: z.array(text.min(1)).optional(),
  compare: text.min(1, "--compare must name a database").optional(),
  network: text.min(1, "--network must name a model").optional(),
  target: text.min(1, "--target must name a machine").optional(),
  dim: texts.optional(),
  constant: texts.optional(),
  threads: positiveInteger.optional(),
  exact: optionalFlag,
});
type Options = z.infer<typeof options>;

export function register(command: Cli): void {
  command
    .option("--db <file>", "the database (default: automap.db in this directory)")
    .option("-o, --output <file>", "file to write; - for stdout (default: report.html)")
    .option("--op <operator>", "only this operator, by name or alias")
    .option("--dtype <types>", "only these types of the inputs: f16, u8s8")
    .option("--run <id>", "only this run; repeat it to compare runs with the first", collect)
    .option("--compare <file>", "beside another database: the fastest run of each workload in both")
    .option(
      "--network <model>",
      "the report of a network instead: a file, model.onnx, or one that is built here: resnet18",
    )
    .option("--dim <name=size>", "with --network: size of a dimension that the model leaves open", collect)
    .option("--constant <name=file>", "with --network: a tensor (.pb) for an input that never changes", collect)
    .option(
      "--target <machine>",
      "of the network: native (this CPU, the default), cuda (the GPU here), or a GPU by name",
    )
    .option("--threads <n>", "with --network: threads of each kernel (default 1)")
    .option("--exact", "with --network: no convolution by fewer multiplications (Winograd)")
    .examples(
      [
        "automap report -o report.html",
        "automap report --op conv2d --dtype u8s8 --db automap.db -o conv2d.html",
        "automap report --run d731c22881a0 --run 3ba774d9c87a -o compared.html",
        "automap report --db before.db --compare after.db -o compared.html",
        "automap report --network resnet18 --db networks.db -o resnet18.html",
      ],
      "The page is one file that fetches nothing: it can be mailed, archived and printed.",
      "Its tables sort, and its trials can be saved from it as CSV and JSON.",
    )
    .allowExcessArguments()
    .runs(options, (given, command) => {
      const [stray] = command.args;
      if (stray !== undefined)
        throw unexpected(
          stray,
          command,
          "-o names the page, and --db the database: automap report --db automap.db -o report.html",
        );
      return report(given);
    });
}

async function report({
  db: file,
  output,
  op,
  dtype,
  run,
  compare,
  network,
  ...ofNetwork
}: Options): Promise<ExitCode> {
  if (output !== "-") checkWritable("--output", output);
  const [stray] = Object.keys(defined(network === undefined ? ofNetwork : { op, dtype, run, compare }));
  if (stray !== undefined)
    throw new UsageError(
      `--${stray} is of ${network === undefined ? "the report of a network" : "the report of a database"}`,
      network === undefined ? "name the network: --network resnet18" : "leave out --network, or this option",
    );
  if (network !== undefined) {
    const { networkReport } = await import("./report-network.ts");
    const { target = "native", dim = [], constant = [], threads = 1, exact = false } = ofNetwork;
    return deliver(output, await networkReport({ network, db: file, target, dim, constant, threads, exact }));
  }
  if (run && compare !== undefined)
    throw new UsageError(
      "--run and --compare do not go together: the first compares runs of one database, the second two databases",
      "leave out one of them",
    );
  if (compare !== undefined && resolve(compare) === resolve(file))
    throw new UsageError(`--compare ${compare}: that is the database itself`, "name another one: --compare before.db");
  return withDatabase(file, async (db) => {
    const filter = defined({
      operator: op === undefined ? undefined : readOperator(op, operatorsIn(db)),
      dtype: dtype === undefined ? undefined : readTypes(dtype),
      runs: run && unique(run.map((id) => showRun(db, id).id)),
    });
    const data =
      compare === undefined
        ? gatherReport(db, filter, Date.now())
        : withDatabase(compare, (other) => gatherReport(db, filter, Date.now(), other));
    if (data.subjects.length === 0 && (op ?? dtype) !== undefined)
      throw new NotFoundError(
        `${file} holds no trial that matches: nothing was written`,
        `leave out --${op === undefined ? "dtype" : "op"}; ${automapCommand("db", "query", databaseWords(file))} lists what there is`,
      );
    if (data.subjects.length === 0) say("automap: no trial matches; the page says so");
    return deliver(output, reportPage(data));
  });
}

function deliver(output: string, page: string): ExitCode {
  if (output === "-") print(page.trimEnd());
  else {
    writeOutput("--output", output, page);
    say(`written: ${output}, ${(page.length / 1024).toFixed(0)} KiB`);
  }
  return EXIT.ok;
}
