/**
 * @file Lowers the kernel that repacks inputs before the product. It transposes tiles through shared memory, so that
 * both the reads from the source and the writes to the copy are contiguous, 16 bytes at a time where possible.
 *
 *     for at block chunk                              the chunks of all inputs, one input after another
 *       copy c 64, x 64 by 8, by block                a_turned[c, x] = in[n, 64*c_tile + c, (64*x_tile + x)/56, (64*x_tile + x)%56]
 *       barrier block
 *       copy x 64, c 64 by 8, gathered, by block      in_packed[..] = a_turned[c, x]
 *     barrier
 *
 * Where few elements are contiguous in the source, as in a 3x3 filter, a tile is a run of the source: all elements of
 * many channels.
 */

import { present, volumeOf } from "../../abstraction/collections.ts";
import { memoryElements } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import {
  access,
  and,
  axis,
  binary,
  compare,
  type Expr,
  number,
  over,
  plus,
  remainder,
  times,
} from "../../abstraction/expression.ts";
import { assignment, type Copy, loop, type Scratch, type Statement } from "../../abstraction/loop-nest.ts";
import { digitsAlong } from "../schedule/dimensions.ts";
import type { RepackedInput } from "../schedule/grid-context.ts";
import { widthAlong } from "../schedule/repack.ts";
import { PIECE_BYTES } from "../schedule/swizzle.ts";
import { callBarrier, type GridPlaces } from "./grid-places.ts";

/** Threads in a block that copies, and the most elements of its tile. */
const THREADS = 256;
const TILE = 4096;
/** Tile side in elements where both extents are long. */
const SIDE = 64;

/** How the copy of an input is divided into tiles. */
interface Turned {
  readonly input: RepackedInput;
  /** Elements along the sum, and along the source's innermost axis: in total (`all`) and in a tile. */
  readonly summed: { readonly all: number; readonly tile: number };
  readonly along: { readonly all: number; readonly tile: number };
  /** Whether a tile is a contiguous run of the source. */
  readonly isRun: boolean;
  /** Elements in one read and in one write. */
  readonly read: number;
  readonly write: number;
  /** Tiles in total; each is copied by one block. */
  readonly chunks: number;
}

const upTo = (n: number, multiple: number): number => Math.ceil(n / multiple) * multiple;

function turnedOf(input: RepackedInput): Turned {
  const { source, copy, summed, along, outer, picked } = input;
  const rows = volumeOf(summed);
  const columns = volumeOf(along);
  const isWhole = source.dims.every((d) => picked[d.name]?.step === 1);
  const [inRun, inRow] = isWhole ? [widthAlong(source, [...summed, ...along]), widthAlong(source, along)] : [1, 1];
  const write = widthAlong(copy, summed);
  const isRun = columns <= SIDE && inRun > inRow;
  const groups = Math.max(1, Math.floor(TILE / (SIDE * columns)));
  const tiles = Math.ceil(rows / (SIDE * groups));
  const tile = isRun ? upTo(Math.ceil(rows / tiles), rows > SIDE ? SIDE : write) : Math.min(SIDE, upTo(rows, write));
  const across = isRun ? columns : Math.min(SIDE, upTo(columns, inRow));
  return {
    input,
    isRun,
    write,
    read: isRun ? inRun : inRow,
    summed: { all: rows, tile },
    along: { all: columns, tile: across },
    chunks: volumeOf(outer) * Math.ceil(rows / tile) * Math.ceil(columns / across),
  };
}

const turnedInputs = ({ context }: GridPlaces): Turned[] => (context.repacked?.inputs ?? []).map(turnedOf);

/** The buffers for the copies and for the tiles in shared memory; empty if no input is repacked. */
export function copiesOfInputs(places: GridPlaces): Scratch[] {
  return turnedInputs(places).flatMap((turned): Scratch[] => {
    const { copy } = turned.input;
    const { name, dtype, dims, storage } = copy;
    return [
      { name, dtype, dims, storage, elements: memoryElements(copy), scope: "workspace", outside: "identity" },
      tileOf(places, turned),
    ];
  });
}

/**
 * Layout of a tile in shared memory, without bank conflicts: neither for threads that write 16 bytes each, nor for
 * threads that read along the other side.
 */
function tileOf(places: GridPlaces, { input, summed, along, isRun }: Turned): Scratch {
  const { dtype } = input.source;
  const [row, column] = [axis("row"), axis("column")];
  const piece = PIECE_BYTES / bytesOf(dtype);
  const pitch = isRun ? along.tile : SIDE;
  const swizzled = binary("^", over(column, piece), remainder(over(row, piece), SIDE / piece));
  const inRow = isRun ? column : plus(times(piece, swizzled), remainder(column, piece));
  return {
    name: tileName(places, input),
    dtype,
    scope: "shared",
    elements: pitch * summed.tile,
    dims: [
      { name: "row", extent: summed.tile },
      { name: "column", extent: along.tile },
    ],
    storage: plus(times(pitch, row), inRow),
  };
}

const tileName = (places: GridPlaces, { operand }: RepackedInput): string => places.fresh(`${operand}_turned`);

/** The kernel that makes all copies, followed by the barrier that the product waits for. */
export function copyInputs(places: GridPlaces): readonly Statement[] {
  const all = turnedInputs(places);
  if (all.length === 0) return [];
  const { team, teamThreads } = places.context;
  const chunk = places.fresh("chunk");
  let before = 0;
  const copies = all.map((turned, i) => {
    const { chunks } = turned;
    // Chunks of this input count from 0. The chunks of other inputs wrap around and copy nothing.
    const own = remainder(plus(axis(chunk), Math.ceil(before / chunks) * chunks - before), chunks);
    const conditions = present([
      i > 0 && compare(">=", axis(chunk), before),
      i < all.length - 1 && compare("<", axis(chunk), before + chunks),
    ]);
    before += chunks;
    const when = conditions.length > 0 ? { when: conditions.reduce(and) } : {};
    return turn(places, turned, i === 0 ? axis(chunk) : own).map((copy) => ({ ...copy, ...when }));
  });
  const body = [
    ...copies.flatMap(([into]) => into ?? []),
    { kind: "barrier", group: "block" } as const,
    ...copies.flatMap(([, out]) => out ?? []),
  ];
  const threads = loop(places.fresh(team), THREADS / teamThreads, body, team);
  return [loop(chunk, before, [threads], "block"), callBarrier(places)];
}

/** Copies a tile along the source into shared memory, then out of it along the copy. */
function turn(places: GridPlaces, turned: Turned, chunk: Expr): readonly [into: Copy, out: Copy] {
  const { input, summed, along, isRun, read, write } = turned;
  const { source, copy, outer } = input;
  const name = tileName(places, input);
  const [row, column, group] = [places.fresh("row"), places.fresh("column"), places.fresh("group")];

  // 1. The position of the tile: tiles along the source vary fastest, then tiles along the sum, then the outer loops.
  const acrossTiles = Math.ceil(along.all / along.tile);
  const sumTiles = Math.ceil(summed.all / summed.tile);
  const columnAt = times(along.tile, remainder(chunk, acrossTiles));
  const rowAt = times(summed.tile, remainder(over(chunk, acrossTiles), sumTiles));
  const outside = digitsAlong(outer, over(chunk, acrossTiles * sumTiles));
  const inCopy = (inSum: Expr, inRow: Expr): Expr[] => {
    const digits = new Map([...outside, ...digitsAlong(input.summed, inSum), ...digitsAlong(input.along, inRow)]);
    return copy.dims.map((d) => digits.get(d.name) ?? number(0));
  };
  const inSource = (inSum: Expr, inRow: Expr): Expr[] =>
    inCopy(inSum, inRow).map((e, i) => {
      const { first = 0, step = 1 } = input.picked[copy.dims[i]?.name ?? ""] ?? {};
      return plus(times(step, e), first);
    });
  const below = (e: Expr, { all, tile }: Turned["along"]): Expr[] => (all % tile === 0 ? [] : [compare("<", e, all)]);
  const whole = { kind: "copy", transfer: "plain", group: "block" } as const;

  // 2. In. Elements beyond the end are neither read now nor written later. A run is counted through all rows, as in the
  //    source.
  const run = plus(times(along.tile, rowAt), axis(column));
  const inSum = plus(rowAt, axis(row));
  const inRow = plus(columnAt, axis(column));
  const held = (of: Expr): [Expr, Expr] => [over(of, along.tile), remainder(of, along.tile)];
  const columns = { name: column, extent: along.tile };
  const runs = { all: summed.all * along.all, tile: summed.tile * along.tile };
  const into: Copy = {
    ...whole,
    width: read,
    axes: isRun ? [{ name: column, extent: runs.tile }] : [{ name: row, extent: summed.tile }, columns],
    equation: isRun
      ? assignment(access(name, held(axis(column))), access(source.name, inSource(...held(run))), below(run, runs))
      : assignment(access(name, [axis(row), axis(column)]), access(source.name, inSource(inSum, inRow)), [
          ...below(inSum, summed),
          ...below(inRow, along),
        ]),
  };

  // 3. Out. Rows are grouped so that neighbouring threads read rows in different banks.
  const side = Math.min(SIDE, summed.tile);
  const grouped = plus(times(side, axis(group)), axis(row));
  const outSum = plus(rowAt, grouped);
  const out: Copy = {
    ...whole,
    width: write,
    gathered: true,
    axes: [{ name: group, extent: summed.tile / side }, columns, { name: row, extent: side }],
    equation: assignment(access(copy.name, inCopy(outSum, inRow)), access(name, [grouped, axis(column)]), [
      ...below(outSum, summed),
      ...below(inRow, along),
    ]),
  };
  return [into, out];
}
