/**
 * @file A fleet as the workplace of a search: kernels are compiled and measured by its workers, and the search decides as it does at home.
 *
 *     const place = await openFleetPlace({ server, member, on: "isa contains amx_int8", threads: 1, announce: say });
 *     await tuneComputation(subject, { machine: place.machine, openPlace: () => Promise.resolve(place) });
 *
 * A round is as large as at home, and a kernel is one job, so what is proposed does not depend on how many workers there are.
 *
 * Puts jobs into the queues of a fleet and waits for their answers.
 *
 *     const asking = new Asking(server, tuner, { announce: say });
 *     const { outcome, worker } = await asking.ask("measure-9c1f", job, signal)
 *
 * A server may lose events, restart, or forget a job, and a worker may die with one. So an answer is looked for again and again, a job that is not
 * there is put again, and an answer counts only when a worker of the fleet signed it for exactly this job.
 */

import { randomInt } from "node:crypto";
import { setTimeout } from "node:timers/promises";
import type { Queue, QueueEvents, Job as QueueJob } from "bullmq";
import { defined, namesOf, remembered } from "../abstraction/collections.ts";
import { EnvironmentError, type EnvironmentProblem, internal, messageOf } from "../abstraction/error.ts";
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
import { agree, Crew, claimsMore } from "./crew.ts";
import {
  ANSWER,
  type Answer,
  type CalibrateJob,
  JOB,
  type Job,
  jobId,
  type KernelAsked,
  kernelText,
  type Outcome,
  REPETITIONS,
  readAnswer,
  type Subject,
  subjectText,
} from "./jobs.ts";
import type { Member } from "./members.ts";
import type { FleetServer } from "./server.ts";
import { FleetRefusal, type Signed, sign, verified } from "./signed.ts";
import { compileQueue, measuringQueue, ownQueue } from "./worker.ts";

type RaceJob = Extract<Job, { task: "race" }>;
type CompareJob = Extract<Job, { task: "compare" }>;

export interface FleetPlace extends Workplace {
  /** The machine of the workers. */
  readonly machine: Target;
  /** Id of their environment. */
  readonly id: string;
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
  /** Of a worker that is known, one trial of so many is measured again by another. */
  readonly checkOneOf?: number;
  /** Milliseconds that the other has for it. */
  readonly checkMs?: number;
}

const CHECK_ONE_OF = 100;
const CHECK_MS = 60_000;
/** Kernels a round on a GPU. At home it depends on the processors beside it. */
const GPU_BATCH = 8;
/** So often a search that waits for a certain worker looks whether it is still there. */
const AWAY_MS = 5000;

/**
 * Opens the workplace; closing it closes the server.
 * @throws EnvironmentError when no worker fits; UsageError when those that fit have several environments
 */
export async function openFleetPlace(options: FleetPlaceOptions): Promise<FleetPlace> {
  const {
    server,
    member,
    on,
    threads,
    announce,
    lookMs,
    patienceMs,
    checkOneOf = CHECK_ONE_OF,
    checkMs = CHECK_MS,
  } = options;
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
  const crew = new Crew(server, member.fleet, { environment: id, workers, announce, checkOneOf, onAlone, patienceMs });
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
    checkMs,
    ended: ended.signal,
  };
  let areRatesAsked = false;
  return {
    status: "open",
    machine,
    id,
    workers: namesOf(chosen.workers),
    environment,
    batch: isGpu(machine) ? GPU_BATCH : undefined,
    calibration: async (db, _, signal) => {
      if (!isGpu(machine))
        return (await ratesIn(db, place, readCalibrationData, { effort: "once", signal }))?.calibration;
      // Without rates that were measured before, the model has those of its table. Later searches need not ask again.
      if (!areRatesAsked) await ratesIn(db, place, readGpuCalibration, { effort: "kept", signal });
      areRatesAsked = true;
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
      const { leftOut } = await askCrew(
        place,
        { task: "draw", environment: id, subject: text, threads },
        ({ outcome }) => (outcome.status === "drawn" ? outcome : unreadable(outcome)),
        late,
      );
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
  const job = { task: "calibrate", environment, effort, repetition } as const;
  const told = await askCrew<Partial<Rates<T>>>(
    place,
    job,
    ({ outcome }) => {
      if (outcome.status === "uncalibrated" && effort === "kept") return {};
      if (outcome.status !== "calibrated") return unreadable(outcome);
      const calibration = read(outcome.data);
      return calibration === undefined ? unreadable(outcome) : { calibration, measured: outcome.isNew };
    },
    signal,
  );
  const { calibration, measured = false } = told;
  if (calibration === undefined) return undefined;
  if (!db.readonly) recordCalibration(db, { environment: world, data: calibration, at: Date.now() });
  return { calibration, measured };
}

/** Why an answer is none to what was asked. */
const unreadable = ({ status }: Answered["outcome"]): string =>
  `it answers a ${status} that cannot be read, as another automap or a worker that cannot be trusted does`;

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
  readonly checkMs: number;
  readonly ended: AbortSignal;
}

/** What is read in an answer, or why that cannot be one. */
type Read<T> = (answered: Answered) => T | string;

/** Asks whoever is free, or one that is trusted, until an answer can be believed. */
async function askCrew<T extends object>(
  place: Place,
  job: Job,
  read: Read<T>,
  signal: AbortSignal | undefined,
): Promise<T> {
  for (;;) {
    const worker = place.crew.next();
    const answered = worker
      ? await askOne(place, worker, job, signal)
      : await place.asking.ask(measuringQueue(place.environment), job, signal);
    const found = answered && believed(place, answered, read);
    if (found) return found;
  }
}

/** What an answer says; undefined when it is not believed, which its worker is then held to. */
function believed<T extends object>({ crew }: Place, answered: Answered, read: Read<T>): T | undefined {
  const { worker, outcome } = answered;
  if (!crew.isTrusted(worker)) return undefined;
  if (outcome.status === "strange") {
    crew.doubt(worker, outcome.because);
    return undefined;
  }
  const found = read(answered);
  if (typeof found !== "string") return found;
  crew.quarantine(worker, found);
  return undefined;
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
        let answer = await one.answer;
        // Its worker may have been found out since.
        if (answer && !this.isBelieved(answer)) answer = await this.answerOf(one, until?.goal);
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
      for (;;) {
        const [measurement] = await this.trusted(job, signal);
        const checked = measurement && (await this.checked(job, measurement, signal));
        if (!checked || this.isBelieved(checked)) return checked;
      }
    } catch (error) {
      if (error instanceof Withdrawn) return undefined;
      throw error;
    }
  }

  private isBelieved({ worker = "" }: Measurement): boolean {
    return this.place.crew.isTrusted(worker);
  }

  /** The measurements of a job by a worker that is trusted. */
  private trusted(job: RaceJob | CompareJob, signal: AbortSignal): Promise<readonly Measurement[]> {
    return askCrew(this.place, job, (answered) => this.measurements(job, answered), signal);
  }

  /** Has some trials measured again by others. @returns what is believed of the kernel in the end */
  private async checked(job: RaceJob, first: Measurement, signal: AbortSignal): Promise<Measurement> {
    const isDue = this.place.crew.checksOf(first.worker ?? "").isDue();
    const isBest = job.goal !== undefined && first.status === "ok" && first.median < job.goal;
    return isDue || isBest ? this.judged(job, first, signal) : first;
  }

  /** A measurement, or that of another worker which finds that it cannot be true. */
  private async judged(job: RaceJob, first: Measurement, signal: AbortSignal): Promise<Measurement> {
    const { crew, announce } = this.place;
    const { worker = "" } = first;
    const other = await crew.another([worker]);
    const second = other && (await this.measuredBy(other, { ...job, repetition: 1 }, signal));
    if (!second) return first;
    if (agree(first, second)) {
      crew.checksOf(worker).confirm();
      return first;
    }
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
  }

  /** Undefined when that worker does not answer in time, or not what can be believed. */
  private async measuredBy(worker: KnownWorker, job: RaceJob, signal: AbortSignal): Promise<Measurement | undefined> {
    const inTime = AbortSignal.any([signal, AbortSignal.timeout(this.place.checkMs)]);
    try {
      const answered = await askOne(this.place, worker, job, inTime);
      return answered && believed(this.place, answered, (one) => this.measurements(job, one))?.[0];
    } catch (error) {
      if (error instanceof Withdrawn) return undefined;
      throw error;
    }
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

  /** The measurements of an answer, each held against what a record may hold; or why they cannot be what was asked for. */
  private measurements(job: RaceJob | CompareJob, { outcome, worker }: Answered): readonly Measurement[] | string {
    const { threads, world, announceOnce } = this.place;
    const count = job.task === "race" ? 1 : job.kernels.length;
    if (outcome.status !== "measured" || outcome.measurements.length !== count) return unreadable(outcome);
    if (outcome.compiledHere !== undefined)
      announceOnce(`worker ${worker} compiled a kernel itself: ${outcome.compiledHere}`);
    const { computation } = this.benched.subject;
    const found: Measurement[] = [];
    for (const given of outcome.measurements) {
      const read = readMeasurement(given, { computation, threads, environment: world });
      if (typeof read === "string") return `it answers a measurement that cannot be one: ${read}`;
      found.push({ ...read, worker });
    }
    return found;
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

// ---- jobs and their answers --------------------------------------------------------------------------------------------------------------

/** An answer, and the name of the worker that signed it. */
interface Answered {
  readonly outcome: Outcome | Strange;
  readonly worker: string;
}

/** An answer to another question. */
interface Strange {
  readonly status: "strange";
  readonly because: string;
}

/** Who asks does not want the answer any more. */
class Withdrawn extends Error {
  constructor() {
    super("a question was withdrawn");
    this.name = "Withdrawn";
  }
}

interface AskingOptions {
  /** Told of answers that are refused, and of faults of workers. */
  readonly announce: (text: string) => void;
  /** Milliseconds between two looks for answers whose events may have been lost. */
  readonly lookMs?: number;
}

const LOOK_MS = 2000;
/** Most questions that are looked at at once: a server that answers a thousand needs its time for jobs. */
const LOOKS = 50;
/** Faults and refused answers of one job, of any workers, before the search ends. */
const MOST_FAULTS = 5;
/** How long a server may be away. */
const SERVER_AWAY_MS = 120_000;
/** Between two attempts while it is. */
const AGAIN_MS = 500;
/** Answers stay on the server for so many seconds: a search that is started again, or another one at the same time, finds them. */
const KEPT_SECONDS = 600;
const KEPT = { removeOnComplete: { age: KEPT_SECONDS }, removeOnFail: true, stackTraceLimit: 0 } as const;

interface Question {
  readonly queue: string;
  readonly id: string;
  readonly job: Job;
  readonly signed: Signed;
  readonly answered: Promise<Answered>;
  readonly settle: (answered: Answered) => void;
  readonly fail: (error: Error) => void;
  askers: number;
  faults: number;
  isLookedAt: boolean;
  isOver: boolean;
}

export class Asking {
  private readonly server: FleetServer;
  private readonly member: Member;
  private readonly announce: (text: string) => void;
  private readonly open = new Map<string, Question>();
  private readonly queues = new Map<string, Queue>();
  private readonly timer: NodeJS.Timeout;
  private awayFrom: number | undefined;
  private isClosed = false;

  constructor(server: FleetServer, member: Member, { announce, lookMs = LOOK_MS }: AskingOptions) {
    this.server = server;
    this.member = member;
    this.announce = announce;
    this.timer = setInterval(() => this.lookAtSome(), lookMs);
    this.timer.unref();
  }

  /**
   * The answer to a job. Asked twice at once, it is one job.
   * @throws Withdrawn when the signal is aborted before; EnvironmentError when workers fail at it, or the server stays away
   */
  async ask(queue: string, job: Job, signal?: AbortSignal): Promise<Answered> {
    if (this.isClosed || signal?.aborted) throw new Withdrawn();
    const id = jobId(job);
    const question = remembered(this.open, `${queue} ${id}`, () => this.begun(queue, id, job));
    question.askers++;
    let release = (): void => undefined;
    const withdrawn = new Promise<never>((_, reject) => {
      release = heard(signal, () => reject(new Withdrawn()));
    });
    try {
      return await Promise.race([question.answered, withdrawn]);
    } finally {
      release();
      question.askers--;
      if (question.askers === 0) await this.end(question);
    }
  }

  /**
   * Puts a text on the server, as soon as that is there. @returns its hash
   * @throws Withdrawn when the signal is aborted before; EnvironmentError when the server stays away
   */
  async put(text: string, signal?: AbortSignal): Promise<string> {
    const begun = performance.now();
    for (;;) {
      if (this.isClosed || signal?.aborted) throw new Withdrawn();
      try {
        return await this.server.blobs.put(Buffer.from(text));
      } catch (error) {
        if (performance.now() - begun > SERVER_AWAY_MS) throw error;
        await setTimeout(AGAIN_MS);
      }
    }
  }

  /** Withdraws all that is asked. */
  async close(): Promise<void> {
    this.isClosed = true;
    clearInterval(this.timer);
    await Promise.all(
      [...this.open.values()].map((question) => {
        const ended = this.end(question);
        question.fail(new Withdrawn());
        return ended;
      }),
    );
  }

  private begun(queue: string, id: string, job: Job): Question {
    let settle: Question["settle"] = () => undefined;
    let fail: Question["fail"] = () => undefined;
    const answered = new Promise<Answered>((resolve, reject) => {
      settle = (given) => {
        question.isOver = true;
        resolve(given);
      };
      fail = (error) => {
        question.isOver = true;
        reject(error);
      };
    });
    answered.catch(() => undefined);
    const question: Question = {
      queue,
      id,
      job,
      signed: sign(this.member, JOB, job),
      answered,
      settle,
      fail,
      askers: 0,
      faults: 0,
      isLookedAt: false,
      isOver: false,
    };
    setImmediate(() => void this.look(question));
    return question;
  }

  /** A queue whose events are heard. */
  private queueNamed(name: string): Queue {
    return remembered(this.queues, name, () => {
      const queue = this.server.queue(name);
      const events = this.listenTo(name);
      // Made while the server is away, they would never find it.
      queue.waitUntilReady().catch(() => {
        this.queues.delete(name);
        for (const one of [queue, events]) one.close().catch(() => undefined);
      });
      return queue;
    });
  }

  private listenTo(queue: string): QueueEvents {
    const events = this.server.events(queue);
    const look = ({ jobId: id }: { readonly jobId: string }): void => {
      const question = this.open.get(`${queue} ${id}`);
      if (question) void this.look(question);
    };
    events.on("completed", look);
    events.on("removed", look);
    events.on("failed", ({ jobId: id, failedReason }) => {
      const question = this.open.get(`${queue} ${id}`);
      if (question) this.takeFailure(question, failedReason);
    });
    return events;
  }

  /** Looks at those questions that were not looked at for longest. */
  private lookAtSome(): void {
    for (const [key, question] of [...this.open].slice(0, LOOKS)) {
      this.open.delete(key);
      this.open.set(key, question);
      void this.look(question);
    }
  }

  /** Looks how a job stands: puts it where it is not there, and takes its answer where it has ended. */
  private async look(question: Question): Promise<void> {
    if (question.isLookedAt || !this.isOpen(question)) return;
    question.isLookedAt = true;
    try {
      const queue = this.queueNamed(question.queue);
      // The state first: a job that is read before it ends has no answer yet.
      const state = await queue.getJobState(question.id);
      if (state === "completed" || state === "failed") await this.takeEnded(question, await queue.getJob(question.id));
      else if (state === "unknown" && this.isOpen(question))
        await queue.add(question.job.task, question.signed, { jobId: question.id, ...KEPT });
      this.awayFrom = undefined;
    } catch (error) {
      this.missServer(error);
    } finally {
      question.isLookedAt = false;
    }
  }

  private isOpen(question: Question): boolean {
    return !question.isOver && this.open.get(`${question.queue} ${question.id}`) === question;
  }

  private async takeEnded(question: Question, found: QueueJob | undefined): Promise<void> {
    if (found?.failedReason) {
      await found.remove();
      this.takeFailure(question, found.failedReason);
    } else if (found) await this.take(question, found);
  }

  private async take(question: Question, found: QueueJob): Promise<void> {
    try {
      const answered = this.answeredBy(question, found.returnvalue);
      if (answered.outcome.status === "strange") await found.remove();
      question.settle(answered);
    } catch (error) {
      if (!(error instanceof FleetRefusal)) throw error;
      // It stays there as long as nobody removes it.
      await found.remove();
      this.fault(question, error.message);
    }
  }

  private answeredBy({ job }: Question, signed: unknown): Answered {
    const { body, by } = verified(this.member.fleet, signed, { kind: ANSWER, role: "worker" });
    const worker = by.name;
    try {
      const answer: Answer = readAnswer(body, job);
      return { outcome: answer.outcome, worker };
    } catch (error) {
      if (!(error instanceof FleetRefusal)) throw error;
      return { outcome: { status: "strange", because: `worker ${worker}: ${error.message}` }, worker };
    }
  }

  /** A job that failed: its reason is a signed answer, or what the queue says of it. */
  private takeFailure(question: Question, reason: string): void {
    let text = `the queue says: ${String(reason).slice(0, 200)}`;
    try {
      const { outcome, worker } = this.answeredBy(question, JSON.parse(reason));
      if (outcome.status === "refused")
        text = `worker ${worker} refuses a job, as one with another automap does: ${outcome.because}`;
      if (outcome.status === "fault") text = `worker ${worker}: ${outcome.what} (${outcome.remedy})`;
    } catch {
      // Its reason is not one of ours.
    }
    this.fault(question, text);
  }

  private fault(question: Question, text: string): void {
    question.faults++;
    this.announce(text);
    if (question.faults < MOST_FAULTS) setImmediate(() => void this.look(question));
    else
      question.fail(
        new EnvironmentError({
          what: `no worker of the fleet finished a job: ${text}`,
          why: `it was given to workers ${MOST_FAULTS} times`,
          remedy: "look at what the worker says, and run the same command again: what was measured is kept",
        }),
      );
  }

  private missServer(error: unknown): void {
    const now = performance.now();
    this.awayFrom ??= now;
    if (now - this.awayFrom < SERVER_AWAY_MS) return;
    this.giveUp({
      what: `${this.server.address.text} is away: ${messageOf(error)}`,
      why: "jobs and answers of the fleet go through it",
      remedy: "start it, and run the same command again: what was measured is kept",
    });
  }

  /** Ends all that is asked, since nobody will answer. */
  giveUp(problem: Omit<EnvironmentProblem, "status">): void {
    for (const question of this.open.values()) question.fail(new EnvironmentError(problem));
  }

  /** Forgets a question that nobody asks any more. A job that no worker has begun is taken back. */
  private async end(question: Question): Promise<void> {
    const { queue, id } = question;
    this.open.delete(`${queue} ${id}`);
    if (question.isOver) return;
    question.isOver = true;
    try {
      const found: QueueJob | undefined = await this.queueNamed(queue).getJob(id);
      if (found && (await found.getState()) === "waiting") await found.remove();
    } catch {
      // A worker has begun it, or the server is away: its answer is found by the next search that asks.
    }
  }
}
