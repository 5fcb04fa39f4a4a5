/**
 * @file Decision `spread`: which fused loops run over the gaps between the rows of a padded copy; see gaps.ts.
 *
 *     spread p_q        61 steps, 4 tiles of 16, for 7 rows of 7; 7 tiles where nothing is spread
 */

import { z } from "zod";
import type { Schedule } from "../../abstraction/candidate.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { pick, type Random } from "../../abstraction/random.ts";
import { identifier } from "../../abstraction/schema.ts";
import type { Decision } from "./decision.ts";
import { spreadable } from "./gaps.ts";
import type { MappedContext } from "./mapped-context.ts";
import { placementsOf } from "./place.ts";

/** Largest number of dimensions in a recorded schedule. */
const MOST = 64;

type Spread = Schedule["spread"];

export const spread: Decision<Spread, MappedContext, Schedule> = {
  summary:
    "Fuses kept loops across the padding between rows: one loop of 61 steps instead of 7 times 7. Steps that fall on padding are computed and discarded.",
  example: "p_q",
  schema: z.array(identifier).max(MOST).optional(),
  print: (value) => (value && value.length > 0 ? value.join(" ") : undefined),
  problem: ({ mapping }, schedule) => {
    const unknown = schedule.spread?.find((name) => !spreadable(mapping).has(name));
    return unknown === undefined ? undefined : `${unknown} has no rows with gaps to spread over`;
  },
  draw: ({ mapping }, _, random) => drawSpread(mapping, random),
  moves: [
    {
      weight: 0.07,
      apply: ({ mapping }, schedule, random) => respread(mapping, schedule, random),
    },
  ],
  carry: ({ mapping }, schedule) => schedule.spread?.filter((name) => spreadable(mapping).has(name)),
  tidy: (_, schedule) => (schedule.spread && schedule.spread.length > 0 ? schedule.spread : undefined),
  distance: (_, a, b) => (a.spread?.join() === b.spread?.join() ? 0 : 1),
};

/** Draws all dimensions that can be spread, or none. Every input must still have a place. */
function drawSpread(mapping: Mapping, random: Random): Spread {
  const all = [...spreadable(mapping).keys()];
  for (let tries = 0; tries < 200; tries++) {
    const drawn = random() < 0.5 ? [] : all;
    if (placementsOf(mapping, { spread: drawn }).every((c) => c.open.length > 0)) return drawn;
  }
  return [];
}

/** Spreads one dimension, or undoes it, and moves its operand to a place that is then legal. */
function respread(mapping: Mapping, schedule: Schedule, random: Random): Schedule {
  if (spreadable(mapping).size === 0) return schedule;
  const before = schedule.spread ?? [];
  const [name, operand] = pick(random, [...spreadable(mapping)]);
  const after = before.includes(name) ? before.filter((n) => n !== name) : [...before, name].sort();
  const open = placementsOf(mapping, { spread: after }).find((c) => c.operand === operand)?.open ?? [];
  const placement = open.length === 0 ? schedule.placement : { ...schedule.placement, [operand]: pick(random, open) };
  return { ...schedule, placement, spread: after };
}
