/**
 * @file Operation counts of a schedule, computed as products over dimensions without lowering it.
 *
 *     createCounts(mapping)(schedule)      { issues: 1806336, loads: { a: 903168, b: 161280 }, stores: 12544, ... }
 */

import type { Schedule } from "../../abstraction/candidate.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { bySpread, type InputState, Plan } from "../../perfmodel/plan.ts";

/** The operations that a walk over the lowered nest would count, for all threads together. */
export interface Counts {
  readonly issues: number;
  /** Tiles loaded, by operand; for the target, sums of the previous pass. */
  readonly loads: Readonly<Record<string, number>>;
  /** Tiles stored: directly, to the scratch block, or as partial sums. */
  readonly stores: number;
  /** Elements moved from the scratch block to the output. */
  readonly scattered: number;
  /** Elements written by the packing of a call, by operand. */
  readonly packed: Readonly<Record<string, number>>;
  /** Bytes loaded at least once, by operand. */
  readonly distinctBytes: Readonly<Record<string, number>>;
}

/**
 * Counts what the lowered nest of a schedule does, without lowering it.
 * @returns for a schedule its counts, undefined when it cannot be lowered
 */
export function createCounts(mapping: Mapping): (schedule: Schedule) => Counts | undefined {
  const planOf = bySpread(mapping, (spread) => new Plan(mapping, spread));
  return (schedule) => {
    const plan = planOf(schedule);
    if (plan === undefined) return undefined;
    // All threads together do the work of one thread.
    if (!plan.read({ ...schedule, threads: 1 })) return undefined;
    for (const d of plan.ordered) d.covered = d.steps;
    const each = (value: (input: InputState) => number): Record<string, number> =>
      Object.fromEntries(plan.inputs.map((i) => [i.name, value(i)]));
    const { tiles, scattered } = plan.results.ownStores();
    return {
      issues: issuesOf(plan),
      loads: {
        ...each((i) => (plan.further.includes(i) ? issuesOf(plan) : loadsOf(plan, i))),
        [plan.target.name]: tiles * (plan.passes - 1),
      },
      stores: tiles * plan.passes,
      scattered,
      packed: each((i) => {
        const { packing, edges } = i.placed;
        return (packing?.elements ?? 0) + (edges === undefined ? 0 : Math.round(plan.edgeShare(i) * edges.elements));
      }),
      distinctBytes: each((i) => {
        i.placed.footprint.measure();
        return Math.min(i.placed.footprint.distinct, i.placed.bufferBytes);
      }),
    };
  };
}

/** Issues of all threads. */
function issuesOf({ census, ordered }: Plan): number {
  let issues = census?.worked.sum((_, count) => count) ?? 1;
  for (const d of ordered) if (!d.meets && !census?.worked.speaksOf(d)) issues *= d.border?.insideSteps ?? d.steps;
  return issues;
}

/** Tiles of an input loaded by the thread that finishes last. */
function loadsOf({ census, ordered }: Plan, input: InputState): number {
  let loads = census?.worked.sum((d, count) => (!d.spatial || input.own.has(d) ? count : 1)) ?? 1;
  for (const d of ordered) {
    const own = input.own.has(d);
    if (census?.worked.speaksOf(d)) continue;
    if (d.border !== undefined)
      loads *= own ? (d.border.insideSteps * d.ownSteps) / d.steps : (d.border.insideBlocks * d.ownBlocks) / d.blocks;
    else if (!d.meets) loads *= !d.spatial || own ? d.ownSteps : d.ownBlocks;
  }
  return loads;
}
