/**
 * @file The decisions about a stencil's time steps on lanes: on the vectors of a CPU, and on the warps of a GPU.
 *
 *     16 lanes, 2 rows x 4 vectors   steps a pass 8   strip 64 rows   stores through the caches
 *     32 lanes   steps a pass 8   outputs a lane 2   sweep 512 outputs   steps written out 2
 */

import type { StepSchedule, WarpStepSchedule } from "../../abstraction/candidate.ts";
import { outputOf } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import type { Steps } from "../space-time/plane.ts";
import { stepProblem, warpStepProblem } from "../space-time/steps.ts";
import { warpRegisters, warpTile } from "../space-time/warp-tile.ts";
import {
  ahead,
  each,
  lanes,
  natural,
  positive,
  rows,
  streaming,
  sweep,
  threads,
  vectors,
  warpLanes,
} from "./lane-decisions.ts";
import { AT_ONCE } from "./lanes.ts";
import type { ScheduleKind } from "./schedules.ts";

interface StepContext {
  readonly steps: Steps;
  readonly lanes: number;
  readonly threads: number;
}

const depth = {
  label: "steps a pass",
  summary:
    "Time steps of a stencil that one pass over memory computes (temporal blocking). Each step runs some rows behind the one before, and the newest rows of every step stay in cache; on a GPU they are in registers.",
  example: "8",
  schema: positive,
};

const DEPTHS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32] as const;
const STRIPS = [0, 16, 32, 64, 128, 256] as const;
const VECTORS = [1, 2, 4] as const;
/** Planes of a grid of three dimensions that are done together. */
const PLANES = [1, 2] as const;

/** Time steps on the vectors of a CPU. */
export const STEPS: ScheduleKind<StepSchedule, StepContext> = {
  problem: ({ steps }, schedule) => stepProblem(steps, schedule)?.because,
  tries: 200,
  decisions: {
    lanes: { ...lanes, values: (context) => [context.lanes] },
    depth: { ...depth, values: () => DEPTHS },
    strip: {
      summary:
        "Rows of a plane of a 3-D grid that are computed together, so that they stay in cache; strips overlap. 0 means all of them.",
      example: "64 rows",
      schema: natural,
      values: ({ steps: { axes } }) => {
        const middle = axes.length > 2 ? (axes[1]?.extent ?? 1) : 1;
        return STRIPS.filter((strip) => strip < middle);
      },
      print: (count) => (count === 0 ? undefined : `${count} rows`),
    },
    vectors: { ...vectors, values: () => VECTORS },
    rows: {
      ...rows,
      summary: "Planes of a 3-D grid that are computed together: their rows read some of the same rows.",
      example: "2",
      values: () => PLANES,
    },
    streaming: { ...streaming, values: () => [false, true] },
    threads,
  },
};

const WARP_DEPTHS = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24] as const;
const SWEEPS = [32, 64, 128, 256, 512, 1024] as const;
const ROWS = [1, 2, 4, 8, 16] as const;
const AHEAD = [undefined, 2, 3] as const;
/** 32-bit registers for rows: a thread has 255, and nvcc 13.0 spilled no kernel with 208, but some with 212 (2d5pt and 2d9pt in f64, 2026-11-22). */
const MOST_REGISTERS = 208;

type WarpStepContext = Pick<StepContext, "steps">;

/** Axes of the plane by their role, beside that of the lanes. */
const rowsOf = ({ steps }: WarpStepContext): Steps["axes"] => steps.axes.slice(0, -1);

/** Time steps on the lanes of warps. */
export const WARP_STEPS: ScheduleKind<WarpStepSchedule, WarpStepContext> = {
  problem: ({ steps }, schedule) => warpStepProblem(steps, schedule)?.because,
  tries: 200,
  decisions: {
    lanes: warpLanes,
    depth: { ...depth, values: () => WARP_DEPTHS },
    each: { ...each, values: () => AT_ONCE.map((n) => (n === 1 ? undefined : n)) },
    sweep: {
      ...sweep,
      values: (context) => {
        const [swept] = rowsOf(context);
        return swept ? [...SWEEPS.filter((length) => length < swept.extent), undefined] : [undefined];
      },
    },
    rows: {
      ...rows,
      summary: "Outputs along the middle axis of a 3-D grid that a warp holds together.",
      values: (context) => {
        const [, tiled] = rowsOf(context);
        return tiled ? ROWS.filter((count) => count === 1 || count <= tiled.extent) : [1];
      },
    },
    ahead: {
      ...ahead,
      values: (context) => (rowsOf(context).length > 0 ? AHEAD : [undefined]),
      worthTrying: ({ steps }, schedule) =>
        warpRegisters(warpTile(steps, schedule), bytesOf(outputOf(steps.computation).dtype)) <= MOST_REGISTERS,
    },
  },
};
