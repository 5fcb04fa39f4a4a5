/**
 * @file Decision `store`: how sums reach the output.
 *
 *     direct     each lane writes the elements it holds
 *     staged     by way of shared memory, a row of tiles at a time, and from there along the output; the only way for fragments whose
 *                layout the vendor keeps secret
 */

import { z } from "zod";
import type { GridDecision } from "./grid-context.ts";

export const store: GridDecision<"store"> = {
  name: "store",
  summary: "How sums reach the output: each lane writes what it holds, or by way of shared memory.",
  example: "staged",
  schema: z.enum(["direct", "staged"]),
  values: ({ target }) => (target.storage === undefined ? ["staged"] : ["direct", "staged"]),
  print: (value) => value,
  traits: (schedule) => [`store ${schedule.store}`],
};
