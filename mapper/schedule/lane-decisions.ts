/**
 * @file Decisions that several kinds of lane schedules share, with their texts. Which values a decision has, its kind says: windows
 * (window-decisions.ts), time steps (step-decisions.ts), designs by their transforms (array-decisions.ts).
 */

import { z } from "zod";
import { WARP } from "../../abstraction/intrinsic.ts";
import type { Decision } from "./decision.ts";
import { MAPPED_DECISIONS } from "./mapped-decisions.ts";

/** A decision without its values. */
type Words<V> = Pick<Decision<V, never, never>, "label" | "summary" | "example" | "schema" | "print">;

const MOST_OF_BLOCK = 1024;
export const positive = z.int().positive().max(MOST_OF_BLOCK);
export const natural = z
  .int()
  .nonnegative()
  .max(2 ** 31);

/** Of what is printed as part of the design. */
export const ofDesign = (): undefined => undefined;

export const lanes: Words<number> = {
  summary: "Elements of a vector: those of a register, or the threads of a warp.",
  example: "16",
  schema: positive,
  print: ofDesign,
};

/** Lanes of a warp. */
export const warpLanes = { ...lanes, values: () => [WARP] };

export const rows: Words<number> = {
  summary: "Output rows of a block. They share the input rows that they both read.",
  example: "4",
  schema: positive,
  print: ofDesign,
};

export const vectors: Words<number> = {
  summary: "Vectors of a block along a row. Independent sums hide the latency of an addition.",
  example: "4",
  schema: positive,
  print: ofDesign,
};

export const streaming: Words<boolean> = {
  label: "stores",
  summary:
    "Whether results are written with streaming stores that bypass the caches. This pays when the output does not fit in them.",
  example: "around the caches",
  schema: z.boolean(),
  print: (around) => (around ? "around the caches" : "through the caches"),
};

export const each: Words<number | undefined> = {
  label: "outputs a lane",
  summary:
    "Neighbouring outputs of one lane. They share inputs, and each load or store moves this many elements. By default a lane has one output of each vector.",
  example: "4",
  schema: positive.optional(),
};

export const sweep: Words<number | undefined> = {
  summary:
    "Rows of an image, or planes of a 3-D grid, that lanes compute one after another. Each element is loaded once and added to every sum that needs it. Longer sweeps load fewer halo rows twice, but leave fewer blocks.",
  example: "64 outputs",
  schema: positive.optional(),
  print: (outputs) => (outputs === undefined ? undefined : `${outputs} outputs`),
};

export const ahead: Words<number | undefined> = {
  label: "steps written out",
  summary: "Steps of a sweep that are unrolled together with all their loads first, so that more loads are in flight.",
  example: "2",
  schema: positive.optional(),
};

/** Warps of a block when a schedule does not say. */
export const USUAL_WARPS = 4;

export const warps: Words<number | undefined> = {
  summary: "Warps of a block on a GPU; 4 when left out. They run on one multiprocessor and share its first cache.",
  example: "8",
  schema: z.int().positive().max(32).optional(),
};

const { summary, example, schema } = MAPPED_DECISIONS.threads;
/** The user chooses the number. */
export const threads = {
  summary,
  example,
  schema,
  values: (context: { readonly threads: number }) => [context.threads],
};
