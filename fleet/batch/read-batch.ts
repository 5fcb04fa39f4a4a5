/**
 * @file Takes what a batch measured into a database. Results come unsigned, so they are claims: each is held against the manifest, read as the
 * answers of the measuring program are at home, and imported as the records of somebody else are. One that is wrong refuses all.
 *
 *     const measured = await readBatch("batch", "batch/results.jsonl");
 *     importMeasured(db, measured)                             { added: { trials: 64, ... }, known: 0, rejected: [] }
 */

import { z } from "zod";
import { UsageError } from "../../abstraction/error.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import { COLUMNS } from "../../db/columns.ts";
import type { Row, Table } from "../../db/facts.ts";
import { type Database, type Environment, type ImportReport, importLines, linesOf } from "../../db/index.ts";
import { line } from "../../db/parse-text.ts";
import { NO_NODE } from "../../db/record.ts";
import { environmentRowOf, rowHeld, trialRowOf, workloadOf } from "../../db/rows.ts";
import { linesOfRows } from "../../db/transfer.ts";
import { Answers } from "../../runtime/harness/run.ts";
import { toMeasurement } from "../../runtime/run/cuda.ts";
import { complaintOf, refusalIn } from "../../runtime/run/cuda-build.ts";
import { gpusIn } from "../../runtime/run/cuda-device.ts";
import { gpuEnvironment } from "../../session/calibrate/environment.ts";
import { gpuTargetOf, parseCpuInfo } from "../../targets/index.ts";
import { sha256 } from "../jobs.ts";
import { jsonOf, type Manifest, readManifest } from "./manifest.ts";

const { trials } = COLUMNS;

/** What run.sh says of the machine. */
const machineSchema = z.strictObject({
  kind: z.literal("machine"),
  version: z.literal(1),
  /** The hash of the manifest. */
  batch: sha256,
  name: trials.worker.holds,
  /** Of `uname`: the system, its release, the processors. */
  system: z.tuple([line, line, line]),
  /** The compiler's path, its version, and further words of its command, or variables that it takes options from. */
  compiler: z.tuple([line, line]).rest(line),
  cpuinfo: z.array(z.string().max(16_384)).max(8),
  processors: z.int().positive().max(65_536),
  /** Bytes of scalable vectors; 0 where there are none. */
  vectors: z.int().nonnegative().max(256),
  /** What nvidia-smi says of the GPU, and the version of CUDA that the driver runs. */
  gpu: z.array(line).max(2),
});
type Machine = z.infer<typeof machineSchema>;

const texts = z.array(z.string()).max(1000);
/** What run.sh says of a kernel. */
const resultSchema = z.strictObject({
  kind: z.literal("result"),
  problem: z.int().nonnegative(),
  kernel: sha256,
  at: trials.at.holds,
  cpus: trials.affinity.holds,
  instructions: trials.instructions.holds,
  compiled: z.boolean(),
  /** Of the measuring program. */
  answers: texts,
  /** Of the compiler. */
  log: texts,
});
type Result = z.infer<typeof resultSchema>;

/** Of the bootstrap, as at home. */
const SEED = 1;

/** The records that results make, or what is wrong with some of them. */
export interface Measured {
  /** Rows in the order of an export: what trials refer to, then the trials in the order of the results. */
  readonly rows: readonly (readonly [table: Table, row: Row])[];
  readonly rejected: ImportReport["rejected"];
}

/**
 * Reads the results of a batch, and says of each that is wrong why.
 * @param folder the batch, as it was exported or with its results
 * @throws UsageError for a folder that is no batch or was altered, and for results of another one
 */
export async function readBatch(folder: string, results: string): Promise<Measured> {
  const lines = linesOf(results);
  const { manifest, id } = await readManifest(folder);
  const [first, ...told] = withinLimits(lines, results, manifest);
  const machine = machineSchema.safeParse(first === undefined ? undefined : jsonOf(first)).data;
  if (!machine)
    throw new UsageError(`${results} is refused: its first line tells of no machine`, "take what run.sh wrote");
  if (machine.batch !== id)
    throw new UsageError(`${results} is of another batch`, "--batch names the folder that it was measured from");
  const environment = environmentRowOf(environmentOf(machine, manifest));
  const known = new Set<string>();
  const workloads = new Map<number, Row>();
  const measured: Row[] = [];
  const rejected: { line: number; reason: string }[] = [];
  for (const [at, text] of told.entries())
    try {
      const result = resultOf(text);
      const key = `${result.problem} ${result.kernel}`;
      if (known.has(key)) throw new UsageError("it is the second result of its kernel");
      known.add(key);
      const { problem, kernel } = entryOf(manifest, result);
      const workload = rowHeld(problem.workload);
      workloads.set(result.problem, workload);
      const measurement = measurementOf(kernel, result, manifest);
      measured.push(
        trialRowOf({
          candidate: kernel.candidate,
          prediction: kernel.prediction,
          intrinsic: kernel.candidate.intrinsic,
          declaration: kernel.declaration,
          measurement: { ...measurement, worker: machine.name },
          at: result.at,
          workload: workloadOf(workload, results).id,
          environment: String(environment["id"]),
          run: undefined,
          conditions: { threads: problem.threads, cache: "warm" },
          finals: undefined,
        }),
      );
    } catch (error) {
      if (!(error instanceof UsageError)) throw error;
      rejected.push({ line: at + 2, reason: error.message });
    }
  if (told.length === 0)
    throw new UsageError(`${results} holds no results yet`, "run run.sh, which goes on where it was");
  const inTable = (table: Table) => (row: Row) => [table, row] as const;
  const rows = [
    inTable("environments")(environment),
    ...[...workloads.values()].map(inTable("workloads")),
    ...measured.map(inTable("trials")),
  ];
  return { rows, rejected };
}

/** Imports what results without a wrong one made: all of it, or nothing where the database refuses a part. */
export function importMeasured(db: Database, { rows }: Pick<Measured, "rows">): ImportReport {
  const report = importLines(db, linesOfRows(rows), { strict: true });
  // Behind the header and what they refer to, trials stand as their results do behind the machine.
  const before = rows.filter(([table]) => table !== "trials").length;
  return {
    ...report,
    rejected: report.rejected.map(({ line: at, reason }) => ({ line: Math.max(1, at - before), reason })),
  };
}

/** The lines of results. @throws UsageError for more than there are kernels */
function withinLimits(lines: Iterable<string>, results: string, { problems }: Manifest): string[] {
  const most = 1 + problems.reduce((sum, { kernels }) => sum + kernels.length, 0);
  const found: string[] = [];
  for (const text of lines) {
    if (found.length === most)
      throw new UsageError(
        `${results} is refused: it has more results than its batch has kernels`,
        "take what run.sh wrote",
      );
    found.push(text);
  }
  return found;
}

function resultOf(text: string): Result {
  const found = jsonOf(text);
  if (found === undefined) throw new UsageError("it is not JSON, or too long");
  const read = resultSchema.safeParse(found);
  if (read.success) return read.data;
  const [issue] = read.error.issues;
  throw new UsageError(`it is no result: ${issue?.path.join(".") || "the line"}: ${issue?.message}`);
}

type Problem = Manifest["problems"][number];

function entryOf(
  { problems }: Manifest,
  { problem: at, kernel: hash }: Result,
): { problem: Problem; kernel: Problem["kernels"][number] } {
  const problem = problems[at];
  const kernel = problem?.kernels.find(({ source }) => source === hash);
  if (problem && kernel) return { problem, kernel };
  throw new UsageError(`its kernel ${hash.slice(0, 12)} is none of problem ${at} of this batch`);
}

function environmentOf(
  { system, compiler, cpuinfo, processors, vectors, gpu }: Machine,
  { automap, flags, ending }: Manifest,
): Environment {
  const [name, release, architecture] = system;
  const [path, version, ...words] = compiler;
  const software = {
    compiler: { path, version, flags: [...words, ...flags] },
    // As Node calls them.
    kernel: `${name} ${release} ${architecture.replace("x86_64", "x64").replace("aarch64", "arm64")}`,
    node: NO_NODE,
    automap,
  };
  if (ending === "cu") {
    const [told = "", cuda] = gpu;
    const [device] = gpusIn(told, cuda);
    if (!device) throw new UsageError("the results tell of no GPU that is known", "take what run.sh wrote");
    return {
      ...gpuEnvironment({ ...device, nvcc: { path, version }, disassembler: "" }, gpuTargetOf(device)),
      ...software,
    };
  }
  const cpu = parseCpuInfo(cpuinfo.join("\n"), vectors);
  return { target: cpu.name, cpu: cpu.name, cores: processors, isa: cpu.isa, ...software };
}

/** What the measuring program answered, as a measurement. @throws UsageError when it is none */
function measurementOf({ promises }: Problem["kernels"][number], result: Result, { ending }: Manifest): Measurement {
  const { instructions, compiled, answers, cpus } = result;
  const log = result.log.join("\n");
  const isCuda = ending === "cu";
  if (!compiled) return { status: isCuda ? refusalIn(log) : "compile-failed", log };
  const complaint = isCuda ? complaintOf(log) : undefined;
  if (complaint) return complaint;
  if (promises !== undefined && instructions === 0)
    return { status: "missing-instruction", log: `the code of the kernel does not hold ${promises}` };
  const heard = new Answers();
  for (const answer of answers) heard.hear(answer);
  const problem = heard.conclude(0, null, 0);
  if (problem) throw new UsageError(`its answers are none of a kernel: ${problem.message}`);
  const { verdicts, load } = heard.reply("");
  const verdict = verdicts.get(0);
  if (!verdict) throw new UsageError("its answers hold no verdict");
  if (verdict.status === "timed" && !trials.samples.holds.safeParse(verdict.samples).success)
    throw new UsageError("its samples are no times of a kernel: 1 to 10000 numbers of seconds");
  return { ...toMeasurement(verdict, instructions, SEED), ...(!isCuda && { ran: { cpus, load } }) };
}
