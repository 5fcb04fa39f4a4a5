/**
 * @file Winograd's convolutions of 3 x 3: image windows and filters are transformed, multiplied channel by channel, and the products transformed
 * back.
 *
 *     out[n,k,p,q] += in[n,c,p+r-1,q+s-1] * w[k,c,r,s]
 *
 *     ->  tiles[wx,wy,n,th,tw,c] += B(wx,wi) * B(wy,wj) * image[n,4*th+wi,4*tw+wj,c]       6 x 6 windows, 4 apart
 *         filters[wx,wy,c,k] += G(wx,r) * G(wy,s) * w[k,c,r,s]
 *         sums[z,t,j,k] += tiles[z,t,c] * filters[z,j,c,k]                                 36 products of matrices, z = 6*wx+wy
 *         out[n,k,p,q] += A(p%4,wx) * A(q%4,wy) * sums[wx,wy,n,p/4,q/4,k]                  and what was made of the sums of the convolution
 *
 * Lavin and Gray, Fast Algorithms for Convolutional Neural Networks (CVPR 2016), sections 4.1 and 4.3: 16 products for 4 elements of a channel
 * where the convolution has 36, or 36 for 16 where it has 144. In real numbers both are equal. In floats the transforms form larger numbers that
 * cancel: {@link boundOfForm}.
 */

import { affineForm, extentOf, extentsBy } from "./affine.ts";
import { memoised, namesOf, sumOf } from "./collections.ts";
import { type Computation, defineComputation, extentsOf, keptIn, targetOf, tensorOf } from "./computation.ts";
import { type Access, printAccess } from "./expression.ts";
import { parseEquation } from "./parse.ts";
import { rebuilt, specOf } from "./rebuild.ts";

export type Matrix = readonly (readonly number[])[];

export interface Transform {
  /** Outputs a window gives along each dimension. */
  readonly outputs: number;
  /** Of windows, of filters, of what comes back: rows as the paper prints them. */
  readonly input: Matrix;
  readonly filter: Matrix;
  readonly output: Matrix;
}

/** F(2x2,3x3) and F(4x4,3x3). */
export const TRANSFORMS = {
  winograd2: {
    outputs: 2,
    input: [
      [1, 0, -1, 0],
      [0, 1, 1, 0],
      [0, -1, 1, 0],
      [0, 1, 0, -1],
    ],
    filter: [
      [1, 0, 0],
      [1 / 2, 1 / 2, 1 / 2],
      [1 / 2, -1 / 2, 1 / 2],
      [0, 0, 1],
    ],
    output: [
      [1, 1, 1, 0],
      [0, 1, -1, -1],
    ],
  },
  winograd4: {
    outputs: 4,
    input: [
      [4, 0, -5, 0, 1, 0],
      [0, -4, -4, 1, 1, 0],
      [0, 4, -4, -1, 1, 0],
      [0, -2, -1, 2, 1, 0],
      [0, 2, -1, -2, 1, 0],
      [0, 4, 0, -5, 0, 1],
    ],
    filter: [
      [1 / 4, 0, 0],
      [-1 / 6, -1 / 6, -1 / 6],
      [-1 / 6, 1 / 6, -1 / 6],
      [1 / 24, 1 / 12, 1 / 6],
      [1 / 24, -1 / 12, 1 / 6],
      [0, 0, 1],
    ],
    output: [
      [1, 1, 1, 1, 1, 0],
      [0, 1, -1, 2, -2, 0],
      [0, 1, 1, 4, 4, 0],
      [0, 1, -1, 8, -8, 1],
    ],
  },
} as const satisfies Record<string, Transform>;

/** Of windows that give so many outputs along each dimension. */
export type Outputs = (typeof TRANSFORMS)[keyof typeof TRANSFORMS]["outputs"];

/** Fewer channels on either side leave the transforms dearer than what they save. */
const LEAST_CHANNELS = 16;

/** A convolution of 3 x 3 with stride 1, whose filters never change. */
export interface Convolution {
  readonly image: Access;
  readonly filters: Access;
  /** Elements before the first row and the first column. */
  readonly begins: readonly [number, number];
  /** Names of its axes: images, filters, rows and columns, channels, and those that run over a filter. */
  readonly axes: Readonly<Record<"n" | "k" | "p" | "q" | "c" | "r" | "s", string>>;
}

/** The computation as such a convolution; undefined where it is none. What is made of its sums does not matter. */
export const convolutionOf = memoised((computation: Computation): Convolution | undefined => {
  const { equation, time, program } = computation;
  const extents = extentsOf(computation);
  const { value, target, op, where } = equation;
  if (op !== "+=" || where !== undefined || time || program || value.kind !== "binary" || value.op !== "*")
    return undefined;
  if (targetOf(computation).dtype !== "f32") return undefined;
  const [n, k, p, q, other] = target.index.map((e) => (e.kind === "axis" ? e.name : undefined));
  if (!n || !k || !p || !q || other !== undefined || target.index.length !== 4) return undefined;
  const left = value.left;
  const right = value.right;
  if (left.kind !== "access" || right.kind !== "access") return undefined;
  for (const [image, filters] of [
    [left, right],
    [right, left],
  ] as const) {
    const [own, c, r, s] = filters.index.map((e) => (e.kind === "axis" ? e.name : undefined));
    const weights = tensorOf(computation, filters.tensor);
    if (!c || !r || !s || own !== k || filters.index.length !== 4 || !weights.constant) continue;
    const begins = [slid(image.index[2], p, r), slid(image.index[3], q, s)];
    const [top, leading] = begins;
    const isPlain = (d: number, name: string): boolean => {
      const e = image.index[d];
      return e?.kind === "axis" && e.name === name;
    };
    const one = tensorOf(computation, image.tensor).dtype;
    if (image.index.length !== 4 || !isPlain(0, n) || !isPlain(1, c) || one !== "f32" || weights.dtype !== "f32")
      continue;
    if (top === undefined || leading === undefined || extents[r] !== 3 || extents[s] !== 3) continue;
    if (Math.min(extentOf(c, extents), extentOf(k, extents)) < LEAST_CHANNELS) continue;
    const taken = [...namesOf(computation.axes), ...Object.keys(computation.tensors), target.tensor];
    // An equation with these names has no others for its steps.
    if (ADDED.some((name) => taken.includes(name))) return undefined;
    return { image, filters, begins: [top, leading], axes: { n, k, p, q, c, r, s } };
  }
  return undefined;
});

/** The padding of `p+r-1`; undefined for another index. */
function slid(index: Access["index"][number] | undefined, kept: string, summed: string): number | undefined {
  const form = index && affineForm(index);
  const isSlid = form?.terms.size === 2 && form.terms.get(kept) === 1 && form.terms.get(summed) === 1;
  return isSlid && form.constant <= 0 ? -form.constant : undefined;
}

/** Axes and tensors that a form adds. */
const ADDED = ["wx", "wy", "wi", "wj", "th", "tw", "z", "t", "tiles", "filters", "sums", "image", "result"];

/** The images and rows of windows that are computed together, and the channels of the output that lie side by side in the transformed filters. */
export interface Block {
  readonly images: number;
  readonly rows: number;
  readonly width: number;
}

/** Products of small windows with a matrix along both of their dimensions, of many windows side by side. */
export interface WinogradTransform {
  /** The sums without their factors, which are elements of the matrix. */
  readonly computation: Computation;
  readonly matrix: Matrix;
  /** Along each dimension the loop over rows of the matrix, of each window where there are several, and the one over its columns. */
  readonly sides: readonly { readonly row: string; readonly column: string }[];
  /** The loop along which windows lie side by side. */
  readonly row: string;
}

/** The computations of a form, and how many windows there are along each dimension. */
export interface WinogradParts {
  /** Of one block, from the rows that it reads with their border and the channels innermost. */
  readonly windows: WinogradTransform;
  readonly filters: WinogradTransform;
  /** Of one block, with k side by side and padding behind the last. */
  readonly products: Computation;
  readonly back: WinogradTransform;
  readonly images: number;
  /** Rows of windows of all blocks, of which the last may lie outside. */
  readonly high: number;
  readonly wide: number;
}

export function winogradParts(
  computation: Computation,
  { filters, axes: { n, k, p, q, c, r, s } }: Convolution,
  { input, filter, output, outputs }: Transform,
  block: Block,
): WinogradParts {
  const extents = extentsOf(computation);
  const [images, made, channels] = [n, k, c].map((name) => extentOf(name, extents)) as [number, number, number];
  const [rows, wide] = [p, q].map((name) => Math.ceil(extentOf(name, extents) / outputs)) as [number, number];
  const high = Math.ceil(rows / block.rows) * block.rows;
  const { width } = block;
  const beside = Math.ceil(made / width);
  const size = input.length;
  const ofWindow = { wx: size, wy: size };
  return {
    images,
    high,
    wide,
    windows: {
      matrix: input,
      sides: [
        { row: "wx", column: "wi" },
        { row: "wy", column: "wj" },
      ],
      row: c,
      computation: defineComputation({
        name: "windows",
        equation: `tiles[wx,wy,${n},th,tw,${c}] += image[${n},th*${outputs}+wi,tw*${outputs}+wj,${c}]`,
        extents: { ...ofWindow, [n]: block.images, th: block.rows, tw: wide, [c]: channels, wi: size, wj: size },
        tensors: { tiles: "f32", image: "f32" },
      }),
    },
    filters: {
      matrix: filter,
      sides: [
        { row: "wx", column: r },
        { row: "wy", column: s },
      ],
      row: k,
      computation: defineComputation({
        name: "filters",
        equation: `filters[wx,wy,${c},${k}] += ${printAccess(filters)}`,
        extents: { ...ofWindow, [c]: channels, [k]: made, [r]: 3, [s]: 3 },
        tensors: {
          filters: {
            dtype: "f32",
            dims: ["wx", "wy", c, k],
            shape: [size, size, channels, beside * width],
            storage: `(((${size}*wx + wy)*${beside} + ${k}/${width})*${channels} + ${c})*${width} + ${k}%${width}`,
          },
          [filters.tensor]: specOf(tensorOf(computation, filters.tensor)),
        },
      }),
    },
    products: defineComputation({
      name: "products",
      equation: "sums[z,t,j,k] += tiles[z,t,c] * filters[z,j,c,k]",
      extents: { z: size * size, t: block.images * block.rows * wide, j: beside, k: width, c: channels },
      tensors: { sums: "f32", tiles: "f32", filters: { dtype: "f32", constant: true } },
    }),
    back: {
      matrix: output,
      sides: [
        { row: p, column: "wx" },
        { row: q, column: "wy" },
      ],
      row: k,
      computation: rebuilt(computation, {
        equation: parseEquation(
          `${printAccess(computation.equation.target)} += sums[wx,wy,${n},${p}/${outputs},${q}/${outputs},${k}]`,
        ),
        extents: { ...extentsBy(keptIn(computation.axes)), ...ofWindow },
        tensors: { sums: { dtype: "f32", shape: [size, size, images, high, wide, beside * width] } },
      }),
    },
  };
}

/** The number of roundings along one dimension of a transform: a product for each term, and the additions between. */
const roundingsIn = (matrix: Matrix): number =>
  Math.max(...matrix.map((row) => 2 * row.filter((factor) => factor !== 0).length));

const sizeOfRow = (row: readonly number[]): number => sumOf(row, Math.abs);

/** How the results of a form are judged beside those of the equation. */
export interface FormBound {
  /** A sum may be off by so many times the bound of the equation. */
  readonly factor: number;
  /** What a sum of small integers may be off. Larger errors are of a term that is lost or wrong. */
  readonly integer: number;
  /** The sums of a form are formed from numbers so many times as large as those of the equation. */
  readonly growth: number;
}

/** Far above the rounding of 512 channels of integers up to 3, and far below what a lost term changes. */
const INTEGER = 1 / 16;

/**
 * The bound for a kernel of any form; undefined for a computation that has none. Elements of a window may cancel that are, by |A| |G| |B|, many times
 * as large as the output; the bound takes all elements to be of the size of those that the output reads, of which there are four at a corner.
 * Barabasz, Anderson, Soodhalter and Gregg, Error Analysis and Improving the Accuracy of Winograd Convolution for Deep Neural Networks (ACM TOMS
 * 2020), theorem 3. Where elements of a window differ much in size, {@link largestInWindows} is their size.
 */
export const boundOfForm = memoised((computation: Computation): FormBound | undefined => {
  const found = convolutionOf(computation);
  if (!found) return undefined;
  const channels = extentOf(found.axes.c, extentsOf(computation));
  const { input, filter, output } = TRANSFORMS.winograd4;
  const products = input.map((row, x) => sizeOfRow(row) * sizeOfRow(filter[x] ?? []));
  const along = Math.max(...output.map((row) => sumOf(row.map((factor, x) => Math.abs(factor) * (products[x] ?? 0)))));
  const growth = along ** 2 / 4;
  const roundings = 2 * (roundingsIn(input) + roundingsIn(filter) + roundingsIn(output)) + channels + 1;
  return { factor: (growth * roundings) / (9 * channels + 2), integer: INTEGER, growth };
});

/**
 * For each sum of a convolution the largest of those that read what its window reads: sums of the window of F(4x4,3x3), and of the rows and columns
 * beside. A window whose own sums are of zeros may hold large elements that cancel.
 * @param sums row-major, as the equation's target
 */
export function largestInWindows(computation: Computation, sums: ArrayLike<number>): Float64Array {
  const [height = 1, width = 1] = targetOf(computation)
    .dims.slice(2)
    .map(({ extent }) => extent);
  const { outputs } = TRANSFORMS.winograd4;
  const reach = (at: number, of: number): readonly [from: number, to: number] => {
    const first = at - (at % outputs);
    return [Math.max(0, first - 1), Math.min(of, first + outputs + 1)];
  };
  return Float64Array.from(sums, (_, i) => {
    const column = i % width;
    const row = ((i - column) / width) % height;
    const plane = i - row * width - column;
    const [top, bottom] = reach(row, height);
    const [left, right] = reach(column, width);
    let largest = 0;
    for (let p = top; p < bottom; p++)
      for (let q = left; q < right; q++) largest = Math.max(largest, sums[plane + p * width + q] ?? 0);
    return largest;
  });
}
