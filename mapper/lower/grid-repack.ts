/**
 * @file Lowers the kernel that copies inputs before the product. It transposes tiles through shared memory, so that it reads along the source
 * and writes along the copy, 16 bytes at once where elements are contiguous.
 *
 *     for at block chunk                              one after another of all inputs
 *       copy c 64, x 64 by 8, by block                a_turned[c, x] = in[n, 64*c_tile + c, (64*x_tile + x)/56, (64*x_tile + x)%56]
 *       barrier block
 *       copy x 64, c 64 by 8, gathered, by block      in_packed[..] = a_turned[c, x]
 *     barrier
 *
 * Where few elements are contiguous in the source, as in a 3x3 filter, a tile is a run of it: all elements of many channels.
 */

import { memoryElements } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { access, and, axis, binary, compare, type Expr, number } from "../../abstraction/expression.ts";
import type { Dimension } from "../../abstraction/layout.ts";
import { type Copy, loop, type Scratch, type Statement } from "../../abstraction/loop-nest.ts";
import type { RepackedInput } from "../schedule/grid-context.ts";
import { widthAlong } from "../schedule/repack.ts";
import { PIECE_BYTES } from "../schedule/swizzle.ts";
import { callBarrier, type GridPlaces, plus, times } from "./grid-places.ts";

/** Threads of a block that copies, and elements of its tile at most. */
const THREADS = 256;
const TILE = 4096;
/** Elements of a tile along either side where both are long. */
const SIDE = 64;

/** A tile of the copy of an input. */
interface Turned {
  readonly input: RepackedInput;
  /** Elements along the sum, and along what lies innermost in the source: in all, and of a tile. */
  readonly summed: { readonly all: number; readonly tile: number };
  readonly along: { readonly all: number; readonly tile: number };
  /** A tile is a run of the source. */
  readonly isRun: boolean;
  /** Elements read and written at once. */
  readonly read: number;
  readonly write: number;
  /** Blocks. */
  readonly chunks: number;
}

const product = (dims: readonly Dimension[]): number => dims.reduce((n, d) => n * d.extent, 1);
const upTo = (n: number, multiple: number): number => Math.ceil(n / multiple) * multiple;

function turnedOf(input: RepackedInput): Turned {
  const { source, copy, summed, along, outer, picked } = input;
  const [rows, columns] = [product(summed), product(along)];
  const isWhole = source.dims.every((d) => picked[d.name]?.step === 1);
  const [inRun, inRow] = isWhole ? [widthAlong(source, [...summed, ...along]), widthAlong(source, along)] : [1, 1];
  const write = widthAlong(copy, summed);
  const isRun = columns <= SIDE && inRun > inRow;
  const groups = Math.max(1, Math.floor(TILE / (SIDE * columns)));
  const tiles = Math.ceil(rows / (SIDE * groups));
  const tile = isRun ? upTo(Math.ceil(rows / tiles), rows > SIDE ? SIDE : write) : Math.min(SIDE, upTo(rows, write));
  const across = isRun ? columns : Math.min(SIDE, upTo(columns, inRow));
  return {
    ...{ input, isRun, write, read: isRun ? inRun : inRow },
    summed: { all: rows, tile },
    along: { all: columns, tile: across },
    chunks: product(outer) * Math.ceil(rows / tile) * Math.ceil(columns / across),
  };
}

const turnedInputs = ({ context }: GridPlaces): Turned[] => (context.repacked?.inputs ?? []).map(turnedOf);

/** The copies, and the tiles on the way to them; none where inputs are read as they lie. */
export function copiesOfInputs(places: GridPlaces): Scratch[] {
  return turnedInputs(places).flatMap((turned): Scratch[] => {
    const { copy } = turned.input;
    const { name, dtype, dims, storage } = copy;
    return [
      { ...{ name, dtype, dims, storage, elements: memoryElements(copy) }, scope: "workspace", outside: "identity" },
      tileOf(places, turned),
    ];
  });
}

/** Where a tile lies in shared memory: threads that write 16 bytes side by side, and threads that read along the other side, meet all banks. */
function tileOf(places: GridPlaces, { input, summed, along, isRun }: Turned): Scratch {
  const { dtype } = input.source;
  const [row, column] = [axis("row"), axis("column")];
  const piece = PIECE_BYTES / bytesOf(dtype);
  const pitch = isRun ? along.tile : SIDE;
  const swizzled = binary(
    "^",
    binary("/", column, number(piece)),
    binary("%", binary("/", row, number(piece)), number(SIDE / piece)),
  );
  const inRow = isRun ? column : plus(times(piece, swizzled), binary("%", column, number(piece)));
  return {
    ...{ name: tileName(places, input), dtype, scope: "shared", elements: pitch * summed.tile },
    dims: [
      { name: "row", extent: summed.tile },
      { name: "column", extent: along.tile },
    ],
    storage: plus(times(pitch, row), inRow),
  };
}

const tileName = (places: GridPlaces, { operand }: RepackedInput): string => places.fresh(`${operand}_turned`);

/** The kernel that makes all copies, and that the product awaits it. */
export function copyInputs(places: GridPlaces): readonly Statement[] {
  const all = turnedInputs(places);
  if (all.length === 0) return [];
  const { team, teamThreads } = places.context;
  const chunk = places.fresh("chunk");
  let before = 0;
  const copies = all.map((turned, i) => {
    const { chunks } = turned;
    // Its chunks from 0 on: those of other inputs wrap around, and copy nothing.
    const own = binary("%", plus(axis(chunk), number(Math.ceil(before / chunks) * chunks - before)), number(chunks));
    const conditions = [
      ...(i > 0 ? [compare(">=", axis(chunk), number(before))] : []),
      ...(i < all.length - 1 ? [compare("<", axis(chunk), number(before + chunks))] : []),
    ];
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

/** A tile into shared memory along the source, and out of it along the copy. */
function turn(places: GridPlaces, turned: Turned, chunk: Expr): readonly [into: Copy, out: Copy] {
  const { input, summed, along, isRun, read, write } = turned;
  const { source, copy, outer } = input;
  const name = tileName(places, input);
  const [row, column, group] = [places.fresh("row"), places.fresh("column"), places.fresh("group")];

  // 1. Where the tile lies: the tiles along the source follow one another, then those along the sum, then all the rest.
  const [acrossTiles, sumTiles] = [Math.ceil(along.all / along.tile), Math.ceil(summed.all / summed.tile)];
  const columnAt = times(along.tile, binary("%", chunk, number(acrossTiles)));
  const rowAt = times(summed.tile, binary("%", binary("/", chunk, number(acrossTiles)), number(sumTiles)));
  const outside = digitsAlong(outer, binary("/", chunk, number(acrossTiles * sumTiles)));
  const inCopy = (inSum: Expr, inRow: Expr): Expr[] => {
    const digits = new Map([...outside, ...digitsAlong(input.summed, inSum), ...digitsAlong(input.along, inRow)]);
    return copy.dims.map((d) => digits.get(d.name) ?? number(0));
  };
  const inSource = (inSum: Expr, inRow: Expr): Expr[] =>
    inCopy(inSum, inRow).map((e, i) => {
      const { first = 0, step = 1 } = input.picked[copy.dims[i]?.name ?? ""] ?? {};
      return plus(times(step, e), number(first));
    });
  const below = (e: Expr, all: number, tile: number): Expr[] =>
    all % tile === 0 ? [] : [compare("<", e, number(all))];
  const where = (inside: readonly Expr[]): { where?: Expr } => (inside.length > 0 ? { where: inside.reduce(and) } : {});
  const whole = { kind: "copy", transfer: "plain", group: "block" } as const;

  // 2. In: what lies beyond the end is neither read nor, later, written. A run is counted through all rows, as the source is.
  const run = plus(times(along.tile, rowAt), axis(column));
  const [inSum, inRow] = [plus(rowAt, axis(row)), plus(columnAt, axis(column))];
  const held = (of: Expr): [Expr, Expr] => [binary("/", of, number(along.tile)), binary("%", of, number(along.tile))];
  const into: Copy = {
    ...{ ...whole, width: read },
    axes: isRun
      ? [{ name: column, extent: summed.tile * along.tile }]
      : [
          { name: row, extent: summed.tile },
          { name: column, extent: along.tile },
        ],
    equation: isRun
      ? {
          ...{ target: access(name, held(axis(column))), op: "=", value: access(source.name, inSource(...held(run))) },
          ...where(below(run, summed.all * along.all, summed.tile * along.tile)),
        }
      : {
          ...{
            target: access(name, [axis(row), axis(column)]),
            op: "=",
            value: access(source.name, inSource(inSum, inRow)),
          },
          ...where([...below(inSum, summed.all, summed.tile), ...below(inRow, along.all, along.tile)]),
        },
  };

  // 3. Out: rows in groups, so that threads side by side read rows that lie in different banks.
  const side = Math.min(SIDE, summed.tile);
  const grouped = plus(times(side, axis(group)), axis(row));
  const outSum = plus(rowAt, grouped);
  const out: Copy = {
    ...{ ...whole, width: write, gathered: true },
    axes: [
      { name: group, extent: summed.tile / side },
      { name: column, extent: along.tile },
      { name: row, extent: side },
    ],
    equation: {
      ...{ target: access(copy.name, inCopy(outSum, inRow)), op: "=", value: access(name, [grouped, axis(column)]) },
      ...where([...below(outSum, summed.all, summed.tile), ...below(inRow, along.all, along.tile)]),
    },
  };
  return [into, out];
}

/** A fused index apart again, row-major over dimensions. */
function digitsAlong(dims: readonly Dimension[], fused: Expr): (readonly [string, Expr])[] {
  let below = 1;
  return dims.toReversed().map((d, i) => {
    const quotient = binary("/", fused, number(below));
    below *= d.extent;
    const isFirst = i === dims.length - 1;
    return [d.name, isFirst ? quotient : binary("%", quotient, number(d.extent))] as const;
  });
}
