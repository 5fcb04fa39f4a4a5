/**
 * @file Which schedules a mapping has: random ones, neighbours, crosses; all legal by construction.
 *
 *     conv2d n <- k, k <- c on avx512.vpdpbusd
 *       block q 12, k 2    order n p q k | r s c    in padded, w tiled
 */

import type { Placement, Schedule } from "../abstraction/candidate.ts";
import type { Mapping } from "../abstraction/mapping.ts";
import { pick, type Random, randomInteger } from "../abstraction/random.ts";
import { dimensionsOf, type LoopDimension } from "./dimensions.ts";
import { placementsOf, scheduleProblem } from "./schedule.ts";

/** The plainest schedule: loops as the computation has them, no register block, every input where it may lie most simply. */
export function plainSchedule(mapping: Mapping, threads = 1): Schedule {
  const placement = Object.fromEntries(
    placementsOf(mapping).map((c): [string, Placement] => [c.operand, c.open[0] ?? "tiled"]),
  );
  return { order: dimensionsOf(mapping).map((d) => d.name), block: {}, placement, threads };
}

/** Sizes worth trying for the block of a dimension: all up to 8, then those that leave little over. */
function blockSizes(d: LoopDimension, limit: number): number[] {
  const most = Math.min(d.steps, limit);
  const sizes: number[] = [];
  for (let b = 1; b <= most; b++) {
    const left = d.steps % b;
    if (b <= 8 || left === 0 || b - left <= 2) sizes.push(b);
  }
  return sizes;
}

/** Most steps unrolled: of a kept dimension what registers allow, of a summed one what code size allows. */
const SPATIAL_BLOCK = 30;
const REDUCE_BLOCK = 8;

/** A random legal schedule. */
export function randomSchedule(mapping: Mapping, random: Random, threads = 1): Schedule {
  const dimensions = dimensionsOf(mapping);
  const choices = placementsOf(mapping);
  for (let tries = 0; tries < 200; tries++) {
    const spatial = shuffled(
      dimensions.filter((d) => d.kind === "spatial"),
      random,
    );
    const reduce = shuffled(
      dimensions.filter((d) => d.kind === "reduce"),
      random,
    );
    const block: Record<string, number> = {};
    // One or two kept dimensions make the register block; a summed one may be unrolled.
    for (const d of spatial.slice(-2)) block[d.name] = pick(random, blockSizes(d, SPATIAL_BLOCK));
    const innermost = reduce.at(-1);
    if (innermost && random() < 0.5) block[innermost.name] = pick(random, blockSizes(innermost, REDUCE_BLOCK));
    const placement = Object.fromEntries(choices.map((c): [string, Placement] => [c.operand, pick(random, c.open)]));
    const schedule = tidy({ order: [...spatial, ...reduce].map((d) => d.name), block, placement, threads });
    if (scheduleProblem(mapping, schedule) === undefined) return schedule;
  }
  return plainSchedule(mapping, threads);
}

/** A legal schedule one step away: another block, two loops exchanged, or an operand placed elsewhere. */
export function mutateSchedule(mapping: Mapping, schedule: Schedule, random: Random): Schedule {
  const dimensions = dimensionsOf(mapping);
  const choices = placementsOf(mapping).filter((c) => c.open.length > 1);
  for (let tries = 0; tries < 50; tries++) {
    const kind = random();
    let changed: Schedule;
    if (kind < 0.55) {
      const d = pick(random, dimensions);
      const sizes = blockSizes(d, d.kind === "spatial" ? SPATIAL_BLOCK : REDUCE_BLOCK);
      changed = { ...schedule, block: { ...schedule.block, [d.name]: pick(random, sizes) } };
    } else if (kind < 0.85 || choices.length === 0) {
      const group = dimensions.filter((d) => d.kind === (random() < 0.5 ? "spatial" : "reduce")).map((d) => d.name);
      if (group.length < 2) continue;
      const [a, b] = [pick(random, group), pick(random, group)];
      changed = { ...schedule, order: schedule.order.map((n) => (n === a ? b : n === b ? a : n)) };
    } else {
      const choice = pick(random, choices);
      changed = { ...schedule, placement: { ...schedule.placement, [choice.operand]: pick(random, choice.open) } };
    }
    changed = tidy(changed);
    if (scheduleProblem(mapping, changed) === undefined) return changed;
  }
  return schedule;
}

/** Parts of two schedules of one mapping, each part from either parent. */
export function crossSchedules(mapping: Mapping, a: Schedule, b: Schedule, random: Random): Schedule {
  const from = (): Schedule => (random() < 0.5 ? a : b);
  const crossed = tidy({ order: from().order, block: from().block, placement: from().placement, threads: a.threads });
  return scheduleProblem(mapping, crossed) === undefined ? crossed : a;
}

/** Blocks of 1 are left out, so that equal schedules are equal data. */
function tidy(schedule: Schedule): Schedule {
  const block = Object.fromEntries(
    Object.entries(schedule.block)
      .filter(([, size]) => size > 1)
      .sort(([a], [b]) => a.localeCompare(b)),
  );
  return { ...schedule, block };
}

function shuffled<T>(items: readonly T[], random: Random): T[] {
  const result = [...items];
  for (let i = result.length - 1; i > 0; i--) {
    const j = randomInteger(random, 0, i);
    const [x, y] = [result[i], result[j]];
    if (x !== undefined && y !== undefined) [result[i], result[j]] = [y, x];
  }
  return result;
}
