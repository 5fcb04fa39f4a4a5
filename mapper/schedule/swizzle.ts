/**
 * @file Decision `swizzle`: the layout of a tile's rows in shared memory, which has 32 banks of 4 bytes.
 *
 *     swizzled     64*m + 8*((k/8) ^ (m%8)) + k%8         16-byte pieces are permuted by row: eight rows cover all banks
 *     padded       72*m + k                               16 unused bytes after every row; needed if the instruction itself
 *                                                         loads the tile
 *     plain        64*m + k
 *     spans        4096*(n/64) + 64*k + 8*((n/8%8) ^ (k%8)) + n%8      rows cut at 128 bytes and swizzled, as wgmma reads them
 */

import { z } from "zod";
import { type Dimension, extentOf, rowMajor } from "../../abstraction/affine.ts";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { axis, binary, type Expr, over, plus, remainder, times } from "../../abstraction/expression.ts";
import { readsShared } from "../../abstraction/intrinsic.ts";
import type { GridContext, GridDecision, GridInput } from "./grid-context.ts";

const VALUES = ["swizzled", "padded", "plain", "spans"] as const;

export const swizzle: GridDecision<"swizzle"> = {
  summary:
    "Layout of rows in shared memory: swizzled or padded, so that eight rows cover all banks; plain; or cut into the swizzled spans that wgmma reads directly.",
  example: "swizzled",
  schema: z.enum(VALUES),
  values: ({ intrinsic }) => {
    if (intrinsic.operands.some(readsShared)) return ["spans"];
    const secret = intrinsic.operands.some((o) => o.storage === undefined);
    return secret ? ["padded", "plain"] : ["swizzled", "padded", "plain"];
  },
  traits: (schedule) => [`swizzle ${schedule.swizzle}`],
  problem: (context, schedule) => {
    const { intrinsic, inputs, sum } = context;
    const secret = intrinsic.operands.find((o) => o.storage === undefined);
    if (secret && schedule.swizzle === "swizzled")
      return `${intrinsic.name} loads ${secret.name} by itself, in rows that are not swizzled`;
    if (intrinsic.operands.some(readsShared) !== (schedule.swizzle === "spans"))
      return `${intrinsic.name} ${schedule.swizzle === "spans" ? "does not read" : "reads"} rows cut in spans`;
    for (const { operand, kept, contiguous } of inputs) {
      const row = extentOf(contiguous === "sum" ? sum.axis : kept.axis, schedule.tile) * bytesOf(operand.dtype);
      if (row % PIECE_BYTES !== 0) return `rows of ${operand.name} have ${row} bytes, no multiple of ${PIECE_BYTES}`;
    }
    return spanProblem(context, schedule);
  },
};

/**
 * Why an instruction that reads shared memory itself cannot address its part of a tile. The part must begin at a span
 * or fit into one.
 */
function spanProblem({ inputs, intrinsic }: GridContext, schedule: GridSchedule): string | undefined {
  for (const input of inputs) {
    const { operand, kept, contiguous } = input;
    if (!readsShared(operand) || contiguous === "sum") continue;
    const whole = extentOf(kept.axis, schedule.tile);
    const span = spanOf(rowElements(input, whole), bytesOf(operand.dtype));
    if (!readsWithin(input, whole, span))
      return `${intrinsic.name} would read ${kept.extent} ${kept.axis} across spans of ${span}`;
  }
  return undefined;
}

/** Whether the parts that instructions read of a row along the kept axis begin at spans, or each fit into one. */
const readsWithin = ({ kept }: GridInput, whole: number, span: number): boolean =>
  span % kept.extent === 0 || kept.extent % span === 0 || whole === kept.extent;

/** The most that a row may be lengthened for wider spans. */
const MOST_LENGTHENED = 4 / 3;

/**
 * The length in shared memory of a row along the kept axis, for an operand that the instruction reads there. If the
 * row's own length would lead to narrow spans, the row is padded with elements that are never read.
 *
 *     112 pixels of 2 bytes: spans of 32 bytes, which the engine copies as seven boxes  ->  128: spans of 128 bytes, two boxes
 */
export function rowElements(input: GridInput, whole: number): number {
  const { operand, contiguous } = input;
  if (!readsShared(operand) || contiguous === "sum") return whole;
  const bytes = bytesOf(operand.dtype);
  for (const span of SPANS.map((b) => b / bytes)) {
    const length = Math.ceil(whole / span) * span;
    if (length <= MOST_LENGTHENED * whole && readsWithin(input, whole, span)) return length;
  }
  return whole;
}

/** Bytes that move together: a row of `ldmatrix`, or the widest copy by one thread. */
export const PIECE_BYTES = 16;
/** Lengths in bytes of the spans that instructions read, widest first. */
const SPANS = [128, 64, 32, PIECE_BYTES] as const;

/** Elements of a row in a span. The next row begins behind it. */
export function spanOf(columns: number, elementBytes: number): number {
  return (SPANS.find((bytes) => (columns * elementBytes) % bytes === 0) ?? PIECE_BYTES) / elementBytes;
}

/** Elements of a ring. @param dims stage, row, column */
export function sharedElements(
  how: GridSchedule["swizzle"],
  [stage, row, column]: readonly [stage: number, row: number, column: number],
  elementBytes: number,
): number {
  return stage * row * (column + (how === "padded" ? PIECE_BYTES / elementBytes : 0));
}

/** Rows that `ldmatrix` reads at once. They should cover all banks. */
const ROWS_AT_ONCE = 8;

/**
 * The layout of a ring in shared memory.
 * @param dims stage, row, column
 * @returns the storage formula over their names, and the ring's size in elements
 */
export function sharedStorage(
  how: GridSchedule["swizzle"],
  dims: readonly [stage: Dimension, row: Dimension, column: Dimension],
  elementBytes: number,
): { readonly storage: Expr; readonly elements: number } {
  const [stage, row, column] = dims;
  const elements = sharedElements(how, [stage.extent, row.extent, column.extent], elementBytes);
  return { storage: formulaOf(how, dims, elementBytes), elements };
}

function formulaOf(
  how: GridSchedule["swizzle"],
  dims: readonly [stage: Dimension, row: Dimension, column: Dimension],
  elementBytes: number,
): Expr {
  const [stage, row, column] = dims;
  const piece = PIECE_BYTES / elementBytes;
  const whole = (pitch: number, place: Expr): Expr => plus(times(axis(stage.name), pitch * row.extent), place);
  switch (how) {
    case "plain":
      return rowMajor(dims);
    case "padded": {
      const pitch = column.extent + piece;
      return whole(pitch, plus(times(axis(row.name), pitch), axis(column.name)));
    }
    case "spans":
    case "swizzled": {
      const pieces = column.extent / piece;
      const span = how === "spans" ? spanOf(column.extent, elementBytes) : column.extent;
      // As many pieces are permuted as a span has, or as a row has in groups of a power of two. Rows that share banks
      // differ in the row bits used.
      const group = how === "spans" ? span / piece : ([8, 4, 2, 1].find((g) => pieces % g === 0) ?? 1);
      const inSpan = column.extent === span ? axis(column.name) : remainder(axis(column.name), span);
      const turned = remainder(over(axis(row.name), ROWS_AT_ONCE / group), group);
      const moved = binary("^", over(inSpan, piece), turned);
      const inRow = plus(times(piece, moved), remainder(axis(column.name), piece));
      const place = plus(times(axis(row.name), span), inRow);
      const block = times(span * row.extent, over(axis(column.name), span));
      return whole(column.extent, column.extent === span ? place : plus(block, place));
    }
    default:
      return how satisfies never;
  }
}
