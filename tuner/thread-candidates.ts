/**
 * @file The space of a computation on threads: the instruction of one thread, and every way to deal the loops to lanes, warps and blocks.
 *
 *     depthwise f16 on an H100      thread.fma.f32.f16      expected 1.9 us
 */

import type { ThreadCandidate, ThreadSchedule } from "../abstraction/candidate.ts";
import type { Computation } from "../abstraction/computation.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import type { Mapping, Refusal } from "../abstraction/mapping.ts";
import type { Steps } from "../abstraction/steps.ts";
import type { GridLimits } from "../mapper/schedule/grid-context.ts";
import { type ThreadContext, threadContext } from "../mapper/schedule/thread/context.ts";
import { THREAD_KIND } from "../mapper/schedule/thread/schedule.ts";
import { type GpuKind, gpuSpace } from "./gpu-space.ts";
import type { MappingSpace } from "./mapping-space.ts";

export type ThreadSpace = MappingSpace<ThreadCandidate, ThreadContext>;

const THREADS: GpuKind<ThreadCandidate, ThreadContext> = {
  label: "threads",
  schedules: THREAD_KIND,
  all: () => [],
  contextOf: threadContext,
  fitting: plainest,
  glance: 64,
  drawn: 64,
  most: 1,
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
  keeps?: (mapping: Mapping) => boolean,
): Steps<ThreadSpace | readonly Refusal[]> {
  return gpuSpace(THREADS, computation, intrinsics, limits, predict, seed, keeps);
}

/**
 * The mapping whose operands are tensors as they lie. What one thread computes is the equation's whichever way operands are bound to it, so that
 * all of them are one kernel.
 */
function plainest(contexts: readonly ThreadContext[]): readonly ThreadContext[] {
  const plain = ({ mapping }: ThreadContext): number =>
    Object.values(mapping.binding).filter((bound) => bound.kind === "access").length;
  return contexts.toSorted((a, b) => plain(b) - plain(a)).slice(0, 1);
}
