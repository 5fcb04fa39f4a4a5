/**
 * @file Decision `lanes`: how the lanes of a warp are divided among the loops.
 *
 *     lanes q 32             neighbours in a row: coalesced accesses
 *     lanes k 32             each lane has a part of the sum; five shuffles add the parts up
 *     lanes p 4, q 8         a tile of pixels
 */

import { z } from "zod";
import { product } from "../../../abstraction/collections.ts";
import type { Axis } from "../../../abstraction/computation.ts";
import { byAxis, strangeLoop } from "../decision.ts";
import type { ThreadDecision } from "./context.ts";

/** The most loops that share the lanes of a warp. */
const LOOPS = 3;
/** Lanes of a drawn schedule along loops on which some access is contiguous: of 16 bytes each they read half a line. */
const NEIGHBOURS = 4;

export const lanes: ThreadDecision<"lanes"> = {
  summary:
    "Lanes of a warp along each loop. Along a kept loop they read neighbouring elements; along a summed loop shuffles add up their parts.",
  example: "p 4, q 8",
  schema: byAxis(z.int().min(2).max(32)),
  values: ({ loops, limits }) => dealt(loops, limits.lanes, LOOPS, limits.lanes),
  suits: ({ accesses, result }, _, value) => {
    const isDense = (loop: string): boolean => [...accesses, result].some(({ strides }) => strides.get(loop) === 1);
    return Object.entries(value).reduce((n, [loop, lanes]) => (isDense(loop) ? n * lanes : n), 1) >= NEIGHBOURS;
  },
  problem: ({ loops, limits }, schedule) => {
    const strange = strangeLoop("lanes", schedule.lanes, loops);
    if (strange !== undefined) return strange;
    const all = product(Object.values(schedule.lanes));
    const even = Object.values(schedule.lanes).every((n) => Number.isInteger(Math.log2(n)));
    return all === limits.lanes && even ? undefined : `${all} lanes, a warp has ${limits.lanes}, in powers of two`;
  },
};

/**
 * Ways to divide powers of two among loops. The product is between `least` and `most`, at most `several` loops share
 * it, and no loop gets more than twice its extent.
 */
export function dealt(
  loops: readonly Axis[],
  least: number,
  several: number,
  most: number,
): Readonly<Record<string, number>>[] {
  const found: Record<string, number>[] = [];
  const moving = loops.filter((l) => l.extent > 1);
  const from = (at: number, left: number, chosen: Record<string, number>): void => {
    if (most / left >= least) found.push(chosen);
    if (Object.keys(chosen).length === several) return;
    for (const [i, l] of moving.slice(at).entries())
      for (let n = 2; n <= left && n < 2 * l.extent; n *= 2) from(at + i + 1, left / n, { ...chosen, [l.name]: n });
  };
  from(0, most, {});
  return found;
}
