/**
 * @file Decision `order`: the loops around the instruction, outermost first, and which of them run over tiles
 * (cache-tiles.ts).
 *
 *     n k p_q r c             kept dimensions before summed ones, fused loops under one name
 *     n/8 k/64 m n k          tiles of 8 blocks of n and 64 of k; k/64 outside of kept loops makes passes
 */

import { z } from "zod";
import type { Schedule } from "../../abstraction/candidate.ts";
import { namesOf } from "../../abstraction/collections.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { pick, type Random, randomInteger, shuffled } from "../../abstraction/random.ts";
import { SUMMED_APART } from "./block.ts";
import { lastKept, loop, orderProblem, parseLoop, retiled, withoutIdleTiles } from "./cache-tiles.ts";
import type { Decision } from "./decision.ts";
import { type LoopDimension, summedOf } from "./dimensions.ts";
import { dimensionsUnder } from "./gaps.ts";
import type { MappedContext } from "./mapped-context.ts";
import { bordersUnder } from "./place.ts";

type Order = Schedule["order"];

/** Largest number of loops in a recorded order. */
const MOST = 64;

/** How often a random schedule has tiles, when they can help, and how many tile loops at most. */
const TILED = 0.4;
const TILE_LOOPS = 2;

export const order: Decision<Order, MappedContext, Schedule> = {
  summary:
    "The loops, outermost first; summed ones inside kept ones. Fused loops have one name, `p_q`. `k/64` is a loop over tiles of 64 blocks of k; the loop `k` then runs inside one tile. A summed tile loop outside a kept loop makes passes: sums are stored between them and loaded again.",
  example: "n/8 k/64 m n k",
  schema: z.array(loop).max(MOST),
  print: (value) => value.join(" "),
  problem: ({ mapping }, schedule) => {
    const crossed = bordersUnder(mapping, schedule);
    const meetsBorder = (d: LoopDimension): boolean => crossed.some((b) => b.reduce === d.name);
    return orderProblem(schedule, dimensionsUnder(mapping, schedule), meetsBorder);
  },
  draw: ({ mapping }, schedule, random) =>
    (["spatial", "reduce"] as const).flatMap((kind) => shuffled(random, moving(mapping, schedule, kind))),
  refine: ({ mapping, nearBytes }, schedule, random) => {
    if (nearBytes === undefined || random() >= TILED) return schedule;
    let tiled = schedule;
    for (let more = randomInteger(random, 1, TILE_LOOPS); more > 0; more--) {
      tiled = retiled(mapping, tiled, random, nearBytes);
      tiled = { ...tiled, order: tidyOrder(mapping, tiled) };
    }
    return tiled;
  },
  moves: [
    {
      weight: 0.21,
      apply: ({ mapping }, schedule, random) => exchanged(mapping, schedule, random),
    },
    {
      weight: 0.2,
      apply: ({ mapping, nearBytes }, schedule, random) =>
        nearBytes === undefined ? schedule : retiled(mapping, schedule, random, nearBytes),
    },
  ],
  tidy: ({ mapping }, schedule) => tidyOrder(mapping, schedule),
  distance: ({ mapping }, a, b) => {
    const summed = summedOf(mapping);
    const kept = ({ order: loops }: Schedule): string => loops.filter((name) => !summed.has(name)).join();
    if (kept(a) !== kept(b)) return 1;
    return a.order.join() === b.order.join() ? 0 : SUMMED_APART;
  },
};

/** Names of a kind's dimensions that have more than one step. */
function moving(mapping: Mapping, schedule: Schedule, kind: LoopDimension["kind"]): string[] {
  return dimensionsUnder(mapping, schedule).flatMap((d) => (d.kind === kind && d.steps > 1 ? [d.name] : []));
}

/** Exchanges two kept loops, or two summed ones. */
function exchanged(mapping: Mapping, schedule: Schedule, random: Random): Schedule {
  const groups = [moving(mapping, schedule, "spatial"), moving(mapping, schedule, "reduce")].filter(
    (g) => g.length > 1,
  );
  if (groups.length === 0) return schedule;
  const group = pick(random, groups);
  const a = pick(random, group);
  const b = pick(random, group);
  return { ...schedule, order: schedule.order.map((n) => (n === a ? b : n === b ? a : n)) };
}

/**
 * Canonical form: loops with one step are outermost of their kind and idle tile loops are left out, so that equal
 * orders are equal data.
 */
function tidyOrder(mapping: Mapping, schedule: Schedule): Order {
  const dimensions = dimensionsUnder(mapping, schedule);
  const moves = withoutIdleTiles(
    schedule.order.filter((text) => dimensions.some((d) => d.name === parseLoop(text)?.name && d.steps > 1)),
    dimensions,
    schedule.block,
    Object.values(schedule.within ?? {}),
  );
  const still = (kind: LoopDimension["kind"]): string[] =>
    namesOf(dimensions.filter((d) => d.kind === kind && d.steps === 1));
  const behind = lastKept(moves, dimensions) + 1;
  return [...still("spatial"), ...moves.slice(0, behind), ...still("reduce"), ...moves.slice(behind)];
}
