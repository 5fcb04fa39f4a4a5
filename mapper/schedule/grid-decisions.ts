/**
 * @file The decisions about blocks and warps. Together they are the schedule.
 *
 *     tile m 128, n 256, k 64   warps m 2, n 4   stage 3   swizzle swizzled   transfer async   order 8   fragments ahead   store direct   split 4 through cluster
 */

import type { GridSchedule } from "../../abstraction/candidate.ts";
import { fragments } from "./fragments.ts";
import { gather } from "./gather.ts";
import type { GridContext } from "./grid-context.ts";
import { launch } from "./launch.ts";
import { multicast } from "./multicast.ts";
import { order } from "./order.ts";
import { persistent } from "./persistent.ts";
import { producer } from "./producer.ts";
import { repack } from "./repack.ts";
import type { Decisions } from "./schedules.ts";
import { split } from "./split.ts";
import { stage } from "./stage.ts";
import { store } from "./store.ts";
import { swizzle } from "./swizzle.ts";
import { taps } from "./taps.ts";
import { tile } from "./tile.ts";
import { transfer } from "./transfer.ts";
import { warps } from "./warps.ts";

/** The decisions in the order they are drawn and printed. */
export const GRID_DECISIONS: Decisions<GridSchedule, GridContext> = {
  repack,
  tile,
  warps,
  stage,
  swizzle,
  transfer,
  producer,
  taps,
  gather,
  order,
  fragments,
  store,
  split,
  persistent,
  launch,
  multicast,
};
