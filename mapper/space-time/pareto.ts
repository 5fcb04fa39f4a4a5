/**
 * @file The Pareto set of designs: no other design is better in PEs, steps, registers and length of shifts.
 */

import type { Design } from "./design.ts";

/** Costs that are compared: smaller is better in each. */
const COSTS = [
  (d: Design) => d.pes,
  (d: Design) => d.steps,
  (d: Design) => d.registers.coalesced,
  (d: Design) => d.shuffleDistance,
] as const;

/** The Pareto set of a list, in its order. Equal designs all stay. */
export function paretoSet<D extends Design>(designs: readonly D[]): D[] {
  const costs = designs.map((d) => COSTS.map((cost) => cost(d)));
  const distinct = [...new Map(costs.map((c) => [c.join(), c])).values()];
  const beaten = new Set(
    distinct
      .filter((c) => distinct.some((other) => other !== c && other.every((x, i) => x <= (c[i] ?? 0))))
      .map((c) => c.join()),
  );
  return designs.filter((_, i) => !beaten.has((costs[i] ?? []).join()));
}
