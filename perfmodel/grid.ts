/**
 * @file The layered latency model of a kernel of blocks and warps: the cost of a block's step to each part of a multiprocessor, the number of
 * blocks that share one, and the number of waves.
 *
 *     time = launch + max over parts (those that are busy: tensor, shared, copies, threads, drain, memory; and latency)
 *
 *     busy parts     of a step (perfmodel/grid-step.ts) times the steps of all blocks of a multiprocessor; drain: storing results; memory: all
 *                    tensors once
 *     latency        fill, then waves of blocks one after the other, each as long as a block alone takes for its steps and its stores
 *
 *     repack         a kernel that copies inputs: its bytes, each read and written once, and its launch
 *     split          what the parts of a sum cost that meet: barriers and bytes of a cluster, or a second kernel and its bytes
 *     multicast      a barrier of each cluster: its blocks begin together
 *
 * Every rate is the target's (targets/). Each fitted number has a name and states what it was fitted on.
 */

import { extentOf } from "../abstraction/affine.ts";
import type { GridSchedule } from "../abstraction/candidate.ts";
import { type Computation, outputOf } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { MOST_WRITTEN_OUT } from "../abstraction/loop-nest.ts";
import { levelOf, memoryOf, readRate, type Target } from "../abstraction/machine.ts";
import type { Prediction } from "../abstraction/trial.ts";
import { widthOf } from "../mapper/lower/grid-results.ts";
import {
  gridProblem,
  launchedThreads,
  registersOf,
  sharedBytesOf,
  stagedLines,
  threadsOf,
} from "../mapper/schedule/grid.ts";
import type { GridAxis, GridContext } from "../mapper/schedule/grid-context.ts";
import { GRID_DECISIONS } from "../mapper/schedule/grid-decisions.ts";
import { copiedBytes, repackedContext } from "../mapper/schedule/repack.ts";
import { traitsOf } from "../mapper/schedule/schedules.ts";
import { partsOfSum, stepsOfPart, tilesOf } from "../mapper/schedule/split.ts";
import { resultsAlong, runsAlongRows, sectorsOver } from "../mapper/schedule/store.ts";
import { usedPart, windowOf } from "../mapper/schedule/taps.ts";
import { fragmentsAlong } from "../mapper/schedule/tile.ts";
import { type Correction, type Costs, type Features, gridPrediction, overlappingCosts } from "./correct.ts";
import { gridFeatures } from "./grid-features.ts";
import { COPY_LATENCY, clockOf, ISSUED_PER_CYCLE, stepCycles, transferOf, WARP_CYCLES } from "./grid-step.ts";
import { learnt } from "./learnt.ts";
import { launchOf, rateOn, staysNear, trafficOf, writeRateOf } from "./rates.ts";

/**
 * Warp instructions to store 32 results of 2 bytes with their addresses: directly, and through shared memory; and for the tests where results
 * may lie outside the output.
 */
const STORE_INSTRUCTIONS = 6;
const STAGED_INSTRUCTIONS = 12;
const OUTSIDE_STORE_INSTRUCTIONS = 1;
/** Instructions of a store in a loop, used when a thread has too many to write out: its position is computed anew. */
const LOOP_STORE_INSTRUCTIONS = 18;
/**
 * How much longer stores of 4 bytes take than stores of 16: a GEMM of 4096 cubed in tiles of 128 x 256 kept the Tensor Cores of an H100 busy for
 * 78.5 % and 89.4 % of its time, a difference of 5 us a tile.
 */
const NARROW_STORES = 3;
/**
 * The same for stores of 2 bytes that each write a sector of their own: 2.4 ns a sector and multiprocessor. Three kernels that scatter 16 x 64 x
 * 56 x 56 results this way, with different tiles, took 78 to 84 us on an H100: 3.3.
 */
const SCATTERED_STORES = 30;
/** Ratio of sectors to results from which stores count as scattered: that of rows of two 2-byte elements. */
const SCATTERED = 8;
/** Cycles between the end of a block and the first copy of its successor. */
const BLOCK_START = 560;
/**
 * Bytes per second at which the blocks of a cluster write partial sums into one of them and it adds them up. Fitted to convolutions of 512 x 7 x
 * 7 and 256 x 14 x 14 and a GEMM of 1024 cubed on an H100, with tiles of 4 to 64 KB (2026-11-22), compared with the model's time for the same
 * tiles unsplit.
 */
const MET_BYTES = 20e9;
/** Numbers of blocks on a multiprocessor that the correction distinguishes. */
const MOST_TOGETHER = 4;
/** Registers are allocated to warps in multiples of this many for each thread. */
const REGISTER_GRANULE = 8;

/** Predicted cost of a schedule part by part, in seconds, with what is learnt beside them; undefined when it cannot be lowered. */
export function gridCosts(context: GridContext, schedule: GridSchedule, target: Target): Costs | undefined {
  const parts = gridParts(context, schedule, target);
  // No kernel that calculates the elements of a factor taught the trees.
  const isMade = context.inputs.some((input) => input.reads.length > 0);
  return parts && (isMade ? parts : learnt("grid", parts));
}

/** The parts and features alone. */
export function gridParts(
  given: GridContext,
  schedule: GridSchedule,
  target: Target,
): (Costs & { readonly features: Features }) | undefined {
  if (gridProblem(given, schedule) !== undefined) return undefined;
  const context = repackedContext(given, schedule);
  const clock = clockOf(target);
  const steps = stepsOfPart(context, schedule);

  // 1. Concurrent blocks, and waves of them.
  const blocks = tilesOf(context, schedule) * partsOfSum(schedule);
  const { persistent = Number.POSITIVE_INFINITY } = schedule;
  const kept = residentBlocks(context, schedule, target);
  const share = blocks / unitsReached(schedule, target);
  const perUnit = Math.ceil(share);
  const together = Math.min(kept, perUnit, Math.ceil(persistent / levelOf(target, "block").units));
  const waves = Math.ceil(perUnit / together);

  // 2. Busy time adds up over the blocks of a multiprocessor; waiting time adds up over waves.
  const cycles = stepCycles(context, schedule, target, together);
  const seconds = (perStep: number): number => (perStep * steps * perUnit) / clock;
  const drain = drainSeconds(context, schedule, target, clock);
  const fill =
    (target.fixed["fill"]?.value ?? 0) + COPY_LATENCY / clock + windowSeconds(context, schedule, target) + drain.wait;
  /** Blocks that take tiles in turn fill their rings only once. */
  const begun = schedule.persistent === undefined ? waves : 1;
  const busy = {
    tensor: seconds(cycles.tensor),
    shared: seconds(cycles.shared),
    copies: seconds(cycles.copies),
    threads: seconds(cycles.threads),
    drain: perUnit * drain.busy,
    memory: passSeconds(trafficOf(context.mapping.computation), target),
  };
  const latency = fill + ((begun - 1) * BLOCK_START) / clock + waves * ((cycles.latency * steps) / clock + drain.alone);
  const fixed = {
    launch: launchOf(target),
    ...(schedule.repack && { repack: repackSeconds(context, schedule, target, clock) }),
    ...(schedule.split && { split: splitSeconds(context, schedule, target, clock, waves) }),
    ...(schedule.multicast && { multicast: begun * clusterBarrier(target, clock) }),
  };
  const costs = overlappingCosts(fixed, busy, latency, [
    context.intrinsic.family,
    ...traitsOfGrids(schedule),
    `warps ${threadsOf(context, schedule) / context.limits.lanes}`,
    `blocks together ${together > MOST_TOGETHER ? "and more" : together}`,
    ...context.inputs.map((i) => `copy of ${transferOf(i, schedule)} ${i.width}`),
  ]);

  // 3. What parts leave out.
  const facts = { costs, cycles, steps, perUnit: share, together, waves };
  return { ...costs, features: gridFeatures(context, schedule, facts) };
}

/** Time to move bytes once: from the last cache when the previous call left them there, else from memory. */
function passSeconds(bytes: number, target: Target): number {
  const rate =
    (staysNear(target, bytes) ? readRate(target, "l2", "grid") : undefined) ?? readRate(target, "dram", "grid");
  return bytes / (rate?.value ?? Number.POSITIVE_INFINITY);
}

/** Seconds that no kernel of a computation goes below: a launch, and each tensor once from the memory that holds them all. */
export function leastSecondsOnGpu(computation: Computation, target: Target): number {
  return launchOf(target) + passSeconds(trafficOf(computation), target);
}

/** Time until the first window has arrived, which all products wait for. */
function windowSeconds(context: GridContext, schedule: GridSchedule, target: Target): number {
  const window = windowOf(context, schedule);
  if (!window) return 0;
  const bytes = window.staged * extentOf(context.sum.axis, schedule.tile) * context.elementBytes;
  return bytes / rateOn(target, "l2", "block");
}

/** The model's prediction; undefined when the schedule cannot be lowered. */
export function predictGrid(
  context: GridContext,
  schedule: GridSchedule,
  target: Target,
  correction?: Correction,
): Prediction | undefined {
  const costs = gridCosts(context, schedule, target);
  return costs && gridPrediction(costs, PARTS, clockOf(target), correction);
}

const PARTS = {
  inner: ["tensor", "latency", "threads"],
  read: ["copies", "shared", "memory"],
  write: ["drain"],
};

const traitsOfGrids = traitsOf(GRID_DECISIONS);

/** Number of blocks resident on a multiprocessor. */
function residentBlocks(context: GridContext, schedule: GridSchedule, target: Target): number {
  const threads = launchedThreads(context, schedule);
  const shared = memoryOf(target, "shared");
  const reserved = shared.limits?.find((l) => l.of === "block")?.reserved ?? 0;
  const perThread = Math.ceil(registersOf(context, schedule) / REGISTER_GRANULE) * REGISTER_GRANULE;
  const limits = [
    Math.floor((shared.bytes?.value ?? context.limits.sharedBytes) / (sharedBytesOf(context, schedule) + reserved)),
    Math.floor(context.limits.blockRegisters / (perThread * threads)),
    Math.floor((levelOf(target, "warp").resident ?? 1) / (threads / context.limits.lanes)),
    levelOf(target, "block").resident ?? 1,
  ];
  return Math.max(1, Math.min(...limits));
}

/** Number of multiprocessors that blocks can use: clusters fit fewer of them. */
function unitsReached({ split, multicast }: GridSchedule, target: Target): number {
  const blocks = multicast?.blocks ?? (split?.through === "cluster" ? split.parts : 1);
  const clusters = target.clusters?.find((c) => c.blocks === blocks);
  return clusters ? clusters.value * clusters.blocks : levelOf(target, "block").units;
}

/** Time to copy inputs before the product: from memory, or from the last cache when the inputs and their copies fit in it. */
function repackSeconds(context: GridContext, schedule: GridSchedule, target: Target, clock: number): number {
  return kernelSeconds(schedule, target, clock) + passSeconds(2 * copiedBytes(context), target);
}

/** Cost of an additional kernel in a call besides its bytes. It has no setup time when the kernel that awaits it is launched meanwhile. */
function kernelSeconds({ launch: how }: GridSchedule, { fixed }: Target, clock: number): number {
  const { launch, dependentLaunch, fill, drain } = fixed;
  const begun = how === "early" ? dependentLaunch?.value : (launch?.value ?? 0) + (fill?.value ?? 0);
  return (begun ?? 0) + COPY_LATENCY / clock + (drain?.value ?? 0);
}

/** Seconds in which the blocks of a cluster meet. */
const clusterBarrier = (target: Target, clock: number): number =>
  (levelOf(target, "cluster").barrier?.cycles.value ?? 0) / clock;

/** Cost of combining partial sums, besides the stores of the blocks that hold them. */
function splitSeconds(
  context: GridContext,
  schedule: GridSchedule,
  target: Target,
  clock: number,
  waits: number,
): number {
  const { split } = schedule;
  if (!split) return 0;
  const elements = extentOf(context.rows.axis, schedule.tile) * extentOf(context.columns.axis, schedule.tile);
  const bytes = elements * bytesOf(context.target.dtype);
  if (split.through === "cluster") {
    // All blocks of a cluster wait for the slowest, and for data in flight.
    return waits * (clusterBarrier(target, clock) + bytes / MET_BYTES);
  }
  const all = bytes * tilesOf(context, schedule) * split.parts;
  return kernelSeconds(schedule, target, clock) + all / rateOn(target, "l2");
}

/** Cost of storing a block's results: its waiting time, the busy time of threads and memory, and both for a block alone. */
function drainSeconds(
  context: GridContext,
  schedule: GridSchedule,
  target: Target,
  clock: number,
): { readonly wait: number; readonly busy: number; readonly alone: number } {
  const { rows, columns, limits } = context;
  const stored = (a: GridAxis): number => Math.min(1, usedPart(context, a, schedule)) * extentOf(a.axis, schedule.tile);
  const through = schedule.split?.through;
  const share = through === "cluster" ? 1 / partsOfSum(schedule) : 1;
  const elements = stored(rows) * stored(columns) * share;
  const { dtype } = through === "memory" ? context.target : outputOf(context.mapping.computation);
  // Parts are stored as pairs of 4-byte words; results of a cluster are contiguous.
  const over = through === undefined ? writtenOver(context, schedule) : 1;
  const bytes = (over * elements * bytesOf(dtype)) / writeRateOf(target);
  // Staged results are written to shared memory and read back, several elements a lane. Elements outside are staged and tested too.
  const staged = schedule.store === "staged";
  const outside = extentOf(rows.axis, schedule.tile) * extentOf(columns.axis, schedule.tile) * share - elements;
  const instructions =
    elements * (staged ? STAGED_INSTRUCTIONS : STORE_INSTRUCTIONS) +
    outside * (staged ? 2 : 1) * OUTSIDE_STORE_INSTRUCTIONS;
  const cycles = (instructions + loopedStores(context, schedule, share)) / limits.lanes;
  // The engine writes a tile while its block computes the next one.
  const isBehind = schedule.store === "bulk" && schedule.persistent !== undefined;
  return {
    wait: target.fixed["drain"]?.value ?? 0,
    busy: Math.max(bytes, cycles / ISSUED_PER_CYCLE / clock),
    alone: Math.max(isBehind ? 0 : bytes, (cycles * WARP_CYCLES * limits.lanes) / threadsOf(context, schedule) / clock),
  };
}

/** Extra instructions for staged results that are stored in a loop. */
function loopedStores(context: GridContext, schedule: GridSchedule, share: number): number {
  if (schedule.store !== "staged") return 0;
  const { rows, columns, teamThreads } = context;
  const pieces = (rows.extent * columns.extent * fragmentsAlong(columns, schedule)) / teamThreads;
  if (pieces <= MOST_WRITTEN_OUT) return 0;
  const width = widthOf({ context, window: windowOf(context, schedule) }, stagedLines(context, schedule));
  if (pieces / width <= MOST_WRITTEN_OUT) return 0;
  const tile = extentOf(rows.axis, schedule.tile) * extentOf(columns.axis, schedule.tile);
  return ((tile * share) / width) * LOOP_STORE_INSTRUCTIONS;
}

/** Factor by which storing results costs the last cache more than their bytes. */
function writtenOver(context: GridContext, { store }: GridSchedule): number {
  if (store === "quads" || store === "bulk") return 1;
  if (store === "direct") {
    const over = sectorsOver(context);
    return over >= SCATTERED ? SCATTERED_STORES : over > 1 ? NARROW_STORES : 1;
  }
  const line = runsAlongRows(context) ? context.rows : context.columns;
  return resultsAlong(context, line, 1) > 0 ? 1 : SCATTERED_STORES;
}
