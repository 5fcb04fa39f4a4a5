/**
 * @file The model of a kernel of threads: the instructions its warps issue, the load of its accesses on the caches, and the latency of waiting
 * for them.
 *
 *     time = launch + max(issue, load, cache, memory, store, waves * latency) (+ a kernel where sums are split)
 *
 *     issue      instructions of all warps of a multiprocessor, four a cycle
 *     load       lines that its accesses look up, one a cycle, or sectors of 32 bytes, four a cycle
 *     cache      bytes that blocks read, once each, over the rate of the cache that all share
 *     store      sectors that stores touch, over the rate at which a multiprocessor writes
 *     memory     all tensors once over the rate of memory
 *     latency    the chain of a warp: its instructions, and its reads, of which those wait longest that miss the first cache
 */

import { boundsOf } from "../abstraction/affine.ts";
import type { ThreadSchedule } from "../abstraction/candidate.ts";
import { product, sumOf, upTo } from "../abstraction/collections.ts";
import { extentsOf, memoryElements } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { partsOf } from "../abstraction/epilogue.ts";
import { levelOf, memoryOf, type Target } from "../abstraction/machine.ts";
import type { Prediction } from "../abstraction/trial.ts";
import { isLoops } from "../intrinsics/loops.ts";
import { problemIn } from "../mapper/schedule/schedules.ts";
import type { ThreadAccess, ThreadContext } from "../mapper/schedule/thread/context.ts";
import {
  type DealtLoop,
  dealtLoops,
  isKept,
  productOf,
  readsOf,
  THREAD_KIND,
  threadRegisters,
} from "../mapper/schedule/thread/schedule.ts";
import { type Correction, type Costs, type Features, gridPrediction, overlappingCosts } from "./correct.ts";
import { shareOf } from "./grid-features.ts";
import { ISSUED_PER_CYCLE, LINES_PER_CYCLE } from "./grid-step.ts";
import { learnt } from "./learnt.ts";
import { launchOf, rateOn, trafficOf, writeRateOf } from "./rates.ts";
import { LINE_BYTES, SECTOR_BYTES } from "./tile-copies.ts";

/** Sectors that the first cache delivers per cycle: 128 bytes (Luo et al., H100). */
const SECTORS_PER_CYCLE = 4;
// Rounded from what fits seven of the fifteen operators of bench/trials/cuda-random-h100.jsonl.gz, and judged on the other eight
// (bench/results/gpu-model-accuracy-h100.md): instructions, latencies under load, AROUND, LOADS_IN_FLIGHT and BARRIER.
/** Instructions of a load with its address, and for each side on which it may leave the tensor. */
const PER_MOVE = 2;
const PER_SIDE = 1;
/** Instructions per product: the multiply-add, and a conversion for each factor that no other product shares. */
const PER_PRODUCT = 1;
const PER_ELEMENT = 1.5;
/** Instructions and cycles of a shuffle and the addition after it. */
export const PER_SHUFFLE = 2;
export const SHUFFLE_LATENCY = 30;
/** Latency in cycles, under some load: from the first cache, and from the last. */
export const NEAR_LATENCY = 60;
export const READ_LATENCY = 350;
/** Loads that a warp has in flight. */
const LOADS_IN_FLIGHT = 6;
/** Cycles of addresses before the first read, and of stores after the last sum. */
export const AROUND = 600;
const REGISTER_GRANULE = 8;
/** Average cycles of a warp instruction when some depend on the one before; at least 4 when all do. */
export const WARP_CYCLES = 2;
/** Number of warps of a block beyond which they wait for one another at a barrier, and cycles for each. */
export const BARRIER = 5;

/** Predicted cost of a schedule part by part, in seconds, with what is learnt beside them; undefined when it cannot be lowered. */
export function threadCosts(context: ThreadContext, schedule: ThreadSchedule, target: Target): Costs | undefined {
  const parts = threadParts(context, schedule, target);
  // No kernel of plain loops taught the trees.
  return parts && (isLoops(context.mapping.intrinsic) ? parts : learnt("threads", parts));
}

/** The parts and features alone. */
export function threadParts(
  context: ThreadContext,
  schedule: ThreadSchedule,
  target: Target,
): (Costs & { readonly features: Features }) | undefined {
  if (problemIn(THREAD_KIND, context, schedule) !== undefined) return undefined;
  const dealt = dealtLoops(context, schedule);
  const clock = (target.clockHz ?? target.loadedClockHz)?.value ?? 1;
  const machine = levelOf(target, "block");
  const computation = context.mapping.computation;

  // 1. Concurrent blocks, and waves of them.
  const warps = productOf(dealt, (l) => l.warps);
  const blocks = productOf(dealt, (l) => l.blocks * l.split);
  const perThread = Math.ceil(threadRegisters(context, dealt) / REGISTER_GRANULE) * REGISTER_GRANULE;
  const resident = Math.max(
    1,
    Math.min(
      Math.floor(context.limits.blockRegisters / (perThread * warps * context.limits.lanes)),
      Math.floor((levelOf(target, "warp").resident ?? 64) / warps),
      machine.resident ?? 1,
    ),
  );
  const perUnit = Math.ceil(blocks / machine.units);
  const waves = Math.ceil(perUnit / resident);

  // 2. A warp's step, and its end.
  const kept = dealt.filter(isKept);
  const sums = productOf(kept, (l) => l.each);
  const products = productOf(dealt, (l) => l.each);
  const reads = readsOfStep(context, dealt);
  const instructions = products * PER_PRODUCT + reads.instructions;
  const result = readsOf(context.result, kept);
  const stores = (sums / result.elements) * result.moves;
  const stored = stores * touchedBy(context.result, kept, sums / stores).sectors * SECTOR_BYTES;
  const steps = productOf(dealt, (l) => l.steps);
  const flips = sumOf(dealt, (l) => (isKept(l) ? 0 : Math.log2(l.lanes)));
  const partners = productOf(
    dealt.filter((l) => !isKept(l)),
    (l) => l.warps,
  );
  const ending = sums * (flips * PER_SHUFFLE + (partners > 1 ? 2 * partners : 0) + 4);
  const perWarp = steps * instructions + ending;
  /** // The fraction of a warp's steps that wait for the last cache. */
  const missing = Math.min(1, reads.blockBytes / SECTOR_BYTES / (warps * steps));
  const read = Math.max(1, reads.loads / LOADS_IN_FLIGHT) * NEAR_LATENCY + missing * (READ_LATENCY - NEAR_LATENCY);
  const meeting = flips * SHUFFLE_LATENCY + (partners > 1 ? 60 + warps * BARRIER : 0);
  const waits = steps * read + perWarp * WARP_CYCLES + AROUND + meeting;

  // 3. Parts, in seconds.
  const traffic = trafficOf(computation);
  const onChip = (memoryOf(target, "l2").bytes?.value ?? 0) > traffic;
  const launch = launchOf(target);
  const another = launch + (target.fixed["fill"]?.value ?? 0);
  const second = schedule.launch === "early" ? (target.fixed["dependentLaunch"]?.value ?? 0) : another;
  const beside = partsOf(computation).beside.length * another;
  const busy = {
    issue: (perUnit * warps * perWarp) / ISSUED_PER_CYCLE / clock,
    load: (perUnit * warps * steps * reads.lookups) / clock,
    cache: (perUnit * reads.blockBytes) / rateOn(target, "l2", "block"),
    memory: onChip ? 0 : traffic / rateOn(target, "dram"),
    store: (perUnit * productOf(kept, (l) => l.warps) * stored) / writeRateOf(target),
  };
  const fixed = {
    launch: beside + (schedule.split > 1 ? launch + second + READ_LATENCY / clock : launch),
  };
  const costs = overlappingCosts(fixed, busy, (waves * waits) / clock, ["threads"]);

  // 4. What parts leave out.
  const facts = { costs, dealt, waves, perUnit: blocks / machine.units, registers: perThread, stored: stored / sums };
  return { ...costs, features: threadFeatures(context, schedule, facts) };
}

/** What the model has found out of a kernel. */
interface ThreadFacts {
  readonly costs: Costs;
  readonly dealt: readonly DealtLoop[];
  readonly waves: number;
  /** Blocks of a multiprocessor, on average. */
  readonly perUnit: number;
  readonly registers: number;
  /** Bytes stored for each result. */
  readonly stored: number;
}

/** The features that trees were taught by, see perfmodel/learnt.ts. */
function threadFeatures(
  { accesses, result }: ThreadContext,
  schedule: ThreadSchedule,
  { costs, dealt, ...facts }: ThreadFacts,
): Features {
  const kept = dealt.filter(isKept);
  const summed = dealt.filter((l) => !isKept(l));
  const lanesOf = ({ strides }: ThreadAccess): number =>
    productOf(dealt, (l) => (strides.get(l.name) === 1 ? l.lanes : 1));
  const [one, other = one] = accesses.map((access) => ({ ...readsOf(access, dealt), lanes: lanesOf(access) }));
  return {
    "part launch": shareOf(costs, "launch"),
    "part issue": shareOf(costs, "issue"),
    "part load": shareOf(costs, "load"),
    "part cache": shareOf(costs, "cache"),
    "part memory": shareOf(costs, "memory"),
    "part store": shareOf(costs, "store"),
    "part latency": shareOf(costs, "latency"),
    overlap: costs.bounds[1] / costs.bounds[0],
    waves: facts.waves,
    "per unit": facts.perUnit,
    registers: facts.registers,
    "stored over": facts.stored,
    early: Number(schedule.launch !== undefined),
    warps: productOf(dealt, (l) => l.warps),
    "lanes of a sum": productOf(summed, (l) => l.lanes),
    "warps of a sum": productOf(summed, (l) => l.warps),
    sums: productOf(kept, (l) => l.each),
    terms: productOf(summed, (l) => l.each),
    steps: productOf(dealt, (l) => l.steps),
    split: productOf(dealt, (l) => l.split),
    beyond: sumOf(dealt, (l) => Number(l.beyond)),
    "elements first": one?.elements ?? 0,
    "moves first": one?.moves ?? 0,
    "lanes first": one?.lanes ?? 0,
    "elements second": other?.elements ?? 0,
    "moves second": other?.moves ?? 0,
    "lanes second": other?.lanes ?? 0,
    "lanes of results": lanesOf(result),
  };
}

/**
 * Cost of a warp's reads in a step: instructions, cycles of the first cache, and number of reads; and the distinct bytes that a block reads in
 * total.
 */
function readsOfStep(
  context: ThreadContext,
  dealt: readonly DealtLoop[],
): Readonly<Record<"instructions" | "lookups" | "loads" | "blockBytes", number>> {
  let instructions = 0;
  let lookups = 0;
  let loads = 0;
  let blockBytes = 0;
  for (const access of context.accesses) {
    const { elements, moves } = readsOf(access, dealt);
    instructions += moves * (PER_MOVE + PER_SIDE * openSides(access, context)) + elements * PER_ELEMENT;
    const { sectors, lines } = touchedBy(access, dealt, elements / moves);
    lookups += moves * Math.max(sectors / SECTORS_PER_CYCLE, lines / LINES_PER_CYCLE);
    loads += moves;
    blockBytes += distinctOf(access, dealt) * bytesOf(access.tensor.dtype);
  }
  return { instructions, lookups, loads, blockBytes };
}

/** The model's prediction; undefined when the schedule cannot be lowered. */
export function predictThreads(
  context: ThreadContext,
  schedule: ThreadSchedule,
  target: Target,
  correction?: Correction,
): Prediction | undefined {
  const costs = threadCosts(context, schedule, target);
  const clock = (target.clockHz ?? target.loadedClockHz)?.value ?? 1;
  return costs && gridPrediction(costs, PARTS, clock, correction);
}

const PARTS = { inner: ["issue", "latency"], read: ["load", "cache", "memory"], write: [] };

/** Number of sides on which an access may leave its tensor. */
function openSides({ access, tensor }: ThreadAccess, { mapping }: ThreadContext): number {
  const extents = extentsOf(mapping.computation);
  return access.index.reduce((n, index, i) => {
    const [least, most] = boundsOf(index, extents);
    return n + (least < 0 ? 1 : 0) + (most >= (tensor.dims[i]?.extent ?? 0) ? 1 : 0);
  }, 0);
}

/** Sectors and lines that one access of a warp touches, with `run` elements a lane. */
function touchedBy(
  { strides, loops, tensor }: ThreadAccess,
  dealt: readonly DealtLoop[],
  run: number,
): { readonly sectors: number; readonly lines: number } {
  const bytes = bytesOf(tensor.dtype);
  let places: number[] = [0];
  for (const l of dealt) {
    if (l.lanes === 1 || !loops.has(l.name)) continue;
    const stride = (strides.get(l.name) ?? SECTOR_BYTES) * l.each * bytes;
    places = places.flatMap((p) => upTo(l.lanes).map((i) => p + i * stride));
  }
  const sectors = new Set<number>();
  for (const p of places)
    for (let at = p; at < p + run * bytes; at += SECTOR_BYTES) sectors.add(Math.floor(at / SECTOR_BYTES));
  const lines = new Set([...sectors].map((s) => Math.floor((s * SECTOR_BYTES) / LINE_BYTES)));
  return { sectors: sectors.size, lines: lines.size };
}

/** Distinct elements of a tensor that a block reads. */
function distinctOf({ strides, loops, tensor }: ThreadAccess, dealt: readonly DealtLoop[]): number {
  // Loops that move by the same distance, such as rows of an image and of a filter, overlap.
  const reach = new Map<number, number>();
  let others = 1;
  for (const l of dealt) {
    if (!loops.has(l.name)) continue;
    const steps = Math.min(l.extent, l.lanes * l.warps * l.each * (isKept(l) ? 1 : l.steps));
    const stride = strides.get(l.name);
    if (stride === undefined) others *= steps;
    else reach.set(stride, (reach.get(stride) ?? 1) + steps - 1);
  }
  const all = others * product([...reach.values()]);
  return Math.min(all, memoryElements(tensor));
}
