/**
 * @file The part of a tensor that a copy engine brings as one tile: the contents of a hardware tensor map, and the elements that it selects.
 *
 *     box [64, 1, 1, 128] of w[k,r,s,c] at c 64*i, s, r, k 128*m_tile       rows run over the box except its innermost dimension: 128 values of k
 *     128 pixels of in[n,h,w,c] at c 64*i, w q*2-1, h p*2-1, n              rows walk along w in steps of 2, then h, then n, as outputs do
 *
 * Dimensions are listed innermost first. Elements outside the tensor are 0. Source: CUDA driver API, cuTensorMapEncodeTiled and
 * cuTensorMapEncodeIm2col; PTX ISA, Tensors. Walks of strides 1 and 2 and of dilation 2 were compared with an H100.
 */

import { namesOf } from "./collections.ts";
import { type Expr, printExpr } from "./expression.ts";

/**
 * A tile must begin at a multiple of this many bytes along the innermost dimension; otherwise the copy fails with an illegal instruction. On H100s
 * all four kernels that failed so began 2 bytes off, and none of 1,175 correct ones did. See also triton-lang/triton, pull request 9112.
 */
export const BEGINNING_BYTES = 16;

export interface TensorView {
  /** The tensor's dimensions, innermost first. */
  readonly dims: readonly ViewedDimension[];
  /** First element of the tile along each dimension. */
  readonly at: readonly Expr[];
  readonly rows: BoxRows | PixelRows;
}

/** A dimension as the copy engine sees it: one of the tensor's own, or several that are contiguous with each other. */
export interface ViewedDimension {
  readonly name: string;
  /** The tensor's own dimensions, fastest first. */
  readonly own: readonly { readonly position: number; readonly extent: number }[];
  readonly extent: number;
  /** Elements between neighbours. */
  readonly pitch: number;
}

/** Rows run over a box, its second dimension fastest. */
interface BoxRows {
  readonly kind: "box";
  /** Elements along each dimension; the first is the number of columns. */
  readonly extents: readonly number[];
}

/**
 * Rows are pixels. They walk the dimensions between the innermost and the outermost within bounds; the outermost is unbounded. The first lies within these
 * bounds ({@link beginsOutside}).
 */
export interface PixelRows {
  readonly kind: "pixels";
  readonly columns: number;
  readonly count: number;
  /** For each walked dimension: the lowest place, the number of places, and the step. */
  readonly walks: readonly { readonly low: number; readonly count: number; readonly step: number }[];
  /** For each walked dimension, an offset added to every row: a tap of a filter. */
  readonly offsets: readonly Expr[];
}

/**
 * The coordinates of a tile's element along each dimension.
 * @param at first element of the tile
 * @param offsets of the walked dimensions; empty for a box
 */
export function viewedCoordinates(
  { rows }: Pick<TensorView, "rows">,
  at: readonly number[],
  offsets: readonly number[],
  row: number,
  column: number,
): number[] {
  let rest = row;
  const digit = (extent: number): number => {
    const d = rest % extent;
    rest = Math.floor(rest / extent);
    return d;
  };
  return at.map((first, i) => {
    if (i === 0) return first + column;
    if (rows.kind === "box") return first + digit(rows.extents[i] ?? 1);
    const walk = rows.walks[i - 1];
    if (!walk) return first + rest;
    rest += (first - walk.low) / walk.step;
    return walk.low + walk.step * digit(walk.count) + (offsets[i - 1] ?? 0);
  });
}

/**
 * The dimension along which a run of pixels begins outside its walk; undefined where it begins inside, and for a box, which may begin anywhere. Along
 * the outermost dimension a run may begin beyond the tensor: 115 recorded kernels do so and are right. Outside its walk none of 1,521 begins; that is the
 * suspect of an illegal instruction on an H200 (bench/results/cuda-unseen-convolutions-h200.md).
 */
export function beginsOutside(
  { dims, rows }: Pick<TensorView, "dims" | "rows">,
  at: readonly number[],
): string | undefined {
  if (rows.kind === "box") return undefined;
  const outside = rows.walks.findIndex(({ low, count, step }, i) => {
    const steps = ((at[i + 1] ?? low) - low) / step;
    return steps < 0 || steps >= count;
  });
  return outside < 0 ? undefined : dims[outside + 1]?.name;
}

/** `as a box of c 64, s 1, r 1, k 128`. */
export function printTensorView({ dims, rows }: TensorView): string {
  const along = (names: readonly string[], of: readonly (number | string)[]): string =>
    names.map((name, i) => `${name} ${of[i] ?? 1}`).join(", ");
  const names = namesOf(dims);
  if (rows.kind === "box") return `as a box of ${along(names, rows.extents)}`;
  const walks = rows.walks.map((w) => `${w.low}..${w.low + w.step * (w.count - 1)} by ${w.step}`);
  const offsets = rows.offsets.map((e) => printExpr(e, "formula"));
  return `as ${rows.count} pixels of ${along(names.slice(1, -1), walks)}, offset ${offsets.join(", ")}`;
}
