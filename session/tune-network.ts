/**
 * @file The time of a search dealt among the tasks of a network.
 *
 *     await tuneNetwork(program, { seconds: 60, database: "automap.db", onTask: ({ task, gain }) => ... })
 *
 * First every task has an equal share of half the time, those with the most multiply-adds before the others; where the time ends there, the rest get
 * nothing. Then each next share goes where the network's time is expected to fall most: a task's gain is what its last share saved, times how often
 * the network computes it. A search goes on from its records, so that nothing is measured twice.
 */

import { reasonOf, UsageError } from "../abstraction/error.ts";
import type { Target } from "../abstraction/machine.ts";
import { DEFAULT_DATABASE, openDatabase } from "../db/index.ts";
import type { Program } from "../network/program.ts";
import type { Task } from "../network/tasks.ts";
import { createRunner, type Runner } from "../runtime/measure.ts";
import { type CudaRunner, createCudaRunner } from "../runtime/run/cuda.ts";
import { isGpu } from "../targets/index.ts";
import { tunedTasks } from "./network.ts";
import { type TuneOutcome, tuneComputation } from "./tune.ts";

export interface TuneNetworkOptions {
  /** For all tasks together. */
  readonly seconds: number;
  readonly database?: string;
  readonly seed?: number;
  /** Of each kernel; 1 by default. */
  readonly threads?: number;
  /** This machine's CPU when left out, or its GPU. */
  readonly machine?: Target;
  /** Whether a search begins with the fastest schedules of near tasks; true by default. */
  readonly transfer?: boolean;
  /** Whether every share is an equal one: to compare. */
  readonly equal?: boolean;
  readonly signal?: AbortSignal;
  /** Searches for one task: `tuneComputation` when left out. */
  readonly search?: typeof tuneComputation;
  /** Told of each share when it ends. */
  readonly onShare?: (share: Share) => void;
  readonly onNotice?: (text: string) => void;
}

/** One search for one task. */
export interface Share {
  readonly task: Task;
  /** Place among the tasks, and how many there are. */
  readonly place: number;
  readonly of: number;
  /** Of one call of the best kernel so far; undefined when none works. */
  readonly seconds: number | undefined;
  readonly outcome: TuneOutcome | Failure;
  /** Left for all. */
  readonly secondsLeft: number;
}

/** A search that ended with an error: its task gets no more time, the others go on. */
export interface Failure {
  readonly status: "failed";
  readonly because: string;
}

/** What became of one task. */
export interface TunedTask {
  readonly task: Task;
  /** Whether the time was enough to search for it. */
  readonly searched: boolean;
  /** Of one call of its best kernel; undefined when none works, or none was searched. */
  readonly seconds: number | undefined;
  /** What ended its last search, where that was an error. */
  readonly failed?: string;
}

interface State {
  readonly task: Task;
  readonly place: number;
  searched: boolean;
  best: number | undefined;
  /** Seconds of the network's time that the last share saved. */
  gain: number;
  failed?: string;
}

/** Of the time, what is dealt in equal shares before gains are known. */
const EQUAL_SHARE = 0.5;
/** Shorter searches measure little besides preparing. */
const LEAST_SHARE_SECONDS = 4;
/** Less is not begun: nothing is compiled and measured in it. */
const LEAST_LEFT_SECONDS = 1;
/** Before a second share nothing is known of what it saves: as much of a task's time, at most. */
const FIRST_GAIN = 0.1;
/** A share that saved less than this of the network's time ends its task. */
const LEAST_GAIN = 0.001;

/**
 * One task is searched for at least, however little the time.
 * @returns all tasks in the order of the network
 * @throws UsageError when no step of the network sums products
 */
export async function tuneNetwork(program: Program, options: TuneNetworkOptions): Promise<readonly TunedTask[]> {
  const tasks = tunedTasks(program);
  if (tasks.length === 0) throw new UsageError(`${program.name} has nothing to tune: none of its steps sums products`);
  const { seconds, equal = false, signal } = options;
  // A file that is no database is no fault of a task.
  openDatabase(options.database ?? DEFAULT_DATABASE).close();
  const started = Date.now();
  const left = (): number => seconds - (Date.now() - started) / 1000;
  const states = tasks.map((task, i): State => ({ task, place: i + 1, searched: false, best: undefined, gain: 0 }));
  const first = Math.max(LEAST_SHARE_SECONDS, ((equal ? 1 : EQUAL_SHARE) * seconds) / tasks.length);
  // The task with the most work first: time that runs out is missed least by the others.
  const inOrder = states.toSorted((a, b) => workOf(b.task) - workOf(a.task));
  // Without one, for want of a compiler, each search says so itself.
  const runner = options.search ? undefined : await runnerFor(options);
  const place = { of: states.length, left, search: options.search ?? searchOn(runner) };
  try {
    for (const [i, state] of inOrder.entries()) {
      if (signal?.aborted || (i > 0 && left() < LEAST_LEFT_SECONDS)) break;
      await share(state, Math.min(first, left()), options, place);
    }
    while (!equal && !signal?.aborted && left() > LEAST_SHARE_SECONDS) {
      const total = states.reduce((sum, { task, best = 0 }) => sum + best * task.steps.length, 0);
      const [next] = states.filter(({ gain }) => gain > LEAST_GAIN * total).sort((a, b) => b.gain - a.gain);
      if (!next) break;
      await share(next, Math.min(left(), Math.max(LEAST_SHARE_SECONDS, first)), options, place);
    }
  } finally {
    await runner?.close();
  }
  return states.map(({ task, searched, best, failed }) => ({
    ...{ task, searched, seconds: best },
    ...(failed !== undefined && { failed }),
  }));
}

/** Undefined for want of a compiler or a GPU. */
async function runnerFor({ machine, threads = 1 }: TuneNetworkOptions): Promise<Runner | CudaRunner | undefined> {
  const made = machine && isGpu(machine) ? await createCudaRunner() : await createRunner({ threads });
  return made.status === "ready" ? made.runner : undefined;
}

/** Searches that compile and measure with one runner, which none of them closes. */
function searchOn(runner: Runner | CudaRunner | undefined): typeof tuneComputation {
  // The runner is a class: what is overridden stands before its prototype.
  const shared = runner && (Object.create(runner, { close: { value: () => Promise.resolve() } }) as typeof runner);
  return (subject, options) => tuneComputation(subject, { ...options, ...(shared && { runner: shared }) });
}

const workOf = ({ multiplyAdds, steps }: Task): number => multiplyAdds * steps.length;

interface SharedPlace {
  readonly of: number;
  readonly left: () => number;
  readonly search: typeof tuneComputation;
}

async function share(
  state: State,
  seconds: number,
  { database, seed, threads = 1, machine, transfer = true, signal, onShare, onNotice }: TuneNetworkOptions,
  { of, left, search }: SharedPlace,
): Promise<void> {
  const { task, place, best: before } = state;
  const { computation, operator } = task;
  const outcome = await search(
    { computation, ...(operator && { parameters: operator.parameters }) },
    {
      within: seconds,
      ...{ threads, transfer },
      // Designs on lanes keep constants where all kernels of a program share them.
      ...(machine && { machine, kinds: "mappings" as const }),
      ...(database !== undefined && { database }),
      ...(seed !== undefined && { seed }),
      ...(signal && { signal }),
      ...(onNotice && { onNotice }),
    },
  ).catch((error: unknown): Failure => ({ status: "failed", because: reasonOf(error) }));
  const found = "best" in outcome ? outcome.best?.measurement.median : undefined;
  const best = before === undefined ? found : Math.min(before, found ?? before);
  const saved = before === undefined ? FIRST_GAIN * (best ?? 0) : before - (best ?? before);
  state.searched = true;
  state.best = best;
  state.gain = saved * task.steps.length;
  if (outcome.status === "failed") state.failed = outcome.because;
  onShare?.({ task, place, of, seconds: best, outcome, secondsLeft: Math.max(0, left()) });
}
