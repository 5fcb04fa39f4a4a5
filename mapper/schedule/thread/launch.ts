/**
 * @file Decision `launch` of threads: when the kernel that adds up partial sums begins.
 *
 *     (left out)     after the first kernel has ended
 *     early          once all blocks of the first kernel run: it sets up meanwhile, and then waits for the end (sm_90)
 */

import { launchAmong } from "../launch.ts";
import type { ThreadDecision } from "./context.ts";

export const launch: ThreadDecision<"launch"> = {
  ...launchAmong(({ split }) => split > 1),
  summary:
    "Whether the kernel that adds up partial sums is launched while the first kernel still runs. By default it is launched after that one has ended.",
};
