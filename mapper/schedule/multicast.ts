/**
 * @file Decision `multicast`: neighbouring blocks form a cluster and fetch the tiles that they share together.
 *
 *     (left out)       each block fetches both of its tiles
 *     2 along rows     two blocks with neighbouring row tiles share their column tile: each fetches half of it, for both
 *     2 along columns  two blocks with neighbouring column tiles share their row tile
 *
 * A shared tile is read once from the L2 cache for the whole cluster. In return no block may run ahead of another by more
 * than the stages of its ring, and clusters fit fewer multiprocessors than single blocks do.
 */

import { z } from "zod";
import { extentOf } from "../../abstraction/affine.ts";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import type { GridAxis, GridContext, GridDecision, GridInput } from "./grid-context.ts";
import { keptTiles } from "./taps.ts";
import { viewForm } from "./views.ts";

/**
 * Blocks to try. Of four blocks only 30 clusters run at once on an H100, and what arrives at a block comes at half the rate: a product takes twice
 * the time.
 */
const TRIED = [
  { blocks: 2, along: "rows" },
  { blocks: 2, along: "columns" },
] as const;
/** The swizzle of shared memory repeats after so many rows, so a part of a tile begins at a multiple of them. */
const ROWS = 8;

export const multicast: GridDecision<"multicast"> = {
  summary:
    "Blocks of a cluster, neighbours along one axis, each of which fetches a part of the tile that they share and has it delivered to all (TMA multicast). By default each block fetches its tiles alone.",
  example: "2 along rows",
  schema: z.strictObject({ blocks: z.int().min(2).max(16), along: z.enum(["rows", "columns"]) }).optional(),
  values: ({ limits, intrinsic }) => [
    undefined,
    ...(limits.engine && intrinsic.asynchronous ? TRIED.filter(({ blocks }) => blocks <= limits.clusterBlocks) : []),
  ],
  suits: (context, schedule, value) =>
    value === undefined || multicastProblem(context, { ...schedule, multicast: value }) === undefined,
  goesWith: "producer",
  distance: (_, a, b) => (sameMulticast(a, b) ? 0 : 1),
  print: (value) => value && `${value.blocks} along ${value.along}`,
  traits: ({ multicast: value }) => (value ? ["multicast"] : []),
  problem: multicastProblem,
};

type Chosen = Pick<GridSchedule, "multicast">;

const sameMulticast = ({ multicast: a }: Chosen, { multicast: b }: Chosen): boolean =>
  a?.blocks === b?.blocks && a?.along === b?.along;

/** Number of blocks of a cluster that are neighbours along a kept axis. */
export const neighboursAlong = ({ rows }: GridContext, { multicast: value }: Chosen, axis: GridAxis): number =>
  value !== undefined && (value.along === "rows") === (axis.axis === rows.axis) ? value.blocks : 1;

/** Number of blocks of a cluster that share an input's tile: its kept axis is the other one. */
export const sharersOf = (context: GridContext, schedule: Chosen, { kept }: GridInput): number =>
  (schedule.multicast?.blocks ?? 1) / neighboursAlong(context, schedule, kept);

/** Why blocks cannot share tiles as a schedule says; undefined when they can. */
function multicastProblem(context: GridContext, schedule: GridSchedule): string | undefined {
  const { multicast: value, order, persistent, producer, split, taps } = schedule;
  if (!value) return undefined;
  const { blocks, along } = value;
  const { limits, rows, columns, sum, inputs } = context;
  if (blocks > limits.clusterBlocks)
    return limits.clusterBlocks === 0
      ? "blocks of the target form no clusters"
      : `a cluster has at most ${limits.clusterBlocks} blocks`;
  if (producer === undefined) return "tiles are shared by blocks whose producers fill the rings";
  if (split) return "a block either sums a part or shares tiles with its neighbours, not both";
  if (taps) return "a window that is staged once for all taps belongs to one block";
  const axis = along === "rows" ? rows : columns;
  const tiles = keptTiles(context, axis, schedule);
  if (tiles % blocks !== 0) return `${tiles} tiles along ${axis.axis} are not divided among ${blocks} neighbours`;
  if (along === "rows" && order > 1 && order % blocks !== 0)
    return `${order} row tiles in order are not divided among ${blocks} neighbours`;
  if (persistent !== undefined && persistent % blocks !== 0)
    return `${persistent} blocks are not divided into clusters of ${blocks}`;
  const shared = inputs.find((i) => sharersOf(context, schedule, i) > 1);
  const across = shared?.contiguous === "sum" ? shared.kept : sum;
  const lines = extentOf(across.axis, schedule.tile);
  if (lines % (ROWS * blocks) !== 0)
    return `${lines} ${across.axis} of a tile are not divided into ${blocks} parts of whole swizzles`;
  // A run of pixels begins inside its walk (abstraction/tensor-view.ts), which along the outermost dimension has no end.
  const form = shared && viewForm(context, shared);
  const walks = typeof form === "object" && form.rows.kind === "pixels" ? form.rows.walks.length : 0;
  const last = across.elements % lines;
  return (across.dimension?.loops.length ?? 0) <= walks && last > 0 && last <= lines - lines / blocks
    ? `the last tile has ${last} of ${lines} pixels along ${across.axis}, and the part of one of ${blocks} neighbours begins beyond them`
    : undefined;
}
