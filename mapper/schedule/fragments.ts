/**
 * @file Decision `fragments`: when a warp fetches the fragments that it multiplies from shared memory.
 *
 *     inline     fetch k, multiply k
 *     ahead      fetch k+1 into a second set, multiply k: within a step
 *     across     the same across steps: after the barrier, fetch the first fragments of the next step, then do the last product of this one
 *
 * An instruction that reads shared memory itself has no fragments. The decision then says when its products are
 * awaited: in their own step (inline), or one step later (across), so that they run during the wait for the next stage.
 * The latter needs one more stage.
 */

import { z } from "zod";
import { extentOf } from "../../abstraction/affine.ts";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import type { GridContext, GridDecision } from "./grid-context.ts";

export const fragments: GridDecision<"fragments"> = {
  name: "fragments",
  summary:
    "When fragments are loaded into registers: just before they are multiplied (`inline`), one part ahead within a step (`ahead`), or ahead across steps (`across`). For wgmma: whether the products of a step are awaited in that step or in the next.",
  example: "ahead",
  schema: z.enum(["inline", "ahead", "across"]),
  values: ({ intrinsic }) => (intrinsic.asynchronous ? ["inline", "across"] : ["inline", "ahead", "across"]),
  suits: (context, schedule, value) => fragmentsProblem(context, { ...schedule, fragments: value }) === undefined,
  print: (value) => value,
  traits: (schedule) => [`fragments ${schedule.fragments}`],
  problem: fragmentsProblem,
};

/** Steps whose products may still run while another step is awaited. Their stages are not free yet. */
export function stepsInFlight({ intrinsic }: GridContext, { fragments: when }: GridSchedule): number {
  return intrinsic.asynchronous && when === "across" ? 1 : 0;
}

/** Number of sets of input fragments that a warp holds. */
export function setsOf({ fragments: when }: GridSchedule): number {
  return when === "inline" ? 1 : 2;
}

/** Parts of a step: number of issues along the sum. */
export function partsOf({ sum }: GridContext, size: Readonly<Record<string, number>>): number {
  return extentOf(sum.axis, size) / sum.extent;
}

/** Why fragments cannot be fetched across steps; undefined when they can. */
function fragmentsProblem(context: GridContext, schedule: GridSchedule): string | undefined {
  if (context.intrinsic.asynchronous) {
    if (schedule.fragments === "ahead") return `${context.intrinsic.name} has no fragments to be fetched ahead`;
    return schedule.fragments === "across" && schedule.stage < 3
      ? "products across steps need a third stage"
      : undefined;
  }
  if (schedule.fragments !== "across") return undefined;
  // The first part of every step uses the same set.
  if (partsOf(context, schedule.tile) % 2 !== 0)
    return "fragments that cross steps need an even number of parts in a step";
  if (schedule.stage === 1) return "fragments that cross steps need at least two stages";
  return undefined;
}
