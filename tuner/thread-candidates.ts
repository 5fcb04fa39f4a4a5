/**
 * @file The search space of a computation on threads: instructions of one thread, and every way to divide the loops among lanes, warps and
 * blocks.
 *
 *     depthwise f16 on an H100      thread.fma.f32.f16      expected 1.9 us
 */

import type { ThreadCandidate } from "../abstraction/candidate.ts";
import { sortedBy } from "../abstraction/collections.ts";
import { type ThreadContext, threadContext } from "../mapper/schedule/thread/context.ts";
import { THREAD_KIND } from "../mapper/schedule/thread/schedule.ts";
import { type GpuKind, gpuSpace } from "./gpu-space.ts";

const THREADS: GpuKind<ThreadCandidate, ThreadContext> = {
  kind: "threads",
  schedules: THREAD_KIND,
  all: () => [],
  contextOf: threadContext,
  fitting: plainest,
  glance: 64,
  drawn: 64,
  most: 1,
  descended: 0,
};

/** The space over the instructions of one thread; or why none computes it. */
export const threadSpace = gpuSpace(THREADS);

/** The mapping whose operands are plain tensors. A thread computes the equation in any binding of operands, so all bindings give the same kernel. */
function plainest(contexts: readonly ThreadContext[]): readonly ThreadContext[] {
  const plain = ({ mapping }: ThreadContext): number =>
    Object.values(mapping.binding).filter((bound) => bound.kind === "access").length;
  return sortedBy(contexts, (a) => -plain(a)).slice(0, 1);
}
