/**
 * @file Measures CUDA kernels on this machine's NVIDIA GPU: compiled side by side, every element checked on the device, timed in turns.
 *
 *     const made = await createCudaRunner();
 *     if (made.status === "environment") ...                            no nvcc, no GPU: what to install
 *     const reference = await made.runner.reference(conv2d, 1);
 *     await made.runner.measureTogether(kernels, reference)             one process for all; whoever dies is left out and the rest start again
 *
 * What ptxas reports counts: a stack frame, spilled registers, and the warnings that say it serialised what was asynchronous are failures
 * of the kernel.
 */

import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { availableParallelism, homedir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import pLimit from "p-limit";
import {
  type Computation,
  inputsOf,
  memoryElements,
  outputOf,
  targetOf,
  tensorOf,
} from "../../abstraction/computation.ts";
import { isInteger } from "../../abstraction/dtype.ts";
import type { EnvironmentProblem } from "../../abstraction/error.ts";
import type { Inputs } from "../../abstraction/interpret.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import { encodeElements } from "../bytes.ts";
import { runHarness, type Verdict } from "../harness/run.ts";
import { cudaReferenceSource } from "../reference-cuda.ts";
import { summarise } from "../statistics.ts";
import { toMemory } from "../verify.ts";
import {
  Builder,
  type CudaCompiled,
  type CudaDevice,
  emulatedDevice,
  emulatedToolchain,
  findCudaDevice,
  nvccToolchain,
} from "./cuda-build.ts";

export interface CudaReference {
  readonly computation: Computation;
  /** Shared object of the reference kernel. */
  readonly file: string;
  readonly sets: readonly string[];
  readonly seed: number;
  /** Files of inputs that the operator fixes, by tensor. */
  readonly fixed: Readonly<Record<string, string>>;
  /** Where bounds are kept between processes. */
  readonly bounds: string;
}

export interface CudaTiming {
  readonly cache?: "warm" | "flushed";
  readonly budgetSeconds?: number;
  readonly batchSeconds?: number;
  readonly batches?: readonly [least: number, most: number];
  /** Longest silence of the process: a kernel that takes longer hangs. */
  readonly stepSeconds?: number;
}

export interface CudaRunner {
  readonly device: CudaDevice;
  readonly compile: (kernel: Kernel) => Promise<CudaCompiled>;
  readonly reference: (
    computation: Computation,
    seed: number,
    options?: { readonly fixed?: Inputs },
  ) => Promise<CudaReference>;
  /** In one process on the same memory, batches in turns. A file takes the place of a kernel that somebody else compiled. */
  readonly measureTogether: (
    kernels: readonly (Kernel | Prebuilt)[],
    reference: CudaReference,
    timing?: CudaTiming,
  ) => Promise<readonly Measurement[]>;
  /** The measuring program and what it is told of compiled kernels, for a tool that runs it: a sanitizer, a profiler. */
  readonly harness: string;
  readonly requestOf: (
    files: readonly string[],
    kernel: Pick<Kernel, "arguments">,
    reference: CudaReference,
    timing?: CudaTiming,
  ) => string;
  readonly close: () => Promise<void>;
}

/** A shared object with the interface of a kernel: a library to compare with. */
export interface Prebuilt {
  readonly file: string;
  readonly arguments: Kernel["arguments"];
}

export interface CudaRunnerOptions extends CudaTiming {
  /** `~/.cache/automap/runtime` by default. */
  readonly workdir?: string;
  /** Compilations at once; one a core by default. */
  readonly jobs?: number;
  /** Of the bootstrap. */
  readonly seed?: number;
  /** Runs everything on the CPU, each CUDA thread a fiber: what is right shows, times mean nothing. */
  readonly emulated?: boolean;
}

const TIMING = {
  cache: "warm",
  budgetSeconds: 0.05,
  batchSeconds: 500e-6,
  batches: [5, 200],
  stepSeconds: 20,
} as const satisfies Required<CudaTiming>;

/** Makes a runner for the first GPU, or says what this machine lacks. */
export async function createCudaRunner(
  options: CudaRunnerOptions = {},
): Promise<{ readonly status: "ready"; readonly runner: CudaRunner } | EnvironmentProblem> {
  // 1. The device, and the program that measures on it.
  const found = options.emulated ? await emulatedDevice() : await findCudaDevice();
  if ("status" in found) return found;
  const device = found;
  const workdir =
    options.workdir ?? join(process.env["XDG_CACHE_HOME"] || join(homedir(), ".cache"), "automap", "runtime");
  await mkdir(workdir, { recursive: true });
  const toolchain = options.emulated ? emulatedToolchain(device) : nvccToolchain(device);
  const builder = new Builder(toolchain, workdir, options.jobs ?? availableParallelism());
  const program = await readFile(fileURLToPath(new URL("../harness/cuda.cu", import.meta.url)), "utf8");
  const harness = await builder.build(program, "program");
  if (harness.status !== "built")
    return {
      status: "environment",
      what: `${device.nvcc.path} (${device.nvcc.version}) cannot compile the measuring program\n${harness.log}`,
      why: "kernels are checked and timed by it",
      remedy: "install a C++ compiler that this nvcc works with",
    };

  // 2. What lives as long as the runner.
  const scratch = await mkdtemp(join(workdir, `runner-${process.pid}-`));
  const oneAtATime = pLimit(1);
  const stopping = new AbortController();
  const settings = { ...TIMING, ...definedOnly(options) };

  const request = (
    files: readonly string[],
    arguments_: Kernel["arguments"],
    reference: CudaReference,
    timing: CudaTiming,
  ): string => {
    const { cache, batchSeconds, budgetSeconds, batches } = { ...settings, ...definedOnly(timing) };
    const lines = [
      ...arguments_.map(({ dtype, elements, tensor }) => `argument ${dtype} ${elements} ${tensor}`),
      ...Object.entries(reference.fixed).map(([tensor, file]) => `fixed ${tensor} ${file}`),
      `seed ${reference.seed}`,
      ...reference.sets.map((set) => `set ${set}`),
      `reference ${reference.file}`,
      `bounds ${reference.bounds}`,
      `cache ${cache}`,
      `batch ${batchSeconds}`,
      `budget ${budgetSeconds}`,
      `batches ${batches.join(" ")}`,
      ...files.map((file) => `kernel ${file}`),
      "go",
    ];
    return `${lines.join("\n")}\n`;
  };

  const runner: CudaRunner = {
    device,
    harness: harness.file,
    requestOf: (files, kernel, reference, timing = {}) => request(files, kernel.arguments, reference, timing),
    compile: (kernel) => builder.kernel(kernel),
    reference: async (computation, seed, { fixed = {} } = {}) => {
      const built = await builder.build(cudaReferenceSource(computation), "reference");
      if (built.status !== "built")
        throw new Error(`internal: the reference of ${computation.name} does not compile\n${built.log}`);
      const folder = await mkdtemp(join(scratch, "reference-"));
      const files = Object.entries(fixed).map(async ([name, values]): Promise<[string, string]> => {
        const tensor = tensorOf(computation, name);
        const file = join(folder, `fixed-${inputsOf(computation).findIndex((t) => t.name === name)}`);
        await writeFile(
          file,
          encodeElements(
            tensor.dtype,
            toMemory(tensor, Float64Array.from(values), () => 0),
          ),
        );
        return [name, file];
      });
      return {
        ...{ computation, seed, file: built.file, bounds: join(folder, "bounds") },
        sets: isInteger(targetOf(computation).dtype) ? ["random", "extreme"] : ["exact", "random", "extreme"],
        fixed: Object.fromEntries(await Promise.all(files)),
      };
    },
    measureTogether: async (kernels, reference, timing = {}) => {
      for (const kernel of kernels) checkArguments(kernel, reference);
      const compiled = await Promise.all(
        kernels.map((k) =>
          "file" in k ? ({ status: "compiled", file: k.file, instructions: 0 } as const) : builder.kernel(k),
        ),
      );
      const results = new Map<number, Measurement>();
      let left: { readonly at: number; readonly file: string; readonly instructions: number }[] = [];
      for (const [at, one] of compiled.entries()) {
        if (one.status === "compiled") left.push({ at, ...one });
        else results.set(at, one);
      }
      const [first] = kernels;
      const { stepSeconds } = { ...settings, ...definedOnly(timing) };
      // An error may lose the device's context for good: the kernels without a verdict start again in another process.
      while (first && left.length > 0) {
        const text = request(
          left.map((k) => k.file),
          first.arguments,
          reference,
          timing,
        );
        const limits = { stepSeconds, outputBytes: 2 ** 20, signal: stopping.signal };
        const { verdicts } = await oneAtATime(() => runHarness(harness.file, `parent ${process.pid}\n${text}`, limits));
        for (const [i, { at, instructions }] of left.entries()) {
          const verdict = verdicts.get(i);
          if (verdict) results.set(at, toMeasurement(verdict, instructions, options.seed ?? 1));
        }
        if (verdicts.size === 0) throw new Error("internal: the measuring program ended without an answer");
        left = left.filter(({ at }) => !results.has(at));
      }
      return kernels.map((_, at) => {
        const found = results.get(at);
        if (!found) throw new Error("internal: a kernel was lost");
        return found;
      });
    },
    close: async () => {
      stopping.abort();
      await oneAtATime(() => rm(scratch, { recursive: true, force: true }));
    },
  };
  return { status: "ready", runner };
}

function toMeasurement(verdict: Verdict, instructions: number, seed: number): Measurement {
  if (verdict.status !== "timed") return verdict;
  const { samples } = verdict;
  return { status: "ok", samples, ...summarise(samples, seed), instructions };
}

function checkArguments(kernel: Pick<Kernel, "arguments">, { computation }: CudaReference): void {
  const tensors = [outputOf(computation), ...inputsOf(computation)];
  const wanted = tensors.map((t) => `${t.name}: ${t.dtype}[${memoryElements(t)}]`).join(", ");
  const given = kernel.arguments.map((a) => `${a.tensor}: ${a.dtype}[${a.elements}]`).join(", ");
  if (given !== wanted) throw new Error(`internal: the kernel takes ${given} but ${computation.name} has ${wanted}`);
}

function definedOnly(options: CudaTiming): Partial<Required<CudaTiming>> {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
}
