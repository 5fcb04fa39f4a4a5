/**
 * @file The search space of a stencil's time steps on lanes: steps a pass, rows of a strip, vectors side by side, streaming or cached stores.
 *
 *     const space = stepSpace(computation, { threads: 1, target });      a space, or why lanes cannot take the steps
 */

import type { LaneSchedule } from "../abstraction/candidate.ts";
import { type Computation, outputOf } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { isSteps, stepProblem, stepsOf } from "../mapper/space-time/steps.ts";
import type { LaneRefusal } from "../mapper/space-time/taps.ts";
import { stepSeconds } from "../perfmodel/steps.ts";
import { ZMM } from "../targets/x86.ts";
import type { LaneSpace, LaneSpaceOptions } from "./lane-candidates.ts";
import { ScheduleSpace } from "./lane-candidates.ts";

const DEPTHS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32] as const;
const STRIPS = [0, 16, 32, 64, 128, 256] as const;
const VECTORS = [1, 2, 4] as const;
/** Planes of a grid of three dimensions that are done together. */
const ROWS = [1, 2] as const;

export function stepSpace(computation: Computation, options: LaneSpaceOptions): LaneSpace | LaneRefusal {
  const steps = stepsOf(computation);
  if (!isSteps(steps)) return steps;
  const lanes = (options.vectors ?? ZMM).bytes / bytesOf(outputOf(computation).dtype);
  const schedules = DEPTHS.flatMap((depth) =>
    STRIPS.flatMap((strip) =>
      VECTORS.flatMap((vectors) =>
        ROWS.flatMap((rows) =>
          [false, true].map(
            (streaming): LaneSchedule => ({
              dataflow: "FBS-load",
              lanes,
              rows,
              vectors,
              rolled: [],
              weights: "memory",
              streaming,
              prefetchBytes: 0,
              borders: "peeled",
              strip,
              depth,
              threads: options.threads,
            }),
          ),
        ),
      ),
    ),
  );
  const first = schedules[0];
  const refusal = first && stepProblem(steps, first);
  if (refusal) return refusal;
  const middle = steps.axes.length > 2 ? (steps.axes[1]?.extent ?? 1) : 1;
  return new ScheduleSpace(
    schedules.filter((s) => stepProblem(steps, s) === undefined && s.strip < middle),
    (s) => stepSeconds(steps, s, options.target),
  );
}
