/**
 * @file Predicts the time of a lane kernel from the instructions that a block issues and the bytes that move.
 *
 *     one block     multiply-adds, loads (two where a vector straddles two cache lines), shuffles, stores: what is slowest decides
 *     all bytes     over the bandwidth of the level that holds them; around the caches when results stream
 */

import type { LaneSchedule } from "../abstraction/candidate.ts";
import { elementCount, extentsOf } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { printExpr } from "../abstraction/expression.ts";
import { unitCost } from "../abstraction/machine.ts";
import type { TapSum } from "../mapper/space-time/taps.ts";
import type { WindowPlacement } from "../mapper/space-time/window.ts";
import { isLoadedBeside, lineRows } from "../mapper/space-time/window-lines.ts";
import { REFERENCE_CPU, ZMM } from "../targets/x86.ts";
import { L1_WAYS, SET_BYTES } from "./footprint.ts";
import type { ModelTarget } from "./target.ts";

/** Multiply-adds on 512-bit vectors, where they are not calibrated. */
const FMA = unitCost(REFERENCE_CPU, "fma");
/**
 * Multiply-adds and shuffles share ports. With two multiply-adds a cycle and one shuffle, that of the shuffles is one of
 * the two; Zen 4 takes two cycles of one of three ports for either, two of which multiply and two of which shuffle.
 */
const PORTS = 3;
const SHUFFLE_CYCLES = 1;

// Fitted to kernels of bench/stencils.ts, one core of a Xeon at 3.7 GHz, 2026-11-21 (bench/results/stencils-xeon.md).

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
/** Rows of a power-of-two length share sets of the first-level cache. When they outnumber its ways they evict one another. */
const CROWDED = 1.1;
/** Fraction of a plane that is read again when it has left the second-level cache before the next step uses it. */
const PLANE_READ_AGAIN = 0.3;
/** Fraction of the second-level cache that the planes of a window may fill. */
const PLANES_SHARE = 1 / 2;
/** Streaming stores run at memory speed without fetching the lines they replace: 25 compared with 16 GB/s of reads. */
export const STREAMED_TO_READ = 1.5;
/** Factor for transfers without prefetching. */
const UNPREFETCHED = 1.05;
/** Each row of a block is a separate memory stream, in and out. This is the cost of each stream beyond the first two. */
const STREAM_COST = 0.08;
const FREE_STREAMS = 2;
/** Used when a target does not state the size of its second-level cache. */
const USUAL_L2_BYTES = 2 ** 20;

/** Seconds of a call. */
export function laneSeconds(sum: TapSum, s: LaneSchedule, placement: WindowPlacement, target: ModelTarget): number {
  const pitch = (sum.input.dims.at(-1)?.extent ?? 1) * bytesOf(sum.input.dtype);
  const reads = readsOf(sum, s);
  const crowded = pitch % SET_BYTES === 0 && reads.rows > L1_WAYS ? CROWDED : 1;
  const outputs = s.rows * s.vectors * placement.outputs;
  const block = blockCycles(sum, s, placement, target, reads);
  const compute = (block * crowded * elementCount(sum.output)) / outputs;
  const memory = transferCycles(sum, s, target);
  const cycles = Math.max(compute, memory) + NOT_OVERLAPPED * Math.min(compute, memory);
  return cycles / target.clockHz.value / s.threads;
}

function blockCycles(
  sum: TapSum,
  s: LaneSchedule,
  { data, sumHop, dataHop }: WindowPlacement,
  target: ModelTarget,
  { rows, places }: Reads,
): number {
  const { issueCycles, latencyCycles } = target.timings[`avx512.fma.${sum.output.dtype}`] ?? FMA;
  const extents = extentsOf(sum.computation);
  const repeats = sum.rolled.reduce((n, name) => n * (extents[name] ?? 1), 1);
  const vectors = s.rows * s.vectors;
  const fmas = repeats * sum.taps.length * vectors;
  // Unaligned vectors as long as a cache line straddle two lines; of half that length, every second one does.
  const crossing = Math.min(1, (s.lanes * bytesOf(sum.output.dtype)) / ZMM.bytes);
  const straddling = crossing * (1 - 1 / sum.columns);
  const lined = s.lines === undefined ? undefined : lineWork(sum, s, crossing);
  const plainLoads = data === "loaded" ? repeats * places * s.vectors * (1 + straddling) : rows * s.vectors * 2;
  const weightLoads = s.weights === "registers" ? (repeats > 1 ? fmas / vectors : 0) : fmas / s.vectors;
  const moving = (sumHop === 0 ? 0 : s.rows) + (data === "loaded" || dataHop === 0 ? 0 : rows);
  const shuffles = lined?.shifts ?? (sum.columns - 1) * s.vectors * moving;
  const loads = ((lined?.loads ?? plainLoads) + weightLoads) / target.loadsPerCycle.value;
  const slowest = Math.max(
    fmas * issueCycles,
    ((fmas + shuffles) * (issueCycles + SHUFFLE_CYCLES)) / PORTS,
    shuffles * SHUFFLE_CYCLES,
    loads,
    vectors / target.storesPerCycle.value,
    ((latencyCycles * fmas) / vectors) * FMA.issueCycles,
  );
  return slowest + (lined ? 0 : LOADS_SHOWING * Math.min(loads, slowest));
}

/**
 * What a block does where its rows come as lines: loads, of whole lines and of columns beside them, and shifts. Lines of
 * rows whose length is no whole number of lines lie across those of the cache.
 */
function lineWork(sum: TapSum, s: LaneSchedule, crossing: number): { readonly loads: number; readonly shifts: number } {
  const pitch = (sum.input.dims.at(-1)?.extent ?? 1) * bytesOf(sum.input.dtype);
  const across = pitch % ZMM.bytes === 0 || sum.input.dims.length === 1 ? 1 : 1 + CROSSED * crossing;
  let [loads, shifts] = [0, 0];
  for (const { columns, kept } of lineRows(sum, s)) {
    loads += (s.vectors + (s.lines === "carried" ? 0 : kept)) * across;
    for (const column of columns)
      if (isLoadedBeside(column, s)) loads += s.vectors * (1 + CROSSED * crossing);
      else if (column % s.lanes !== 0) shifts += s.vectors;
  }
  return { loads, shifts };
}

/** Cycles to move every row and plane once, or more often when the planes of a window do not stay in the cache. */
function transferCycles(sum: TapSum, s: LaneSchedule, target: ModelTarget): number {
  const bytes = bytesOf(sum.output.dtype);
  const [inBytes, outBytes] = [elementCount(sum.input) * bytes, elementCount(sum.output) * bytes];
  const last = target.memory.at(-1);
  const level = target.memory.find((m) => m.bytes !== undefined && m.bytes >= inBytes + outBytes) ?? last;
  const [least, most] = (sum.shifts.length > 2 && sum.shifts[0]) || [0, 0];
  const planes = most - least + 1;
  // Strips read the rows around them again. Of a whole plane, or of a strip, all planes are to stay in the cache.
  const plane = inBytes / (sum.input.dims[0]?.extent ?? 1);
  const row = plane / (sum.input.dims[sum.rowDimension ?? 0]?.extent ?? 1);
  const [above, below] = sum.shifts[sum.rowDimension ?? 0] ?? [0, 0];
  const high = s.strip * s.rows;
  const held = planes * (s.strip === 0 ? plane : (high + below - above) * row);
  const l2 = target.memory[1]?.bytes ?? USUAL_L2_BYTES;
  const again = planes > 1 && held > l2 * PLANES_SHARE ? (planes - 1) * PLANE_READ_AGAIN : 0;
  const around = s.strip === 0 ? 0 : (below - above) / high;
  const readBytes = inBytes * (1 + again + around);
  const read = level?.readBytesPerCycle.value ?? 1;
  const write = s.streaming
    ? STREAMED_TO_READ * (last?.readBytesPerCycle.value ?? read)
    : (level?.writeBytesPerCycle.value ?? 1);
  const streams = level?.bytes === undefined ? 1 + STREAM_COST * Math.max(0, s.rows - FREE_STREAMS) : 1;
  return (readBytes / read + outBytes / write) * (s.prefetchBytes === 0 ? UNPREFETCHED : 1) * streams;
}

/** Distinct rows of the input that a block reads, and the positions in them at which a vector begins. */
export interface Reads {
  readonly rows: number;
  readonly places: number;
}

export function readsOf({ taps, rowDimension }: TapSum, s: LaneSchedule): Reads {
  const [rows, places] = [new Set<string>(), new Set<string>()];
  for (const { shift } of taps) {
    const texts = shift.map((e) => (e.kind === "number" ? e.value : printExpr(e)));
    const column = texts.pop() ?? "";
    for (let i = 0; i < s.rows; i++) {
      const moved = texts.map((e, d) => (d !== rowDimension ? e : typeof e === "number" ? e + i : `${e}+${i}`)).join();
      rows.add(moved);
      places.add(`${moved} ${column}`);
    }
  }
  return { rows: rows.size, places: places.size };
}
