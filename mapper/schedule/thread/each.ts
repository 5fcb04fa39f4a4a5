/**
 * @file Decision `each` (thread coarsening): neighbouring points along each loop that one thread computes in a step, its register tile.
 *
 *     each q 4, r 3, s 3     four sums of nine products: eighteen loads for thirty-six products
 *     each k 8               eight elements of a row, loaded at once if they are contiguous
 *
 * An element that several products of a thread need is loaded once. More neighbours save loads and addresses, but leave
 * fewer threads.
 */

import { z } from "zod";
import { extentOf } from "../../../abstraction/affine.ts";
import { product, unique, upTo } from "../../../abstraction/collections.ts";
import { type Axis, keptIn } from "../../../abstraction/computation.ts";
import { pick, type Random, shuffled } from "../../../abstraction/random.ts";
import { byAxis, strangeLoop } from "../decision.ts";
import type { ThreadDecision } from "./context.ts";

/** The most neighbours along a loop, and of all loops together, since their products are unrolled. */
const MOST = 16;
const WRITTEN_OUT = 256;
/** The longest filter axis that is unrolled completely. */
const FILTER = 7;
/** The most kept loops with several neighbours in a random schedule. */
const KEPT = 2;
/** Fraction of random schedules whose threads store several results at once. */
const VECTORS = 0.7;

export const each: ThreadDecision<"each"> = {
  summary:
    "Neighbouring points along each loop that a thread computes in a step. More of them save loads and address arithmetic, but leave fewer threads.",
  example: "q 4, r 3, s 3",
  schema: byAxis(z.int().min(2).max(MOST)),
  problem: ({ loops }, schedule) => {
    const strange = strangeLoop("neighbours", schedule.each, loops);
    if (strange !== undefined) return strange;
    const all = product(Object.values(schedule.each));
    return all <= WRITTEN_OUT ? undefined : `${all} products of a step would be written out, more than ${WRITTEN_OUT}`;
  },
  draw: ({ loops: all, result }, { lanes, warps }, random) => {
    const drawn: Record<string, number> = {};
    // The extent of each loop that lanes and warps leave.
    const loops = all.map((l) => ({
      ...l,
      extent: Math.ceil(l.extent / ((lanes[l.name] ?? 1) * (warps[l.name] ?? 1))),
    }));
    const kept = shuffled(
      random,
      keptIn(loops).filter((l) => l.extent > 1),
    );
    // Often neighbours are as many as can be stored at once.
    const [vector] = kept.filter((l) => (result.widths.get(l.name) ?? 1) > 1);
    const chosen = vector && random() < VECTORS ? [vector, ...kept.filter((l) => l !== vector)] : kept;
    for (const l of chosen.slice(0, KEPT))
      drawn[l.name] = pick(
        random,
        l === vector && chosen !== kept ? widthsOf(l, result.widths.get(l.name)) : sizesOf(l),
      );
    for (const l of loops) if (l.kind === "reduce" && l.extent > 1) drawn[l.name] = drawSummed(l, random);
    return drawn;
  },
  moves: [
    {
      weight: 3,
      apply: ({ loops }, schedule, random) => {
        const moving = loops.filter((l) => l.extent > 1);
        if (moving.length === 0) return schedule;
        const l = pick(random, moving);
        return { ...schedule, each: { ...schedule.each, [l.name]: pick(random, sizesOf(l)) } };
      },
    },
  ],
  // Values of 1 are omitted.
  tidy: ({ loops }, schedule) =>
    Object.fromEntries(
      loops.flatMap(({ name }) =>
        extentOf(name, { [name]: 1, ...schedule.each }) > 1 ? [[name, schedule.each[name] ?? 1]] : [],
      ),
    ),
};

/** Powers of two, and divisors up to a filter's length. */
function sizesOf({ extent, kind }: Axis): number[] {
  const powers = [1, 2, 4, 8, MOST].filter((n) => n < 2 * extent && n <= (kind === "reduce" ? MOST : MOST / 2));
  const divisors = upTo(FILTER)
    .map((i) => i + 1)
    .filter((n) => extent % n === 0);
  return unique([...powers, ...divisors]);
}

/** Widths of stores from half the largest on, that leave no points unused. */
function widthsOf({ extent }: Axis, most = 1): number[] {
  const widths = [most / 2, most].filter((n) => n > 1 && extent % n === 0);
  return widths.length > 0 ? widths : [1];
}

const drawSummed = (l: Axis, random: Random): number =>
  l.extent <= FILTER && random() < 0.7 ? l.extent : pick(random, sizesOf(l));
