/**
 * @file Decision `launch` of threads: when the kernel that adds up partial sums begins.
 *
 *     (left out)     after the first kernel has ended
 *     early          once all blocks of the first kernel run: it sets up meanwhile, and then waits for the end (sm_90)
 */

import { z } from "zod";
import { MINOR_DISTANCE } from "../decision.ts";
import type { ThreadDecision } from "./context.ts";

export const launch: ThreadDecision<"launch"> = {
  name: "launch",
  summary:
    "Whether the kernel that adds up partial sums is launched while the first kernel still runs. By default it is launched after that one has ended.",
  example: "early",
  schema: z.enum(["early"]).optional(),
  values: ({ limits }) => (limits.dependentLaunch ? [undefined, "early"] : [undefined]),
  suits: (_, { split }, value) => value === undefined || split > 1,
  print: (value) => value,
  tidy: (_, schedule) => (schedule.split > 1 ? schedule.launch : undefined),
  problem: ({ limits }, schedule) => {
    if (schedule.launch === undefined) return undefined;
    if (!limits.dependentLaunch) return "a kernel of the machine begins when the one ahead has ended";
    return schedule.split > 1 ? undefined : "the call is one kernel, which awaits no other";
  },
  distance: (_, { launch: a }, { launch: b }) => (a === b ? 0 : MINOR_DISTANCE),
};
