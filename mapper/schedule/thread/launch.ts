/**
 * @file Decision `launch` of threads: when the kernel begins that adds up what split sums left.
 *
 *     (left out)     once the one ahead has ended
 *     early          once all its blocks run: it is set up meanwhile, and awaits its end (sm_90)
 */

import { z } from "zod";
import { MINOR_DISTANCE } from "../decision.ts";
import type { ThreadDecision } from "./context.ts";

export const launch: ThreadDecision<"launch"> = {
  name: "launch",
  summary: "The kernel that adds parts up is launched while the one ahead runs. When left out, once it has ended.",
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
