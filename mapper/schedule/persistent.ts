/**
 * @file Decision `persistent`: a fixed number of blocks shares all tiles, in the given order, and the pipeline
 * continues from tile to tile.
 *
 *     persistent 132       block b computes tiles b, b + 132, b + 264, ...; while it stores one, the first steps of the next are being copied
 *
 * A block that computes only one tile has to fill its pipeline first. If only one block fits into a multiprocessor,
 * nothing hides that time.
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
  summary:
    "The number of persistent blocks that share all tiles. While such a block stores one tile, the first steps of its next tile are already being copied. By default each tile has its own block.",
  example: "132",
  schema: z.int().min(1).max(65_536).optional(),
  values: ({ limits, intrinsic, outer, decided }) =>
    intrinsic.asynchronous && (outer.length === 0 || decided.length > 0)
      ? [undefined, ...BLOCKS.map((blocks) => blocks * limits.multiprocessors)]
      : [undefined],
  suits: (context, schedule, blocks) => blocks === undefined || blocks < tilesOf(context, schedule),
  print: (blocks) => (blocks === undefined ? undefined : `${blocks} blocks`),
  traits: ({ persistent: blocks }) => (blocks === undefined ? [] : ["persistent"]),
  problem: persistentProblem,
  // A search first tries whether blocks are persistent, then how many there are.
  distance: (_, { persistent: a }, { persistent: b }) =>
    a === b ? 0 : a === undefined || b === undefined ? 1 : MINOR_DISTANCE,
};

/** The number of tiles that a block computes one after another. */
export function turnsOf(context: GridContext, schedule: GridSchedule): number {
  return schedule.persistent === undefined ? 1 : Math.ceil(tilesOf(context, schedule) / schedule.persistent);
}

/** Why blocks cannot be persistent; undefined when they can. */
function persistentProblem(context: GridContext, schedule: GridSchedule): string | undefined {
  const { persistent: blocks } = schedule;
  if (blocks === undefined) return undefined;
  const { intrinsic, decided } = context;
  if (!intrinsic.asynchronous)
    return `${intrinsic.name} is awaited within its step, so no ring of stages can run on from tile to tile`;
  if (schedule.split) return "a block either sums a part or takes tiles in turn, not both";
  if (windowOf(context, schedule)) return "a window that is staged once for all taps belongs to one tile";
  if (schedule.stage === 1) return "tiles taken in turn need at least two stages";
  if (decided.length > 0 && schedule.producer === undefined)
    return "elements decide which tiles have sums, and only a producer knows the next one";
  const tiles = tilesOf(context, schedule);
  return tiles <= blocks ? `${tiles} tiles are too few for ${blocks} blocks to take them in turn` : undefined;
}
