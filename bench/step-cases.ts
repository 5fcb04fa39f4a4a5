/**
 * @file Stencils in time for benches: stars of radius 1 and 2 on a square or cube, whose coefficients add up to 1.
 * Also reads what bench/cuda-steps.ts measured of them.
 */

import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import { z } from "zod";
import type { WarpStepSchedule } from "../abstraction/candidate.ts";
import { type Computation, defineComputation } from "../abstraction/computation.ts";
import { WARP_STEPS } from "../mapper/schedule/step-decisions.ts";
import { recordedSchedule } from "./lane-cases.ts";

export const STEP_CASES: Readonly<Record<string, string>> = {
  "2d5pt": "u[t,i,j] = 0.5*u[t-1,i,j] + 0.125*(u[t-1,i-1,j] + u[t-1,i+1,j] + u[t-1,i,j-1] + u[t-1,i,j+1])",
  "2d9pt":
    "u[t,i,j] = 0.4*u[t-1,i,j] + 0.1*(u[t-1,i-1,j] + u[t-1,i+1,j] + u[t-1,i,j-1] + u[t-1,i,j+1]) + 0.05*(u[t-1,i-2,j] + u[t-1,i+2,j] + u[t-1,i,j-2] + u[t-1,i,j+2])",
  "3d7pt":
    "u[t,i,j,k] = 0.4*u[t-1,i,j,k] + 0.1*(u[t-1,i-1,j,k] + u[t-1,i+1,j,k] + u[t-1,i,j-1,k] + u[t-1,i,j+1,k] + u[t-1,i,j,k-1] + u[t-1,i,j,k+1])",
};

export function stepCase(
  name: string,
  steps: number,
  plane: Readonly<Record<string, number>>,
  dtype: "f32" | "f64",
): Computation {
  return defineComputation({
    name,
    equation: STEP_CASES[name] ?? "",
    extents: { t: steps, ...plane },
    tensors: { u: dtype },
  });
}

/** A kernel of a run, correct or not. */
export const STEP_TRIAL = z.object({
  kind: z.literal("trial"),
  case: z.string(),
  dtype: z.enum(["f32", "f64"]),
  cells: z.number(),
  bytes: z.number(),
  schedule: recordedSchedule(WARP_STEPS.decisions),
  expected: z.number(),
  status: z.string(),
  median: z.number().optional(),
  interval: z.array(z.number()).optional(),
  log: z.string().optional(),
});

/** The lines of a run. */
export function linesOf(file: string): unknown[] {
  const bytes = readFileSync(file);
  const text = (file.endsWith(".gz") ? gunzipSync(bytes) : bytes).toString("utf8");
  return text
    .trim()
    .split("\n")
    .map((line): unknown => JSON.parse(line));
}

export interface MeasuredSteps {
  readonly name: string;
  readonly computation: Computation;
  readonly schedule: WarpStepSchedule;
  readonly seconds: number;
}

/** The correct kernels, with the planes and steps of bench/cuda-steps.ts. */
export function measuredSteps(file: string): readonly MeasuredSteps[] {
  const plane = { i: 8192, j: 8192 };
  const cube = { i: 512, j: 512, k: 512 };
  return linesOf(file).flatMap((line): MeasuredSteps[] => {
    const trial = STEP_TRIAL.safeParse(line).data;
    if (trial?.median === undefined) return [];
    const is3d = trial.case.startsWith("3d");
    const computation = stepCase(trial.case, is3d ? 24 : 48, is3d ? cube : plane, trial.dtype);
    const { schedule, median } = trial;
    return [{ name: `${trial.case} ${trial.dtype}`, computation, schedule, seconds: median }];
  });
}
