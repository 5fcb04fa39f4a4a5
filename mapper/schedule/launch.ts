/**
 * @file Decision `launch`: when a kernel of a call begins, relative to the kernel that it waits for.
 *
 *     (left out)     after that kernel has ended and its writes are in memory
 *     early          once all its blocks run: the next kernel sets up barriers and indices meanwhile, and then waits for the end (sm_90)
 *
 * This applies within a call. The first kernel waits for earlier work in the stream, as any other kernel does.
 */

import { z } from "zod";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { MINOR_DISTANCE } from "./decision.ts";
import type { GridContext, GridDecision } from "./grid-context.ts";

export const launch: GridDecision<"launch"> = {
  name: "launch",
  summary:
    "Whether a kernel that waits for another one of the same call, as a product waits for its repacked inputs, is launched while that one still runs. By default it is launched after that one has ended.",
  example: "early",
  schema: z.enum(["early"]).optional(),
  values: ({ limits }) => (limits.dependentLaunch ? [undefined, "early"] : [undefined]),
  suits: (_, schedule, value) => value === undefined || kernelsOf(schedule) > 1,
  print: (value) => value,
  tidy: (_, schedule) => (kernelsOf(schedule) > 1 ? schedule.launch : undefined),
  traits: ({ launch: value }) => (value === undefined ? [] : [`launch ${value}`]),
  problem: launchProblem,
  distance: (_, { launch: a }, { launch: b }) => (a === b ? 0 : MINOR_DISTANCE),
};

/** Kernels of a call: copies of inputs, products, and sums of parts that are combined in memory. */
const kernelsOf = ({ repack, split }: Pick<GridSchedule, "repack" | "split">): number =>
  1 + (repack === undefined ? 0 : 1) + (split?.through === "memory" ? 1 : 0);

function launchProblem({ limits }: GridContext, schedule: GridSchedule): string | undefined {
  if (schedule.launch === undefined) return undefined;
  if (!limits.dependentLaunch) return "a kernel of the machine begins when the one ahead has ended";
  return kernelsOf(schedule) > 1 ? undefined : "the call is one kernel, which awaits no other";
}
