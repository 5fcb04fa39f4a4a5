/**
 * @file Schedules of a mapping for a processor's cores: places of operands, a register block around the instruction,
 * and the loop order.
 *
 *     conv2d n <- k, k <- c on avx512.vpdpbusd
 *       block q 12, k 2    order n p q k | r s c    in padded, w tiled
 */

import type { Schedule } from "../../abstraction/candidate.ts";
import { memoised, namesOf } from "../../abstraction/collections.ts";
import { targetOf } from "../../abstraction/computation.ts";
import { writesApart } from "../../abstraction/elements.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import type { Random } from "../../abstraction/random.ts";
import { conditionProblem, scheduledParts } from "../match/conditions.ts";
import { defineProblem } from "../match/problem.ts";
import { dimensionsOf } from "./dimensions.ts";
import type { MappedContext } from "./mapped-context.ts";
import { MAPPED_DECISIONS } from "./mapped-decisions.ts";
import { placementsInTurn, placementsOf } from "./place.ts";
import * as schedules from "./schedules.ts";

export const MAPPED: schedules.ScheduleKind<Schedule, MappedContext> = {
  decisions: MAPPED_DECISIONS,
  problem: ({ mapping }) => unschedulable(mapping),
  tries: 200,
};

/** Why a schedule cannot be lowered; undefined when it can. */
export function scheduleProblem(mapping: Mapping, schedule: Schedule): string | undefined {
  return schedules.problemIn(MAPPED, { mapping, threads: schedule.threads }, schedule);
}

/**
 * The plainest legal schedule: loops in the order of the computation, no register block, every input in its simplest
 * place.
 * @throws Error when the mapping has no legal schedule; `unschedulable` says why
 */
export function plainSchedule(mapping: Mapping, threads = 1): Schedule {
  return { ...plainOf(mapping), threads };
}

const plainOf = memoised((mapping: Mapping): Schedule => {
  const order = namesOf(dimensionsOf(mapping));
  const all = placementsInTurn(placementsOf(mapping)).map((placement) => ({ order, block: {}, placement, threads: 1 }));
  const legal = all.find((schedule) => scheduleProblem(mapping, schedule) === undefined);
  if (legal) return legal;
  throw new Error(`no schedule: ${unschedulable(mapping) ?? "internal: tiles of one step must be legal"}`);
});

/**
 * A random legal schedule; the plainest one when none of many draws is legal.
 * @param nearBytes size of the nearest cache. Tile loops are tried for data that does not fit in it; none when left out
 * @throws Error when the mapping has no legal schedule; `unschedulable` says why
 */
export function randomSchedule(mapping: Mapping, random: Random, threads = 1, nearBytes?: number): Schedule {
  const plain = plainSchedule(mapping, threads);
  return schedules.drawSchedule(MAPPED, { mapping, threads, nearBytes }, random) ?? plain;
}

/**
 * Why no schedule of a mapping can be lowered; undefined when some can. A register holds the whole sum of an element
 * and is stored once. Operands are packed outside every loop, so each part of a condition must be enforced by an
 * operand that has all the loops it relates.
 */
export const unschedulable = memoised(({ computation, intrinsic, binding }: Mapping): string | undefined => {
  if (!writesApart(computation))
    return `several points of the kept loops join one element of ${targetOf(computation).name}`;
  const problem = defineProblem(computation, intrinsic, binding);
  return conditionProblem(problem, scheduledParts(problem));
});
