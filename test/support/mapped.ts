/** @file Schedules of mappings one step away from others, as searches on cores draw them. */

import type { Schedule } from "../../abstraction/candidate.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import type { Random } from "../../abstraction/random.ts";
import { MAPPED } from "../../mapper/schedule/mapped.ts";
import * as schedules from "../../mapper/schedule/schedules.ts";

/** A legal schedule one step away: another block, two loops exchanged, other tiles, or an operand in another place. */
export function mutateSchedule(mapping: Mapping, schedule: Schedule, random: Random, nearBytes?: number): Schedule {
  return schedules.mutateSchedule(MAPPED, { mapping, threads: schedule.threads, nearBytes }, schedule, random);
}

/** Crossover of two schedules of one mapping: each part comes from either parent. */
export function crossSchedules(mapping: Mapping, a: Schedule, b: Schedule, random: Random): Schedule {
  return schedules.crossSchedules(MAPPED, { mapping, threads: a.threads }, a, b, random);
}
