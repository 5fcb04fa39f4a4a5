/**
 * @file Decision `fragments`: when a warp fetches the fragments that it multiplies from shared memory.
 *
 *     inline     fetch k, multiply k
 *     ahead      fetch k+1 into a second set, multiply k: within a step
 *     across     the same across steps: after the barrier, fetch the first fragments of the next step, then do the last product of this one
 *     rolled     those of an image that the next row of taps reads again stay in registers (rolled.ts)
 *
 * An instruction that reads shared memory itself has no fragments. The decision then says when its products are
 * awaited: in their own step (inline), or one step later (across), so that they run during the wait for the next stage.
 * The latter needs one more stage. If it takes one factor in registers, threads make fragments of half a step while the other half is multiplied (across).
 */

import { z } from "zod";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { isBand } from "../match/bands.ts";
import { type GridContext, type GridDecision, type GridInput, heldInput } from "./grid-context.ts";
import { madeInRegisters } from "./narrow.ts";
import { rolledOf } from "./rolled.ts";
import { partsAtOnce } from "./runs.ts";
import { fragmentsAlong, partsOf } from "./tile.ts";

export const fragments: GridDecision<"fragments"> = {
  summary:
    "When fragments are loaded into registers: just before they are multiplied (`inline`), one part ahead within a step (`ahead`), or ahead across steps (`across`); `rolled` keeps those of an image for the next row of taps. For wgmma: whether the products of a step are awaited in that step or in the next.",
  example: "ahead",
  schema: z.enum(["inline", "ahead", "across", "rolled"]),
  values: ({ intrinsic, mapping }) => {
    if (intrinsic.asynchronous) return ["inline", "across"];
    const rolls = isBand(mapping.computation.rewriting?.kind);
    return ["inline", "ahead", "across", ...(rolls ? (["rolled"] as const) : [])];
  },
  suits: (context, schedule, value) => fragmentsProblem(context, { ...schedule, fragments: value }) === undefined,
  traits: (schedule) => [`fragments ${schedule.fragments}`],
  problem: fragmentsProblem,
};

/**
 * Number of sets of input fragments that a warp holds, of an input that does not stay in registers. Asynchronous products take those of a whole step, or
 * of its halves in turn.
 */
export function setsOf(context: GridContext, { fragments: when, tile }: GridSchedule): number {
  if (context.intrinsic.asynchronous) return partsOf(context, tile);
  return when === "inline" || when === "rolled" ? 1 : 2;
}

/** Number of fragments of an input that a warp holds. */
export function heldFragments(context: GridContext, schedule: GridSchedule, input: GridInput): number {
  const rolled = schedule.fragments === "rolled" ? rolledOf(context, schedule) : undefined;
  if (typeof rolled === "object" && rolled.input === input) return rolled.count * rolled.parts;
  return fragmentsAlong(input.kept, schedule) * setsOf(context, schedule) * partsAtOnce(context, schedule);
}

/** Groups of products of a step that are sent off one after another: threads make the fragments of one during another. */
export const groupsOf = (context: GridContext, { fragments: when }: GridSchedule): number =>
  when === "across" && heldInput(context) ? 2 : 1;

/** How often the fragments of a step are fetched: once for each part, or for several parts. */
export const fetchesIn = (context: GridContext, schedule: GridSchedule): number =>
  partsOf(context, schedule.tile) / partsAtOnce(context, schedule);

/** Why fragments cannot be fetched across steps; undefined when they can. */
function fragmentsProblem(context: GridContext, schedule: GridSchedule): string | undefined {
  if (context.intrinsic.asynchronous) {
    if (schedule.fragments === "ahead") return `${context.intrinsic.name} has no fragments to be fetched ahead`;
    const held = heldInput(context);
    if (held && !madeInRegisters(context, schedule, held))
      return `lanes make ${held.operand.name} of ${context.intrinsic.name} only of what asynchronous copies bring, in one warpgroup`;
    if (schedule.fragments !== "across") return undefined;
    if (context.scale) return "sums that are scaled are awaited in their own step";
    if (schedule.stage < 3) return "products across steps need a third stage";
    return partsOf(context, schedule.tile) % groupsOf(context, schedule) === 0
      ? undefined
      : "fragments of half a step need an even number of parts in a step";
  }
  if (schedule.fragments === "rolled") {
    const rolled = rolledOf(context, schedule);
    return typeof rolled === "string" ? rolled : undefined;
  }
  if (schedule.fragments !== "across") return undefined;
  // The first part of every step uses the same set.
  if (fetchesIn(context, schedule) % 2 !== 0)
    return "fragments that cross steps need an even number of parts in a step";
  if (schedule.stage === 1) return "fragments that cross steps need at least two stages";
  return undefined;
}
