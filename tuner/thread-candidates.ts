/**
 * @file The space of a computation on threads: the instruction of one thread, and every way to deal the loops to lanes, warps and blocks.
 *
 *     depthwise f16 on an H100      thread.fma.f32.f16      expected 1.9 us
 */

import type { ThreadCandidate, ThreadSchedule } from "../abstraction/candidate.ts";
import type { Computation } from "../abstraction/computation.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import type { Refusal } from "../abstraction/mapping.ts";
import { seededRandom } from "../abstraction/random.ts";
import type { GridLimits } from "../mapper/schedule/grid-context.ts";
import { drawSchedule } from "../mapper/schedule/schedules.ts";
import { type ThreadContext, threadContext } from "../mapper/schedule/thread/context.ts";
import { THREAD_KIND } from "../mapper/schedule/thread/schedule.ts";
import { isRanked, MappingSpace, rankMappings, type Scheduling } from "./mapping-space.ts";

/**
 * The mapping whose operands are tensors as they lie. What one thread computes is the equation's whichever way operands are bound to it, so that
 * all of them are one kernel.
 */
function plainest(contexts: readonly ThreadContext[]): readonly ThreadContext[] {
  const plain = ({ mapping }: ThreadContext): number =>
    Object.values(mapping.binding).filter((bound) => bound.kind === "access").length;
  return contexts.toSorted((a, b) => plain(b) - plain(a)).slice(0, 1);
}

/** Schedules drawn to judge the instruction by. */
const DRAWN = 64;

export type ThreadSpace = MappingSpace<ThreadCandidate, ThreadContext>;

const ON_THREADS: Scheduling<ThreadCandidate, ThreadContext> = {
  label: "threads",
  schedules: THREAD_KIND,
  random: (context, random) => {
    const schedule = drawSchedule(THREAD_KIND, context, random);
    if (!schedule) throw new Error("internal: a computation was kept that has no schedule");
    return schedule;
  },
  all: () => [],
};

/**
 * The space over the instructions of one thread; or why none computes it.
 * @param predict seconds a schedule is expected to take; undefined when the model cannot say
 */
export function threadSpace(
  computation: Computation,
  intrinsics: readonly Intrinsic[],
  limits: GridLimits,
  predict: (context: ThreadContext, schedule: ThreadSchedule) => number | undefined,
  seed: number,
): ThreadSpace | readonly Refusal[] {
  const random = seededRandom(seed);
  const ranked = rankMappings(
    computation,
    intrinsics,
    (mapping) => [mapping],
    (mapping): ThreadContext | Refusal => {
      const context = threadContext(mapping, limits);
      return typeof context === "string"
        ? { rule: "expression", because: context, matching: mapping.matching }
        : context;
    },
    (context) => {
      let least: number | undefined;
      for (let i = 0; i < DRAWN; i++) {
        const schedule = drawSchedule(THREAD_KIND, context, random);
        if (!schedule) break;
        const seconds = predict(context, schedule);
        if (seconds !== undefined) least = Math.min(least ?? seconds, seconds);
      }
      return least;
    },
    1,
    plainest,
  );
  return isRanked(ranked) ? new MappingSpace(ON_THREADS, ranked) : ranked;
}
