/**
 * @file The decisions of a lane design that is given by its transform: on the vectors of a CPU, on the warps of a GPU, and
 * of a result that refers to itself. A search takes their values from the list of designs and their schedules.
 *
 *     transform (q,r,s) on lane q at (r) (s)   lanes 16   tile q 16   beside p 4, q 2   inputs loaded   stores through the caches
 */

import { z } from "zod";
import {
  ARRAY_INPUTS,
  type ArrayPlan,
  type DesignSchedule,
  type LaneTransform,
  type RecurrenceSchedule,
  type WarpDesignSchedule,
} from "../../abstraction/candidate.ts";
import { internal } from "../../abstraction/error.ts";
import { identifier } from "../../abstraction/schema.ts";
import { MOST_LOOPS } from "../space-time/lane-array.ts";
import { printVector } from "../space-time/vector.ts";
import { byAxis, pairsApart } from "./decision.ts";
import * as shared from "./lane-decisions.ts";
import type { Decisions } from "./schedules.ts";

/** For values that a search takes from a list rather than draws. */
const LISTED = {
  draw: (): never => {
    internal("schedules of designs are listed, not drawn");
  },
  moves: [],
};

const entry = z.int().min(-64).max(64);
const row = z.array(entry).min(1).max(MOST_LOOPS);
const steps = z.int().positive().max(1024);

/** `(q,r,s) on lane q+s at (r) (s)`. */
export function printTransform({ loops, allocation, schedule }: LaneTransform): string {
  return `(${loops.join(",")}) by P ${printVector(allocation)}, s ${schedule.map(printVector).join(" ")}`;
}

const transform = {
  summary:
    "The loops of the array, the lane on which each of their points runs (P), and the step at which it runs (s, slowest row first).",
  example: "(p,r) by P (1,1), s (0,1)",
  schema: z
    .strictObject({
      loops: z.array(identifier).min(1).max(MOST_LOOPS),
      allocation: row,
      schedule: z.array(row).min(1).max(MOST_LOOPS),
    })
    .refine((t) => [t.allocation, ...t.schedule].every((r) => r.length === t.loops.length), {
      error: "has rows of another length than its loops",
    }),
  print: printTransform,
  distance: (_: object, a: Pick<ArrayPlan, "transform">, b: Pick<ArrayPlan, "transform">) =>
    printTransform(a.transform) === printTransform(b.transform) ? 0 : 1,
  ...LISTED,
};

const lanes = { ...shared.lanes, print: String, ...LISTED };

const tile = {
  summary:
    "The part of a longer loop that one pass of the array covers, so that the array has as many PEs as there are lanes.",
  example: "q 14",
  schema: byAxis(steps),
  distance: (_: object, a: ArrayPlan, b: ArrayPlan) => pairsApart(a.tile, b.tile),
  ...LISTED,
};

const beside = {
  summary:
    "Unrolls loops around the array, or tiles of a loop in it, so that several passes run interleaved, each with its own sums. They share the inputs that they have in common.",
  example: "p 4, q 2",
  schema: byAxis(steps),
  distance: (_: object, a: Pick<ArrayPlan, "beside">, b: Pick<ArrayPlan, "beside">) => pairsApart(a.beside, b.beside),
  ...LISTED,
};

const inputs = {
  summary:
    "How inputs that move across lanes arrive: each lane passes them to its neighbour (`passed`), each lane loads them itself (`loaded`), or each lane loads several neighbours at once, bytes or words for a dot-product instruction (`dots`).",
  example: "loaded",
  schema: z.enum(ARRAY_INPUTS),
  ...LISTED,
};

const threads = { ...shared.threads, ...LISTED };

/** Designs on the vectors of a CPU. The decisions are in the order in which they are printed. */
export const DESIGN_DECISIONS: Decisions<DesignSchedule, object> = {
  transform,
  lanes,
  tile,
  beside,
  inputs,
  streaming: { ...shared.streaming, ...LISTED },
  threads,
};

/** Designs on the lanes of warps. */
export const WARP_DESIGN_DECISIONS: Decisions<WarpDesignSchedule, object> = {
  transform,
  lanes,
  tile,
  beside,
  inputs,
  warps: { ...shared.warps, ...LISTED },
};

/** Results that refer to themselves, on the vectors of a CPU. */
export const RECURRENCE_DECISIONS: Decisions<RecurrenceSchedule, object> = { transform, lanes, beside, threads };
