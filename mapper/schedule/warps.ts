/**
 * @file Decision `warps`: how a block's tile is divided among its warps.
 *
 *     warps m 2, n 4        a tile of 128 x 256 gives each warp 64 x 64
 *
 * A warp fetches each row and column of its part once. Squarer parts fetch less from shared memory; larger ones need
 * more registers. If a warpgroup issues the instruction, warpgroups are counted.
 */

import { z } from "zod";
import { extentOf } from "../../abstraction/affine.ts";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { isBand } from "../match/bands.ts";
import { byAxis, namesProblem } from "./decision.ts";
import { type GridAxis, type GridDecision, heldInput } from "./grid-context.ts";
import { fragmentsAlong } from "./tile.ts";

/** The most warps along an axis; twice as many along the runs of a filter's results, where only one axis is long. */
const MOST = 8;

export const warps: GridDecision<"warps"> = {
  summary:
    "Warps of a block along each kept axis. Squarer warp tiles fetch less from shared memory; larger ones need more registers.",
  example: "m 2, n 4",
  schema: byAxis(z.int().min(1).max(32)),
  values: ({ rows, columns, teamThreads, limits, mapping }) => {
    const counts = [1, 2, 3, 4, MOST, ...(isBand(mapping.computation.rewriting?.kind) ? [2 * MOST] : [])];
    return counts.flatMap((m) =>
      counts.filter((n) => m * n * teamThreads <= limits.threads).map((n) => ({ [rows.axis]: m, [columns.axis]: n })),
    );
  },
  // Checked while drawing, because most combinations fail only this condition.
  suits: (context, { tile }, warps) => {
    const { rows, columns } = context;
    const isShared = heldInput(context) && extentOf(columns.axis, warps) > 1;
    return !isShared && [rows, columns].every((a) => isDivided(a, { tile, warps }));
  },
  problem: ({ rows, columns }, schedule) => {
    const strange = namesProblem("warps", schedule.warps, [rows, columns]);
    if (strange !== undefined) return strange;
    const left = [rows, columns].find((a) => !isDivided(a, schedule));
    return (
      left &&
      `tile ${left.axis} ${schedule.tile[left.axis]} is no multiple of ${schedule.warps[left.axis]} warps of ${left.extent}`
    );
  },
};

/** Whether each warp gets the same whole number of instruction tiles along an axis. */
function isDivided(along: GridAxis, schedule: Pick<GridSchedule, "tile" | "warps">): boolean {
  const tiles = fragmentsAlong(along, schedule);
  return Number.isInteger(tiles) && tiles >= 1;
}
