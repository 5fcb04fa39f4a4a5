/**
 * @file How long a window on the lanes of warps takes on a GPU: what a quarter of a multiprocessor issues for one block of outputs, and the
 * bytes that all of them move.
 *
 *     time = launch + max(blocks / quarters * cycles of a block / clock, bytes / bandwidth)
 *
 * Warps of other blocks hide latencies; what limits a kernel is what it issues or what it reads and writes.
 */

import type { LaneSchedule } from "../abstraction/candidate.ts";
import { elementCount, extentsOf } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { levelOf, memoryOf, readRate, type Target } from "../abstraction/machine.ts";
import type { TapSum } from "../mapper/space-time/taps.ts";
import type { WindowPlacement } from "../mapper/space-time/window.ts";
import { laneCosts } from "../targets/lanes.ts";
import { readsOf } from "./lanes.ts";

/** Instructions of a warp beside a load or store: address and bounds. As of a copy's piece in grid.ts, counted in SASS by eye. */
const PLACE_INSTRUCTIONS = 4;
/** 64-bit values pass a unit in two halves. */
const WORD_BYTES = 4;

/** Seconds of a call. */
export function warpSeconds(sum: TapSum, s: LaneSchedule, placement: WindowPlacement, target: Target): number {
  const { data, sumHop, dataHop, outputs } = placement;
  const { multiplyAdd, shift, load, store } = laneCosts(target);
  const extents = extentsOf(sum.computation);
  const repeats = sum.rolled.reduce((n, name) => n * (extents[name] ?? 1), 1);
  const words = bytesOf(sum.output.dtype) / WORD_BYTES;
  const sums = s.rows * s.vectors;
  const { rows, places } = readsOf(sum, s);

  // 1. What a block issues, in turns of a quarter; shuffles, loads and stores have units of a whole multiprocessor.
  const fmas = repeats * sum.taps.length * sums;
  const loads = data === "loaded" ? repeats * places * s.vectors : rows * s.vectors;
  const moving = (sumHop === 0 ? 0 : s.rows) + (data === "loaded" || dataHop === 0 ? 0 : rows);
  const shuffles = (sum.columns - 1) * s.vectors * moving;
  const issued = fmas * multiplyAdd.issueCycles * words + shuffles + (loads + sums) * (1 + PLACE_INSTRUCTIONS);
  const memory = (loads * load.issueCycles + sums * store.issueCycles + shuffles * shift.issueCycles) * words;
  const cycles = Math.max(issued, memory);

  // 2. All blocks on all quarters, a wave of them at least.
  const blocks = Math.ceil(elementCount(sum.output) / (sums * Math.max(1, outputs)));
  const quarters = levelOf(target, "block").units * levelOf(target, "warp").units;
  const clock = (target.loadedClockHz ?? target.clockHz)?.value ?? 1;
  const busy = (Math.ceil(blocks / quarters) * cycles) / clock;

  // 3. Every element once; rows between blocks lie in the cache.
  const bytes = (elementCount(sum.input) + elementCount(sum.output)) * bytesOf(sum.output.dtype);
  const near = bytes <= (memoryOf(target, "l2").bytes?.value ?? 0);
  const rate = readRate(target, near ? "l2" : "dram", "grid")?.value ?? Number.POSITIVE_INFINITY;
  return (target.fixed["launch"]?.value ?? 0) + Math.max(busy, bytes / rate);
}
