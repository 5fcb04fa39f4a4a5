/**
 * @file Divides the time of a search among the tasks of a network.
 *
 *     await tuneNetwork(program, { seconds: 60, database: "automap.db", onTask: ({ task, gain }) => ... })
 *
 * First, every task gets a few trials, those with the most multiply-adds first; tasks that the time does not reach get nothing. After that, each
 * share goes to the task that may save the network the most time: a task's gain is the time it takes beyond what it would at the best rate that any
 * kernel has reached, times how often the network computes it, halved for each share in a row that saved little. Searches resume from their records,
 * so that nothing is measured twice.
 *
 * On a GPU every share goes by gain: a task takes what its record says, or else four times what its bytes need at the rate of the memory that holds
 * them. So layers of few products and many bytes, such as depthwise ones, get their turn. Several searches run concurrently: one enumerates and
 * another compiles while a third measures on the device, which serves one search at a time.
 *
 * Chains of steps that one kernel computes row by row (network/chains.ts) are tasks after the products. Other steps, in plain loops, are tasks where these
 * have several candidates; they are searched only where the gain says so.
 */

import { availableParallelism } from "node:os";
import type { Candidate } from "../../abstraction/candidate.ts";
import { defined, sortedBy, sumOf } from "../../abstraction/collections.ts";
import type { Computation } from "../../abstraction/computation.ts";
import {
  checkNames,
  EnvironmentError,
  type EnvironmentProblem,
  reasonOf,
  UsageError,
} from "../../abstraction/error.ts";
import type { Target } from "../../abstraction/machine.ts";
import { cut, visible } from "../../abstraction/text.ts";
import { checkPlace, type Database, DatabaseError, DEFAULT_DATABASE, withDatabase } from "../../db/index.ts";
import type { Network } from "../../network/network.ts";
import { isTuned, multiplyAddsOf, type Task } from "../../network/tasks.ts";
import { leastSecondsOnGpu } from "../../perfmodel/grid.ts";
import { leastProgramSeconds, withoutInner } from "../../perfmodel/row-chains.ts";
import { type ModelTarget, modelTarget } from "../../perfmodel/target.ts";
import { isGpu, nativeTarget } from "../../targets/index.ts";
import type { TuneEvent } from "../../tuner/search.ts";
import { Preparations } from "../kinds/prepared-space.ts";
import { checkMemory } from "../tune/memory.ts";
import { type TuneOutcome, tuneComputation } from "../tune/tune.ts";
import { openWorkplace, type Workplace } from "../tune/workplace.ts";
import {
  choicesOf,
  kindsForProducts,
  loopRowsFor,
  otherTasksOf,
  recordedSeconds,
  tunedTasks,
  withoutProducts,
} from "./network.ts";
import { Field, type State } from "./network-field.ts";
import { cacheOfTask } from "./task-memory.ts";

/** How long a network is tuned, for which machine, and where its records go. */
export interface TuneNetworkOptions {
  /** For all tasks together, preparation included. */
  readonly seconds: number;
  /** Path of the database that keeps the records; `automap.db` by default. */
  readonly database?: string;
  /** Seed of everything that is drawn; 1 by default. */
  readonly seed?: number;
  /** Threads of each kernel; 1 by default. */
  readonly threads?: number;
  /** The machine: this CPU when left out, or this machine's GPU. */
  readonly machine?: Target;
  /** Whether a search starts with the fastest schedules of similar tasks; true by default. */
  readonly transfer?: boolean;
  /** Whether kernels of imported records are measured here, before others; false by default. */
  readonly trustImported?: boolean;
  /** Whether each step must be computed as its equation says, which excludes kernels of forms that round differently (Winograd). */
  readonly exact?: boolean;
  /** Whether all shares are equal, for comparisons. */
  readonly equal?: boolean;
  /** Concurrent searches. By default one; on a GPU one for every four processors, at most four. */
  readonly beside?: number;
  /** Opens the place that measures for `machine`, such as a fleet, in place of this machine. It is closed at the end. @internal */
  readonly openPlace?: () => Promise<Workplace | EnvironmentProblem>;
  /** Ends the searches early; what was measured stays in the database. */
  readonly signal?: AbortSignal;
  /** Searches for one task; `tuneComputation` when left out. @internal */
  readonly search?: typeof tuneComputation;
  /** Called before the first search, with the number of tasks. */
  readonly onTasks?: (tasks: number) => void;
  /** Called with the events of a task's search. */
  readonly onEvent?: (event: TuneEvent<Candidate>, task: TaskPlace) => void;
  /** Called when a share ends. */
  readonly onShare?: (share: Share) => void;
  /** Called with what a user should know: rates that are measured first, other searches that are waited for. */
  readonly onNotice?: (text: string) => void;
}

const OPTIONS = {
  seconds: true,
  database: true,
  seed: true,
  threads: true,
  machine: true,
  transfer: true,
  trustImported: true,
  exact: true,
  equal: true,
  beside: true,
  openPlace: true,
  signal: true,
  search: true,
  onTasks: true,
  onEvent: true,
  onShare: true,
  onNotice: true,
} as const;

/** A task among all tasks. */
export interface TaskPlace {
  readonly task: Task;
  /** Position among the tasks, and the number of tasks. */
  readonly place: number;
  readonly of: number;
}

/** One search for one task. */
export interface Share extends TaskPlace {
  /** Seconds of one call of the best kernel so far; undefined when none works. */
  readonly seconds: number | undefined;
  readonly outcome: TuneOutcome | Failure;
  /** Seconds left for all tasks. The searches end sooner when no task may gain much. */
  readonly secondsLeft: number;
}

/** A search that ended with an error. Its task gets no more time; the others continue. */
export interface Failure {
  readonly status: "failed";
  readonly because: string;
}

/** The outcome for one task. */
export interface TunedTask {
  readonly task: Task;
  /** Whether it got any search time. */
  readonly searched: boolean;
  /** Seconds of one call of its best kernel; undefined when none works, or it was not searched. */
  readonly seconds: number | undefined;
  /** The error that ended its last search, if any. */
  readonly failed?: string;
}

/**
 * Trials of a task before any gets more: half of them by the model alone, half by the records of similar tasks. Half as many while the time left is
 * less than the least of shares for each task, so that every task has a kernel. A choice.
 */
const FIRST_TRIALS = 4;
/** Shorter searches spend most of their time on preparation. */
const LEAST_SHARE_SECONDS = 4;
/** Fraction of the time in a share after the first trials, and its least and most seconds. Preparation takes three or four. A choice. */
const LATER_SHARE = { of: 1 / 20, least: 8, most: 30 } as const;
/** The same on a GPU, where a first kernel is measured after 5 to 8 s, and with 7 s in all hardly another (H100, 2026-11-23). */
const GPU_SHARE = { of: 1 / 4, least: 15, most: 30 } as const;
/** A first share ends after so many seconds, or after an equal share of the time if that is longer: enumeration and references may take that much. */
const MOST_FIRST_SECONDS = 30;
/** A model's name is cut in records: its file may say anything. */
const LONGEST_NAME = 80;
const nameOf = ({ name }: Network): string => cut(visible(name).replaceAll(/\s+/g, " "), LONGEST_NAME);
/** Shares below this are not started: nothing could be compiled and measured in them. */
const LEAST_LEFT_SECONDS = 1;
/** A share that saved less than this fraction of its task's time was fruitless. */
const FRUITLESS = 0.02;
/** The search ends when no task may save more than this fraction of the network's time. */
const LEAST_GAIN = 0.001;

/**
 * Tunes the tasks of a network. At least one task is searched, however little time there is.
 * @returns all tasks in the order of the network
 * @throws UsageError when each step of the network has one kernel alone; EnvironmentError when kernels cannot be compiled or measured here;
 * DatabaseError when the database cannot be written any more, such as on a full disk
 */
export async function tuneNetwork(program: Network, options: TuneNetworkOptions): Promise<readonly TunedTask[]> {
  checkNames(options, OPTIONS, "tuneNetwork");
  const workplace = options.search ? undefined : await workplaceFor(options);
  try {
    // Open from the first share to the last, so that a file which is deleted between two of them is noticed, and saved.
    return await withDatabase(
      options.database ?? DEFAULT_DATABASE,
      (db) => tuneIn(workplace, db, program, options),
      {},
    );
  } finally {
    await workplace?.close();
  }
}

/** @param workplace measures; undefined where the search of the options does */
async function tuneIn(
  workplace: Workplace | undefined,
  db: Database,
  program: Network,
  options: TuneNetworkOptions,
): Promise<readonly TunedTask[]> {
  const { seconds, threads = 1, equal = false, machine, signal } = options;
  const gpu = machine && isGpu(machine) ? machine : undefined;
  const started = Date.now();
  const target = await targetFor(workplace, db, options);
  const { beside = gpu ? besideOnGpu() : 1 } = options;
  const records = workplace && { db, environment: workplace.environment };
  const on = { machine, records, threads };
  const tasks = [...tunedTasks(program), ...otherTasksOf(program, choicesOf(withoutProducts(program), on), on)];
  if (tasks.length === 0)
    throw new UsageError(
      `${program.name} has nothing to tune: each of its steps has one kernel`,
      "automap network emit writes its library as it is",
    );
  const isPlainAlone = tasks.every(isPlain);
  const isAside = (task: Task): boolean => isPlain(task) && !isPlainAlone;
  // Plain loops beside other tasks are counted once they are searched.
  const count = tasks.filter((task) => !isAside(task)).length;
  options.onTasks?.(count);
  const left = (): number => seconds - (Date.now() - started) / 1000;
  const states = tasks.map((task, i): State => {
    const cache = gpu || !isTuned(task) ? "warm" : cacheOfTask(task, target);
    const best = gpu && records && recordedSeconds(task.computation, records, ON_GPU);
    return { task, place: i + 1, cache, searched: false, best, fruitless: 0, over: false };
  });
  const floorOf = (computation: Computation): number => {
    if (gpu) return leastSecondsOnGpu(withoutInner(computation), gpu);
    return multiplyAddsOf(computation) > 0 ? 0 : leastProgramSeconds(computation, target) / threads;
  };
  const field = new Field(states, floorOf);
  const later: Spend = { seconds: laterShare(seconds, gpu ? GPU_SHARE : LATER_SHARE) };
  const first: Spend = equal
    ? { seconds: Math.max(LEAST_SHARE_SECONDS, seconds / Math.ceil(tasks.length / beside)) }
    : { seconds: Math.max(MOST_FIRST_SECONDS, seconds / tasks.length), trials: FIRST_TRIALS };
  const isByGain = (state: State): boolean => (gpu ? !equal : isAside(state.task));
  // Tasks at the end of the list matter least when time runs out.
  const inOrder = sortedBy(states, (a) => -workOf(a.task));
  const place = { name: nameOf(program), of: count, left, db, search: options.search ?? searchIn(workplace, options) };
  const waiting = [...inOrder.filter((state) => !isByGain(state)).entries()];
  await sideBySide(beside, async (goesOn) => {
    for (let next = waiting.shift(); next && goesOn(); next = waiting.shift()) {
      const [i, state] = next;
      if (signal?.aborted || (i > 0 && left() < LEAST_LEFT_SECONDS)) break;
      const isShort = left() < LEAST_SHARE_SECONDS * (waiting.length + 1);
      const trials = first.trials && (isShort ? first.trials / 2 : first.trials);
      await share(state, { ...defined({ trials }), seconds: Math.min(first.seconds, left()) }, options, place);
    }
  });
  const searching = new Set<State>();
  const isFirst = (): boolean => gpu !== undefined && searching.size === 0 && states.every(({ searched }) => !searched);
  await sideBySide(beside, async (goesOn) => {
    while (!equal && goesOn() && !signal?.aborted && (left() > LEAST_SHARE_SECONDS || isFirst())) {
      const total = sumOf(states, (state) => field.secondsOf(state) * state.task.steps.length);
      const [next] = sortedBy(
        states
          .filter((state) => (state.searched || isByGain(state)) && !state.over && !searching.has(state))
          .map((state) => ({ state, gain: field.gainOf(state) }))
          .filter(({ gain }) => gain > LEAST_GAIN * total),
        (a) => -a.gain,
      ).map(({ state }) => state);
      if (!next) break;
      searching.add(next);
      await share(next, { seconds: Math.min(later.seconds, left()) }, options, place);
      searching.delete(next);
    }
  });
  // Plain loops of which no search was worth its time keep their usual kernel.
  return states
    .filter((state) => state.searched || !isAside(state.task))
    .map((state) => ({
      task: state.task,
      searched: state.searched,
      seconds: state.best,
      ...defined({ failed: state.failed }),
    }));
}

/** Whether a task is neither a product nor a chain. */
const isPlain = (task: Task): boolean => !isTuned(task) && task.computation.program === undefined;

function laterShare(seconds: number, { of, least, most }: typeof LATER_SHARE | typeof GPU_SHARE): number {
  return Math.min(most, Math.max(least, of * seconds));
}

/** A search keeps about four compilers busy, and more than four searches wait for the device. */
const besideOnGpu = (): number => Math.max(1, Math.min(4, Math.floor(availableParallelism() / 4)));

/** Ends when all have ended: one that fails stops the others after what they do now. @throws what the first of them threw */
async function sideBySide(count: number, work: (goesOn: () => boolean) => Promise<void>): Promise<void> {
  let failed = false;
  const ends = await Promise.allSettled(
    Array.from({ length: count }, () =>
      work(() => !failed).catch((error: unknown) => {
        failed = true;
        throw error;
      }),
    ),
  );
  for (const end of ends) if (end.status === "rejected") throw end.reason;
}

/** What imported records claim counts for nothing until it is measured. */
const ON_GPU = { threads: 1, onGpu: true } as const;

/** @throws EnvironmentError when there is no compiler or GPU */
async function workplaceFor({ machine = nativeTarget(), threads = 1, onNotice, openPlace }: TuneNetworkOptions) {
  const place = await (openPlace ?? (() => openWorkplace(machine, { threads, onWait: onNotice })))();
  if (place.status === "environment") throw new EnvironmentError(place);
  return place;
}

/** The rates of a CPU's memories as `network emit` uses them: those of its calibration, which is made first. */
async function targetFor(
  workplace: Workplace | undefined,
  db: Database,
  { machine = nativeTarget(), signal, onNotice = () => undefined }: TuneNetworkOptions,
): Promise<ModelTarget> {
  if (!workplace || isGpu(machine)) return modelTarget(nativeTarget());
  // When it fails, the searches request it again and report why.
  const calibration = await workplace.calibration(db, onNotice, signal).catch(() => undefined);
  return modelTarget(machine, calibration);
}

/** Tasks whose spaces, inputs and expected results stay in memory for their next shares: 50 MB each for large layers. */
const KEPT = 8;

/** A search function whose searches share one workplace, and on a CPU what they prepared. None of them closes it. */
function searchIn(
  workplace: Workplace | undefined,
  { machine = nativeTarget(), openPlace }: TuneNetworkOptions,
): typeof tuneComputation {
  const shared = workplace && { ...workplace, close: () => Promise.resolve() };
  const place = defined({ openPlace: shared && (() => Promise.resolve(shared)) });
  const kept = isGpu(machine) ? undefined : new Preparations(KEPT);
  return async (subject, options) => {
    // Those who measure elsewhere look at their own memory.
    if (kept && !openPlace) checkMemory(subject.computation);
    return tuneComputation(subject, { ...options, ...place }, kept);
  };
}

const workOf = ({ multiplyAdds, steps }: Task): number => multiplyAdds * steps.length;

interface SharedPlace {
  /** The network's. */
  readonly name: string;
  readonly of: number;
  readonly left: () => number;
  readonly db: Database;
  readonly search: typeof tuneComputation;
}

/** What a share may spend. */
interface Spend {
  readonly seconds: number;
  /** With this limit the share ends without finals, which would take longer than so few trials. */
  readonly trials?: number;
}

async function share(
  state: State,
  { seconds, trials }: Spend,
  {
    database,
    seed,
    threads = 1,
    machine,
    transfer = true,
    trustImported,
    exact,
    signal,
    onEvent,
    onShare,
    onNotice,
  }: TuneNetworkOptions,
  { name, of: counted, left, db, search }: SharedPlace,
): Promise<void> {
  const { task, place, cache, best: before } = state;
  const of = Math.max(counted, place);
  const { computation, operator } = task;
  checkPlace(db, "its tasks were tuned");
  const outcome = await search(
    {
      computation,
      network: { name, steps: task.steps.length, seconds: left() },
      ...defined({ parameters: operator?.parameters }),
    },
    {
      within: seconds,
      ...(trials !== undefined && { trials, finals: false }),
      threads,
      transfer,
      cache,
      // On a GPU lane designs keep constants in variables that all kernels of a program share. On a CPU they read along images, whose channels are
      // innermost between steps: none was faster than a mapping in any of six networks, and the model expected it of some (Zen 4, 2026-11-23).
      kinds: isTuned(task) ? kindsForProducts(computation, exact) : "all",
      ...(isPlain(task) && { intrinsics: loopRowsFor(machine) }),
      ...defined({ trustImported, machine, database, seed, signal, onNotice }),
      ...(onEvent && { onEvent: (event) => onEvent(event, { task, place, of }) }),
    },
  ).catch((error: unknown): Failure => {
    // What is wrong with the database is no fault of this task, and the others would fail like it.
    if (error instanceof DatabaseError) throw error;
    return { status: "failed", because: reasonOf(error) };
  });
  checkPlace(db, "its tasks were tuned");
  const found = "best" in outcome ? outcome.best?.measurement.median : undefined;
  const best = before === undefined ? found : Math.min(before, found ?? before);
  // How much more than a first kernel may be found, nothing tells.
  const saved = before === undefined ? best : before - (best ?? before);
  state.fruitless = saved !== undefined && saved > FRUITLESS * (best ?? 0) ? 0 : state.fruitless + 1;
  state.searched = true;
  state.best = best;
  // A reference that takes longer than the search would take as long again.
  const isUnanswered = "unanswered" in outcome && outcome.unanswered !== undefined;
  state.over = isUnanswered || ["failed", "environment", "exhausted", "no-gain"].includes(outcome.status);
  if (outcome.status === "failed") state.failed = outcome.because;
  onShare?.({ task, place, of, seconds: best, outcome, secondsLeft: Math.max(0, left()) });
}
