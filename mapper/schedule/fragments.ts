/**
 * @file Decision `fragments`: when a warp fetches the fragments it multiplies from shared memory.
 *
 *     inline     fetch k, multiply k
 *     ahead      fetch k+1 into a second set, multiply k: within a step
 *     across     the same across steps: behind the barrier the first fragments of the next step, then the last product of this one
 */

import { z } from "zod";
import { extentOf } from "../../abstraction/affine.ts";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import type { GridContext, GridDecision } from "./grid-context.ts";

export const fragments: GridDecision<"fragments"> = {
  name: "fragments",
  summary: "When fragments are fetched: where they are multiplied, or one part ahead, within a step or across steps.",
  example: "ahead",
  schema: z.enum(["inline", "ahead", "across"]),
  values: () => ["inline", "ahead", "across"],
  print: (value) => value,
  traits: (schedule) => [`fragments ${schedule.fragments}`],
};

/** Sets of input fragments that a warp holds. */
export function setsOf({ fragments: when }: GridSchedule): number {
  return when === "inline" ? 1 : 2;
}

/** Parts of a step: issues along the sum. */
export function partsOf({ sum }: GridContext, size: Readonly<Record<string, number>>): number {
  return extentOf(sum.axis, size) / sum.extent;
}

/** Why fragments cannot be fetched across steps; undefined when they can. */
export function fragmentsProblem(context: GridContext, schedule: GridSchedule): string | undefined {
  if (schedule.fragments !== "across") return undefined;
  // The first part of every step uses the same set.
  if (partsOf(context, schedule.tile) % 2 !== 0) return "fragments across steps need an even number of parts of a step";
  if (schedule.stage === 1) return "fragments across steps need a second stage";
  return undefined;
}
