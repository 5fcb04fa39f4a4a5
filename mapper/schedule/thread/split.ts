/**
 * @file Decision `split`: blocks that share the sum of an element.
 *
 *     split 16      sixteen blocks leave their parts in the workspace, and a second kernel adds them up
 *
 * For few sums of many terms, which would leave the machine idle; the second kernel costs a launch.
 */

import { z } from "zod";
import type { ThreadDecision } from "./context.ts";

/** Kept points from which the machine is busy without. */
const MANY_SUMS = 4096;
const MOST = 128;

export const split: ThreadDecision<"split"> = {
  name: "split",
  summary: "Blocks that share the sum of an element: a second kernel adds their parts up.",
  example: "16",
  schema: z.int().min(1).max(MOST),
  values: ({ loops }) => {
    const of = (kind: "spatial" | "reduce"): number =>
      loops.reduce((product, l) => (l.kind === kind ? product * l.extent : product), 1);
    return of("spatial") > MANY_SUMS || of("reduce") < MANY_SUMS ? [1] : [1, 4, 16, 32, 64, MOST];
  },
  print: (value) => (value === 1 ? undefined : String(value)),
};
