/**
 * @file The search space of a stencil's time steps on the lanes of a GPU's warps: steps a pass, columns of a lane, rows of a chunk and of the
 * middle axis.
 *
 *     const space = warpStepSpace(computation, nvidiaTarget("h100"));      a space, or why warps cannot take the steps
 */

import type { LaneSchedule } from "../abstraction/candidate.ts";
import { type Computation, outputOf } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { WARP } from "../abstraction/intrinsic.ts";
import type { Target } from "../abstraction/machine.ts";
import { AT_ONCE } from "../mapper/schedule/lanes.ts";
import type { Steps } from "../mapper/space-time/plane.ts";
import { isSteps, stepProblem, stepsOf } from "../mapper/space-time/steps.ts";
import type { LaneRefusal } from "../mapper/space-time/taps.ts";
import { warpRegisters, warpTile } from "../mapper/space-time/warp-tile.ts";
import { warpStepSeconds } from "../perfmodel/warp-steps.ts";
import { type LaneSpace, ScheduleSpace } from "./lane-candidates.ts";

const DEPTHS = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24] as const;
const SWEEPS = [32, 64, 128, 256, 512, 1024] as const;
const ROWS = [1, 2, 4, 8, 16] as const;
const AHEAD = [undefined, 2, 3] as const;
/** 32-bit registers for rows: a thread has 255, and nvcc 13.0 spilled no kernel with 208, but some with 212 (2d5pt and 2d9pt in f64, 2026-11-22). */
const MOST_REGISTERS = 208;

export function warpStepSpace(computation: Computation, target: Target): LaneSpace | LaneRefusal {
  const steps = stepsOf(computation);
  if (!isSteps(steps)) return steps;
  if (!target.lanes)
    return { rule: "form", because: `lanes: the table of machines has no figures of the lanes of ${target.name}` };
  const schedules = schedulesOf(steps);
  const [first] = schedules;
  const refusal = first && stepProblem(steps, first);
  if (refusal) return refusal;
  const bytes = bytesOf(outputOf(computation).dtype);
  const fitting = schedules.filter(
    (s) => stepProblem(steps, s) === undefined && warpRegisters(warpTile(steps, s), bytes) <= MOST_REGISTERS,
  );
  if (fitting.length === 0)
    return { rule: "length", because: "length: no rows of one step fit the registers of a thread" };
  return new ScheduleSpace(fitting, (s) => warpStepSeconds(steps, s, target));
}

/** The schedules without equivalent ones; the plainest first. */
function schedulesOf({ axes }: Steps): LaneSchedule[] {
  const [swept, tiled] = axes.slice(0, -1);
  const sweeps = swept ? [...SWEEPS.filter((sweep) => sweep < swept.extent), undefined] : [undefined];
  const rows = tiled ? ROWS.filter((count) => count === 1 || count <= tiled.extent) : [1];
  return DEPTHS.flatMap((depth) =>
    AT_ONCE.flatMap((each) =>
      sweeps.flatMap((sweep) =>
        rows.flatMap((count) =>
          (swept ? AHEAD : [undefined]).map(
            (ahead): LaneSchedule => ({
              dataflow: "FBS-load",
              lanes: WARP,
              rows: count,
              vectors: 1,
              rolled: [],
              weights: "memory",
              streaming: false,
              prefetchBytes: 0,
              borders: "guarded",
              strip: 0,
              depth,
              threads: 1,
              ...(each > 1 && { each }),
              ...(sweep && { sweep }),
              ...(ahead && { ahead }),
            }),
          ),
        ),
      ),
    ),
  );
}
