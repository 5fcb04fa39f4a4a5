/**
 * @file What a copy made inside a loop costs: a small buffer, filled once for every step of the loops around it.
 *
 *     in 1x128x56x56 f32, padded within g of 32      32 copies of 53 KB, loaded from 53 KB; once a call it is one of 1.7 MB
 */

import type { Schedule } from "../abstraction/candidate.ts";
import { tensorOf } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { number } from "../abstraction/expression.ts";
import { type Operand, tileRowElements } from "../abstraction/intrinsic.ts";
import type { Mapping } from "../abstraction/mapping.ts";
import { copyParts, elementsOf } from "../mapper/copies.ts";
import { dimensionsUnder } from "../mapper/spread.ts";
import { parseLoop } from "../mapper/tiles.ts";
import { copyWithin, movedBy, type WithinCopy } from "../mapper/within.ts";
import { AffineFootprint, type Term, term } from "./footprint.ts";
import { at, type DimensionState, LINE_BYTES, type PlacedInput, product, straddlingShare } from "./placed.ts";

/** Elements that are written each time a copy is made. */
const knownElements = new WeakMap<WithinCopy, number>();

/**
 * An input whose copy a schedule makes inside a loop.
 * @param states of the dimensions under the schedule, blocks read
 * @param once the same input with its copy made once a call
 * @returns undefined when the schedule cannot be lowered
 */
export function withinInput(
  mapping: Mapping,
  schedule: Schedule,
  operand: Operand,
  states: readonly DimensionState[],
  once: PlacedInput,
): PlacedInput | undefined {
  const bound = mapping.binding[operand.name];
  const dimensions = dimensionsUnder(mapping, schedule);
  const found = copyWithin(mapping, schedule, operand.name, dimensions);
  if (typeof found === "string" || bound?.kind !== "access" || once.packing === undefined) return undefined;
  const { copy, reach, around } = found;
  const size = bytesOf(operand.dtype);
  const terms = dimensions.map((d, i): Term => {
    const whole = term((reach.perStep.get(d.name) ?? 0) / d.step, at(states, i), d.step);
    const held = around.find((a) => a.dimension === d);
    return held ? { ...whole, most: held.steps * d.step } : whole;
  });
  const tensor = tensorOf(mapping.computation, bound.tensor);
  const each =
    knownElements.get(found) ??
    copyParts(
      tensor,
      bound,
      copy,
      movedBy(around, () => number(0)),
    ).reduce((sum, part) => sum + elementsOf(part), 0);
  knownElements.set(found, each);
  const elements = copiesOf(schedule, operand.name, states) * each;
  const bytes = elements * size;
  const rowBytes = Math.min(product(operand.dims.map((o) => o.extent)), tileRowElements(operand)) * size;
  return {
    footprint: new AffineFootprint(terms, size, LINE_BYTES),
    bufferBytes: copy.elements * size,
    straddling: straddlingShare(reach, size, rowBytes),
    packing: { ...once.packing, elements, bytes, passingBytes: Math.min(bytes, copy.elements * size) },
    borders: [],
  };
}

/** How often a call makes the copy: steps of the loops around it. */
function copiesOf(schedule: Schedule, operand: string, states: readonly DimensionState[]): number {
  const last = schedule.order.indexOf(schedule.within?.[operand] ?? "");
  const loops = schedule.order.slice(0, last + 1).flatMap((text) => parseLoop(text) ?? []);
  return product(
    states.map(({ name, blocks }) => {
      const own = loops.filter((l) => l.name === name);
      if (own.some((l) => l.tile === undefined)) return blocks;
      return own[0]?.tile === undefined ? 1 : Math.ceil(blocks / own[0].tile);
    }),
  );
}
