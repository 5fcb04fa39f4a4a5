/**
 * @file Decision `split`: blocks that share the sum of an element (split-K).
 *
 *     split 16      sixteen blocks store partial sums in the workspace, and a second kernel adds them up
 *
 * It suits few sums of many terms, which would leave most of the machine idle. The second kernel costs a launch.
 */

import { z } from "zod";
import type { ThreadDecision } from "./context.ts";

/** The number of kept points from which the machine is busy without splitting. */
const MANY_SUMS = 4096;
const MOST = 128;

export const split: ThreadDecision<"split"> = {
  summary: "Blocks that share the sum of an element (split-K). A second kernel adds up their partial sums.",
  example: "16",
  schema: z.int().min(1).max(MOST),
  values: ({ loops }) => {
    const of = (kind: "spatial" | "reduce"): number =>
      loops.reduce((product, l) => (l.kind === kind ? product * l.extent : product), 1);
    return of("spatial") > MANY_SUMS || of("reduce") < MANY_SUMS ? [1] : [1, 4, 16, 32, 64, MOST];
  },
  print: (value) => (value === 1 ? undefined : String(value)),
};
