/**
 * @file The search space of a computation on a machine with blocks and warps: every warp instruction, every mapping worth scheduling, every
 * value of each decision.
 *
 *     matmul f16 on an H100
 *       mma.m16n8k16.f32.f16     m <- m   n <- n   k <- k         expected 284 us    kept
 *       wmma.m32n8k16.f32.f16    m <- n   n <- m   k <- k         expected 1.9 ms    left out: beyond 3 times the least
 */

import { extentOf } from "../abstraction/affine.ts";
import type { GridCandidate } from "../abstraction/candidate.ts";
import { unique, volumeOf, withName } from "../abstraction/collections.ts";
import { readsShared } from "../abstraction/intrinsic.ts";
import { type Mapping, printMatching } from "../abstraction/mapping.ts";
import { bindingText } from "../mapper/match/bind.ts";
import { GRID } from "../mapper/schedule/grid.ts";
import { type GridContext, gridContext } from "../mapper/schedule/grid-context.ts";
import { repackedContext, repackings } from "../mapper/schedule/repack.ts";
import { allSchedules } from "../mapper/schedule/schedules.ts";
import { bestUsed } from "../mapper/schedule/taps.ts";
import { MOST_KEPT, tilesAlong, triedTiles } from "../mapper/schedule/tile.ts";
import { type GpuKind, gpuSpace } from "./gpu-space.ts";
import { reordered } from "./reordered.ts";

/** Widths of one instruction tried under one mapping: those with the least waste. */
const WIDTHS_KEPT = 4;
/** The same for windows that serve all taps of a filter. */
const WINDOW_WIDTHS_KEPT = 2;
/** Further widths tried: those whose tiles keep all multiprocessors busy. 1536 columns and rows are 132 tiles of 128 x 144, and 144 of 128 x 128. */
const FULL_WIDTHS_KEPT = 2;
/** Products, and elements of both tiles that the last cache delivers, in a cycle of a multiprocessor (H200: 64 x 256 x 16 in 128; 64 bytes). */
const PRODUCTS_PER_CYCLE = 2048;
const ELEMENTS_PER_CYCLE = 32;

const BLOCKS: GpuKind<GridCandidate, GridContext> = {
  kind: "grid",
  schedules: GRID,
  all: (context) => allSchedules(GRID, context),
  variants: inRuns,
  contextOf: gridContext,
  fitting,
  glance: 4,
  drawn: 16,
  most: 24,
  descended: 4,
};

/** The space over all warp instructions or, when none maps, the refusals, those closest to a mapping first. */
export const gridSpace = gpuSpace(BLOCKS);

/** Elements of a step along the sum. Channels that fill steps by themselves need not be fused with taps. */
const STEP = 64;

/** The mapping with the loops of its sum fused in memory order, for when the innermost loop alone does not fill steps. */
function inRuns(mapping: Mapping): readonly Mapping[] {
  const { axes } = mapping.computation;
  const fills = (loop: string | undefined): boolean => (withName(axes, loop)?.extent ?? 1) % STEP === 0;
  return reordered(mapping).flatMap((o) => (o.isInMemoryOrder && !fills(o.order.at(-1)) ? [o.mapping()] : []));
}

/** Among the widths of one instruction under one mapping, those with the least waste, zero if possible; of equal waste the widest. */
function fitting(contexts: readonly GridContext[]): readonly GridContext[] {
  const alike = new Map<string, GridContext[]>();
  for (const context of contexts) {
    const { intrinsic, target, mapping } = context;
    const shared = intrinsic.operands.filter(readsShared).length;
    const key = [
      intrinsic.family,
      shared,
      target.dtype,
      printMatching(mapping.matching),
      bindingText(mapping.binding),
    ].join();
    const widths = alike.get(key);
    if (widths) widths.push(context);
    else alike.set(key, [context]);
  }
  const waste = ({ mapping }: GridContext): number => Math.ceil(20 * mapping.waste);
  const size = ({ rows, columns }: GridContext): number => rows.extent * columns.extent;
  return [...alike.values()].flatMap((all) => {
    const kept = all.sort((a, b) => waste(a) - waste(b) || size(b) - size(a)).slice(0, WIDTHS_KEPT);
    // Rows of a window have gaps between them, so other widths fit it best.
    const shifted = all.filter((c) => c.outerSums.length > 0 && c.inputs.some((i) => readsShared(i.operand)));
    // Whether an input could be staged does not depend on the width.
    const [any] = shifted;
    const copied = any && repackedContext(any, { repack: repackings(any).at(-1) });
    const used = new Map(shifted.map((c) => [c, copied ? Math.floor(20 * bestUsed(copied, MOST_KEPT, c)) : 0]));
    const windows = all.filter((c) => (used.get(c) ?? 0) > 0 && !kept.includes(c));
    windows.sort((a, b) => (used.get(b) ?? 0) - (used.get(a) ?? 0) || size(b) - size(a));
    const cycles = new Map(all.map((c) => [c, leastCycles(c)]));
    const full = all.filter((c) => !kept.includes(c));
    full.sort((a, b) => (cycles.get(a) ?? 0) - (cycles.get(b) ?? 0) || size(b) - size(a));
    return unique([...kept, ...windows.slice(0, WINDOW_WIDTHS_KEPT), ...full.slice(0, FULL_WIDTHS_KEPT)]);
  });
}

/** Cycles of all waves of a product's tiles, for each element of the sum, under the tile that needs the fewest. */
function leastCycles(context: GridContext): number {
  const { rows, columns, outer, limits } = context;
  const each = triedTiles(context).map((size) => {
    const [m, n] = [extentOf(rows.axis, size), extentOf(columns.axis, size)];
    const tiles = tilesAlong(rows, size) * tilesAlong(columns, size) * volumeOf(outer);
    const waves = Math.ceil(tiles / limits.multiprocessors);
    return waves * Math.max((m * n) / PRODUCTS_PER_CYCLE, (m + n) / ELEMENTS_PER_CYCLE);
  });
  return Math.min(...each);
}
