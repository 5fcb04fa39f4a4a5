/** @file The `--json` form of a calibration that kernels contradict. */

import { z } from "zod";
import type { Contradiction } from "../session/calibrate/contradiction.ts";
import { integer, number, text } from "./output.ts";

export const contradictionSchema = z
  .strictObject({
    calibratedAt: text.describe("ISO 8601"),
    kernels: integer.describe("kernels that ran faster than the rates allow"),
    of: integer,
    times: number.describe("how many times as fast the worst of them was"),
    bound: text.describe("the instruction or the memory that it outran"),
    kind: z.enum(["instruction", "memory"]),
    trial: text,
  })
  .nullable()
  .describe("null where kernels and rates agree");

/** The contradiction as data. */
export function contradictionDocument(found: Contradiction | undefined): z.infer<typeof contradictionSchema> {
  if (!found) return null;
  const { kernels, of, times, bound, trial, at } = found;
  return {
    calibratedAt: new Date(at).toISOString(),
    kernels,
    of,
    times,
    bound: bound.name,
    kind: bound.kind,
    trial: trial.id,
  };
}
