/** @file Schedules of windows on the vectors of a CPU. */

import type { WindowSchedule } from "../../abstraction/candidate.ts";

/** The plainest: one row of one vector of 16 lanes, filtered by what FBS loads. */
export const windowSchedule = (changes: Partial<WindowSchedule> = {}): WindowSchedule => ({
  dataflow: "FBS-load",
  lanes: 16,
  rows: 1,
  vectors: 1,
  rolled: [],
  weights: "registers",
  streaming: false,
  prefetchBytes: 0,
  strip: 0,
  threads: 1,
  ...changes,
});
