/**
 * @file A fleet as the workplace of a search: kernels are compiled and measured by its workers, and the search decides as it does at home.
 *
 *     const place = await openFleetPlace({ server, member, on: "isa contains amx_int8", threads: 1, announce: say });
 *     await tuneComputation(subject, { machine: place.machine, openPlace: () => Promise.resolve(place) });
 *
 * A round is as large as at home, and a kernel is one job, so what is proposed does not depend on how many workers there are.
 */

import { randomInt } from "node:crypto";
import { defined } from "../abstraction/collections.ts";
import { EnvironmentError, internal } from "../abstraction/error.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import type { Target } from "../abstraction/machine.ts";
import type { Measurement } from "../abstraction/trial.ts";
import { type Conditions, type Database, type Environment, recordCalibration } from "../db/index.ts";
import { readMeasurement } from "../db/measurement.ts";
import { printTime } from "../report/text.ts";
import { following, heard, type Until } from "../runtime/until.ts";
import { calibratedMachine, readGpuCalibration } from "../session/calibrate/gpu-rates.ts";
import { storedIn } from "../session/calibrate/shared-calibration.ts";
import { readCalibrationData } from "../session/recorded.ts";
import { type Bench, PATIENCE_MS, type Workplace } from "../session/tune/workplace.ts";
import { gpuTargetNamed, isGpu, targetOf } from "../targets/index.ts";
import { chooseEnvironment, type KnownWorker, workersOf } from "./adverts.ts";
import { type Answered, Asking, Withdrawn } from "./asking.ts";
import { agree, Crew, claimsMore } from "./crew.ts";
import {
  type CalibrateJob,
  type Job,
  type KernelAsked,
  kernelText,
  REPETITIONS,
  type Subject,
  subjectText,
} from "./jobs.ts";
import type { Member } from "./members.ts";
import type { FleetServer } from "./server.ts";
import { compileQueue, measuringQueue, ownQueue } from "./worker.ts";

type RaceJob = Extract<Job, { task: "race" }>;
type CompareJob = Extract<Job, { task: "compare" }>;

export interface FleetPlace extends Workplace {
  /** The machine of the workers. */
  readonly machine: Target;
  /** Names of the workers that measure. */
  readonly workers: readonly string[];
  /** Rates of their machine: those of a database, or as a worker measures them. @param anew whether they are measured in any case */
  readonly rates: <T>(db: Database, read: (data: unknown) => T | undefined, anew: boolean) => Promise<Rates<T>>;
  /** Measures a kernel as finals do, whatever was measured of it before. */
  readonly again: (kernel: Kernel, subject: Subject, conditions: Conditions) => Promise<Measurement>;
}

/** Figures of the model. */
interface Rates<T> {
  readonly calibration: T;
  /** Whether they were measured now. */
  readonly measured: boolean;
}

export interface FleetPlaceOptions {
  readonly server: FleetServer;
  /** A tuner of the fleet. */
  readonly member: Member;
  /** A condition on the workers that measure. */
  readonly on?: string | undefined;
  readonly threads: number;
  readonly announce: (text: string) => void;
  /** Milliseconds between two looks for answers whose events may have been lost. */
  readonly lookMs?: number;
  /** Milliseconds that a search waits for a worker when there is none. */
  readonly patienceMs?: number;
  /** One trial of so many is measured again by another worker. */
  readonly checkOneOf?: number;
}

const CHECK_ONE_OF = 100;
/** Kernels a round on a GPU. At home it depends on the processors beside it. */
const GPU_BATCH = 8;
/** So often a search that waits for a certain worker looks whether it is still there. */
const AWAY_MS = 5000;

/**
 * Opens the workplace; closing it closes the server.
 * @throws EnvironmentError when no worker fits; UsageError when those that fit have several environments
 */
export async function openFleetPlace(options: FleetPlaceOptions): Promise<FleetPlace> {
  const { server, member, on, threads, announce, lookMs, patienceMs, checkOneOf = CHECK_ONE_OF } = options;
  const workers = await workersOf(server, member.fleet);
  const chosen = chooseEnvironment(workers, on);
  const asking = new Asking(server, member, { announce, ...defined({ lookMs }) });
  const ended = new AbortController();
  const { environment: record } = chosen;
  const { id, ...environment } = record;
  const told = chosen.workers[0].advert.machine;
  const machine = gpuTargetNamed(told.name) ?? targetOf(told);
  const onAlone = (): void =>
    asking.giveUp({
      what: `no worker of the fleet is there that measures on ${record.target}`,
      why: "a search waits for one, but not for ever",
      remedy: "start one, and run the same command again: what was measured is kept",
    });
  const crew = new Crew(server, member.fleet, { environment: id, workers, announce, onAlone, patienceMs });
  const { compilers } = chosen.workers[0].advert;
  const said = new Set<string>();
  const announceOnce = (text: string): void => {
    if (!said.has(text)) announce(text);
    said.add(text);
  };
  const place = {
    asking,
    crew,
    compilers,
    environment: id,
    world: environment,
    threads,
    announce,
    announceOnce,
    checkOneOf,
    ended: ended.signal,
  };
  return {
    status: "open",
    machine,
    workers: chosen.workers.map(({ name }) => name),
    environment,
    batch: isGpu(machine) ? GPU_BATCH : undefined,
    calibration: async (db, _, signal) => {
      if (!isGpu(machine))
        return (await ratesIn(db, place, readCalibrationData, { effort: "once", signal }))?.calibration;
      // Without rates that were measured before, the model has those of its table.
      await ratesIn(db, place, readGpuCalibration, { effort: "kept", signal });
      return undefined;
    },
    rates: async (db, read, anew) => {
      const found = await ratesIn(db, place, read, { effort: anew ? "anew" : "once" });
      return found ?? internal("a worker that measures rates has them");
    },
    again: async (kernel, subject, { threads: wanted, cache }) => {
      const text = await asking.put(subjectText(subject));
      return new FleetBench({ ...place, threads: wanted }, { subject, text, cache }, undefined).again(kernel);
    },
    machineIn: (db) => (isGpu(machine) ? calibratedMachine(db, environment, machine).machine : machine),
    // Workers refuse to start without a disassembler.
    checkPromises: () => undefined,
    bench: async (computation, { fixed, cache = "warm", announce: tell, late }) => {
      const subject = { computation, fixed };
      const text = await asking.put(subjectText(subject), late);
      const { outcome } = await askCrew(place, { task: "draw", environment: id, subject: text, threads }, late);
      if (outcome.status !== "drawn") internal(`a worker drew inputs and answers that it ${outcome.status}`);
      const { leftOut } = outcome;
      for (const { name, because } of leftOut ?? []) tell(`kernels are not checked by ${name} inputs: ${because}`);
      return new FleetBench(place, { subject, text, cache }, leftOut as Bench["leftOut"]);
    },
    waited: () => 0,
    close: async () => {
      ended.abort();
      crew.close();
      await asking.close();
      await server.close();
    },
  };
}

interface RatesOptions {
  readonly effort: CalibrateJob["effort"];
  readonly signal?: AbortSignal | undefined;
}

/** Rates of the workers' machine: those of a database, or what a worker knows or measures, which the database then has. */
async function ratesIn<T>(
  db: Database,
  place: Place,
  read: (data: unknown) => T | undefined,
  { effort, signal }: RatesOptions,
): Promise<Rates<T> | undefined> {
  const { environment, world, announce } = place;
  const stored = effort === "anew" ? undefined : storedIn(db, world, read);
  if (stored) return { calibration: stored.calibration, measured: false };
  if (effort !== "kept") announce("a worker tells the rates of its machine, or measures them: some seconds");
  // An earlier answer, which stays on the server for some minutes, may not be what the worker knows now.
  const repetition = randomInt(REPETITIONS);
  const answered = await askCrew(place, { task: "calibrate", environment, effort, repetition }, signal);
  const { outcome } = answered;
  if (outcome.status === "uncalibrated" && effort === "kept") return undefined;
  if (outcome.status !== "calibrated") return unreadable(answered);
  const calibration = read(outcome.data) ?? unreadable(answered);
  if (!db.readonly) recordCalibration(db, { environment: world, data: calibration, at: Date.now() });
  return { calibration, measured: outcome.isNew };
}

function unreadable({ worker, outcome }: Answered): never {
  throw new EnvironmentError({
    what: `worker ${worker} answers a ${outcome.status} that cannot be read`,
    why: "the answers of workers are held against what a record may hold",
    remedy: "use the same automap on both sides",
  });
}

interface Place {
  readonly asking: Asking;
  readonly crew: Crew;
  /** The class of compilers of those who measure. */
  readonly compilers: string;
  readonly environment: string;
  readonly world: Environment;
  readonly threads: number;
  readonly announce: (text: string) => void;
  /** Says what was not said before. */
  readonly announceOnce: (text: string) => void;
  readonly checkOneOf: number;
  readonly ended: AbortSignal;
}

/** Asks whoever is free, or one that is trusted. */
async function askCrew(place: Place, job: Job, signal: AbortSignal | undefined): Promise<Answered> {
  for (;;) {
    const worker = place.crew.next();
    if (!worker) return place.asking.ask(measuringQueue(place.environment), job, signal);
    const answered = await askOne(place, worker, job, signal);
    if (answered) return answered;
  }
}

/** Asks one worker. Undefined when it goes away before it answers, or somebody else answers in its place. */
async function askOne(
  { asking, crew }: Place,
  worker: KnownWorker,
  job: Job,
  signal: AbortSignal | undefined,
): Promise<Answered | undefined> {
  const gone = new AbortController();
  const timer = setInterval(() => {
    if (!crew.isThere(worker)) gone.abort();
  }, AWAY_MS);
  try {
    const signals = signal ? [signal, gone.signal] : [gone.signal];
    const answered = await asking.ask(ownQueue(worker.publicKey), job, AbortSignal.any(signals));
    return answered.worker === worker.name ? answered : undefined;
  } catch (error) {
    if (error instanceof Withdrawn && gone.signal.aborted && !signal?.aborted) return undefined;
    throw error;
  } finally {
    clearInterval(timer);
  }
}

interface Benched {
  readonly subject: Subject;
  /** The hash of its text. */
  readonly text: string;
  readonly cache: "warm" | "flushed";
}

class FleetBench implements Bench {
  readonly leftOut?: NonNullable<Bench["leftOut"]>;
  private readonly place: Place;
  private readonly benched: Benched;
  /** Kernels that are on the server, with the binary that a worker makes of each. */
  private readonly built = new Map<Kernel, Promise<KernelAsked>>();

  constructor(place: Place, benched: Benched, leftOut: Bench["leftOut"]) {
    this.place = place;
    this.benched = benched;
    if (leftOut) this.leftOut = leftOut;
  }

  begin(kernel: Kernel, stop: AbortSignal): Promise<void> {
    return this.build(kernel, stop).then(
      () => undefined,
      () => undefined,
    );
  }

  async *measure(
    kernels: readonly Kernel[],
    until?: Until,
    meanwhile?: () => void,
  ): AsyncGenerator<Measurement | undefined> {
    const rounds = kernels.map((kernel) => new Awaited(kernel));
    const stop = until && following(until.stop, PATIENCE_MS);
    const time = until && following(until.time, PATIENCE_MS);
    let isAnswered = !until?.needsOne;
    const dropLate = (): void => {
      if (isAnswered && time?.signal.aborted) for (const one of rounds) one.drop.abort();
    };
    const dropUncompiled = (): void => {
      const isAny = rounds.some((one) => one.isBuilt);
      for (const [i, one] of rounds.entries()) if (!one.isBuilt && (isAnswered || isAny || i > 0)) one.drop.abort();
    };
    const releases = [
      heard(until?.soon, dropUncompiled),
      heard(time?.signal, dropLate),
      heard(stop?.signal, () => {
        for (const one of rounds) one.drop.abort();
      }),
    ];
    try {
      for (const one of rounds) {
        one.answer = this.answerOf(one, until?.goal);
        // Reported where it is awaited.
        one.answer.catch(() => undefined);
      }
      meanwhile?.();
      for (const one of rounds) {
        const answer = await one.answer;
        // What was dropped for a stop is not what there was no time for.
        if (stop?.signal.aborted || (answer === undefined && until?.stop.aborted)) return;
        yield answer;
        isAnswered ||= answer !== undefined;
        dropLate();
      }
    } finally {
      for (const one of rounds) one.drop.abort();
      for (const release of releases) release();
      stop?.letGo();
      time?.letGo();
      this.built.clear();
    }
  }

  async compare(kernels: readonly Kernel[], onDone: (kernels: number) => void): Promise<readonly Measurement[]> {
    const measured = await this.compared(kernels, 0);
    onDone(kernels.length);
    return measured;
  }

  async again(kernel: Kernel): Promise<Measurement> {
    const [only] = await this.compared([kernel], randomInt(1, REPETITIONS));
    return only ?? internal("a kernel has no answer");
  }

  private async compared(kernels: readonly Kernel[], repetition: number): Promise<readonly Measurement[]> {
    const { environment, threads, ended } = this.place;
    const { text, cache } = this.benched;
    const built = await Promise.all(kernels.map((kernel) => this.build(kernel, ended)));
    const job = { task: "compare", environment, subject: text, kernels: built, threads, cache, repetition } as const;
    return this.trusted(job, ended);
  }

  /** Undefined when it was dropped before. */
  private async answerOf(one: Awaited, goal: number | undefined): Promise<Measurement | undefined> {
    const { signal } = one.drop;
    try {
      const kernel = await this.build(one.kernel, signal);
      one.isBuilt = true;
      const { environment, threads } = this.place;
      const { text, cache } = this.benched;
      const asked = { environment, subject: text, kernel, threads, cache, repetition: 0 } as const;
      const job: RaceJob = { task: "race", ...asked, ...defined({ goal }) };
      const [measurement] = await this.trusted(job, signal);
      return measurement && (await this.checked(job, measurement, signal));
    } catch (error) {
      if (error instanceof Withdrawn) return undefined;
      throw error;
    }
  }

  /** The measurements of a job by a worker that is trusted. */
  private async trusted(job: RaceJob | CompareJob, signal: AbortSignal): Promise<readonly Measurement[]> {
    const { crew } = this.place;
    for (;;) {
      const answered = await askCrew(this.place, job, signal);
      if (crew.isTrusted(answered.worker)) return this.measurements(job, answered);
    }
  }

  /** Has some trials measured again by others. @returns what is believed of the kernel in the end */
  private async checked(job: RaceJob, first: Measurement, signal: AbortSignal): Promise<Measurement> {
    const { crew, announce, checkOneOf } = this.place;
    const { text } = job.kernel;
    if (Number.parseInt(text.slice(0, 8), 16) % checkOneOf !== 0) return first;
    const { worker = "" } = first;
    try {
      const other = await crew.another([worker]);
      const second = other && (await this.measuredBy(other, { ...job, repetition: 1 }, signal));
      if (!second || agree(first, second)) return first;
      const third = await crew.another([worker, other.name]);
      const judged = third && (await this.measuredBy(third, { ...job, repetition: 2 }, signal));
      const isFirstWrong = judged ? !agree(first, judged) : claimsMore(first, second);
      const isSecondWrong = judged ? !agree(second, judged) : !isFirstWrong;
      const said = [first, second, ...(judged ? [judged] : [])].map(
        (one) => `${one.worker} says ${one.status === "ok" ? printTime(one.median) : one.status}`,
      );
      const because = `of one kernel ${said.join(", ")}`;
      if (isFirstWrong === isSecondWrong) announce(`workers disagree, and it is not known who is right: ${because}`);
      else crew.quarantine(isFirstWrong ? worker : other.name, because);
      return isFirstWrong && !isSecondWrong ? second : first;
    } catch (error) {
      if (error instanceof Withdrawn) return first;
      throw error;
    }
  }

  private async measuredBy(worker: KnownWorker, job: RaceJob, signal: AbortSignal): Promise<Measurement | undefined> {
    const answered = await askOne(this.place, worker, job, signal);
    return answered && this.measurements(job, answered)[0];
  }

  /** Puts a kernel on the server, and has it compiled where workers do that for others. */
  private build(kernel: Kernel, signal: AbortSignal): Promise<KernelAsked> {
    const known = this.built.get(kernel);
    if (known) return known;
    const building = this.compiled(kernel, signal);
    building.catch(() => this.built.delete(kernel));
    this.built.set(kernel, building);
    return building;
  }

  private async compiled(kernel: Kernel, signal: AbortSignal): Promise<KernelAsked> {
    const { asking, compilers, crew, world, announceOnce } = this.place;
    const text = await asking.put(kernelText(kernel), signal);
    if (!crew.compiles(compilers)) {
      // A GPU's worker always does.
      if (kernel.language === "c++")
        announceOnce(`those who measure compile, too: ${crew.whyUncompiled(world.compiler)}`);
      return { text };
    }
    const job: Job = { task: "compile", compilers, kernel: { text } };
    const gone = new AbortController();
    const timer = setInterval(() => {
      if (!crew.compiles(compilers)) gone.abort();
    }, AWAY_MS);
    try {
      const { outcome } = await asking.ask(compileQueue(compilers), job, AbortSignal.any([signal, gone.signal]));
      return outcome.status === "compiled" ? { text, binary: { bytes: outcome.bytes, compilers } } : { text };
    } catch (error) {
      // Who measures compiles what did not compile elsewhere, and says why it does not.
      if (error instanceof EnvironmentError || gone.signal.aborted) return { text };
      throw error;
    } finally {
      clearInterval(timer);
    }
  }

  /** The measurements of an answer, each held against what a record may hold. */
  private measurements(job: RaceJob | CompareJob, answered: Answered): readonly Measurement[] {
    const { environment, threads, announceOnce } = this.place;
    const { outcome, worker } = answered;
    const count = job.task === "race" ? 1 : job.kernels.length;
    if (outcome.status !== "measured" || outcome.measurements.length !== count) return unreadable(answered);
    if (outcome.compiledHere !== undefined)
      announceOnce(`worker ${worker} compiled a kernel itself: ${outcome.compiledHere}`);
    const { computation } = this.benched.subject;
    return outcome.measurements.map((given) => {
      const read = readMeasurement(given, { computation, threads, environment: this.place.world });
      if (typeof read === "string")
        throw new EnvironmentError({
          what: `worker ${worker} answers a measurement that cannot be one: ${read}`,
          why: "the answers of workers are held against what a record may hold",
          remedy: `look at that worker in environment ${environment}, or expel it from the fleet`,
        });
      return { ...read, worker };
    });
  }
}

/** A kernel whose measurement is awaited. */
class Awaited {
  readonly kernel: Kernel;
  readonly drop = new AbortController();
  isBuilt = false;
  answer: Promise<Measurement | undefined> = Promise.resolve(undefined);

  constructor(kernel: Kernel) {
    this.kernel = kernel;
  }
}
