/**
 * @file Which lane of a warp holds which element of an operand, and which elements `ldmatrix` reads from memory in one row.
 *
 *     mma.m16n8k16 a     lane 0 holds [0,0] [0,1] [8,0] [8,1] [0,8] [0,9] [8,8] [8,9]
 *     ldmatrix           row 0 of the first matrix: [0,0] .. [0,7], which lanes 0 to 3 get two each
 */

import { evaluateIndex, pointsIn, pointsOf, rowMajor } from "../affine.ts";
import { extentsOf } from "../computation.ts";
import { bytesOf } from "../dtype.ts";
import { lanesOf, type Operand, registerElements, sizesOf, WARP } from "../intrinsic.ts";
import type { RegisterShape } from "./context.ts";
import { ALL_LANES } from "./happens-before.ts";

/** An operand of an instruction. */
type Held = Pick<RegisterShape, "intrinsic" | "operand">;

/** Bytes of one lane's register. */
const WORD = 4;

/** The index of each logical element along each dimension, elements row-major. */
export function digitsOf({ dims }: Operand): readonly Int32Array[] {
  const size = pointsIn(dims);
  let below = size;
  return dims.map(({ extent }) => {
    below /= extent;
    const step = below;
    return Int32Array.from({ length: size }, (_, e) => Math.floor(e / step) % extent);
  });
}

/** Each element of the operand's registers: its logical element, its lane, and its position within the lane. */
function* heldElements({ intrinsic, operand }: Held): Generator<{ element: number; lane: number; own: number }> {
  const { storage, dims, broadcast } = operand;
  const each = registerElements(intrinsic, operand) / lanesOf(intrinsic);
  if (storage === undefined || !Number.isInteger(each)) return;
  const logical = rowMajor(dims);
  const extents = { ...extentsOf(intrinsic.computation), ...sizesOf(operand) };
  for (const point of pointsOf([...dims.map((d) => d.name), ...broadcast], extents)) {
    const place = evaluateIndex(storage, point);
    yield { element: evaluateIndex(logical, point), lane: Math.floor(place / each), own: place % each };
  }
}

/** The lane of each logical element, or {@link ALL_LANES} when several hold it; undefined when the vendor does not publish the layout. */
export function holdersOf(shape: Held & Pick<RegisterShape, "rows">): Int8Array | undefined {
  const holders = new Map<number, number>();
  for (const { element, lane } of heldElements(shape)) {
    const known = holders.get(element) ?? lane;
    holders.set(element, known === lane ? lane : ALL_LANES);
  }
  if (holders.size === 0) return undefined;
  return Int8Array.from({ length: shape.rows.length }, (_, element) => holders.get(element) ?? ALL_LANES);
}

/**
 * The logical elements of each row of 16 bytes that `ldmatrix` reads. Word i of lane t comes from matrix i, row t/4, word t%4. Transposed, the two
 * halves of a word are rows 2*(t%4) and 2*(t%4) + 1 of column t/4 (PTX ISA, ldmatrix).
 * @returns undefined when no rows of memory give the lanes the elements they must hold
 */
export function matrixRows(shape: Held, by: "ldmatrix" | "ldmatrix.trans"): readonly (readonly number[])[] | undefined {
  const bytes = bytesOf(shape.operand.dtype);
  const perWord = WORD / bytes;
  if (!Number.isInteger(perWord) || (by === "ldmatrix.trans" && bytes !== 2)) return undefined;
  const length = by === "ldmatrix" ? 4 * perWord : 8;
  const words = registerElements(shape.intrinsic, shape.operand) / WARP / perWord;
  const rows = Array.from({ length: 8 * words }, () => new Array<number>(length).fill(-1));
  for (const { element, lane, own } of heldElements(shape)) {
    const matrix = Math.floor(own / perWord);
    const inWord = own % perWord;
    const major = Math.floor(lane / 4);
    const minor = lane % 4;
    const [row, column] = by === "ldmatrix" ? [major, minor * perWord + inWord] : [minor * perWord + inWord, major];
    const list = rows[8 * matrix + row];
    if (list) list[column] = element;
  }
  return rows.length > 0 && rows.every((row) => !row.includes(-1)) ? rows : undefined;
}
