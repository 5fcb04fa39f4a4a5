/**
 * @file The decisions about threads. Together they are the schedule.
 *
 *     lanes q 32   warps p 4   each p 2, r 3, s 3   split 1
 */

import type { ThreadSchedule } from "../../../abstraction/candidate.ts";
import type { Decisions } from "../schedules.ts";
import type { ThreadContext } from "./context.ts";
import { each } from "./each.ts";
import { lanes } from "./lanes.ts";
import { launch } from "./launch.ts";
import { split } from "./split.ts";
import { warps } from "./warps.ts";

/** The decisions in the order in which they are drawn and printed. */
export const THREAD_DECISIONS: Decisions<ThreadSchedule, ThreadContext> = { lanes, warps, each, split, launch };
