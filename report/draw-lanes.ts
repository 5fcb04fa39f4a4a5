/**
 * @file A design on lanes as SVG: one row of its window on one vector, as the transform lays it out.
 *
 *     drawLanesSvg({ dataflow: "SBM", lanes: 16, columns: 3 })      sums move a lane a step, 14 of 16 lanes end with a whole one
 */

import { axis, binary } from "../abstraction/expression.ts";
import { designOf } from "../mapper/space-time/design.ts";
import { trace } from "../mapper/space-time/trace.ts";
import { placeWindow, WINDOW_DESIGNS, windowProblem } from "../mapper/space-time/window.ts";
import { drawArraySvg } from "./draw-array-svg.ts";
import type { LaneDrawing } from "./report-data.ts";

/** More columns look the same again. */
const MOST_COLUMNS = 6;
/** More lanes do what these do. */
const MOST_LANES = 16;

/** What is drawn smaller than it is, is said to be. */
export function drawLanesSvg({ dataflow, lanes, columns }: LaneDrawing): string {
  const design = WINDOW_DESIGNS[dataflow];
  const shown = Math.min(lanes, MOST_LANES);
  const drawn = Math.min(columns, MOST_COLUMNS, Math.max(1, shown - 1));
  const placed = placeWindow(design, shown, drawn);
  if (!placed.ok) throw new Error(`internal: ${dataflow} on ${lanes} lanes: ${placed.refusal.because}`);
  const { outputs } = placed.placement;
  const problem = windowProblem(outputs, drawn);
  const array = designOf(problem, design.spaceTime, dataflow);
  const [c, q] = [axis("c"), axis("q")];
  const accesses = [
    { kind: "access", tensor: "x", index: [binary("+", c, q)] },
    { kind: "access", tensor: "w", index: [q] },
    { kind: "access", tensor: "z", index: [c] },
  ] as const;
  const subtitle = [
    `${outputs} of ${shown} lanes end with a whole sum`,
    ...(design.data === "loaded" ? ["x is loaded again for each step"] : []),
    ...(shown < lanes ? [`drawn with ${shown} lanes, not ${lanes}`] : []),
    ...(drawn < columns ? [`the first ${drawn} of ${columns} columns`] : []),
  ].join("; ");
  return drawArraySvg(
    `${dataflow}: z[c] += x[c+q] * w[q] on lanes`,
    subtitle,
    array,
    trace(problem, array, accesses),
    "",
  );
}
