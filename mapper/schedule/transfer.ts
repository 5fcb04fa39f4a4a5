/**
 * @file Decision `transfer`: how tiles come into shared memory.
 *
 *     async     copied behind the back of the threads, 4 to 16 bytes at once, in groups that are waited for (sm_80 and later)
 *     engine    boxes that the machine's copy engine fetches when one thread says so, awaited by stage (sm_90)
 *     plain     through registers of the threads; always so where neighbours lie apart in memory or must be computed
 */

import { z } from "zod";
import { tensorOf } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import type { GridContext, GridDecision } from "./grid-context.ts";

/** Bytes of which a row of a box is a multiple, and where it begins. Source: CUDA driver API, cuTensorMapEncodeTiled. */
const BOX_BYTES = 16;

/** Why the engine cannot fetch both inputs as boxes of a matrix; undefined when it can. */
export function engineProblem({
  mapping,
  intrinsic,
  limits,
  inputs,
  sum,
  outer,
  outerSums,
  padding,
}: GridContext): string | undefined {
  if (!limits.engine) return "the machine has no copy engine";
  if (!intrinsic.asynchronous) return `${intrinsic.name} reads fragments, which engines are not used for`;
  if (outer.length + outerSums.length > 0) return "boxes are cut from matrices: loops stand outside the instruction";
  if (padding.kind !== "number" || padding.value !== 0) return "an engine fills with zeros";
  for (const { operand, value, kept, contiguous, width, conditions } of inputs) {
    if (value.kind !== "access" || conditions.length > 0) return `${operand.name} is computed, and an engine copies`;
    const { dims } = tensorOf(mapping.computation, value.tensor);
    const [first, second, ...more] = contiguous === "sum" ? [kept, sum] : [sum, kept];
    const alone = (a: typeof first, at: number): boolean => {
      const index = value.index[at];
      const [loop, ...others] = a?.dimension?.loops ?? [];
      return index?.kind === "axis" && index.name === loop?.name && others.length === 0;
    };
    if (more.length > 0 || dims.length !== 2 || !alone(first, 0) || !alone(second, 1))
      return `${value.tensor} is no matrix with rows along the axis whose neighbours lie side by side`;
    if (width * bytesOf(operand.dtype) !== BOX_BYTES)
      return `rows of ${value.tensor} are no multiple of ${BOX_BYTES} bytes`;
  }
  return undefined;
}

export const transfer: GridDecision<"transfer"> = {
  name: "transfer",
  summary:
    "How tiles come into shared memory: asynchronously in groups, through registers, or as boxes that the copy engine fetches.",
  example: "async",
  schema: z.enum(["async", "plain", "engine"]),
  values: (context) => {
    const { limits, inputs } = context;
    const grouped = limits.asyncBytes.length > 0 && inputs.some((i) => i.asyncWidth !== undefined);
    return ["plain", ...(grouped ? ["async" as const] : []), ...(engineProblem(context) ? [] : ["engine" as const])];
  },
  print: (value) => value,
};
