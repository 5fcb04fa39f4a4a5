/**
 * @file Computes the expected outputs of an equation with a compiled program: the same numbers as `interpret`, a
 * hundred times as fast.
 *
 *     await interpretCompiled(conv2d, inputs, { compiler, workdir })      Float64Array, row-major
 *
 * Inputs are padded with their borders, and several outputs are summed together, each in its own order. The interpreter
 * remains the oracle; a test checks that the two agree.
 */

import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { type Computation, inputsOf, targetOf } from "../../abstraction/computation.ts";
import { partsOf, together } from "../../abstraction/epilogue.ts";
import { internal, UsageError } from "../../abstraction/error.ts";
import type { Values } from "../../abstraction/evaluate.ts";
import type { Inputs } from "../../abstraction/interpret.ts";
import { compilerFlags, nativeTarget } from "../../targets/index.ts";
import { explainRun, runChild } from "../child.ts";
import { type CompileOptions, compileSource } from "../compiler.ts";
import { onThisMachine, toolProblem } from "../environment.ts";
import { type ReferenceProgram, valuesSource } from "./drawn-source.ts";

/**
 * Without contraction of a*b + c or reordering: every operation rounds as written. Where g++ 12 makes a vector of two neighbours, it leaves out that
 * they are rounded to f32.
 */
const FLAGS = ["-O3", "-std=c++17", "-ffp-contract=off", "-fwrapv", "-fno-tree-slp-vectorize", "-pthread"];
/** Vector features for the program. Every compiler knows these, unlike some other features of a machine. */
const VECTORS: ReadonlySet<string> = new Set(["avx2", "avx512f"]);

export interface ProgramOptions extends Omit<CompileOptions, "flags"> {
  /** The limit for the run, without the compilation. */
  readonly runLimitMs?: number;
}

const RUN_LIMIT_MS = 600_000;

/**
 * The output of a computation, row-major, as {@link interpret} gives it.
 * @throws EnvironmentError if the machine lacks disk space or memory; UsageError if the program exceeds the time limit
 */
export function interpretCompiled(computation: Computation, inputs: Inputs, options: ProgramOptions): Promise<Values> {
  return onThisMachine("computing what kernels must answer", () => compileAndInterpret(computation, inputs, options));
}

async function compileAndInterpret(given: Computation, values: Inputs, options: ProgramOptions): Promise<Values> {
  const { sum, epilogue, beside } = partsOf(given);
  if (epilogue) {
    const sums = await interpretCompiled(sum, values, options);
    const finished = await interpretCompiled(epilogue, { ...values, [targetOf(sum).name]: sums }, options);
    return together(finished, await Promise.all(beside.map((other) => interpretCompiled(other, values, options))));
  }
  const read = inputsOf(given).map(({ name }) => [name, values[name]] as const);
  return valuesOfProgram(given, valuesSource(given), read, options);
}

/**
 * What a program makes of files of doubles.
 * @param inputs of the computation by name, in the order of the program's arguments
 */
export async function valuesOfProgram(
  computation: Computation,
  source: ReferenceProgram,
  inputs: readonly (readonly [name: string, values: ArrayLike<number> | undefined])[],
  options: ProgramOptions,
): Promise<Values> {
  const program = await compiledReference(computation, source, options);
  const folder = await mkdtemp(join(options.workdir, `reference-${process.pid}-`));
  try {
    const files = await Promise.all(
      inputs.map(async ([name, values], i) => {
        if (values === undefined) throw new Error(`${computation.name}: no values for tensor "${name}"`);
        const file = join(folder, `input-${i}.f64`);
        await writeFile(file, bytesOf(values));
        return file;
      }),
    );
    const answer = join(folder, "answer.f64");
    const doing = "computing what kernels must answer";
    await runReference(computation, doing, options, (threads) => [...program, `${threads}`, ...files, answer]);
    const { buffer, byteOffset, byteLength } = await readFile(answer);
    return new Float64Array(buffer.slice(byteOffset, byteOffset + byteLength));
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** The beginning of a command that computes expected results: the file of the program, and its sizes. */
export async function compiledReference(
  { name }: Computation,
  { source, sizes }: ReferenceProgram,
  options: ProgramOptions,
): Promise<readonly string[]> {
  const program = await compileSource(source, programFlags(), ".out", options);
  if (program.status === "compiled") return [program.file, ...sizes.map(String)];
  internal(`the reference of ${name} does not compile\n${program.log}`);
}

/** Runs it on all free cores, and returns what it prints. */
export async function runReference(
  computation: Computation,
  doing: string,
  options: ProgramOptions,
  command: (threads: number) => readonly string[],
): Promise<string> {
  const run = await onFreeCores(options.cores, (threads, cpus) =>
    runChild(command(threads), { timeLimitMs: options.runLimitMs ?? RUN_LIMIT_MS, cpus, signal: options.signal }),
  );
  if (run.status === "ok") return run.stdout;
  if (run.status === "stopped") throw new Error(`${doing} was stopped`);
  if (run.status === "timed out") throw tooLong(computation, run.limitMs);
  throw toolProblem(run, doing) ?? new Error(`the reference of ${computation.name}: ${explainRun(run)}\n${run.stderr}`);
}

/** The error if expected results take longer than a program may run. */
function tooLong({ name }: Computation, limitMs: number): UsageError {
  return new UsageError(
    `what kernels of ${name} must answer is not computed within ${limitMs / 1000} s`,
    "give smaller extents, or --model-only, which measures nothing",
  );
}

/** Flags for programs that compute expected results. */
function programFlags(): string[] {
  return [...FLAGS, ...compilerFlags(nativeTarget().isa.filter((feature) => VECTORS.has(feature)))];
}

/** Runs work on all cores except those that are being measured or compiled on. */
function onFreeCores<T>(
  cores: ProgramOptions["cores"],
  work: (threads: number, cpus?: readonly number[]) => Promise<T>,
): Promise<T> {
  const most = availableParallelism();
  return cores ? cores.working((cpus) => work(cpus.length, cpus), most) : work(most);
}

function bytesOf(values: ArrayLike<number>): Uint8Array {
  const { buffer, byteOffset, byteLength } = values instanceof Float64Array ? values : Float64Array.from(values);
  return new Uint8Array(buffer, byteOffset, byteLength);
}
