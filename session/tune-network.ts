/**
 * @file The time of a search dealt among the tasks of a network.
 *
 *     await tuneNetwork(program, { seconds: 60, database: "automap.db", onTask: ({ task, gain }) => ... })
 *
 * First every task has an equal share of half the time, those with the most multiply-adds before the others; where the time ends there, the rest get
 * nothing. Then each next share goes where the network's time is expected to fall most: a task's gain is what its last share saved, times how often
 * the network computes it. A search goes on from its records, so that nothing is measured twice.
 *
 * On a GPU several searches run side by side: one enumerates and another compiles while a third has the device, which measures one at a time.
 *
 * A step that has several forms (network/forms.ts) makes tasks of all that can still win: products of the likeliest other form come first, and the
 * step's own equation only if a kernel could compute it faster than that form. Gains are those of forms that are in use.
 */

import { availableParallelism } from "node:os";
import { type Computation, computationKey } from "../abstraction/computation.ts";
import { reasonOf, UsageError } from "../abstraction/error.ts";
import type { Target } from "../abstraction/machine.ts";
import { DEFAULT_DATABASE, openDatabase } from "../db/index.ts";
import { INTRINSICS } from "../intrinsics/index.ts";
import type { Program } from "../network/program.ts";
import { isTuned, multiplyAddsOf, type Task, tasksOf } from "../network/tasks.ts";
import { type ModelTarget, modelTarget } from "../perfmodel/target.ts";
import { createRunner, type Runner } from "../runtime/measure.ts";
import { type CudaRunner, createCudaRunner } from "../runtime/run/cuda.ts";
import { isGpu, nativeTarget } from "../targets/index.ts";
import { environmentOf } from "./environment.ts";
import {
  expectedSeconds,
  type FormCosts,
  type Forms,
  formsIn,
  inBestForms,
  levelOfWeights,
  likelyForms,
  secondsOfForm,
  targetOfForms,
} from "./forms.ts";
import { calibrationFor } from "./predict.ts";
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
  /** Whether each step is computed as its equation says: no form of it that rounds otherwise. */
  readonly exact?: boolean;
  /** Whether every share is an equal one: to compare. */
  readonly equal?: boolean;
  /** Searches at once; by default one, and on a GPU one for every four processors, four at most. */
  readonly beside?: number;
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
  /** Whether the network computes it: it belongs to the fastest form of its steps. */
  readonly used: boolean;
  /** Whether it got no time because another form of its steps is faster than it could be. */
  readonly beaten: boolean;
  /** What ended its last search, where that was an error. */
  readonly failed?: string;
}

interface State {
  readonly task: Task;
  readonly place: number;
  searched: boolean;
  beaten: boolean;
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

/** How much faster than all kernels so far one more may be: more than layers of one network differ by at the end of their searches. */
const FASTER_YET = 1.25;

/**
 * One task is searched for at least, however little the time.
 * @returns all tasks in the order of the network
 * @throws UsageError when no step of the network sums products
 */
export async function tuneNetwork(program: Program, options: TuneNetworkOptions): Promise<readonly TunedTask[]> {
  if (!tasksOf(program).some(isTuned))
    throw new UsageError(`${program.name} has nothing to tune: none of its steps sums products`);
  // Without one, for want of a compiler, each search says so itself.
  const runner = options.search ? undefined : await runnerFor(options);
  try {
    return await tuneOn(runner, program, options);
  } finally {
    await runner?.close();
  }
}

async function tuneOn(
  runner: Runner | CudaRunner | undefined,
  program: Program,
  options: TuneNetworkOptions,
): Promise<readonly TunedTask[]> {
  const { seconds, threads = 1, equal = false, exact = false, machine, signal } = options;
  const target = await targetFor(runner, options);
  const { beside = machine && isGpu(machine) ? besideOnGpu() : 1 } = options;
  const forms = likelyForms(
    formsIn(program, exact || (machine !== undefined && isGpu(machine))),
    { target, threads },
    levelOfWeights(program, target),
  );
  const every = program.steps.flatMap((step) => (forms.get(step) ?? [[step]]).flat());
  const tasks = tasksOf({ ...program, steps: every }).filter(isTuned);
  const started = Date.now();
  const left = (): number => seconds - (Date.now() - started) / 1000;
  const states = tasks.map((task, i): State => {
    return { task, place: i + 1, searched: false, beaten: false, best: undefined, gain: 0 };
  });
  const field = new Field(program, forms, states, { target, threads });
  const first = Math.max(LEAST_SHARE_SECONDS, ((equal ? 1 : EQUAL_SHARE) * seconds) / Math.ceil(tasks.length / beside));
  // Forms before what they stand for; then the task with the most work first: time that runs out is missed least by the others.
  const inOrder = states.toSorted(
    (a, b) => Number(field.isOfForm(b)) - Number(field.isOfForm(a)) || workOf(b.task) - workOf(a.task),
  );
  const place = { of: states.length, left, search: options.search ?? searchOn(runner) };
  const waiting = [...inOrder.entries()];
  await sideBySide(beside, async (goesOn) => {
    for (let next = waiting.shift(); next && goesOn(); next = waiting.shift()) {
      const [i, state] = next;
      if (signal?.aborted || (i > 0 && left() < LEAST_LEFT_SECONDS)) break;
      state.beaten = field.isBeaten(state);
      if (!state.beaten) await share(state, Math.min(first, left()), options, place);
    }
  });
  const searching = new Set<State>();
  await sideBySide(beside, async (goesOn) => {
    while (!equal && goesOn() && !signal?.aborted && left() > LEAST_SHARE_SECONDS) {
      const used = field.inUse();
      const total = [...used].reduce((sum, { task, best = 0 }) => sum + best * task.steps.length, 0);
      const [next] = [...used]
        .filter((state) => state.gain > LEAST_GAIN * total && !searching.has(state))
        .sort((a, b) => b.gain - a.gain);
      if (!next) break;
      searching.add(next);
      await share(next, Math.min(left(), Math.max(LEAST_SHARE_SECONDS, first)), options, place);
      searching.delete(next);
    }
  });
  const used = field.inUse();
  return states.map((state) => ({
    ...{ task: state.task, searched: state.searched, beaten: state.beaten, seconds: state.best },
    used: used.has(state),
    ...(state.failed !== undefined && { failed: state.failed }),
  }));
}

/** A search keeps about four compilers busy, and more than four wait for the device. */
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

/** Undefined for want of a compiler or a GPU. */
async function runnerFor({ machine, threads = 1 }: TuneNetworkOptions): Promise<Runner | CudaRunner | undefined> {
  const made = machine && isGpu(machine) ? await createCudaRunner() : await createRunner({ threads });
  return made.status === "ready" ? made.runner : undefined;
}

/** The rates of this CPU's memories as `network emit` will have them: those of its calibration, which is made first. */
async function targetFor(
  runner: Runner | CudaRunner | undefined,
  { database, signal, onNotice = () => undefined }: TuneNetworkOptions,
): Promise<ModelTarget> {
  // A file that is no database is no fault of a task.
  const db = openDatabase(database ?? DEFAULT_DATABASE);
  try {
    if (!runner || "device" in runner) return modelTarget(nativeTarget());
    const environment = environmentOf(runner);
    // Where it fails, the searches ask for it again and say why.
    await calibrationFor(db, environment, INTRINSICS, runner, onNotice, { ...(signal && { signal }) }).catch(
      () => undefined,
    );
    return targetOfForms({ db, environment });
  } finally {
    db.close();
  }
}

/** What is known of the tasks of all forms, and which of them the network would be made of now. */
class Field {
  private readonly program: Program;
  private readonly forms: Forms;
  private readonly states: ReadonlyMap<string, State>;
  private readonly costs: FormCosts;

  constructor(program: Program, forms: Forms, states: readonly State[], rates: Omit<FormCosts, "secondsOf">) {
    this.program = program;
    this.forms = forms;
    this.states = new Map(states.map((state) => [computationKey(state.task.computation), state]));
    this.costs = { secondsOf: (computation) => this.stateOf(computation)?.best, ...rates };
  }

  /** Whether it is a part of a form other than a step's own equation. */
  isOfForm({ task }: State): boolean {
    return task.steps.every((step) => !this.program.steps.includes(step));
  }

  inUse(): ReadonlySet<State> {
    const { steps } = inBestForms(this.program, this.forms, this.costs);
    return new Set(steps.flatMap(({ computation }) => this.stateOf(computation) ?? []));
  }

  /**
   * Whether each step of a task has another form that is faster than the task could be: at the best rate that any kernel has reached, and more, and by
   * the model.
   */
  isBeaten({ task }: State): boolean {
    const weights = levelOfWeights(this.program, this.costs.target);
    const others = task.steps.map((step) => {
      const forms = (this.forms.get(step) ?? []).filter((form) => !form.includes(step));
      return Math.min(...forms.map((form) => secondsOfForm(form, this.costs, weights) ?? Number.POSITIVE_INFINITY));
    });
    const slowest = Math.max(...others);
    const rates = [...this.states.values()].map(({ task: other, best }) => (best ? other.multiplyAdds / best : 0));
    if (slowest >= task.multiplyAdds / (FASTER_YET * Math.max(...rates))) return false;
    return slowest < (expectedSeconds(task.computation, this.costs.threads) ?? Number.POSITIVE_INFINITY);
  }

  private stateOf(computation: Computation): State | undefined {
    return multiplyAddsOf(computation) > 0 ? this.states.get(computationKey(computation)) : undefined;
  }
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
