/**
 * @file Measures kernels reliably: each is compiled, its code is searched for the promised instruction, every element
 * is checked in a child process that may die, and the kernel is timed in batches.
 *
 *     const made = await createRunner({ threads: 2 });
 *     if (made.status === "environment") ...                            no compiler: what to install
 *     const reference = await made.runner.reference(conv2d, 1);
 *     await made.runner.measure(kernel, reference)                      { status: "ok", median: 3.2e-4, ... }
 *
 * Kernels compile in parallel and ahead of time. They are measured one at a time, on cores that no other automap
 * process uses. A kernel's failure, of any kind, is its status; a failure of the machine throws an EnvironmentError.
 */

import { mkdir, mkdtemp } from "node:fs/promises";
import { basename, join } from "node:path";
import pLimit from "p-limit";
import { defined } from "../abstraction/collections.ts";
import type { Computation } from "../abstraction/computation.ts";
import { type EnvironmentProblem, internal } from "../abstraction/error.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import type { Measurement, Surroundings } from "../abstraction/trial.ts";
import { cacheFolder, cacheLimits, trimCache } from "./cache.ts";
import { type Compiled, type CompilePool, type Compiler, compilePool, findCompiler, stoppedBy } from "./compiler.ts";
import { type CoreOptions, type Cores, checkProcessors, coresOf } from "./cores.ts";
import type { ArmTools } from "./cross.ts";
import { onThisMachine, orProblem } from "./environment.ts";
import { FENCE_PROCESS, type Fence } from "./fence.ts";
import {
  type HarnessLimits,
  type HarnessReply,
  type HarnessRequest,
  madeHarness,
  runHarness,
  STOPPED,
  type Verdict,
} from "./harness/run.ts";
import { OwnFolder } from "./own-folder.ts";
import { inOrder, raced } from "./race.ts";
import { drawnReference } from "./reference/drawn-reference.ts";
import { referenceFiles } from "./reference/reference-files.ts";
import { referenceOfParts } from "./reference/reference-of-parts.ts";
import { type Reference, type ReferenceOptions, referenceFor } from "./reference/verify.ts";
import { checkArguments, type Ready } from "./runner.ts";
import { type Summary, summarise } from "./statistics.ts";

/** The time of a fixed small workload, and under what load it was taken. */
export interface Baseline extends Summary {
  readonly samples: readonly number[];
  /** Share of the processor that other programs took. */
  readonly load: number | undefined;
}

export interface MeasureOptions {
  /** The approximate total time of a kernel's batches. */
  readonly budgetSeconds?: number;
  /** The shortest batch; a batch also takes at least 50 clock ticks. */
  readonly batchSeconds?: number;
  /** The least and most batches. If one call exceeds the budget, the least is three. */
  readonly batches?: readonly [least: number, most: number];
  /** The number of batches that suffices once they have taken this many seconds; by default the budget decides. */
  readonly enough?: readonly [batches: number, seconds: number] | undefined;
  /** Warm: the previous call has just used the data. Flushed: the data are in no cache. */
  readonly cache?: "warm" | "flushed";
  /** The longest time for a single call. */
  readonly stepSeconds?: number;
  /** The memory that a kernel may allocate, including its workspace. */
  readonly memoryBytes?: number;
  /** The largest file that a kernel may write: none, unless a compiler runs within its process. */
  readonly fileBytes?: number;
  /** The most bytes that a kernel may print. */
  readonly outputBytes?: number;
  /** Environment variables of the process that runs kernels, in addition to the usual ones. */
  readonly variables?: Readonly<Record<string, string>>;
}

/** Options for measuring kernels one after another when only the fastest matter. */
export interface RaceOptions extends MeasureOptions {
  /** The best known time of a call in seconds. A kernel clearly slower in every batch is not timed to the end. */
  readonly goal?: number | undefined;
  /** Aborts the race; no more results follow. */
  readonly signal?: AbortSignal | undefined;
  /** Called when a process with kernels has been started. It may take its time: that process waits for nothing from this one. */
  readonly onStart?: () => void;
}

/** Options for measuring kernels in turns. */
interface CompareOptions extends MeasureOptions {
  /** Called with the number of kernels that were checked so far. */
  readonly onChecked?: ((kernels: number) => void) | undefined;
}

export interface RunnerOptions extends MeasureOptions, CoreOptions {
  /** Parts of a call, each on a thread pinned to its own processor. */
  readonly threads?: number;
  /** The folder for compiled kernels and references; `~/.cache/automap/runtime` by default. */
  readonly workdir?: string;
  /** Concurrent compilations; by default one a core. */
  readonly jobs?: number;
  /** By default the one that is found. */
  readonly compiler?: Compiler;
  /** Additional flags for every kernel. */
  readonly flags?: readonly string[];
  /** The seed of the bootstrap. */
  readonly seed?: number;
  /** Around every process that runs kernels. */
  readonly fence?: Fence | undefined;
  /** Tools for code of another processor. Correct kernels end as `emulated`, and nothing is timed. */
  readonly emulated?: ArmTools;
}

/** The conditions of a measurement, which are part of its record. */
export interface Conditions {
  readonly clock: "CLOCK_MONOTONIC_RAW";
  readonly threads: number;
  readonly cache: "warm" | "flushed";
  readonly compiler: { readonly path: string; readonly version: string };
}

export interface Runner {
  readonly conditions: Conditions;
  readonly compiler: Compiler;
  readonly workdir: string;
  readonly cores: Cores;
  /** Starts compilation and disassembly ahead of `measure`. */
  readonly compile: (kernel: Kernel, signal?: AbortSignal) => Promise<Compiled>;
  readonly reference: (computation: Computation, seed: number, options?: Drawing) => Promise<Reference>;
  readonly measure: (kernel: Kernel, reference: Reference, options?: MeasureOptions) => Promise<Measurement>;
  /**
   * The results in order, each as soon as it is known. Returning early aborts the rest. Kernels share a process until
   * one fails; a failure counts only for the first kernel in a process, since a later one may have another cause.
   */
  readonly race: (
    kernels: readonly Kernel[],
    reference: Reference,
    options?: RaceOptions,
  ) => AsyncGenerator<Measurement, void>;
  /** Measures finalists in one process on the same memory, in alternating batches: sample i of each next to the others'. */
  readonly compareKernels: (
    kernels: readonly Kernel[],
    reference: Reference,
    options?: CompareOptions,
  ) => Promise<readonly Measurement[]>;
  /** Times a fixed small workload. If its time changes, the machine has changed. */
  readonly baseline: () => Promise<Baseline>;
  /** Stops running work and deletes this runner's own files. Compiled kernels stay. */
  readonly close: () => Promise<void>;
}

type Drawing = Pick<ReferenceOptions, "fixed" | "sets" | "signal">;
type Settings = Required<Omit<MeasureOptions, "enough">> & Pick<MeasureOptions, "enough">;
/** How a kernel is measured where nothing else is asked for. */
export const MEASURING = {
  budgetSeconds: 0.3,
  batchSeconds: 200e-6,
  batches: [5, 200],
  cache: "warm",
  stepSeconds: 10,
  memoryBytes: 2 ** 30,
  fileBytes: 0,
  outputBytes: 2 ** 20,
  variables: {},
} as const satisfies Settings;

/**
 * Makes a runner, or says what this machine lacks. The first measurement waits for the measuring program to compile.
 * @throws UsageError if there are fewer processors than threads
 */
export function createRunner(options: RunnerOptions = {}): Promise<Ready<Runner> | EnvironmentProblem> {
  return orProblem(() => makeRunner(options));
}

async function makeRunner(options: RunnerOptions): Promise<Ready<Runner> | EnvironmentProblem> {
  const threads = options.threads ?? 1;
  const stopping = new AbortController();
  const cores = coresOf(options, stopping.signal);
  checkProcessors(threads, cores.processors);
  // References run on this machine itself.
  const compiler = options.compiler ?? (await findCompiler());
  if (compiler.status === "environment") return compiler;
  const target = options.emulated?.compiler ?? compiler;
  const workdir = options.workdir ?? cacheFolder("runtime");
  await mkdir(workdir, { recursive: true });
  await trimCache(workdir, cacheLimits());
  const scratch = new OwnFolder(await mkdtemp(join(workdir, `runner-${process.pid}-`)));
  // Compiling the harness takes two seconds. Only measurements wait for it and report its failure, while a space can be
  // enumerated meanwhile.
  const harness = madeHarness({ compiler: target, workdir, cores, signal: stopping.signal });
  harness.catch(() => undefined);
  const place = { threads, cores, compiler, target, workdir, harness, scratch, stopping };
  return { status: "ready", runner: new LocalRunner(place, options) };
}

/** Where and with what a runner measures. */
interface Place {
  readonly threads: number;
  readonly cores: Cores;
  readonly compiler: Compiler;
  /** The compiler of kernels and of the measuring program. It differs if they are emulated. */
  readonly target: Compiler;
  readonly workdir: string;
  /** The measuring program, once compiled. */
  readonly harness: Promise<string>;
  /** This runner's own folder. */
  readonly scratch: OwnFolder;
  readonly stopping: AbortController;
}

class LocalRunner implements Runner {
  readonly conditions: Conditions;
  readonly compiler: Compiler;
  readonly workdir: string;
  readonly cores: Cores;
  private readonly place: Place;
  private readonly settings: Settings;
  private readonly seed: number;
  private readonly emulated: ArmTools | undefined;
  private readonly fence: Fence | undefined;
  private readonly pool: CompilePool;
  private readonly oneAtATime = pLimit(1);
  private readonly filesOf: ReturnType<typeof referenceFiles>;

  constructor(place: Place, options: RunnerOptions) {
    const { compiler, target, workdir, cores, threads } = place;
    this.place = place;
    this.filesOf = referenceFiles(place.scratch);
    this.emulated = options.emulated;
    this.fence = options.fence;
    this.settings = { ...MEASURING, ...defined(options) };
    this.seed = options.seed ?? 1;
    const { signal } = place.stopping;
    const { jobs, flags } = options;
    const disassembler = options.emulated?.disassembler;
    this.pool = compilePool({ compiler: target, disassembler, workdir, cores, signal, ...defined({ jobs, flags }) });
    this.compiler = compiler;
    this.workdir = workdir;
    this.cores = cores;
    this.conditions = {
      clock: "CLOCK_MONOTONIC_RAW",
      threads,
      cache: this.settings.cache,
      compiler: { path: compiler.path, version: compiler.version },
    };
  }

  compile(kernel: Kernel, signal?: AbortSignal): Promise<Compiled> {
    return this.pool.kernel(kernel, signal);
  }

  reference(computation: Computation, seed: number, { signal, ...more }: Drawing = {}): Promise<Reference> {
    const { compiler, workdir, cores } = this;
    const { scratch, stopping } = this.place;
    const options = stoppedBy({ compiler, workdir, cores, signal: stopping.signal, ...more }, signal);
    const folder = join(scratch.path, "drawn");
    return onThisMachine("drawing inputs", async () =>
      computation.program
        ? referenceOfParts(computation, seed, options)
        : ((await scratch.writing(() => drawnReference(computation, seed, { ...options, folder }))) ??
          referenceFor(computation, seed, options)),
    );
  }

  async measure(kernel: Kernel, reference: Reference, options?: MeasureOptions): Promise<Measurement> {
    const [only] = await this.compareKernels([kernel], reference, options);
    return only ?? lost();
  }

  async compareKernels(
    kernels: readonly Kernel[],
    reference: Reference,
    { onChecked, ...options }: CompareOptions = {},
  ): Promise<readonly Measurement[]> {
    for (const kernel of kernels) checkArguments(kernel, reference.computation);
    const examined = await Promise.all(kernels.map((kernel) => this.examine(kernel)));
    const results = new Map<number, Measurement>();
    let left: { readonly at: number; readonly fit: Examined }[] = [];
    for (const [at, one] of examined.entries()) {
      if (one.status === "fit") left.push({ at, fit: one });
      else results.set(at, one);
    }
    const sets = await this.filesOf(reference);
    const [first] = kernels;
    // A kernel that dies ends the process. Those without a verdict start again without it.
    while (first && left.length > 0) {
      const kernels = left.map(({ fit }) => fit.file);
      const ofForms = formsAmong(left.map(({ fit }) => fit));
      const onTurn = (kernel: number, stage: string): void =>
        onChecked?.(results.size + (stage === "timing" ? kernels.length : kernel));
      const verdicts = await this.run({ arguments: first.arguments, sets, kernels, ofForms }, options, { onTurn });
      for (const [i, { at, fit }] of left.entries()) {
        const verdict = verdicts.get(i);
        if (verdict) results.set(at, this.toMeasurement(fit, verdict));
      }
      if (verdicts.size === 0) lost();
      left = left.filter(({ at }) => !results.has(at));
    }
    return kernels.map((_, at) => results.get(at) ?? lost());
  }

  async *race(
    kernels: readonly Kernel[],
    reference: Reference,
    { goal, signal, onStart, ...options }: RaceOptions = {},
  ): AsyncGenerator<Measurement, void> {
    const ended = new AbortController();
    const over = signal ? AbortSignal.any([ended.signal, signal]) : ended.signal;
    try {
      yield* inOrder<Measurement>(kernels.length, async (give) => {
        for (const kernel of kernels) checkArguments(kernel, reference.computation);
        const examined = await Promise.all(kernels.map((kernel) => this.examine(kernel)));
        for (const [at, one] of examined.entries()) if (one.status !== "fit") give(at, one);
        const fit = examined.flatMap((one, at) => (one.status === "fit" ? [{ ...one, at }] : []));
        const subject = {
          arguments: kernels[0]?.arguments ?? [],
          sets: await this.filesOf(reference),
          ofForms: formsAmong(fit),
        };
        await raced<Heard>(
          fit.map(({ file }) => file),
          goal,
          (racers, least, onVerdict) => {
            const racing = { ...subject, kernels: racers, race: { goal: least } };
            return this.run(racing, options, { onVerdict, onStart, signal: over });
          },
          (i, verdict) => {
            const one = fit[i] ?? lost();
            give(one.at, this.toMeasurement(one, verdict));
          },
        );
      });
    } catch (error) {
      if (!signal?.aborted) throw error;
    } finally {
      ended.abort();
    }
  }

  async baseline(): Promise<Baseline> {
    const verdicts = await this.run({ arguments: [], sets: [], kernels: [] }, { budgetSeconds: 0.05 });
    const verdict = verdicts.get(0);
    if (verdict?.status !== "timed") internal(`the baseline ended as ${verdict?.status}: ${verdict?.log}`);
    return { samples: verdict.samples, ...summarise(verdict.samples, this.seed), load: verdict.ran.load };
  }

  async close(): Promise<void> {
    const { stopping, scratch, harness } = this.place;
    stopping.abort();
    await harness.catch(() => undefined);
    await this.oneAtATime(() => scratch.remove());
  }

  private run(
    subject: Subject,
    options: MeasureOptions,
    { onVerdict, onTurn, onStart, signal = new AbortController().signal }: Listening = {},
  ): Promise<ReadonlyMap<number, Heard>> {
    const { threads, stopping } = this.place;
    const { stepSeconds, outputBytes, variables, ...timing } = { ...this.settings, ...defined(options) };
    const limits = { stepSeconds, outputBytes, variables, signal: AbortSignal.any([signal, stopping.signal]) };
    const once = async (
      harness: string,
      cpus: readonly number[],
    ): Promise<HarnessReply & { readonly heard: Map<number, Heard> }> => {
      const heard = (verdict: Verdict, load: number | undefined): Heard => ({ ...verdict, ran: { cpus, load } });
      const running = runHarness(
        [...(this.fence?.command ?? []), ...(this.emulated?.emulator ?? []), harness],
        { ...timing, ...subject, cpus, ...(this.fence && { parent: FENCE_PROCESS }) },
        {
          ...limits,
          ...defined({ onTurn }),
          onVerdict: (at, verdict) => verdict.status === "timed" && onVerdict?.(at, heard(verdict, verdict.load)),
        },
      );
      if (onStart) setImmediate(onStart);
      const reply = await running;
      return { ...reply, heard: new Map([...reply.verdicts].map(([at, v]) => [at, heard(v, reply.load)])) };
    };
    return this.oneAtATime(async () => {
      // Awaited before a core is locked, since it compiles on one.
      const harness = await this.place.harness;
      if (stopping.signal.aborted) throw new Error(STOPPED);
      const ran = await this.cores.measuring(threads, async (cpus) => {
        const first = await once(harness, cpus);
        // In a race only the first kernel's result is in doubt; later ones are tried again anyway.
        return first.killed && !(subject.race && first.verdicts.size > 1) ? once(harness, cpus) : first;
      });
      return ran.heard;
    });
  }

  /** Compiles the kernel and counts its instruction: the checks before it runs. */
  private async examine(kernel: Kernel): Promise<Examined | Failed> {
    const compiled = await this.pool.kernel(kernel);
    if (compiled.status === "compile-failed") return compiled;
    const { file, instructions } = compiled;
    const { promises } = kernel;
    if (promises !== undefined && instructions === 0)
      return {
        status: "missing-instruction",
        log: `the disassembly of ${join(this.workdir, basename(file))} does not hold ${promises}`,
      };
    return { status: "fit", file, instructions, isOfForm: kernel.ofForm === true };
  }

  private toMeasurement({ instructions }: Examined, verdict: Heard): Measurement {
    if (verdict.status !== "timed") return verdict;
    if (this.emulated) {
      const where = this.emulated.emulatorVersion ?? "this machine, asked for as another";
      return {
        status: "emulated",
        log: `every element right on every set of inputs under ${where}, ${instructions} of the instruction in its code; not timed`,
      };
    }
    const { samples, dropped, ran } = verdict;
    const summary = summarise(samples, this.seed);
    return { status: "ok", samples, ...summary, instructions, ran, ...(dropped !== undefined && { lostTo: dropped }) };
  }
}

/** The subject of a run of the harness. */
type Subject = Pick<HarnessRequest, "arguments" | "sets" | "kernels" | "ofForms" | "race">;

/** Callbacks during a run. */
interface Listening {
  /** Called with each kernel that was timed. */
  readonly onVerdict?: (kernel: number, verdict: Heard) => void;
  readonly onTurn?: HarnessLimits["onTurn"];
  readonly onStart?: (() => void) | undefined;
  /** Aborts the run. */
  readonly signal?: AbortSignal;
}

/** A verdict, and the conditions under which it was reached. */
type Heard = Verdict & { readonly ran: Surroundings };

interface Examined {
  readonly status: "fit";
  readonly file: string;
  readonly instructions: number;
  readonly isOfForm: boolean;
}

const formsAmong = (examined: readonly Examined[]): ReadonlySet<string> =>
  new Set(examined.filter(({ isOfForm }) => isOfForm).map(({ file }) => file));

type Failed = Exclude<Measurement, { readonly status: "ok" }>;

function lost(): never {
  internal("a kernel was lost");
}
