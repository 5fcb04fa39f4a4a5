/**
 * @file The decisions about loops on a processor's cores. Together they are the schedule.
 *
 *     spread p_q   order n/8 k m n k   block q 12, k 2   placement in padded, w tiled   within in p   threads 2
 */

import type { Schedule } from "../../abstraction/candidate.ts";
import { block } from "./block.ts";
import { order } from "./loop-order.ts";
import type { MappedContext } from "./mapped-context.ts";
import { placement } from "./place.ts";
import type { Decisions } from "./schedules.ts";
import { spread } from "./spread.ts";
import { threads } from "./threads.ts";
import { within } from "./within.ts";

/** The decisions in the order they are drawn and printed. Each may use the values of those before it. */
export const MAPPED_DECISIONS: Decisions<Schedule, MappedContext> = {
  spread,
  order,
  block,
  placement,
  within,
  threads,
};
