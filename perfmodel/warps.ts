/**
 * @file Predicts the time of a window on GPU warps: the instructions that a quarter of a multiprocessor issues for one block of outputs, and the
 * bytes moved.
 *
 *     time = launch + the longer of blocks / quarters * cycles of a block / clock and bytes / bandwidth, and a part of the shorter
 *
 * Warps of other blocks hide latencies, so a kernel is limited by what it issues or by what it reads and writes.
 */

import type { WarpWindowSchedule } from "../abstraction/candidate.ts";
import { sumOf } from "../abstraction/collections.ts";
import { elementCount } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { WARP } from "../abstraction/intrinsic.ts";
import { memoryOf, type Target } from "../abstraction/machine.ts";
import { USUAL_WARPS } from "../mapper/schedule/lane-decisions.ts";
import { shiftAt, stepsKept, type TapSum } from "../mapper/space-time/taps.ts";
import { QUARTER_WARPS, warpsHolding } from "../mapper/space-time/warp-tile.ts";
import type { WindowPlacement } from "../mapper/space-time/window.ts";
import { dividedPairs, isTested, piecesOf, sweepRegisters, sweptAxis } from "../mapper/space-time/window-sweep.ts";
import { laneCosts } from "../targets/lanes.ts";
import { movesOf, readsOf } from "./lanes.ts";
import { launchOf, overlapped, quartersOf, rateOn, staysNear } from "./rates.ts";
import { WORD_BYTES } from "./vector-census.ts";

// Fitted to cuda-picked-lanes-h200, cuda-filters-h100 and cuda-stencils-h100 of bench/trials, 2026-11-29; cuda-filters-h200 was not seen.

/**
 * Issue cycles of a load: the instruction, its address and bounds, and the lines it shares with its neighbours; and those of a load of several
 * elements.
 */
const LOAD_TURNS = 5;
export const WIDE_LOAD_TURNS = 9;
export const SHUFFLE_TURNS = 3;
/** Instructions that a load is compiled to; counted in SASS of filters of 9 and 20. */
const LOAD_INSTRUCTIONS = 3;
/** Weights that fit in uniform registers. Beyond this, weights that rows use one after another are loaded for each product. */
const HELD_WEIGHTS = 60;
const WEIGHT_TURNS = 0.8;
/**
 * Instructions, of 16 bytes each, that warps share near a quarter. Each one beyond costs its fetch; beyond the last cache's capacity all of them
 * do.
 */
const NEAR_INSTRUCTIONS = 2048;
const FETCH_TURNS = 0.7;
const CACHED_INSTRUCTIONS = 7500;
const MISSED_TURNS = 2;
/** Fraction of the shorter of arithmetic and transfers that does not overlap with the longer. */
export const NOT_OVERLAPPED = 0.34;
/** How much longer the last blocks of a quarter take, in blocks. */
const TAIL = 1.2;
/** How much slower memory is for rows far apart, which the blocks of sweeps read at the same time. */
const SWEPT_ROWS = 0.1;
/** How much slower memory is for each row beyond four of overlapping vectors, whose stores straddle lines. */
const STRADDLING_ROW = 0.06 / 16;
const FREE_ROWS = 4;
/** Factor on memory latency under load. */
export const LOADED = 1.3;

/** The work of a warp for one block of outputs. */
export interface Work {
  readonly outputs: number;
  /** Instructions. */
  readonly multiplyAdds: number;
  readonly loads: number;
  /** Rows fetched into the last cache ahead of their loads. */
  readonly fetches: number;
  readonly shuffles: number;
  readonly others: number;
  /** Issue cycles of each load. */
  readonly loadTurns: number;
  /** Requests to the first cache, in units of 128 bytes. */
  readonly lines: number;
  /** Instructions in the generated code, and number of times it runs. */
  readonly written: number;
  readonly passes: number;
  /** Rows of data that are loaded, relative to those that no other block loads. */
  readonly again: number;
  /** How much slower memory is for the block's pattern of reads and writes. */
  readonly apart: number;
  /** Warps that a quarter's registers can hold. */
  readonly warps: number;
}

/** The work of a block, as a closed form: the census of its nest takes 500 times as long. */
export function warpWork(sum: TapSum, s: WarpWindowSchedule, placement: WindowPlacement): Work {
  return s.each === undefined && s.sweep === undefined ? blockWork(sum, s, placement) : sweepWork(sum, s);
}

/** Seconds of a call. */
export function warpSeconds(sum: TapSum, s: WarpWindowSchedule, placement: WindowPlacement, target: Target): number {
  const { multiplyAdd, load } = laneCosts(target);
  const words = bytesOf(sum.output.dtype) / WORD_BYTES;
  const work = warpWork(sum, s, placement);

  // 1. The issue cycles of a block on a quarter; the first cache belongs to the whole multiprocessor.
  const far =
    FETCH_TURNS * Math.max(0, work.written - NEAR_INSTRUCTIONS) +
    (work.written > CACHED_INSTRUCTIONS ? MISSED_TURNS * work.written : 0);
  const issued =
    (work.multiplyAdds * multiplyAdd.issueCycles + work.others) * words +
    work.loads * work.loadTurns +
    work.fetches * LOAD_TURNS +
    work.shuffles * SHUFFLE_TURNS * words +
    far * work.passes;
  const turns = Math.max(issued, work.lines * load.issueCycles * words) / work.passes;

  // 2. Blocks on all quarters: in a pass, a warp waits for its data while others issue.
  const blocks = Math.ceil(elementCount(sum.output) / work.outputs);
  const quarters = quartersOf(target);
  const warps = Math.min(residentOf(work.warps, s.warps), Math.ceil(blocks / quarters));
  const from = s.prefetchSteps === undefined ? "dram" : "l2";
  const latency = LOADED * (memoryOf(target, from).latencyCycles?.value ?? 0);
  const pass = Math.max(warps * turns, turns + latency);
  const waves = Math.max(1, blocks / quarters / warps) * (1 + (tailOf(s.warps) * quarters) / blocks);
  const busy = (waves * work.passes * pass) / (target.clockHz?.value ?? 1);

  // 3. Every element once from memory, rows between blocks from the cache.
  const size = bytesOf(sum.output.dtype);
  const read = elementCount(sum.input) * size;
  const written = elementCount(sum.output) * size;
  const moving = Math.max(
    ((read + written) / rateOn(target, staysNear(target, read + written) ? "l2" : "dram")) * work.apart,
    (read * work.again + written) / rateOn(target, "l2"),
  );
  return launchOf(target) + overlapped(busy, moving, NOT_OVERLAPPED);
}

/** Warps of a quarter when only whole blocks are resident. @param fitting warps that the registers of a quarter hold */
function residentOf(fitting: number, warps = USUAL_WARPS): number {
  const each = warps / USUAL_WARPS;
  return Math.max(each, Math.floor(fitting / each) * each);
}

/** How much longer the last blocks take, in warps of a quarter: larger blocks end together. */
const tailOf = (warps = USUAL_WARPS): number => (TAIL * Math.max(warps, USUAL_WARPS)) / USUAL_WARPS;

/**
 * The same, when rows are fetched ahead: 0.91 to 0.95 of the time one step ahead, 0.95 to 1.2 two steps ahead, 0.93 to 0.99 in blocks of eight warps,
 * and 1.2 to 1.45 beyond, where they leave the cache before they are used (3d13pt f64, 512 cubed, an H100, 2026-11-24).
 */
function fetchedRows(steps: number, warps = USUAL_WARPS): number {
  if (steps === 1) return 0;
  if (steps > 2) return 4 * SWEPT_ROWS;
  return warps > USUAL_WARPS ? SWEPT_ROWS / 4 : 1.5 * SWEPT_ROWS;
}

/** A block of rows and vectors, with its data loaded for every column or held in registers. */
function blockWork(sum: TapSum, s: WarpWindowSchedule, placement: WindowPlacement): Work {
  const { data, outputs } = placement;
  const repeats = stepsKept(sum);
  const sums = s.rows * s.vectors;
  const reads = readsOf(sum, s);
  const { rows, places } = reads;
  const multiplyAdds = sum.taps.length * sums;
  const loads = data === "loaded" ? places * s.vectors : rows * s.vectors;
  return {
    outputs: sums * Math.max(1, outputs),
    multiplyAdds: repeats * multiplyAdds,
    loads: repeats * loads,
    fetches: 0,
    shuffles: s.vectors * movesOf(sum, s.rows, placement, reads),
    others: data === "held" && sum.taps.length > HELD_WEIGHTS ? WEIGHT_TURNS * multiplyAdds : 0,
    lines: repeats * loads + sums,
    written: multiplyAdds + loads * LOAD_INSTRUCTIONS,
    passes: repeats,
    loadTurns: LOAD_TURNS,
    again: rows / s.rows,
    apart: data === "held" ? 1 + STRADDLING_ROW * Math.max(0, sums - FREE_ROWS) : 1,
    warps: QUARTER_WARPS,
  };
}

/** Outputs side by side in a lane, computed step by step along a sweep. */
function sweepWork(sum: TapSum, s: WarpWindowSchedule): Work {
  const { each = 1, rows, sweep, ahead = 1 } = s;
  const swept = sweep === undefined ? undefined : sweptAxis(sum);
  const [length, reach] = swept ? [sweep ?? 1, swept.reach] : [1, 1];
  const steps = ahead * Math.ceil((length + reach - 1) / ahead);
  const byPlace = new Map<number, number>();
  for (const tap of sum.taps) {
    const place = swept ? shiftAt(tap, swept.dimension) : 0;
    byPlace.set(place, (byPlace.get(place) ?? 0) + 1);
  }
  const tested = [...byPlace].filter(([, taps]) => swept && isTested(taps, s));
  // Products of a place are left out in rounds of which no step is inside.
  const rounds = steps / ahead;
  const skipped = (place: number): number =>
    Math.floor(place / ahead) + Math.max(0, rounds - Math.ceil((length + place) / ahead));
  const left = sumOf(tested, ([place, taps]) => taps * ahead * skipped(place - (swept?.least ?? 0)));
  const keys = [...piecesOf(sum, s).keys()];
  const pieces = keys.length;
  const read = new Set(keys.map((key) => key.slice(0, key.lastIndexOf(",")))).size;
  const sums = rows * each;
  const moves = swept && ahead < reach ? ((reach - 1) * sums * steps) / ahead : 0;
  // Others are counted by elements. Two of two bytes take one instruction, and each pair that is put together one more.
  const joins = bytesOf(sum.output.dtype) < WORD_BYTES ? 2 * dividedPairs(sum, s) * steps : 0;
  // One lane of each line fetches it. The own rows are as many as the outputs.
  const fetches = s.prefetchSteps === undefined ? 0 : rows * steps;
  return {
    outputs: WARP * sums * length,
    multiplyAdds: (sum.taps.length * steps - left) * sums,
    loads: pieces * steps,
    fetches,
    shuffles: 0,
    others: moves + joins + ((2 * tested.length + sum.taps.length / 2) * steps) / ahead,
    lines: (pieces * steps + rows * length + fetches) * each,
    written: ahead * (sum.taps.length * sums + pieces * LOAD_INSTRUCTIONS),
    passes: steps / ahead,
    loadTurns: each > 1 ? WIDE_LOAD_TURNS : LOAD_TURNS,
    again: (read * steps) / (rows * length),
    apart: swept ? 1 + (s.prefetchSteps === undefined ? SWEPT_ROWS : fetchedRows(s.prefetchSteps, s.warps)) : 1,
    warps: warpsHolding(sweepRegisters(sum, s)),
  };
}
