/**
 * @file A tile of an operand in memory, as its load and store see it: the address of each logical element, and the length of a row.
 *
 *     b: "tile[64*(k/4) + 4*n + k%4]"          element k 5, n 2 at 64 + 8 + 1; rows of 64
 */

import { boundsOf, rowMajor } from "./affine.ts";
import { memoisedPair } from "./collections.ts";
import { bytesOf } from "./dtype.ts";
import { valuesOver } from "./evaluate.ts";
import { type Expr, number, substitute } from "./expression.ts";
import { type Intrinsic, type Operand, operandOf, sizesOf } from "./intrinsic.ts";

/** Offset of a logical element in a memory tile: the storage formula with every broadcast axis at 0. */
export function tileOffset(operand: Operand): Expr {
  if (operand.storage === undefined)
    return rowMajor(operand.layout === "row" ? operand.dims : [...operand.dims].reverse());
  return substitute(operand.storage, new Map(operand.broadcast.map((axis) => [axis, number(0)])), "index");
}

/** Elements a memory tile of the operand takes. */
export function tileElements(operand: Operand): number {
  return boundsOf(tileOffset(operand), sizesOf(operand))[1] + 1;
}

/** Place in a memory tile of each logical element, in row-major order. */
export const tilePlaces = memoisedPair((intrinsic: Intrinsic, operandName: string): Int32Array => {
  const operand = operandOf(intrinsic, operandName);
  return Int32Array.from(valuesOver(tileOffset(operand), operand.dims));
});

/**
 * Contiguous elements of a row of the memory tile; rows may lie apart when the load takes a stride. The length is the longest step of the storage
 * formula: 64 in `tile[64*(k/4) + 4*n + k%4]`.
 * @returns all elements of the tile when the instruction loads it in one piece
 */
export function tileRowElements(operand: Operand): number {
  const strided = operand.load?.includes("{stride}") || operand.store?.includes("{stride}");
  return strided ? longestStep(tileOffset(operand)) : tileElements(operand);
}

/** The largest coefficient of a sum of products; 1 when there is none. */
function longestStep(offset: Expr): number {
  if (offset.kind !== "binary") return 1;
  const { op, left, right } = offset;
  if (op === "+") return Math.max(longestStep(left), longestStep(right));
  if (op !== "*") return 1;
  const [factor, of] = left.kind === "number" ? [left, right] : [right, left];
  return factor.kind === "number" ? factor.value * longestStep(of) : 1;
}

/** Dwords of the largest block that one message moves on Intel's GPUs. */
const BLOCK_DWORDS = 64;

/**
 * A memory tile as rows of dwords: its own rows, or the largest blocks of a tile that is contiguous.
 * @param stride bytes between the rows of the tile
 * @param inBlocks whether its address is aligned for block messages
 */
export function dwordRows(
  operand: Operand,
  stride: number,
  inBlocks: boolean,
): { readonly rows: number; readonly dwords: number; readonly stride: number } {
  const bytes = tileRowElements(operand) * bytesOf(operand.dtype);
  const all = (tileElements(operand) * bytesOf(operand.dtype)) / 4;
  const isWhole = inBlocks && stride === bytes;
  const dwords = isWhole ? Math.min(all, BLOCK_DWORDS) : bytes / 4;
  return { rows: all / dwords, dwords, stride: isWhole ? 4 * dwords : stride };
}
