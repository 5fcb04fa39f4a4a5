/**
 * @file Decision `tile`: the box of results that a block computes, and the length of a step along the sum.
 *
 *     tile m 128, n 256, k 64        out[128*m_tile.., 256*n_tile..]: 64 steps of a sum over 4096
 *
 * Larger tiles read each input fewer times, but give fewer blocks to fill the machine.
 */

import { z } from "zod";
import { extentOf } from "../../abstraction/affine.ts";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { memoisedBy } from "../../abstraction/collections.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { readsShared } from "../../abstraction/intrinsic.ts";
import { isBand } from "../match/bands.ts";
import { byAxis, namesProblem } from "./decision.ts";
import type { GridAxis, GridContext, GridDecision, GridLimits } from "./grid-context.ts";

/** Cached for all mappings whose axes have the same extents, since there are many mappings and many tiles. */
const tiles = memoisedBy<GridLimits, readonly GridSchedule["tile"][]>();

/** The largest tile along a kept axis. 256 columns of f32 sums take 128 registers of each of 256 threads. */
export const MOST_KEPT = 256;
/** The same for runs of a filter's results: a block has few columns, and stages a band of weights as long as its sum. */
const MOST_RUNS = 4 * MOST_KEPT;
/** Bytes of a tile's row along the sum; the swizzle of shared memory spans 128. */
const SUM_BYTES = [32, 64, 128] as const;
/** The same where fragments may be made of narrow elements: rows of those are short. */
const NARROW_SUM_BYTES = [...SUM_BYTES, 256, 512] as const;

export const tile: GridDecision<"tile"> = {
  summary:
    "Elements of a block's tile along each axis. Larger tiles read each input fewer times; smaller tiles give more blocks to fill the machine.",
  example: "m 128, n 256, k 64",
  schema: byAxis(z.int().min(1).max(4096)),
  values: triedTiles,
  problem: (context, schedule) => {
    const { rows, columns, sum } = context;
    const strange = namesProblem("tile", schedule.tile, [rows, columns, sum]);
    if (strange !== undefined) return strange;
    if (extentOf(sum.axis, schedule.tile) % sum.extent !== 0)
      return `tile ${sum.axis} ${schedule.tile[sum.axis]} is no multiple of ${sum.extent}`;
    return secretProblem(context, schedule);
  },
};

/** The tiles that a search tries. */
export function triedTiles(context: GridContext): readonly GridSchedule["tile"][] {
  const { rows, columns, sum, elementBytes, limits, mapping } = context;
  const sizes = [rows, columns, sum].map((a) => `${a.axis} ${a.extent} ${a.elements}`);
  const inBands = isBand(mapping.computation.rewriting?.kind);
  const most = inBands ? MOST_RUNS : MOST_KEPT;
  const isNarrow = context.inputs.some(({ reads, operand }) => reads.length > 0 && !readsShared(operand));
  const spans = isNarrow ? NARROW_SUM_BYTES : SUM_BYTES;
  const all = tiles(limits, [...sizes, elementBytes, inBands, isNarrow].join(), () =>
    keptTiles(rows, most).flatMap((m) =>
      keptTiles(columns, most).flatMap((n) =>
        (inBands ? bandTiles(sum, elementBytes) : sumTiles(sum, elementBytes, spans)).map((k) => ({
          [rows.axis]: m,
          [columns.axis]: n,
          [sum.axis]: k,
        })),
      ),
    ),
  );
  const isSecret = context.inputs.some((i) => i.operand.storage === undefined);
  return isSecret ? all.filter((size) => secretProblem(context, { tile: size }) === undefined) : all;
}

/**
 * Alignment in bytes of tiles that an instruction itself loads (CUDA C++ Programming Guide, Warp Matrix Functions: 256
 * bits).
 */
const SECRET_TILE_BYTES = 32;

/** Why tiles that an instruction itself loads would be misaligned; undefined when they are aligned. */
function secretProblem(
  { inputs, sum, intrinsic }: GridContext,
  { tile: size }: Pick<GridSchedule, "tile">,
): string | undefined {
  const beside = inputs.find((input) => {
    const along = input.contiguous === "sum" ? sum : input.kept;
    const tiles = extentOf(along.axis, size) / along.extent;
    const bytes = along.extent * bytesOf(input.operand.dtype);
    return input.operand.storage === undefined && tiles > 1 && bytes % SECRET_TILE_BYTES !== 0;
  });
  return (
    beside &&
    `tiles of ${beside.operand.name} would not begin at multiples of ${SECRET_TILE_BYTES} bytes, as ${intrinsic.name} requires`
  );
}

/** The most that tiles which are no power of two reach beyond the end, over the axis. */
const MOST_BEYOND = 1 / 16;

/** Powers of two times the instruction's extent, up to twice the axis, and sizes that divide the axis or nearly do. */
function keptTiles({ extent, elements }: GridAxis, most: number): number[] {
  const sizes: number[] = [];
  for (let size = extent; size <= Math.max(extent, most); size += extent) {
    const isPower = Number.isInteger(Math.log2(size / extent));
    const covers = Math.ceil(elements / size) * size <= (1 + MOST_BEYOND) * elements && size >= MOST_KEPT / 4;
    if ((isPower || covers) && size < 2 * Math.max(elements, extent)) sizes.push(size);
  }
  return sizes;
}

function sumTiles(
  { extent, elements }: GridAxis,
  elementBytes: number,
  spans: readonly number[] = SUM_BYTES,
): number[] {
  const sizes = spans.map((bytes) => bytes / elementBytes).filter((size) => size % extent === 0);
  const fitting = sizes.filter((size) => size < 2 * Math.max(elements, extent));
  return fitting.length > 0 ? fitting : [extent];
}

/** The largest band of weights that a block stages before its first product, in bytes of a column: a filter of 20 x 20 in runs of 16. */
const MOST_BAND_BYTES = 2048;

/** The whole sum over a filter if it fits, so that a block waits only once for its weights and its image. */
function bandTiles(sum: GridAxis, elementBytes: number): number[] {
  const isWhole = sum.elements % sum.extent === 0 && sum.elements * elementBytes <= MOST_BAND_BYTES;
  return isWhole ? [sum.elements] : sumTiles(sum, elementBytes);
}

/** Tiles of the instruction that each warp computes along an axis. */
export function fragmentsAlong(
  { axis, extent }: GridAxis,
  schedule: { readonly tile: Readonly<Record<string, number>>; readonly warps: Readonly<Record<string, number>> },
): number {
  return extentOf(axis, schedule.tile) / (extent * (schedule.warps[axis] ?? 1));
}

export function tilesAlong({ axis, elements }: GridAxis, size: Readonly<Record<string, number>>): number {
  return Math.ceil(elements / extentOf(axis, size));
}

/** Parts of a step: number of issues along the sum. */
export function partsOf({ sum }: GridContext, size: Readonly<Record<string, number>>): number {
  return extentOf(sum.axis, size) / sum.extent;
}

/** Steps along the sum, the last one perhaps partial, times the steps of the outer summed loops. */
export function stepsOf({ sum, outerSums }: GridContext, size: Readonly<Record<string, number>>): number {
  return outerSums.reduce((n, d) => n * d.extent, Math.ceil(sum.elements / extentOf(sum.axis, size)));
}
