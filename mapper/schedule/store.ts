/**
 * @file Decision `store`: how sums reach the output.
 *
 *     direct     each lane writes the elements it holds
 *     staged     by way of shared memory, a row of tiles at a time, and from there along the output; the only way for fragments whose
 *                layout the vendor keeps secret
 */

import { z } from "zod";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import type { Decision } from "./decision.ts";

export const store: Decision<GridSchedule["store"]> = {
  name: "store",
  summary: "How sums reach the output: each lane writes what it holds, or by way of shared memory.",
  schema: z.enum(["direct", "staged"]),
  values: ({ target }) => (target.storage === undefined ? ["staged"] : ["direct", "staged"]),
  print: (value) => value,
};
