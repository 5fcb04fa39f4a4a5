/**
 * @file Decision `warps`: how the warps of a block are divided among the loops.
 *
 *     warps m 4              four rows a block
 *     warps m 2, k 4         four warps share each sum, and add up their parts in shared memory
 */

import { z } from "zod";
import { product } from "../../../abstraction/collections.ts";
import { byAxis, strangeLoop } from "../decision.ts";
import type { ThreadDecision } from "./context.ts";
import { dealt } from "./lanes.ts";

/** The most warps of a block, and the most loops that share them. */
const MOST = 32;
const LOOPS = 2;

export const warps: ThreadDecision<"warps"> = {
  summary: "Warps of a block along each loop. Warps along a summed loop add up their parts in shared memory.",
  example: "m 2, k 4",
  schema: byAxis(z.int().min(2).max(MOST)),
  values: ({ loops }) => dealt(loops, 1, LOOPS, MOST),
  suits: ({ loops }, { lanes }, value) =>
    loops.every((l) => value[l.name] === undefined || (lanes[l.name] ?? 1) * (value[l.name] ?? 1) < 2 * l.extent),
  problem: ({ loops }, schedule) => {
    const strange = strangeLoop("warps", schedule.warps, loops);
    if (strange !== undefined) return strange;
    const all = product(Object.values(schedule.warps));
    return all <= MOST ? undefined : `${all} warps, a block has at most ${MOST}`;
  },
};
