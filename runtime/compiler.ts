/**
 * @file Compiles kernel sources to shared objects: finds a C++ compiler, passes the ISA feature by feature, and caches
 * results.
 *
 *     const compiler = await findCompiler();                       g++ 12.2.0, or what to install
 *     const pool = compilePool(compiler, { workdir, jobs: 2 });
 *     await pool.kernel(kernel)                                    { status: "compiled", file: ".../5f0c2e....so" }
 *
 * Results are cached under a hash of source, flags and compiler. The ISA is never `-march=native`, which guesses
 * wrongly on processors with masked features and would let the compiler use features that the kernel's record does not
 * name.
 *
 * A pool runs a limited number of jobs at a time and starts the longest waiting one first, so that the jobs of a round
 * end nearly together.
 *
 *     first come   | 1 2 2 4 4 4 4 |          longest first   | 1 4 4 4 4 |          two at once, of lengths 1 3 2 4: in this order
 *                  | 3 3 3         |                          | 3 3 3 2 2 |
 */

import { mkdir, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { isDefined } from "../abstraction/collections.ts";
import { EnvironmentError, type EnvironmentProblem } from "../abstraction/error.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import type { SourceText } from "../abstraction/source-text.ts";
import { extensionFlags } from "../targets/features.ts";
import { isWritten } from "./cache.ts";
import { type ChildRun, explainRun, findProgram, runChild } from "./child.ts";
import type { Cores } from "./cores.ts";
import { countInstruction } from "./disassembly.ts";
import { onThisMachine, toolProblem } from "./environment.ts";
import { compiledBehindHeaders, type HeaderOptions, leadingIncludes } from "./headers.ts";
import { keep, keptName, privatePath, type Stay, takeKept } from "./kept.ts";
import { OPENCL_FLAGS, openClHost } from "./opencl-host.ts";
import { coresHere } from "./processor.ts";

/** The C++ compiler that was found. */
export interface Compiler {
  readonly status: "found";
  /** Program and leading arguments: `CXX` may be "ccache g++". */
  readonly command: readonly string[];
  readonly path: string;
  /** First line of `--version`. */
  readonly version: string;
}

/** The file is this process's own copy; what is kept for others is checked before it becomes one (kept.ts). */
export type Compiled =
  | { readonly status: "compiled"; readonly file: string; readonly seconds: number; readonly cached: boolean }
  | { readonly status: "compile-failed"; readonly log: string };

export interface CompileOptions {
  readonly compiler: Compiler;
  /** Where results are kept; made when missing. */
  readonly workdir: string;
  readonly timeLimitMs?: number;
  /** Where it compiles: on a core that nobody measures on. Anywhere when left out. */
  readonly cores?: Pick<Cores, "working">;
  /** Added after the usual ones. */
  readonly flags?: readonly string[];
  /** Ends compilations under way; who waits for one is told by an Error. */
  readonly signal?: AbortSignal | undefined;
}

type Extension = ".so" | ".o" | ".out";

const COMPILE_TIME_LIMIT_MS = 60_000;
/** A machine with much other work may take seconds to start a program. */
const VERSION_TIME_LIMIT_MS = 60_000;
const LOG_CHARACTERS = 16_000;

/**
 * `-fwrapv`: integers of the notation wrap, so those of generated code may. Floats keep their order, NaN and
 * infinities, and `-ffp-contract=off` keeps a*b + c of an epilogue two roundings, as written; fused multiply-adds are
 * asked for by intrinsic. `-fno-gcse`: without that pass kernels compile in 6 % less time and take 0.98 to 1.00 of it
 * (bench/results/kernels-per-second.md).
 */
const CODE_FLAGS = [
  "-O3",
  "-fno-gcse",
  "-std=c++17",
  "-fPIC",
  "-fno-math-errno",
  "-fno-trapping-math",
  "-ffp-contract=off",
  "-fwrapv",
];
/**
 * A function that is defined nowhere is an error of compilation and not of loading. Kernels are C: the linker takes 8
 * ms to look through their libraries and 19 ms with that of C++ (g++ 12).
 */
const LINK_FLAGS = ["-shared", "-Wl,-z,defs", "-nodefaultlibs", "-lm", "-lc", "-lgcc"];

/** The compiler of `CXX`, else g++, else clang++. */
export async function findCompiler(
  environment: Readonly<Record<string, string | undefined>> = process.env,
): Promise<Compiler | EnvironmentProblem> {
  const asked = environment["CXX"]?.trim();
  const tried = asked ? [asked] : ["g++", "clang++"];
  const reasons: string[] = [];
  for (const words of tried) {
    const [program = "", ...rest] = words.split(/\s+/);
    const path = findProgram(program, environment["PATH"] ?? "");
    if (path === undefined) {
      reasons.push(`${program} is not on the PATH`);
      continue;
    }
    const ask = (): Promise<ChildRun> => runChild([path, ...rest, "--version"], { timeLimitMs: VERSION_TIME_LIMIT_MS });
    const first = await ask();
    // Ctrl-C while it is started, before it has a process group of its own, ends it too. That says nothing about the compiler.
    const run = first.status === "crashed" && first.signal === "SIGINT" ? await ask() : first;
    const [version = ""] = run.stdout.split("\n", 1);
    if (run.status === "ok" && version !== "") return { status: "found", command: [path, ...rest], path, version };
    reasons.push(explainRun(run));
  }
  return {
    status: "environment",
    what: asked ? `the C++ compiler named by CXX does not work: ${reasons.join(", ")}` : "no C++ compiler found",
    why: "kernels are compiled, checked and timed on this machine",
    remedy: asked ? "set CXX to a C++ compiler, or unset it" : "install g++ (apt-get install g++), or set CXX",
  };
}

/** All flags a kernel is compiled and linked with: part of the record of what was measured. */
export function kernelFlags(kernel: Pick<Kernel, "features">, flags: readonly string[] = []): string[] {
  return [...codeFlags(kernel, flags), ...LINK_FLAGS];
}

/** What is recorded of a compiler: of its command, the words after the program stand before the flags. */
export function recordedCompiler({ command, path, version }: Pick<Compiler, "command" | "path" | "version">): {
  readonly path: string;
  readonly version: string;
  readonly flags: readonly string[];
} {
  return { path, version, flags: [...command.slice(1), ...kernelFlags({ features: [] })] };
}

/** Those of them that decide its code, whatever it is linked into. */
export function codeFlags(kernel: Pick<Kernel, "features">, flags: readonly string[] = []): string[] {
  return [...CODE_FLAGS, ...extensionFlags(kernel.features), ...flags];
}

/** Compiles a kernel to a shared object, or finds the one compiled before. */
export async function compileKernel(kernel: Kernel, options: CompileOptions): Promise<Compiled> {
  if (kernel.language === "opencl") {
    const flags = [...kernelFlags({ features: [] }, options.flags), ...OPENCL_FLAGS];
    return compileSource(openClHost(kernel), flags, ".so", options);
  }
  const flags = kernelFlags(kernel, options.flags);
  return (await compiledApart(kernel, options)) ?? compileSource(kernel.source, flags, ".so", options);
}

/**
 * A kernel whose units are compiled by themselves, each once for all kernels that have it. Copying the input of a conv2d u8s8 takes 0.02 s of 0.15
 * to compile (g++ 12, 2026-11-23).
 * @returns undefined for a kernel in one text, and where a unit does not compile or link: the whole text then says why
 */
async function compiledApart({ apart, ...kernel }: Kernel, options: CompileOptions): Promise<Compiled | undefined> {
  if (apart?.of !== kernel.source) return undefined;
  const flags = [...codeFlags(kernel, options.flags), "-c"];
  const objects: string[] = [];
  for (const unit of apart.units) {
    const made = await compileSource(unit, flags, ".o", options);
    if (made.status !== "compiled") return undefined;
    objects.push(made.file);
  }
  const linked = await compileSource(apart.main, [...objects, ...kernelFlags(kernel, options.flags)], ".so", options);
  return linked.status === "compiled" ? linked : undefined;
}

/**
 * Compiles C++ text with exactly these flags.
 * @throws EnvironmentError when it is the machine that fails and not the text
 */
export function compileSource(
  source: SourceText,
  flags: readonly string[],
  extension: Extension,
  options: CompileOptions,
): Promise<Compiled> {
  return onThisMachine("compiling", () => compileOrFind(source, flags, extension, options));
}

async function compileOrFind(
  source: SourceText,
  flags: readonly string[],
  extension: Extension,
  options: CompileOptions,
): Promise<Compiled> {
  const { cores } = options;
  const name = nameOf(source, flags, options);
  const file = await takeKept(name + extension, stayOf(extension));
  if (file !== undefined) return { status: "compiled", file, seconds: 0, cached: true };
  const compile = (cpus?: readonly number[]): Promise<Compiled> =>
    compileAs(name, extension, source, flags, { timeLimitMs: COMPILE_TIME_LIMIT_MS, ...options, cpus });
  return cores ? cores.working(compile) : compile();
}

/** The entry, without its ending, of a text that is compiled with these flags. */
function nameOf(
  source: SourceText,
  flags: readonly string[],
  { compiler, workdir }: Pick<CompileOptions, "compiler" | "workdir">,
): string {
  // Objects to link are named by what they are made of, wherever they lie.
  const named = flags.map((flag) => (flag.endsWith(".o") ? basename(flag) : flag));
  return keptName(workdir, [compiler.command, compiler.version, named, source]);
}

/** The entry that {@link compileKernel} keeps for a C++ kernel in one text. */
export function keptKernel(kernel: Kernel, options: Pick<CompileOptions, "compiler" | "workdir">): string {
  return `${nameOf(kernel.source, kernelFlags(kernel), options)}.so`;
}

/** What a compilation that takes place needs to know. */
type Placed = HeaderOptions & Required<Pick<CompileOptions, "compiler">> & Pick<CompileOptions, "signal">;

const stayOf = (extension: Extension): Stay => (extension === ".out" ? "lasting" : "fleeting");

async function compileAs(
  name: string,
  extension: Extension,
  source: string,
  flags: readonly string[],
  options: Placed,
): Promise<Compiled> {
  const { compiler, workdir } = options;
  const entry = name + extension;

  // In a private folder: nobody else can change the text before the compiler reads it, or what it makes before it is kept.
  await mkdir(workdir, { recursive: true });
  const own = privatePath(entry, extension);
  const text = privatePath(entry, ".cpp");
  const begun = performance.now();
  try {
    await writeFile(text, source);
    const run = await compiledBehindHeaders(source, flags, options, (headers) =>
      runCompiler([...compiler.command, ...headers, text, "-o", own, ...flags], dirname(own), options),
    );
    if (run.status !== "ok") {
      const problem = await compilerProblem(run, source, flags, options);
      if (problem) throw problem;
      const log = `${explainRun(run)}\n${run.stderr}${run.stdout}`.replaceAll(text, "kernel.cpp");
      return { status: "compile-failed", log: shorten(log) };
    }
    if (!(await isWritten(own))) throw wroteNothing(compiler.command);
    // For people to read.
    await writeFile(`${name}.cpp`, source);
    const file = await keep(own, entry, stayOf(extension));
    return { status: "compiled", file, seconds: (performance.now() - begun) / 1000, cached: false };
  } finally {
    await Promise.all([text, own].map((left) => rm(left, { force: true })));
  }
}

/** The fault of a compiler that reports success without a result. */
export const wroteNothing = (command: readonly string[]): EnvironmentError =>
  new EnvironmentError({
    what: `compiling: ${command.join(" ")} says that it compiled, and wrote no file or an empty one`,
    why: "kernels are compiled, checked and timed on this machine",
    remedy: "repair the compiler, or name another with CXX (for CUDA, the nvcc on the PATH)",
  });

async function runCompiler(
  command: readonly string[],
  cwd: string,
  { timeLimitMs, cpus, signal }: Placed,
): Promise<ChildRun> {
  const run = await runChild(command, { timeLimitMs, cwd, cpus, signal });
  if (run.status === "stopped") throw new Error("compiling was stopped");
  return run;
}

/**
 * Whether a failed compilation is the machine's fault: by what the compiler said, or because it fails on next to
 * nothing as well, as it does without its assembler or its headers.
 */
async function compilerProblem(
  failed: ChildRun,
  source: string,
  flags: readonly string[],
  options: Placed,
): Promise<EnvironmentError | undefined> {
  const { compiler, workdir } = options;
  const said = toolProblem(failed, "compiling");
  if (said || failed.status === "timed out") return said;
  const own = privatePath(join(workdir, "probe"), "");
  try {
    await writeFile(`${own}.cpp`, `${leadingIncludes(source).join("\n")}\nint automap_probe(void) { return 0; }\n`);
    const folders = flags.filter((flag) => flag.startsWith("-I"));
    const command = [
      ...compiler.command,
      `${own}.cpp`,
      "-o",
      `${own}.so`,
      ...folders,
      ...codeFlags({ features: [] }),
      "-shared",
    ];
    const run = await runCompiler(command, dirname(own), options);
    if (run.status === "ok") return undefined;
    const what = `${compiler.path} cannot compile a function that does nothing: ${explainRun(run)}`;
    const problem = toolProblem(run, "compiling");
    return (
      problem ??
      new EnvironmentError({
        what: `${what}\n${shorten(run.stderr.replaceAll(`${own}.cpp`, "probe.cpp")).trimEnd()}`,
        why: "so what it says of a kernel is no fact about the kernel, and nothing is recorded of it",
        remedy:
          "install the compiler again with its headers (apt-get install g++ binutils libc6-dev), or set CXX to another",
      })
    );
  } finally {
    await Promise.all([`${own}.cpp`, `${own}.so`].map((left) => rm(left, { force: true })));
  }
}

/** A compiled kernel, and how often the instruction that it promises stands in it; 0 where it promises none. */
export type Examined =
  | (Extract<Compiled, { status: "compiled" }> & { readonly instructions: number })
  | Extract<Compiled, { status: "compile-failed" }>;

export interface CompilePool {
  /**
   * Compiles and disassembles when a place is free; the same kernel asked for twice is compiled once.
   * @throws EnvironmentError when it is the machine that fails and not the kernel
   */
  readonly kernel: (kernel: Kernel, signal?: AbortSignal) => Promise<Examined>;
}

/** Compiles as many kernels at once as asked, of those that wait the longest text first; by default one a core. */
export function compilePool(
  options: CompileOptions & { readonly jobs?: number; readonly disassembler?: string | undefined },
): CompilePool {
  const inTurn = longestFirst(options.jobs ?? coresHere().length);
  const running = new Map<string, Promise<Examined>>();
  const counts = new Map<string, number>();
  const examine = async ({ promises }: Kernel, compiled: Compiled): Promise<Examined> => {
    if (compiled.status !== "compiled") return compiled;
    if (promises === undefined) return { ...compiled, instructions: 0 };
    const { file } = compiled;
    const count = (cpus?: readonly number[]): Promise<number> =>
      countInstruction(file, promises, cpus, options.disassembler);
    const key = `${file} ${promises}`;
    const instructions = counts.get(key) ?? (await (options.cores ? options.cores.working(count) : count()));
    counts.set(key, instructions);
    return { ...compiled, instructions };
  };
  return {
    kernel: (kernel, signal) => {
      const key = JSON.stringify([kernelFlags(kernel, options.flags), kernel.source, kernel.promises]);
      const known = running.get(key);
      if (known) return known;
      const build = async (): Promise<Examined> =>
        examine(kernel, await compileKernel(kernel, stoppedBy(options, signal)));
      const next = inTurn(kernel.source.length, build).finally(() => running.delete(key));
      running.set(key, next);
      return next;
    },
  };
}

/** The options with one signal more. */
export function stoppedBy<O extends Pick<CompileOptions, "signal">>(options: O, signal: AbortSignal | undefined): O {
  const signals = [options.signal, signal].filter(isDefined);
  return { ...options, signal: signals.length === 0 ? undefined : AbortSignal.any(signals) };
}

function shorten(log: string): string {
  return log.length > LOG_CHARACTERS
    ? `${log.slice(0, LOG_CHARACTERS)}\n... ${log.length - LOG_CHARACTERS} more characters`
    : log;
}

type InTurn = <T>(length: number, job: () => Promise<T>) => Promise<T>;

/** @param most jobs at once. A job begins as soon as there is room; those of equal length in the order in which they came */
export function longestFirst(most: number): InTurn {
  const waiting: { readonly length: number; readonly begin: () => void }[] = [];
  let running = 0;
  const next = (): void => {
    if (running >= most) return;
    const one = waiting.shift();
    if (!one) return;
    running++;
    one.begin();
  };
  return (length, job) =>
    new Promise((resolve, reject) => {
      const begin = (): void => {
        job()
          .then(resolve, reject)
          .finally(() => {
            running--;
            next();
          });
      };
      const shorter = waiting.findIndex((other) => other.length < length);
      waiting.splice(shorter === -1 ? waiting.length : shorter, 0, { length, begin });
      next();
    });
}
