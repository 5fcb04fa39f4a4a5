/**
 * @file The search space of windows on the lanes of a GPU's warps: SSAM and its alternatives, with predicted times.
 *
 *     const space = warpSpace(computation, nvidiaTarget("h100"));      a space, or why lanes cannot compute it
 *
 * Blocks are distributed to warps, and every access at a border is tested: thousands of warps hide the cost.
 */

import { LANE_DATAFLOWS, type LaneSchedule } from "../abstraction/candidate.ts";
import type { Computation } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { WARP } from "../abstraction/intrinsic.ts";
import type { Target } from "../abstraction/machine.ts";
import { LANE_DECISIONS, type LaneContext } from "../mapper/schedule/lane-decisions.ts";
import { laneScheduleProblem } from "../mapper/schedule/lanes.ts";
import { type LaneRefusal, type TapSum, tapsOf } from "../mapper/space-time/taps.ts";
import { placeWindow, WINDOW_DESIGNS } from "../mapper/space-time/window.ts";
import { sweepRegisters, USUAL_WARPS, warpSeconds } from "../perfmodel/warps.ts";
import { type LaneSpace, rollings, ScheduleSpace } from "./lane-candidates.ts";

const ROWS = [1, 2, 4, 8, 16] as const;
const VECTORS = [1, 2] as const;
/**
 * Most multiply-adds written in a kernel. nvcc 13.0 took 34 s for 6400 of one vector a row, 6 s for 3200, and 3 s for 3200 of a sweep (filters
 * of 20, 2026-11-22). Of kernels with one vector a row, none of more than 1296 was the fastest of its case (bench/results/cuda-ssam-h200.jsonl).
 */
const LONGEST_BLOCK = 1600;
const LONGEST_SWEEP = 3300;
/** 32-bit registers for sums and data, in addition to those for addresses: a thread has 255. */
const MOST_REGISTERS = 200;
/** Sums of a thread, in addition to the rows that are held. */
const MOST_SUMS = 32;

/** Whether lanes compute neighbouring outputs two by two, so that each needs several. */
const inPairs = ({ output }: TapSum): boolean => bytesOf(output.dtype) === 2;

const contextOf = (sum: TapSum): LaneContext => ({ sum, rollings: [[]], lanes: [WARP], threads: 1 });

/** Lanes of several outputs, and those that sweep, in blocks that fit the registers of a thread. */
function sweeps(sum: TapSum): LaneSchedule[] {
  const context = contextOf(sum);
  const found: LaneSchedule[] = [];
  for (const sweep of LANE_DECISIONS.sweep.values(context))
    for (const each of LANE_DECISIONS.each.values(context))
      for (const rows of ROWS)
        for (const [ahead, prefetchSteps] of sweep === undefined ? ([[]] as const) : stepsAhead(context)) {
          if (each === undefined && (sweep === undefined || inPairs(sum))) continue;
          const schedule: LaneSchedule = {
            dataflow: "FBS-load",
            lanes: WARP,
            rows,
            vectors: 1,
            rolled: [],
            weights: "memory",
            streaming: false,
            prefetchBytes: 0,
            strip: 0,
            borders: "guarded",
            threads: 1,
            ...(each && { each }),
            ...(sweep && { sweep }),
            ...(ahead && ahead > 1 && { ahead }),
            ...(prefetchSteps !== undefined && { prefetchSteps }),
          };
          const written = sum.taps.length * rows * (each ?? 1) * (ahead ?? 1);
          if (laneScheduleProblem(sum, schedule) || written > LONGEST_SWEEP) continue;
          if (sweepRegisters(sum, schedule) <= MOST_REGISTERS) found.push(schedule);
        }
  return found;
}

/**
 * Most taps of a window for which rows fetched ahead and other blocks are tried. Larger ones are bound by arithmetic: a search of 4 s for a filter of 9
 * tried two shapes in all their variants, and found 275 us where one without them had found 240 (an H100, 2026-11-24).
 */
const MOST_TAPS_WAITING = 32;

const waitsForMemory = ({ sum }: LaneContext): boolean => sum.taps.length <= MOST_TAPS_WAITING;

/** Steps that are written out, and those by which rows are fetched before them. */
function stepsAhead(context: LaneContext): (readonly [ahead: number | undefined, prefetchSteps: number | undefined])[] {
  const fetched = waitsForMemory(context) ? LANE_DECISIONS.prefetchSteps.values(context) : [undefined];
  return LANE_DECISIONS.ahead.values(context).flatMap((ahead) => fetched.map((steps) => [ahead, steps] as const));
}

/**
 * The schedules with each number of warps of a block; the usual ones first, since most predictions of the others tie with them. Fewer warps than
 * usual are of use where a block takes long.
 */
function inBlocks(schedules: readonly LaneSchedule[], context: LaneContext): readonly LaneSchedule[] {
  if (!waitsForMemory(context)) return schedules;
  return LANE_DECISIONS.warps.values(context).flatMap((warps) => {
    if (warps === undefined) return schedules;
    return schedules.flatMap((s) => (warps < USUAL_WARPS && s.sweep === undefined ? [] : [{ ...s, warps }]));
  });
}

export function warpSpace(computation: Computation, target: Target): LaneSpace | LaneRefusal {
  const verdict = tapsOf(computation);
  if (!verdict.ok) return verdict.refusal;
  if (!target.lanes)
    return { rule: "form", because: `lanes: the table of machines has no figures of the lanes of ${target.name}` };
  const sums = new Map(
    rollings(computation).flatMap((rolled) => {
      const own = tapsOf(computation, rolled);
      return own.ok ? [[rolled.join(), own.sum] as const] : [];
    }),
  );
  const schedules: LaneSchedule[] = [];
  for (const own of inPairs(verdict.sum) ? [] : sums.values())
    for (const dataflow of LANE_DATAFLOWS)
      for (const rows of ROWS)
        for (const vectors of VECTORS) {
          const schedule: LaneSchedule = {
            dataflow,
            lanes: WARP,
            rows,
            vectors,
            rolled: own.rolled,
            weights: "memory",
            streaming: false,
            prefetchBytes: 0,
            strip: 0,
            borders: "guarded",
            threads: 1,
          };
          const isOther = WINDOW_DESIGNS[dataflow].data !== "held" || own.columns > 1;
          const longest = rows * vectors === 1 ? LONGEST_SWEEP : LONGEST_BLOCK;
          if (isOther && rows * vectors <= MOST_SUMS && own.taps.length * rows * vectors <= longest)
            if (laneScheduleProblem(own, schedule) === undefined) schedules.push(schedule);
        }
  schedules.push(...sweeps(verdict.sum));
  if (schedules.length === 0)
    return { rule: "length", because: `length: no block of ${verdict.sum.taps.length} taps fits a warp` };
  return new ScheduleSpace(inBlocks(schedules, contextOf(verdict.sum)), (s) => {
    const own = sums.get(s.rolled.join());
    const placed = own && placeWindow(WINDOW_DESIGNS[s.dataflow], s.lanes, own.columns);
    return own && placed?.ok ? warpSeconds(own, s, placed.placement, target) : Number.POSITIVE_INFINITY;
  });
}
