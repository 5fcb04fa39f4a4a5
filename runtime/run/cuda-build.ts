/**
 * @file Compiles CUDA sources to shared objects in parallel and parses the output of ptxas and the disassembler. On a
 * machine without a GPU it can use a C++ compiler and the emulation's headers.
 *
 *     const builder = new Builder(nvccToolchain(device), workdir, 16);
 *     await builder.kernel(kernel).examined                           { status: "compiled", file: ".../5f0c2e....so", instructions: 128 }
 */

import { readFile, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import pLimit from "p-limit";
import { isDefined } from "../../abstraction/collections.ts";
import { internal } from "../../abstraction/error.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { architectureFlag } from "../../targets/nvidia-gpu.ts";
import { isWritten } from "../cache.ts";
import { type ChildRun, explainRun, runChild } from "../child.ts";
import { type Compiler, wroteNothing } from "../compiler.ts";
import type { Cores } from "../cores.ts";
import { undisassembled } from "../disassembly.ts";
import { emulationFolder, emulationHash } from "../emulation.ts";
import { toolProblem } from "../environment.ts";
import { keep, keepBytes, keptName, privatePath, readKept, takeKept } from "../kept.ts";
import type { CudaDevice } from "./cuda-device.ts";
import { type KernelParts, partsOf } from "./cuda-parts.ts";

/** The kind of a source: a kernel of a search, the reference, a library of probes, or the measuring program. */
export type SourceKind = "kernel" | "reference" | "probe" | "program";

/** The compiler for a device: nvcc, or a C++ compiler with the emulation headers. */
export interface Toolchain {
  /** Part of the hash under which results are cached. */
  readonly identity: string;
  readonly command: (source: string, output: string, kind: SourceKind) => readonly string[];
  /** The text in the form that this compiler takes. */
  readonly adapted: (source: string, kind: SourceKind) => string;
  /** The command that lists the machine code of a shared object; undefined if it contains none for a device. */
  readonly disassemble: ((file: string) => readonly string[]) | undefined;
  /** Commands for the two parts of a kernel; undefined if it is always compiled as a whole. */
  readonly apart?: Apart | undefined;
}

/** Commands for the two parts of a kernel (cuda-parts.ts). */
interface Apart {
  readonly device: (source: string, code: string, isLight: boolean) => readonly string[];
  /** @param code the name of the code's file, beside the source */
  readonly host: (source: string, code: string, output: string) => readonly string[];
}

type Failed = { readonly status: CompileFailure; readonly log: string };

/** Compiled, but not yet disassembled. */
export type Loadable = { readonly status: "compiled"; readonly file: string; readonly seconds: number } | Failed;

type CudaCompiled =
  | { readonly status: "compiled"; readonly file: string; readonly instructions: number; readonly seconds: number }
  | Failed;

/**
 * A kernel being compiled. It can run a second before disassembly shows whether its code contains the promised
 * instruction.
 */
export interface Compiling {
  readonly loadable: Promise<Loadable>;
  readonly examined: Promise<CudaCompiled>;
}

export type CompileFailure = "compile-failed" | "missing-instruction" | "out-of-resources" | "spilled" | "serialised";

const COMPILE_LIMIT_MS = 120_000;
const LOG_CHARACTERS = 4000;

/** nvcc's code generation flags. Epilogues and references round every operation as written, without contraction. */
export const NVCC_CODE = {
  kernel: ["-O3", "-fmad=false"],
  reference: ["-O2", "-fmad=false"],
} as const;
/** Flags for shared objects. */
const SHARED = ["-shared", "-Xcompiler", "-fPIC"];
/** ptxas tells of spilled registers and of serialised products. */
const RESOURCES = ["-Xptxas", "-v"];
/** The folder of the header that stands for CUDA's own. */
const LIGHT = fileURLToPath(new URL("../harness/light/", import.meta.url));
/** The host's part calls nothing but what the measuring program has loaded. */
const HOST_FLAGS = ["-std=c++17", "-w", "-shared", "-fPIC", "-nostdlib", "-fno-threadsafe-statics", "-fno-exceptions"];
const NVCC_FLAGS = {
  kernel: [...NVCC_CODE.kernel, ...SHARED, ...RESOURCES],
  reference: [...NVCC_CODE.reference, ...SHARED],
  probe: ["-O3", ...SHARED],
  program: ["-O2", "-ldl"],
} as const;

/** nvcc's flags for every source of a kind, in order. */
export function nvccFlags(kind: SourceKind, { capability }: Pick<CudaDevice, "capability">): string[] {
  return ["-std=c++17", architectureFlag(capability), ...NVCC_FLAGS[kind]];
}

/** @param host the C++ compiler for the host's part of kernels; nvcc compiles them as a whole if left out */
export function nvccToolchain({ nvcc, capability, disassembler }: CudaDevice, host?: Compiler): Toolchain {
  const architecture = architectureFlag(capability);
  return {
    identity: [nvcc.path, nvcc.version, architecture, ...(nvcc.options ?? []), host?.version].join(" "),
    adapted: (source) => source,
    apart: host && {
      device: (source, code, isLight) => [
        nvcc.path,
        source,
        "-o",
        code,
        "-std=c++17",
        architecture,
        "-fatbin",
        ...NVCC_CODE.kernel,
        ...RESOURCES,
        ...(isLight ? [`-I${LIGHT}`] : []),
      ],
      host: (source, code, output) => [...host.command, source, "-o", output, `-DCODE="${code}"`, ...HOST_FLAGS],
    },
    command: (source, output, kind) => [nvcc.path, source, "-o", output, ...nvccFlags(kind, { capability })],
    disassemble: (file) => [disassembler, "-sass", file],
  };
}

const EMULATED_FLAGS = {
  kernel: ["-O1", "-shared", "-fPIC"],
  reference: ["-O1", "-shared", "-fPIC"],
  probe: ["-O1", "-shared", "-fPIC"],
  program: ["-O1", "-ldl"],
} as const;

/** The emulation's header replaces all of CUDA's. */
export function emulatedToolchain({ nvcc }: CudaDevice): Toolchain {
  return {
    identity: ["emulated", nvcc.path, nvcc.version, emulationHash(), ...(nvcc.options ?? [])].join(" "),
    adapted: (source, kind) =>
      kind === "program" ? source : `#include "cuda.h"\n${source.replace(/^#include .*$/gm, "")}`,
    command: (source, output, kind) => [
      nvcc.path,
      ...(nvcc.options ?? []),
      "-std=c++17",
      "-w",
      "-ffp-contract=off",
      "-fwrapv",
      `-I${emulationFolder()}`,
      "-DAUTOMAP_EMULATED_CUDA=",
      "-x",
      "c++",
      source,
      "-x",
      "none",
      "-o",
      output,
      ...EMULATED_FLAGS[kind],
    ],
    disassemble: undefined,
  };
}

/** The header that programs include instead of CUDA's; only an emulated device has it. */
const EMULATED = "cuda-runtime.h";

/** A program of runtime/harness/ as a single text. */
export async function programText(name: string): Promise<string> {
  const text = (file: string): Promise<string> =>
    readFile(fileURLToPath(new URL(`../harness/${file}`, import.meta.url)), "utf8");
  const program = await text(name);
  const headers = [...program.matchAll(/#include "(.*)"\n/g)].flatMap(([, file = ""]) =>
    file === EMULATED ? [] : [file],
  );
  const texts = await Promise.all(headers.map(text));
  return headers.reduce((whole, file, i) => whole.replace(`#include "${file}"\n`, () => texts[i] ?? ""), program);
}

type Built =
  | { readonly status: "built"; readonly file: string; readonly log: string; readonly seconds: number }
  | { readonly status: "failed"; readonly log: string };

/** Files of a compilation, which it does not keep. */
interface Drafts {
  readonly output: string;
  readonly text: string;
  readonly host: string;
  /** The code of the device. */
  readonly code: string;
}

/** Compiles in parallel and caches results under a hash of source, flags and compiler. */
export class Builder {
  private readonly signal: AbortSignal | undefined;
  private readonly compiling = new Map<string, AbortController>();
  private readonly toolchain: Toolchain;
  private readonly workdir: string;
  private readonly limit: ReturnType<typeof pLimit>;
  private readonly cores: Pick<Cores, "working">;
  private readonly kernels = new Map<string, Compiling>();
  private readonly underway = new Set<Promise<Loadable>>();

  /** @param signal aborts compilations */
  constructor(
    toolchain: Toolchain,
    workdir: string,
    jobs: number,
    cores: Pick<Cores, "working">,
    signal?: AbortSignal,
  ) {
    this.signal = signal;
    this.toolchain = toolchain;
    this.workdir = workdir;
    this.limit = pLimit(jobs);
    this.cores = cores;
  }

  kernel(kernel: Kernel): Compiling {
    const known = this.kernels.get(kernel.source);
    if (known) return known;
    const controller = new AbortController();
    this.compiling.set(kernel.source, controller);
    const loadable = this.compile(kernel, controller.signal).finally(() => {
      this.underway.delete(loadable);
      if (this.compiling.get(kernel.source) === controller) this.compiling.delete(kernel.source);
    });
    this.underway.add(loadable);
    const examined = loadable.then((one) => (one.status === "compiled" ? this.examine(one, kernel) : one));
    // Errors reach those who await the result, so there are no unhandled rejections.
    for (const one of [loadable, examined]) one.catch(() => undefined);
    const compiling = { loadable, examined };
    this.kernels.set(kernel.source, compiling);
    return compiling;
  }

  /** Aborts the compilation of a kernel that will not be measured. A finished one is kept. */
  abandon({ source }: Kernel): void {
    const controller = this.compiling.get(source);
    if (!controller) return;
    this.kernels.delete(source);
    controller.abort();
  }

  /** A kernel that is about to run: its copy may have made room for others since it was compiled. */
  async present(kernel: Kernel, one: Loadable): Promise<Loadable> {
    if (one.status !== "compiled") return one;
    if ((await takeKept(join(this.workdir, basename(one.file)), "fleeting")) !== undefined) return one;
    this.kernels.delete(kernel.source);
    return this.kernel(kernel).loadable;
  }

  private async compile({ source }: Kernel, signal: AbortSignal): Promise<Loadable> {
    const built = await this.build(source, "kernel", signal);
    if (built.status !== "built") return { status: refusalIn(built.log), log: built.log };
    const { file, log, seconds } = built;
    return complaintOf(log) ?? { status: "compiled", file, seconds };
  }

  private async examine(
    compiled: Extract<Loadable, { status: "compiled" }>,
    { promises }: Kernel,
  ): Promise<CudaCompiled> {
    const { disassemble } = this.toolchain;
    if (promises === undefined || !disassemble) return { ...compiled, instructions: 0 };
    // Processors are free once all kernels are compiled, and are timed.
    while (this.underway.size > 0) await Promise.allSettled(this.underway);
    const { file } = compiled;
    const listing = await this.limit(() =>
      this.cores.working((cpus) => runChild(disassemble(file), { timeLimitMs: COMPILE_LIMIT_MS, cpus })),
    );
    if (listing.status !== "ok") throw undisassembled(listing, file);
    const instructions = countSass(listing.stdout, promises);
    if (instructions > 0) return { ...compiled, instructions };
    return {
      status: "missing-instruction",
      log: `the code of ${join(this.workdir, basename(file))} does not hold ${promises}`,
    };
  }

  /** The file of a source that always compiles. @param what it is, for the message if it does not */
  async fileOf(source: string, kind: SourceKind, what: string): Promise<string> {
    const built = await this.build(source, kind);
    return built.status === "built" ? built.file : internal(`${what} does not compile\n${built.log}`);
  }

  /** @throws Error if aborted */
  build(source: string, kind: SourceKind, abandoned?: AbortSignal): Promise<Built> {
    const signal = AbortSignal.any([this.signal, abandoned].filter(isDefined));
    return this.limit(async () => {
      const { identity, adapted, apart, command } = this.toolchain;
      const parts = apart && kind === "kernel" ? partsOf(source) : undefined;
      const base = keptName(this.workdir, [identity, command("", "", kind), source, parts?.host]);
      const entry = base + (kind === "program" ? ".out" : ".so");
      const stay = kind === "kernel" ? "fleeting" : "lasting";
      const kept = await readKept(`${base}.log`);
      const found = kept && (await takeKept(entry, stay));
      if (kept && found !== undefined)
        return { status: "built", file: found, log: Buffer.from(kept).toString("utf8"), seconds: 0 };
      const drafts = {
        output: privatePath(entry, ".out"),
        text: privatePath(entry, ".cu"),
        host: privatePath(entry, ".cpp"),
        code: privatePath(entry, ".fatbin"),
      };
      const own = drafts.output;
      const begun = performance.now();
      try {
        const run = (words: readonly string[], cpus: readonly number[]): Promise<ChildRun> =>
          runChild(words, { timeLimitMs: COMPILE_LIMIT_MS, cwd: dirname(own), cpus, signal });
        const done = await this.cores.working(async (cpus) => {
          const inParts = parts && (await this.compileParts(parts, drafts, (words) => run(words, cpus)));
          if (inParts?.status === "ok") return inParts;
          // What does not compile in parts is told by the message about the whole.
          await writeFile(drafts.text, adapted(source, kind));
          return run(command(drafts.text, own, kind), cpus);
        });
        const log = `${done.stderr}${done.stdout}`.replaceAll(drafts.text, "kernel.cu").slice(0, LOG_CHARACTERS);
        const problem = toolProblem(done, `compiling with ${command("", "", kind)[0]}`);
        if (problem) throw problem;
        if (done.status !== "ok") return { status: "failed", log: `${explainRun(done)}\n${log}` };
        if (!(await isWritten(own))) throw wroteNothing(command("", "", kind).slice(0, 1));
        await keepBytes(Buffer.from(log, "utf8"), `${base}.log`);
        await writeFile(`${base}.cu`, await readFile(drafts.text));
        const file = await keep(own, entry, stay);
        return { status: "built", file, log, seconds: (performance.now() - begun) / 1000 };
      } finally {
        await Promise.all(Object.values(drafts).map((path) => rm(path, { force: true })));
      }
    });
  }

  /** Compiles the device's part, then the host's, which takes the code into its library. @returns the compilation that failed, or that of the device */
  private async compileParts(
    parts: KernelParts,
    drafts: Drafts,
    run: (words: readonly string[]) => Promise<ChildRun>,
  ): Promise<ChildRun | undefined> {
    const { apart } = this.toolchain;
    if (!apart) return undefined;
    await Promise.all([writeFile(drafts.text, parts.device), writeFile(drafts.host, parts.host)]);
    const device = await run(apart.device(drafts.text, drafts.code, parts.isLight));
    if (device.status !== "ok") return device;
    const host = await run(apart.host(drafts.host, basename(drafts.code), drafts.output));
    return host.status === "ok" ? device : host;
  }
}

/** The messages of ptxas that make a kernel a failure: spilled registers, or serialised matrix products. */
export function complaintOf(
  log: string,
): { readonly status: "spilled" | "serialised"; readonly log: string } | undefined {
  const serialised = /.*\bC75\d\d\b.*/.exec(log);
  if (serialised) return { status: "serialised", log: serialised[0].trim() };
  for (const [, frame, stores, loads] of log.matchAll(
    /(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads/g,
  ))
    if (Number(frame) > 0 || Number(stores) > 0 || Number(loads) > 0) {
      const used = `${frame} bytes of stack, ${stores} bytes stored and ${loads} loaded`;
      return { status: "spilled", log: `registers do not suffice: ${used}` };
    }
  return undefined;
}

/** Why ptxas generated no code for a kernel. */
export function refusalIn(log: string): CompileFailure {
  return /uses too much shared data|too many (?:resources|registers)/.test(log) ? "out-of-resources" : "compile-failed";
}

/** Counts lines of a SASS listing with an instruction: `HMMA` counts `HMMA.16816.F32`, `QMMA/HMMA` either. */
export function countSass(listing: string, mnemonic: string): number {
  const wanted = mnemonic.split("/");
  let count = 0;
  for (const [, word = ""] of listing.matchAll(/^\s+\/\*[0-9a-f]+\*\/\s+(?:@!?U?P\w+ )?([A-Z0-9]+)/gm))
    if (wanted.includes(word)) count++;
  return count;
}
