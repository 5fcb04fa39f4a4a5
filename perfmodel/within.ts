/**
 * @file The cost of a copy inside a loop: a small buffer that is filled in each step of the loops outside.
 *
 *     in 1x128x56x56 f32, padded within g of 32      32 copies of 53 KB, loaded from 53 KB; once a call it is one of 1.7 MB
 */

import type { Schedule } from "../abstraction/candidate.ts";
import { product } from "../abstraction/collections.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { number } from "../abstraction/expression.ts";
import type { Operand } from "../abstraction/intrinsic.ts";
import type { Mapping } from "../abstraction/mapping.ts";
import { tileRowElements } from "../abstraction/memory-tile.ts";
import { isFew, linesAtOnce, regionsOf } from "../mapper/lower/ahead.ts";
import { parseLoop } from "../mapper/schedule/cache-tiles.ts";
import { dependsOn, type LoopDimension } from "../mapper/schedule/dimensions.ts";
import { dimensionsUnder } from "../mapper/schedule/gaps.ts";
import {
  copyWithin,
  movedBy,
  tileBytesWithin,
  tilesWithin,
  type WithinCopy,
  type WithinTiles,
} from "../mapper/schedule/within.ts";
import { AffineFootprint, LINE_BYTES, RunFootprint, type Term, term } from "./footprint.ts";
import { at, copyPacking, type DimensionState, type Packing, type PlacedInput, straddlingShare } from "./placed.ts";

/** A copy as it is loaded, with the number of elements written each time it is made. */
interface KnownCopy {
  readonly placed: PlacedInput & { readonly packing: Packing };
  readonly each: number;
}
export type KnownCopies = Map<WithinCopy, KnownCopy | undefined>;

/** A mapping with the states of its dimensions under the schedule whose blocks have been read. */
interface Place {
  readonly mapping: Mapping;
  readonly states: readonly DimensionState[];
  /** In the order of the schedule, outermost first. */
  readonly ordered: readonly DimensionState[];
  readonly copies: KnownCopies;
}

/**
 * An input that a schedule copies inside a loop.
 * @param once the same input when it is copied once a call
 * @returns undefined when the schedule cannot be lowered
 */
export function withinInput(
  place: Place,
  schedule: Schedule,
  operand: Operand,
  once: PlacedInput,
): PlacedInput | undefined {
  const { mapping, states, copies } = place;
  if (schedule.placement[operand.name] === "tiled") return tilesInput(place, schedule, operand, once);
  const found = copyWithin(mapping, schedule, operand.name, dimensionsUnder(mapping, schedule));
  if (typeof found === "string") return undefined;
  if (!copies.has(found)) copies.set(found, knownCopy(place, schedule, operand, found, once));
  const known = copies.get(found);
  if (known === undefined) return undefined;
  const { placed, each } = known;
  const elements = copiesOf(schedule, operand.name, states) * each;
  const bytes = elements * bytesOf(operand.dtype);
  return {
    footprint: placed.footprint,
    bufferBytes: placed.bufferBytes,
    straddling: placed.straddling,
    operations: 0,
    packing: { ...placed.packing, elements, bytes, passingBytes: Math.min(bytes, placed.bufferBytes) },
    edges: placed.edges,
    borders: placed.borders,
  };
}

/** The same of tiles, which lie one behind the other: of the dimensions that loops around them move, they hold some steps at a time. */
function tilesInput(place: Place, schedule: Schedule, operand: Operand, once: PlacedInput): PlacedInput | undefined {
  const { mapping, states } = place;
  const dimensions = dimensionsUnder(mapping, schedule);
  const found = tilesWithin(mapping, schedule, operand.name, dimensions);
  if (typeof found === "string") return undefined;
  const run = product(operand.dims.map((o) => o.extent));
  const tile = run * tileBytesWithin(mapping, operand);
  const own = dimensions.flatMap((d, i) => (dependsOn(mapping, operand.name, d) ? [{ d, state: at(states, i) }] : []));
  const held = (d: LoopDimension): number => found.around.find((a) => a.dimension === d)?.steps ?? d.steps;
  const bufferBytes = tile * product(own.map(({ d }) => held(d)));
  // Every step of the dimensions that move it is packed once, and again for each step of the other loops around it.
  const again = loopsAround(schedule, operand.name, states, (name) => own.every(({ d }) => d.name !== name));
  const packing = once.packing ?? madePacking(once, run, tile, product(own.map(({ d }) => d.steps)));
  const bytes = packing.bytes * again;
  return {
    footprint: new RunFootprint(
      own.map(({ d, state }) => ({
        get covered(): number {
          return Math.min(state.covered, held(d));
        },
      })),
      tile,
      LINE_BYTES,
    ),
    bufferBytes,
    straddling: once.straddling,
    operations: 0,
    packing: {
      ...packing,
      elements: packing.elements * again,
      sourceBytes: packing.kind === "made" ? packing.sourceBytes * again : packing.sourceBytes,
      bytes,
      passingBytes: Math.min(bytes, bufferBytes),
      ahead: packing.kind !== "made" && isFetchedAhead(place, operand.name, found),
    },
    edges: once.edges,
    borders: [],
  };
}

/** Tiles made of narrow ones that were packed ahead of calls. */
const madePacking = ({ bufferBytes, operations }: PlacedInput, run: number, tile: number, tiles: number): Packing => ({
  kind: "made",
  elements: tiles * run,
  run,
  arithmetic: { digits: 0, guards: 0 },
  gathered: false,
  operations,
  bytes: tiles * tile,
  passingBytes: tiles * tile,
  sourceBytes: bufferBytes,
  dealt: undefined,
});

/** Whether the sums of one step have room to fetch what the next step packs: the rule of mapper/lower/ahead.ts. */
function isFetchedAhead({ mapping, ordered }: Place, operand: string, tiles: WithinTiles): boolean {
  const regions = regionsOf(mapping, operand, tiles).filter((r) => !isFew(r));
  return (
    regions.every((region) => {
      const inside = ordered.slice(ordered.findIndex((d) => d.name === region.dimension) + 1);
      const sharing = inside.find((d) => d.spatial && d.blocks > 1)?.blocks ?? 1;
      const summed = inside.find((d) => !d.spatial && d.blocks > 1)?.blocks;
      return summed !== undefined && linesAtOnce(region, sharing * summed) !== undefined;
    }) && regions.length > 0
  );
}

function knownCopy(
  { mapping, states }: Place,
  schedule: Schedule,
  operand: Operand,
  { copy, reach, around }: WithinCopy,
  once: PlacedInput,
): KnownCopy | undefined {
  const bound = mapping.binding[operand.name];
  if (bound?.kind !== "access" || once.packing === undefined) return undefined;
  const size = bytesOf(operand.dtype);
  const terms = dimensionsUnder(mapping, schedule).map((d, i): Term => {
    const whole = term((reach.perStep.get(d.name) ?? 0) / d.step, at(states, i), d.step);
    const held = around.find((a) => a.dimension === d);
    return held ? { ...whole, most: held.steps * d.step } : whole;
  });
  const moved = movedBy(around, () => number(0));
  const packing = copyPacking(mapping, bound, copy, size, once.packing.sourceBytes, moved);
  const rowBytes = Math.min(product(operand.dims.map((o) => o.extent)), tileRowElements(operand)) * size;
  return {
    placed: {
      footprint: new AffineFootprint(terms, size, LINE_BYTES),
      bufferBytes: copy.elements * size,
      straddling: straddlingShare(reach, size, rowBytes),
      operations: 0,
      packing,
      edges: once.edges,
      borders: [],
    },
    each: packing.elements,
  };
}

/** How often a call makes the copy: the number of steps of the loops around it. */
function copiesOf(schedule: Schedule, operand: string, states: readonly DimensionState[]): number {
  return loopsAround(schedule, operand, states, () => true);
}

/** Steps of those loops around a copy that are counted. */
function loopsAround(
  schedule: Schedule,
  operand: string,
  states: readonly DimensionState[],
  counts: (dimension: string) => boolean,
): number {
  const last = schedule.order.indexOf(schedule.within?.[operand] ?? "");
  let copies = 1;
  for (let i = 0; i <= last; i++) {
    const loop = parseLoop(schedule.order[i] ?? "");
    for (const { name, blocks } of states) {
      if (loop?.name !== name || !counts(name)) continue;
      // Over tiles of blocks. When the loop over blocks is also outside, that loop alone determines the number.
      if (loop.tile === undefined) copies *= blocks;
      else if (schedule.order.indexOf(name) > last) copies *= Math.ceil(blocks / loop.tile);
    }
  }
  return copies;
}
