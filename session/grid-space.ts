/**
 * @file Everything that can be tried for a computation on a GPU, as a search sees it; and the nest and text of one candidate.
 *
 *     const space = gridSessionSpace(conv2d, { machine: nvidiaTarget("h100"), intrinsics, seed: 1 });
 *     if ("predict" in space) space.kernelOf(space.random(random)).source              CUDA
 */

import type { GridCandidate, GridSchedule, LaneCandidate, MappedCandidate } from "../abstraction/candidate.ts";
import type { Computation } from "../abstraction/computation.ts";
import { UsageError } from "../abstraction/error.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import type { Target } from "../abstraction/machine.ts";
import { printMatching } from "../abstraction/mapping.ts";
import { generateCuda } from "../codegen/cuda.ts";
import { lowerGrid } from "../mapper/lower/grid.ts";
import { gridProblem, printGridSchedule } from "../mapper/schedule/grid.ts";
import { type GridContext, gridContext, gridLimits } from "../mapper/schedule/grid-context.ts";
import { type Correction, fit as fitCorrection } from "../perfmodel/correct.ts";
import { gridCosts, predictGrid } from "../perfmodel/grid.ts";
import { isGpu, NVIDIA_TARGETS } from "../targets/index.ts";
import { gridSpace } from "../tuner/grid-candidates.ts";
import { emptySpace, joinedSpace } from "../tuner/joined-space.ts";
import { mappingOf } from "./recorded.ts";
import type { Reason, SessionSpace } from "./space.ts";
import { VERSION } from "./version.ts";

/** The space of a computation on a machine of blocks and warps, or why nothing maps. */
export function gridSessionSpace(
  computation: Computation,
  { machine, intrinsics, seed }: { machine: Target; intrinsics: readonly Intrinsic[]; seed: number },
): SessionSpace | readonly Reason[] {
  const limits = gridLimits(machine);
  const space = gridSpace(computation, intrinsics, limits, (c, s) => predictGrid(c, s, machine)?.seconds, seed);
  if (!("ranked" in space)) return space;
  const contextOf = (candidate: Parameters<SessionSpace["mappingOf"]>[0]): GridContext => {
    if (candidate.kind !== "grid") throw new Error("internal: a candidate of a CPU in the space of a GPU");
    return space.contextOf(candidate);
  };
  let correction: Correction | undefined;
  return {
    ...joinedSpace(space, emptySpace<MappedCandidate | LaneCandidate>(), (c): c is GridCandidate => c.kind === "grid"),
    intrinsics: [...new Set(space.ranked.map(({ context }) => context.intrinsic))],
    intrinsicOf: (c) => contextOf(c).intrinsic,
    mappingOf: (c) => contextOf(c).mapping,
    kernelOf: (c) => generateGrid(contextOf(c), scheduleOf(c)),
    predict: (c) => predictGrid(contextOf(c), scheduleOf(c), machine, correction),
    learn: (trials) => {
      correction = fitCorrection(
        trials.flatMap(({ candidate, measurement }) => {
          if (measurement.status !== "ok") return [];
          const costs = gridCosts(contextOf(candidate), scheduleOf(candidate), machine);
          return costs ? [{ costs, measuredSeconds: measurement.median }] : [];
        }),
      );
    },
  };
}

function scheduleOf(candidate: Parameters<SessionSpace["mappingOf"]>[0]): GridSchedule {
  if (candidate.kind !== "grid") throw new Error("internal: a candidate of a CPU in the space of a GPU");
  return candidate.schedule;
}

/** A recorded candidate on the GPU it was made for. */
export interface GridOnMachine {
  readonly context: GridContext;
  readonly machine: Target;
}

/**
 * What lowers a recorded candidate.
 * @param machine the GPU it was made for; the first of the table that can run it when left out
 * @throws UsageError when its mapping or its schedule no longer stands
 */
export function gridOf(computation: Computation, candidate: GridCandidate, machine?: Target): GridOnMachine {
  const mapping = mappingOf(computation, candidate);
  let problem = "no machine of blocks and warps";
  for (const one of machine && isGpu(machine) ? [machine] : NVIDIA_TARGETS) {
    const context = gridContext(mapping, gridLimits(one));
    const found = typeof context === "string" ? context : gridProblem(context, candidate.schedule);
    if (typeof context !== "string" && found === undefined) return { context, machine: one };
    problem = `${found} (on ${one.name})`;
  }
  throw new UsageError(`the schedule does not fit ${computation.name} on ${candidate.intrinsic}: ${problem}`);
}

/** The kernel of a mapping, lowered under its schedule and printed. */
export function generateGrid(context: GridContext, schedule: GridSchedule): Kernel {
  const { mapping, intrinsic } = context;
  const notes = [
    `mapping   ${printMatching(mapping.matching)}   waste ${(100 * mapping.waste).toFixed(1)} %`,
    `schedule  ${printGridSchedule(schedule)}`,
    `made by   automap ${VERSION}`,
  ];
  return generateCuda(mapping.computation, intrinsic, lowerGrid(context, schedule), { lines: notes });
}
