/**
 * @file Decision `launch`: when a kernel of a call starts relative to the kernel that it waits for (programmatic dependent launch).
 *
 *     (left out)     after that kernel has ended and its writes are in memory
 *     early          once all its blocks run: the next kernel sets up barriers and indices meanwhile, and then waits for the end (sm_90)
 *
 * This applies within a call. The first kernel waits for earlier work in the stream, as any other kernel does.
 */

import { z } from "zod";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { type Decision, type Listed, MINOR_DISTANCE } from "./decision.ts";
import type { GridContext, GridDecision } from "./grid-context.ts";

/** Kernels of a call: copies of inputs, products, and sums of parts that are combined in memory. */
const kernelsOf = ({ repack, split }: Pick<GridSchedule, "repack" | "split">): number =>
  1 + (repack === undefined ? 0 : 1) + (split?.through === "memory" ? 1 : 0);

type Launch = GridSchedule["launch"];
type Limited = Pick<GridContext, "limits">;

/** The decision for schedules of which some have several kernels. */
export function launchAmong<S extends { readonly launch?: Launch }>(
  hasSeveral: (schedule: S) => boolean,
): Listed<Launch, Limited, S> &
  Pick<Decision<Launch, Limited, S>, "example" | "schema" | "tidy" | "problem" | "distance"> {
  return {
    example: "early",
    schema: z.enum(["early"]).optional(),
    values: ({ limits }) => (limits.dependentLaunch ? [undefined, "early"] : [undefined]),
    suits: (_, schedule, value) => value === undefined || hasSeveral(schedule),
    tidy: (_, schedule) => (hasSeveral(schedule) ? schedule.launch : undefined),
    problem: ({ limits }, schedule) => {
      if (schedule.launch === undefined) return undefined;
      if (!limits.dependentLaunch) return "a kernel of the machine begins when the one ahead has ended";
      return hasSeveral(schedule) ? undefined : "the call is one kernel, which awaits no other";
    },
    distance: (_, { launch: a }, { launch: b }) => (a === b ? 0 : MINOR_DISTANCE),
  };
}

export const launch: GridDecision<"launch"> = {
  ...launchAmong((schedule) => kernelsOf(schedule) > 1),
  summary:
    "Whether a kernel that waits for another one of the same call, as a product waits for its repacked inputs, is launched while that one still runs. By default it is launched after that one has ended.",
  traits: ({ launch: value }) => (value === undefined ? [] : [`launch ${value}`]),
};
