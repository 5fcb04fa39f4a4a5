/**
 * @file Filters and stencils of the SSAM evaluation, and measurements of hand-picked kernels for them on an NVIDIA GPU.
 *
 *     filterOf(9, 8192)                              out[p,q] += in[p+r-4,q+s-4] * w[r,s]
 *     recordedLanes("cuda-ssam-h200.jsonl")          240 kernels, each a schedule of a case and its seconds
 */

import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import { z } from "zod";
import {
  LANE_DATAFLOWS,
  type LaneCandidate,
  type WarpWindowSchedule,
  type WindowSchedule,
} from "../abstraction/candidate.ts";
import { type Computation, defineComputation } from "../abstraction/computation.ts";
import { type Decisions, scheduleSchema } from "../mapper/schedule/schedules.ts";
import { WARP_WINDOW } from "../mapper/schedule/window-decisions.ts";
import { rollable } from "../mapper/space-time/taps.ts";
import { parseDataTypes } from "../operators/data-types.ts";
import { operatorNamed } from "../operators/index.ts";
import { instantiate } from "../operators/operator.ts";
import { placeText, scheduleText } from "../report/describe-candidate.ts";

/** The type of data, weights and sums; sums of tf32 are f32. */
export const CASE_TYPES = ["f16", "f32", "f64", "tf32"] as const;
export type CaseType = (typeof CASE_TYPES)[number];

/** A filter with zero padding and a result as large as the image. Even filters reach one further up and left. */
export function filterOf(k: number, side: number, dtype: CaseType = "f32"): Computation {
  const before = Math.floor(k / 2);
  const [cast, sums] = dtype === "tf32" ? (["f32", "f32"] as const) : (["", dtype] as const);
  return defineComputation({
    name: "filter",
    equation: `out[p,q] += ${cast}(in[p+r-${before},q+s-${before}]) * ${cast}(w[r,s])`,
    extents: { p: side, q: side, r: k, s: k },
    tensors: { in: { dtype, shape: [side, side] }, w: { dtype, constant: true }, out: { dtype: sums } },
  });
}

/** The case named `filter 9` or after a stencil. 2-D cases have a square, 3-D ones a cube. */
export function laneCase(name: string, side: number, cube: number, dtype: CaseType = "f32"): Computation {
  const k = /^filter (\d+)$/.exec(name)?.[1];
  if (k !== undefined) return filterOf(Number(k), side, dtype);
  const parameters = name.startsWith("2d") ? { h: side, w: side } : { d: cube, h: cube, w: cube };
  return instantiate(operatorNamed(name), { parameters, types: parseDataTypes(`${dtype}->${dtype}`) });
}

/** A schedule that was recorded when all kinds on lanes had one: what this kind does not decide is left out. */
export function recordedSchedule<S extends object, C>(decisions: Decisions<S, C>): z.ZodType<S> {
  const known = scheduleSchema(decisions) as unknown as z.ZodType<S, Record<string, unknown>>; // it parses any object
  return z
    .looseObject({})
    .transform((all) => Object.fromEntries(Object.entries(all).filter(([name]) => Object.hasOwn(decisions, name))))
    .pipe(known);
}

/** A candidate on lanes on one line. */
export const printDesign = (candidate: LaneCandidate): string => `${placeText(candidate)}; ${scheduleText(candidate)}`;

export const printWindow = (schedule: WindowSchedule): string =>
  printDesign({ kind: "window", intrinsic: "avx512.fma.f32", schedule });

/** One vector of each row on 32 lanes, every access tested. */
export const PICKED: Omit<WarpWindowSchedule, "dataflow" | "rows" | "rolled"> = {
  lanes: 32,
  vectors: 1,
};

export interface RecordedLanes {
  readonly name: string;
  readonly computation: Computation;
  readonly schedule: WarpWindowSchedule;
  readonly seconds: number;
}

const LINE = z.object({
  case: z.string(),
  kernel: z.string(),
  side: z.number(),
  status: z.literal("ok"),
  ms: z.number(),
});
/** `FBS-load/s 16x1 4 warps`: dataflow, loop that is kept, rows x vectors. */
const LABEL = /^([\w-]+)(?:\/(\w+))? (\d+)x(\d+) 4 warps$/;

/** The correct kernels measured by bench/cuda-ssam.ts, by case. */
export function recordedLanes(file: string): readonly RecordedLanes[] {
  const computations = new Map<string, Computation>();
  return readFileSync(file, "utf8")
    .trim()
    .split("\n")
    .flatMap((text): RecordedLanes[] => {
      const line = LINE.safeParse(JSON.parse(text)).data;
      const [, flow, rolled, rows, vectors] = LABEL.exec(line?.kernel ?? "") ?? [];
      const dataflow = LANE_DATAFLOWS.find((known) => known === flow);
      if (!line || !dataflow) return [];
      const computation = computations.get(line.case) ?? laneCase(line.case, line.side, line.side);
      computations.set(line.case, computation);
      const kept = rollable(computation).filter((axis) => axis === rolled);
      const schedule = { ...PICKED, dataflow, rows: Number(rows), vectors: Number(vectors), rolled: kept };
      return [{ name: line.case, computation, schedule, seconds: line.ms / 1000 }];
    });
}

const TRIAL = z.object({
  kind: z.literal("trial"),
  case: z.string(),
  dtype: z.enum(["f32", "f64"]),
  status: z.literal("ok"),
  median: z.number(),
  schedule: recordedSchedule(WARP_WINDOW.decisions),
});

/** The correct kernels found by searches of bench/cuda-lanes.ts, by case. */
export function searchedLanes(file: string, side = 8192, cube = 512): readonly RecordedLanes[] {
  const computations = new Map<string, Computation>();
  const lines = gunzipSync(readFileSync(file)).toString("utf8").trim().split("\n");
  return lines.flatMap((text): RecordedLanes[] => {
    const trial = TRIAL.safeParse(JSON.parse(text)).data;
    if (!trial) return [];
    const name = `${trial.case} ${trial.dtype}`;
    const computation = computations.get(name) ?? laneCase(trial.case, side, cube, trial.dtype);
    computations.set(name, computation);
    return [{ name, computation, schedule: trial.schedule, seconds: trial.median }];
  });
}
