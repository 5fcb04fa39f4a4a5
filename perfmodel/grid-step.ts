/**
 * @file The cost of one step of a block to each part of a multiprocessor, in cycles, and what the block waits for.
 *
 *     tensor     issues * cycles an issue, over the quarters that have a warp
 *     shared     fragments read and tiles written, 128 bytes a cycle or a store of a warp, conflicts of banks counted; lines that narrow copies look up
 *     copies     bytes of both tiles from the cache that all share, whole sectors
 *     threads    instructions that move and address pieces, of which those that lie outside the tensor cost a test
 *     latency    the chain of a block alone: its instructions, copies that no stage hides, sums that depend on sums
 *
 * The number of loads that a plain copy has in flight follows from its code: pieces written out without a test are all loaded before the first
 * store, while a loop that tests each piece waits for them almost one by one.
 */

import { boundsOf, extentOf } from "../abstraction/affine.ts";
import type { GridSchedule } from "../abstraction/candidate.ts";
import { hasName, memoisedBy, sumOf, upTo } from "../abstraction/collections.ts";
import { extentsOf, memoryElements, tensorOf } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { accessesIn, axesIn } from "../abstraction/expression.ts";
import { readsShared } from "../abstraction/intrinsic.ts";
import { MOST_WRITTEN_OUT } from "../abstraction/loop-nest.ts";
import { issueCyclesOn, latencyCyclesOn, levelOf, memoryOf, readRate, type Target } from "../abstraction/machine.ts";
import { fetchesIn } from "../mapper/schedule/fragments.ts";
import { boxOf, type GatherBox } from "../mapper/schedule/gather.ts";
import { sharedBytesOf, threadsOf } from "../mapper/schedule/grid.ts";
import type { GridAxis, GridContext, GridInput } from "../mapper/schedule/grid-context.ts";
import { sharersOf } from "../mapper/schedule/multicast.ts";
import { madeInRegisters, stagedReads } from "../mapper/schedule/narrow.ts";
import { rolledOf } from "../mapper/schedule/rolled.ts";
import { partsAtOnce, runOf } from "../mapper/schedule/runs.ts";
import { stepsOfPart } from "../mapper/schedule/split.ts";
import { stepsInFlight } from "../mapper/schedule/stage.ts";
import { PIECE_BYTES } from "../mapper/schedule/swizzle.ts";
import { windowOf } from "../mapper/schedule/taps.ts";
import { fragmentsAlong } from "../mapper/schedule/tile.ts";
import { rateOn } from "./rates.ts";
import { LINE_BYTES, SECTOR_BYTES, type TileCopy, tileCopy } from "./tile-copies.ts";

/** Warp instructions per cycle of a multiprocessor: one for each quarter. */
export const ISSUED_PER_CYCLE = 4;
/** Average cycles of a warp instruction when some depend on the one before; at least 4 when all do. */
export const WARP_CYCLES = 2.5;
/**
 * Warp instructions for one piece of a copy including its address: through registers, or asynchronous; for each side on which it may leave the
 * tensor; to split a fused index into loops, where that changes with the step, and where it is computed before the steps but kept by the thread.
 */
const PIECE_INSTRUCTIONS = { plain: 3, async: 1.5 } as const;
/**
 * Warp instructions for an element that is calculated of bytes and scales: PRMT, LOP3, HFMA2 and HMUL2 for two, or three of these and a shift for each
 * four where half bytes stay in their places.
 */
const MADE_INSTRUCTIONS = { moved: 2, inPlace: 1.625 } as const;
/** Warp instructions to find and load what a piece of such elements is made of, for each tensor. Counted in SASS of tiles of 256 x 64 (nvcc 13.0). */
const READ_INSTRUCTIONS = 12;
const TEST_INSTRUCTIONS = 6;
const DIGIT_INSTRUCTIONS = 10;
const KEPT_DIGIT_INSTRUCTIONS = 6;
/** Instructions for a piece that is known before the steps to lie outside the tensor: a zero is stored. */
const OUTSIDE_INSTRUCTIONS = 1;
/**
 * Instructions for a piece in a loop, used when a thread has too many to write out: the loop counter, and each loop of its position, computed
 * anew.
 */
const LOOP_INSTRUCTIONS = 7;
const LOOP_DIGIT_INSTRUCTIONS = 6;
/**
 * Costs of a fragment that lanes gather from a box: shared-memory reads for each word, which consists of two elements; warp instructions for a
 * word, and for the positions of its elements along the sum, shared by all fragments. Counted in the PTX of a convolution of 7x7 taps on 3
 * channels (2026-11-22).
 */
const GATHERED_READS = 2;
const WORD_INSTRUCTIONS = 5;
const GATHER_DIGIT_INSTRUCTIONS = 14;
/** Other cycles of a step: its counters, and the choice of the ring's next stage. */
const STEP_CYCLES = 50;
/** Loads of a plain copy in flight at once: written out or in a loop, with and without a test of each piece. */
const LOADS_IN_FLIGHT = { writtenOut: { untested: 24, tested: 6 }, loop: { untested: 16, tested: 2.5 } } as const;
/** Latency of a load in cycles, under some load: from the first cache (40 when idle: Luo et al., H100), and from the last. */
const NEAR_LATENCY = 56;
export const COPY_LATENCY = 400;
/** Lines that the first cache looks up in a cycle. */
export const LINES_PER_CYCLE = 1;
/** Bytes of a multiprocessor's combined first cache and shared memory (CUDA C++ Programming Guide, compute capability 9.0). */
const FIRST_CACHE_BYTES = 256 * 1024;
/** Latency of `ldmatrix` in cycles, which is exposed with a single set of fragments. */
const FETCH_LATENCY = 30;

// Rounded from a fit to seven of the operators of bench/trials/cuda-random-h100.jsonl.gz and judged on the other eight (bench/results/gpu-model-accuracy-h100.md):
// instructions, WARP_CYCLES, STEP_CYCLES, LOADS_IN_FLIGHT, both latencies, LINES_PER_CYCLE, and in perfmodel/grid.ts those of stores.

/** Cycles of one step of a block on each part of a multiprocessor. */
export type StepCycles = Readonly<Record<"tensor" | "shared" | "copies" | "threads" | "latency", number>> & {
  /** Steps whose copies are under way while one is multiplied. */
  readonly ahead: number;
  /** How each input is copied. */
  readonly inputs: readonly InputCopy[];
};

/** @param together blocks that a multiprocessor runs at once */
export function stepCycles(context: GridContext, schedule: GridSchedule, target: Target, together: number): StepCycles {
  const { rows, columns, sum, intrinsic, limits } = context;
  const clock = clockOf(target);
  const warps = threadsOf(context, schedule) / limits.lanes;
  const quarters = levelOf(target, "warp").units;
  /** Stages of products that run on across steps are not free yet. */
  const held = schedule.producer === undefined ? stepsInFlight(context, schedule) : 0;
  const ahead = schedule.stage - 1 - held;
  const copies = copiesOf(context, schedule, target, { together, ahead });

  // 1. Products: a warpgroup keeps all quarters of a multiprocessor busy, a warp one.
  const down = fragmentsAlong(rows, schedule);
  const across = fragmentsAlong(columns, schedule);
  const parts = extentOf(sum.axis, schedule.tile) / sum.extent;
  const issue = issueCyclesOn(target, intrinsic)?.value ?? intrinsic.cost?.issueCycles ?? 1;
  const latency = latencyCyclesOn(target, intrinsic) ?? 0;
  const teams = threadsOf(context, schedule) / context.teamThreads;
  const own = parts * down * across;
  const shared = context.team === "warp" ? Math.max(1, quarters / (teams * together)) : 1;
  const tensor = own * teams * issue * shared;

  // 2. Fragments.
  const box = boxOf(context, schedule);
  const read = context.inputs.reduce((bytes, input) => {
    const { operand, kept } = input;
    const held = fragmentsAlong(kept, schedule) * kept.extent * sum.extent * bytesOf(operand.dtype);
    if (readsShared(operand) || madeInRegisters(context, schedule, input)) return bytes;
    const conflicts = box?.input === input ? boxReads(context, schedule, box) : conflictsOf(context, schedule, input);
    return bytes + parts * warps * held * conflicts;
  }, 0);
  const gathered = box && !box.inRows ? gatherInstructions(context, schedule, box) * parts * warps : 0;
  const making = makingOf(context, schedule);
  // The learnt trees, which judge other kernels, were taught without these reads.
  const isMade = context.inputs.some((input) => input.reads.length > 0);
  const direct = isMade ? own * teams * directBytes(context) : 0;
  // A factor whose neighbours are taken apart is joined anew, a word at a time.
  const joined = runOf(context, schedule).apart > 1 ? read / LINE_BYTES : 0;
  const fetches = read / (4 * PIECE_BYTES * 8) + joined + making.instructions + gathered;
  // Sums of a step that are scaled: a multiply-add an element, behind the products. Scales come from the first cache.
  const scaled = context.scale ? (down * across * rows.extent * columns.extent) / context.teamThreads : 0;
  const instructions = copies.instructions + own * teams + fetches;

  // 3. The dependence chain of a block alone.
  const barrier = levelOf(target, "block").barrier;
  // Warpgroups with a separate producer never wait for one another within a step.
  const meeting =
    barrier && schedule.producer === undefined ? barrier.cycles.value + (barrier.cyclesPerUnit ?? 0) * warps : 0;
  const waits = { inline: fetchesIn(context, schedule), ahead: 1, across: 0, rolled: 1 }[schedule.fragments];
  const inFlight = stepsInFlight(context, schedule) > 0;
  const awaited = inFlight ? 0 : Math.max(0, latency - issue);
  const chain = intrinsic.asynchronous
    ? own * issue + awaited
    : parts * Math.max(latency, down * across * issue * quarters) + waits * FETCH_LATENCY;
  const scaling = context.scale ? scaled + NEAR_LATENCY : 0;
  const between = meeting + STEP_CYCLES + making.wait + (WARP_CYCLES * instructions) / warps + scaling;
  // With one stage, copies and products alternate; products in flight overlap with everything else.
  const apart = schedule.stage === 1 ? copies.wait + chain + meeting : Math.max(copies.wait, chain);
  const alone = inFlight ? Math.max(chain + meeting, copies.wait + between) : apart + between;
  const sharedRate = readRate(target, "shared", "block")?.value ?? 1;
  const cacheRate = rateOn(target, "l2", "block") / clock;
  return {
    // While warpgroups wait for one another, the Tensor Cores are idle unless another block keeps them busy.
    tensor: tensor + (intrinsic.asynchronous && together === 1 ? meeting : 0),
    shared: (read + direct) / sharedRate + making.cycles + copies.stores + copies.lines / LINES_PER_CYCLE,
    copies: copies.fetched / cacheRate,
    threads: (instructions + scaled * warps) / ISSUED_PER_CYCLE,
    latency: alone,
    ahead,
    inputs: copies.inputs,
  };
}

/** Clock under load in Hz; 1 for a target without a clock, so that times are cycles. */
export function clockOf({ loadedClockHz, clockHz }: Target): number {
  return (loadedClockHz ?? clockHz)?.value ?? 1;
}

/** Bytes of shared memory that an issue of an instruction reads itself. */
const directBytes = ({ inputs, sum }: GridContext): number =>
  sumOf(inputs, ({ operand, kept }) => (readsShared(operand) ? kept.extent * sum.extent * bytesOf(operand.dtype) : 0));

/** Warp instructions of a step, cycles of shared memory, and cycles of waiting, for the fragments that warps make. */
function makingOf(
  context: GridContext,
  schedule: GridSchedule,
): { readonly instructions: number; readonly cycles: number; readonly wait: number } {
  const { inputs, sum, limits } = context;
  const { held, elements: run, apart } = runOf(context, schedule);
  const shares = held / (sum.extent * partsAtOnce(context, schedule));
  const made = inputs.filter((input) => madeInRegisters(context, schedule, input));
  const each = made.map((input) => {
    const elements = (extentOf(input.kept.axis, schedule.tile) * extentOf(sum.axis, schedule.tile)) / limits.lanes;
    const staged = stagedReads(context, schedule, input);
    const loads = staged.map(({ repeat, dtype }) => {
      // Neighbours, or those that share an element.
      const together = Math.min(held, Math.max(run, repeat * shares));
      const bytes = Math.ceil(together / repeat) * bytesOf(dtype);
      const loaded = (elements / together) * Math.ceil(bytes / PIECE_BYTES);
      return { loaded, cycles: loaded * Math.max(1, (Math.min(bytes, PIECE_BYTES) * limits.lanes) / LINE_BYTES) };
    });
    // What is not staged each lane loads from the first cache, and a row is a line.
    const far = input.reads.filter((read) => !staged.some(({ access }) => access === read.access));
    const loadedFar = sumOf(far, ({ repeat }) => elements / Math.max(run, repeat * shares));
    const loaded = sumOf(loads, (l) => l.loaded) + PIECE_INSTRUCTIONS.plain * loadedFar;
    return {
      instructions: loaded + elements * MADE_INSTRUCTIONS[apart > 1 ? "inPlace" : "moved"],
      cycles: sumOf(loads, (l) => l.cycles) + (loadedFar * limits.lanes * shares) / LINES_PER_CYCLE,
      wait: far.length > 0 ? NEAR_LATENCY * fetchesIn(context, schedule) : 0,
    };
  });
  return {
    instructions: sumOf(each, (e) => e.instructions),
    cycles: sumOf(each, (e) => e.cycles),
    wait: sumOf(each, (e) => e.wait),
  };
}

/** Warp instructions for the fragments of one part of a step. */
function gatherInstructions(
  { sum }: GridContext,
  schedule: GridSchedule,
  { input: { kept, operand } }: GatherBox,
): number {
  const elements = kept.extent * sum.extent;
  const words = (elements * bytesOf(operand.dtype)) / (4 * 32);
  // The position along the sum is computed once for all fragments.
  return words * (fragmentsAlong(kept, schedule) * WORD_INSTRUCTIONS + GATHER_DIGIT_INSTRUCTIONS);
}

export function transferOf(input: GridInput, schedule: GridSchedule): GridSchedule["transfer"] {
  if (schedule.transfer === "engine") return "engine";
  return schedule.transfer === "async" && input.asyncWidth !== undefined ? "async" : "plain";
}

/** How a step's tile of an input is copied. */
export interface InputCopy {
  /** Pieces of a thread; 0 where an engine copies. */
  readonly pieces: number;
  /** Share of them that read anything. */
  readonly live: number;
  /** Bytes fetched over bytes used. */
  readonly over: number;
}

/** The cost of bringing in both tiles of a step. */
interface Copies {
  readonly inputs: readonly InputCopy[];
  /** Warp instructions. */
  readonly instructions: number;
  /** Cycles of stores into shared memory. */
  readonly stores: number;
  /** Bytes from the last cache. */
  readonly fetched: number;
  /** Lines looked up in the first cache. */
  readonly lines: number;
  /** Cycles that a step waits for them. */
  readonly wait: number;
}

function copiesOf(
  context: GridContext,
  schedule: GridSchedule,
  target: Target,
  { together, ahead }: { readonly together: number; readonly ahead: number },
): Copies {
  const { inputs, sum, limits } = context;
  const warps = threadsOf(context, schedule) / limits.lanes;
  const sharedRate = readRate(target, "shared", "block")?.value ?? 1;
  const window = windowOf(context, schedule);
  const latencyOf = (completes: "group" | "barrier"): number =>
    memoryOf(target, "dram").copies?.find((c) => c.completes === completes)?.latencyCycles?.value ?? COPY_LATENCY;
  /** The latency of an asynchronous copy is spread over the steps of the stages in between. */
  const hidden = Math.max(1, ahead);
  const box = boxOf(context, schedule);
  const all = inputs.map((input): Copies => {
    const bytes = bytesOf(input.operand.dtype);
    if (box?.input === input) return boxCopies(context, schedule, box, sharedRate, warps);
    // Data staged once serves all taps.
    const staged = input === window?.input ? window.staged / window.taps : extentOf(input.kept.axis, schedule.tile);
    const along = extentOf(sum.axis, schedule.tile);
    const written = staged * along * bytes;
    const how = transferOf(input, schedule);
    // One thread starts the engine's copy. The last cache reads whole lines, once for all blocks of a cluster that share them; all
    // elements arrive at each block.
    if (how === "engine")
      return {
        inputs: [{ pieces: 0, live: 1, over: 1 }],
        instructions: 0,
        stores: written / sharedRate,
        fetched: Math.max(
          written,
          tileCopy(context, input, staged, along, input.width).lineBytes / sharersOf(context, schedule, input),
        ),
        lines: 0,
        wait: latencyOf("barrier") / hidden,
      };
    const width = how === "async" ? (input.asyncWidth ?? 1) : input.width;
    const copy = tileCopy(context, input, staged, along, width);
    // Asynchronous copies of 16 bytes bypass the first cache.
    const passes = how === "async" && width * bytes >= PIECE_BYTES;
    const far = passes ? copy.fetchedBytes : farBytes(context, schedule, input, copy, together);
    const place = placeOf(context, schedule.persistent !== undefined, input);
    const isLoop = Math.ceil(copy.accesses / warps) > MOST_WRITTEN_OUT;
    const live = copy.live * place.inside;
    const looped = isLoop ? LOOP_INSTRUCTIONS + LOOP_DIGIT_INSTRUCTIONS * place.digits : 0;
    // What a tile is made of arrives as an asynchronous copy does.
    const arriving = stagedReads(context, schedule, input);
    const rows = extentOf(input.kept.axis, schedule.tile);
    const brought = sumOf(arriving, (read) => rows * read.columns * bytesOf(read.dtype));
    const sectors = sumOf(arriving, (read) => rows * Math.ceil((read.columns * bytesOf(read.dtype)) / SECTOR_BYTES));
    const looked = rows * arriving.filter((read) => read.width * bytesOf(read.dtype) < PIECE_BYTES).length;
    if (madeInRegisters(context, schedule, input))
      return {
        inputs: [
          {
            pieces: copy.accesses / warps,
            live: copy.live / copy.accesses,
            over: copy.fetchedBytes / Math.max(1, copy.usedBytes),
          },
        ],
        instructions: (PIECE_INSTRUCTIONS.async * brought) / (PIECE_BYTES * limits.lanes),
        stores: brought / sharedRate,
        fetched: sectors * SECTOR_BYTES,
        lines: looked,
        wait: latencyOf("group") / hidden,
      };
    const made = input.reads.length > 0 ? MADE_INSTRUCTIONS.moved * width + READ_INSTRUCTIONS * input.reads.length : 0;
    const instructions =
      live * (PIECE_INSTRUCTIONS[how] + made + (arriving.length > 0 ? 0 : place.instructions)) +
      (copy.accesses - live) * OUTSIDE_INSTRUCTIONS +
      copy.accesses * looped;
    // Of the loads in flight together, a single miss makes the whole group wait.
    const inFlight = LOADS_IN_FLIGHT[isLoop ? "loop" : "writtenOut"][place.isTested ? "tested" : "untested"];
    const missing = Math.min(1, (inFlight * far) / SECTOR_BYTES / Math.max(1, copy.lines));
    const turn = NEAR_LATENCY + missing * (COPY_LATENCY - NEAR_LATENCY);
    const over = copy.fetchedBytes / Math.max(1, copy.usedBytes);
    return {
      inputs: [{ pieces: copy.accesses / warps, live: copy.live / copy.accesses, over }],
      instructions,
      // The fill for elements outside the tensor is stored too.
      stores: Math.max(copy.accesses, written / sharedRate),
      fetched: arriving.length > 0 ? sectors * SECTOR_BYTES : far * place.inside,
      lines: arriving.length > 0 ? looked : copy.lines * place.inside,
      wait: how === "async" || arriving.length > 0 ? latencyOf("group") / hidden : (live / warps / inFlight) * turn,
    };
  });
  const total = (of: (c: Copies) => number): number => sumOf(all, (c) => of(c));
  const isPlain = (input: GridInput): boolean =>
    transferOf(input, schedule) === "plain" && stagedReads(context, schedule, input).length === 0;
  const plain = all.filter((_, i) => inputs[i] && isPlain(inputs[i]));
  // The waits for plain copies add up; other copies wait together.
  const behind =
    plain.length === 0
      ? 0
      : Math.max(
          COPY_LATENCY,
          sumOf(plain, (c) => c.wait),
        );
  return {
    inputs: all.flatMap((c) => c.inputs),
    instructions: total((c) => c.instructions),
    stores: total((c) => c.stores),
    fetched: total((c) => c.fetched),
    lines: total((c) => c.lines),
    wait: Math.max(behind, ...all.filter((c) => !plain.includes(c)).map((c) => c.wait)),
  };
}

/** The share of one step in the box that all steps read. The box is staged and awaited before the first step. */
function boxCopies(
  context: GridContext,
  schedule: GridSchedule,
  { input, elements, width, dims }: GatherBox,
  sharedRate: number,
  warps: number,
): Copies {
  const steps = stepsOfPart(context, schedule);
  const bytes = elements * bytesOf(input.operand.dtype);
  const accesses = elements / width / context.limits.lanes;
  // Rows of the innermost dimension are scattered: 8 channels of 256 are 16 bytes of a sector, and a line each.
  const row = (dims.at(-1)?.staged ?? 1) * bytesOf(input.operand.dtype);
  const rows = bytes / row;
  const each = Math.ceil(accesses / warps) > MOST_WRITTEN_OUT ? LOOP_INSTRUCTIONS : PIECE_INSTRUCTIONS.plain;
  const place = placeOf(context, false, input);
  const inFlight = LOADS_IN_FLIGHT.writtenOut.tested;
  return {
    inputs: [{ pieces: accesses / warps / steps, live: 1, over: 1 }],
    instructions: (accesses * (each + place.instructions)) / steps,
    stores: Math.max(accesses, bytes / sharedRate) / steps,
    fetched: (rows * Math.ceil(row / SECTOR_BYTES) * SECTOR_BYTES) / steps,
    lines: Math.max(accesses, rows * Math.ceil(row / LINE_BYTES)) / steps,
    wait: (COPY_LATENCY * Math.max(1, accesses / warps / inFlight)) / steps,
  };
}

/** The cost of finding a piece's position in an input and whether it lies inside. */
interface Place {
  readonly instructions: number;
  /** Loops that the kept index is split into. */
  readonly digits: number;
  /** Whether the test gives different results for different pieces of a thread. */
  readonly isTested: boolean;
  /** Approximate fraction of pieces that exist: phases of a filter without a tap do not. */
  readonly inside: number;
}

const places = memoisedBy<GridContext, Place>();

/** Cached by mapping. */
function placeOf(context: GridContext, takesTurns: boolean, input: GridInput): Place {
  return places(context, `${input.operand.name} ${takesTurns}`, () => findPlace(context, takesTurns, input));
}

function findPlace({ mapping, sum }: GridContext, takesTurns: boolean, { value, kept, conditions }: GridInput): Place {
  const { computation } = mapping;
  const extents = extentsOf(computation);
  const keptLoops = kept.dimension?.loops.filter((l) => l.extent > 1) ?? [];
  let sides = conditions.length + (value.kind === "access" ? 0 : 2);
  let isTested = conditions.length > 0;
  let inside = 1;
  for (const { tensor, index } of accessesIn(value)) {
    const { dims } = tensorOf(computation, tensor);
    for (const [i, e] of index.entries()) {
      const extent = dims[i]?.extent ?? 1;
      const [least, most] = boundsOf(e, extents);
      const open = (least < 0 ? 1 : 0) + (most >= extent ? 1 : 0);
      sides += open;
      inside *= Math.min(1, extent / (most - least + 1));
      isTested ||= open > 0 && axesIn(e).some((name) => hasName(keptLoops, name));
    }
  }
  const fused = ({ dimension }: GridAxis): number =>
    Math.max(0, (dimension?.loops.filter((l) => l.extent > 1).length ?? 0) - 1);
  const along = (sum.dimension?.steps ?? 1) > 1 ? fused(sum) * DIGIT_INSTRUCTIONS : 0;
  const perKept = takesTurns ? DIGIT_INSTRUCTIONS : KEPT_DIGIT_INSTRUCTIONS;
  return {
    digits: keptLoops.length,
    isTested,
    inside,
    instructions: sides * TEST_INSTRUCTIONS + along + fused(kept) * perKept,
  };
}

/**
 * Bytes of a step that come from the last cache. Data that the blocks of a multiprocessor read from an input in all their steps, or in one,
 * stays in the first cache if it fits.
 */
function farBytes(
  context: GridContext,
  schedule: GridSchedule,
  { value }: GridInput,
  { fetchedBytes, usedBytes }: TileCopy,
  together: number,
): number {
  const [access] = accessesIn(value);
  const tensor = access && tensorOf(context.mapping.computation, access.tensor);
  const room = FIRST_CACHE_BYTES / together - sharedBytesOf(context, schedule);
  const steps = stepsOfPart(context, schedule);
  const all = Math.min(usedBytes * steps, tensor ? memoryElements(tensor) * bytesOf(tensor.dtype) : 0);
  if (all <= room) return all / steps;
  return fetchedBytes <= room ? usedBytes : fetchedBytes;
}

/** Reads of shared memory for each fragment of a box: conflicts of banks counted, and without those that stay in registers. */
function boxReads(context: GridContext, schedule: GridSchedule, { input, inRows, kept, dims }: GatherBox): number {
  if (!inRows) return GATHERED_READS;
  const inner = kept.at(-1)?.name ?? "";
  const apart = sumOf(dims, (d) => d.weight * (d.form.terms.get(inner) ?? 0)) * bytesOf(input.operand.dtype);
  const banks = upTo(8).map((row) => ((row * apart) / PIECE_BYTES) % 8);
  const conflicts = Math.max(...banks.map((bank) => banks.filter((other) => other === bank).length));
  const rolled = schedule.fragments === "rolled" ? rolledOf(context, schedule) : undefined;
  if (typeof rolled !== "object") return conflicts;
  return (conflicts * (rolled.count + rolled.taps - 1)) / (rolled.count * rolled.taps);
}

/** Bank conflicts of reading eight rows at once: rows of 128 bytes or more all begin in the same bank unless they are swizzled. */
function conflictsOf({ sum }: GridContext, schedule: GridSchedule, { operand, kept, contiguous }: GridInput): number {
  if (schedule.swizzle !== "plain") return 1;
  const row = extentOf((contiguous === "sum" ? sum : kept).axis, schedule.tile);
  return Math.min(8, Math.max(1, (row * bytesOf(operand.dtype)) / PIECE_BYTES));
}
