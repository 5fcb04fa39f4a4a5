/**
 * @file Loops over tiles: cache blocking, and sums in several passes.
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
 * A tile of one block puts a dimension's whole loop at the tile loop's place: order `p/1 c/4 p q c` is p, tiles of c, q, c.
 */

import type { Schedule } from "../../abstraction/candidate.ts";
import type { LoopDimension } from "./dimensions.ts";

/** An entry of a schedule's order: a loop over the blocks of a dimension, or over tiles of so many blocks. */
export interface ScheduledLoop {
  readonly name: string;
  /** Blocks of a tile; undefined for the loop over blocks. */
  readonly tile: number | undefined;
}

/** `k`, `k/64`; undefined for what reads as neither. */
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

/** Read again and again while schedules are judged. */
const knownTileLoops = new Map<string, ScheduledLoop>();

export const printLoop = ({ name, tile }: ScheduledLoop): string => (tile === undefined ? name : `${name}/${tile}`);

/** A loop around the instruction. */
export interface NestedLoop {
  readonly dimension: LoopDimension;
  readonly tile: number | undefined;
  /** Over tiles of a summed dimension, outside a kept loop: each of its steps is a pass over partial sums. */
  readonly pass: boolean;
}

/** The loops of an order that {@link orderProblem} has nothing to say about, outermost first. */
export function nestedLoops(order: readonly string[], dimensions: readonly LoopDimension[]): readonly NestedLoop[] {
  const all = order.map((text) => {
    const loop = parseLoop(text);
    const dimension = dimensions.find((d) => d.name === loop?.name);
    if (!loop || !dimension) throw new Error(`internal: no loop ${text}`);
    return { dimension, tile: loop.tile };
  });
  const lastKept = all.findLastIndex((l) => l.dimension.kind === "spatial");
  return all.map((l, i) => ({ ...l, pass: l.dimension.kind === "reduce" && l.tile !== undefined && i < lastKept }));
}

/** Blocks of a dimension, the smaller one that is left included. */
export function blocksOf(d: LoopDimension, block: number): number {
  const usable = d.kind === "spatial" ? d.wholeSteps : d.steps;
  const whole = Math.floor(usable / block);
  return whole + (d.steps > whole * block ? 1 : 0);
}

/** Most passes written out one inside the other: each has a first, a last and those between. */
export const PASS_LOOPS = 2;

/**
 * Why loops cannot stand as an order has them; undefined when they can.
 * @param meetsBorder whether a summed dimension meets a border of what is loaded in place: its steps are then written one by one
 */
export function orderProblem(
  { order, block }: Pick<Schedule, "order" | "block">,
  dimensions: readonly LoopDimension[],
  meetsBorder: (dimension: LoopDimension) => boolean,
): string | undefined {
  const loops = order.map(parseLoop);
  const plain = loops.flatMap((l) => (l && l.tile === undefined ? [l.name] : []));
  const names = dimensions.map((d) => d.name);
  if (plain.length !== names.length || names.some((n) => !plain.includes(n)))
    return `order must name each of ${names.join(", ")} once`;
  const kinds = plain.map((n) => dimensions.find((d) => d.name === n)?.kind);
  if (kinds.lastIndexOf("spatial") > kinds.indexOf("reduce") && kinds.includes("reduce"))
    return "kept dimensions must stand before summed ones";
  for (const [position, loop] of loops.entries()) {
    const d = dimensions.find((x) => x.name === loop?.name);
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
