/**
 * @file Decision `order` (block rasterization): the order in which blocks take tiles, which determines their hits in the shared L2 cache.
 *
 *     order 8        row tiles 0..7 of column tile 0, then 0..7 of column tile 1, ...; then row tiles 8..15
 */

import { z } from "zod";
import { MINOR_DISTANCE } from "./decision.ts";
import type { GridDecision } from "./grid-context.ts";
import { keptTiles } from "./taps.ts";

const MOST = 64;

export const order: GridDecision<"order"> = {
  summary:
    "Row tiles that blocks compute before they go on to the next column tile, so that blocks that run at the same time share inputs in the L2 cache.",
  example: "8",
  schema: z.int().min(1).max(4096),
  values: () => [1, 2, 4, 8, 16, 32, MOST],
  suits: (context, schedule, taken) => keptTiles(context, context.rows, schedule) % taken === 0,
  // The model sees no difference between orders, and measuring a round of one schedule in every order would teach
  // little.
  distance: (_, a, b) => (a.order === b.order ? 0 : MINOR_DISTANCE),
  problem: (context, schedule) => {
    const tiles = keptTiles(context, context.rows, schedule);
    return tiles % schedule.order === 0 ? undefined : `${tiles} row tiles are not taken ${schedule.order} at a time`;
  },
};
