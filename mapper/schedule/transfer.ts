/**
 * @file Decision `transfer`: how tiles come into shared memory.
 *
 *     async     copied behind the back of the threads, 4 to 16 bytes at once, in groups that are waited for (sm_80 and later)
 *     plain     through registers of the threads; always so where neighbours lie apart in memory or must be computed
 */

import { z } from "zod";
import type { GridDecision } from "./grid-context.ts";

export const transfer: GridDecision<"transfer"> = {
  name: "transfer",
  summary: "How tiles come into shared memory: asynchronously in groups, or through registers.",
  example: "async",
  schema: z.enum(["async", "plain"]),
  values: ({ limits, inputs }) =>
    limits.asyncBytes.length > 0 && inputs.some((i) => i.asyncWidth !== undefined) ? ["plain", "async"] : ["plain"],
  print: (value) => value,
};
