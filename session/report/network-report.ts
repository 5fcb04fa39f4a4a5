/**
 * @file Gathers the data of a network's report: how each step is computed, how long it takes, what tuning changed, and what no instruction
 * computes.
 *
 *     const data = gatherNetworkReport(opened, choices, { db, environment, threads: 1, now: Date.now() });
 */

import { isOnGpu } from "../../abstraction/candidate.ts";
import { addTo, sortedBy, sumOf, unique } from "../../abstraction/collections.ts";
import { type Computation, computationKey } from "../../abstraction/computation.ts";
import { cut } from "../../abstraction/text.ts";
import { type Database, type Environment, queryTrials, shortId } from "../../db/index.ts";
import { keyOfStep, type MappedShare, mappedShare } from "../../network/mapped-share.ts";
import { type Network, rootOf, rootsRead } from "../../network/network.ts";
import { type Task, totalsOf } from "../../network/tasks.ts";
import type { Value } from "../../network/value.ts";
import { describeWorkload, workloadLabel } from "../../operators/describe.ts";
import { type ModelTarget, modelTarget } from "../../perfmodel/target.ts";
import type { NetworkReportData, NetworkStep, NetworkTask, TimeSource } from "../../report/network-data.ts";
import { counted } from "../../report/text.ts";
import { nativeTarget } from "../../targets/index.ts";
import { isTimed } from "../../tuner/trials.ts";
import { type Choice, isInLoops, type OpenNetwork, trustedIn } from "../network/network.ts";
import { movedSeconds } from "../network/task-memory.ts";
import { storedCalibration } from "../recorded.ts";
import { VERSION } from "../version.ts";
import { nextOfNetwork } from "./next-steps.ts";
import { noiseOf } from "./noise.ts";
import { ceilingsOf, rooflineOf } from "./report-roofline.ts";
import type { TimedRecord } from "./report-trials.ts";

export interface NetworkReportWorld {
  readonly db: Database;
  /** The environment whose records count; undefined when nothing can be measured here. */
  readonly environment: Environment | undefined;
  readonly threads: number;
  readonly onGpu: boolean;
  /** The network as commands name it: a file, or one that is built here. */
  readonly model: string;
  /** Milliseconds since 1970. */
  readonly now: number;
}

/** Gathers the data that a network's report shows. */
export function gatherNetworkReport(
  opened: OpenNetwork,
  choices: ReadonlyMap<Task, Choice>,
  { db, environment, threads, onGpu, model, now }: NetworkReportWorld,
): NetworkReportData {
  const { program } = opened;
  const { multiplyAdds, parameters } = totalsOf(opened.graph, program);
  const calibration = environment && storedCalibration(db, environment)?.calibration;
  const machine = onGpu || !environment ? undefined : { target: modelTarget(nativeTarget(), calibration), threads };
  /** Earliest first: the first one is what a search began with. */
  const timedOf = (computation: Computation): TimedRecord[] =>
    environment === undefined
      ? []
      : sortedBy(
          queryTrials(db, { computation, threads, trusted: trustedIn(environment), status: "ok" })
            .filter(isTimed)
            .filter(({ provenance }) => provenance === "here")
            .filter((t) => isOnGpu(t.candidate) === onGpu),
          (a) => a.at,
        );
  const gathered = [...choices].map(([task, choice]) => {
    const trials = choice.kind === "record" ? timedOf(task.computation) : [];
    return { task, trials, row: taskRow(task, choice, trials, machine) };
  });
  gathered.sort((a, b) => Number(b.row.multiplyAdds > 0) - Number(a.row.multiplyAdds > 0));
  const placeOf = new Map(gathered.map(({ task }, i) => [computationKey(task.computation), i]));
  const winners = new Set(gathered.flatMap(({ row, trials }) => winnersOf(row, trials).map(({ id }) => id)));
  const [someTrial] = gathered.flatMap(({ trials }) => trials);
  const ceilings = someTrial && ceilingsOf(db, someTrial.environment);
  const tasks = gathered.map(({ row, trials }) => {
    const [winner] = winnersOf(row, trials);
    return { ...row, roof: winner && ceilings?.roofs(winner)?.seconds };
  });
  const { verdict, meaning } = noiseOf(gathered.flatMap(({ trials }) => trials));
  return {
    name: program.name,
    source: db.path,
    madeAt: now,
    version: VERSION,
    machine: `${environment?.cpu ?? "a machine that is not here"}, ${counted(threads, "thread")}`,
    nodes: program.nodes,
    multiplyAdds,
    parameters,
    share: shareOf(opened, choices),
    steps: stepsOf(program, placeOf),
    tasks,
    noise: { verdict, meaning },
    next: nextOfNetwork({ model, tasks, verdict, file: db.path }),
    progress: progressOf(gathered),
    roofline:
      ceilings &&
      rooflineOf(
        0,
        gathered.flatMap(({ trials }) => (trials.length > 0 ? [trials] : [])),
        winners,
        ceilings,
      ),
  };
}

/** Most steps that are kept of those that write what one step reads: a joined value has a writer for each of its parts. */
const MOST_READ = 64;

function stepsOf({ steps }: Network, placeOf: ReadonlyMap<string, number>): NetworkStep[] {
  const writers = new Map<Value, number[]>();
  return steps.map((step, i) => {
    const reads = unique([...rootsRead(step)].flatMap((root) => writers.get(root) ?? [])).slice(-MOST_READ);
    addTo(writers, rootOf(step.output), i);
    return { node: step.nodes[0] ?? "", ops: step.ops, task: placeOf.get(keyOfStep(step)) ?? 0, reads };
  });
}

/** The share of a network's operators that instructions compute. */
export function shareOf(
  opened: Pick<OpenNetwork, "graph" | "plain" | "program">,
  choices: ReadonlyMap<Task, Choice>,
): MappedShare {
  const instructions = new Map(
    [...choices].flatMap(([{ computation }, choice]) =>
      choice.kind === "loops" || isInLoops(choice)
        ? []
        : [[computationKey(computation), choice.place.split(" ", 1)[0] ?? ""] as const],
    ),
  );
  return mappedShare(opened.graph, opened, (step) => instructions.get(keyOfStep(step)));
}

/** `conv2d c 64 h 56 w 56 k 64 r 3 s 3 pad 1 Relu`, or the equation */
export function labelOfTask({ computation, operator, steps }: Task): string {
  if (!operator) return workloadLabel(describeWorkload({ computation }));
  const parameters = Object.entries(operator.parameters).map(([name, value]) => `${name} ${value}`);
  return [operator.name, ...parameters, ...(steps[0]?.ops ?? []).slice(1)].join(" ");
}

/** Labels are cut at this length, since the equation of a transform can fill pages. */
const LONGEST_LABEL = 120;

/** By what plain loops are estimated. */
interface Estimating {
  readonly target: ModelTarget;
  readonly threads: number;
}

function taskRow(
  task: Task,
  choice: Choice,
  trials: readonly TimedRecord[],
  machine: Estimating | undefined,
): Omit<NetworkTask, "roof"> {
  const { time, seconds } = timeOf(task, choice, machine);
  return {
    label: cut(labelOfTask(task), LONGEST_LABEL),
    nodes: task.steps.map(({ nodes }) => nodes[0] ?? ""),
    ops: task.steps[0]?.ops ?? [],
    times: task.steps.length,
    multiplyAdds: task.multiplyAdds,
    time,
    seconds,
    kernel: choice.kind === "loops" ? undefined : choice.place,
    because: choice.kind === "loops" ? choice.because : undefined,
    record: choice.kind === "record" ? choice.id : undefined,
    first: trials[0]?.measurement.median,
    best: trials.length === 0 ? undefined : Math.min(...trials.map((t) => t.measurement.median)),
    trials: trials.length,
  };
}

function timeOf(
  { computation, multiplyAdds }: Task,
  choice: Choice,
  machine: Estimating | undefined,
): { readonly time: TimeSource; readonly seconds: number | undefined } {
  switch (choice.kind) {
    case "record":
      return { time: "measured", seconds: choice.seconds };
    case "model":
      return { time: "predicted", seconds: choice.expected };
    case "loops":
      // A plain-loop sum of products is bound by its arithmetic rather than by memory.
      return machine && multiplyAdds === 0
        ? { time: "estimated", seconds: movedSeconds(computation, machine.target) / machine.threads }
        : { time: "unknown", seconds: undefined };
    default:
      return choice satisfies never;
  }
}

function winnersOf({ record }: Pick<NetworkTask, "record">, trials: readonly TimedRecord[]): TimedRecord[] {
  return trials.filter(({ id }) => shortId(id) === record);
}

interface Gathered {
  readonly task: Task;
  readonly trials: readonly TimedRecord[];
}

/** The sum of the best times so far over all tuned steps, trial by trial. */
function progressOf(gathered: readonly Gathered[]): number[] {
  const tried = gathered.flatMap(({ task, trials }) =>
    trials.map((t) => ({ task, at: t.at, seconds: t.measurement.median })),
  );
  tried.sort((a, b) => a.at - b.at);
  const best = new Map(
    gathered.flatMap(({ task, trials: [first] }) => (first ? [[task, first.measurement.median] as const] : [])),
  );
  let sum = sumOf(best, ([{ steps }, seconds]) => seconds * steps.length);
  return tried.map(({ task, seconds }) => {
    const before = best.get(task) ?? seconds;
    if (seconds < before) {
      sum -= (before - seconds) * task.steps.length;
      best.set(task, seconds);
    }
    return sum;
  });
}
