/**
 * @file Decision `transfer`: how tiles are copied into shared memory.
 *
 *     async     asynchronously (cp.async), 4 to 16 bytes at a time, in groups that the threads wait for (sm_80 and later)
 *     engine    by the copy engine (TMA), as boxes or runs of pixels that one thread requests and all await by stage (sm_90)
 *     plain     through registers; the only way if neighbours are not contiguous in memory or elements must be computed
 */

import { z } from "zod";
import { extentOf } from "../../abstraction/affine.ts";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { present } from "../../abstraction/collections.ts";
import { boxIsAsync, isGatherable } from "./gather.ts";
import { type GridContext, type GridDecision, heldInput } from "./grid-context.ts";
import { endsElsewhere, viewForm } from "./views.ts";

/**
 * The most rows of a box, and pixels of a run. Source: CUDA driver API, cuTensorMapEncodeTiled and
 * cuTensorMapEncodeIm2col.
 */
const MOST_ROWS = { box: 256, pixels: 1024 } as const;

/** Why the engine cannot fetch the tiles of both inputs; undefined when it can. */
export function engineProblem(context: GridContext, tile?: GridSchedule["tile"]): string | undefined {
  const { intrinsic, limits, inputs, sum, padding } = context;
  if (!limits.engine) return "the machine has no copy engine";
  if (!intrinsic.asynchronous) return `${intrinsic.name} reads fragments, which copy engines are not used for`;
  if (padding.kind !== "number" || padding.value !== 0) return "an engine fills with zeros";
  for (const input of inputs) {
    const form = viewForm(context, input);
    if (typeof form === "string") return form;
    if (tile && !form.ends && sum.elements % extentOf(sum.axis, tile) !== 0) return endsElsewhere(sum, form.access);
    const { axis } = input.contiguous === "sum" ? input.kept : sum;
    const rows = tile?.[axis] ?? 1;
    if (rows > MOST_ROWS[form.rows.kind]) return `a copy of ${rows} ${axis} is more than an engine makes at once`;
  }
  return undefined;
}

export const transfer: GridDecision<"transfer"> = {
  summary:
    "How tiles are copied into shared memory: asynchronously in groups (`async`), through registers (`plain`), or by the copy engine (TMA) as boxes and runs of pixels (`engine`).",
  example: "async",
  schema: z.enum(["async", "plain", "engine"]),
  values: (context) => {
    const { limits, inputs } = context;
    if (heldInput(context)) return ["async"];
    const grouped =
      limits.asyncBytes.length > 0 && inputs.some((i) => i.asyncWidth !== undefined || isGatherable(context, i));
    return present(["plain", grouped && ("async" as const), !engineProblem(context) && ("engine" as const)]);
  },
  goesWith: "repack",
  problem: (context, schedule) => {
    if (schedule.transfer === "engine") return engineProblem(context, schedule.tile);
    if (schedule.transfer !== "async") return undefined;
    return context.inputs.every((i) => i.asyncWidth === undefined) && !boxIsAsync(context, schedule)
      ? "neither input can be copied asynchronously"
      : undefined;
  },
};
