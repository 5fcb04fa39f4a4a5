/**
 * @file Lowers split-K: each block stores its partial sums in a workspace or in the memory of its cluster, and they are added in a fixed order.
 *
 *     for at cluster split in 0..4                             through cluster: each line of the tile is owned by one block
 *       ...
 *       barrier cluster, of beginnings                         before the first write into another block's shared memory
 *       for m_in, n_in of c{..}   parts[line/16, split, line%16, n] = sum[]
 *       barrier cluster
 *       copy line 16, n 64, by block   y[..] = f16(parts[split,0,line,n] + parts[split,1,line,n] + ..)
 *
 *     for at block split in 0..4                               through memory: the workspace holds all partial sums,
 *       ...                                                    and a second kernel adds them
 *       for m_in, n_in of c{..}   parts[split, m, n] = sum[]
 *     barrier
 *     for at block m_tile, n_tile, chunk
 *       copy line 4, n 64, by block    y[..] = f16(parts[0,m,n] + parts[1,m,n] + ..)
 */

import type { Dimension } from "../../abstraction/affine.ts";
import { upTo, volumeOf } from "../../abstraction/collections.ts";
import { access, axis, type Expr, number, over, plus, remainder, times } from "../../abstraction/expression.ts";
import { assignment, type Copy, loop, type Scratch, type Statement } from "../../abstraction/loop-nest.ts";
import { type PartialTile, partialTile, partsOfSum, pitchOf } from "../schedule/split.ts";
import { keptTiles } from "../schedule/taps.ts";
import { callBarrier, type GridPlaces } from "./grid-places.ts";
import { resultOf, widthOf } from "./grid-results.ts";

/** Threads in a block of the second kernel. */
const ADDING_THREADS = 256;

const through = ({ schedule }: GridPlaces): "cluster" | "memory" | undefined => schedule.split?.through;

/** The buffer in which partial sums meet; empty if no sum is split. */
export function partialSums(places: GridPlaces): Scratch[] {
  if (!through(places)) return [];
  const { context, schedule } = places;
  const tile = partialTile(context, schedule);
  const dims = dimsOfParts(places, tile);
  const shape = { name: partsName(places), dtype: context.target.dtype, dims };
  if (through(places) === "memory") return [{ ...shape, scope: "workspace", elements: volumeOf(dims) }];
  const pitch = pitchOf(context, tile);
  const rows = dims.slice(0, -1);
  const storage = rows.reduceRight<{ place: Expr; below: number }>(
    ({ place, below }, d) => ({ place: plus(times(below, axis(d.name)), place), below: below * d.extent }),
    { place: axis(dims.at(-1)?.name ?? ""), below: pitch },
  ).place;
  return [{ ...shape, scope: "cluster", elements: volumeOf(rows) * pitch, storage }];
}

/** Each warp stores its partial sums once its part of the sum is complete. */
export function storeParts(places: GridPlaces): readonly Statement[] {
  const tile = partialTile(places.context, places.schedule);
  const line = places.elementAt(tile.across);
  const at = places.elementAt(tile.line);
  const index =
    through(places) === "memory"
      ? [places.part, ...tileOf(places, tile), line, at]
      : [over(line, tile.share), places.part, remainder(line, tile.share), at];
  return places.eachSum([places.drained((sum) => assignment(access(partsName(places), index), sum))]);
}

/** After that, all blocks of a cluster add up the partial sums. */
export function addMet(places: GridPlaces): readonly Statement[] {
  if (through(places) !== "cluster") return [];
  const tile = partialTile(places.context, places.schedule);
  const { share } = tile;
  const added = addition(places, tile, share, times(share, places.part), (part, line) => [places.part, part, line]);
  return [{ kind: "barrier", group: "cluster" }, added];
}

/** Waits, before the first write into another block of a cluster, until that block has begun. */
export function meeting(places: GridPlaces): readonly Statement[] {
  return through(places) === "cluster" || places.schedule.multicast
    ? [{ kind: "barrier", group: "cluster", of: "beginnings" }]
    : [];
}

/**
 * The second kernel of a sum that is split through memory.
 * @param dealt wraps the work of a tile's blocks in loops over tiles
 */
export function addParts(
  places: GridPlaces,
  dealt: (body: readonly Statement[]) => readonly Statement[],
): readonly Statement[] {
  if (through(places) !== "memory") return [];
  const { team, teamThreads } = places.context;
  const tile = partialTile(places.context, places.schedule);
  const width = widthOf(places, tile);
  const enough = (lines: number): boolean => (lines * tile.lineExtent) / width >= ADDING_THREADS;
  const chunk = divisorsOf(tile.lines).find(enough) ?? tile.lines;
  const chunkName = places.fresh("chunk");
  const first = times(chunk, axis(chunkName));
  const added = addition(places, tile, chunk, first, (part, line) => [
    part,
    ...tileOf(places, tile),
    plus(first, line),
  ]);
  const threads = loop(places.fresh(team), ADDING_THREADS / teamThreads, [added], team);
  return [callBarrier(places), ...dealt([loop(chunkName, tile.lines / chunk, [threads], "block")])];
}

/**
 * Adds up the lines of a tile from `first` on over all parts, and stores them.
 * @param held address of a line of a part
 */
function addition(
  places: GridPlaces,
  tile: PartialTile,
  extent: number,
  first: Expr,
  held: (part: Expr, line: Expr) => readonly Expr[],
): Copy {
  const { rows } = places.context;
  const [line, at] = [places.fresh("line"), places.fresh("place")];
  const sums = upTo(partsOfSum(places.schedule)).map(
    (part): Expr => access(partsName(places), [...held(number(part), axis(line)), axis(at)]),
  );
  const sum = sums.reduce((all, next) => plus(all, next));
  const across = plus(first, axis(line));
  const along = axis(at);
  const [row, column] = tile.line === rows ? [along, across] : [across, along];
  return {
    kind: "copy",
    axes: [
      { name: line, extent },
      { name: at, extent: tile.lineExtent },
    ],
    equation: resultOf(places, row, column, sum),
    width: widthOf(places, tile),
    transfer: "plain",
    group: "block",
  };
}

const partsName = (places: GridPlaces): string => places.fresh("parts");

/** The counters that identify a tile of the output. */
function tileOf(places: GridPlaces, { across, line }: PartialTile): readonly Expr[] {
  const outer = places.context.outer.map((d) => axis(places.fresh(`${d.name}_block`)));
  return [...outer, places.tileAt(across), places.tileAt(line)];
}

function dimsOfParts(places: GridPlaces, { across, line, lines, lineExtent, share }: PartialTile): Dimension[] {
  const { context, schedule } = places;
  const part: Dimension = { name: "part", extent: partsOfSum(schedule) };
  const place: Dimension = { name: line.axis, extent: lineExtent };
  if (through(places) === "cluster")
    return [{ name: "block", extent: part.extent }, part, { name: across.axis, extent: share }, place];
  const tiles = [across, line].map((a) => ({ name: `${a.axis}_tile`, extent: keptTiles(context, a, schedule) }));
  const outer = context.outer.map((d) => ({ name: `${d.name}_block`, extent: d.extent }));
  return [part, ...outer, ...tiles, { name: across.axis, extent: lines }, place];
}

const divisorsOf = (n: number): number[] =>
  upTo(n)
    .map((i) => i + 1)
    .filter((d) => n % d === 0);
