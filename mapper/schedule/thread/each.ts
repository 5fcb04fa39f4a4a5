/**
 * @file Decision `each`: neighbours along each loop that one thread takes in a step.
 *
 *     each q 4, r 3, s 3     four sums of nine products: eighteen elements are read for thirty-six products
 *     each k 8               eight elements of a row, moved at once where they lie side by side
 *
 * What several of a thread's products read is read once. More neighbours save reads and addresses, and leave fewer threads.
 */

import { z } from "zod";
import { extentOf } from "../../../abstraction/affine.ts";
import type { Axis } from "../../../abstraction/computation.ts";
import { pick, type Random, shuffled } from "../../../abstraction/random.ts";
import { byAxis, printPairs } from "../decision.ts";
import type { ThreadDecision } from "./context.ts";

/** Neighbours of a loop at most, and of all loops together: products that are written out. */
const MOST = 16;
const WRITTEN_OUT = 256;
/** A filter is taken whole up to this length. */
const FILTER = 7;
/** Kept loops with several neighbours when drawn at random. */
const KEPT = 2;

export const each: ThreadDecision<"each"> = {
  name: "each",
  summary:
    "Neighbours along each loop that a thread takes in a step: several save reads and addresses, and leave fewer threads.",
  example: "q 4, r 3, s 3",
  schema: byAxis(z.int().min(2).max(MOST)),
  print: printPairs,
  problem: ({ loops }, schedule) => {
    const strange = Object.keys(schedule.each).find((name) => !loops.some((l) => l.name === name));
    if (strange !== undefined) return `neighbours of ${strange}: there is no such loop`;
    const all = Object.values(schedule.each).reduce((product, n) => product * n, 1);
    return all <= WRITTEN_OUT ? undefined : `${all} products of a step would be written out, more than ${WRITTEN_OUT}`;
  },
  draw: ({ loops: all }, { lanes, warps }, random) => {
    const drawn: Record<string, number> = {};
    // What is left of each loop.
    const loops = all.map((l) => ({
      ...l,
      extent: Math.ceil(l.extent / ((lanes[l.name] ?? 1) * (warps[l.name] ?? 1))),
    }));
    const kept = shuffled(
      random,
      loops.filter((l) => l.kind === "spatial" && l.extent > 1),
    );
    for (const l of kept.slice(0, KEPT)) drawn[l.name] = pick(random, sizesOf(l));
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
  // Ones are left out.
  tidy: ({ loops }, schedule) =>
    Object.fromEntries(
      loops.flatMap(({ name }) =>
        extentOf(name, { [name]: 1, ...schedule.each }) > 1 ? [[name, schedule.each[name] ?? 1]] : [],
      ),
    ),
};

/** Powers of two, and a filter's length. */
function sizesOf({ extent, kind }: Axis): number[] {
  const powers = [1, 2, 4, 8, MOST].filter((n) => n < 2 * extent && n <= (kind === "reduce" ? MOST : MOST / 2));
  const divisors = Array.from({ length: FILTER }, (_, i) => i + 1).filter((n) => extent % n === 0);
  return [...new Set([...powers, ...divisors])];
}

const drawSummed = (l: Axis, random: Random): number =>
  l.extent <= FILTER && random() < 0.7 ? l.extent : pick(random, sizesOf(l));
