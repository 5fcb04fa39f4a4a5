/**
 * @file Decision `threads`: the number of threads. The user chooses it; searches do not change it.
 *
 *     threads 2        order p q k: two ranges of p
 */

import { z } from "zod";
import type { Schedule } from "../../abstraction/candidate.ts";
import type { Decision } from "./decision.ts";
import type { MappedContext } from "./mapped-context.ts";

const MOST = 4096;

export const threads: Decision<number, MappedContext, Schedule> = {
  summary: "Threads among which the outermost kept loop with more than one step is divided.",
  example: "2",
  schema: z.int().positive().max(MOST),
  draw: (context) => context.threads,
  carry: (context) => context.threads,
  moves: [],
};
