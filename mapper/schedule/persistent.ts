/**
 * @file Decision `persistent`: a fixed number of blocks takes all tiles in turn, in the given order, and the ring of stages continues from tile
 * to tile.
 *
 *     persistent 132       block b takes tiles b, b + 132, b + 264, ...; while it stores one, the first steps of its next are on their way
 *
 * A block that computes only one tile has to fill its ring first, and where only one block fits into a multiprocessor nothing hides that time.
 */

import { z } from "zod";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { MINOR_DISTANCE } from "./decision.ts";
import type { GridContext, GridDecision } from "./grid-context.ts";
import { tilesOf } from "./split.ts";
import { windowOf } from "./taps.ts";

/** Blocks for each multiprocessor to try. */
const BLOCKS = [1, 2] as const;

export const persistent: GridDecision<"persistent"> = {
  name: "persistent",
  summary:
    "How many blocks take all tiles in turn: the first steps of a block's next tile are then on their way while it stores one. When left out, each tile has a block of its own.",
  example: "132",
  schema: z.int().min(1).max(65_536).optional(),
  values: ({ limits, intrinsic, outer }) =>
    intrinsic.asynchronous && outer.length === 0
      ? [undefined, ...BLOCKS.map((blocks) => blocks * limits.multiprocessors)]
      : [undefined],
  suits: (context, schedule, blocks) => blocks === undefined || blocks < tilesOf(context, schedule),
  print: (blocks) => (blocks === undefined ? undefined : `${blocks} blocks`),
  traits: ({ persistent: blocks }) => (blocks === undefined ? [] : ["persistent"]),
  problem: persistentProblem,
  // First whether tiles are taken in turn, then by how many blocks.
  distance: (_, { persistent: a }, { persistent: b }) =>
    a === b ? 0 : a === undefined || b === undefined ? 1 : MINOR_DISTANCE,
};

/** Number of tiles that a block takes one after another. */
export function turnsOf(context: GridContext, schedule: GridSchedule): number {
  return schedule.persistent === undefined ? 1 : Math.ceil(tilesOf(context, schedule) / schedule.persistent);
}

/** Why blocks cannot take tiles in turn; undefined when they can. */
function persistentProblem(context: GridContext, schedule: GridSchedule): string | undefined {
  const { persistent: blocks } = schedule;
  if (blocks === undefined) return undefined;
  const { intrinsic, outer } = context;
  if (!intrinsic.asynchronous) return `${intrinsic.name} is awaited in its step, and no ring runs on from tile to tile`;
  if (outer.length > 0) return `tiles of each ${outer[0]?.name} are blocks of their own`;
  if (schedule.split) return "a sum is split among blocks or its tiles are taken in turn, not both";
  if (windowOf(context, schedule)) return "a window staged once for all taps is one tile's";
  if (schedule.stage === 1) return "tiles taken in turn need a second stage";
  const tiles = tilesOf(context, schedule);
  return tiles <= blocks
    ? `${tiles} tiles are no more than the ${blocks} blocks that would take them in turn`
    : undefined;
}
