/**
 * @file Filters and stencils of the SSAM evaluation.
 *
 *     filterOf(9, 8192)                   out[p,q] += in[p+r-4,q+s-4] * w[r,s]
 *     laneCase("2d5pt", 8192, 512)        a stencil of the table by its name
 */

import type { LaneCandidate, WarpWindowSchedule, WindowSchedule } from "../../abstraction/candidate.ts";
import { type Computation, defineComputation } from "../../abstraction/computation.ts";
import { parseDataTypes } from "../../operators/data-types.ts";
import { operatorNamed } from "../../operators/index.ts";
import { instantiate } from "../../operators/operator.ts";
import { placeText, scheduleText } from "../../report/describe-candidate.ts";

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

/** A candidate on lanes on one line. */
export const printDesign = (candidate: LaneCandidate): string => `${placeText(candidate)}; ${scheduleText(candidate)}`;

export const printWindow = (schedule: WindowSchedule): string =>
  printDesign({ kind: "window", intrinsic: "avx512.fma.f32", schedule });

/** One vector of each row on 32 lanes, every access tested. */
export const PICKED: Omit<WarpWindowSchedule, "dataflow" | "rows" | "rolled"> = {
  lanes: 32,
  vectors: 1,
};
