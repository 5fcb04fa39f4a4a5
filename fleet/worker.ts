/**
 * @file A worker of a fleet: takes signed jobs that fit its machine, compiles, checks and times kernels as a search at home does, and signs what
 * it answers.
 *
 *     const here = await machineHere();
 *     const worker = await startWorker(server, member, here, { measures: 1, compiles: 2, say });
 *     await worker.stop();                 finishes what it is at, takes nothing more
 *
 * It builds and runs what a tuner of its fleet signed, and nothing else. Timing happens one kernel at a time, in child processes: the process itself
 * stays free to renew the locks of its jobs, so a worker that dies loses its jobs to others within a minute.
 *
 * How a worker measures the kernels of one computation: on its CPU or on its GPU, with inputs and answers that are drawn once.
 *
 *     const measurer = await openMeasurer(runner, subject, signal);
 *     await measurer.prepare([kernel], signal);
 *     await measurer.time([kernel], { goal: 4e-5, cache: "warm" }, signal)       [{ status: "ok", median: 3.9e-5, ... }]
 */

import { readFile } from "node:fs/promises";
import type { Job as QueueJob, Worker } from "bullmq";
import pLimit from "p-limit";
import { defined } from "../abstraction/collections.ts";
import { EnvironmentError, type EnvironmentProblem, messageOf } from "../abstraction/error.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import type { Target } from "../abstraction/machine.ts";
import { visible } from "../abstraction/text.ts";
import type { Measurement } from "../abstraction/trial.ts";
import { type Database, idOf, MEMORY, withDatabase } from "../db/index.ts";
import { shortened } from "../db/parse-text.ts";
import type { Environment } from "../db/record.ts";
import { environmentRowOf } from "../db/rows.ts";
import { cacheFolder, isWritten } from "../runtime/cache.ts";
import {
  type CompilePool,
  type Compiler,
  compilePool,
  findCompiler,
  keptKernel,
  recordedCompiler,
} from "../runtime/compiler.ts";
import { shareCores } from "../runtime/cores.ts";
import { requireDisassembler } from "../runtime/disassembly.ts";
import { systemError } from "../runtime/environment.ts";
import type { Fence } from "../runtime/fence.ts";
import { keepBytes } from "../runtime/kept.ts";
import { createRunner, type Runner } from "../runtime/measure.ts";
import type { CudaRunner } from "../runtime/run/cuda.ts";
import { isDoneBefore } from "../runtime/until.ts";
import { gpuRates } from "../session/calibrate/calibrate-gpu.ts";
import { environmentOf, gpuEnvironment } from "../session/calibrate/environment.ts";
import { readGpuCalibration } from "../session/calibrate/gpu-rates.ts";
import { keptCalibration } from "../session/calibrate/shared-calibration.ts";
import { readCalibrationData } from "../session/recorded.ts";
import { checkMemory } from "../session/tune/memory.ts";
import { calibrationFor } from "../session/tune/predict.ts";
import { FINAL, INPUT_SEED, localGpu, runnerOnGpu, TRIAL } from "../session/tune/workplace.ts";
import { isGpu, nativeTarget, recordOf } from "../targets/index.ts";
import { ADVERTS, workersOf } from "./adverts.ts";
import { connectionProblem } from "./connection.ts";
import {
  ADVERT,
  ANSWER,
  advertSent,
  answerTo,
  type Binary,
  type CalibrateJob,
  classOf,
  JOB,
  type Job,
  jobId,
  type KernelAsked,
  type MeasuringJob,
  type Outcome,
  readJob,
  readKernel,
  readSubject,
  type Subject,
  sha256Of,
} from "./jobs.ts";
import type { Member } from "./members.ts";
import type { FleetServer } from "./server.ts";
import { FleetRefusal, sign, verified } from "./signed.ts";

// ---- measuring ---------------------------------------------------------------------------------------------------------------------------

/** Conditions of a measurement. */
interface Timing {
  readonly cache: "warm" | "flushed";
  /** The best time so far. */
  readonly goal?: number | undefined;
  /** Whether the kernels are timed in turns, as contenders of finals are; otherwise there is one. */
  readonly inTurns: boolean;
}

interface Measurer {
  /** Input sets left out of the check, and why, as far as that is known before the first kernel. */
  readonly leftOut: readonly { readonly name: string; readonly because: string }[] | undefined;
  /** Where a binary of a kernel would be kept, to be found by {@link prepare}; undefined where only own ones are used. */
  readonly entryOf: (kernel: Kernel) => string | undefined;
  /** Compiles kernels, or takes those that are kept. Their errors are those of the measurement. */
  readonly prepare: (kernels: readonly Kernel[], signal: AbortSignal) => Promise<void>;
  /** Fewer measurements than kernels when it was stopped. */
  readonly time: (kernels: readonly Kernel[], timing: Timing, signal: AbortSignal) => Promise<readonly Measurement[]>;
  readonly close: () => Promise<void>;
}

/** Draws inputs and computes the answers. The runner is closed with the measurer, or when that fails. */
async function openMeasurer(runner: Runner | CudaRunner, subject: Subject, signal: AbortSignal): Promise<Measurer> {
  try {
    return "device" in runner ? await onGpu(runner, subject) : await onCpu(runner, subject, signal);
  } catch (error) {
    await runner.close();
    throw error;
  }
}

async function onCpu(runner: Runner, { computation, fixed }: Subject, signal: AbortSignal): Promise<Measurer> {
  checkMemory(computation);
  const reference = await runner.reference(computation, INPUT_SEED, { ...defined({ fixed }), signal });
  return {
    leftOut: reference.leftOut,
    entryOf: (kernel) => keptKernel(kernel, runner),
    prepare: async (kernels, stop) => {
      await Promise.all(kernels.map((kernel) => runner.compile(kernel, stop)));
    },
    time: async (kernels, { cache, goal, inTurns }, stop) => {
      if (inTurns) return runner.compareKernels(kernels, reference, { cache });
      const found: Measurement[] = [];
      for await (const one of runner.race(kernels, reference, { ...TRIAL, cache, goal, signal: stop })) found.push(one);
      return found;
    },
    close: () => runner.close(),
  };
}

async function onGpu(runner: CudaRunner, { computation, fixed }: Subject): Promise<Measurer> {
  const reference = await runner.reference(computation, INPUT_SEED, defined({ fixed }));
  return {
    leftOut: undefined,
    entryOf: () => undefined,
    prepare: async (kernels) => {
      await Promise.all(kernels.map((kernel) => runner.compile(kernel)));
    },
    time: (kernels, { goal, inTurns }) =>
      runner.measureTogether(kernels, reference, inTurns ? FINAL : { race: { goal } }),
    close: () => runner.close(),
  };
}

/** Names of queues. */
export const measuringQueue = (environment: string): string => `measure-${environment}`;
export const compileQueue = (compilers: string): string => `compile-${compilers}`;
/** Of one worker alone, by the key it signs with. */
export const ownQueue = (publicKey: string): string => `own-${sha256Of(publicKey).slice(0, 32)}`;

/** What a worker measures and compiles with. */
export interface WorkerMachine {
  readonly machine: Target;
  readonly environment: Environment;
  /** The compiler of kernels for others; undefined for a GPU, which compiles for itself. */
  readonly compiler: Compiler | undefined;
  readonly openRunner: (threads: number) => Promise<Runner | CudaRunner>;
}

/** The CPU of this machine, or what it lacks. @throws EnvironmentError without a disassembler */
export async function machineHere(
  onWait: (text: string) => void,
  fence?: Fence,
): Promise<WorkerMachine | EnvironmentProblem> {
  const compiler = await findCompiler();
  if (compiler.status === "environment") return compiler;
  requireDisassembler();
  const machine = nativeTarget();
  return {
    machine,
    environment: environmentOf({ compiler }, machine),
    compiler,
    openRunner: async (threads) => {
      const made = await createRunner({ threads, compiler, onWait, fence, workdir: cacheFolder("fleet") });
      if (made.status === "environment") throw new EnvironmentError(made);
      return made.runner;
    },
  };
}

/** The GPU of this machine, or what it lacks. @throws EnvironmentError when kernels cannot be compiled for it */
export async function gpuHere(onWait: (text: string) => void): Promise<WorkerMachine | EnvironmentProblem> {
  const machine = await localGpu();
  if ("status" in machine) return machine;
  const openRunner = async (): Promise<CudaRunner> => {
    const made = await runnerOnGpu(machine, onWait);
    if ("status" in made) throw new EnvironmentError(made);
    return made;
  };
  const runner = await openRunner();
  const environment = gpuEnvironment(runner.device, machine);
  await runner.close();
  return { machine, environment, compiler: undefined, openRunner };
}

/** Compilers whose code is the same: of one version, with the same flags, for the same processors. */
function compilersOf({ compiler, environment }: Pick<WorkerMachine, "compiler" | "environment">): string {
  const { version, flags } = compiler ? recordedCompiler(compiler) : environment.compiler;
  return idOf({ version, flags, architecture: process.arch });
}

export interface WorkerOptions {
  /** Whether it measures, or compiles only. */
  readonly measures: boolean;
  /** Compilations at once. */
  readonly compiles: number;
  /** Told what the worker does and refuses. */
  readonly say: (text: string) => void;
  /** Milliseconds of the lock of a job, and between two looks for jobs of workers that died. */
  readonly lockMs?: number;
}

export interface FleetWorker {
  /** The id of the environment that it measures in. */
  readonly environment: string;
  /** Jobs answered so far. */
  readonly answered: () => number;
  /** Resolves with what ended the worker by itself: a fault of the machine again and again. */
  readonly failed: Promise<EnvironmentError>;
  /** Takes nothing more. What it is at is finished, or given back where there is no time for it. */
  readonly stop: (how?: "finish" | "give-back") => Promise<void>;
}

const ADVERT_SECONDS = 60;
/** Jobs that it prepares or measures at once: one is compiled and drawn while the other is timed. */
const AHEAD = 2;
/** Computations whose inputs and answers are kept. */
const HELD = 2;
/** A worker that failed so often in a row stops. */
const MOST_FAULTS = 3;
/** How often a job may be lost with its worker. */
const MOST_LOST = 5;

/** Starts a worker. It serves until it is stopped. */
export async function startWorker(
  server: FleetServer,
  member: Member,
  here: WorkerMachine,
  options: WorkerOptions,
): Promise<FleetWorker> {
  const worker = new Serving(server, member, here, options);
  await worker.begin();
  return worker;
}

/** The worker is stopping, and the job goes back to the queue. */
class GivenBack extends Error {}

/** Tells the queue that a job was put back by its worker, as BullMQ's own error of this name does. */
class WaitingError extends Error {
  override readonly name = "WaitingError";
}

/** A computation with its inputs and answers. */
interface Held {
  readonly key: string;
  readonly measurer: Promise<Measurer>;
  users: number;
}

class Serving implements FleetWorker {
  readonly failed: Promise<EnvironmentError>;
  private readonly server: FleetServer;
  private readonly member: Member;
  private readonly here: WorkerMachine;
  private readonly options: WorkerOptions;
  readonly environment: string;
  private readonly compilers: string;
  private readonly workers: Worker[] = [];
  private readonly held = new Map<string, Held>();
  private readonly inTurn = pLimit(1);
  private readonly giveBack = new AbortController();
  private readonly pool: CompilePool | undefined;
  private fail: (error: EnvironmentError) => void = () => undefined;
  private timer: NodeJS.Timeout | undefined;
  private ending: Promise<void> | undefined;
  /** Jobs that it is at. */
  private atHand = 0;
  private onIdle: () => void = () => undefined;
  private count = 0;
  private faults = 0;

  constructor(server: FleetServer, member: Member, here: WorkerMachine, options: WorkerOptions) {
    this.server = server;
    this.member = member;
    this.here = here;
    this.options = options;
    this.environment = String(environmentRowOf(here.environment)["id"]);
    this.compilers = compilersOf(here);
    this.failed = new Promise((resolve) => {
      this.fail = resolve;
    });
    this.pool =
      here.compiler &&
      compilePool({
        compiler: here.compiler,
        workdir: cacheFolder("fleet"),
        cores: shareCores(),
        jobs: Math.max(1, options.compiles),
        signal: this.giveBack.signal,
      });
  }

  answered(): number {
    return this.count;
  }

  async begin(): Promise<void> {
    const { measures, compiles, lockMs, say } = this.options;
    const { fleet, certificate } = this.member;
    const others = await workersOf(this.server, fleet);
    if (others.some(({ publicKey }) => publicKey === certificate.publicKey))
      say(
        `a worker with the key of ${certificate.name} is there, or was killed within the last minute: each needs a key of its own`,
      );
    const locks = defined({ lockDuration: lockMs, stalledInterval: lockMs });
    const serve = (queue: string, concurrency: number, work: (job: Job) => Promise<Outcome>): void => {
      const answer = async (job: QueueJob, token?: string): Promise<unknown> => {
        this.atHand++;
        try {
          return await this.answer(job, token, work);
        } finally {
          if (--this.atHand === 0) this.onIdle();
        }
      };
      this.workers.push(this.server.worker(queue, answer, { concurrency, maxStalledCount: MOST_LOST, ...locks }));
    };
    if (measures) {
      const measure = (job: Job): Promise<Outcome> => this.measure(expected(job, this.environment));
      serve(measuringQueue(this.environment), AHEAD, measure);
      serve(ownQueue(this.member.certificate.publicKey), 1, measure);
    }
    if (compiles > 0) serve(compileQueue(this.compilers), compiles, (job) => this.compile(job));
    // A queue that does not find its server within the patience of its driver never finds it.
    await Promise.all(this.workers.map((worker) => worker.waitUntilReady())).catch((error: unknown) => {
      throw new EnvironmentError(connectionProblem(this.server.address, error, true));
    });
    await this.advertise();
    this.timer = setInterval(() => void this.advertise().catch(() => undefined), (ADVERT_SECONDS * 1000) / 3);
  }

  stop(how: "finish" | "give-back" = "finish"): Promise<void> {
    if (how === "give-back") this.giveBack.abort();
    this.ending ??= this.end();
    return this.ending;
  }

  private async end(): Promise<void> {
    clearInterval(this.timer);
    const gone = this.server.board.remove(this.boardName()).catch(() => undefined);
    // They take nothing more, and end once they have answered.
    for (const worker of this.workers) worker.close().catch(() => undefined);
    const idle = new Promise<void>((resolve) => {
      this.onIdle = resolve;
    });
    if (this.atHand > 0) await isDoneBefore(idle, this.giveBack.signal);
    const ended = await Promise.all(this.workers.map((worker) => this.server.end(worker)));
    if (ended.every((isThere) => isThere)) await gone;
    this.giveBack.abort();
    await Promise.all([...this.held.values()].map(closed));
    this.held.clear();
  }

  private boardName(): string {
    return ADVERTS + ownQueue(this.member.certificate.publicKey);
  }

  private async advertise(): Promise<void> {
    const { machine, environment } = this.here;
    const { measures, compiles } = this.options;
    const advert = advertSent({
      environment,
      machine: recordOf(machine),
      measures,
      compiles,
      compilers: this.compilers,
      at: Date.now(),
    });
    const text = JSON.stringify(sign(this.member, ADVERT, advert));
    await this.server.board.post(this.boardName(), text, ADVERT_SECONDS);
  }

  /** One job from its message to its signed answer. A fault or a refusal is an answer too, and fails the job. */
  private async answer(
    job: QueueJob,
    token: string | undefined,
    work: (job: Job) => Promise<Outcome>,
  ): Promise<unknown> {
    const { say } = this.options;
    const { fleet } = this.member;
    let asked: Job;
    let tuner: string;
    try {
      const { body, by } = verified(fleet, job.data, { kind: JOB, role: "tuner" });
      asked = readJob(body);
      tuner = by.name;
      if (jobId(asked) !== job.id) throw new FleetRefusal("a job is refused: its id is that of another");
    } catch (error) {
      if (!(error instanceof FleetRefusal)) throw error;
      say(`refused: ${error.message}`);
      throw error;
    }
    let outcome: Outcome;
    try {
      outcome = await work(asked);
      this.faults = 0;
    } catch (error) {
      if (error instanceof GivenBack || this.giveBack.signal.aborted) {
        await job.moveToWait(token);
        throw new WaitingError("its worker stops");
      }
      outcome = this.outcomeOf(error, asked, tuner);
    }
    const signed = sign(this.member, ANSWER, answerTo(asked, outcome));
    if (outcome.status === "fault" || outcome.status === "refused") throw new Error(JSON.stringify(signed));
    this.count++;
    return signed;
  }

  private outcomeOf(error: unknown, { task }: Job, tuner: string): Outcome {
    const { say } = this.options;
    const fault = error instanceof EnvironmentError ? error : systemError(error, task);
    if (fault) {
      const { what, why, remedy } = fault.problem;
      say(`${task} for ${tuner}: ${fault.message}`);
      if (++this.faults >= MOST_FAULTS) this.fail(fault);
      return { status: "fault", what, why, remedy };
    }
    const because = messageOf(error);
    say(`${task} for ${tuner} refused: ${because}`);
    return { status: "refused", because: shortened(because) };
  }

  // ---- compiling

  private async compile(job: Job): Promise<Outcome> {
    if (job.task !== "compile" || classOf(job) !== this.compilers || !this.pool) throw strange();
    const kernel = await this.kernelOf(job.kernel);
    const { promises: _, ...unsearched } = kernel;
    const compiled = await this.pool.kernel({ ...unsearched, promises: undefined });
    if (compiled.status === "compile-failed")
      return { status: "compile-failed", log: shortened(visible(compiled.log)) };
    const bytes = await readFile(compiled.file);
    return { status: "compiled", bytes: await served(this.server.blobs.put(bytes)) };
  }

  // ---- measuring

  private async measure(job: MeasuringJob): Promise<Outcome> {
    if (job.task === "calibrate") return this.calibrate(job);
    const held = await this.hold(job.subject, job.threads);
    try {
      const measurer = await held.measurer;
      if (job.task === "draw") {
        const { leftOut } = measurer;
        return { status: "drawn", ...(leftOut && { leftOut: [...leftOut] }) };
      }
      const asked = job.task === "race" ? [job.kernel] : job.kernels;
      const kernels = await Promise.all(asked.map((kernel) => this.kernelOf(kernel)));
      const taken = await Promise.all(asked.map((one, i) => this.adopt(one.binary, kernels[i], measurer)));
      const compiledHere = taken.find((why) => why !== undefined);
      const { signal } = this.giveBack;
      // Beside a kernel that is being timed.
      await measurer.prepare(kernels, signal);
      const timing = {
        cache: job.cache,
        inTurns: job.task === "compare",
        ...(job.task === "race" && { goal: job.goal }),
      };
      const measurements = await this.inTurn(() => (signal.aborted ? [] : measurer.time(kernels, timing, signal)));
      if (measurements.length < kernels.length) throw new GivenBack();
      return { status: "measured", measurements: measurements.map(sent), ...(compiledHere && { compiledHere }) };
    } finally {
      held.users--;
    }
  }

  private async calibrate({ effort }: CalibrateJob): Promise<Outcome> {
    const { machine, environment } = this.here;
    if (effort === "kept") {
      const kept = keptCalibration<unknown>(environment, isGpu(machine) ? readGpuCalibration : readCalibrationData);
      return kept ? calibrated(kept.calibration, false) : { status: "uncalibrated" };
    }
    const { say: announce } = this.options;
    const { signal } = this.giveBack;
    const anew = effort === "anew";
    const runner = await this.here.openRunner(1);
    const ratesIn = (db: Database): Promise<{ readonly calibration: unknown; readonly measured: boolean }> =>
      "device" in runner
        ? gpuRates(db, runner, machine, { anew, announce })
        : calibrationFor(db, environment, runner, announce, { machine, anew, signal });
    try {
      const { calibration, measured } = await this.inTurn(() => withDatabase(MEMORY, ratesIn, {}));
      return calibrated(calibration, measured);
    } finally {
      await runner.close();
    }
  }

  /** The inputs and answers of a computation, drawn when it is first asked for. */
  private async hold(subject: string, threads: number): Promise<Held> {
    const key = `${subject} ${threads}`;
    let held = this.held.get(key);
    if (held) this.held.delete(key);
    else {
      const read = readSubject(await this.textOf(subject));
      held = this.held.get(key);
      if (!held) {
        const { signal } = this.giveBack;
        const measurer = this.here.openRunner(threads).then((runner) => openMeasurer(runner, read, signal));
        held = { key, measurer, users: 0 };
        measurer.catch(() => this.held.delete(key));
      }
    }
    held.users++;
    this.held.set(key, held);
    for (const oldest of this.held.values()) {
      if (this.held.size <= HELD || oldest.users > 0) break;
      this.held.delete(oldest.key);
      await closed(oldest);
    }
    return held;
  }

  private async kernelOf({ text }: Pick<KernelAsked, "text">): Promise<Kernel> {
    const kernel = readKernel(await this.textOf(text));
    const language = isGpu(this.here.machine) ? "cuda" : "c++";
    if (kernel.language !== language) throw new FleetRefusal(`a kernel in ${kernel.language} is not built here`);
    return kernel;
  }

  private async textOf(hash: string): Promise<string> {
    const bytes = await this.blob(hash);
    if (bytes === undefined) throw new FleetRefusal("what a job names is no longer on the server");
    return bytes.toString("utf8");
  }

  private blob(hash: string): Promise<Buffer | undefined> {
    return served(this.server.blobs.get(hash));
  }

  /** Takes a binary that another worker made of the kernel, where the compilers are the same. @returns why it is compiled here */
  private async adopt(
    binary: Binary | undefined,
    kernel: Kernel | undefined,
    { entryOf }: Measurer,
  ): Promise<string | undefined> {
    if (!binary || !kernel) return undefined;
    if (binary.compilers !== this.compilers) return "another compiler, or other flags";
    const entry = entryOf(kernel);
    if (entry === undefined || (await isWritten(entry))) return undefined;
    const bytes = await this.blob(binary.bytes);
    if (bytes === undefined) return "the binary is no longer on the server";
    await keepBytes(bytes, entry);
    return undefined;
  }
}

/** Figures as plain data. @param isNew whether they were measured for this job */
function calibrated(figures: unknown, isNew: boolean): Outcome {
  return { status: "calibrated", data: JSON.parse(JSON.stringify(figures)), isNew };
}

/** What the server does for a job. While it is away, which is no fault of this machine, the job is given back, to be done again. */
async function served<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    if (error instanceof EnvironmentError) throw new GivenBack();
    throw error;
  }
}

function expected(job: Job, environment: string): MeasuringJob {
  if (job.task === "compile" || job.environment !== environment) throw strange();
  return job;
}

const strange = (): FleetRefusal => new FleetRefusal("a job is refused: it is for another kind of machine");

/** A measurement as it is recorded: its log is cut, and shows what cannot be seen. */
function sent(measurement: Measurement): Measurement {
  return measurement.status === "ok" ? measurement : { ...measurement, log: shortened(visible(measurement.log)) };
}

async function closed({ measurer }: Held): Promise<void> {
  const made = await measurer.catch(() => undefined);
  await made?.close();
}
