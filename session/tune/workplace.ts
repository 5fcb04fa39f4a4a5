/**
 * @file The machine that compiles, verifies and times the kernels of a search: the CPU or the GPU of this computer.
 *
 *     const place = await openWorkplace(machine, { threads: 1 });
 *     if (place.status === "environment") ...                         no compiler, no GPU: what to install
 *     const bench = await place.bench(conv2d, { announce });
 *     for await (const measurement of bench.measure(kernels)) ...     in the order of the kernels
 */

import { availableParallelism } from "node:os";
import { setTimeout } from "node:timers/promises";
import { namesOf } from "../../abstraction/collections.ts";
import { type Computation, pointCount } from "../../abstraction/computation.ts";
import { EnvironmentError, type EnvironmentProblem, internal } from "../../abstraction/error.ts";
import type { Inputs } from "../../abstraction/interpret.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import type { Target } from "../../abstraction/machine.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import type { Conditions, Database, Environment } from "../../db/index.ts";
import type { Calibration } from "../../perfmodel/calibrate.ts";
import { requireDisassembler } from "../../runtime/disassembly.ts";
import { createRunner, type RaceOptions, type Runner } from "../../runtime/measure.ts";
import { findOpenClCpu, openClVariables } from "../../runtime/opencl-device.ts";
import { coresHere } from "../../runtime/processor.ts";
import type { Reference } from "../../runtime/reference/verify.ts";
import { type CudaRunner, createCudaRunner } from "../../runtime/run/cuda.ts";
import { findGpus } from "../../runtime/run/cuda-device.ts";
import { following, isDoneBefore, type Until } from "../../runtime/until.ts";
import {
  gpuTargetOf,
  isGpu,
  isPredictedOnly,
  nativeTarget,
  OPENCL_ISA,
  oclocDevice,
  openClFeatures,
} from "../../targets/index.ts";
import { CutShort } from "../../tuner/search.ts";
import { environmentOf, gpuEnvironment } from "../calibrate/environment.ts";
import { calibratedMachine, takeOverRates } from "../calibrate/gpu-rates.ts";
import { calibrationFor } from "./predict.ts";
import { checkThreads } from "./threads.ts";

export interface Workplace {
  readonly status: "open";
  /** The environment as records name it. */
  readonly environment: Environment;
  /** Candidates a round; when undefined, the search's own number. */
  readonly batch: number | undefined;
  /** Rates measured on this machine, now if the database has none; undefined when the target's own rates apply. */
  readonly calibration: (
    db: Database,
    announce: (text: string) => void,
    signal?: AbortSignal,
  ) => Promise<Calibration | undefined>;
  /** The machine as the model uses it; for a GPU, with the rates that a database has for it. */
  readonly machineIn: (db: Database) => Target;
  /** Draws inputs and computes the expected results. */
  readonly bench: (computation: Computation, options: BenchOptions) => Promise<Bench>;
  /**
   * Checks that the machine code can be searched for the instructions that kernels promise. @throws EnvironmentError when no tool here can do
   * that
   */
  readonly checkPromises: () => void;
  /** Seconds spent so far waiting for another search to release a core. */
  readonly waited: () => number;
  readonly close: () => Promise<void>;
}

interface BenchOptions {
  /** Values of tensors that the operator itself fixes. */
  readonly fixed?: Inputs | undefined;
  /** State of the caches before each call of a kernel; warm when left out. Not used on a GPU. */
  readonly cache?: Conditions["cache"];
  readonly announce: (text: string) => void;
  /** Aborted when the expected results take too long. On a GPU they are computed beside the first kernels. */
  readonly late?: AbortSignal | undefined;
}

/** One computation on the machine that measures it. */
export interface Bench {
  /** Input sets left out of the check because they would not reveal wrong results; part of the run's record. */
  readonly leftOut?: Reference["leftOut"];
  /** Compiles a kernel that will be measured next, unless the user has stopped the search. Its errors are those of the measurement. */
  readonly begin: (kernel: Kernel, stop: AbortSignal) => Promise<void>;
  /**
   * Measures kernels. They compile in parallel; none is timed while another compiles. Undefined for one that there was no time for.
   * @param meanwhile work of this process, called while a core is idle: beside a kernel on another core, or beside compilers where there is none
   */
  readonly measure: (
    kernels: readonly Kernel[],
    until?: Until,
    meanwhile?: () => void,
  ) => AsyncIterable<Measurement | undefined> | Promise<readonly Measurement[]>;
  /**
   * Measures kernels in one process on the same memory, in alternating batches.
   * @param onDone called with the number of kernels that were checked so far; on a GPU with that of the ones that were measured
   */
  readonly compare: (kernels: readonly Kernel[], onDone: (kernels: number) => void) => Promise<readonly Measurement[]>;
}

export const INPUT_SEED = 1;
/** From this many points on, drawing inputs and computing the reference takes seconds on a CPU, and the user is told. */
const LARGE_POINTS = 1e8;

interface WorkplaceOptions {
  readonly threads: number;
  /** Compiles and measures; created when left out. */
  readonly runner?: Runner | CudaRunner | undefined;
  /** Called with what is waited for: another search that measures or compiles. */
  readonly onWait?: ((text: string) => void) | undefined;
}

/** Why no kernels can be measured for a machine, whatever is installed here. */
export function measuringProblem(machine: Target): EnvironmentProblem | undefined {
  if (!isPredictedOnly(machine)) return undefined;
  const compiled = oclocDevice(machine) === undefined ? "" : "; those in OpenCL C are compiled by ocloc";
  return {
    status: "environment",
    what: `nothing here measures kernels for ${machine.name}`,
    why: `kernels for it are predicted by the model and run under emulation${compiled}`,
    remedy: "--emulate runs the best under emulation, --model-only ranks alone; --to writes the best",
  };
}

/** @throws UsageError when the machine lacks what is requested */
export async function openWorkplace(
  machine: Target,
  { threads, runner, onWait }: WorkplaceOptions,
): Promise<Workplace | EnvironmentProblem> {
  const unmeasured = measuringProblem(machine);
  if (unmeasured) return unmeasured;
  if (isGpu(machine)) {
    checkThreads(machine, threads);
    const made = runner && "device" in runner ? runner : await runnerOnGpu(machine, onWait);
    return "status" in made ? made : gpuWorkplace(made, machine);
  }
  if (runner && "device" in runner) internal(`a GPU's runner for ${machine.name}`);
  const made = runner
    ? { status: "ready" as const, runner }
    : await createRunner({
        threads,
        ...(machine.isa.includes(OPENCL_ISA) && { ...OPENCL_LIMITS, variables: openClVariables(threads) }),
        ...(onWait ? { onWait } : {}),
      });
  return made.status === "environment" ? made : cpuWorkplace(made.runner, machine, runner === undefined);
}

/** An OpenCL platform compiles within the calling process: limits for its compiler's memory and for the files it writes. */
const OPENCL_LIMITS = { memoryBytes: 2 ** 33, fileBytes: 2 ** 28 } as const;

function cpuWorkplace(runner: Runner, machine: Target, isOwn: boolean): Workplace {
  const environment = environmentOf(runner, machine);
  return {
    status: "open",
    environment,
    batch: undefined,
    calibration: async (db, announce, signal) =>
      (await calibrationFor(db, environment, runner, announce, { machine, signal })).calibration,
    machineIn: () => machine,
    checkPromises: () => {
      if (isOwn) requireDisassembler();
    },
    bench: async (computation, { fixed, cache = "warm", announce, late }) => {
      if (pointCount(computation) > LARGE_POINTS)
        announce("drawing inputs and computing what kernels must answer: some seconds for so large a computation");
      const reference = await runner.reference(computation, INPUT_SEED, { ...(fixed && { fixed }), signal: late });
      const { leftOut, sets } = reference;
      if (leftOut) {
        const kept = namesOf(sets).join(" and ");
        const why = leftOut.map(({ name, because }) => `not by ${name} ones: ${because}`).join("; ");
        announce(`kernels are checked by ${kept} inputs, ${why}`);
      }
      // Kernels compiled for the next measurement, and the signal that stops them.
      let compiling = new Map<Kernel, Promise<unknown>>();
      let ended = new AbortController();
      const compile = (kernel: Kernel, signal: AbortSignal): Promise<unknown> => {
        const compiled = compiling.get(kernel) ?? runner.compile(kernel, signal);
        compiling.set(kernel, compiled);
        return compiled;
      };
      return {
        ...(leftOut && { leftOut }),
        begin: (kernel, stop) => settled(compile(kernel, AbortSignal.any([ended.signal, stop]))),
        async *measure(kernels, until, meanwhile): AsyncGenerator<Measurement | undefined> {
          const isSpare = coresHere().length > runner.conditions.threads;
          if (!isSpare) meanwhile?.();
          const compiled = kernels.map((kernel) => compile(kernel, ended.signal));
          const ready = new Set<Kernel>();
          for (const [i, kernel] of kernels.entries())
            compiled[i]?.then(() => ready.add(kernel)).catch(() => undefined);
          try {
            const inTime = await isDoneBefore(
              Promise.all(compiled),
              until && AbortSignal.any([until.soon, until.stop]),
            );
            if (!inTime && until?.needsOne && ready.size === 0) await isDoneBefore(compiled[0], until.stop);
            if (!inTime && until?.stop.aborted) return;
            // What is not compiled now never will be.
            if (!inTime) ended.abort();
            const timing = { ...TRIAL, cache, ...(isSpare && meanwhile && { onStart: meanwhile }) };
            const timely = kernels.filter((kernel) => inTime || ready.has(kernel));
            yield* amongAll(kernels, timely, raceUntil(runner, timely, reference, timing, until));
          } finally {
            ended.abort();
            [compiling, ended] = [new Map(), new AbortController()];
          }
        },
        compare: (kernels, onChecked) => runner.compareKernels(kernels, reference, { cache, onChecked }),
      };
    },
    waited: () => runner.cores.waited(),
    close: () => runner.close(),
  };
}

/** The end of a compilation. Its result, or error, is handled by the measurement that awaits it. */
async function settled(compiling: Promise<unknown>): Promise<void> {
  await compiling.catch(() => undefined);
}

/** The answers of some kernels among all, in order, and undefined for the others; no more once the answers end. */
async function* amongAll<T>(
  kernels: readonly Kernel[],
  some: readonly Kernel[],
  answers: AsyncGenerator<T, void>,
): AsyncGenerator<T | undefined, void> {
  try {
    for (const kernel of kernels) {
      const next = some.includes(kernel) ? await answers.next() : undefined;
      if (next?.done) return;
      yield next?.value;
    }
  } finally {
    await answers.return();
  }
}

/** Measures kernels until the user stops or the time is up. A kernel that hangs is then not waited for. */
async function* raceUntil(
  runner: Runner,
  kernels: readonly Kernel[],
  reference: Reference,
  timing: RaceOptions,
  until: Until | undefined,
): AsyncGenerator<Measurement, void> {
  if (!until) return yield* runner.race(kernels, reference, timing);
  const stop = following(until.stop, PATIENCE_MS);
  const time = following(until.time, PATIENCE_MS);
  const late = new AbortController();
  // A search without a result waits for its first one, whatever the time.
  let isAnswered = !until.needsOne;
  const look = (): void => {
    if (isAnswered && time.signal.aborted) late.abort();
  };
  time.signal.addEventListener("abort", look);
  try {
    const signal = AbortSignal.any([stop.signal, late.signal]);
    for await (const answer of runner.race(kernels, reference, { ...timing, goal: until.goal, signal })) {
      yield answer;
      isAnswered = true;
      look();
    }
  } finally {
    stop.letGo();
    time.letGo();
  }
}

/**
 * Timing of a trial on a CPU. Contenders are measured again in the finals, with the usual times. Fifty batches of 200 us take 10 ms: their
 * median lay within 0.06 % of that of a hundred for half of 204 kernels of four searches, and within 1.6 % for nine in ten (Xeon with AMX,
 * 2026-11-22). A longer call is a batch by itself, and twenty of those are enough: of 206 trials of 0.3 ms to 2 ms their median lay within 0.26 %
 * of that of fifty for half, and within 2.2 % for nine in ten (Zen 4, 2026-11-23).
 */
export const TRIAL = { budgetSeconds: 0.1, batches: [3, 50], enough: [20, 0.01] } as const;
/** Longest wait, after a stop, for a measurement in progress. */
export const PATIENCE_MS = 500;
/** Finals on a GPU take longer than trials. */
export const FINAL = { budgetSeconds: 0.2, batches: [20, 400] } as const;
/**
 * Fewest and most kernels that are compiled in parallel and measured in one process: one for each core within these limits, since more or fewer
 * would not pay for a process.
 */
const BATCHES = [4, 16] as const;

function gpuWorkplace(runner: CudaRunner, machine: Target): Workplace {
  const environment = gpuEnvironment(runner.device, machine);
  return {
    status: "open",
    environment,
    batch: Math.min(BATCHES[1], Math.max(BATCHES[0], availableParallelism())),
    calibration: (db) => {
      takeOverRates(db, environment);
      return Promise.resolve(undefined);
    },
    machineIn: (db) => calibratedMachine(db, environment, machine).machine,
    checkPromises: () => undefined,
    bench: (computation, { fixed, announce }) => {
      const left = new Set<string>();
      const onLeftOut = (set: string): void => {
        if (!left.has(set))
          announce(`kernels are not checked by ${set} inputs: rounding may differ by as much as the answers do`);
        left.add(set);
      };
      // Compiled beside the first kernels. The measurement that awaits it reports its errors.
      const reference = runner.reference(computation, INPUT_SEED, fixed ? { fixed } : {});
      reference.catch(() => undefined);
      runner.prepare(reference).catch(() => undefined);
      return Promise.resolve({
        begin: (kernel) => settled(runner.compile(kernel)),
        measure: async (kernels, until, meanwhile) => {
          const known = new Map<number, Measurement>();
          const onMeasured = (at: number, measurement: Measurement): void => void known.set(at, measurement);
          const answered = (): readonly Measurement[] => {
            const missing = kernels.findIndex((_, at) => !known.has(at));
            return kernels.slice(0, missing === -1 ? kernels.length : missing).flatMap((_, at) => known.get(at) ?? []);
          };
          try {
            const measuring = runner.measureTogether(kernels, reference, {
              onMeasured,
              onLeftOut,
              race: { goal: until?.goal },
              ...(until && { until }),
            });
            // Beside the compilers, which have just been started.
            meanwhile?.();
            if (await isDoneBefore(measuring, until?.stop)) return await measuring;
            // A stopped measurement ends at once, but may still be waiting for the device.
            await Promise.race([measuring, setTimeout(PATIENCE_MS, undefined, { ref: false })]);
          } catch (error) {
            if (error instanceof EnvironmentError) throw new CutShort(answered(), error);
            if (!until?.stop.aborted) throw error;
          }
          return answered();
        },
        compare: (kernels, onDone) => {
          let done = 0;
          return runner.measureTogether(kernels, reference, { ...FINAL, onMeasured: () => onDone(++done) });
        },
      });
    },
    waited: () => runner.waited(),
    close: () => runner.close(),
  };
}

/** The GPU of this machine as a target, or why there is none. Whether it can be compiled for is checked elsewhere. */
export async function localGpu(): Promise<Target | EnvironmentProblem> {
  const gpus = await findGpus();
  return "status" in gpus ? gpus : gpuTargetOf(gpus[0]);
}

/** The CPU of this machine as an OpenCL device for kernels of so many threads, named after the device; or what is missing. */
export async function localOpenCl(threads = 1): Promise<Target | EnvironmentProblem> {
  const device = await findOpenClCpu(threads);
  if ("status" in device) return device;
  const cpu = nativeTarget();
  const isa = openClFeatures(device.name, cpu.isa);
  return { ...cpu, name: device.name, summary: `${cpu.name} by way of OpenCL C`, isa, compilerFlags: [] };
}

/** A runner for the GPU of this machine, or what is missing. @throws EnvironmentError when the GPU here is a different one */
export async function runnerOnGpu(
  machine: Target,
  onWait: WorkplaceOptions["onWait"],
): Promise<CudaRunner | EnvironmentProblem> {
  const gpus = await findGpus();
  if ("status" in gpus) return gpus;
  const here = gpuTargetOf(gpus[0]);
  if (here.name === machine.name) {
    const made = await createCudaRunner(onWait ? { onWait } : {});
    return made.status === "environment" ? made : made.runner;
  }
  throw new EnvironmentError({
    what: `this machine's GPU is ${gpus[0].name} (target ${here.name}), not the ${machine.name} asked for`,
    why: "a kernel is measured on the machine it is tuned for",
    remedy: "--target cuda takes the GPU that is here",
  });
}
