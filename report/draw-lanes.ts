/**
 * @file Draws a lane design as SVG: the element of each operand that every lane holds, step by step.
 *
 *     drawLanesSvg({ dataflow: "SBM", lanes: 16, columns: 3 })    a row of a window: 14 of 16 lanes end with a full sum
 *     drawTransformSvg({ sum, transform: { loops, allocation, schedule }, ... })    the first steps of a transform
 */

import { present } from "../abstraction/collections.ts";
import { internal } from "../abstraction/error.ts";
import { type Access, axesIn, axis, binary, number, substitute } from "../abstraction/expression.ts";
import { printTransform } from "../mapper/schedule/array-decisions.ts";
import { type Design, designOf } from "../mapper/space-time/design.ts";
import { insideOf, spaceTimeOf } from "../mapper/space-time/lane-array.ts";
import { type ArrayProblem, arrayProblem, operandAccesses } from "../mapper/space-time/problem.ts";
import { trace } from "../mapper/space-time/trace.ts";
import { placeWindow, WINDOW_DESIGNS, windowProblem } from "../mapper/space-time/window.ts";
import { drawArraySvg } from "./draw-array-svg.ts";
import type { ArrayDrawing, LaneDrawing } from "./report-data.ts";

/** Most columns drawn; further ones look the same. */
const MOST_COLUMNS = 6;
/** Most lanes drawn; further ones do the same. */
const MOST_LANES = 16;

/** A drawing that is smaller than its design says so. */
export function drawLanesSvg({ dataflow, lanes, columns }: LaneDrawing): string {
  const design = WINDOW_DESIGNS[dataflow];
  const shown = Math.min(lanes, MOST_LANES);
  const drawn = Math.min(columns, MOST_COLUMNS, Math.max(1, shown - 1));
  const placed = placeWindow(design, shown, drawn);
  if (!placed.ok) internal(`${dataflow} on ${lanes} lanes: ${placed.refusal.because}`);
  const { outputs } = placed.placement;
  const problem = windowProblem(outputs, drawn);
  const array = designOf(problem, design.spaceTime, dataflow);
  const [c, q] = [axis("c"), axis("q")];
  const accesses = [
    { kind: "access", tensor: "x", index: [binary("+", c, q)] },
    { kind: "access", tensor: "w", index: [q] },
    { kind: "access", tensor: "z", index: [c] },
  ] as const;
  const subtitle = present([
    `${outputs} of ${shown} lanes end with a whole sum`,
    design.data === "loaded" && "x is loaded again for each step",
    shown < lanes && `drawn with ${shown} lanes, not ${lanes}`,
    drawn < columns && `the first ${drawn} of ${columns} columns`,
  ]).join("; ");
  return drawArraySvg(
    `${dataflow}: z[c] += x[c+q] * w[q] on lanes`,
    subtitle,
    array,
    trace(problem, array, accesses),
    "",
  );
}

/** Most lanes and steps drawn; further ones repeat these. */
const MOST_DRAWN = { lanes: 8, steps: 9 } as const;

/**
 * The first lanes and steps of an array, with its loops shortened until the drawing fits a page.
 * @throws UsageError for a computation without a uniform recurrence on these loops
 */
export function drawTransformSvg({ sum, transform, lanes, tile }: ArrayDrawing): string {
  const whole = insideOf(sum, transform, tile);
  const designWith = (loops: ArrayProblem["loops"]): { problem: ArrayProblem; design: Design } => {
    const problem = arrayProblem(sum, { inside: loops, outside: [], tiled: [], dropped: [] });
    return { problem, design: designOf(problem, spaceTimeOf(transform)) };
  };
  let loops = whole;
  let { problem, design } = designWith(loops);
  while (design.pes > MOST_DRAWN.lanes || design.steps > MOST_DRAWN.steps) {
    // Shorten what lies across lanes while there are too many lanes, and otherwise the slowest row of time.
    const rows = design.pes > MOST_DRAWN.lanes ? [transform.allocation] : transform.schedule;
    const counted = rows.flatMap((row) => loops.filter(({ extent }, i) => row[i] !== 0 && extent > 1));
    const [cut] = counted;
    if (!cut) break;
    loops = loops.map((loop) => (loop === cut ? { ...loop, extent: Math.ceil(loop.extent / 2) } : loop));
    ({ problem, design } = designWith(loops));
  }
  const shortened = whole.flatMap(({ name, extent }, i) => {
    const shown = loops[i]?.extent ?? extent;
    return shown < extent ? [`${name} ${shown} of ${extent}`] : [];
  });
  // Loops around the array, and loops shortened to one step, stay at their first step.
  const moving = new Set(loops.flatMap(({ name, extent }) => (extent > 1 ? [name] : [])));
  const still = new Map(sum.axes.flatMap(({ name }) => (moving.has(name) ? [] : [[name, number(0)] as const])));
  const { inputs, output } = operandAccesses(sum);
  const accesses = [...inputs, output].map((access): Access => {
    const index = access.index.map((e) => (axesIn(e).some((a) => moving.has(a)) ? substitute(e, still) : number(0)));
    return { ...access, index };
  });
  return drawArraySvg(
    `${design.dataflow} on ${lanes} lanes`,
    printTransform(transform),
    design,
    trace(problem, design, accesses),
    shortened.length === 0 ? "" : `drawn with ${shortened.join(", ")}`,
  );
}
