/**
 * @file The layered latency model of a kernel of blocks and warps: what a block's step costs each part of a multiprocessor, how many
 * blocks share one, how many waves of them there are.
 *
 *     time = launch + waves * (fill + max over parts of (steps * part) + drain)
 *
 *     parts of a step     tensor     issues * cycles an issue, over the quarters that have a warp
 *                         shared     fragments read and tiles written, 128 bytes a cycle, conflicts of banks counted
 *                         copies     bytes of both tiles from the cache that all share
 *                         threads    instructions that move and address pieces
 *                         latency    what a step waits for although nothing is busy: copies that no stage hides, sums that depend on sums
 *
 *     repack              a kernel that copies inputs: its bytes, each read and written once, and its launch
 *     split               what the parts of a sum cost that meet: barriers and bytes of a cluster, or a second kernel and its bytes
 *
 * Every rate is the target's (targets/); what was fitted here has a name and says on what.
 */

import { extentOf } from "../abstraction/affine.ts";
import type { GridSchedule } from "../abstraction/candidate.ts";
import { type Computation, inputsOf, memoryElements, outputOf } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { readsShared } from "../abstraction/intrinsic.ts";
import { issueCyclesOn, latencyCyclesOn, levelOf, memoryOf, readRate, type Target } from "../abstraction/machine.ts";
import { memoised } from "../abstraction/memoised.ts";
import type { Prediction } from "../abstraction/trial.ts";
import { stepsInFlight } from "../mapper/schedule/fragments.ts";
import { gridProblem, launchedThreads, registersOf, sharedBytesOf, threadsOf } from "../mapper/schedule/grid.ts";
import type { GridAxis, GridContext, GridInput } from "../mapper/schedule/grid-context.ts";
import { GRID_DECISIONS } from "../mapper/schedule/grid-decisions.ts";
import { copiedBytes, repackedContext } from "../mapper/schedule/repack.ts";
import { traitsOf } from "../mapper/schedule/schedules.ts";
import { partsOfSum, stepsOfPart, tilesOf } from "../mapper/schedule/split.ts";
import { sectorsOver } from "../mapper/schedule/store.ts";
import { PIECE_BYTES } from "../mapper/schedule/swizzle.ts";
import { usedPart, windowOf } from "../mapper/schedule/taps.ts";
import { fragmentsAlong } from "../mapper/schedule/tile.ts";
import { apply, type Correction, NO_CORRECTION } from "./correct.ts";
import type { Costs, CostTerm } from "./model.ts";
import { PRIOR_H100 } from "./prior-h100.ts";

/** Warp instructions a cycle of a multiprocessor: one a quarter. */
const ISSUED_PER_CYCLE = 4;
/** Instructions of a warp for one piece of a copy: address, bounds, the copy; with a guard of its own. Counted in SASS by eye. */
const PIECE_INSTRUCTIONS = 5;
const GUARD_INSTRUCTIONS = 6;
/** A plain piece is a load and a store besides. */
const PLAIN_INSTRUCTIONS = 3;
/** Instructions of a warp for one 4-byte store of results, with its address. */
const STORE_INSTRUCTIONS = 6;
/**
 * How much longer stores of 4 bytes take than of 16: a GEMM of 4096 cubed in tiles of 128 x 256 kept the Tensor Cores of an H100 busy for 78.5 % and
 * 89.4 % of its time, 5 us a tile apart.
 */
const NARROW_STORES = 3;
/**
 * And of 2 bytes to a sector each: two kernels of 16 x 28 x 28 results in 128 x 8 channels, tiles of 64 x 224 and 64 x 208, one for each capsule apart and
 * one for all, took 100.8 and 55.2 us on an H100.
 */
const SCATTERED_STORES = 9;
/** Sectors over results from where on stores are scattered: rows of two elements of 2 bytes. */
const SCATTERED = 8;
/**
 * Bytes a second at which the blocks of a cluster write partial sums into one of them and it adds them up: convolutions of 512 x 7 x 7 and 256 x 14 x 14
 * and a GEMM of 1024 cubed on an H100, tiles of 4 to 64 KB (2026-11-22), beside what the model expects of the same tiles unsplit.
 */
const MET_BYTES = 20e9;
/**
 * Cycles of a step that warpgroups lose by meeting in it although products are in flight: a GEMM of 4096 cubed in tiles of 128 x 256 kept the Tensor
 * Cores of an H100 busy for 86.8 % of its time, and 89.7 % with a producer, of 1,024 cycles a step.
 */
const MET_CYCLES = 34;
/** Cycles of `ldmatrix` until its words may be used, which one set of fragments exposes. */
const FETCH_LATENCY = 30;
/** Copies in flight from memory or the last cache, where the target gives no figure. */
const COPY_LATENCY = 600;
/** Loads that the compiler keeps in flight of a plain copy: fitted to 66 kernels of the layers of ResNet-18 on an H100. */
const LOADS_IN_FLIGHT = 4;
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
  const cycles = stepCycles(context, schedule, target, clock);

  // 1. Blocks at once, and waves of them.
  const blocks = tilesOf(context, schedule) * partsOfSum(schedule);
  const { persistent = Number.POSITIVE_INFINITY } = schedule;
  const kept = residentBlocks(context, schedule, target);
  const together = Math.min(kept, Math.ceil(persistent / levelOf(target, "block").units));
  const perUnit = Math.ceil(blocks / unitsReached(schedule, target));
  const fullWaves = Math.floor(perUnit / together);
  const left = perUnit - fullWaves * together;
  /** What is busy adds up over the blocks that share a multiprocessor; what only waits does not. */
  const shares = fullWaves * together + left;
  const waits = fullWaves + (left > 0 ? 1 : 0);
  /** Rings that are filled and stores that are waited for one after another: blocks that take tiles in turn hide theirs but once. */
  const begun = schedule.persistent === undefined ? waits : 1;

  // 2. Parts, in seconds.
  const seconds = (perStep: number, times: number): number => (perStep * steps * times) / clock;
  const drain = drainSeconds(context, schedule, target, clock);
  const traffic = trafficOf(context.mapping.computation);
  const dramRate = readRate(target, "dram", "grid")?.value ?? Number.POSITIVE_INFINITY;
  const fill = (target.fixed["fill"]?.value ?? 0) + COPY_LATENCY / clock + windowSeconds(context, schedule, target);
  const fixed: CostTerm[] = [
    { name: "launch", seconds: target.fixed["launch"]?.value ?? 0 },
    { name: "fill", seconds: begun * fill },
    { name: "drain", seconds: begun * drain.wait + shares * drain.busy },
  ];
  if (schedule.repack) fixed.push({ name: "repack", seconds: repackSeconds(context, target, clock) });
  if (schedule.split) fixed.push({ name: "split", seconds: splitSeconds(context, schedule, target, clock, waits) });
  const busy: readonly CostTerm[] = [
    { name: "tensor", seconds: seconds(cycles.tensor, shares) },
    { name: "shared", seconds: seconds(cycles.shared, shares) },
    { name: "copies", seconds: seconds(cycles.copies, shares) },
    { name: "threads", seconds: seconds(cycles.threads, shares) },
    { name: "latency", seconds: seconds(cycles.latency, waits) },
    { name: "memory", seconds: traffic / dramRate },
  ];
  let [always, most, sum] = [0, 0, 0];
  for (const term of fixed) always += term.seconds;
  for (const term of busy) {
    most = Math.max(most, term.seconds);
    sum += term.seconds;
  }
  return {
    terms: [...fixed, ...busy],
    bounds: [always + most, always + sum],
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

/** Until the first window has arrived, which all products wait for. */
function windowSeconds(context: GridContext, schedule: GridSchedule, target: Target): number {
  const window = windowOf(context, schedule);
  if (!window) return 0;
  const bytes = window.staged * extentOf(context.sum.axis, schedule.tile) * context.elementBytes;
  return bytes / (readRate(target, "l2", "block")?.value ?? Number.POSITIVE_INFINITY);
}

/** What trials of other computations on a machine taught the model; on one that was never searched, nothing. */
export function priorOf({ name }: Target): Correction {
  return name === "h100" || name === "h200" ? PRIOR_H100 : NO_CORRECTION;
}

/** What the model expects; undefined when the schedule cannot be lowered. */
export function predictGrid(
  context: GridContext,
  schedule: GridSchedule,
  target: Target,
  correction?: Correction,
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
    seconds: apply(correction ?? priorOf(target), costs),
    uncorrectedSeconds: apply(NO_CORRECTION, costs),
    levels: [{ level: "grid", trips: 1, inner, read, write, bound }],
  };
}

const traitsOfGrids = traitsOf(GRID_DECISIONS);

/** Cycles a second under load; of a target without a clock none, so that times are cycles. */
function clockOf({ loadedClockHz, clockHz }: Target): number {
  return (loadedClockHz ?? clockHz)?.value ?? 1;
}

function transferOf(input: GridInput, schedule: GridSchedule): GridSchedule["transfer"] {
  if (schedule.transfer === "engine") return "engine";
  return schedule.transfer === "async" && input.asyncWidth !== undefined ? "async" : "plain";
}

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

/** Cycles that one step of a block takes of each part of a multiprocessor. */
function stepCycles(
  context: GridContext,
  schedule: GridSchedule,
  target: Target,
  clock: number,
): Readonly<Record<"tensor" | "shared" | "copies" | "threads" | "latency", number>> {
  const { rows, columns, sum, inputs, intrinsic, limits } = context;
  const [down, across] = [fragmentsAlong(rows, schedule), fragmentsAlong(columns, schedule)];
  const parts = extentOf(sum.axis, schedule.tile) / sum.extent;
  const warps = threadsOf(context, schedule) / limits.lanes;
  const issue = issueCyclesOn(target, intrinsic)?.value ?? intrinsic.cost?.issueCycles ?? 1;
  const latency = latencyCyclesOn(target, intrinsic) ?? 0;
  const quarters = levelOf(target, "warp").units;
  const sharedRate = readRate(target, "shared", "block")?.value ?? 1;
  const cacheRate = (readRate(target, "l2", "block")?.value ?? Number.POSITIVE_INFINITY) / clock;

  // A warpgroup keeps all quarters of a multiprocessor busy, a warp one.
  const teams = threadsOf(context, schedule) / context.teamThreads;
  const issues = parts * down * across * teams;
  const tensor = issues * issue * (context.team === "warp" ? Math.max(1, quarters / warps) : 1);
  const conflicts = conflictsOf(context, schedule);
  const window = windowOf(context, schedule);
  let read = 0;
  let written = 0;
  let instructions = issues;
  let arrival = 0;
  for (const input of inputs) {
    const bytes = bytesOf(input.operand.dtype);
    const fragments = fragmentsAlong(input.kept, schedule);
    const fetched = fragments * input.kept.extent * sum.extent * bytes;
    if (!readsShared(input.operand)) {
      read += parts * warps * fetched * conflicts;
      instructions += (parts * warps * fetched) / (4 * PIECE_BYTES * 8);
    }
    // What is staged once serves all taps.
    const staged = input === window?.input ? window.staged / window.taps : extentOf(input.kept.axis, schedule.tile);
    const elements = staged * extentOf(sum.axis, schedule.tile);
    written += elements * bytes;
    const how = transferOf(input, schedule);
    const pieces = elements / (how === "async" ? (input.asyncWidth ?? 1) : input.width) / limits.lanes;
    const guarded =
      input.value.kind !== "access" || input.conditions.length > 0 || input.kept.dimension?.loops.length !== 1;
    // One thread tells the engine.
    instructions +=
      how === "engine"
        ? 0
        : pieces *
          (PIECE_INSTRUCTIONS + (guarded ? GUARD_INSTRUCTIONS : 0) + (how === "plain" ? PLAIN_INSTRUCTIONS : 0));
    // A plain copy is waited for where it stands, so many loads of a thread at once; an asynchronous one has the steps of the stages between.
    const held = schedule.producer === undefined ? stepsInFlight(context, schedule) : 0;
    const hidden = how !== "plain" ? Math.max(0, schedule.stage - 1 - held) : 0;
    const loads = how === "plain" ? Math.max(1, pieces / warps / LOADS_IN_FLIGHT) : 1;
    arrival = Math.max(arrival, (COPY_LATENCY * loads) / Math.max(1, hidden));
  }
  const barrier = levelOf(target, "block").barrier;
  const meeting = barrier ? barrier.cycles.value + (barrier.cyclesPerUnit ?? 0) * warps : 0;
  if (intrinsic.asynchronous) {
    // Products of a step are waited for, or run while the next barrier is; beside a producer there is none.
    const inFlight = stepsInFlight(context, schedule) > 0;
    const met = schedule.producer === undefined ? (inFlight ? MET_CYCLES : meeting) : 0;
    const exposed = (inFlight ? 0 : Math.max(0, latency - issue)) + met;
    return {
      tensor: tensor + exposed,
      shared: written / sharedRate,
      copies: written / cacheRate,
      threads: instructions / ISSUED_PER_CYCLE,
      latency: arrival,
    };
  }
  const fetches = { inline: parts, ahead: 1, across: 0 }[schedule.fragments];
  /** One warp's chain: fragments, then sums that no other sum of the part hides. */
  const chain = parts * Math.max(latency, down * across * issue * quarters) + fetches * FETCH_LATENCY;
  return {
    tensor,
    shared: (read + written) / sharedRate,
    copies: written / cacheRate,
    threads: instructions / ISSUED_PER_CYCLE,
    latency: Math.max(arrival, chain) + meeting,
  };
}

/** Multiprocessors that blocks reach: clusters fill fewer of them. */
function unitsReached({ split }: GridSchedule, target: Target): number {
  const clusters = split?.through === "cluster" && target.clusters?.find((c) => c.blocks === split.parts);
  return clusters ? clusters.value * clusters.blocks : levelOf(target, "block").units;
}

/** What it costs to copy inputs ahead: from memory, or from the last cache where they and their copies stay in it. */
function repackSeconds(context: GridContext, target: Target, clock: number): number {
  const bytes = 2 * copiedBytes(context);
  const stays = bytes <= (memoryOf(target, "l2").bytes?.value ?? 0);
  const rate = (stays ? readRate(target, "l2", "grid") : undefined) ?? readRate(target, "dram", "grid");
  return kernelSeconds(target, clock) + bytes / (rate?.value ?? Number.POSITIVE_INFINITY);
}

/** What a kernel more in a call costs besides its bytes. */
function kernelSeconds({ fixed: { launch, fill, drain } }: Target, clock: number): number {
  return (launch?.value ?? 0) + (fill?.value ?? 0) + COPY_LATENCY / clock + (drain?.value ?? 0);
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
  return kernelSeconds(target, clock) + all / rate;
}

/** How often the banks are asked for eight rows at once: rows of 128 bytes and more all begin in one bank unless they are moved. */
function conflictsOf({ elementBytes, sum }: GridContext, schedule: GridSchedule): number {
  if (schedule.swizzle !== "plain") return 1;
  const rowBytes = extentOf(sum.axis, schedule.tile) * elementBytes;
  return Math.min(8, Math.max(1, rowBytes / PIECE_BYTES));
}

/** What storing the results of a block costs: what waits, and what keeps threads and memory busy. */
function drainSeconds(
  context: GridContext,
  schedule: GridSchedule,
  target: Target,
  clock: number,
): { readonly wait: number; readonly busy: number } {
  const stored = (a: GridAxis): number => Math.min(1, usedPart(context, a, schedule)) * extentOf(a.axis, schedule.tile);
  const tile = stored(context.rows) * stored(context.columns);
  const through = schedule.split?.through;
  const elements = through === "cluster" ? tile / partsOfSum(schedule) : tile;
  const { dtype } = through === "memory" ? context.target : outputOf(context.mapping.computation);
  const rate = memoryOf(target, "l2").bandwidth.find((b) => b.of === "block" && b.direction === "write")?.value;
  // Parts are stored as pairs of 4 bytes, and results of a cluster side by side.
  const over = schedule.store === "direct" && through === undefined ? sectorsOver(context) : 1;
  const narrow = over >= SCATTERED ? SCATTERED_STORES : over > 1 ? NARROW_STORES : 1;
  const bytes = (narrow * elements * bytesOf(dtype)) / (rate ?? Number.POSITIVE_INFINITY);
  // Staged results are written to shared memory and read again, several elements a lane.
  const perElement = schedule.store === "staged" ? STORE_INSTRUCTIONS : STORE_INSTRUCTIONS / 2;
  const threads = (elements * perElement) / context.limits.lanes / ISSUED_PER_CYCLE / clock;
  return { wait: target.fixed["drain"]?.value ?? 0, busy: Math.max(bytes, threads) };
}
