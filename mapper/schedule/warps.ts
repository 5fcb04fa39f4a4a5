/**
 * @file Decision `warps`: how the warps of a block stand in its tile.
 *
 *     warps m 2, n 4        a tile of 128 x 256 is 64 x 64 a warp
 *
 * A warp fetches each row and column of its part once: squarer parts fetch less from shared memory, larger ones need more registers. Where a
 * warpgroup issues the instruction, warpgroups are counted.
 */

import { z } from "zod";
import { byAxis, printPairs } from "./decision.ts";
import type { GridDecision } from "./grid-context.ts";
import { fragmentsAlong } from "./tile.ts";

/** Warps of a block along an axis at most. */
const MOST = 8;

export const warps: GridDecision<"warps"> = {
  name: "warps",
  summary:
    "Warps of a block along each kept axis: squarer parts fetch less from shared memory, larger ones need more registers.",
  example: "m 2, n 4",
  schema: byAxis(z.int().min(1).max(32)),
  values: ({ rows, columns, teamThreads, limits }) => {
    const counts = [1, 2, 4, MOST];
    return counts.flatMap((m) =>
      counts.filter((n) => m * n * teamThreads <= limits.threads).map((n) => ({ [rows.axis]: m, [columns.axis]: n })),
    );
  },
  // Most combinations fail by this alone.
  suits: ({ rows, columns }, { tile }, warps) =>
    [rows, columns].every((a) => {
      const along = fragmentsAlong(a, { tile, warps });
      return Number.isInteger(along) && along >= 1;
    }),
  print: printPairs,
};
