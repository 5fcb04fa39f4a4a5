/**
 * @file Schedules of threads: how loops are divided, and the limits on all decisions together.
 *
 *     depthwise 32 x 112 x 112    lanes q 32   warps p 4   each p 2, r 3, s 3
 *       q   4 blocks of 32 lanes, the last one partial      p   14 blocks of 4 warps of 2      c   32 blocks      r, s   in one step
 */

import type { ThreadSchedule } from "../../../abstraction/candidate.ts";
import { sortedBy } from "../../../abstraction/collections.ts";
import { type Axis, summedIn, targetOf } from "../../../abstraction/computation.ts";
import { bytesOf } from "../../../abstraction/dtype.ts";
import { registersProblem } from "../grid-context.ts";
import { printSchedule, type ScheduleKind } from "../schedules.ts";
import { MOST_PART_BYTES } from "../split.ts";
import type { ThreadAccess, ThreadContext } from "./context.ts";
import { THREAD_DECISIONS } from "./decisions.ts";

export const THREAD_KIND: ScheduleKind<ThreadSchedule, ThreadContext> = {
  decisions: THREAD_DECISIONS,
  problem: threadProblem,
  tries: 400,
};

export const printThreadSchedule = (schedule: ThreadSchedule): string => printSchedule(THREAD_DECISIONS, schedule);

/** A loop, and how a schedule divides it. */
export interface DealtLoop extends Axis {
  readonly lanes: number;
  readonly warps: number;
  readonly each: number;
  /** Blocks along a kept loop. */
  readonly blocks: number;
  /** For a summed loop: steps that run in order, and blocks that share them. */
  readonly steps: number;
  readonly split: number;
  /** Whether some points are beyond the end of the loop. */
  readonly beyond: boolean;
}

export function dealtLoops({ loops }: ThreadContext, schedule: ThreadSchedule): readonly DealtLoop[] {
  const partsOf = (l: Axis): { lanes: number; warps: number; each: number; rest: number } => {
    const lanes = schedule.lanes[l.name] ?? 1;
    const warps = schedule.warps[l.name] ?? 1;
    const each = schedule.each[l.name] ?? 1;
    return { lanes, warps, each, rest: Math.ceil(l.extent / (lanes * warps * each)) };
  };
  const summed = summedIn(loops);
  const longest = sortedBy(summed, (a) => -partsOf(a).rest)[0];
  return loops.map((l) => {
    const { rest, ...parts } = partsOf(l);
    const split = l === longest ? Math.min(schedule.split, rest) : 1;
    const steps = l.kind === "reduce" ? Math.ceil(rest / split) : 1;
    const blocks = l.kind === "reduce" ? 1 : rest;
    const covered = parts.lanes * parts.warps * parts.each * steps * split * blocks;
    return { ...l, ...parts, blocks, steps, split, beyond: covered > l.extent };
  });
}

export const isKept = ({ kind }: Axis): boolean => kind === "spatial";
export const productOf = <T>(all: readonly T[], of: (one: T) => number): number =>
  all.reduce((n, one) => n * of(one), 1);

/** The distinct elements that one access reads in a thread's step (`elements`), and the loads for them (`moves`). */
export function readsOf(
  { loops: moving, strides, widths }: ThreadAccess,
  dealt: readonly DealtLoop[],
): { readonly elements: number; readonly moves: number } {
  const own = dealt.filter((l) => moving.has(l.name) && l.each > 1);
  const places = new Set<number>([0]);
  // Without known strides, all elements count as distinct.
  let apart = 1;
  for (const l of own) {
    const step = strides.get(l.name);
    if (step === undefined) apart *= l.each;
    else for (const place of [...places]) for (let i = 1; i < l.each; i++) places.add(place + i * step);
  }
  const elements = places.size * apart;
  const width = Math.max(1, ...own.map((l) => runOf({ widths }, l)));
  return { elements, moves: elements / width };
}

/** Elements loaded at once: at most `width`, which are contiguous, and a divisor of what the thread needs. */
export function runOf({ widths }: Pick<ThreadAccess, "widths">, { name, each }: DealtLoop): number {
  let run = widths.get(name) ?? 1;
  while (each % run !== 0) run /= 2;
  return run;
}

/** Registers of a thread other than sums and elements: addresses and counters. */
const OTHER_REGISTERS = 32;

export function threadRegisters({ accesses }: ThreadContext, dealt: readonly DealtLoop[]): number {
  const sums = productOf(dealt.filter(isKept), (l) => l.each);
  return accesses.reduce((n, a) => n + readsOf(a, dealt).elements, sums + OTHER_REGISTERS);
}

/** Bytes of shared memory for sums that warps share; 0 if no warps share a sum. */
function partialBytes({ mapping, limits }: ThreadContext, dealt: readonly DealtLoop[]): number {
  if (dealt.every((l) => isKept(l) || l.warps === 1)) return 0;
  const sums = productOf(dealt.filter(isKept), (l) => l.each);
  return productOf(dealt, (l) => l.warps) * sums * limits.lanes * bytesOf(targetOf(mapping.computation).dtype);
}

/** The most points computed for each point of the loops. */
const MOST_WASTE = 3;
const STATIC_SHARED_BYTES = 48 * 1024;

/** Why a schedule cannot be lowered, in one sentence; undefined when it can. */
function threadProblem(context: ThreadContext, schedule: ThreadSchedule): string | undefined {
  const dealt = dealtLoops(context, schedule);
  const { limits, loops } = context;
  const waste =
    productOf(dealt, (l) => l.lanes * l.warps * l.each * l.blocks * l.steps * l.split) /
    productOf(loops, (l) => l.extent);
  if (waste > MOST_WASTE && !context.wasteful) return `${waste.toFixed(1)} times as many points as the loops have`;
  const threads = limits.lanes * productOf(dealt, (l) => l.warps);
  const registers = registersProblem(limits, threadRegisters(context, dealt), threads);
  if (registers !== undefined) return registers;
  const bytes = partialBytes(context, dealt);
  if (bytes > STATIC_SHARED_BYTES)
    return `${bytes} bytes of shared memory for parts of sums, more than ${STATIC_SHARED_BYTES}`;
  const sums = productOf(dealt.filter(isKept), (l) => l.extent);
  const parts = schedule.split * sums * bytesOf(targetOf(context.mapping.computation).dtype);
  if (schedule.split > 1 && parts > MOST_PART_BYTES)
    return `parts of sums take ${parts} bytes, more than ${MOST_PART_BYTES}`;
  if (schedule.split > 1 && dealt.every((l) => l.split < schedule.split))
    return `no summed loop has ${schedule.split} steps to share`;
  return undefined;
}
