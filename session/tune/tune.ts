/**
 * @file A complete tuning session: combines the space of a computation on this machine with its model, its runner and its database.
 *
 *     const outcome = await tuneComputation({ computation }, { trials: 100, seed: 1, database: "automap.db" });
 *     if ("best" in outcome) outcome.best?.measurement.median        seconds of one call
 *                            outcome.best?.kernel.source             C++
 *
 * The parts are implemented elsewhere: the search in tuner/, the measurements in runtime/, the records in db/.
 *
 * Measures the candidates of a search until its time is up or the user stops it.
 */

import { setImmediate } from "node:timers/promises";
import type { Extents } from "../../abstraction/affine.ts";
import type { Candidate, CandidateKinds } from "../../abstraction/candidate.ts";
import { defined, namesOf } from "../../abstraction/collections.ts";
import type { Computation } from "../../abstraction/computation.ts";
import {
  EnvironmentError,
  type EnvironmentProblem,
  faultOf,
  internal,
  type MachineFault,
  UsageError,
} from "../../abstraction/error.ts";
import type { Inputs } from "../../abstraction/interpret.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import type { Target } from "../../abstraction/machine.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { inSlices, type Sliced, type Step, type Steps } from "../../abstraction/steps.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import {
  beginRun,
  type Conditions,
  type Database,
  DEFAULT_DATABASE,
  type Environment,
  endRun,
  type NewRun,
  queryTrials,
  recordClock,
  WORKLOAD_NAME,
  type Workload,
  withDatabase,
} from "../../db/index.ts";
import type { Noise } from "../../report/report-data.ts";
import type { Runner } from "../../runtime/measure.ts";
import type { CudaRunner } from "../../runtime/run/cuda.ts";
import { following, isDoneBefore, type Until } from "../../runtime/until.ts";
import { isGpu, nativeTarget, recordOf } from "../../targets/index.ts";
import { search, type TuneEvent, type TunePhase, type TuneStatus } from "../../tuner/search.ts";
import { STRATEGIES } from "../../tuner/strategies.ts";
import type { Strategy } from "../../tuner/strategy.ts";
import type { TrialOf } from "../../tuner/trials.ts";
import { contradictionIn, contradictionText } from "../calibrate/contradiction.ts";
import { chooseSpace, isPlain, usableIntrinsics } from "../kinds/choose.ts";
import { type Learnt, type Preparations, taughtBy } from "../kinds/prepared-space.ts";
import type { Reason, SessionSpace } from "../kinds/session-space.ts";
import { checkKnown } from "../package/declared.ts";
import type { Consent } from "../package/imported.ts";
import { noiseOf } from "../report/noise.ts";
import { answersIn, needsLonger, type Unanswered } from "./answers-in-time.ts";
import { decide, type TunedKernel } from "./finals.ts";
import { checkMemory } from "./memory.ts";
import { storeIn } from "./store.ts";
import { type Bench, openWorkplace, type Workplace } from "./workplace.ts";

export interface TuneSubject {
  /** What to compute. */
  readonly computation: Computation;
  /** Parameters of the operator that the computation came from; stored in its record. */
  readonly parameters?: Extents;
  /** Values of tensors that the operator itself fixes. */
  readonly fixed?: Inputs;
  /** Name of the workload in lists and reports: letters, digits and `. _ - + / :`, at most 80 characters. */
  readonly name?: string | undefined;
}

/** A subject that may be a task of a network. */
interface SearchedSubject extends TuneSubject {
  readonly network?: TaskOfNetwork;
}

/** What the record of a search says of the network for which it was made. */
interface TaskOfNetwork {
  readonly name: string;
  /** Steps of the network that its kernel computes. */
  readonly steps: number;
  /** Seconds left for all tasks together. */
  readonly seconds: number;
}

export interface TuneComputationOptions extends Consent {
  /**
   * Instructions to choose from; by default all that the machine has, registered ones included. Those of plain C++ are used only when no other
   * maps. An instruction of your own must be registered, so that its records can be read back.
   */
  readonly intrinsics?: readonly Intrinsic[];
  /** This machine, possibly restricted to some of its features. */
  readonly machine?: Target;
  /** Largest number of kernels to try; 160 by default. */
  readonly trials?: number;
  /** Search time limit in seconds, counted from the first proposed kernel; 40 by default, or an hour where `trials` is given. On a GPU a round of kernels is measured to its end. */
  readonly seconds?: number;
  /**
   * Time limit in seconds from the call to the finals, including all preparation. It also cuts short a round in progress, but at least one
   * kernel is always measured, unless its expected results take more than this and more than a minute. When left out, only `seconds` applies.
   */
  readonly within?: number;
  /** Seed of everything that is drawn; 1 by default. The same seed and the same measurements give the same search. */
  readonly seed?: number;
  /** Threads of a kernel; 1 by default. */
  readonly threads?: number;
  /**
   * State of the caches before each call of a kernel: warm (the default), with what the call before left there, or flushed. Records of one state are
   * unknown to searches in the other. Not used on a GPU.
   */
  readonly cache?: Conditions["cache"];
  /** Which candidates to search: mappings onto instructions, space-time designs on lanes, or both (the default). */
  readonly kinds?: CandidateKinds;
  /**
   * Selects the mappings to search; all by default. Records cannot express this filter, so such a search must keep its records in memory:
   * `database` is `:memory:`.
   */
  readonly keeps?: (mapping: Mapping) => boolean;
  /** How candidates are proposed; the first of `STRATEGIES` by default. */
  readonly strategy?: Strategy;
  /** Whether the fastest schedules of similar computations in this machine's records are measured first; false by default. */
  readonly transfer?: boolean;
  /** Whether a search that no longer improves ends before its budget; true by default. */
  readonly earlyStop?: boolean;
  /** Whether the fastest kernels are measured again in turns; true by default. Otherwise the fastest recorded kernel wins. */
  readonly finals?: boolean;
  /** Path of the database; `:memory:` stores nothing. */
  readonly database?: string;
  /** Compiles and measures on the machine's CPU or GPU. When left out, one is made for the session. It is closed at the end in either case. */
  readonly runner?: Runner | CudaRunner;
  /** Opens the place that measures, such as a fleet, in place of this machine. It is closed at the end. */
  readonly openPlace?: () => Promise<Workplace | EnvironmentProblem>;
  /** Ends the search. Measurements are kept, and the best kernel so far is returned. */
  readonly signal?: AbortSignal;
  /** Called for every round, every trial, every new best, and the end. */
  readonly onEvent?: (event: TuneEvent<Candidate>) => void;
  /** Called with other messages for the user. */
  readonly onNotice?: (text: string) => void;
}

/** How a search ended: with its trials and the winner, because nothing maps, or because this machine lacks something. */
export type TuneOutcome =
  | {
      readonly status: TuneStatus;
      readonly computation: Computation;
      /** The winner of the finals; undefined when every candidate failed. */
      readonly best: TunedKernel | undefined;
      readonly trials: readonly TrialOf<Candidate>[];
      /** Number of trials that ended in each status other than ok. */
      readonly failed: Readonly<Record<string, number>>;
      readonly seconds: number;
      /** Seconds of the search spent waiting for another search to release a core. */
      readonly waitedSeconds: number;
      readonly database: string;
      /** How reliable its measurements are. Absent when it was stopped before the first, or its database failed. */
      readonly noise?: Noise;
      /** Where the time limit cut enumeration short; later mappings were not considered. Absent when enumeration was complete. */
      readonly enumerationCut?: Step;
      /** Set when the expected results of kernels were not computed in time. Nothing was verified then, and so nothing was measured. */
      readonly unanswered?: Unanswered;
      /** Set when the signal left no time (a second) for finals. `best` is then the fastest recorded kernel with its earlier measurement. */
      readonly finalsCut?: true;
      /** The fault that kept the end of the search from being recorded, such as a full disk. */
      readonly unrecorded?: MachineFault;
    }
  | { readonly status: "nothing-maps"; readonly refused: readonly Reason[] }
  | { readonly status: "environment"; readonly problem: EnvironmentProblem };

/** Chosen so that compiling and measuring end within a minute. A search that no longer improves stops earlier. */
export const DEFAULT_SECONDS = 40;
/** Of a search that is told how many kernels to try: a busy machine tries as many. */
const SECONDS_OF_TRIALS = 3600;
/** How long a search may take that is not told. */
export const secondsFor = (trials: number | undefined): number =>
  trials === undefined ? DEFAULT_SECONDS : SECONDS_OF_TRIALS;
export const DEFAULT_TRIALS = 160;
/** A stopped search ends within this time, with finals only if they fit into it. */
const FINALS_AFTER_STOP_MS = 1000;
const LEAST_SECONDS = 0.1;
/** So long before the time is up, what is compiled of a round is measured; at most a quarter of the time. Eight kernels of a millisecond take half of it. */
const LAST_ROUND_MS = 500;
/** Fraction of `within` after which enumeration is cut short, so that there is time to measure what it found. */
const ENUMERATION_SHARE = 0.75;
/** Enumeration always gets this long, however long the rest took. Nearly all enumerations finish within it. */
const LEAST_ENUMERATION_MS = 1000;

/**
 * Searches for the fastest kernel of a computation on this machine. If the machine fails during the search, measurements made so far are kept.
 * @param kept preparations of earlier searches with the same options, runner and `fixed`; this search adds its own
 * @throws UsageError when the file is not an automap database, the name is invalid, an instruction is not registered, or more threads are
 * requested than there are processors
 */
export async function tuneComputation(
  subject: SearchedSubject,
  options: TuneComputationOptions = {},
  kept?: Preparations,
): Promise<TuneOutcome> {
  if (subject.name !== undefined && !WORKLOAD_NAME.test(subject.name))
    throw new UsageError(
      `"${subject.name}" is no name for a workload`,
      "letters, digits and . _ - + / :, no more than 80",
    );
  for (const intrinsic of options.intrinsics ?? []) checkKnown(intrinsic);
  if (options.keeps && options.database !== ":memory:")
    throw new UsageError(
      "a search of some mappings only is kept in memory: no record says which",
      'database: ":memory:"',
    );
  try {
    const { threads = 1, runner, machine = nativeTarget(), onNotice, openPlace } = options;
    if (!isGpu(machine) && !openPlace) checkMemory(subject.computation);
    const place = await (openPlace ?? (() => openWorkplace(machine, { threads, runner, onWait: onNotice })))();
    if (place.status === "environment") return { status: "environment", problem: place };
    try {
      return await tuneAt(place, subject, options, kept);
    } finally {
      await place.close();
    }
  } catch (error) {
    if (error instanceof EnvironmentError) return { status: "environment", problem: error.problem };
    throw error;
  }
}

async function tuneAt(
  place: Workplace,
  subject: SearchedSubject,
  options: TuneComputationOptions,
  kept?: Preparations,
): Promise<TuneOutcome> {
  const tuneIn = async (db: Database): Promise<TuneOutcome> => {
    const started = Date.now();
    const untried = (status: "interrupted" | "time-spent") => ({
      status,
      computation: subject.computation,
      best: undefined,
      trials: [],
      failed: {},
      seconds: (Date.now() - started) / 1000,
      waitedSeconds: place.waited(),
      database: db.path,
    });
    const preparing = prepare(db, place, subject, options, kept);
    if (!(await isDoneBefore(preparing, options.signal))) return untried("interrupted");
    const prepared = await preparing;
    if ("refused" in prepared) return { status: "nothing-maps", ...prepared };
    if ("unanswered" in prepared) return { ...untried("time-spent"), ...prepared };
    return searchPrepared(db, prepared, options);
  };
  return withDatabase(options.database ?? DEFAULT_DATABASE, tuneIn, {});
}

/** A search before its first trial. */
interface Prepared {
  readonly started: number;
  /** Dates its records. */
  readonly now: () => number;
  readonly threads: number;
  readonly kinds: CandidateKinds;
  readonly place: Workplace;
  /** Whether its calibration was found contradicted, and the user told so. */
  readonly doubted: boolean;
  readonly workload: Workload;
  readonly network: TaskOfNetwork | undefined;
  readonly offered: readonly Intrinsic[];
  /** The offered instructions that the search chooses from. */
  readonly chosen: readonly Intrinsic[];
  readonly space: SessionSpace;
  readonly bench: Bench;
  /** What records of similar computations taught the model, and the records whose schedules are tried first. */
  readonly learnt: Learnt | undefined;
  /** Where the enumeration of the space was cut short, and after how many of its steps. */
  readonly cut: Sliced<unknown>["cut"];
}

/** Prepares the machine's model, the search space, and the expected results of kernels. */
async function prepare(
  db: Database,
  place: Workplace,
  { computation, parameters = {}, fixed, name, network }: SearchedSubject,
  options: TuneComputationOptions,
  kept?: Preparations,
): Promise<Prepared | { readonly refused: readonly Reason[] } | { readonly unanswered: Unanswered }> {
  const { threads = 1, seed = 1, kinds = "all", keeps, machine = nativeTarget(), trustImported = false } = options;
  const started = Date.now();
  const now = recordClock(db);
  const { environment } = place;
  const announce = options.onNotice ?? (() => undefined);
  if (db.notice !== undefined) announce(db.notice);
  const answers = answersIn(options.within);
  const longer = isGpu(machine) ? undefined : needsLonger(computation, answers, { fixed });
  if (longer) return { unanswered: longer };
  const phase = (name: TunePhase): void => options.onEvent?.({ kind: "phase", phase: name });
  phase("calibrating");
  const calibration = await place.calibration(db, announce, options.signal);
  const doubted = announceContradiction(db, environment, machine, announce);
  const offered = options.intrinsics ?? usableIntrinsics(machine);
  const target = place.machineIn(db);
  const cache = cacheOf(options);
  const known = kept?.of(computation);
  // Inputs are drawn by separate programs while enumeration runs. Their errors are reported where they are awaited.
  const drawing = known
    ? Promise.resolve(known.bench)
    : place.bench(computation, { fixed, cache, announce, late: answers.late });
  const drawnInTime = isDoneBefore(drawing, answers.late);
  drawnInTime.catch(() => undefined);
  phase("enumerating");
  const wanted = { calibration, machine: target, threads, seed, kinds, keeps };
  const transfer = options.transfer === true;
  const { value: found, cut } = known?.found
    ? { value: known.found, cut: undefined }
    : await enumerated(chooseSpace(computation, offered, wanted), started, options);
  if ("refused" in found) return found;
  const { chosen, before } = found;
  found.space.startFrom?.();
  const taught = { computation, environment, threads, cache, offered, machine: target, calibration, trustImported };
  const { space, learnt } =
    transfer || trustImported ? taughtBy(db, found.space, { ...taught, similar: transfer }) : { space: found.space };
  const isAllPlain = chosen.every(isPlain);
  if (isAllPlain && !offered.every(isPlain) && !computation.program)
    announce(
      `no instruction computes this: kernels are plain ${isGpu(machine) ? "CUDA" : "C++ (automap intrinsic list portable)"}`,
    );
  if (!isAllPlain) place.checkPromises();
  phase("drawing");
  if (!(await drawnInTime)) return { unanswered: { limit: answers.limit } };
  const bench = await drawing;
  kept?.keep(computation, { found: cut ? undefined : found, bench });
  const workload: Workload = { computation, parameters, name };
  return {
    started,
    now,
    threads,
    kinds,
    place,
    doubted,
    workload,
    network,
    offered,
    chosen,
    space,
    bench,
    learnt,
    cut: cut && { at: cut.at, after: Math.max(1, cut.after - before) },
  };
}

/** The enumerated space, or why nothing maps; and where the time cut enumeration short. */
async function enumerated<T>(
  enumeration: Steps<T>,
  started: number,
  { within = Number.POSITIVE_INFINITY, signal, onEvent, onNotice }: TuneComputationOptions,
): Promise<Sliced<T>> {
  const ends = Math.max(started + 1000 * ENUMERATION_SHARE * within, Date.now() + LEAST_ENUMERATION_MS);
  const { value, cut } = await inSlices(enumeration, {
    isEnough: () => Date.now() > ends,
    signal,
    onSlice: (at) => onEvent?.({ kind: "phase", phase: "enumerating", at }),
  });
  if (cut)
    onNotice?.(
      `enumeration was cut short by the time: ${cut.at.done} of ${cut.at.of} ${cut.at.what} were looked at; --time with more seconds looks at more`,
    );
  return { value, cut };
}

async function searchPrepared(
  db: Database,
  prepared: Prepared,
  options: TuneComputationOptions,
): Promise<Extract<TuneOutcome, { trials: unknown }>> {
  const { started, now, threads, kinds, place, doubted, workload, network, offered, space, bench, cut } = prepared;
  const { environment, batch } = place;
  const { seed = 1, machine = nativeTarget(), strategy = STRATEGIES[0], onNotice } = options;
  if (!strategy) internal("no strategies");
  const budget = { trials: options.trials ?? DEFAULT_TRIALS, seconds: options.seconds ?? secondsFor(options.trials) };
  const recorded = replayOptions(prepared, {
    strategy,
    machine,
    earlyStop: options.earlyStop ?? true,
    cache: cacheOf(options),
  });
  const stop = options.signal ?? new AbortController().signal;
  const left = secondsLeft(budget.seconds, options.within, started);
  // Preparing took of both.
  const spent = (Date.now() - started) / 1000;
  const spends = {
    ...budget,
    left: inMilliseconds(left),
    ...(network && { network: { ...network, seconds: inMilliseconds(network.seconds - spent) } }),
  };
  const run = beginRun(db, { workload, environment, seed, options: recorded, budget: spends, started: now() });
  const time = AbortSignal.timeout(Math.ceil(1000 * left));
  const rounds = batch === undefined || options.within !== undefined ? time : new AbortController().signal;
  const phase = (name: TunePhase, done: number, of: number): void =>
    options.onEvent?.({ kind: "phase", phase: name, at: { what: "kernels", done, of } });
  const soon = AbortSignal.timeout(Math.ceil(1000 * left - Math.min(LAST_ROUND_MS, 250 * left)));
  const inTime = measuredInTime(space, bench, { soon, time: rounds, stop, phase });
  const cache = cacheOf(options);
  const store = storeIn(db, { workload, environment, run, space, threads, cache });
  const late = following(stop, FINALS_AFTER_STOP_MS);
  try {
    const result = await search<Candidate>({
      space,
      strategy,
      budget: { ...budget, seconds: left },
      time: rounds,
      seed,
      store,
      now,
      predict: space.predict,
      learn: space.learn,
      measure: batch === undefined ? inTime : (...round) => all(inTime(...round)),
      ...(options.earlyStop === false && { earlyStop: false }),
      ...defined({ batch, signal: options.signal, onEvent: options.onEvent }),
    });
    // The contenders are measured in alternating batches, which decides ties and corrects measurements made at a bad moment.
    const { finals = true } = options;
    const finished = { db, workload, environment, run, space, threads, cache, kinds, offered, finals };
    const onDone = (done: number, of: number): void => phase("deciding", done, of);
    const decided = await decide(result.contenders, finished, bench, { now, onDone, late: late.signal });
    if (!doubted && onNotice) announceContradiction(db, environment, machine, onNotice);
    const status = result.status === "interrupted" ? "interrupted" : "done";
    const unrecorded = decided.unrecorded ?? faultOf(() => endRun(db, run, { status, ended: now() }));
    return {
      status: decided.isCut ? "interrupted" : result.status,
      computation: workload.computation,
      best: decided.winner,
      trials: result.trials,
      failed: failuresOf(result.trials),
      seconds: (Date.now() - started) / 1000,
      waitedSeconds: place.waited(),
      database: db.path,
      // A database that takes no more may not answer either.
      ...(unrecorded ? {} : { noise: noiseOf(queryTrials(db, { run })) }),
      ...(decided.isCut && { finalsCut: true }),
      ...defined({ enumerationCut: cut?.at, unrecorded }),
    };
  } catch (error) {
    // The error being thrown says what ended it. A failure to record that, as on a full disk, adds nothing.
    faultOf(() => endRun(db, run, { status: "failed", ended: now() }));
    throw error;
  } finally {
    late.letGo();
  }
}

/** Everything that determines what a search does: `automap replay` makes the same decisions again from it. */
function replayOptions(
  { threads, kinds, place, offered, chosen, bench, learnt, cut }: Prepared,
  given: {
    readonly strategy: Strategy;
    readonly machine: Target;
    readonly earlyStop: boolean;
    readonly cache: Conditions["cache"];
  },
): NewRun["options"] {
  return {
    strategy: given.strategy.name,
    threads,
    earlyStop: given.earlyStop,
    ...(given.cache !== "warm" && { cache: given.cache }),
    intrinsics: namesOf(chosen),
    offered: namesOf(offered),
    kinds,
    target: recordOf(given.machine),
    ...defined({ batch: place.batch }),
    ...learnt,
    ...defined({ enumerationCut: cut?.after, unchecked: bench.leftOut }),
  };
}

const cacheOf = ({ cache = "warm", machine }: TuneComputationOptions): Conditions["cache"] =>
  machine && isGpu(machine) ? "warm" : cache;

const inMilliseconds = (seconds: number): number => Math.round(1000 * seconds) / 1000;

/** Seconds left; when none are, the search still has time for one kernel. */
function secondsLeft(seconds: number, within: number | undefined, started: number): number {
  const rest = within === undefined ? seconds : Math.min(seconds, within - (Date.now() - started) / 1000);
  return Math.max(LEAST_SECONDS, rest);
}

/** Reports kernels of this environment that are faster than its calibration allows. @returns whether there are any */
function announceContradiction(
  db: Database,
  environment: Environment,
  machine: Target,
  announce: (text: string) => void,
): boolean {
  const found = contradictionIn(db, environment, machine);
  if (found) announce(contradictionText(found, db.path));
  return found !== undefined;
}

function failuresOf(trials: readonly TrialOf<Candidate>[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { measurement } of trials) {
    if (measurement.status !== "ok") counts[measurement.status] = (counts[measurement.status] ?? 0) + 1;
  }
  return counts;
}

/** Measures candidates until the time is up or the user stops. The first candidate of a search is always measured. */
function measuredInTime(
  space: SessionSpace,
  bench: Bench,
  {
    phase,
    ...signals
  }: Pick<Until, "soon" | "time" | "stop"> & {
    readonly phase: (name: TunePhase, done: number, of: number) => void;
  },
) {
  let isAnswered = false;
  return async function* (
    candidates: readonly Candidate[],
    goal?: number,
    meanwhile?: () => void,
  ): AsyncGenerator<Measurement | undefined> {
    const kernels: Kernel[] = [];
    const of = candidates.length;
    let compiled = 0;
    let isCompiling = false;
    const tell = (): void => {
      if (isCompiling) phase("compiling", compiled, of);
    };
    // Kernels are generated one by one. Each compiles while the next is generated, and signals are handled in between.
    for (const candidate of candidates) {
      if (signals.stop.aborted) return;
      phase("writing", kernels.length, of);
      const kernel = space.kernelOf(candidate);
      void bench.begin(kernel, signals.stop).then(() => {
        compiled++;
        tell();
      });
      kernels.push(kernel);
      await setImmediate();
    }
    isCompiling = true;
    tell();
    try {
      const until = { ...signals, goal, needsOne: !isAnswered };
      for await (const answer of await bench.measure(kernels, until, meanwhile)) {
        isCompiling = false;
        isAnswered = true;
        yield answer;
      }
    } finally {
      isCompiling = false;
    }
  };
}

/** All answers of measurements that end together, whose kernels are recorded together; those up to the first that there was no time for. */
async function all(answers: AsyncIterable<Measurement | undefined>): Promise<readonly Measurement[]> {
  const kept: Measurement[] = [];
  for await (const answer of answers) {
    if (answer === undefined) break;
    kept.push(answer);
  }
  return kept;
}
