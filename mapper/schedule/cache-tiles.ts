/**
 * @file The part of decision `order` that concerns loops over tiles: cache blocking, and sums in several passes.
 *
 *     order n/8 k/64 m n k                 as GotoBLAS: 64 blocks of k by 8 of n are used by every m before the next are fetched
 *
 *     for n_tile in 0..4                   n/8: a tile is 8 blocks of n, the last one perhaps smaller
 *       for k_tile in 0..16                k/64 stands outside kept loops: 16 passes, each adds to what the one before has left
 *         for m, n in 0..8
 *           c <- cleared in the first pass, loaded in the others
 *           for k in 0..64 ...
 *           stored as sums that go on in all passes but the last
 *
 * A tile of one block puts a dimension's whole loop at the tile loop's place: order `p/1 c/4 p q c` is p, tiles of c,
 * q, c.
 */

import { z } from "zod";
import type { Schedule } from "../../abstraction/candidate.ts";
import { memoisedBy, namesOf, withName } from "../../abstraction/collections.ts";
import { memoryElements, outputOf, targetOf, tensorOf } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { internal } from "../../abstraction/error.ts";
import { accessesIn, axesIn } from "../../abstraction/expression.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { pick, type Random, randomInteger } from "../../abstraction/random.ts";
import { TAKEN } from "../../abstraction/schema.ts";
import { isFreeName, LONGEST_NAME } from "../../abstraction/text.ts";
import type { LoopDimension } from "./dimensions.ts";
import { dimensionsUnder } from "./gaps.ts";
import { type Reach, reachOfTarget } from "./reach.ts";

/** An entry of a schedule's order: a loop over the blocks of a dimension, or over tiles of so many blocks. */
interface ScheduledLoop {
  readonly name: string;
  /** Blocks in a tile; undefined for the loop over blocks. */
  readonly tile: number | undefined;
}

/** The schema of a loop's name in a record. */
export const loop = z
  .string()
  .max(LONGEST_NAME)
  .regex(/^[A-Za-z_][A-Za-z0-9_]*(?:\/[1-9]\d{0,9})?$/, { error: "is no loop" })
  .refine((text) => isFreeName(text.replace(/\/.*/, "")), TAKEN);

/** Parses `k`, `k/64`; undefined for anything else. */
export function parseLoop(text: string): ScheduledLoop | undefined {
  if (!text.includes("/")) return text === "" ? undefined : { name: text, tile: undefined };
  const known = knownTileLoops.get(text);
  if (known) return known;
  const [, name, tile] = /^([^/]+)\/([1-9]\d*)$/.exec(text) ?? [];
  if (name === undefined) return undefined;
  const loop = { name, tile: Number(tile) };
  knownTileLoops.set(text, loop);
  return loop;
}

/** A cache: names are parsed repeatedly while schedules are validated. */
const knownTileLoops = new Map<string, ScheduledLoop>();

export const printLoop = ({ name, tile }: ScheduledLoop): string => (tile === undefined ? name : `${name}/${tile}`);

/** A loop around the instruction. */
export interface NestedLoop {
  readonly dimension: LoopDimension;
  readonly tile: number | undefined;
  /** Set for tiles of a summed dimension outside a kept loop: each step is a pass over partial sums. */
  readonly pass: boolean;
}

/** The loops of an order that {@link orderProblem} accepts, outermost first. */
export function nestedLoops(order: readonly string[], dimensions: readonly LoopDimension[]): readonly NestedLoop[] {
  const all = order.map((text) => {
    const loop = parseLoop(text);
    const dimension = withName(dimensions, loop?.name);
    if (!loop || !dimension) internal(`no loop ${text}`);
    return { dimension, tile: loop.tile };
  });
  const lastKept = all.findLastIndex((l) => l.dimension.kind === "spatial");
  return all.map((l, i) => ({ ...l, pass: l.dimension.kind === "reduce" && l.tile !== undefined && i < lastKept }));
}

/** Number of blocks of a dimension, including a smaller last one. */
export function blocksOf(d: LoopDimension, block: number): number {
  const usable = d.kind === "spatial" ? d.wholeSteps : d.steps;
  const whole = Math.floor(usable / block);
  return whole + (d.steps > whole * block ? 1 : 0);
}

/** Largest number of nested passes in the generated code: each has a first, a last and middle iterations. */
export const PASS_LOOPS = 2;

/**
 * Why loops cannot be ordered this way; undefined when they can.
 * @param meetsBorder whether a summed dimension meets a border of an input loaded in place; its steps are then written
 * one by one
 */
export function orderProblem(
  { order, block }: Pick<Schedule, "order" | "block">,
  dimensions: readonly LoopDimension[],
  meetsBorder: (dimension: LoopDimension) => boolean,
): string | undefined {
  const loops = order.map(parseLoop);
  const plain = loops.flatMap((l) => (l && l.tile === undefined ? [l.name] : []));
  const names = namesOf(dimensions);
  if (plain.length !== names.length || names.some((n) => !plain.includes(n)))
    return `order must name each of ${names.join(", ")} once`;
  const kinds = plain.map((n) => withName(dimensions, n)?.kind);
  if (kinds.lastIndexOf("spatial") > kinds.indexOf("reduce") && kinds.includes("reduce"))
    return "kept dimensions must stand before summed ones";
  for (const [position, loop] of loops.entries()) {
    const d = withName(dimensions, loop?.name);
    if (!loop || !d) return `${order[position]} names no dimension: they are ${names.join(", ")}`;
    const { name, tile } = loop;
    if (tile === undefined) continue;
    if (loops.some((l, i) => i < position && l?.name === name))
      return `tiles of ${name} must stand before ${name}, once`;
    const blocks = blocksOf(d, block[name] ?? 1);
    if (tile >= blocks) return `${name} has ${blocks} blocks: ${name}/${tile} is no loop`;
    if (meetsBorder(d)) return `${name} has no tiles: its steps at a border are written one by one`;
  }
  if (nestedLoops(order, dimensions).filter((l) => l.pass).length > PASS_LOOPS)
    return `at most ${PASS_LOOPS} summed dimensions may have tiles outside kept loops`;
  return undefined;
}

/**
 * Removes tile loops that have one step, or that enclose the loop over their blocks with no loop or copy between them.
 */
export function withoutIdleTiles(
  order: readonly string[],
  dimensions: readonly LoopDimension[],
  block: Schedule["block"],
  copied: readonly string[],
): readonly string[] {
  const idle = (text: string, i: number): boolean => {
    const { name, tile } = parseLoop(text) ?? {};
    const d = withName(dimensions, name);
    if (d === undefined || tile === undefined) return false;
    return tile >= blocksOf(d, block[d.name] ?? 1) || (order[i + 1] === name && !copied.includes(text));
  };
  const kept = order.filter((text, i) => !idle(text, i));
  return kept.length < order.length ? withoutIdleTiles(kept, dimensions, block, copied) : order;
}

/** Adds, removes or resizes one tile loop. */
export function retiled(mapping: Mapping, schedule: Schedule, random: Random, nearBytes: number): Schedule {
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
  // It must be outside the dimension's own loop, and outside some kept loop.
  const kept = lastKept(order, dimensions);
  const place = randomInteger(random, 0, Math.max(0, Math.min(kept, order.indexOf(d.name) - 1)));
  const loop = printLoop({ name: d.name, tile: pick(random, sizes) });
  return { ...schedule, order: [...order.slice(0, place), loop, ...order.slice(place)] };
}

/** The place in an order of the innermost loop over a kept dimension. */
export const lastKept = (order: readonly string[], dimensions: readonly LoopDimension[]): number =>
  order.findLastIndex((text) => dimensions.some((d) => d.name === text && d.kind === "spatial"));

/** Largest number of tile loops: n, k and m in GotoBLAS. */
const MOST_TILED = 3;

/**
 * Tile sizes to try, in blocks. Where an operand's data exceeds the nearest cache: half of the data, halves of that,
 * and so on down to a quarter of that cache. A kept dimension may also have tiles of one block, which reorders its loop
 * relative to the tiles of others.
 */
function tileSizes(mapping: Mapping, { block }: Schedule, d: LoopDimension, nearBytes: number): number[] {
  const blocks = blocksOf(d, block[d.name] ?? 1);
  const bytes = mostBytes(mapping, d.name, () =>
    Math.max(...mapping.intrinsic.operands.map((o) => operandBytes(mapping, o.name, d))),
  );
  if (bytes <= nearBytes) return [];
  const sizes = new Set(d.kind === "spatial" ? [1] : []);
  for (let parts = 2; parts <= blocks && bytes / parts >= nearBytes / 4; parts *= 2)
    sizes.add(Math.ceil(blocks / parts));
  return [...sizes].filter((size) => size < blocks);
}

/** The largest operand that moves along a dimension, in bytes. */
const mostBytes = memoisedBy<Mapping, number>();

/** Bytes of the tensors that an operand reads, or of the output; 0 when they do not depend on the dimension. */
function operandBytes({ computation, binding }: Mapping, operand: string, d: LoopDimension): number {
  const bound = binding[operand];
  if (bound === undefined || !d.loops.some((l) => axesIn(bound).includes(l.name))) return 0;
  return accessesIn(bound).reduce((sum, { tensor }) => {
    const found = tensor === targetOf(computation).name ? outputOf(computation) : tensorOf(computation, tensor);
    return sum + memoryElements(found) * bytesOf(found.dtype);
  }, 0);
}

/**
 * How the output can hold partial sums between passes, if it can: whole tiles as the instruction stores them, without
 * further processing.
 */
export function partialReach(mapping: Mapping, schedule: Pick<Schedule, "spread">): Reach | undefined {
  const dimensions = dimensionsUnder(mapping, schedule);
  if (mapping.computation.epilogue || dimensions.some((d) => d.kind === "spatial" && d.steps !== d.wholeSteps))
    return undefined;
  const reach = reachOfTarget(mapping, dimensions);
  return typeof reach === "string" ? undefined : reach;
}
