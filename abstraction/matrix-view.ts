/**
 * @file How an instruction itself reads a matrix from shared memory: a start address, two strides, and a swizzle of the address.
 *
 *     rows of 64 f16 along k, 128 bytes each:     address(r, k) = swizzle(start + 1024*(r/8) + 128*(r%8) + 2*k)
 *     the storage that it reads:                  smem[64*r + 8*((k/8) ^ (r%8)) + k%8]
 *
 * `swizzle(a) = a ^ ((a >> 3) & (span - 16))` permutes the 16-byte pieces of a span by the row. It applies to absolute addresses; buffers begin at
 * multiples of 1,024 bytes, so offsets within a buffer give the same result. Source: PTX ISA, asynchronous warpgroup-level matrix shared memory
 * layout; every form was compared with wgmma on an H100.
 */

import { namesOf } from "./collections.ts";
import { summedIn } from "./computation.ts";
import { bytesOf } from "./dtype.ts";
import { internal } from "./error.ts";
import type { Intrinsic, Operand } from "./intrinsic.ts";
import { tilePlaces } from "./memory-tile.ts";
import { type Code, code } from "./source-text.ts";

/** Bytes of one row of the layout; 16 means no swizzle. */
export const VIEW_SPANS = [128, 64, 32, 16] as const;

export interface MatrixView {
  readonly span: (typeof VIEW_SPANS)[number];
  /** Neighbours along the kept axis are contiguous, rather than those along the sum. */
  readonly turned: boolean;
  /** First byte, before the swizzle. */
  readonly start: number;
  /**
   * Bytes from one group of eight rows of the layout to the next. For turned matrices without a swizzle, from eight kept elements to the next eight.
   */
  readonly stride: number;
  /** Bytes from one span to the next along it, over the kept elements of a turned matrix. Without a swizzle, from eight k to the next eight. */
  readonly leading: number;
}

/** Bytes that a swizzle keeps together. */
const PIECE = 16;
/** Rows after which the swizzle pattern repeats. */
const ROWS = 8;
/** Alignment in bytes of buffers that are read this way. */
export const VIEW_ALIGNMENT = 1024;
/** The descriptor holds distances and starts in units of a piece, in 14 bits. */
const MOST_BYTES = 2 ** 14 * PIECE;

/** The address of an element before the swizzle. */
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

/** Offset in bytes of an element of the matrix. */
function viewedAt(view: MatrixView, kept: number, sum: number, bytes: number): number {
  return swizzled(linear(view, kept, sum, bytes), view.span);
}

/**
 * The view that reads a tile as it lies in its buffer.
 * @param at place in the buffer of each element of the tile
 * @param bytes bytes of an element
 * @param turns whether the instruction can read neighbours along the kept axis
 * @returns undefined when there is none
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
 * @param at place in the buffer of each element of the operand, row-major over its dimensions
 * @returns undefined when no view reads it
 */
export function operandView(
  { computation, name }: Intrinsic,
  { name: operand, dims, dtype, turned }: Operand,
  at: (element: number) => number,
): MatrixView | undefined {
  const sums = new Set(namesOf(summedIn(computation.axes)));
  const [first, second] = dims;
  if (!first || !second || dims.length > 2) internal(`${name}.${operand} is no matrix`);
  const sumFirst = sums.has(first.name);
  const [kept, sum] = sumFirst ? [second.extent, first.extent] : [first.extent, second.extent];
  const element = (i: number, j: number): number => at(sumFirst ? j * kept + i : i * sum + j);
  return viewOf(element, { kept, sum }, bytesOf(dtype), turned !== undefined);
}

/** The view in generated code; `start` is a pointer to a place that the swizzle does not move. */
export function printView({ span, turned, leading, stride }: MatrixView, start: Code): Code {
  return code`matrix_at<${span}, ${turned ? "true" : "false"}>(${start}, ${leading}, ${stride})`;
}

/** A tile stored by itself at `start`, in its operand's storage, in generated code. */
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
