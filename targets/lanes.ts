/**
 * @file Machines that run a systolic array on lanes: what one vector instruction of each kind costs.
 *
 *     laneCosts(laneTarget("warp")).shift      { issueCycles: 4, latencyCycles: 24.2, source }
 *
 * Cycles are those of the unit that issues for one array (a core, a quarter of an SM, an EU) when all units beside it are as busy. A
 * figure that no source gives counts as nothing.
 */

import { suggestion, UsageError } from "../abstraction/error.ts";
import type { Cost } from "../abstraction/intrinsic.ts";
import { type LaneVector, type Target, unitCost } from "../abstraction/machine.ts";
import { GEN9 } from "./intel.ts";
import { nvidiaTarget } from "./nvidia.ts";
import { REFERENCE_CPU } from "./x86.ts";

export interface LaneCosts extends LaneVector {
  readonly multiplyAdd: Cost;
  /** A value moved to another lane. */
  readonly shift: Cost;
  /** A vector from the nearest cache, whole or one element for all lanes. */
  readonly load: Cost;
  readonly store: Cost;
}

export const LANE_TARGETS: readonly Target[] = [REFERENCE_CPU, nvidiaTarget("h200"), GEN9];

export function laneCosts(target: Target): LaneCosts {
  const { lanes } = target;
  if (!lanes) throw new Error(`internal: ${target.name} has no lanes`);
  const cost = (unit: string): Cost => unitCost(target, unit, lanes.level);
  const [multiplyAdd, shift, load, store] = [cost("fma"), cost("shuffle"), cost("load"), cost("store")];
  return { ...lanes, multiplyAdd, shift, load, store };
}

/** @param name of its vector: avx512, warp, gen9. @throws UsageError for a name that is none */
export function laneTarget(name: string): Target {
  const found = LANE_TARGETS.find((t) => t.lanes?.name === name);
  if (found) return found;
  const names = LANE_TARGETS.flatMap((t) => t.lanes?.name ?? []);
  throw new UsageError(`no machine "${name}"`, { hint: suggestion(name, names) });
}
