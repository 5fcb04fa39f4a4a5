/**
 * @file Predicts the time of a stencil's time steps on the lanes of warps: for each pass, what a quarter of a multiprocessor issues for one row
 * of all steps, and the bytes that all warps move.
 *
 *     pass = launch + the longer of warps * rows * turns of a row / quarters and bytes / bandwidth, and a part of the shorter
 *
 * Columns on either side of a tile are recomputed by its neighbours, and so are rows where one chunk ends and the next begins. Overlapping
 * columns are read from the second-level cache, since the warps of a block read them at the same time.
 */

import type { WarpStepSchedule } from "../abstraction/candidate.ts";
import { product, sumOf, upTo } from "../abstraction/collections.ts";
import { elementCount, outputOf } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { type Expr, walk } from "../abstraction/expression.ts";
import { memoryOf, type Target } from "../abstraction/machine.ts";
import { operationsOfStep } from "../abstraction/time.ts";
import type { Steps } from "../mapper/space-time/plane.ts";
import { residentWarps, rowsOfStep, type WarpTile, warpTile } from "../mapper/space-time/warp-tile.ts";
import { laneCosts } from "../targets/lanes.ts";
import { launchOf, overlapped, quartersOf, rateOn, staysNear } from "./rates.ts";
import { WORD_BYTES } from "./vector-census.ts";
import { LOADED, NOT_OVERLAPPED, SHUFFLE_TURNS, WIDE_LOAD_TURNS } from "./warps.ts";

/** Bytes that a lane loads at once. */
const LOAD_BYTES = 16;
/** Instructions of a row other than those of its elements: addresses, the test of what is stored, the loop. */
const ROW_INSTRUCTIONS = 12;
/** Operations in the dependence chain of a step, from the newest row to the element. */
const CHAIN = 4;
/**
 * How much slower memory is than for a copy when chunks are far apart. Fitted to 64 kernels of a run before that of cuda-steps-h100.md, those of
 * one to three steps a pass.
 */
const SWEPT_ROWS = 0.12;
/** How much longer the last warps of a wave take than the others; from the same kernels. */
const TAIL = 0.2;

/** Seconds of all steps. */
export function warpStepSeconds(steps: Steps, s: WarpStepSchedule, target: Target): number {
  const { time } = steps;
  const { depth } = s;
  const rest = time.steps % depth;
  const passes = Math.floor(time.steps / depth);
  const whole = passes * passSeconds(steps, warpTile(steps, s, depth), s, target);
  return whole + (rest > 0 ? passSeconds(steps, warpTile(steps, s, rest), s, target) : 0);
}

function passSeconds(steps: Steps, tile: WarpTile, s: WarpStepSchedule, target: Target): number {
  const { multiplyAdd } = laneCosts(target);
  const output = outputOf(steps.computation);
  const size = bytesOf(output.dtype);
  const words = size / WORD_BYTES;
  const { depth, each, streamed, length, width, rows, swept, tiled, lane } = tile;

  // 1. A row of all steps, in turns of a quarter.
  const made = sumOf(upTo(depth), (step) => rowsOfStep(tile, step + 1));
  const values = made * each;
  const { operations, neighbours } = workOf(steps, each);
  const tested = steps.axes.some((a) => a.border === "zero" && a.reach > 0) ? 1 : 0;
  const sides = made * neighbours * words;
  const pieces = rowsOfStep(tile, 0) * Math.max(1, (each * size) / LOAD_BYTES);
  const turns =
    values * words * (operations * multiplyAdd.issueCycles + tested) +
    sides * SHUFFLE_TURNS +
    pieces * WIDE_LOAD_TURNS +
    ROW_INSTRUCTIONS;

  // 2. All warps on all quarters. A warp alone waits for each step of a row.
  const warps = product(
    [swept && swept.extent / length, tiled && tiled.extent / rows, lane.extent / width].map((count) =>
      Math.ceil(count ?? 1),
    ),
  );
  const quarters = quartersOf(target);
  const beside = Math.min(residentWarps(tile, size), Math.ceil(warps / quarters));
  const chain = depth * CHAIN * multiplyAdd.latencyCycles * words;
  const arrival = (LOADED * (memoryOf(target, "dram").latencyCycles?.value ?? 0)) / tile.ahead;
  const waves = Math.max(1, warps / quarters / beside + TAIL);
  const busy = (waves * streamed * Math.max(beside * turns, turns + chain + arrival)) / (target.clockHz?.value ?? 1);

  // 3. The plane, with the parts that chunks read again; the cache serves what tiles read again.
  const points = elementCount(output);
  const again = streamed / length;
  const columns = (s.lanes * each) / width;
  const middle = rowsOfStep(tile, 0) / rows;
  const bytes = points * size * (1 + again);
  const moving = Math.max(
    (bytes * (1 + SWEPT_ROWS)) / rateOn(target, staysNear(target, 2 * points * size) ? "l2" : "dram"),
    (points * size * (1 + again * columns * middle)) / rateOn(target, "l2"),
  );
  return launchOf(target) + overlapped(busy, moving, NOT_OVERLAPPED);
}

/** Instructions that compute an element, and elements of neighbouring lanes that a row of a step reads. */
function workOf({ time }: Steps, each: number): { readonly operations: number; readonly neighbours: number } {
  const isProduct = (e: Expr): boolean => e.kind === "binary" && e.op === "*";
  const joined = [...walk(time.step.equation.value)].filter(
    (e) => e.kind === "binary" && e.op === "+" && (isProduct(e.left) || isProduct(e.right)),
  ).length;
  const sides = new Set(
    time.dependences.flatMap((v) =>
      upTo(each)
        .map((column) => column - (v.at(-1) ?? 0))
        .filter((column) => column < 0 || column >= each)
        .map((column) => [...v.slice(1, -1), column].join()),
    ),
  );
  return { operations: Math.max(1, operationsOfStep(time) - joined), neighbours: sides.size };
}
