/**
 * @file Runs generated kernels without a GPU: compiled by the host's compiler with the headers in `emulation/`, in a
 * child process.
 *
 *     const [run] = await runEmulated([{ kernel, inputs: { x, w } }]);
 *     if (run.status === "ok") run.output                                  elements in memory order
 *
 * Many kernels of a language form one program and one compilation. C++ runs on this CPU's own instructions, which it
 * must have; C++ for Arm is compiled for Arm and runs under qemu.
 */

import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { unique } from "../abstraction/collections.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { EnvironmentError, internal } from "../abstraction/error.ts";
import type { Values } from "../abstraction/evaluate.ts";
import type { Inputs } from "../abstraction/interpret.ts";
import type { Kernel, Launch } from "../abstraction/kernel.ts";
import {
  type Code,
  code,
  identifier,
  list,
  NOTHING,
  quoted,
  replaced,
  type SourceText,
  spell,
} from "../abstraction/source-text.ts";
import { architectureOf, extensionFlags } from "../targets/features.ts";
import { decodeElements, encodeElements } from "./bytes.ts";
import { cacheFolder } from "./cache.ts";
import { explainRun, runChild } from "./child.ts";
import { type Compiler, compileSource, findCompiler } from "./compiler.ts";
import { findArmTools } from "./cross.ts";
import { emulationFlags, overflowFlags } from "./emulation.ts";

/** The order in which the threads of an emulated GPU take turns between waits, and when asynchronous copies arrive. */
export interface ThreadOrder {
  /** Which of the runnable threads continues: the first, the last, or a random one. */
  readonly threads: "forward" | "reversed" | "shuffled";
  /** Whether copies arrive at once, or only when awaited. */
  readonly copies: "early" | "late";
  /** The seed of a shuffled order. */
  readonly seed?: number;
}

/**
 * Orders that reveal a missing barrier or wait: threads run ahead where they may, and copies arrive as late as they
 * may.
 */
export const ADVERSE_ORDERS: readonly ThreadOrder[] = [
  { threads: "forward", copies: "early" },
  { threads: "reversed", copies: "late" },
  { threads: "reversed", copies: "early" },
  { threads: "forward", copies: "late" },
  { threads: "shuffled", copies: "late", seed: 1 },
  { threads: "shuffled", copies: "early", seed: 2 },
];

export interface EmulatedJob {
  readonly kernel: Kernel;
  /** Values of every tensor except the output, in memory order. */
  readonly inputs: Inputs;
  /** For CUDA. By default forward, with early copies. */
  readonly order?: ThreadOrder;
}

export type EmulatedRun =
  | { readonly status: "ok"; readonly output: Values }
  | { readonly status: "compile-failed" | "failed" | "timed-out"; readonly log: string };

export interface EmulationOptions {
  /** The limit for one compilation or one run. */
  readonly timeLimitMs?: number;
  /** Kernels in one compilation. */
  readonly batch?: number;
  /** The program and arguments that run Arm binaries; by default qemu with all its features. */
  readonly emulator?: readonly string[];
  /** Aborts compilation and runs; the promise is then rejected. */
  readonly signal?: AbortSignal | undefined;
}

/** The most bytes of a tensor: `emulation/driver.h` counts them in 32 bits, and Node reads no larger file at once. */
export const MOST_BYTES = 2 ** 31 - 1;

const BATCH = 100;
const TIME_LIMIT_MS = 120_000;

/** Where and with what a batch is compiled and run. */
interface Place {
  readonly folder: string;
  readonly compiler: Compiler;
  /** The emulator of a program for another machine; empty for this one. */
  readonly emulator: readonly string[];
  readonly timeLimitMs: number;
  readonly signal: AbortSignal | undefined;
}

/**
 * Runs kernels and returns one result for each job, in order. A kernel that several jobs share is compiled once. A
 * wrong kernel is a result; it never throws. Programs are cached like those of measured kernels.
 * @throws EnvironmentError if nothing compiles
 */
export async function runEmulated(
  jobs: readonly EmulatedJob[],
  options: EmulationOptions = {},
): Promise<readonly EmulatedRun[]> {
  const compiler = await findCompiler();
  if (compiler.status === "environment") throw new EnvironmentError(compiler);
  const folder = await mkdtemp(join(tmpdir(), "automap-emulated-"));
  const results = new Map<EmulatedJob, EmulatedRun>();
  try {
    const timeLimitMs = options.timeLimitMs ?? TIME_LIMIT_MS;
    const isArm = ({ kernel }: EmulatedJob): boolean => architectureOf(kernel.features) === "arm";
    for (const language of ["c++", "arm", "cuda", "cm", "opencl", "sycl"] as const) {
      const own = jobs.filter((job) => (isArm(job) ? "arm" : job.kernel.language) === language);
      if (own.length === 0) continue;
      const tools = language === "arm" ? await findArmTools() : ({ status: "found", compiler, emulator: [] } as const);
      if (tools.status === "environment") throw new EnvironmentError(tools);
      const emulator = options.emulator ?? tools.emulator;
      const place = { folder, timeLimitMs, compiler: tools.compiler, emulator, signal: options.signal };
      const size = options.batch ?? BATCH;
      for (let i = 0; i < own.length; i += size) {
        const batch = own.slice(i, i + size);
        const runs = await runBatch(batch, language === "arm" ? "c++" : language, place);
        for (const [at, job] of batch.entries()) results.set(job, runs[at] ?? { status: "failed", log: "no result" });
      }
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
  return jobs.map((job) => results.get(job) ?? { status: "failed", log: "no result" });
}

async function runBatch(
  jobs: readonly EmulatedJob[],
  language: Kernel["language"],
  place: Place,
): Promise<readonly EmulatedRun[]> {
  const { folder, compiler, emulator, timeLimitMs, signal } = place;
  const data = join(folder, "data");
  const outputs = join(folder, "outputs");

  // 1. Compile all kernels together. If that fails, compile halves, so that only the faulty kernels are reported. The
  //    features of a GPU kernel do not apply to this CPU.
  const needed = language === "c++" ? jobs.flatMap((job) => job.kernel.features) : [];
  const features = extensionFlags(unique(needed));
  // cm.h, opencl.h and sycl.hpp use many small templates, which take longer to optimise than to run.
  const level = language === "c++" || language === "cuda" ? "-O1" : "-O0";
  const flags = [
    "-std=c++17",
    level,
    "-w",
    "-ffp-contract=off",
    ...overflowFlags(language),
    ...emulationFlags(),
    ...features,
  ];
  const kept = { compiler, timeLimitMs, signal, workdir: cacheFolder("runtime") };
  const compiled = await compileSource(emulatedProgram(jobs, language), flags, ".out", kept);
  if (compiled.status !== "compiled") {
    const { log } = compiled;
    if (new Set(jobs.map(({ kernel }) => kernel)).size === 1)
      return jobs.map(() => ({ status: "compile-failed", log }));
    const middle = Math.ceil(jobs.length / 2);
    const first = await runBatch(jobs.slice(0, middle), language, place);
    return [...first, ...(await runBatch(jobs.slice(middle), language, place))];
  }

  // 2. Run. A kernel that ends the program is faulty, and the next run begins after it.
  await writeFile(data, dataOfAll(jobs));
  const results: EmulatedRun[] = [];
  while (results.length < jobs.length) {
    const first = results.length;
    const run = await runChild([...emulator, compiled.file, data, outputs, String(first)], { timeLimitMs, signal });
    if (run.status === "stopped") throw new Error("emulating was stopped");
    const finished = run.stdout.split("\n").filter((line) => line !== "").length;
    const bytes = await readFile(outputs);
    let at = 0;
    for (const job of jobs.slice(first, first + finished)) {
      const output = job.kernel.arguments.find((a) => a.role === "output") ?? internal("a kernel without an output");
      const end = at + output.elements * bytesOf(output.dtype);
      results.push({ status: "ok", output: decodeElements(output.dtype, bytes.subarray(at, end)) });
      at = end;
    }
    if (results.length < jobs.length) {
      const status = run.status === "timed out" ? "timed-out" : "failed";
      results.push({ status, log: `${explainRun(run)}\n${run.stderr}` });
    }
  }
  return results;
}

/** The encoding that `take_turns` of emulation/cuda-memory.h reads. */
const TURNS = { forward: 0, reversed: 1, shuffled: 2 } as const;
const LATE_COPIES = 16;

/** Generated job by job, since all data together may not fit into memory. */
function* dataOfAll(jobs: readonly EmulatedJob[]): Generator<Uint8Array> {
  for (const job of jobs) yield* dataOf(job);
}

/** The format that `emulation/driver.h` reads. */
function dataOf({ kernel, inputs, order }: EmulatedJob): Uint8Array[] {
  const sizes = kernel.arguments.map((a) => a.elements * bytesOf(a.dtype));
  const turns = TURNS[order?.threads ?? "forward"] + (order?.copies === "late" ? LATE_COPIES : 0);
  const head = new Uint32Array([turns, order?.seed ?? 0, sizes.length, ...sizes]);
  const tensors = kernel.arguments
    .filter((a) => a.role !== "output")
    .map((a) => {
      const values = inputs[a.tensor];
      if (values?.length !== a.elements)
        throw new Error(`${a.tensor} wants ${a.elements} elements, got ${values?.length ?? "none"}`);
      return encodeElements(a.dtype, values);
    });
  return [new Uint8Array(head.buffer), ...tensors];
}

/** The headers that declare the CPU's instructions. */
const SYSTEM_HEADERS = code`#if defined(__aarch64__)
#include <arm_neon.h>
#ifdef __ARM_FEATURE_SVE
#include <arm_sve.h>
#endif
#else
#include <immintrin.h>
#endif`;

/**
 * A program that runs kernels of one language. Each is in its own namespace, with its C functions renamed and its
 * macros undefined after it.
 */
export function emulatedProgram(
  jobs: readonly Pick<EmulatedJob, "kernel">[],
  language: Kernel["language"],
): SourceText {
  const kernels = unique(jobs.map((job) => job.kernel));
  const parts = kernels.flatMap((kernel, i) => {
    const functions = [...kernel.source.matchAll(/^extern "C".*?\b(\w+)\(/gm)].map(([, name = ""]) => identifier(name));
    const macros = [...kernel.source.matchAll(/^#define (\w+)/gm)].map(([, name = ""]) => identifier(name));
    return [
      ...functions.map((name) => code`#define ${name} ${name}_of_${i}`),
      code`namespace kernel_${i} {
${language === "cuda" ? [sharedSection(i)] : []}
${quoted(replaced(kernel.source, /^#include .*$/gm, () => NOTHING))}
${runFunction(kernel)}
}
${[...functions, ...macros].map((name) => code`#undef ${name}`)}`,
    ];
  });
  const table = jobs.map(({ kernel }) => {
    const i = kernels.indexOf(kernel);
    return kernel.language === "cm" || kernel.language === "opencl"
      ? code`{[]() -> unsigned long { return kernel_${i}::workspace_bytes; }, kernel_${i}::run},`
      : code`{kernel_${i}::automap_workspace_bytes_of_${i}, kernel_${i}::run},`;
  });
  const header = language === "sycl" ? code`sycl/sycl.hpp` : code`${language}.h`;
  const text = code`#include <stdint.h>
#include <string.h>
${language === "c++" ? SYSTEM_HEADERS : code`#include <${header}>`}
#include <driver.h>
${parts}
static const Job jobs[] = {
  ${table}
};
int main(int, char** argv) { return run_jobs(jobs, ${jobs.length}, argv); }
`;
  return spell(text, "c++");
}

/**
 * The linker section for a kernel's static shared memory, which is filled with unusable values when a block begins. A
 * kernel may have none.
 */
function sharedSection(i: number): Code {
  const section = code`automap_shared_${i}`;
  return code`#undef AUTOMAP_SHARED_SECTION
#define AUTOMAP_SHARED_SECTION "${section}"
#if defined(__ELF__)
extern "C" char __start_${section}[] __attribute__((weak)), __stop_${section}[] __attribute__((weak));
static void take_shared() { emulation::use_static_shared(__start_${section}, __stop_${section}); }
#else
static void take_shared() {}
#endif`;
}

function runFunction(kernel: Kernel): Code {
  const { language } = kernel;
  switch (language) {
    case "c++":
      // In three parts, as three threads would divide it.
      return code`static void run(void* workspace, void** tensors, const uint32_t*, const uint32_t*) {
  const Fenced scratch = fenced(automap_scratch_bytes(), 64);
  tensors[${kernel.arguments.length}] = scratch.data;
  automap_prepare(workspace, tensors);
  for (int phase = 0; phase < automap_phases(); phase++)
    for (int part = 0; part < 3; part++) automap_run(workspace, tensors, phase, part, 3);
  check_fence(scratch, "the scratch");
}`;
    case "cuda":
      return code`static void run(void* workspace, void** tensors, const uint32_t*, const uint32_t* turns) {
  take_shared();
  emulation::take_turns(turns[0], turns[1]);
  if (automap_prepare(workspace, tensors, nullptr) || automap_launch(workspace, tensors, nullptr)) exit(4);
}`;
    case "cm":
      return code`static const unsigned long workspace_bytes = ${kernel.workspaceBytes ?? 0};
static void run(void* workspace, void** tensors, const uint32_t* bytes, const uint32_t* turns) {
  memset(workspace, 0, workspace_bytes);
  ${(kernel.launches ?? []).map((launch) => launchText(kernel, launch))}
}`;
    case "opencl":
      return openClRun(kernel);
    case "sycl":
      return syclRun(kernel);
    default:
      return language satisfies never;
  }
}

/** Every phase with three work-groups, lanes forward or reversed. */
function openClRun({ arguments: tensors, opencl }: Kernel): Code {
  if (!opencl) internal("a kernel in OpenCL C that nobody can call");
  const { lanes, steps, workspaceBytes } = opencl;
  const given = list([
    code`emulation::Argument{workspace}`,
    ...tensors.map((_, i) => code`emulation::Argument{tensors[${i}]}`),
  ]);
  const call = (groups: number, name: Code): Code =>
    code`emulation::run_groups(${groups}, ${lanes}, turns[0] % 2, [&] { ${name}(${given}); });`;
  return code`static const unsigned long workspace_bytes = ${workspaceBytes};
static void run(void* workspace, void** tensors, const uint32_t*, const uint32_t* turns) {
  memset(workspace, 0, workspace_bytes);
  ${call(1, code`automap_prepare`)}
  ${steps.map((_, i) => call(3, code`automap_phase_${i}`))}
}`;
}

/** Work-items forward or reversed. */
function syclRun({ sycl }: Kernel): Code {
  if (!sycl) internal("a kernel in SYCL that nobody can call");
  return code`static void run(void* workspace, void** tensors, const uint32_t*, const uint32_t* turns) {
  emulation::required_lanes = ${sycl.lanes};
  emulation::reversed = turns[0] % 2;
  sycl::queue queue{sycl::property::queue::in_order()};
  automap_prepare(queue, workspace, tensors).wait();
  automap_launch(queue, workspace, tensors).wait();
}`;
}

function launchText({ arguments: tensors }: Kernel, launch: Launch): Code {
  const surfaces = launch.arguments.map((name) => {
    const at = tensors.findIndex((t) => t.tensor === name);
    return code`{(unsigned char*)tensors[${at}], bytes[${at}]}`;
  });
  const all = [
    ...(launch.workspace ? [code`{(unsigned char*)workspace, (unsigned)workspace_bytes}`] : []),
    ...surfaces,
  ];
  return code`emulation::run_groups(${launch.groups}, [&] { ${identifier(launch.function)}(${list(all)}); }, turns[0] % 2);`;
}
