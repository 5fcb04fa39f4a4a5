/**
 * @file The order in which designs are listed, and their names: the letters of the dataflow, numbered when several
 * share them.
 *
 *     FBS, SBM, FFM, FFM.2, FFM.3 ...
 */

import { sumOf } from "../../abstraction/collections.ts";
import type { Design } from "./design.ts";

/** Sorts by results per step, then by idle PEs, registers, length of shifts, and size and sign of entries. */
export function ranked<D extends Omit<Design, "name">>(designs: readonly D[]): D[] {
  const entries = (d: D): number =>
    sumOf([...d.spaceTime.allocation, ...d.spaceTime.schedule].flat(), (x) => (x < 0 ? 0.5 - x : x));
  return designs
    .map((d) => ({ d, entries: entries(d) }))
    .sort(
      (a, b) =>
        a.d.steps - b.d.steps ||
        b.d.utilisation - a.d.utilisation ||
        a.d.registers.coalesced - b.d.registers.coalesced ||
        a.d.registers.plain - b.d.registers.plain ||
        a.d.shuffleDistance - b.d.shuffleDistance ||
        a.entries - b.entries,
    )
    .map(({ d }) => d);
}

/** Names in the order of the list. */
export function named<D extends Omit<Design, "name">>(designs: readonly D[]): (D & { readonly name: string })[] {
  const seen = new Map<string, number>();
  return designs.map((d) => {
    const count = (seen.get(d.dataflow) ?? 0) + 1;
    seen.set(d.dataflow, count);
    return { ...d, name: count === 1 ? d.dataflow : `${d.dataflow}.${count}` };
  });
}
