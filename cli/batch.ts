/**
 * @file `automap batch export|import`: kernels for a machine without Node or network, in a folder that it measures by itself.
 *
 *     automap batch export conv2d --cpuinfo node7.cpuinfo --out batch
 *     sh batch/run.sh                                    there
 *     automap batch import batch --db automap.db
 */

import { existsSync, readFileSync, rmSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Command } from "commander";
import type { z } from "zod";
import { NotFoundError, UsageError } from "../abstraction/error.ts";
import type { Target } from "../abstraction/machine.ts";
import { noRows } from "../db/facts.ts";
import { type BatchSubject, writeBatch } from "../fleet/batch/make-batch.ts";
import { MOST_KERNELS, RESULTS, readManifest } from "../fleet/batch/manifest.ts";
import { importMeasured, readBatch } from "../fleet/batch/read-batch.ts";
import { withFile } from "../network/onnx/file.ts";
import { describeWorkload, workloadLabel } from "../operators/describe.ts";
import { counted } from "../report/text.ts";
import { sizeText } from "../session/tune/memory.ts";
import { targetOfCpuInfo } from "../targets/index.ts";
import type { Cli } from "./command.ts";
import { concludeImport, takenSchema } from "./db/files.ts";
import { addFile, fileOptions } from "./db/filters.ts";
import { readLayers } from "./layers-file.ts";
import { optionalWord, positiveInteger, readParameters } from "./options.ts";
import { documentOf, EXIT, type ExitCode, integer, print, printJson, say, text } from "./output.ts";
import { addSubjectOptions } from "./subject.ts";
import { readTarget, TARGET_OPTION } from "./target.ts";
import { type TuneWords, tuneOptions } from "./tune.ts";
import { checkThreadsOf, chooseIntrinsics, readChosen } from "./tune-search.ts";
import { withDatabase } from "./with-database.ts";

const KERNELS = 32;
/** What ends an export, and with it the folder that it has begun. */
const STOPS = ["SIGINT", "SIGTERM"] as const;

const exportOptions = tuneOptions.extend({
  out: text.min(1, { error: "--out needs the name of a new folder" }),
  kernels: positiveInteger
    .default(KERNELS)
    .refine((kernels) => kernels <= MOST_KERNELS, { error: `--kernels must be ${MOST_KERNELS} at most` }),
  cpuinfo: optionalWord,
});
const importOptions = fileOptions.extend({ batch: optionalWord });

const exportSchema = documentOf({ folder: text, target: text, problems: integer, kernels: integer, bytes: integer });

export function register(batch: Cli): void {
  batch.examples(["automap batch export conv2d --out batch", "automap batch import batch --db automap.db"]);
  addSubjectOptions(batch.command("export"), "[operator or equation]")
    .json(exportSchema)
    .summary("write a folder of kernels that a machine without Node or network builds, checks and times")
    .requiredOption("--out <folder>", "the folder; it is made")
    .option("--kernels <n>", `kernels of each computation, the most promising by the model (default ${KERNELS})`)
    .option(...TARGET_OPTION)
    .option("--cpuinfo <file>", "for the CPU of which this is a copy of /proc/cpuinfo")
    .option("--layers <file>", "each of the computations of such a file, as automap tune takes it")
    .option("--threads <n>", "threads of a kernel (default 1)")
    .option("--seed <n>", "seed of what is drawn (default 1)")
    .option("--kinds <which>", "mappings onto instructions, designs on vector lanes, or all (default all)")
    .option("--name <name>", "what to call the computation in tables and reports")
    .examples(
      [
        "automap batch export conv2d --c 64 --k 64 --dtype u8s8 --out batch",
        "automap batch export matmul --dtype f16 --target h100 --kernels 64 --out batch",
        "automap batch export --layers layers.yaml --cpuinfo node7.cpuinfo --out batch",
      ],
      "Copy the folder to the machine and run `sh run.sh` in it. It needs a C++ compiler, for a GPU nvcc, and says what it",
      "misses. Stopped, it goes on where it was. Bring results.jsonl back, and import it. Inputs and what kernels must answer",
      "are computed here for a CPU, and lie in the folder; a GPU computes them itself.",
    )
    .runs(exportOptions, runExport);
  addFile(batch.command("import"), takenSchema)
    .summary("take what a batch measured, each result checked; where one is wrong, none is taken")
    .argument("<folder or results>", "the folder with its results.jsonl, or that file")
    .option("--batch <folder>", "the batch that the results are of (default: the folder where they lie)")
    .examples(
      ["automap batch import batch --db automap.db", "automap batch import results.jsonl --batch batch"],
      "Nobody signs results, so they count as imported: automap db shows them and names their machine, a search does not take",
      "them for its own, and their kernels are built here with --trust-imported only.",
    )
    .runs(importOptions, runImport);
}

type ExportWords = z.infer<typeof exportOptions>;

async function runExport(given: ExportWords, command: Command, subject: string | undefined): Promise<ExitCode> {
  const { layers, out, kernels } = given;
  if (layers === undefined && subject === undefined)
    command.error("error: missing required argument 'operator or equation'");
  if (layers !== undefined && subject !== undefined)
    throw new UsageError(
      `--layers names a file of computations, and ${subject} stands beside it`,
      "leave one of them out",
    );
  const machine = await machineOf(given);
  const subjects =
    layers === undefined
      ? [subjectOf(subject ?? "", readParameters(command), given, machine)]
      : readLayers(layers, given).map((layer) => subjectOf(layer.subject, layer.parameters, layer.given, machine));
  const isThere = existsSync(out);
  const onStop = (): void => {
    if (!isThere) rmSync(out, { recursive: true, force: true });
    process.exit(EXIT.interrupted);
  };
  for (const signal of STOPS) process.once(signal, onStop);
  const made = await writeBatch(out, subjects, { machine, kernels, announce: say }).finally(() => {
    for (const signal of STOPS) process.off(signal, onStop);
  });
  if (given.json) printJson(exportSchema, { folder: out, target: machine.name, ...made });
  else
    print(
      `${out}: ${counted(made.kernels, "kernel")} of ${counted(made.problems, "computation")} for ${machine.name}, ${sizeText(made.bytes)}; sh run.sh in it measures them there`,
    );
  return EXIT.ok;
}

/** The machine that measures. */
function machineOf({ target, cpuinfo, threads = 1 }: ExportWords): Promise<Target> | Target {
  if (cpuinfo === undefined) return readTarget(target, { threads });
  if (target !== undefined) throw new UsageError("--cpuinfo and --target exclude each other", "each names the machine");
  const machine = targetOfCpuInfo(withFile(cpuinfo, cpuinfo, (handle) => readFileSync(handle, "utf8")));
  if (machine.isa.length > 0) return machine;
  throw new UsageError(`${cpuinfo} names no feature of a CPU`, "make it on that machine: cat /proc/cpuinfo > FILE");
}

function subjectOf(
  subject: string,
  parameters: Record<string, number>,
  given: TuneWords,
  machine: Target,
): BatchSubject {
  const { threads = 1, seed, kinds, name } = given;
  checkThreadsOf(given, machine, true);
  const chosen = readChosen(subject, parameters, given);
  return {
    ...chosen,
    label: workloadLabel(describeWorkload(chosen)),
    intrinsics: chooseIntrinsics(given.intrinsic, machine, undefined),
    threads,
    seed,
    kinds,
    name,
  };
}

async function runImport(given: z.infer<typeof importOptions>, _command: Command, path: string): Promise<ExitCode> {
  const isFolder = statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
  const results = isFolder ? join(path, RESULTS) : path;
  if (isFolder && !existsSync(results)) {
    await readManifest(path);
    throw new NotFoundError(`${path} has no results yet`, "run sh run.sh in it, on the machine that measures");
  }
  // What is refused is told before a database is created for it.
  const measured = await readBatch(given.batch ?? (isFolder ? path : dirname(path)), results);
  const { rejected } = measured;
  if (rejected.length > 0) return concludeImport({ added: noRows(), known: 0, rejected }, results, given);
  return withDatabase(given.db, (db) => concludeImport(importMeasured(db, measured), results, given), {});
}
