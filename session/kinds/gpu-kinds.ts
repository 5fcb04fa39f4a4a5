/**
 * @file Mappings on the blocks, warps and threads of a GPU, as a session's search sees them: their spaces, predictions and source texts.
 *
 *     const space = finished(GRID_KIND.spaceOf(search, []));
 *     if ("space" in space) space.kernelOf(space.space.random(random)).source              CUDA
 */

import type { GridCandidate, GridSchedule, ThreadCandidate, ThreadSchedule } from "../../abstraction/candidate.ts";
import { type Computation, extentsOf } from "../../abstraction/computation.ts";
import { attempt, UsageError } from "../../abstraction/error.ts";
import { accessesIn } from "../../abstraction/expression.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import type { LoopNest } from "../../abstraction/loop-nest.ts";
import type { Target } from "../../abstraction/machine.ts";
import { type Mapping, printMatching } from "../../abstraction/mapping.ts";
import type { Prediction } from "../../abstraction/trial.ts";
import { generateCuda } from "../../codegen/cuda/cuda.ts";
import { lowerGrid } from "../../mapper/lower/grid.ts";
import { lowerThreads } from "../../mapper/lower/threads.ts";
import { gridProblem, printGridSchedule } from "../../mapper/schedule/grid.ts";
import { type GridContext, type GridLimits, gridContext, gridLimits } from "../../mapper/schedule/grid-context.ts";
import { problemIn } from "../../mapper/schedule/schedules.ts";
import { type ThreadContext, threadContext } from "../../mapper/schedule/thread/context.ts";
import { printThreadSchedule, THREAD_KIND } from "../../mapper/schedule/thread/schedule.ts";
import { windowsOf } from "../../mapper/space-time/problem.ts";
import type { Correction, Costs } from "../../perfmodel/correct.ts";
import { gridCosts, gridParts, predictGrid } from "../../perfmodel/grid.ts";
import { predictThreads, threadCosts, threadParts } from "../../perfmodel/threads.ts";
import { isGpu, NVIDIA_TARGETS } from "../../targets/index.ts";
import type { FindSpace } from "../../tuner/gpu-space.ts";
import { gridSpace } from "../../tuner/grid-candidates.ts";
import { threadSpace } from "../../tuner/thread-candidates.ts";
import { mappingOf, rewritingNotes } from "../recorded.ts";
import { learntParts } from "../tune/learner.ts";
import { MADE_BY } from "../version.ts";
import { type InStream, isRefusals, type SessionKind } from "./session-space.ts";

/** What is known of a kind once a mapping has its context. */
interface OnGpu<C, S> {
  /** The context of a mapping that schedules need, or why there is none. */
  contextOf(mapping: Mapping, limits: GridLimits): C | string;
  /** Why a schedule cannot be lowered. */
  problem(context: C, schedule: S): string | undefined;
  /** The model's prediction, and its parts; undefined when the schedule cannot be lowered. */
  predict(context: C, schedule: S, machine: Target, correction?: Correction): Prediction | undefined;
  costs(context: C, schedule: S, machine: Target): Costs | undefined;
  /** The same without what is learnt. */
  parts(context: C, schedule: S, machine: Target): Costs | undefined;
  lower(context: C, schedule: S): LoopNest;
  print(schedule: S): string;
}

const GRIDS: OnGpu<GridContext, GridSchedule> = {
  contextOf: gridContext,
  problem: gridProblem,
  predict: predictGrid,
  costs: gridCosts,
  parts: gridParts,
  lower: lowerGrid,
  print: printGridSchedule,
};

const THREADS: OnGpu<ThreadContext, ThreadSchedule> = {
  contextOf: threadContext,
  problem: (context, schedule) => problemIn(THREAD_KIND, context, schedule),
  predict: predictThreads,
  costs: threadCosts,
  parts: threadParts,
  lower: lowerThreads,
  print: printThreadSchedule,
};

/** A GPU candidate with the mapping or computation it is lowered from. */
export type GpuChoice =
  | { readonly kind: "grid"; readonly context: GridContext; readonly schedule: GridSchedule }
  | { readonly kind: "threads"; readonly context: ThreadContext; readonly schedule: ThreadSchedule };

/** A context is only given to functions of its own kind. */
const ON_GPU: Readonly<Record<GpuChoice["kind"], OnGpu<GpuChoice["context"], GpuChoice["schedule"]>>> = {
  grid: GRIDS,
  threads: THREADS,
};

/** Mappings onto instructions of warps, on blocks and warps. */
export const GRID_KIND = kindOnGpu<GridCandidate, GridContext>("grid", GRIDS, gridSpace, (i) => i.scope !== "thread");
/** Mappings onto instructions of one thread. */
export const THREADS_KIND = kindOnGpu<ThreadCandidate, ThreadContext>(
  "threads",
  THREADS,
  threadSpace,
  (i) => i.scope === "thread",
);

/** @param takes the instructions that its candidates use */
function kindOnGpu<K extends GridCandidate | ThreadCandidate, C extends GpuChoice["context"]>(
  kind: K["kind"],
  { contextOf, predict, costs }: OnGpu<C, K["schedule"]>,
  find: FindSpace<K, C>,
  takes: (intrinsic: Intrinsic) => boolean,
): SessionKind<K> {
  return {
    kind,
    family: "mapping",
    isFor: (_, machine) => isGpu(machine),
    *spaceOf({ computation, machine, intrinsics, seed, keeps }) {
      const limits = gridLimits(machine);
      const expected = (context: C, schedule: K["schedule"]): number | undefined =>
        predict(context, schedule, machine)?.seconds;
      const space = yield* find(computation, intrinsics.filter(takes), limits, expected, seed, keeps);
      if (isRefusals(space)) return space;
      const [candidate] = space.promising;
      const [first] = space.ranked;
      return {
        kind,
        space,
        intrinsics: space.ranked.map(({ context }) => context.mapping.intrinsic),
        model: learntParts(
          (c) => costs(space.contextOf(c), c.schedule, machine),
          (c, correction) => predict(space.contextOf(c), c.schedule, machine, correction),
        ),
        mappingOf: (c) => space.mappingOf(c),
        kernelOf: (c) => generateOnGpu({ kind, context: space.contextOf(c), schedule: c.schedule } as GpuChoice), // all three of its kind
        carried: (c) => {
          if (c.kind !== kind) return undefined;
          const mapping = attempt(() => mappingOf(computation, c));
          const context = mapping && contextOf(mapping, limits);
          if (context === undefined || typeof context === "string") return undefined;
          return space.takenIn(context, c.schedule, (schedule) => expected(context, schedule));
        },
        best: candidate && first && { candidate, seconds: first.expectedSeconds },
      };
    },
    kernelOf: (computation, candidate, machine, inStream) =>
      generateOnGpu(choiceOnGpu(computation, candidate, machine), inStream),
    predict: (computation, candidate, { machine }) => {
      const choice = choiceOnGpu(computation, candidate, machine);
      return predictOnGpu(choice, choice.machine);
    },
  };
}

/** The model's prediction for it on a machine; undefined when its schedule cannot be lowered. */
export function predictOnGpu({ kind, context, schedule }: GpuChoice, machine: Target): Prediction | undefined {
  return ON_GPU[kind].predict(context, schedule, machine);
}

/** Its predicted cost part by part; undefined when its schedule cannot be lowered. */
export function costsOnGpu({ kind, context, schedule }: GpuChoice, machine: Target): Costs | undefined {
  return ON_GPU[kind].costs(context, schedule, machine);
}

/** The same with the features of what is learnt, but without it. */
export function partsOnGpu({ kind, context, schedule }: GpuChoice, machine: Target): Costs | undefined {
  return ON_GPU[kind].parts(context, schedule, machine);
}

/** A recorded candidate on the GPU it was made for. */
type OnMachine = GpuChoice & { readonly machine: Target };

/** What can be made on a given GPU, or else on the first of the table; why it cannot be made on the last of them otherwise. */
export function onFirstGpu<T extends object>(
  machine: Target | undefined,
  madeOn: (gpu: Target) => T | string,
): T | string {
  let because = "";
  for (const gpu of machine && isGpu(machine) ? [machine] : NVIDIA_TARGETS) {
    const made = madeOn(gpu);
    if (typeof made !== "string") return made;
    because = `${made} (on ${gpu.name})`;
  }
  return because;
}

/**
 * The choice that a recorded candidate is lowered from.
 * @param machine the GPU it was made for; when left out, the first GPU of the table that can run it
 * @throws UsageError when its mapping or its schedule is no longer valid
 */
export function choiceOnGpu(
  computation: Computation,
  candidate: GridCandidate | ThreadCandidate,
  machine?: Target,
): OnMachine {
  const { kind, schedule } = candidate;
  const mapping = mappingOf(computation, candidate);
  const found = onFirstGpu(machine, (gpu) => {
    const context = ON_GPU[kind].contextOf(mapping, gridLimits(gpu));
    const because = typeof context === "string" ? context : ON_GPU[kind].problem(context, schedule);
    return because ?? ({ kind, context, schedule, machine: gpu } as OnMachine); // all three of the candidate's kind
  });
  if (typeof found === "string")
    throw new UsageError(`the schedule does not fit ${computation.name} on ${candidate.intrinsic}: ${found}`);
  return found;
}

/** The kernel of a mapping, lowered under its schedule and printed. */
export function generateOnGpu(choice: GpuChoice, { chained = false }: InStream = {}): Kernel {
  const { kind, context, schedule } = choice;
  const { mapping, limits } = context;
  const notes = [
    ...rewritingNotes(mapping),
    // Threads match no axes.
    ...(kind === "grid"
      ? [`mapping   ${printMatching(mapping.matching)}   waste ${(100 * mapping.waste).toFixed(1)} %`]
      : []),
    `schedule  ${ON_GPU[kind].print(schedule)}`,
    MADE_BY,
  ];
  return generateCuda(mapping.computation, mapping.intrinsic, ON_GPU[kind].lower(context, schedule), {
    lines: notes,
    chained: chained && limits.dependentLaunch && gainsByBeginningEarly(choice),
  });
}

/**
 * Products of matrix instructions over a window, and those that add another value to their sums, lose more than they gain, as what they read is then
 * memory that changes: no load of a summand precedes the store before it. On an H100 the first convolution of ResNet-18 took 6.7 us for 4.9 and its
 * others up to 0.6 us more; BERT's product that adds what attention read took 10.3 us for 7.0 at batch 16, the last convolutions of ResNet-50's
 * blocks 13.5 for 11.2. Other steps gain 0.1 to 0.3 us (bench/results/networks-h100.md).
 */
function gainsByBeginningEarly({ kind, context }: GpuChoice): boolean {
  if (kind !== "grid") return true;
  const { computation } = context.mapping;
  const extents = extentsOf(computation);
  const { epilogue, tensors } = computation;
  const added = epilogue ? accessesIn(epilogue.equation.value) : [];
  return (
    windowsOf(computation).every(([, reduce]) => extents[reduce] === 1) &&
    added.every(({ tensor }) => tensor === epilogue?.sum.name || tensors[tensor]?.constant === true)
  );
}
