/**
 * @file Machines that run systolic arrays on lanes: the cost of each kind of vector instruction.
 *
 *     laneCosts(laneTarget("warp")).shift      { issueCycles: 4, latencyCycles: 24.2, source }
 *
 * Cycles are those of the unit that issues for one array (a core, a quarter of an SM, an EU) when all units beside it are as busy. A cost that no
 * source gives counts as zero.
 */

import { internal, suggestion, UsageError } from "../abstraction/error.ts";
import type { Cost } from "../abstraction/intrinsic.ts";
import { type LaneVector, type Target, unitCost } from "../abstraction/machine.ts";
import { GEN9 } from "./intel.ts";
import { nvidiaTarget } from "./nvidia.ts";
import { REFERENCE_CPU } from "./x86.ts";

export interface LaneCosts extends LaneVector {
  readonly multiplyAdd: Cost;
  /** Moving a value to another lane. */
  readonly shift: Cost;
  /** Loading a vector from the nearest cache, or broadcasting one element. */
  readonly load: Cost;
  readonly store: Cost;
}

export const LANE_TARGETS: readonly Target[] = [REFERENCE_CPU, nvidiaTarget("h200"), GEN9];

export function laneCosts(target: Target): LaneCosts {
  const { lanes } = target;
  if (!lanes) internal(`${target.name} has no lanes`);
  const cost = (unit: string): Cost => unitCost(target, unit, lanes.level);
  const [multiplyAdd, shift, load, store] = [cost("fma"), cost("shuffle"), cost("load"), cost("store")];
  return { ...lanes, multiplyAdd, shift, load, store };
}

/** @param name of the vector: avx512, warp, gen9. @throws UsageError for an unknown name */
export function laneTarget(name: string): Target {
  const found = LANE_TARGETS.find((t) => t.lanes?.name === name);
  if (found) return found;
  const names = LANE_TARGETS.flatMap((t) => t.lanes?.name ?? []);
  throw new UsageError(`no machine "${name}"`, suggestion(name, names));
}
