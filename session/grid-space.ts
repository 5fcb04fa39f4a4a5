/**
 * @file The search space of a computation on a GPU, and the nest and source text of one candidate.
 *
 *     const space = finished(gridSessionSpace(conv2d, { machine: nvidiaTarget("h100"), intrinsics, seed: 1 }));
 *     if ("predict" in space) space.kernelOf(space.random(random)).source              CUDA
 */

import type {
  Candidate,
  GridCandidate,
  GridSchedule,
  ThreadCandidate,
  ThreadSchedule,
} from "../abstraction/candidate.ts";
import { type Computation, extentsOf } from "../abstraction/computation.ts";
import { attempt, UsageError } from "../abstraction/error.ts";
import { accessesIn } from "../abstraction/expression.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import type { Target } from "../abstraction/machine.ts";
import { type Mapping, printMatching } from "../abstraction/mapping.ts";
import type { Steps } from "../abstraction/steps.ts";
import type { Prediction } from "../abstraction/trial.ts";
import { generateCuda } from "../codegen/cuda.ts";
import { lowerGrid } from "../mapper/lower/grid.ts";
import { lowerThreads } from "../mapper/lower/threads.ts";
import { GRID, printGridSchedule } from "../mapper/schedule/grid.ts";
import { type GridContext, gridContext, gridLimits } from "../mapper/schedule/grid-context.ts";
import { problemIn } from "../mapper/schedule/schedules.ts";
import { type ThreadContext, threadContext } from "../mapper/schedule/thread/context.ts";
import { printThreadSchedule, THREAD_KIND } from "../mapper/schedule/thread/schedule.ts";
import { windowsOf } from "../mapper/space-time/loops.ts";
import type { Costs } from "../perfmodel/correct.ts";
import { type Correction, fit as fitCorrection } from "../perfmodel/correct.ts";
import { gridCosts, predictGrid } from "../perfmodel/grid.ts";
import { predictThreads, threadCosts } from "../perfmodel/threads.ts";
import { isGpu, NVIDIA_TARGETS } from "../targets/index.ts";
import { gridSpace } from "../tuner/grid-candidates.ts";
import { emptySpace, joinedSpace } from "../tuner/joined-space.ts";
import type { MappingSpace, ScheduledCandidate } from "../tuner/mapping-space.ts";
import type { SearchSpace } from "../tuner/space.ts";
import { threadSpace } from "../tuner/thread-candidates.ts";
import { mappingOf, rewritingNotes } from "./recorded.ts";
import type { Reason, SessionSpace, SessionSpaceOptions } from "./session-space.ts";
import { VERSION } from "./version.ts";

/** Instructions predicted to take more than this many times the shortest are left out, as in each of the two spaces. */
const SPREAD = 3;

/** The search space on a machine with blocks, warps and threads, or why nothing maps. */
export function* gridSessionSpace(
  computation: Computation,
  {
    machine,
    intrinsics,
    seed,
    keeps,
  }: { machine: Target } & Pick<SessionSpaceOptions, "intrinsics" | "seed" | "keeps">,
): Steps<SessionSpace | readonly Reason[]> {
  const limits = gridLimits(machine);
  const isThread = (i: Intrinsic): boolean => i.scope === "thread";
  const ofThreads = intrinsics.filter(isThread);
  const ofWarps = intrinsics.filter((i) => !isThread(i));
  const grid = yield* gridSpace(
    computation,
    ofWarps,
    limits,
    (c, s) => predictGrid(c, s, machine)?.seconds,
    seed,
    keeps,
  );
  const threads = yield* threadSpace(
    computation,
    ofThreads,
    limits,
    (c, s) => predictThreads(c, s, machine)?.seconds,
    seed,
    keeps,
  );
  const expected = [grid, threads].flatMap((space) =>
    "ranked" in space ? (space.ranked[0]?.expectedSeconds ?? []) : [],
  );
  if (expected.length === 0) return [grid, threads].flatMap((space) => ("ranked" in space ? [] : space));
  const most = SPREAD * Math.min(...expected);
  const warpsKept = "ranked" in grid && (grid.ranked[0]?.expectedSeconds ?? 0) <= most ? grid : undefined;
  const threadsKept = "ranked" in threads && (threads.ranked[0]?.expectedSeconds ?? 0) <= most ? threads : undefined;
  const choiceOf = (candidate: Candidate): GpuChoice => {
    if (candidate.kind === "grid" && warpsKept)
      return { kind: "grid", context: warpsKept.contextOf(candidate), schedule: candidate.schedule };
    if (candidate.kind === "threads" && threadsKept)
      return { kind: "threads", context: threadsKept.contextOf(candidate), schedule: candidate.schedule };
    throw new Error("internal: a candidate of another space in that of a GPU");
  };
  let corrections: Partial<Record<GpuChoice["kind"], Correction>> = {};
  const ranked = [...(warpsKept?.ranked ?? []), ...(threadsKept?.ranked ?? [])];
  return {
    ...joinedSpace<GridCandidate, Exclude<Candidate, GridCandidate>>(
      warpsKept ?? emptySpace<GridCandidate>(),
      (threadsKept ?? emptySpace<ThreadCandidate>()) as SearchSpace<Exclude<Candidate, GridCandidate>>, // no other kind is asked of it
      (c): c is GridCandidate => c.kind === "grid",
    ),
    intrinsics: [...new Set(ranked.map(({ context }) => context.mapping.intrinsic))],
    intrinsicOf: (c) => choiceOf(c).context.mapping.intrinsic,
    mappingOf: (c) => choiceOf(c).context.mapping,
    carried: (c) => carriedIn({ grid: warpsKept, threads: threadsKept }, computation, c, machine),
    kernelOf: (c) => generateOnGpu(choiceOf(c)),
    predict: (c) => {
      const choice = choiceOf(c);
      return predictOnGpu(choice, machine, corrections[choice.kind]);
    },
    learn: (trials) => {
      const observed = trials.flatMap(({ candidate, measurement }) => {
        if (measurement.status !== "ok") return [];
        const choice = choiceOf(candidate);
        const costs = costsOnGpu(choice, machine);
        return costs ? [{ kind: choice.kind, costs, measuredSeconds: measurement.median }] : [];
      });
      // The two models use the same part names for different things.
      corrections = {
        grid: fitCorrection(observed.filter(({ kind }) => kind === "grid")),
        threads: fitCorrection(observed.filter(({ kind }) => kind === "threads")),
      };
    },
  };
}

/** A candidate of a similar computation as one of the spaces that a search keeps. */
function carriedIn(
  {
    grid,
    threads,
  }: { readonly grid: Space<GridCandidate, GridContext>; readonly threads: Space<ThreadCandidate, ThreadContext> },
  computation: Computation,
  candidate: ScheduledCandidate,
  machine: Target,
): ScheduledCandidate | undefined {
  if (candidate.kind === undefined) return undefined;
  const mapping = attempt(() => mappingOf(computation, candidate));
  const limits = gridLimits(machine);
  if (!mapping) return undefined;
  if (candidate.kind === "grid")
    return grid && carriedTo(grid, gridContext(mapping, limits), candidate, (c, s) => predictGrid(c, s, machine));
  const context = threadContext(mapping, limits);
  return threads && carriedTo(threads, context, candidate, (c, s) => predictThreads(c, s, machine));
}

type Space<K extends ScheduledCandidate, C extends { readonly mapping: Mapping }> = MappingSpace<K, C> | undefined;

/** A candidate of a similar computation in a space; undefined where it has no such mapping, or its schedule is not legal for it. */
function carriedTo<K extends GridCandidate | ThreadCandidate, C extends { readonly mapping: Mapping }>(
  space: MappingSpace<K, C>,
  context: C | string,
  { schedule }: K,
  predict: (context: C, schedule: K["schedule"]) => Prediction | undefined,
): K | undefined {
  if (typeof context === "string") return undefined;
  return space.takenIn(context, schedule, (carried) => predict(context, carried)?.seconds);
}

/** A GPU candidate with the mapping or computation it is lowered from. */
export type GpuChoice =
  | { readonly kind: "grid"; readonly context: GridContext; readonly schedule: GridSchedule }
  | { readonly kind: "threads"; readonly context: ThreadContext; readonly schedule: ThreadSchedule };

/** The model's prediction for it on a machine; undefined when its schedule cannot be lowered. */
export function predictOnGpu(choice: GpuChoice, machine: Target, correction?: Correction): Prediction | undefined {
  return choice.kind === "grid"
    ? predictGrid(choice.context, choice.schedule, machine, correction)
    : predictThreads(choice.context, choice.schedule, machine, correction);
}

/** Its predicted cost part by part; undefined when its schedule cannot be lowered. */
export function costsOnGpu(choice: GpuChoice, machine: Target): Costs | undefined {
  return choice.kind === "grid"
    ? gridCosts(choice.context, choice.schedule, machine)
    : threadCosts(choice.context, choice.schedule, machine);
}

/** A recorded candidate on the GPU it was made for. */
export type OnGpu = GpuChoice & { readonly machine: Target };

/**
 * The choice that a recorded candidate is lowered from.
 * @param machine the GPU it was made for; when left out, the first GPU of the table that can run it
 * @throws UsageError when its mapping or its schedule is no longer valid
 */
export function choiceOnGpu(
  computation: Computation,
  candidate: GridCandidate | ThreadCandidate,
  machine?: Target,
): OnGpu {
  const mapping = mappingOf(computation, candidate);
  let problem = "no machine of blocks and warps";
  for (const one of machine && isGpu(machine) ? [machine] : NVIDIA_TARGETS) {
    const found = judged(mapping, candidate, one);
    if (typeof found !== "string") return { ...found, machine: one };
    problem = `${found} (on ${one.name})`;
  }
  throw new UsageError(`the schedule does not fit ${computation.name} on ${candidate.intrinsic}: ${problem}`);
}

function judged(mapping: Mapping, candidate: GridCandidate | ThreadCandidate, machine: Target): GpuChoice | string {
  const limits = gridLimits(machine);
  if (candidate.kind === "grid") {
    const { schedule } = candidate;
    const context = gridContext(mapping, limits);
    if (typeof context === "string") return context;
    return problemIn(GRID, context, schedule) ?? { kind: "grid", context, schedule };
  }
  const { schedule } = candidate;
  const context = threadContext(mapping, limits);
  if (typeof context === "string") return context;
  return problemIn(THREAD_KIND, context, schedule) ?? { kind: "threads", context, schedule };
}

/** How a kernel is launched relative to others in a stream. */
export interface InStream {
  /** Whether it may begin while the kernel before it still runs and then wait for that kernel's end. */
  readonly chained?: boolean;
}

/** The kernel of a mapping, lowered under its schedule and printed. */
export function generateOnGpu(choice: GpuChoice, { chained = false }: InStream = {}): Kernel {
  const { mapping } = choice.context;
  const isGrid = choice.kind === "grid";
  const printed = isGrid ? printGridSchedule(choice.schedule) : printThreadSchedule(choice.schedule);
  const notes = [
    ...rewritingNotes(mapping),
    ...(isGrid ? [`mapping   ${printMatching(mapping.matching)}   waste ${(100 * mapping.waste).toFixed(1)} %`] : []),
    `schedule  ${printed}`,
    `made by   automap ${VERSION}`,
  ];
  const nest = isGrid ? lowerGrid(choice.context, choice.schedule) : lowerThreads(choice.context, choice.schedule);
  return generateCuda(mapping.computation, mapping.intrinsic, nest, {
    lines: notes,
    chained: chained && choice.context.limits.dependentLaunch && gainsByBeginningEarly(choice),
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
