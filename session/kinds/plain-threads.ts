/**
 * @file GPU kernels for computations that no instruction maps. Each thread evaluates the equation directly for several neighbouring elements,
 * with reads and writes of up to 16 bytes; lanes and warps share long sums.
 *
 *     WARP_LOOP_KIND.usual?.(pooling, nvidiaTarget("h100"), {}).source       y[n,c,p,q] max= f32(x[n,c,p*2+r-1,q*2+s-1]) in CUDA
 *
 * Schedules are drawn at random. A network takes the one that the model of threads expects to be fastest; a search tries the others too.
 */

import { candidateKey, type ThreadSchedule, type WarpLoopCandidate } from "../../abstraction/candidate.ts";
import { memoisedPair } from "../../abstraction/collections.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { attempt, UsageError } from "../../abstraction/error.ts";
import type { Target } from "../../abstraction/machine.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { THREAD } from "../../intrinsics/thread.ts";
import { gridLimits } from "../../mapper/schedule/grid-context.ts";
import { drawSchedule, problemIn } from "../../mapper/schedule/schedules.ts";
import { plainContext, type ThreadContext } from "../../mapper/schedule/thread/context.ts";
import { THREAD_KIND } from "../../mapper/schedule/thread/schedule.ts";
import { predictThreads } from "../../perfmodel/threads.ts";
import { isGpu, NVIDIA_TARGETS } from "../../targets/index.ts";
import { learntFactor } from "../tune/learner.ts";
import { type GpuChoice, generateOnGpu, predictOnGpu } from "./gpu-kinds.ts";
import { listedSpaceOf } from "./in-loops.ts";
import type { SessionKind } from "./session-space.ts";

const DRAWS = 300;
const SEED = 1;
/** Schedules that a search begins with, of those that the model expects to be fast. */
const PROMISING = 16;

type Choice = Extract<GpuChoice, { kind: "threads" }>;

/** @throws UsageError that says why threads cannot share the computation */
function contextOn(computation: Computation, machine: Target): ThreadContext {
  const context = plainContext(computation, THREAD, gridLimits(machine));
  if (typeof context === "string")
    throw new UsageError(`${computation.name} has no kernel for ${machine.name}: ${context}`);
  return context;
}

/**
 * What a search tries, the choice that is expected to be fastest first. @param machine a GPU
 * @throws UsageError that says why threads cannot share the computation
 */
export const threadsChoices = memoisedPair(
  (computation: Computation, machine: Target): readonly [Choice, ...Choice[]] => {
    const context = contextOn(computation, machine);
    const [best, ...others] = rankedSchedules(context, machine).map(
      (schedule): Choice => ({ kind: "threads", context, schedule }),
    );
    if (best) return [best, ...others];
    const few = fewPoints(context);
    if (!few)
      throw new UsageError(`${computation.name} has no kernel for ${machine.name}: it has no loop to deal to threads`);
    return [few];
  },
);

/** With too few points for the lanes of a warp, one loop takes them all and leaves the other lanes idle. */
function fewPoints(context: ThreadContext): Choice | undefined {
  const longest = context.loops.toSorted((a, b) => b.extent - a.extent)[0];
  if (!longest) return undefined;
  const schedule: ThreadSchedule = { lanes: { [longest.name]: context.limits.lanes }, warps: {}, each: {}, split: 1 };
  return choiceIn(context, schedule);
}

/** The choice of a schedule; undefined where it cannot be lowered. */
function choiceIn(context: ThreadContext, schedule: ThreadSchedule): Choice | undefined {
  const wasteful: ThreadContext = { ...context, wasteful: true };
  const seen = [context, wasteful].find((one) => problemIn(THREAD_KIND, one, schedule) === undefined);
  return seen && { kind: "threads", context: seen, schedule };
}

function rankedSchedules(context: ThreadContext, machine: Target): readonly ThreadSchedule[] {
  const random = seededRandom(SEED);
  const drawn = new Map<string, { readonly schedule: ThreadSchedule; readonly seconds: number }>();
  for (let i = 0; i < DRAWS; i++) {
    const schedule = drawSchedule(THREAD_KIND, context, random);
    if (!schedule) break;
    const key = candidateKey(candidateOf({ schedule }));
    const seconds = drawn.has(key) ? undefined : predictThreads(context, schedule, machine)?.seconds;
    if (seconds !== undefined) drawn.set(key, { schedule, seconds });
  }
  return [...drawn.values()].sort((a, b) => a.seconds - b.seconds).map(({ schedule }) => schedule);
}

const candidateOf = ({ schedule }: Pick<Choice, "schedule">): WarpLoopCandidate => ({
  kind: "warp-loops",
  intrinsic: THREAD.name,
  schedule,
});

/** @throws UsageError when the schedule fits no GPU */
function choiceOf(
  computation: Computation,
  { schedule }: WarpLoopCandidate,
  machine: Target | undefined,
): Choice & { readonly machine: Target } {
  for (const one of machine && isGpu(machine) ? [machine] : NVIDIA_TARGETS) {
    const choice = choiceIn(contextOn(computation, one), schedule);
    if (choice) return { ...choice, machine: one };
  }
  throw new UsageError(`the schedule does not fit ${computation.name}`);
}

/** The equation on threads: a candidate for each schedule drawn. */
export const WARP_LOOP_KIND: SessionKind<WarpLoopCandidate> = {
  kind: "warp-loops",
  family: "loops",
  isFor: (_, machine) => isGpu(machine),
  *spaceOf({ computation, machine }) {
    const choices = attempt(
      () => threadsChoices(computation, machine),
      ({ message }) => message,
    );
    if (typeof choices === "string") return [{ rule: "loops", because: choices }];
    const [{ context }] = choices;
    const all = choices.map(candidateOf);
    return {
      kind: "warp-loops",
      space: { ...listedSpaceOf(all), representatives: all.slice(0, 1), promising: all.slice(0, PROMISING) },
      intrinsics: [THREAD],
      model: learntFactor(
        ({ schedule }) => predictThreads(context, schedule, machine)?.seconds ?? Number.POSITIVE_INFINITY,
      ),
      kernelOf: ({ schedule }) => generateOnGpu({ kind: "threads", context, schedule }),
    };
  },
  kernelOf: (computation, candidate, machine, inStream) =>
    generateOnGpu(choiceOf(computation, candidate, machine), inStream),
  usual: (computation, machine, inStream) => generateOnGpu(threadsChoices(computation, machine)[0], inStream),
  predict: (computation, candidate, { machine }) => {
    const choice = choiceOf(computation, candidate, machine);
    return predictOnGpu(choice, choice.machine);
  },
};
