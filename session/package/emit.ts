/**
 * @file Writes the package of a record to disk: regenerates the kernel, records its provenance, writes the files, and tests them.
 *
 *     const trial = showTrial(db, "3f9a1c77");
 *     writePackage("conv2d", sealedPackage(packageFiles(subjectOf(trial))));
 *     await provePackage("conv2d", "conv2d", compiler);        builds it and runs its own test
 */

import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Computation } from "../../abstraction/computation.ts";
import { automapCommand, EnvironmentError, NotFoundError, UsageError } from "../../abstraction/error.ts";
import { EXIT } from "../../abstraction/exit-codes.ts";
import { LANGUAGES } from "../../abstraction/kernel.ts";
import { day } from "../../abstraction/text.ts";
import { computationOf, DEFAULT_DATABASE, databaseWords, shortId, type TrialRecord } from "../../db/index.ts";
import {
  type Build,
  type BuildStep,
  type BuildSubject,
  buildOf,
  cudaBuildOf,
  type EmitSubject,
  type GpuFacts,
  packageName,
} from "../../package/index.ts";
import { type ChildRun, explainRun, runChild } from "../../runtime/child.ts";
import type { Compiler } from "../../runtime/compiler.ts";
import { type CoreOptions, type Cores, coresOf } from "../../runtime/cores.ts";
import { findArmTools } from "../../runtime/cross.ts";
import { toolProblem } from "../../runtime/environment.ts";
import { compiledBehindHeaders, type HeaderOptions } from "../../runtime/headers.ts";
import { architectureOf } from "../../targets/features.ts";
import { capabilityOf, gpuTargetNamed } from "../../targets/gpu.ts";
import { kernelOfRecord } from "../kinds/kernel.ts";
import { MADE_BY } from "../version.ts";

/**
 * The contents of a record's package.
 * @param name name of files and functions; the operator's when left out
 * @param database the database that holds the record, for the command that reproduces the package; the declaration options follow it
 * @throws UsageError when the record is of a failed trial, or of a GPU whose architecture nvcc cannot be given
 */
export function subjectOf(
  trial: TrialRecord,
  {
    name,
    database = DEFAULT_DATABASE,
    declared = [],
  }: { readonly name?: string | undefined; readonly database?: string; readonly declared?: readonly string[] } = {},
): EmitSubject {
  const { measurement, workload, environment, conditions } = trial;
  const id = shortId(trial.id);
  if (measurement.status !== "ok" && measurement.status !== "emulated")
    throw new NotFoundError(
      `trial ${id} ended as ${measurement.status}: there is no kernel to use`,
      `${automapCommand("db", "show", id, databaseWords(database))} has its log; ${automapCommand("db", "best", databaseWords(database))} lists what worked`,
    );
  const computation = computationOf(workload);
  const tuned = kernelOfRecord(trial);
  if (tuned.language !== "c++" && tuned.language !== "cuda")
    throw new UsageError(
      `trial ${id} is a kernel in ${LANGUAGES[tuned.language].called}, of which no packages are written`,
      `its text alone: ${automapCommand("emit", id, "--to", `kernel${LANGUAGES[tuned.language].ending}`, databaseWords(database), declared)}`,
    );
  if (computation.program)
    throw new UsageError(
      `trial ${id} computes ${computation.program.parts.length} steps of a network in one kernel`,
      `${automapCommand("network", "emit", "MODEL", "--to", "DIR", databaseWords(database))} writes the network with it`,
    );
  const chosen = packageName(workload.operator, name);
  const us = (seconds: number): string => `${(seconds * 1e6).toFixed(2)} us`;
  const imported = trial.provenance === "here" ? "" : "imported, ";
  return {
    name: chosen,
    computation,
    tuned,
    threads: conditions.threads,
    record: trial.id,
    ...(tuned.language === "cuda" && { gpu: gpuFactsOf(trial) }),
    provenance: [
      `record    ${id}, ${imported}${measurement.status === "ok" ? "measured" : "emulated"} ${day(trial.at)} on ${environment.cpu} with ${environment.compiler.version}`,
      measurement.status === "ok"
        ? `          ${us(measurement.median)} a call (95 % within ${us(measurement.interval[0])} to ${us(measurement.interval[1])}), threads ${conditions.threads}, cache ${conditions.cache}`
        : `          not timed, threads ${conditions.threads}${trial.prediction ? `; the model expects ${us(trial.prediction.seconds)} a call` : ""}`,
      `remake    ${automapCommand("emit", id, "--to", "DIR", name === undefined ? undefined : ["--name", name], databaseWords(database), declared)}`,
      MADE_BY,
    ],
  };
}

/** @throws UsageError if compilers have no architecture name for the record's GPU */
function gpuFactsOf({ id, workload, environment }: TrialRecord): GpuFacts {
  const { operator: name, parameters } = workload;
  const target = gpuTargetNamed(environment.target);
  if (!target)
    throw new UsageError(
      `trial ${shortId(id)} was measured on ${environment.target}, for which nvcc has no name here`,
      "--to kernel.cu writes the text of its kernel alone",
    );
  return { capability: capabilityOf(target), operator: { name, parameters } };
}

/** A package of the equation alone, without a tuned kernel. */
export function portableSubject(computation: Computation, name?: string): EmitSubject {
  return {
    name: packageName(computation.name, name),
    computation,
    threads: 1,
    provenance: ["portable code only: no tuned kernel", MADE_BY],
  };
}

/** Names of the files that the package's library is compiled from. */
export function sourceNames({ name, tuned }: Pick<EmitSubject, "name"> & { readonly tuned?: unknown }): string[] {
  return [`${name}.h`, `${name}.cpp`, `${name}_portable.cpp`, ...(tuned ? [`${name}_tuned.cpp`] : [])];
}

export type Proof =
  | { readonly status: "right" | "wrong"; readonly said: string }
  | { readonly status: "not built" | "not tried"; readonly said: string };

/** Plain loops take seconds for a layer of a network, and minutes for the largest layers of the suites. */
const PROOF_LIMIT_MS = 900_000;

/**
 * Builds a package in place and runs its test. A package for Arm is tested on any machine that has an Arm compiler and qemu.
 * @throws EnvironmentError when the failure is the machine's, not the package's
 */
export async function provePackage(
  folder: string,
  subject: BuildSubject,
  compiler: Compiler,
  options: CoreOptions = {},
): Promise<Proof> {
  const proved = { build: buildOf(subject), threads: subject.threads };
  if (architectureOf(subject.features ?? []) !== "arm") return proveBuild(folder, proved, compiler, options);
  const tools = await findArmTools();
  if (tools.status === "environment") throw new EnvironmentError(tools);
  return proveBuild(folder, { ...proved, emulator: tools.emulator }, tools.compiler, options);
}

/** The same for a CUDA package. @param nvcc the compiler to use */
export function proveCudaPackage(
  folder: string,
  subject: EmitSubject,
  nvcc: string,
  options: CoreOptions = {},
): Promise<Proof> {
  const proved = { build: cudaBuildOf(subject), threads: 1 };
  return proveBuild(folder, proved, { command: [nvcc] }, options);
}

interface Proved {
  readonly build: Build;
  readonly threads: number;
  /** Emulator that runs the test when this machine cannot. */
  readonly emulator?: readonly string[];
}

async function proveBuild(
  folder: string,
  { build, threads, emulator = [] }: Proved,
  compiler: Pick<Compiler, "command">,
  options: CoreOptions,
): Promise<Proof> {
  const { objects, library, test } = build;
  const cores = coresOf(options);
  mkdirSync(join(folder, "build"), { recursive: true });
  for (const steps of [objects, [library, test]]) {
    const problem = await compileInFolder(folder, steps, compiler, cores);
    if (problem !== undefined) return { status: "not built", said: problem };
  }
  const run = await cores.working(
    (cpus) => runChild([...emulator, join(folder, test.output)], { timeLimitMs: PROOF_LIMIT_MS, cpus }),
    threads,
  );
  const fault = toolProblem(run, "proving");
  if (fault) throw fault;
  const said = `${run.stdout}${run.stderr}`.trimEnd();
  if (run.status === "ok") return { status: "right", said };
  if (run.status === "failed" && run.exitCode === EXIT.wrong) return { status: "wrong", said };
  // A kernel that crashes in its own test is wrong, whatever the signal.
  if (run.status === "crashed") return { status: "wrong", said: `${said}\n${explainRun(run)}`.trimStart() };
  return { status: "not tried", said: `${explainRun(run)}\n${said}` };
}

const COMPILE_LIMIT_MS = 120_000;

export interface FolderOptions {
  readonly headers?: Pick<HeaderOptions, "compiler" | "workdir">;
  /** Called after each step with the number of those that are done. */
  readonly onBuilt?: (done: number, of: number) => void;
}

/**
 * Runs independent build steps in parallel in the package's folder.
 * @param cores cores to run on; waits for those that a search is measuring on
 * @param options.headers the version of the compiler and a folder, to read system headers in less time (headers.ts)
 * @returns the compiler's output when a step failed
 * @throws EnvironmentError when the failure is the machine's: no disk space, no memory, no assembler
 */
export async function compileInFolder(
  folder: string,
  steps: readonly BuildStep[],
  compiler: Pick<Compiler, "command">,
  cores: Pick<Cores, "working">,
  { headers, onBuilt }: FolderOptions = {},
): Promise<string | undefined> {
  const timeLimitMs = COMPILE_LIMIT_MS;
  let built = 0;
  const runs = await Promise.all(
    steps.map(({ flags, sources, output }) =>
      cores.working(async (cpus) => {
        const compile = (first: readonly string[]): Promise<ChildRun> => {
          const command = [...compiler.command, ...first, ...flags, ...sources, "-o", output];
          return runChild(command, { timeLimitMs, cwd: folder, cpus });
        };
        const [source = ""] = sources;
        const behind = headers && flags.includes("-c") && { ...headers, timeLimitMs, cpus };
        const run = behind
          ? await compiledBehindHeaders(readFileSync(join(folder, source), "utf8"), flags, behind, compile)
          : await compile([]);
        onBuilt?.(++built, steps.length);
        return run;
      }),
    ),
  );
  const failed = runs.find((run) => run.status !== "ok");
  const problem = failed && toolProblem(failed, "compiling");
  if (problem) throw problem;
  return failed && `${explainRun(failed)}\n${failed.stderr}`.trimEnd();
}
