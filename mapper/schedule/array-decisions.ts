/**
 * @file The decisions of a lane design that is given by its transform. Together they are its schedule.
 *
 *     transform (q,r,s) on lane q at (r) (s)   lanes 16   tile q 16   beside p 4, q 2   inputs loaded   stores through the caches
 */

import { z } from "zod";
import { ARRAY_INPUTS, type ArraySchedule, type LaneTransform } from "../../abstraction/candidate.ts";
import { identifier } from "../../abstraction/schema.ts";
import { MOST_LOOPS } from "../space-time/lane-array.ts";
import { printVector } from "../space-time/vector.ts";
import { byAxis, type Decision, pairsApart, printPairs } from "./decision.ts";
import { LANE_DECISIONS } from "./lane-decisions.ts";
import type { Decisions } from "./schedules.ts";

type ArrayDecision<K extends keyof ArraySchedule> = Decision<ArraySchedule[K], object, ArraySchedule>;

/** For values that a search takes from the list of designs and their schedules rather than draws. */
const LISTED = { draw: (_: object, schedule: ArraySchedule): never => unlisted(schedule), moves: [] } as const;

const unlisted = (_: ArraySchedule): never => {
  throw new Error("internal: schedules of arrays are listed, not drawn");
};

const entry = z.number().int().min(-64).max(64);
const row = z.array(entry).min(1).max(MOST_LOOPS);
const steps = z.number().int().positive().max(1024);

/** `(q,r,s) on lane q+s at (r) (s)`. */
export function printTransform({ loops, allocation, schedule }: LaneTransform): string {
  return `(${loops.join(",")}) by P ${printVector(allocation)}, s ${schedule.map(printVector).join(" ")}`;
}

const transform: ArrayDecision<"transform"> = {
  name: "transform",
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
  distance: (_, a, b) => (printTransform(a.transform) === printTransform(b.transform) ? 0 : 1),
  ...LISTED,
};

const { name, summary, example, schema } = LANE_DECISIONS.lanes;
const lanes: ArrayDecision<"lanes"> = { name, summary, example, schema, print: String, ...LISTED };

const tile: ArrayDecision<"tile"> = {
  name: "tile",
  summary:
    "The part of a longer loop that one pass of the array covers, so that the array has as many PEs as there are lanes.",
  example: "q 14",
  schema: byAxis(steps),
  print: printPairs,
  distance: (_, a, b) => pairsApart(a.tile, b.tile),
  ...LISTED,
};

const beside: ArrayDecision<"beside"> = {
  name: "beside",
  summary:
    "Passes that run together, each in its own registers: steps of loops around the array, or tiles of a loop in it. They share inputs that they have in common.",
  example: "p 4, q 2",
  schema: byAxis(steps),
  print: printPairs,
  distance: (_, a, b) => pairsApart(a.beside, b.beside),
  ...LISTED,
};

const inputs: ArrayDecision<"inputs"> = {
  name: "inputs",
  summary:
    "How inputs that move across lanes arrive: each lane passes them to its neighbour (`passed`), each lane loads them itself (`loaded`), or each lane loads several neighbours at once, bytes or words for a dot-product instruction (`dots`).",
  example: "loaded",
  schema: z.enum(ARRAY_INPUTS),
  print: (how) => how,
  ...LISTED,
};

const streaming: ArrayDecision<"streaming"> = {
  name: "streaming",
  label: "stores",
  summary:
    "Whether results are written with streaming stores that bypass the caches. This pays when the output does not fit in them.",
  example: "through the caches",
  schema: z.boolean(),
  print: (around) => (around ? "around the caches" : "through the caches"),
  ...LISTED,
};

const { warps: ofBlock } = LANE_DECISIONS;
const warps: ArrayDecision<"warps"> = {
  name: ofBlock.name,
  summary: ofBlock.summary,
  example: ofBlock.example,
  schema: ofBlock.schema,
  print: (count) => count?.toString(),
  ...LISTED,
};

const threads: ArrayDecision<"threads"> = {
  name: LANE_DECISIONS.threads.name,
  summary: LANE_DECISIONS.threads.summary,
  example: LANE_DECISIONS.threads.example,
  schema: LANE_DECISIONS.threads.schema,
  print: String,
  ...LISTED,
};

/** The decisions in the order they are printed. */
export const ARRAY_DECISIONS: Decisions<ArraySchedule, object> = {
  transform,
  lanes,
  tile,
  beside,
  inputs,
  streaming,
  warps,
  threads,
};
