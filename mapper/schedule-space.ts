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
import { dimensionsUnder, spreadable } from "./spread.ts";

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
  for (let tries = 0; tries < 200; tries++) {
    const spread = random() < 0.5 ? [] : [...spreadable(mapping).keys()];
    const dimensions = dimensionsUnder(mapping, { spread }).filter((d) => d.steps > 1);
    const choices = placementsOf(mapping, { spread });
    if (choices.some((c) => c.open.length === 0)) continue;
    const spatial = shuffled(
      dimensions.filter((d) => d.kind === "spatial"),
      random,
    );
    const reduce = shuffled(
      dimensions.filter((d) => d.kind === "reduce"),
      random,
    );
    const block: Record<string, number> = {};
    // One or two kept dimensions make the register block, innermost or not; a summed one may be unrolled.
    const blocked = random() < 0.5 ? spatial : shuffled(spatial, random);
    for (const d of blocked.slice(-2)) block[d.name] = pick(random, blockSizes(d, SPATIAL_BLOCK));
    const innermost = reduce.at(-1);
    if (innermost && random() < 0.5) block[innermost.name] = pick(random, blockSizes(innermost, REDUCE_BLOCK));
    const placement = Object.fromEntries(choices.map((c): [string, Placement] => [c.operand, pick(random, c.open)]));
    const order = [...spatial, ...reduce].map((d) => d.name);
    const schedule = tidy(mapping, { order, block, placement, spread, threads });
    if (scheduleProblem(mapping, schedule) === undefined) return schedule;
  }
  return plainSchedule(mapping, threads);
}

/** A legal schedule one step away: another block, two loops exchanged, or an operand placed elsewhere. */
export function mutateSchedule(mapping: Mapping, schedule: Schedule, random: Random): Schedule {
  const dimensions = dimensionsUnder(mapping, schedule).filter((d) => d.steps > 1);
  if (dimensions.length === 0) return schedule;
  const choices = placementsOf(mapping, schedule).filter((c) => c.open.length > 1);
  for (let tries = 0; tries < 50; tries++) {
    const kind = random();
    let changed: Schedule;
    if (kind < 0.1 && spreadable(mapping).size > 0) {
      changed = respread(mapping, schedule, random);
    } else if (kind < 0.55) {
      const d = pick(random, dimensions);
      const sizes = blockSizes(d, d.kind === "spatial" ? SPATIAL_BLOCK : REDUCE_BLOCK);
      changed = { ...schedule, block: { ...schedule.block, [d.name]: pick(random, sizes) } };
    } else if (kind < 0.85 || choices.length === 0) {
      const exchanged = random() < 0.5 ? "spatial" : "reduce";
      const group = dimensions.filter((d) => d.kind === exchanged).map((d) => d.name);
      if (group.length < 2) continue;
      const [a, b] = [pick(random, group), pick(random, group)];
      changed = { ...schedule, order: schedule.order.map((n) => (n === a ? b : n === b ? a : n)) };
    } else {
      const choice = pick(random, choices);
      changed = { ...schedule, placement: { ...schedule.placement, [choice.operand]: pick(random, choice.open) } };
    }
    changed = tidy(mapping, changed);
    if (scheduleProblem(mapping, changed) === undefined) return changed;
  }
  return schedule;
}

/** Parts of two schedules of one mapping, each part from either parent. */
export function crossSchedules(mapping: Mapping, a: Schedule, b: Schedule, random: Random): Schedule {
  const from = (): Schedule => (random() < 0.5 ? a : b);
  // What is spread goes with where it is placed.
  const { placement, spread } = from();
  const crossed = tidy(mapping, { order: from().order, block: from().block, placement, spread, threads: a.threads });
  return scheduleProblem(mapping, crossed) === undefined ? crossed : a;
}

/** One dimension spread, or gathered again, its operand placed where it then may lie. */
function respread(mapping: Mapping, schedule: Schedule, random: Random): Schedule {
  const before = schedule.spread ?? [];
  const [name, operand] = pick(random, [...spreadable(mapping)]);
  const spread = before.includes(name) ? before.filter((n) => n !== name) : [...before, name].sort();
  const open = placementsOf(mapping, { spread }).find((c) => c.operand === operand)?.open ?? [];
  const placement = open.length === 0 ? schedule.placement : { ...schedule.placement, [operand]: pick(random, open) };
  return { ...schedule, placement, spread };
}

/** Blocks of 1 are left out and loops of one step stand outermost of their kind, so that equal schedules are equal data. */
function tidy(mapping: Mapping, { spread, ...schedule }: Schedule): Schedule {
  const block = Object.fromEntries(
    Object.entries(schedule.block)
      .filter(([, size]) => size > 1)
      .sort(([a], [b]) => a.localeCompare(b)),
  );
  const dimensions = dimensionsUnder(mapping, { spread });
  const order = (["spatial", "reduce"] as const).flatMap((kind) => {
    const own = dimensions.filter((d) => d.kind === kind);
    const still = own.filter((d) => d.steps === 1).map((d) => d.name);
    const moving = schedule.order.filter((name) => own.some((d) => d.name === name && d.steps > 1));
    return [...still, ...moving];
  });
  return { ...schedule, order, block, ...(spread !== undefined && spread.length > 0 ? { spread } : {}) };
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
