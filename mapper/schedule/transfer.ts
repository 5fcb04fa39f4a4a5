/**
 * @file Decision `transfer`: how tiles come into shared memory.
 *
 *     async     copied behind the back of the threads, 4 to 16 bytes at once, in groups that are waited for (sm_80 and later)
 *     engine    boxes, or pixels along a walk, that the machine's copy engine fetches when one thread says so, awaited by stage (sm_90)
 *     plain     through registers of the threads; always so where neighbours lie apart in memory or must be computed
 */

import { z } from "zod";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { boxIsAsync, isGatherable } from "./gather.ts";
import type { GridContext, GridDecision } from "./grid-context.ts";
import { viewForm } from "./views.ts";

/** Rows of a box, and pixels of a walk, at most. Source: CUDA driver API, cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col. */
const MOST_ROWS = { box: 256, pixels: 1024 } as const;

/** Why the engine cannot fetch the tiles of both inputs; undefined when it can. */
export function engineProblem(context: GridContext, tile?: GridSchedule["tile"]): string | undefined {
  const { intrinsic, limits, inputs, sum, padding } = context;
  if (!limits.engine) return "the machine has no copy engine";
  if (!intrinsic.asynchronous) return `${intrinsic.name} reads fragments, which engines are not used for`;
  if (padding.kind !== "number" || padding.value !== 0) return "an engine fills with zeros";
  for (const input of inputs) {
    const form = viewForm(context, input);
    if (typeof form === "string") return form;
    const { axis } = input.contiguous === "sum" ? input.kept : sum;
    const rows = tile?.[axis] ?? 1;
    if (rows > MOST_ROWS[form.rows.kind]) return `a copy of ${rows} ${axis} is more than an engine makes at once`;
  }
  return undefined;
}

export const transfer: GridDecision<"transfer"> = {
  name: "transfer",
  summary:
    "How tiles come into shared memory: asynchronously in groups, through registers, or as boxes and walks of pixels that the copy engine fetches.",
  example: "async",
  schema: z.enum(["async", "plain", "engine"]),
  values: (context) => {
    const { limits, inputs } = context;
    const grouped =
      limits.asyncBytes.length > 0 && inputs.some((i) => i.asyncWidth !== undefined || isGatherable(context, i));
    return ["plain", ...(grouped ? ["async" as const] : []), ...(engineProblem(context) ? [] : ["engine" as const])];
  },
  print: (value) => value,
  goesWith: "repack",
  problem: (context, schedule) => {
    if (schedule.transfer === "engine") return engineProblem(context, schedule.tile);
    if (schedule.transfer !== "async") return undefined;
    return context.inputs.every((i) => i.asyncWidth === undefined) && !boxIsAsync(context, schedule)
      ? "neither input can be copied asynchronously"
      : undefined;
  },
};
