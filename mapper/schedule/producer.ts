/**
 * @file Decision `producer` (warp specialisation): which threads start the engine's copies (TMA), and hence what the multiplying warpgroups wait for.
 *
 *     (left out)     thread 0, once all warpgroups have met; a stage is filled again a step after its products have ended
 *     warp           one thread of an extra warp, which waits for each stage until every warpgroup has left it: warpgroups do not wait for each other
 *
 * The warp is launched with as many registers as the others. Beside two warpgroups each thread has 168, since nine warps take as much of the
 * register file as twelve: enough for 128 sums. Registers are not moved between roles (setmaxnreg), which only a whole warpgroup could do.
 */

import { z } from "zod";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import type { GridContext, GridDecision } from "./grid-context.ts";
import { engineProblem } from "./transfer.ts";

export const producer: GridDecision<"producer"> = {
  summary:
    "An additional warp, one thread of which fills stages as they become free, so that warpgroups need no barrier in every step. By default thread 0 of the block fills them.",
  example: "warp",
  schema: z.enum(["warp"]).optional(),
  values: (context) => (engineProblem(context) === undefined ? [undefined, "warp"] : [undefined]),
  suits: (_, schedule, value) => value === undefined || producerProblem({ ...schedule, producer: value }) === undefined,
  goesWith: "transfer",
  traits: ({ producer: by }) => (by === undefined ? [] : ["producer"]),
  problem: (_, schedule) => producerProblem(schedule),
};

function producerProblem({ producer: by, transfer, stage }: GridSchedule): string | undefined {
  if (by === undefined) return undefined;
  if (transfer !== "engine")
    return `a thread on its own sends for tiles that the engine copies, not for ${transfer} ones`;
  return stage < 2 ? "a stage is filled while another is multiplied: a producer needs a second one" : undefined;
}

/** Number of threads of a block that do not multiply. */
export const producingThreads = ({ limits }: GridContext, schedule: Pick<GridSchedule, "producer">): number =>
  schedule.producer === undefined ? 0 : limits.lanes;
