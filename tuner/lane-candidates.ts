/**
 * @file The search spaces of windows and time steps on lanes: every schedule of their kind worth trying, with its predicted time.
 *
 *     const space = windowSpace(computation, { threads: 1, target });      a space, or why lanes cannot compute it
 *     lowerWindow(computation, schedule)                                   the loop nest of one
 */

import type { StepSchedule, WarpStepSchedule, WarpWindowSchedule, WindowSchedule } from "../abstraction/candidate.ts";
import { type Computation, outputOf } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import type { Target } from "../abstraction/machine.ts";
import { writtenInAll } from "../mapper/schedule/lanes.ts";
import { allSchedules, firstSchedule, problemIn, type ScheduleKind } from "../mapper/schedule/schedules.ts";
import { STEPS, WARP_STEPS } from "../mapper/schedule/step-decisions.ts";
import { sumUnder, tapSums, WARP_WINDOW, WINDOW } from "../mapper/schedule/window-decisions.ts";
import { isSteps, stepsOf } from "../mapper/space-time/steps.ts";
import type { LaneRefusal } from "../mapper/space-time/taps.ts";
import { placeWindow, WINDOW_DESIGNS, type WindowPlacement } from "../mapper/space-time/window.ts";
import { laneSeconds } from "../perfmodel/lanes.ts";
import { stepSeconds } from "../perfmodel/steps.ts";
import type { ModelTarget } from "../perfmodel/target.ts";
import { warpStepSeconds } from "../perfmodel/warp-steps.ts";
import { warpSeconds } from "../perfmodel/warps.ts";
import { type VectorRegisters, ZMM } from "../targets/x86.ts";
import { ListedSpace } from "./listed-space.ts";

interface LaneSpaceOptions {
  readonly threads: number;
  readonly target: ModelTarget;
  /** Vector registers that hold the lanes; those of AVX-512 when left out: 16 f32, 8 f64. */
  readonly vectors?: VectorRegisters;
}

/** Windows on the vectors of a CPU, or why lanes cannot compute it. */
export function windowSpace(
  computation: Computation,
  { threads, target, vectors = ZMM }: LaneSpaceOptions,
): ListedSpace<WindowSchedule> | LaneRefusal {
  const sums = tapSums(computation);
  if ("rule" in sums) return sums;
  const { count: registers, bytes } = vectors;
  const context = { ...sums, registers, threads, lanes: bytes / bytesOf(outputOf(computation).dtype) };
  return listed(
    WINDOW,
    context,
    (s) => withPlacement(sumUnder(context, s).columns, s, (p) => laneSeconds(sumUnder(context, s), s, p, target)),
    `no block of ${sums.sum.taps.length} taps fits ${registers} registers`,
    (s) => writtenInAll(sumUnder(context, s), s),
  );
}

/** Windows on the lanes of warps: SSAM and its alternatives. */
export function warpWindowSpace(
  computation: Computation,
  target: Target,
): ListedSpace<WarpWindowSchedule> | LaneRefusal {
  const context = tapSums(computation);
  if ("rule" in context) return context;
  return (
    unknownLanes(target) ??
    listed(
      WARP_WINDOW,
      context,
      (s) => withPlacement(sumUnder(context, s).columns, s, (p) => warpSeconds(sumUnder(context, s), s, p, target)),
      `no block of ${context.sum.taps.length} taps fits a warp`,
    )
  );
}

/** A stencil's time steps on the vectors of a CPU. */
export function stepSpace(
  computation: Computation,
  { threads, target, vectors = ZMM }: LaneSpaceOptions,
): ListedSpace<StepSchedule> | LaneRefusal {
  const steps = stepsOf(computation);
  if (!isSteps(steps)) return steps;
  const context = { steps, threads, lanes: vectors.bytes / bytesOf(outputOf(computation).dtype) };
  return (
    plainestRefused(STEPS, context) ??
    listed(STEPS, context, (s) => stepSeconds(steps, s, target), "no rows fit a pass")
  );
}

/** A stencil's time steps on the lanes of warps. */
export function warpStepSpace(computation: Computation, target: Target): ListedSpace<WarpStepSchedule> | LaneRefusal {
  const steps = stepsOf(computation);
  if (!isSteps(steps)) return steps;
  return (
    unknownLanes(target) ??
    plainestRefused(WARP_STEPS, { steps }) ??
    listed(
      WARP_STEPS,
      { steps },
      (s) => warpStepSeconds(steps, s, target),
      "no rows of one step fit the registers of a thread",
    )
  );
}

/** @param because why none fits, if so */
function listed<S extends object, C>(
  kind: ScheduleKind<S, C>,
  context: C,
  estimate: (schedule: S) => number,
  because: string,
  written?: (schedule: S) => number,
): ListedSpace<S> | LaneRefusal {
  const schedules = [...allSchedules(kind, context)];
  if (schedules.length === 0) return { rule: "length", because: `length: ${because}` };
  return new ListedSpace(kind.decisions, schedules, estimate, written);
}

function unknownLanes({ lanes, name }: Target): LaneRefusal | undefined {
  if (lanes) return undefined;
  return { rule: "form", because: `lanes: the table of machines has no figures of the lanes of ${name}` };
}

/** Why not even the plainest schedule can be lowered, which says more than that none can. */
function plainestRefused<S extends object, C>(kind: ScheduleKind<S, C>, context: C): LaneRefusal | undefined {
  const because = problemIn(kind, context, firstSchedule(kind, context));
  return because === undefined ? undefined : { rule: "form", because };
}

/** Seconds of a placed window; infinite where it leaves no lane an output. */
function withPlacement(
  columns: number,
  { dataflow, lanes }: Pick<WindowSchedule, "dataflow" | "lanes">,
  seconds: (placement: WindowPlacement) => number,
): number {
  const placed = placeWindow(WINDOW_DESIGNS[dataflow], lanes, columns);
  return placed.ok ? seconds(placed.placement) : Number.POSITIVE_INFINITY;
}
