/**
 * @file The layered latency model of a kernel of blocks and warps: what a block's step costs each part of a multiprocessor, how many
 * blocks share one, how many waves of them there are.
 *
 *     time = launch + max over parts (those that are busy: tensor, shared, copies, threads, drain, memory; and latency)
 *
 *     busy parts     of a step (perfmodel/grid-step.ts) times the steps of all blocks of a multiprocessor; drain: storing results; memory: all
 *                    tensors once
 *     latency        fill, then waves of blocks one after the other, each as long as a block alone takes for its steps and its stores
 *
 *     repack         a kernel that copies inputs: its bytes, each read and written once, and its launch
 *     split          what the parts of a sum cost that meet: barriers and bytes of a cluster, or a second kernel and its bytes
 *
 * Every rate is the target's (targets/); what was fitted here has a name and says on what.
 */

import { extentOf } from "../abstraction/affine.ts";
import type { GridSchedule } from "../abstraction/candidate.ts";
import { type Computation, inputsOf, memoryElements, outputOf } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { MOST_WRITTEN_OUT } from "../abstraction/loop-nest.ts";
import { levelOf, memoryOf, readRate, type Target } from "../abstraction/machine.ts";
import { memoised } from "../abstraction/memoised.ts";
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
import { apply, type Correction, type Costs, NO_CORRECTION } from "./correct.ts";
import { COPY_LATENCY, clockOf, ISSUED_PER_CYCLE, stepCycles, transferOf, WARP_CYCLES } from "./grid-step.ts";

/**
 * Instructions of a warp for 32 results, with their addresses, each in 2 bytes; and for the same by way of shared memory. For what lies outside the
 * output, their tests.
 */
const STORE_INSTRUCTIONS = 6;
const STAGED_INSTRUCTIONS = 12;
const OUTSIDE_STORE_INSTRUCTIONS = 1;
/** Of a store in a loop, where a thread has too many to be written out: its place is worked out anew. */
const LOOP_STORE_INSTRUCTIONS = 18;
/**
 * How much longer stores of 4 bytes take than of 16: a GEMM of 4096 cubed in tiles of 128 x 256 kept the Tensor Cores of an H100 busy for 78.5 % and
 * 89.4 % of its time, 5 us a tile apart.
 */
const NARROW_STORES = 3;
/**
 * And of 2 bytes to a sector each: 2.4 ns a sector and multiprocessor. Of 16 x 64 x 56 x 56 results three kernels that scatter them so, whatever their
 * tiles, took 78 to 84 us on an H100: 3.3.
 */
const SCATTERED_STORES = 30;
/** Sectors over results from where on stores are scattered: rows of two elements of 2 bytes. */
const SCATTERED = 8;
/** Cycles between a block's end and the first copy of the one that takes its place. */
const BLOCK_START = 560;
/**
 * Bytes a second at which the blocks of a cluster write partial sums into one of them and it adds them up: convolutions of 512 x 7 x 7 and 256 x 14 x 14
 * and a GEMM of 1024 cubed on an H100, tiles of 4 to 64 KB (2026-11-22), beside what the model expects of the same tiles unsplit.
 */
const MET_BYTES = 20e9;
/** Blocks of a multiprocessor that the correction tells apart. */
const MOST_TOGETHER = 4;
/** Registers are given to warps in units of so many a thread. */
const REGISTER_GRANULE = 8;

/** What a schedule costs, part by part, in seconds; undefined when it cannot be lowered. */
export function gridCosts(given: GridContext, schedule: GridSchedule, target: Target): Costs | undefined {
  if (gridProblem(given, schedule) !== undefined) return undefined;
  const context = repackedContext(given, schedule);
  const clock = clockOf(target);
  const steps = stepsOfPart(context, schedule);

  // 1. Blocks at once, and waves of them.
  const blocks = tilesOf(context, schedule) * partsOfSum(schedule);
  const { persistent = Number.POSITIVE_INFINITY } = schedule;
  const kept = residentBlocks(context, schedule, target);
  const perUnit = Math.ceil(blocks / unitsReached(schedule, target));
  const together = Math.min(kept, perUnit, Math.ceil(persistent / levelOf(target, "block").units));
  const waves = Math.ceil(perUnit / together);

  // 2. What keeps a part busy adds up over the blocks of a multiprocessor; what a block waits for, over waves of them.
  const cycles = stepCycles(context, schedule, target, together);
  const seconds = (perStep: number): number => (perStep * steps * perUnit) / clock;
  const drain = drainSeconds(context, schedule, target, clock);
  const fill =
    (target.fixed["fill"]?.value ?? 0) + COPY_LATENCY / clock + windowSeconds(context, schedule, target) + drain.wait;
  /** Blocks that take tiles in turn fill their rings once. */
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
    launch: target.fixed["launch"]?.value ?? 0,
    ...(schedule.repack && { repack: repackSeconds(context, schedule, target, clock) }),
    ...(schedule.split && { split: splitSeconds(context, schedule, target, clock, waves) }),
  };
  const always = Object.values(fixed).reduce((sum, s) => sum + s, 0);
  const parts = Object.values(busy);
  const sum = parts.reduce((n, s) => n + s, 0);
  return {
    terms: Object.entries({ ...fixed, ...busy, latency }).map(([name, value]) => ({ name, seconds: value })),
    bounds: [always + Math.max(latency, ...parts), always + Math.max(latency, sum)],
    traits: [
      context.intrinsic.family,
      ...traitsOfGrids(schedule),
      `warps ${threadsOf(context, schedule) / context.limits.lanes}`,
      `blocks together ${together > MOST_TOGETHER ? "and more" : together}`,
      ...context.inputs.map((i) => `copy of ${transferOf(i, schedule)} ${i.width}`),
    ],
  };
}

/** Bytes of all tensors, each read or written once. */
const trafficOf = memoised((computation: Computation): number =>
  [...inputsOf(computation), outputOf(computation)].reduce((n, t) => n + memoryElements(t) * bytesOf(t.dtype), 0),
);

/** So many bytes once: from the last cache, where the call before has left them, or from memory. */
function passSeconds(bytes: number, target: Target): number {
  const stays = bytes <= (memoryOf(target, "l2").bytes?.value ?? 0);
  const rate = (stays ? readRate(target, "l2", "grid") : undefined) ?? readRate(target, "dram", "grid");
  return bytes / (rate?.value ?? Number.POSITIVE_INFINITY);
}

/** Until the first window has arrived, which all products wait for. */
function windowSeconds(context: GridContext, schedule: GridSchedule, target: Target): number {
  const window = windowOf(context, schedule);
  if (!window) return 0;
  const bytes = window.staged * extentOf(context.sum.axis, schedule.tile) * context.elementBytes;
  return bytes / (readRate(target, "l2", "block")?.value ?? Number.POSITIVE_INFINITY);
}

/** What the model expects; undefined when the schedule cannot be lowered. */
export function predictGrid(
  context: GridContext,
  schedule: GridSchedule,
  target: Target,
  correction: Correction = NO_CORRECTION,
): Prediction | undefined {
  const costs = gridCosts(context, schedule, target);
  if (!costs) return undefined;
  const clock = clockOf(target);
  const cyclesOf = (name: string): number => (costs.terms.find((t) => t.name === name)?.seconds ?? 0) * clock;
  const inner = Math.max(cyclesOf("tensor"), cyclesOf("latency"), cyclesOf("threads"));
  const read = Math.max(cyclesOf("copies"), cyclesOf("shared"), cyclesOf("memory"));
  const write = cyclesOf("drain");
  const bound = read > inner && read > write ? "read" : write > inner ? "write" : "inner";
  return {
    seconds: apply(correction, costs),
    uncorrectedSeconds: apply(NO_CORRECTION, costs),
    levels: [{ level: "grid", trips: 1, inner, read, write, bound }],
  };
}

const traitsOfGrids = traitsOf(GRID_DECISIONS);

/** Blocks that a multiprocessor keeps at once. */
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

/** Multiprocessors that blocks reach: clusters fill fewer of them. */
function unitsReached({ split }: GridSchedule, target: Target): number {
  const clusters = split?.through === "cluster" && target.clusters?.find((c) => c.blocks === split.parts);
  return clusters ? clusters.value * clusters.blocks : levelOf(target, "block").units;
}

/** What it costs to copy inputs ahead: from memory, or from the last cache where they and their copies stay in it. */
function repackSeconds(context: GridContext, schedule: GridSchedule, target: Target, clock: number): number {
  return kernelSeconds(schedule, target, clock) + passSeconds(2 * copiedBytes(context), target);
}

/** What a kernel more in a call costs besides its bytes: where the one that awaits it is launched meanwhile, no setting up. */
function kernelSeconds({ launch: how }: GridSchedule, { fixed }: Target, clock: number): number {
  const { launch, dependentLaunch, fill, drain } = fixed;
  const begun = how === "early" ? dependentLaunch?.value : (launch?.value ?? 0) + (fill?.value ?? 0);
  return (begun ?? 0) + COPY_LATENCY / clock + (drain?.value ?? 0);
}

/** What it costs that partial sums meet, besides the stores of the blocks that hold them. */
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
    // All blocks of a cluster wait for the slowest, and what is under way arrives.
    const barrier = levelOf(target, "cluster").barrier?.cycles.value ?? 0;
    return waits * (barrier / clock + bytes / MET_BYTES);
  }
  const rate = readRate(target, "l2", "grid")?.value ?? Number.POSITIVE_INFINITY;
  const all = bytes * tilesOf(context, schedule) * split.parts;
  return kernelSeconds(schedule, target, clock) + all / rate;
}

/** What storing the results of a block costs: what waits, what keeps threads and memory busy, and both of a block alone. */
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
  const rate = memoryOf(target, "l2").bandwidth.find((b) => b.of === "block" && b.direction === "write")?.value;
  // Parts are stored as pairs of 4 bytes, and results of a cluster side by side.
  const over = through === undefined ? writtenOver(context, schedule) : 1;
  const bytes = (over * elements * bytesOf(dtype)) / (rate ?? Number.POSITIVE_INFINITY);
  // Staged results are written to shared memory and read again, several elements a lane; what lies outside is staged and tested too.
  const staged = schedule.store === "staged";
  const outside = extentOf(rows.axis, schedule.tile) * extentOf(columns.axis, schedule.tile) * share - elements;
  const instructions =
    elements * (staged ? STAGED_INSTRUCTIONS : STORE_INSTRUCTIONS) +
    outside * (staged ? 2 : 1) * OUTSIDE_STORE_INSTRUCTIONS;
  const cycles = (instructions + loopedStores(context, schedule, share)) / limits.lanes;
  return {
    wait: target.fixed["drain"]?.value ?? 0,
    busy: Math.max(bytes, cycles / ISSUED_PER_CYCLE / clock),
    alone: Math.max(bytes, (cycles * WARP_CYCLES * limits.lanes) / threadsOf(context, schedule) / clock),
  };
}

/** Instructions of staged results that a loop stores, beside those that all take. */
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

/** How many times the bytes of results the last cache takes for them. */
function writtenOver(context: GridContext, { store }: GridSchedule): number {
  if (store === "quads") return 1;
  if (store === "direct") {
    const over = sectorsOver(context);
    return over >= SCATTERED ? SCATTERED_STORES : over > 1 ? NARROW_STORES : 1;
  }
  const line = runsAlongRows(context) ? context.rows : context.columns;
  return resultsAlong(context, line, 1) > 0 ? 1 : SCATTERED_STORES;
}
