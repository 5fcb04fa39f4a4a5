/**
 * @file The search space of designs by their transforms on the lanes of a GPU's warps: every design that fits a warp, or an equal part of it, with
 * the number of its passes side by side and of the warps of a block.
 *
 *     const space = finished(warpArraySpace(computation, nvidiaTarget("h100")));      a space, or why warps have no design for it
 */

import type { WarpDesignSchedule } from "../abstraction/candidate.ts";
import type { Computation } from "../abstraction/computation.ts";
import { WARP } from "../abstraction/intrinsic.ts";
import type { Target } from "../abstraction/machine.ts";
import type { Steps } from "../abstraction/steps.ts";
import { lowerPlaced } from "../mapper/space-time/lower-array.ts";
import type { LaneRefusal } from "../mapper/space-time/taps.ts";
import { costsOnWarps } from "../perfmodel/nests-on-warps.ts";
import { laneCosts } from "../targets/lanes.ts";
import { type ArraySpaceOfDesigns, designSpaceOn } from "./array-candidates.ts";

/** Fewest lanes of a part of a warp. Narrower arrays leave some of these idle. */
const FEWEST_LANES = 4;
/** Registers of a thread. */
const MOST_REGISTERS = 255;
/** Warps of a block besides the usual four. */
const OTHER_WARPS = [8] as const;

/** The lanes of the smallest equal part of a warp that holds an array. */
export function lanesFor(pes: number): number {
  let lanes = FEWEST_LANES;
  while (lanes < Math.min(pes, WARP)) lanes *= 2;
  return lanes;
}

/**
 * The space, or why warps have no design for a computation. Each step examines one design.
 * @param mixed number of loops that transforms mix
 */
export function* warpArraySpace(
  computation: Computation,
  target: Target,
  mixed?: number,
): Steps<ArraySpaceOfDesigns<WarpDesignSchedule> | LaneRefusal> {
  if (!target.lanes)
    return { rule: "form", because: `lanes: the table of machines has no figures of the lanes of ${target.name}` };
  return yield* designSpaceOn<WarpDesignSchedule>(
    computation,
    {
      lanes: WARP,
      inputs: ["passed", "loaded"],
      scheduleOf: ({ plan, judged }, beside, inputs): WarpDesignSchedule => ({
        ...plan,
        lanes: lanesFor(judged.design.pes),
        beside,
        inputs,
      }),
      variantsOf: (schedule) => OTHER_WARPS.map((warps) => ({ ...schedule, warps })),
      rough: { costs: laneCosts(target), registers: MOST_REGISTERS, onWarps: true },
      nestOf: (array, schedule) => lowerPlaced(computation, array, schedule.inputs, false, schedule),
      costsOf: (nest, schedule) => costsOnWarps(nest, computation, schedule, target),
      // Every thread tests its own conditions, so no design is longer than its steps.
      isTooLong: () => false,
    },
    mixed,
  );
}
