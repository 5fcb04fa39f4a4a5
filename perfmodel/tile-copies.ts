/**
 * @file The cache accesses of copying a tile from memory, derived from the positions of its pieces in the order threads take them.
 *
 *     in NHWC, 128 pixels x 64 channels, 16 bytes a thread      a warp's access touches 4 lines; nothing is fetched that is not used
 *     w KCRS, 64 filters x 64 channels, 2 bytes a thread        a warp's access touches 32 lines; 16 bytes are fetched for one
 *     a matrix of one row on an instruction of 64               one access in 64 is made at all: what lies outside is not read
 */

import { affineForm } from "../abstraction/affine.ts";
import { memoisedBy } from "../abstraction/collections.ts";
import { type Computation, type Tensor, tensorOf } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { type Access, accessesIn, printExpr } from "../abstraction/expression.ts";
import type { GridAxis, GridContext, GridInput } from "../mapper/schedule/grid-context.ts";

/**
 * Bytes fetched together from the last cache, and bytes of a line of the first, which is looked up as a whole (CUDA C++ Best Practices Guide,
 * Coalesced Access).
 */
export const SECTOR_BYTES = 32;
export const LINE_BYTES = 128;
/** Number of warp accesses examined: those of a tile are alike. */
const LOOKED_AT = 8;
/** Rows examined for the lines that they touch: a pitch of 16-byte pieces repeats its place in a line after eight rows. */
const ROWS_LOOKED_AT = 8;

/** The accesses of one tile. */
export interface TileCopy {
  /** Accesses of a warp, and how many of them read anything in some lane. */
  readonly accesses: number;
  readonly live: number;
  /** Lines looked up by all of them, counted separately for each access. */
  readonly lines: number;
  /** Bytes of the distinct sectors that are touched. */
  readonly fetchedBytes: number;
  /** Bytes of these that are read. */
  readonly usedBytes: number;
  /** Bytes of the lines that hold the tile, a line counted for each piece of {@link LINE_BYTES} of a row that begins or ends in it. */
  readonly lineBytes: number;
}

const copies = memoisedBy<Computation, TileCopy>();
const texts = memoisedBy<GridInput, string>();

/** A key for what determines the positions of an input's tile: the same for all instructions of a family, which differ only in their extents. */
function textOf({ sum, limits }: GridContext, input: GridInput): string {
  return texts(input, sum.axis, () => {
    const { value, kept, contiguous, operand } = input;
    const along = ({ dimension, elements }: GridAxis): string =>
      `${dimension?.loops.map((l) => l.name).join() ?? ""} of ${elements}`;
    return [printExpr(value), along(kept), along(sum), contiguous, operand.dtype, limits.lanes].join(" ");
  });
}

/**
 * Cached by input and tile.
 * @param kept elements of the tile along the input's kept axis; `sum` along the sum
 * @param width elements that a thread moves at once
 */
export function tileCopy(context: GridContext, input: GridInput, kept: number, sum: number, width: number): TileCopy {
  const text = `${textOf(context, input)} ${kept} ${sum} ${width}`;
  return copies(context.mapping.computation, text, () => findCopy(context, input, kept, sum, width));
}

function findCopy(context: GridContext, input: GridInput, kept: number, sum: number, width: number): TileCopy {
  const { lanes } = context.limits;
  const bytes = bytesOf(input.operand.dtype);
  const [alongKept, alongSum] = placesOf(context, input);
  const [rows, columns] = input.contiguous === "sum" ? [kept, sum] : [sum, kept];
  const inRow = columns / width;
  const accesses = (rows * inRow) / lanes;
  const keptInside = Math.min(kept, input.kept.elements);
  const sumInside = Math.min(sum, context.sum.elements);
  const [rowPlace, columnPlace] = input.contiguous === "sum" ? [alongKept, alongSum] : [alongSum, alongKept];
  const [rowsInside, columnsInside] = input.contiguous === "sum" ? [keptInside, sumInside] : [sumInside, keptInside];

  const place = (row: number, column: number): number => (rowPlace(row) + columnPlace(column)) * bytes;

  let looked = 0;
  let live = 0;
  let lines = 0;
  for (let i = 0; i < Math.min(LOOKED_AT, accesses); i++) {
    const first = Math.floor((i * Math.max(1, accesses)) / Math.min(LOOKED_AT, Math.max(1, accesses))) * lanes;
    const touched = new Set<number>();
    for (let lane = 0; lane < Math.min(lanes, rows * inRow); lane++) {
      const row = Math.floor((first + lane) / inRow);
      const column = ((first + lane) % inRow) * width;
      if (row < rowsInside && column < columnsInside) touched.add(Math.floor(place(row, column) / LINE_BYTES));
    }
    looked++;
    if (touched.size > 0) live++;
    lines += touched.size;
  }
  const share = Math.max(1, accesses) / Math.max(1, looked);
  return {
    accesses: Math.max(1, accesses),
    live: live * share,
    lines: lines * share,
    fetchedBytes: fetchedBytes({ place: alongKept, extent: keptInside }, { place: alongSum, extent: sumInside }, bytes),
    usedBytes: keptInside * sumInside * bytes,
    lineBytes: lineBytes(place, rowsInside, columnsInside, bytes),
  };
}

/** Lines of the pieces of a line's length that boxes take from each row, in bytes. Rows whose pitch is no multiple of a line begin within one. */
function lineBytes(
  place: (row: number, column: number) => number,
  rows: number,
  columns: number,
  bytes: number,
): number {
  const piece = LINE_BYTES / bytes;
  const looked = Math.min(Math.ceil(rows), ROWS_LOOKED_AT);
  let lines = 0;
  for (let row = 0; row < looked; row++) {
    for (let first = 0; first < columns; first += piece) {
      const touched = new Set<number>();
      for (let column = first; column < Math.min(columns, first + piece); column++)
        touched.add(Math.floor(place(row, column) / LINE_BYTES));
      lines += touched.size;
    }
  }
  return (lines * LINE_BYTES * rows) / Math.max(1, looked);
}

type Place = (index: number) => number;

/** Sectors along the axis whose neighbours share more of them; the other axis moves by whole ones. */
function fetchedBytes(
  kept: { readonly place: Place; readonly extent: number },
  sum: { readonly place: Place; readonly extent: number },
  bytes: number,
): number {
  const sectors = ({ place, extent }: typeof kept): number => {
    const touched = new Set<number>();
    for (let i = 0; i < extent; i++) touched.add(Math.floor((place(i) * bytes) / SECTOR_BYTES));
    return touched.size;
  };
  const of = (axis: typeof kept, other: typeof kept): number => sectors(axis) * other.extent;
  return SECTOR_BYTES * Math.min(of(kept, sum), of(sum, kept));
}

/** Offsets in the tensor, in elements, along the kept axis and along the sum. */
function placesOf(context: GridContext, input: GridInput): readonly [kept: Place, sum: Place] {
  const [access] = accessesIn(input.value);
  if (!access) return [() => 0, () => 0];
  const tensor = tensorOf(context.mapping.computation, access.tensor);
  return [placeAlong(input.kept, access, tensor), placeAlong(context.sum, access, tensor)];
}

function placeAlong({ dimension }: GridAxis, { index }: Access, { storage, dims }: Tensor): Place {
  if (!dimension) return () => 0;
  const forms = index.map(affineForm);
  const flat = affineForm(storage);
  const digits = dimension.loops.map((loop, i) => {
    const stride = forms.reduce(
      (sum, form, d) => sum + (form?.terms.get(loop.name) ?? 0) * (flat?.terms.get(dims[d]?.name ?? "") ?? LINE_BYTES),
      0,
    );
    const weight = dimension.weights[i] ?? 1;
    const above = dimension.weights[i - 1];
    return { stride, weight, count: above === undefined ? Number.POSITIVE_INFINITY : above / weight };
  });
  return (index) =>
    digits.reduce((sum, { stride, weight, count }) => {
      const digit = Math.floor(index / weight);
      return sum + stride * (Number.isFinite(count) ? digit % count : digit);
    }, 0);
}
