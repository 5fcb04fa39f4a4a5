/**
 * @file Which schedules a mapping has: random ones, neighbours, crosses; all legal by construction.
 *
 *     conv2d n <- k, k <- c on avx512.vpdpbusd
 *       block q 12, k 2    order n p q k | r s c    in padded, w tiled
 */

import type { Placement, Schedule } from "../abstraction/candidate.ts";
import { memoryElements, outputOf, targetOf, tensorOf } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { accessesIn, axesIn } from "../abstraction/expression.ts";
import type { Mapping } from "../abstraction/mapping.ts";
import { pick, type Random, randomInteger } from "../abstraction/random.ts";
import { dimensionsOf, type LoopDimension } from "./schedule/dimensions.ts";
import { dimensionsUnder, spreadable } from "./schedule/spread.ts";
import { blocksOf, parseLoop, printLoop } from "./schedule/tiles.ts";
import { legalCopies, movedCopy } from "./schedule/within-space.ts";
import { type PlacementChoice, placementsOf, scheduleProblem, unschedulable } from "./schedule.ts";

/**
 * The plainest legal schedule: loops as the computation has them, no register block, every input where it may lie most simply.
 * @throws Error when the mapping has no legal schedule: {@link unschedulable} says why
 */
export function plainSchedule(mapping: Mapping, threads = 1): Schedule {
  const placement = knownPlain.get(mapping) ?? plainPlacement(mapping);
  knownPlain.set(mapping, placement);
  return { order: dimensionsOf(mapping).map((d) => d.name), block: {}, placement, threads };
}

const knownPlain = new WeakMap<Mapping, Schedule["placement"]>();

function plainPlacement(mapping: Mapping): Schedule["placement"] {
  const order = dimensionsOf(mapping).map((d) => d.name);
  const legal = placementsInTurn(placementsOf(mapping)).find(
    (placement) => scheduleProblem(mapping, { order, block: {}, placement, threads: 1 }) === undefined,
  );
  if (legal) return legal;
  throw new Error(`no schedule: ${unschedulable(mapping) ?? "internal: tiles of one step must be legal"}`);
}

/** Every input at each of the places open to it, the simplest first. */
function placementsInTurn([first, ...rest]: readonly PlacementChoice[]): Readonly<Record<string, Placement>>[] {
  if (first === undefined) return [{}];
  const others = placementsInTurn(rest);
  return first.open.flatMap((place) => others.map((other) => ({ [first.operand]: place, ...other })));
}

/** Sizes worth trying for the block of a dimension: all up to 8, then those that leave little over. */
function blockSizes(d: LoopDimension, limit: number): number[] {
  const most = Math.min(d.steps, limit);
  const sizes: number[] = [];
  for (let b = 1; b <= most; b++) {
    const left = d.steps % b;
    if (b <= 8 || left === 0 || b - left <= 2) sizes.push(b);
  }
  return sizes;
}

/** Most steps unrolled: of a kept dimension what registers allow, of a summed one what code size allows. */
const SPATIAL_BLOCK = 30;
const REDUCE_BLOCK = 8;

/** How often a random schedule has tiles, and how often a mutation changes them, where there is something to gain. */
const TILED = 0.4;
const TILE_MUTATION = 0.2;

/** The same of copies made inside a loop. */
const COPIED_WITHIN = 0.4;
const COPY_MUTATION = 0.1;

/**
 * A random legal schedule; the plainest where none of many drawn is legal.
 * @throws Error when the mapping has no legal schedule: {@link unschedulable} says why
 * @param nearBytes size of the nearest cache: loops over tiles are tried for what does not fit in there, none when left out
 */
export function randomSchedule(mapping: Mapping, random: Random, threads = 1, nearBytes?: number): Schedule {
  const plain = plainSchedule(mapping, threads);
  for (let tries = 0; tries < 200; tries++) {
    const spread = random() < 0.5 ? [] : [...spreadable(mapping).keys()];
    const dimensions = dimensionsUnder(mapping, { spread }).filter((d) => d.steps > 1);
    const choices = placementsOf(mapping, { spread });
    if (choices.some((c) => c.open.length === 0)) continue;
    const spatial = shuffled(
      dimensions.filter((d) => d.kind === "spatial"),
      random,
    );
    const reduce = shuffled(
      dimensions.filter((d) => d.kind === "reduce"),
      random,
    );
    const block: Record<string, number> = {};
    // One or two kept dimensions make the register block, innermost or not; a summed one may be unrolled.
    const blocked = random() < 0.5 ? spatial : shuffled(spatial, random);
    for (const d of blocked.slice(-2)) block[d.name] = pick(random, blockSizes(d, SPATIAL_BLOCK));
    const innermost = reduce.at(-1);
    if (innermost && random() < 0.5) block[innermost.name] = pick(random, blockSizes(innermost, REDUCE_BLOCK));
    const placement = Object.fromEntries(choices.map((c): [string, Placement] => [c.operand, pick(random, c.open)]));
    const order = [...spatial, ...reduce].map((d) => d.name);
    let schedule = tidy(mapping, { order, block, placement, spread, threads });
    if (nearBytes !== undefined && random() < TILED)
      for (let more = randomInteger(random, 1, 2); more > 0; more--)
        schedule = tidy(mapping, retiled(mapping, schedule, random, nearBytes));
    if (random() < COPIED_WITHIN) schedule = tidy(mapping, movedCopy(mapping, schedule, random));
    if (scheduleProblem(mapping, schedule) === undefined) return schedule;
  }
  return plain;
}

/** A legal schedule one step away: another block, two loops exchanged, other tiles, or an operand placed elsewhere. */
export function mutateSchedule(mapping: Mapping, schedule: Schedule, random: Random, nearBytes?: number): Schedule {
  const dimensions = dimensionsUnder(mapping, schedule).filter((d) => d.steps > 1);
  if (dimensions.length === 0) return schedule;
  const choices = placementsOf(mapping, schedule).filter((c) => c.open.length > 1);
  for (let tries = 0; tries < 50; tries++) {
    const kind = random();
    let changed: Schedule;
    if (nearBytes !== undefined && random() < TILE_MUTATION) {
      changed = retiled(mapping, schedule, random, nearBytes);
    } else if (random() < COPY_MUTATION) {
      changed = movedCopy(mapping, schedule, random);
    } else if (kind < 0.1 && spreadable(mapping).size > 0) {
      changed = respread(mapping, schedule, random);
    } else if (kind < 0.55) {
      const d = pick(random, dimensions);
      const sizes = blockSizes(d, d.kind === "spatial" ? SPATIAL_BLOCK : REDUCE_BLOCK);
      changed = { ...schedule, block: { ...schedule.block, [d.name]: pick(random, sizes) } };
    } else if (kind < 0.85 || choices.length === 0) {
      const exchanged = random() < 0.5 ? "spatial" : "reduce";
      const group = dimensions.filter((d) => d.kind === exchanged).map((d) => d.name);
      if (group.length < 2) continue;
      const [a, b] = [pick(random, group), pick(random, group)];
      changed = { ...schedule, order: schedule.order.map((n) => (n === a ? b : n === b ? a : n)) };
    } else {
      const choice = pick(random, choices);
      changed = { ...schedule, placement: { ...schedule.placement, [choice.operand]: pick(random, choice.open) } };
    }
    changed = tidy(mapping, changed);
    if (scheduleProblem(mapping, changed) === undefined) return changed;
  }
  return schedule;
}

/** Parts of two schedules of one mapping, each part from either parent. */
export function crossSchedules(mapping: Mapping, a: Schedule, b: Schedule, random: Random): Schedule {
  const from = (): Schedule => (random() < 0.5 ? a : b);
  // What is spread goes with where it is placed.
  const { placement, spread } = from();
  // So does the loop a copy is made inside of with the loops.
  const { order, within } = from();
  const crossed = tidy(mapping, { order, block: from().block, placement, spread, within, threads: a.threads });
  return scheduleProblem(mapping, crossed) === undefined ? crossed : a;
}

/** One dimension spread, or gathered again, its operand placed where it then may lie. */
function respread(mapping: Mapping, schedule: Schedule, random: Random): Schedule {
  const before = schedule.spread ?? [];
  const [name, operand] = pick(random, [...spreadable(mapping)]);
  const spread = before.includes(name) ? before.filter((n) => n !== name) : [...before, name].sort();
  const open = placementsOf(mapping, { spread }).find((c) => c.operand === operand)?.open ?? [];
  const placement = open.length === 0 ? schedule.placement : { ...schedule.placement, [operand]: pick(random, open) };
  return { ...schedule, placement, spread };
}

/** Blocks of 1 are left out and loops of one step stand outermost of their kind, so that equal schedules are equal data. */
function tidy(mapping: Mapping, { spread, within, ...schedule }: Schedule): Schedule {
  const block = Object.fromEntries(
    Object.entries(schedule.block)
      .filter(([, size]) => size > 1)
      .sort(([a], [b]) => a.localeCompare(b)),
  );
  const dimensions = dimensionsUnder(mapping, { spread });
  const moving = withoutIdleTiles(
    schedule.order.filter((text) => dimensions.some((d) => d.name === parseLoop(text)?.name && d.steps > 1)),
    dimensions,
    block,
    Object.values(within ?? {}),
  );
  const still = (kind: LoopDimension["kind"]): string[] =>
    dimensions.filter((d) => d.kind === kind && d.steps === 1).map((d) => d.name);
  const behind = moving.findLastIndex((text) => dimensions.some((d) => d.name === text && d.kind === "spatial")) + 1;
  const order = [...still("spatial"), ...moving.slice(0, behind), ...still("reduce"), ...moving.slice(behind)];
  const ordered = { ...schedule, order, block, ...(spread !== undefined && spread.length > 0 ? { spread } : {}) };
  const copies = within && legalCopies(mapping, { ...ordered, within });
  return copies === undefined ? ordered : { ...ordered, within: copies };
}

/** Without loops over tiles that are no loop, or that stand around the loop over their blocks with nothing between, a copy neither. */
function withoutIdleTiles(
  order: readonly string[],
  dimensions: readonly LoopDimension[],
  block: Schedule["block"],
  copied: readonly string[],
): readonly string[] {
  const idle = (text: string, i: number): boolean => {
    const { name, tile } = parseLoop(text) ?? {};
    const d = dimensions.find((x) => x.name === name);
    if (d === undefined || tile === undefined) return false;
    return tile >= blocksOf(d, block[d.name] ?? 1) || (order[i + 1] === name && !copied.includes(text));
  };
  const kept = order.filter((text, i) => !idle(text, i));
  return kept.length < order.length ? withoutIdleTiles(kept, dimensions, block, copied) : order;
}

/** One loop over tiles put in, taken out, or given another size. */
function retiled(mapping: Mapping, schedule: Schedule, random: Random, nearBytes: number): Schedule {
  const dimensions = dimensionsUnder(mapping, schedule);
  const tiled = schedule.order.filter((text) => parseLoop(text)?.tile !== undefined);
  const out = (text: string): Schedule => ({ ...schedule, order: schedule.order.filter((t) => t !== text) });
  if (tiled.length >= MOST_TILED || (tiled.length > 0 && random() < 0.3)) return out(pick(random, tiled));
  const choices = dimensions.flatMap((d) => {
    const sizes = tileSizes(mapping, schedule, d, nearBytes);
    return sizes.length > 0 ? [{ d, sizes }] : [];
  });
  if (choices.length === 0) return schedule;
  const { d, sizes } = pick(random, choices);
  const old = tiled.find((text) => parseLoop(text)?.name === d.name);
  const { order } = old === undefined ? schedule : out(old);
  // Outside of the loop before its own at least, and of some kept one.
  const kept = order.findLastIndex((text) => dimensions.some((x) => x.name === text && x.kind === "spatial"));
  const place = randomInteger(random, 0, Math.max(0, Math.min(kept, order.indexOf(d.name) - 1)));
  const loop = printLoop({ name: d.name, tile: pick(random, sizes) });
  return { ...schedule, order: [...order.slice(0, place), loop, ...order.slice(place)] };
}

/** Loops over tiles at most: n, k and m in GotoBLAS. */
const MOST_TILED = 3;

/**
 * Blocks of a tile worth trying: where what an operand has does not fit in the nearest cache, halves of it, and halves of those, down
 * to a quarter of that cache. A kept dimension may also have tiles of one block, which is another order of its loop and others' tiles.
 */
function tileSizes(mapping: Mapping, { block }: Schedule, d: LoopDimension, nearBytes: number): number[] {
  const blocks = blocksOf(d, block[d.name] ?? 1);
  const bytes = Math.max(...mapping.intrinsic.operands.map((o) => operandBytes(mapping, o.name, d)));
  if (bytes <= nearBytes) return [];
  const sizes = new Set(d.kind === "spatial" ? [1] : []);
  for (let parts = 2; parts <= blocks && bytes / parts >= nearBytes / 4; parts *= 2)
    sizes.add(Math.ceil(blocks / parts));
  return [...sizes].filter((size) => size < blocks);
}

/** Of the tensors an operand reads, or the output; 0 where a dimension does not move in them. */
function operandBytes({ computation, binding }: Mapping, operand: string, d: LoopDimension): number {
  const bound = binding[operand];
  if (bound === undefined || !d.loops.some((l) => axesIn(bound).includes(l.name))) return 0;
  return accessesIn(bound).reduce((sum, { tensor }) => {
    const found = tensor === targetOf(computation).name ? outputOf(computation) : tensorOf(computation, tensor);
    return sum + memoryElements(found) * bytesOf(found.dtype);
  }, 0);
}

function shuffled<T>(items: readonly T[], random: Random): T[] {
  const result = [...items];
  for (let i = result.length - 1; i > 0; i--) {
    const j = randomInteger(random, 0, i);
    const [x, y] = [result[i], result[j]];
    if (x !== undefined && y !== undefined) [result[i], result[j]] = [y, x];
  }
  return result;
}
