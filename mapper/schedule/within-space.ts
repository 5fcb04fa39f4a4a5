/**
 * @file Which loops of a schedule a copy may be made inside of: random choices, all legal by construction.
 *
 *     order n p q k | s_c r, in windowed      in windowed within p            in windowed within p/4, order n p/4 p q k | s_c r
 */

import type { Schedule } from "../../abstraction/candidate.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { pick, type Random } from "../../abstraction/random.ts";
import { dimensionsUnder } from "./spread.ts";
import { blocksOf, parseLoop, printLoop } from "./tiles.ts";
import { copyWithin } from "./within.ts";

/** Blocks of a tile made for the sake of a copy inside of it: rows that neighbouring blocks share are copied once. */
const TILE_SIZES: readonly number[] = [2, 4, 8, 16];

/** Inputs that a schedule copies, and that are not constant. */
export function copiedInputs(mapping: Mapping, schedule: Schedule): readonly string[] {
  return Object.keys(schedule.placement).filter((o) => placesOf(mapping, schedule, o).length > 0);
}

/** The copy of one input made inside another loop, or once a call again. */
export function movedCopy(mapping: Mapping, schedule: Schedule, random: Random): Schedule {
  const inputs = copiedInputs(mapping, schedule);
  if (inputs.length === 0) return schedule;
  const operand = pick(random, inputs);
  const { [operand]: before, ...others } = schedule.within ?? {};
  if (before !== undefined && random() < 0.3) return { ...schedule, within: others };
  const place = pick(random, placesOf(mapping, schedule, operand));
  const within = (loop: string): Schedule["within"] => ({ ...others, [operand]: loop });
  const d = dimensionsUnder(mapping, schedule).find((x) => x.name === place);
  const isTiled = schedule.order.some((text) => text !== place && parseLoop(text)?.name === place);
  const sizes =
    d === undefined || isTiled ? [] : TILE_SIZES.filter((t) => t < blocksOf(d, schedule.block[d.name] ?? 1));
  if (sizes.length === 0 || random() < 0.5) return { ...schedule, within: within(place) };
  const loop = printLoop({ name: place, tile: pick(random, sizes) });
  return {
    ...schedule,
    order: schedule.order.flatMap((text) => (text === place ? [loop, place] : [text])),
    within: within(loop),
  };
}

/** Only the copies that can be made where a schedule has them. */
export function legalCopies(mapping: Mapping, schedule: Schedule): Schedule["within"] {
  const dimensions = dimensionsUnder(mapping, schedule);
  const kept = Object.entries(schedule.within ?? {})
    .filter(([operand]) => typeof copyWithin(mapping, schedule, operand, dimensions) !== "string")
    .sort(([a], [b]) => a.localeCompare(b));
  return kept.length === 0 ? undefined : Object.fromEntries(kept);
}

/** Loops inside of which the copy of an input can be made. */
function placesOf(mapping: Mapping, schedule: Schedule, operand: string): readonly string[] {
  const placement = schedule.placement[operand];
  if (placement !== "padded" && placement !== "windowed") return [];
  const dimensions = dimensionsUnder(mapping, schedule);
  return schedule.order.filter((loop) => {
    const trial = { ...schedule, within: { [operand]: loop } };
    return typeof copyWithin(mapping, trial, operand, dimensions) !== "string";
  });
}
