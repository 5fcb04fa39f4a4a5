/**
 * @file How an instruction itself reads a matrix from shared memory: a start address, two strides, and a swizzle of the address.
 *
 *     rows of 64 f16 along k, 128 bytes each:     address(r, k) = swizzle(start + 1024*(r/8) + 128*(r%8) + 2*k)
 *     the storage that it reads:                  smem[64*r + 8*((k/8) ^ (r%8)) + k%8]
 *
 * `swizzle(a) = a ^ ((a >> 3) & (span - 16))` exchanges the pieces of 16 bytes of a span by its row, on the absolute address; buffers begin at
 * multiples of 1,024 bytes, so a place in a buffer stands for it. Source: PTX ISA, asynchronous warpgroup-level matrix shared memory layout; every
 * form was compared with wgmma on an H100.
 */

import { bytesOf } from "./dtype.ts";
import type { Intrinsic, Operand } from "./intrinsic.ts";
import { tilePlaces } from "./memory-tile.ts";
import { type Code, code } from "./source-text.ts";

/** Bytes that one row of the layout spans; with 16 nothing is exchanged. */
export const VIEW_SPANS = [128, 64, 32, 16] as const;

export interface MatrixView {
  readonly span: (typeof VIEW_SPANS)[number];
  /** Neighbours along the kept axis lie side by side, not those along the sum. */
  readonly turned: boolean;
  /** Byte at which it begins, before the swizzle. */
  readonly start: number;
  /**
   * Bytes from one group of eight rows of the layout to the next; of turned ones with nothing exchanged, from eight kept elements to the next
   * eight.
   */
  readonly stride: number;
  /** Bytes from one span to the next along it: kept elements of a turned matrix. Where nothing is exchanged, from eight k to the next. */
  readonly leading: number;
}

/** Bytes that never part. */
const PIECE = 16;
/** Rows after which the pattern begins anew. */
const ROWS = 8;
/** Buffers that are read so begin at multiples of this. */
export const VIEW_ALIGNMENT = 1024;
/** Distances and starts are counted in pieces, in 14 bits. */
const MOST_BYTES = 2 ** 14 * PIECE;

/** The address of an element before the swizzle, as the instruction counts. */
function linear(
  { span, turned, start, stride, leading }: MatrixView,
  kept: number,
  sum: number,
  bytes: number,
): number {
  const inPiece = PIECE / bytes;
  const [row, column] = turned ? [sum, kept] : [kept, sum];
  const rest = (x: number, n: number): number => x % n;
  const whole = (x: number, n: number): number => Math.floor(x / n);
  if (span === PIECE) {
    const [alongKept, alongSum] = turned
      ? [whole(kept, ROWS) * stride, whole(sum, ROWS) * leading]
      : [whole(kept, ROWS) * stride, whole(sum, inPiece) * leading];
    return start + alongKept + alongSum + PIECE * rest(row, ROWS) + bytes * rest(column, inPiece);
  }
  const inSpan = span / bytes;
  const across = turned ? whole(column, inSpan) * leading + bytes * rest(column, inSpan) : bytes * column;
  return start + stride * whole(row, ROWS) + span * rest(row, ROWS) + across;
}

const swizzled = (address: number, span: number): number => address ^ ((address >> 3) & (span - PIECE));

/** Byte of an element of the matrix. */
export function viewedAt(view: MatrixView, kept: number, sum: number, bytes: number): number {
  return swizzled(linear(view, kept, sum, bytes), view.span);
}

/**
 * The view that reads a tile where it lies.
 * @param at element of its buffer of each element of the tile
 * @param bytes of an element
 * @param turns whether the instruction can read neighbours along the kept axis
 * @returns undefined where no view does
 */
export function viewOf(
  at: (kept: number, sum: number) => number,
  extents: { readonly kept: number; readonly sum: number },
  bytes: number,
  turns: boolean,
): MatrixView | undefined {
  for (const turned of turns ? [false, true] : [false])
    for (const span of VIEW_SPANS) {
      const unturned = (kept: number, sum: number): number => swizzled(at(kept, sum) * bytes, span);
      const start = unturned(0, 0);
      const distance = (kept: number, sum: number): number =>
        kept < extents.kept && sum < extents.sum ? unturned(kept, sum) - start : 0;
      const inPiece = PIECE / bytes;
      const plain = span === PIECE;
      const stride = turned && !plain ? distance(0, ROWS) : distance(ROWS, 0);
      const leading = plain ? distance(0, turned ? ROWS : inPiece) : turned ? distance(span / bytes, 0) : 0;
      const view: MatrixView = { span, turned, start, stride, leading };
      const counted = [start, stride, leading].every((n) => n >= 0 && n % PIECE === 0 && n < MOST_BYTES);
      if (counted && reads(view, at, extents, bytes)) return view;
    }
  return undefined;
}

/**
 * The view of an instruction's operand.
 * @param at element of the buffer of each element of the operand, row-major over its dimensions
 * @returns undefined where no view reads it
 */
export function operandView(
  { computation, name }: Intrinsic,
  { name: operand, dims, dtype, turned }: Operand,
  at: (element: number) => number,
): MatrixView | undefined {
  const sums = new Set(computation.axes.filter((a) => a.kind === "reduce").map((a) => a.name));
  const [first, second] = dims;
  if (!first || !second || dims.length > 2) throw new Error(`internal: ${name}.${operand} is no matrix`);
  const sumFirst = sums.has(first.name);
  const [kept, sum] = sumFirst ? [second.extent, first.extent] : [first.extent, second.extent];
  const element = (i: number, j: number): number => at(sumFirst ? j * kept + i : i * sum + j);
  return viewOf(element, { kept, sum }, bytesOf(dtype), turned !== undefined);
}

/** The view as generated sources write it; `start` is a pointer, where the swizzle moves nothing. */
export function printView({ span, turned, leading, stride }: MatrixView, start: Code): Code {
  return code`matrix_at<${span}, ${turned ? "true" : "false"}>(${start}, ${leading}, ${stride})`;
}

/** A tile that lies by itself at `start`, as its storage says, as generated sources write it. */
export function printTile(intrinsic: Intrinsic, operand: Operand, start: Code): Code {
  const places = tilePlaces(intrinsic, operand.name);
  const view = operandView(intrinsic, operand, (element) => places[element] ?? 0);
  if (!view) throw new Error(`${intrinsic.name}: ${operand.name} lies in no form that the instruction reads`);
  return printView(view, start);
}

function reads(
  view: MatrixView,
  at: (kept: number, sum: number) => number,
  extents: { readonly kept: number; readonly sum: number },
  bytes: number,
): boolean {
  for (let kept = 0; kept < extents.kept; kept++)
    for (let sum = 0; sum < extents.sum; sum++)
      if (viewedAt(view, kept, sum, bytes) !== at(kept, sum) * bytes) return false;
  return true;
}
