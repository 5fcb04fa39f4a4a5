/**
 * @file Predicts the time of a lane kernel from the instructions that a block issues and the bytes that move.
 *
 *     one block     multiply-adds, loads (two where a vector straddles two cache lines), shuffles, stores: what is slowest decides
 *     all bytes     over the bandwidth of the level that holds them; around the caches when results stream
 *
 * Costs of multiply-adds and shifts that take several instructions: integers, and 16-bit lanes. The models of windows and of transformed
 * designs share them.
 */

import { gcd } from "../abstraction/affine.ts";
import type { WindowSchedule } from "../abstraction/candidate.ts";
import { memoisedBy } from "../abstraction/collections.ts";
import { elementCount } from "../abstraction/computation.ts";
import { bytesOf, type DType, isInteger } from "../abstraction/dtype.ts";
import { unitCost } from "../abstraction/machine.ts";
import { DISTANT_BYTES } from "../mapper/schedule/lanes.ts";
import { stepsKept, type TapSum } from "../mapper/space-time/taps.ts";
import type { WindowPlacement } from "../mapper/space-time/window.ts";
import { movedShift, outputRows, shiftText, type Tall } from "../mapper/space-time/window-block.ts";
import { isLoadedBeside, lineRows } from "../mapper/space-time/window-lines.ts";
import { REFERENCE_CPU, ZMM } from "../targets/x86.ts";
import { L1_WAYS, SET_BYTES } from "./footprint.ts";
import { overlapped, ratesOf } from "./rates.ts";
import type { MemoryLevel, ModelTarget } from "./target.ts";

/** Multiply-adds on 512-bit vectors, where they are not calibrated. */
const FMA = unitCost(REFERENCE_CPU, "fma");

// Fitted to kernels of bench/lanes/stencils.ts, one core of a Xeon at 3.7 GHz, 2026-11-21 (bench/results/stencils-xeon.md).

/** Fraction of load cycles that adds to the slowest resource: among blocks of a 9x9 filter, those with fewer loads were faster. */
export const LOADS_SHOWING = 0.3;
/**
 * Cost of a crossing beside a load that crosses no line: 0.48 ns against 0.29 in the first-level cache. Loads of lines do
 * not show: with every second column loaded, 4 vectors of a filter of 9 take 35.7 cycles for 36 products (an EPYC of
 * Zen 4, 2026-11-23).
 */
const CROSSED = 0.65;
/** Fraction of the smaller of arithmetic and transfers that does not overlap with the larger. */
export const NOT_OVERLAPPED = 0.15;
/**
 * Rows of a power-of-two length share sets of the first-level cache. Where they fill its ways, they evict the lines that the
 * next block reads again at its beginning: the cost, by vectors of a block. Of 2d5pt over 8192 columns, 8 rows x 1 vector
 * take 1.5 times as long as 4 x 2, and 8 x 2 take 1.15; of 3d7pt, 4 planes x 2 rows x 2 vectors take 1.25 times as long as
 * 4 x 1 x 2 (a Zen 4, 2026-11-23).
 */
const CROWDED = 0.4;
/** Cost of the ends of a block, by its vectors: 2d5pt in 4 rows x 4 vectors takes 0.92 of 4 x 2 (a Zen 4, 2026-11-23). */
const ENDS = 0.15;
/** Fraction of a plane that is read again when it has left the second-level cache before the next step uses it. */
const PLANE_READ_AGAIN = 0.3;
/** Fraction of the second-level cache that the planes of a window may fill. */
const PLANES_SHARE = 1 / 2;
/** Factor for transfers without prefetching. */
const UNPREFETCHED = 1.05;
/**
 * Fraction of a cache that tensors may fill and still be there at the next call. 3d7pt with 16 MB beside a third-level
 * cache of 32 MB takes 1268 us with plain stores, as from memory, and 380 us with streaming ones (a Zen 4, 2026-11-23).
 */
const RESIDENT_SHARE = 1 / 2;
/**
 * Fraction of the first-level cache that the rows of a block may fill and still be there for the next block of rows: 3d7pt
 * in 4 planes x 1 row, whose rows are 28 KB, runs at 0.97 times the pace of 3 planes (512^3, a Zen 4, 2026-11-23).
 */
const ROWS_SHARE = 7 / 8;
/** Fraction of the time of rows that come from the second-level cache again, which distant prefetching leaves, and without it. */
const REFILL_SHOWING = { distant: 0.5, near: 1 } as const;
/** Each row of a block is a separate memory stream, in and out. This is the cost of each stream beyond the first two. */
const STREAM_COST = 0.08;
const FREE_STREAMS = 2;
/** Used when a target does not state the size of its second-level cache. */
const USUAL_L2_BYTES = 2 ** 20;

/** Seconds of a call. */
export function laneSeconds(sum: TapSum, s: WindowSchedule, placement: WindowPlacement, target: ModelTarget): number {
  const reads = readsOf(sum, s);
  const inSet = reads.rows / (SET_BYTES / gcd(pitchOf(sum), SET_BYTES));
  const crowded = inSet >= L1_WAYS && s.lines !== "carried" ? CROWDED : 0;
  const ends = 1 + (crowded + ENDS) / s.vectors;
  const outputs = outputRowsOf(s) * s.vectors * placement.outputs;
  const block = blockCycles(sum, s, placement, target, reads);
  const compute = (block * elementCount(sum.output)) / outputs;
  const memory = transferCycles(sum, s, target);
  const refill = refillCycles(sum, s, target, reads);
  const cycles = overlapped(compute, memory, NOT_OVERLAPPED) + refill;
  return (cycles * ends) / target.clockHz.value / s.threads;
}

function blockCycles(
  sum: TapSum,
  s: WindowSchedule,
  placement: WindowPlacement,
  target: ModelTarget,
  reads: Reads,
): number {
  const { rows, places } = reads;
  const { dtype } = sum.output;
  const { issueCycles, latencyCycles } = target.timings[`avx512.fma.${dtype}`] ?? FMA;
  // Operations of a multiply-add and of a shift, in those of one instruction.
  const operations = (multiplyAddCycles(dtype) ?? FMA.issueCycles) / FMA.issueCycles;
  const ofShift = (shiftCycles(dtype) ?? SHUFFLE_CYCLES) / SHUFFLE_CYCLES;
  const repeats = stepsKept(sum);
  const vectors = outputRowsOf(s) * s.vectors;
  const fmas = repeats * sum.taps.length * vectors;
  // Unaligned vectors as long as a cache line straddle two lines; of half that length, every second one does.
  const crossing = Math.min(1, (s.lanes * bytesOf(dtype)) / ZMM.bytes);
  const straddling = crossing * (1 - 1 / sum.columns);
  const lined = s.lines === undefined ? undefined : lineWork(sum, s, crossing);
  const plainLoads =
    placement.data === "loaded" ? repeats * places * s.vectors * (1 + straddling) : rows * s.vectors * 2;
  const weightLoads = s.weights === "registers" ? (repeats > 1 ? fmas / vectors : 0) : fmas / s.vectors;
  const shuffles = ofShift * (lined?.shifts ?? s.vectors * movesOf(sum, outputRowsOf(s), placement, reads));
  const loads = ((lined?.loads ?? plainLoads) + weightLoads) / target.loadsPerCycle.value;
  const slowest = Math.max(
    fmas * operations * issueCycles,
    portCycles(fmas * operations, shuffles, issueCycles),
    shuffles * SHUFFLE_CYCLES,
    loads,
    vectors / target.storesPerCycle.value,
    (((isInteger(dtype) ? ADDITION_LATENCY : latencyCycles) * fmas) / vectors) * FMA.issueCycles,
  );
  return slowest + (lined ? 0 : LOADS_SHOWING * Math.min(loads, slowest));
}

/**
 * What a block does where its rows come as lines: loads, of whole lines and of columns beside them, and shifts. Lines of
 * rows whose length is no whole number of lines lie across those of the cache.
 */
function lineWork(
  sum: TapSum,
  s: WindowSchedule,
  crossing: number,
): { readonly loads: number; readonly shifts: number } {
  const across = pitchOf(sum) % ZMM.bytes === 0 || sum.input.dims.length === 1 ? 1 : 1 + CROSSED * crossing;
  let loads = 0;
  let shifts = 0;
  for (const { columns, kept } of lineRows(sum, s)) {
    loads += (s.vectors + (s.lines === "carried" ? 0 : kept)) * across;
    for (const column of columns)
      if (isLoadedBeside(column, s)) loads += s.vectors * (1 + CROSSED * crossing);
      else if (column % s.lanes !== 0) shifts += s.vectors;
  }
  return { loads, shifts };
}

/** Cycles to move every row and plane once, or more often when the planes of a window do not stay in the cache. */
function transferCycles(sum: TapSum, s: WindowSchedule, target: ModelTarget): number {
  const bytes = bytesOf(sum.output.dtype);
  const inBytes = elementCount(sum.input) * bytes;
  const outBytes = elementCount(sum.output) * bytes;
  const level = levelOf(sum, s, target);
  const [least, most] = (sum.shifts.length > 2 && sum.shifts[0]) || [0, 0];
  const reach = most - least + 1;
  const planes = reach + (s.planes ?? 1) - 1;
  // Strips read the rows around them again. Of a whole plane, or of a strip, all planes are to stay in the cache.
  const plane = inBytes / (sum.input.dims[0]?.extent ?? 1);
  const row = plane / (sum.input.dims[sum.rowDimension ?? 0]?.extent ?? 1);
  const [above, below] = sum.shifts[sum.rowDimension ?? 0] ?? [0, 0];
  const high = s.strip * s.rows;
  const held = planes * (s.strip === 0 ? plane : (high + below - above) * row);
  const l2 = target.memory[1]?.bytes ?? USUAL_L2_BYTES;
  const again = reach > 1 && held > l2 * PLANES_SHARE ? (reach - 1) * PLANE_READ_AGAIN : 0;
  const around = s.strip === 0 ? 0 : (below - above) / high;
  const readBytes = inBytes * (1 + again + around);
  const { read, write } = ratesOf(level, s.streaming, target);
  const isSlowed = level?.bytes === undefined && s.prefetchBytes < DISTANT_BYTES;
  const streams = isSlowed ? 1 + STREAM_COST * Math.max(0, outputRowsOf(s) - FREE_STREAMS) : 1;
  return (readBytes / read + outBytes / write) * (s.prefetchBytes === 0 ? UNPREFETCHED : 1) * streams;
}

/** The memory in which a call finds its data: the last call left there what it read, and what it did not stream. */
function levelOf(sum: TapSum, { streaming }: WindowSchedule, target: ModelTarget): MemoryLevel | undefined {
  const left = (elementCount(sum.input) + (streaming ? 0 : elementCount(sum.output))) * bytesOf(sum.output.dtype);
  const holds = ({ bytes }: MemoryLevel): boolean => bytes !== undefined && bytes * RESIDENT_SHARE > left;
  return target.memory.find(holds) ?? target.memory.at(-1);
}

/** Cycles to move rows from the second-level cache to the first again, where blocks before have read them. */
function refillCycles(sum: TapSum, s: WindowSchedule, target: ModelTarget, reads: Reads): number {
  const [l1, l2] = target.memory;
  if (!l1?.bytes || !l2?.bytes || sum.rowAxis === undefined) return 0;
  const rows = reads.rows * pitchOf(sum) > l1.bytes * ROWS_SHARE ? reads.rows : reads.fresh;
  const again = Math.max(0, rows / outputRowsOf(s) - 1);
  const isDistant = s.prefetchBytes >= DISTANT_BYTES && levelOf(sum, s, target)?.bytes === undefined;
  const bytes = again * elementCount(sum.output) * bytesOf(sum.output.dtype);
  return (REFILL_SHOWING[isDistant ? "distant" : "near"] * bytes) / l2.readBytesPerCycle.value;
}

/** Bytes of a row of the input. */
const pitchOf = ({ input }: TapSum): number => (input.dims.at(-1)?.extent ?? 1) * bytesOf(input.dtype);

/** Rows of outputs of a block, in all its planes. */
const outputRowsOf = ({ rows, planes = 1 }: WindowSchedule): number => rows * planes;

/** Shifts of a column of vectors: sums move from column to column of a window, data to each that uses their row. */
export function movesOf(
  { columns }: TapSum,
  outputs: number,
  { data, sumHop, dataHop }: WindowPlacement,
  { moves }: Reads,
): number {
  return (sumHop === 0 ? 0 : outputs * (columns - 1)) + (data === "loaded" || dataHop === 0 ? 0 : moves);
}

/** Distinct rows of the input that a block reads, and the positions in them at which a vector begins. */
export interface Reads {
  readonly rows: number;
  /** Places beside those in the first column. */
  readonly moves: number;
  /** Rows that the block of rows before has not read. */
  readonly fresh: number;
  readonly places: number;
}

const known = memoisedBy<TapSum, Reads>();

/** Cached, since a search asks the same few questions for thousands of schedules. */
export function readsOf(sum: TapSum, { rows, planes = 1 }: Pick<WindowSchedule, "rows" | "planes">): Reads {
  return known(sum, `${rows} ${planes}`, () => findReads(sum, { rows, planes }));
}

function findReads(sum: TapSum, tall: Tall): Reads {
  const rows = new Set<string>();
  const before = new Set<string>();
  const places = new Set<string>();
  const firsts = new Set<string>();
  const [first] = sum.shifts.at(-1) ?? [0];
  for (const { shift } of sum.taps) {
    const last = shift.at(-1);
    for (const { row, plane } of outputRows(tall)) {
      const moved = movedShift(sum, shift, { row, plane });
      rows.add(shiftText(moved.slice(0, -1)));
      before.add(shiftText(movedShift(sum, shift, { row: row - tall.rows, plane }).slice(0, -1)));
      places.add(shiftText(moved));
      if (last?.kind === "number" && last.value === first) firsts.add(shiftText(moved));
    }
  }
  const fresh = [...rows].filter((row) => !before.has(row)).length;
  return { rows: rows.size, moves: places.size - firsts.size, fresh, places: places.size };
}

/** VPMULLD is two operations on port 0, and an addition follows. Source: LLVM's scheduling model of Sapphire Rapids. */
const INTEGER_CYCLES = 1.5;
/** VPMULLW and VPADDW, each on either vector port. Source: LLVM's scheduling model of Sapphire Rapids. */
const WORD_CYCLES = 1;
/** A shift of words by an odd number: VALIGNQ and VPALIGNR, or two of the first. Source: the same. */
export const WORD_SHIFT = { issueCycles: 2, latencyCycles: 4 };
/** A sum of integers waits only for the addition. */
export const ADDITION_LATENCY = 1;

/** Cycles of a multiply-add on lanes of a type; undefined for those of one instruction. */
export function multiplyAddCycles(dtype: DType): number | undefined {
  if (!isInteger(dtype)) return undefined;
  return bytesOf(dtype) === 2 ? WORD_CYCLES : INTEGER_CYCLES;
}

/** Cycles of a shift of whole vectors on lanes of a type; undefined for those of one instruction. */
function shiftCycles(dtype: DType): number | undefined {
  return bytesOf(dtype) === 2 ? WORD_SHIFT.issueCycles : undefined;
}

/** Cycles of a shuffle of a whole register. */
const SHUFFLE_CYCLES = 1;
/**
 * Multiply-adds and shuffles of 512 bits share ports. With two multiply-adds a cycle and one shuffle, that of the shuffles is one of
 * the two; Zen 4 takes two cycles of one of three ports for either, two of which multiply and two of which shuffle.
 */
const PORTS = 3;

/** Cycles that operations take on the ports they share. @param issueCycles of a multiply-add */
export const portCycles = (multiplyAdds: number, shuffles: number, issueCycles: number): number =>
  ((multiplyAdds + shuffles) * (issueCycles + SHUFFLE_CYCLES)) / PORTS;
