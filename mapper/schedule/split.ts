/**
 * @file Decision `split`: several blocks share the sum of a tile (split-K), and where their partial sums are added.
 *
 *     split 4 through cluster      part 2 of 72 steps: 36..53; each block of the cluster adds up a quarter of the tile's rows, which the
 *                                  others have written into its shared memory
 *     split 4 through memory       parts write their sums to a workspace, and a second kernel adds them
 *
 * The steps of all summed loops, filter taps included, are divided into equal parts. Partial sums are added in the
 * order of the parts, so every run gives the same result. Only so can deep layers with few results fill a machine.
 */

import { z } from "zod";
import { extentOf } from "../../abstraction/affine.ts";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { memoised, volumeOf } from "../../abstraction/collections.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import type { GridAxis, GridContext, GridDecision } from "./grid-context.ts";
import { runsAlongRows } from "./store.ts";
import { keptTiles, windowOf } from "./taps.ts";
import { stepsOf } from "./tile.ts";

/** Numbers of parts to try; portable clusters have at most eight blocks. */
const PARTS = [2, 3, 4, 6, 8, 9, 12, 16] as const;
const CLUSTERS = [2, 4, 8] as const;
/** Largest size of partial sums in memory: a quarter of the memory of the smallest GPU of the table. */
export const MOST_PART_BYTES = 2 ** 32;
/** Blocks for each multiprocessor beyond which splitting only adds work. */
const ENOUGH_BLOCKS = 2;

export const split: GridDecision<"split"> = {
  summary:
    "Blocks that share the steps of a sum (split-K), and where their partial sums are added: in the shared memory of a cluster, or in a workspace by a second kernel.",
  example: "4 through cluster",
  schema: z.strictObject({ parts: z.int().min(2).max(64), through: z.enum(["cluster", "memory"]) }).optional(),
  values: ({ limits, target }) => {
    if (target.storage === undefined) return [undefined];
    const clusters = CLUSTERS.filter((parts) => parts <= limits.clusterBlocks);
    return [
      undefined,
      ...clusters.map((parts) => ({ parts, through: "cluster" }) as const),
      ...PARTS.map((parts) => ({ parts, through: "memory" }) as const),
    ];
  },
  suits: (context, schedule, value) => value === undefined || isWorthwhile(context, schedule, value.parts),
  print: (value) => value && `${value.parts} through ${value.through}`,
  traits: ({ split: value }) => (value ? [`split through ${value.through}`] : []),
  worthTrying: (context, schedule) =>
    schedule.split === undefined || isWorthwhile(context, schedule, schedule.split.parts),
  problem: splitProblem,
};

/** Number of parts of the sum, one a block; 1 when nothing is split. */
export const partsOfSum = ({ split: value }: Pick<GridSchedule, "split">): number => value?.parts ?? 1;

/** Steps of each part. */
export function stepsOfPart(context: GridContext, schedule: GridSchedule): number {
  return stepsOf(context, schedule.tile) / partsOfSum(schedule);
}

/** Number of tiles of the output. */
export function tilesOf(context: GridContext, schedule: Pick<GridSchedule, "tile" | "taps" | "split">): number {
  const { rows, columns, outer } = context;
  const kept = keptTiles(context, rows, schedule) * keptTiles(context, columns, schedule);
  return kept * volumeOf(outer);
}

function isWorthwhile(context: GridContext, { tile, taps }: GridSchedule, parts: number): boolean {
  const { steps, tiles } = sizesOf(context)(tile);
  if (steps % parts !== 0 || tiles * parts > ENOUGH_BLOCKS * context.limits.multiprocessors) return false;
  return Number.isInteger((windowOf(context, { tile, taps })?.slices ?? 0) / parts);
}

interface Sizes {
  readonly steps: number;
  readonly tiles: number;
}

/** Tiles to try for a context, cached: every value requests them, and most drawn schedules are refused later. */
const sizesOf = memoised((context: GridContext) =>
  memoised(
    (tile: GridSchedule["tile"]): Sizes => ({ steps: stepsOf(context, tile), tiles: tilesOf(context, { tile }) }),
  ),
);

/** The layout of a tile's partial sums: lines along the axis in which the output is contiguous. */
export interface PartialTile {
  readonly line: GridAxis;
  readonly across: GridAxis;
  /** Elements of a line, and lines of the tile. */
  readonly lineExtent: number;
  readonly lines: number;
  /** Lines that each block of a cluster adds up. */
  readonly share: number;
}

export function partialTile(context: GridContext, schedule: GridSchedule): PartialTile {
  const { rows, columns } = context;
  const [line, across] = runsAlongRows(context) ? [rows, columns] : [columns, rows];
  const lines = extentOf(across.axis, schedule.tile);
  return { line, across, lineExtent: extentOf(line.axis, schedule.tile), lines, share: lines / partsOfSum(schedule) };
}

/**
 * Distance between lines in shared memory, chosen so that lanes that write fragments use all banks: eight rows of pairs
 * of columns, or pairs of columns a line apart.
 */
export function pitchOf(context: GridContext, { line, lineExtent }: Pick<PartialTile, "line" | "lineExtent">): number {
  const wanted = line === context.columns ? 8 : 4;
  return lineExtent + ((((wanted - lineExtent) % BANKS) + BANKS) % BANKS);
}

const BANKS = 32;

/** Elements of shared memory in which a block receives the parts it adds up; 0 outside a cluster. */
export function receivedElements(context: GridContext, schedule: GridSchedule): number {
  if (schedule.split?.through !== "cluster") return 0;
  const tile = partialTile(context, schedule);
  return tile.lines * pitchOf(context, tile);
}

/** Why a sum cannot be split as a schedule says; undefined when it can. */
function splitProblem(context: GridContext, schedule: GridSchedule): string | undefined {
  if (!schedule.split) return undefined;
  const { parts, through } = schedule.split;
  const steps = stepsOf(context, schedule.tile);
  if (steps % parts !== 0) return `${steps} steps of the sum are not divided among ${parts} blocks`;
  if (context.target.storage === undefined)
    return `which lane holds which element of ${context.target.name} is not known, so that parts of it are not added`;
  if (schedule.store !== "direct") return "parts of a sum are stored by the lanes that hold them: store direct";
  if (through === "memory") {
    const tile = extentOf(context.rows.axis, schedule.tile) * extentOf(context.columns.axis, schedule.tile);
    const bytes = tilesOf(context, schedule) * tile * parts * bytesOf(context.target.dtype);
    return bytes > MOST_PART_BYTES ? `parts of sums take ${bytes} bytes, more than ${MOST_PART_BYTES}` : undefined;
  }
  const most = context.limits.clusterBlocks;
  if (parts > most)
    return most === 0 ? "blocks of the target form no clusters" : `a cluster has at most ${most} blocks`;
  const { across, lines, share } = partialTile(context, schedule);
  return Number.isInteger(share)
    ? undefined
    : `${lines} ${across.axis} of a tile are not divided among ${parts} blocks`;
}
