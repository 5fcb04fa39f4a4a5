/**
 * @file The part of a tensor that a copy engine brings as one tile: what a tensor map of the hardware says, and the elements it means.
 *
 *     box [64, 1, 1, 128] of w[k,r,s,c] at c 64*i, s, r, k 128*m_tile       rows are the box's places but for the innermost: 128 values of k
 *     128 pixels of in[n,h,w,c] at c 64*i, w q*2-1, h p*2-1, n              rows walk along w in steps of 2, then h, then n, as outputs do
 *
 * Dimensions are counted innermost first. What lies outside of the tensor is 0. Source: CUDA driver API, cuTensorMapEncodeTiled and
 * cuTensorMapEncodeIm2col; PTX ISA, Tensors; walks of strides 1 and 2 and of dilation 2 were compared with an H100.
 */

import { type Expr, printExpr } from "./expression.ts";

/**
 * A tile begins at a multiple of so many bytes along the innermost dimension: a copy from any other place ends with an illegal instruction. Of kernels
 * on H100s all four that ended so began 2 bytes off, and none of 1,175 that were right. Source besides: triton-lang/triton, pull request 9112.
 */
export const BEGINNING_BYTES = 16;

export interface TensorView {
  /** The tensor's dimensions, neighbours along the first side by side. */
  readonly dims: readonly ViewedDimension[];
  /** Where the tile begins, along each dimension. */
  readonly at: readonly Expr[];
  readonly rows: BoxRows | PixelRows;
}

/** A dimension of a tensor as an engine counts it: one of the tensor's own, or several that lie one behind the other. */
export interface ViewedDimension {
  readonly name: string;
  /** The tensor's own, the fastest first. */
  readonly own: readonly { readonly position: number; readonly extent: number }[];
  readonly extent: number;
  /** Elements from one place to the next. */
  readonly pitch: number;
}

/** Rows are the places of a box, its second dimension fastest. */
export interface BoxRows {
  readonly kind: "box";
  /** Elements along each dimension; the first is the tile's columns. */
  readonly extents: readonly number[];
}

/** Rows are pixels: the dimensions between the innermost and the outermost, walked within bounds; the outermost has none. */
export interface PixelRows {
  readonly kind: "pixels";
  readonly columns: number;
  readonly count: number;
  /** Of each walked dimension: the least place, how many there are, and from one to the next. */
  readonly walks: readonly { readonly low: number; readonly count: number; readonly step: number }[];
  /** Added to the place of every row along each walked dimension: a tap of a filter. */
  readonly offsets: readonly Expr[];
}

/**
 * What an element of a tile is: its coordinate along each dimension.
 * @param at where the tile begins
 * @param offsets of the walked dimensions; none of a box
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

/** `as a box of c 64, s 1, r 1, k 128`. */
export function printTensorView({ dims, rows }: TensorView): string {
  const along = (names: readonly string[], of: readonly (number | string)[]): string =>
    names.map((name, i) => `${name} ${of[i] ?? 1}`).join(", ");
  const names = dims.map((d) => d.name);
  if (rows.kind === "box") return `as a box of ${along(names, rows.extents)}`;
  const walks = rows.walks.map((w) => `${w.low}..${w.low + w.step * (w.count - 1)} by ${w.step}`);
  const offsets = rows.offsets.map((e) => printExpr(e, "formula"));
  return `as ${rows.count} pixels of ${along(names.slice(1, -1), walks)}, offset ${offsets.join(", ")}`;
}
