/**
 * @file The space of windows on the lanes of a GPU's warps: SSAM and its rivals, with the time each is expected to take.
 *
 *     const space = warpSpace(computation, nvidiaTarget("h100"));      a space, or why lanes cannot compute it
 *
 * Blocks are dealt to warps, and every access at a border is tested: thousands of warps hide what that costs.
 */

import { LANE_DATAFLOWS, type LaneSchedule } from "../abstraction/candidate.ts";
import type { Computation } from "../abstraction/computation.ts";
import { WARP } from "../abstraction/intrinsic.ts";
import type { Target } from "../abstraction/machine.ts";
import { laneScheduleProblem } from "../mapper/schedule/lanes.ts";
import { type LaneRefusal, tapsOf } from "../mapper/space-time/taps.ts";
import { placeWindow, WINDOW_DESIGNS } from "../mapper/space-time/window.ts";
import { warpSeconds } from "../perfmodel/warps.ts";
import { type LaneSpace, rollings, ScheduleSpace } from "./lane-candidates.ts";

const ROWS = [1, 2, 4, 8, 16] as const;
const VECTORS = [1, 2] as const;
/** Longer straight-line blocks take nvcc seconds, and their sums more registers than a thread has. */
const LONGEST_BLOCK = 6400;
/** Sums of a thread, beside the rows that are held. */
const MOST_SUMS = 32;

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
  for (const own of sums.values())
    for (const dataflow of LANE_DATAFLOWS)
      for (const rows of ROWS)
        for (const vectors of VECTORS) {
          const schedule: LaneSchedule = {
            ...{ dataflow, lanes: WARP, rows, vectors, rolled: own.rolled, weights: "memory", streaming: false },
            ...{ prefetchBytes: 0, strip: 0, borders: "guarded", threads: 1 },
          };
          const isOther = WINDOW_DESIGNS[dataflow].data !== "held" || own.columns > 1;
          if (isOther && rows * vectors <= MOST_SUMS && own.taps.length * rows * vectors <= LONGEST_BLOCK)
            if (laneScheduleProblem(own, schedule) === undefined) schedules.push(schedule);
        }
  if (schedules.length === 0)
    return { rule: "length", because: `length: no block of ${verdict.sum.taps.length} taps fits a warp` };
  return new ScheduleSpace(schedules, (s) => {
    const own = sums.get(s.rolled.join());
    const placed = own && placeWindow(WINDOW_DESIGNS[s.dataflow], s.lanes, own.columns);
    return own && placed?.ok ? warpSeconds(own, s, placed.placement, target) : Number.POSITIVE_INFINITY;
  });
}
