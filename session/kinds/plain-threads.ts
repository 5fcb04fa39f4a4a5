/**
 * @file GPU kernels for computations that no instruction maps. Each thread evaluates the equation directly for several neighbouring elements,
 * with reads and writes of up to 16 bytes; lanes and warps share long sums. Of programs whose equations share their rows, lanes and warps share rows.
 *
 *     WARP_LOOP_KIND.usual?.(pooling, nvidiaTarget("h100"), {}).source       y[n,c,p,q] max= f32(x[n,c,p*2+r-1,q*2+s-1]) in CUDA
 *     WARP_CHAIN_KIND.usual?.(softmax, nvidiaTarget("h100"), {}).source
 *
 * Schedules of threads are drawn at random, those of rows listed. A network takes the one that the model expects to be fastest; a search tries the
 * others too.
 */

import {
  candidateKey,
  type ThreadSchedule,
  type WarpChainCandidate,
  type WarpLoopCandidate,
} from "../../abstraction/candidate.ts";
import { memoisedPair, sortedBy } from "../../abstraction/collections.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { attempt, UsageError } from "../../abstraction/error.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import type { Target } from "../../abstraction/machine.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { type RowChain, rowChainOf } from "../../abstraction/row-chain.ts";
import { generateCuda } from "../../codegen/cuda/cuda.ts";
import { THREAD } from "../../intrinsics/thread.ts";
import { lowerChainThreads } from "../../mapper/lower/chain-threads.ts";
import { type ChainShape, chainShapes, shapeOf, WARP_CHAIN } from "../../mapper/schedule/chain-shape.ts";
import { gridLimits } from "../../mapper/schedule/grid-context.ts";
import { drawSchedule, problemIn } from "../../mapper/schedule/schedules.ts";
import { plainContext, type ThreadContext } from "../../mapper/schedule/thread/context.ts";
import { THREAD_KIND } from "../../mapper/schedule/thread/schedule.ts";
import { chainSeconds } from "../../perfmodel/row-chains.ts";
import { predictThreads } from "../../perfmodel/threads.ts";
import { unboundedIn } from "../../runtime/reference/reference-of-parts.ts";
import { isGpu } from "../../targets/index.ts";
import type { SearchSpace } from "../../tuner/space.ts";
import { learntFactor, predictionOf } from "../tune/learner.ts";
import { MADE_BY } from "../version.ts";
import { type GpuChoice, generateOnGpu, onFirstGpu, predictOnGpu } from "./gpu-kinds.ts";
import { listedSpaceOf } from "./plain-loops.ts";
import type { InStream, SessionKind } from "./session-space.ts";

const DRAWS = 300;
const SEED = 1;
/** Schedules that a search begins with, of those that the model expects to be fast. */
const PROMISING = 16;

/** Candidates in the order in which the model expects them to be fast. */
function rankedSpaceOf<K extends WarpLoopCandidate | WarpChainCandidate>(all: readonly K[]): SearchSpace<K> {
  return { ...listedSpaceOf(all), representatives: all.slice(0, 1), promising: all.slice(0, PROMISING) };
}

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
  const longest = sortedBy(context.loops, (a) => -a.extent)[0];
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
  return sortedBy(drawn.values(), (a) => a.seconds).map(({ schedule }) => schedule);
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
  const because = `the schedule does not fit ${computation.name}`;
  const found = onFirstGpu(machine, (gpu) => {
    const choice = choiceIn(contextOn(computation, gpu), schedule);
    return choice ? { ...choice, machine: gpu } : because;
  });
  if (typeof found === "string") throw new UsageError(because);
  return found;
}

/** The equation on threads: a candidate for each schedule drawn. */
export const WARP_LOOP_KIND: SessionKind<WarpLoopCandidate> = {
  kind: "warp-loops",
  family: "loops",
  isFor: (_, machine) => isGpu(machine),
  *spaceOf({ computation, machine }) {
    const none = plainContext(computation, THREAD, gridLimits(machine));
    if (typeof none === "string") return [{ rule: "loops", because: `no plain loops: ${none}` }];
    const choices = attempt(
      () => threadsChoices(computation, machine),
      ({ message }) => message,
    );
    if (typeof choices === "string") return [{ rule: "loops", because: choices }];
    const [{ context }] = choices;
    const all = choices.map(candidateOf);
    return {
      kind: "warp-loops",
      space: rankedSpaceOf(all),
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

/** All shapes, the one that is expected to be fastest first. */
function rankedShapes(chain: RowChain, machine: Target): ChainShape[] {
  return sortedBy(
    chainShapes(chain, gridLimits(machine)).map((shape) => ({ shape, seconds: chainSeconds(chain, shape, machine) })),
    (a) => a.seconds,
  ).map(({ shape }) => shape);
}

const chainedOn = (machine: Target, { chained = false }: InStream): InStream => ({
  chained: chained && gridLimits(machine).dependentLaunch,
});

/** The kernel in a given shape. */
export function chainInShape(chain: RowChain, shape: ChainShape, { chained = false }: InStream = {}): Kernel {
  const { together, lanes, columnWarps, rowWarps, pieces } = shape;
  return generateCuda(chain.computation, THREAD, lowerChainThreads(chain, shape), {
    lines: [
      `schedule  ${pieces} times ${together} columns each   lanes ${lanes}   warps of a row ${columnWarps}, of rows ${rowWarps}`,
      MADE_BY,
    ],
    chained,
  });
}

const NO_BLOCK = "no block holds a row in registers";

/** @throws UsageError for a program that is none of rows */
function rowsOf(computation: Computation): RowChain {
  const chain = rowChainOf(computation);
  if ("because" in chain) throw new UsageError(`${computation.name} has no rows: ${chain.because}`);
  return chain;
}

interface Shaped {
  readonly chain: RowChain;
  readonly shape: ChainShape;
  readonly machine: Target;
}

/** @throws UsageError for a program that is none of rows, or a schedule that fits no GPU */
function shaped(computation: Computation, { schedule }: WarpChainCandidate, machine: Target | undefined): Shaped {
  const chain = rowsOf(computation);
  const found = onFirstGpu(
    machine,
    (gpu) =>
      problemIn(WARP_CHAIN, { chain, limits: gridLimits(gpu) }, schedule) ?? {
        chain,
        shape: shapeOf(chain, schedule),
        machine: gpu,
      },
  );
  if (typeof found === "string") throw new UsageError(`the schedule does not fit ${computation.name}: ${found}`);
  return found;
}

/** Rows that threads of a GPU share: a candidate for each shape. */
export const WARP_CHAIN_KIND: SessionKind<WarpChainCandidate> = {
  kind: "warp-chain",
  family: "loops",
  ofPrograms: true,
  isFor: (_, machine) => isGpu(machine),
  *spaceOf({ computation, machine }) {
    const chain = rowChainOf(computation);
    const because = "because" in chain ? chain.because : unboundedIn(computation);
    if ("because" in chain || because !== undefined) return [{ rule: "rows", because: `no rows: ${because}` }];
    const all = rankedShapes(chain, machine).map(
      ({ pieces: _, ...schedule }): WarpChainCandidate => ({ kind: "warp-chain", intrinsic: THREAD.name, schedule }),
    );
    if (all.length === 0) return [{ rule: "rows", because: NO_BLOCK }];
    return {
      kind: "warp-chain",
      space: rankedSpaceOf(all),
      intrinsics: [THREAD],
      model: learntFactor(({ schedule }) => chainSeconds(chain, shapeOf(chain, schedule), machine)),
      kernelOf: (c) => chainInShape(chain, shapeOf(chain, c.schedule)),
    };
  },
  kernelOf: (computation, candidate, given, inStream) => {
    const { chain, shape, machine } = shaped(computation, candidate, given);
    return chainInShape(chain, shape, chainedOn(machine, inStream));
  },
  usual: (computation, machine, inStream) => {
    const chain = rowsOf(computation);
    const [best] = rankedShapes(chain, machine);
    if (!best) throw new UsageError(`${computation.name} has no rows: ${NO_BLOCK}`);
    return chainInShape(chain, best, chainedOn(machine, inStream));
  },
  predict: (computation, candidate, { machine }) => {
    const { chain, shape } = shaped(computation, candidate, machine);
    return predictionOf(chainSeconds(chain, shape, machine));
  },
};
