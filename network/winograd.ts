/**
 * @file Winograd's convolutions of 3 x 3: image windows and filters are transformed, multiplied channel by channel, and the products transformed
 * back.
 *
 *     out[n,k,p,q] += in[n,c,p+r-1,q+s-1] * w[k,c,r,s]
 *
 *     ->  tiles[x,y,n,th,tw,c] += B(x,i) * B(y,j) * in[n,c,4*th+i-1,4*tw+j-1]          6 x 6 windows, 4 apart
 *         sums[z,t,k] += tiles[z,t,c] * filters[z,c,k]                                 36 products of matrices, z = 6*x+y; filters = G w G^T
 *         out[n,k,p,q] += A(p%4,x) * A(q%4,y) * sums[x,y,n,p/4,q/4,k]                  and what was made of the sums of the convolution
 *
 * Lavin and Gray, Fast Algorithms for Convolutional Neural Networks (CVPR 2016), sections 4.1 and 4.3: 16 products for 4 elements of a channel
 * where the convolution has 36, or 36 for 16 where it has 144. In real numbers both are equal. In floats the transforms form larger numbers that
 * cancel; session/network/form-bound.ts gives the bound on the difference.
 */

import { affineForm, extentOf } from "../abstraction/affine.ts";
import { defineComputation, extentsOf, outputOf, targetOf, tensorOf } from "../abstraction/computation.ts";
import { attempt, internal } from "../abstraction/error.ts";
import { type Access, printAccess } from "../abstraction/expression.ts";
import { parseEquation } from "../abstraction/parse.ts";
import type { Step } from "./network.ts";
import { rebuilt, specOf } from "./rebuild.ts";
import { elementsOf, type Value } from "./value.ts";

type Matrix = readonly (readonly number[])[];

interface Transform {
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

export type TransformName = keyof typeof TRANSFORMS;
export const TRANSFORM_NAMES = Object.keys(TRANSFORMS) as readonly TransformName[];

/** Fewer channels on either side leave the transforms dearer than what they save. */
const LEAST_CHANNELS = 16;

/** The steps of a convolution in this form, the last one with its output; undefined where it has none. */
export function winogradSteps(step: Step, form: TransformName): readonly Step[] | undefined {
  const found = convolutionOf(step);
  // Names of the network's tensors that stand in the equations already are refused there.
  return found && attempt(() => stepsOf(step, found, TRANSFORMS[form]));
}

/** A convolution of 3 x 3 with stride 1, whose filters are known. */
interface Convolution {
  readonly image: Access;
  readonly filters: Access;
  readonly weights: Value;
  /** Elements before the first row and the first column. */
  readonly begins: readonly [number, number];
  /** Names of its axes: images, filters, rows and columns, channels. */
  readonly axes: { readonly n: string; readonly k: string; readonly p: string; readonly q: string; readonly c: string };
}

function convolutionOf({ computation, reads }: Step): Convolution | undefined {
  const { equation, time } = computation;
  const extents = extentsOf(computation);
  const { value, target, op, where } = equation;
  if (op !== "+=" || where !== undefined || time || value.kind !== "binary" || value.op !== "*") return undefined;
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
    const weights = reads[filters.tensor];
    if (!c || !r || !s || own !== k || filters.index.length !== 4 || !weights?.constant) continue;
    const begins = [slid(image.index[2], p, r), slid(image.index[3], q, s)];
    const [top, leading] = begins;
    const isPlain = (d: number, name: string): boolean => {
      const e = image.index[d];
      return e?.kind === "axis" && e.name === name;
    };
    const one = computation.tensors[image.tensor]?.dtype;
    const two = computation.tensors[filters.tensor]?.dtype;
    if (image.index.length !== 4 || !isPlain(0, n) || !isPlain(1, c) || one !== "f32" || two !== "f32") continue;
    if (top === undefined || leading === undefined || extents[r] !== 3 || extents[s] !== 3) continue;
    if (Math.min(extentOf(c, extents), extentOf(k, extents)) < LEAST_CHANNELS) continue;
    return { image, filters, weights, begins: [top, leading], axes: { n, k, p, q, c } };
  }
  return undefined;
}

/** The padding of `p+r-1`; undefined for another index. */
function slid(index: Access["index"][number] | undefined, kept: string, summed: string): number | undefined {
  const form = index && affineForm(index);
  const isSlid = form?.terms.size === 2 && form.terms.get(kept) === 1 && form.terms.get(summed) === 1;
  return isSlid && form.constant <= 0 ? -form.constant : undefined;
}

/** Sizes of a form, and its names beside those of the convolution. */
interface Sizes {
  readonly size: number;
  readonly images: number;
  readonly high: number;
  readonly wide: number;
  readonly channels: number;
  readonly made: number;
}

/** Axes and tensors that a form adds. */
const ADDED = ["wx", "wy", "wi", "wj", "th", "tw", "tiles", "sums"];

function stepsOf(step: Step, convolution: Convolution, transform: Transform): readonly Step[] | undefined {
  const { computation } = step;
  const taken = [
    ...computation.axes.map((a) => a.name),
    ...Object.keys(computation.tensors),
    targetOf(computation).name,
  ];
  if (ADDED.some((name) => taken.includes(name))) return undefined;
  const extents = extentsOf(computation);
  const { n, k, p, q, c } = convolution.axes;
  const sizes: Sizes = {
    size: transform.input.length,
    images: extentOf(n, extents),
    high: Math.ceil(extentOf(p, extents) / transform.outputs),
    wide: Math.ceil(extentOf(q, extents) / transform.outputs),
    channels: extentOf(c, extents),
    made: extentOf(k, extents),
  };
  const windows = windowsOf(step, convolution, transform, sizes);
  const products = productsOf(step, convolution, transform, sizes, windows.output);
  return [windows, products, broughtBack(step, convolution, transform, sizes, [windows, products])];
}

const between = ({ output }: Step, suffix: string, shape: readonly number[], of?: Value): Value => ({
  name: `${output.name}.${suffix}`,
  type: "f32",
  shape,
  ...(of && { of }),
});

function windowsOf(
  step: Step,
  { image, begins, axes: { n, c } }: Convolution,
  { outputs, input }: Transform,
  { size, images, high, wide, channels }: Sizes,
): Step {
  const read = step.reads[image.tensor] ?? internal(`${step.output.name} reads no ${image.tensor}`);
  const [row, column] = begins.map((begin, d) => `${d === 0 ? `th*${outputs}+wi` : `tw*${outputs}+wj`}-${begin}`);
  const computation = defineComputation({
    name: "windows",
    equation: `tiles[wx,wy,${n},th,tw,${c}] += ${matrixText(input, "wx", "wi")} * ${matrixText(input, "wy", "wj")} * ${image.tensor}[${n},${c},${row},${column}]`,
    extents: { wx: size, wy: size, [n]: images, th: high, tw: wide, [c]: channels, wi: size, wj: size },
    tensors: { tiles: "f32", [image.tensor]: specOf(tensorOf(step.computation, image.tensor)) },
  });
  return {
    nodes: [`${step.nodes[0]}.windows`],
    ops: ["Winograd"],
    computation,
    reads: { [image.tensor]: read },
    output: between(step, "tiles", [size, size, images, high, wide, channels]),
  };
}

function productsOf(
  step: Step,
  { weights }: Convolution,
  { filter }: Transform,
  { size, images, high, wide, channels, made }: Sizes,
  tiles: Value,
): Step {
  const z = size * size;
  const t = images * high * wide;
  const computation = defineComputation({
    name: "products",
    equation: "sums[z,t,k] += tiles[z,t,c] * filters[z,c,k]",
    extents: { z, t, k: made, c: channels },
    tensors: { sums: "f32", tiles: "f32", filters: { dtype: "f32", constant: true } },
  });
  let kept: Float32Array | undefined;
  const filters: Value = {
    name: `${weights.name}.transformed`,
    type: "f32",
    shape: [z, channels, made],
    // Forms are weighed without their filters, which are up to four times as large as those of the convolution.
    get constant() {
      kept ??= transformed(weights.constant ?? [], filter, { channels, made });
      return kept;
    },
  };
  return {
    nodes: [`${step.nodes[0]}.products`],
    ops: ["Winograd"],
    computation,
    reads: { tiles: between(step, "tiles", [z, t, channels], tiles), filters },
    output: between(step, "sums", [z, t, made]),
  };
}

/** Elements of the output, and what is made of them. */
function broughtBack(
  step: Step,
  { image, filters, axes: { n, k, p, q } }: Convolution,
  { outputs, output }: Transform,
  { size, images, high, wide, made }: Sizes,
  steps: readonly [Step, Step],
): Step {
  const { computation, reads } = step;
  const { equation } = computation;
  const isBeside = (name: string): boolean => name !== image.tensor && name !== filters.tensor;
  const shape = [size, size, images, high, wide, made];
  const matrices = `${matrixText(output, `${p}%${outputs}`, "wx")} * ${matrixText(output, `${q}%${outputs}`, "wy")}`;
  const back = rebuilt(computation, {
    equation: parseEquation(
      `${printAccess(equation.target)} += ${matrices} * sums[wx,wy,${n},${p}/${outputs},${q}/${outputs},${k}]`,
    ),
    extents: {
      ...Object.fromEntries(computation.axes.filter((a) => a.kind === "spatial").map((a) => [a.name, a.extent])),
      wx: size,
      wy: size,
    },
    tensors: { sums: { dtype: "f32", shape } },
  });
  if (outputOf(back).name !== outputOf(computation).name) internal("a form has another output");
  const { operator: _, ...whole } = step;
  return {
    ...whole,
    computation: back,
    reads: {
      ...Object.fromEntries(Object.entries(reads).filter(([name]) => isBeside(name))),
      sums: between(step, "sums", shape, steps[1].output),
    },
    insteadOf: { step, steps },
  };
}

/** `select(x == 0, select(i == 0, 4, select(i == 2, -5, 0)), ...)`: the numbers of a matrix at a row and a column. */
function matrixText(matrix: Matrix, row: string, column: string): string {
  const chosen = (index: string, of: readonly string[]): string =>
    of.reduceRight(
      (otherwise, text, i) => (text === "0" ? otherwise : `select(${index} == ${i}, ${text}, ${otherwise})`),
      "0",
    );
  return chosen(
    row,
    matrix.map((numbers) => chosen(column, numbers.map(String))),
  );
}

/** `G w G^T` of each filter and channel, computed in doubles: [z, channel, filter]. */
function transformed(
  weights: ArrayLike<number>,
  filter: Matrix,
  { channels, made }: { readonly channels: number; readonly made: number },
): Float32Array {
  const size = filter.length;
  const result = new Float32Array(elementsOf([size * size, channels, made], "transformed filters"));
  // Of the rows of a filter, then of its columns.
  const half = new Float64Array(3 * size);
  for (let k = 0; k < made; k++)
    for (let c = 0; c < channels; c++) {
      const at = (k * channels + c) * 9;
      for (const [x, [a = 0, b = 0, d = 0]] of filter.entries())
        for (let s = 0; s < 3; s++)
          half[x * 3 + s] =
            a * (weights[at + s] ?? 0) + b * (weights[at + 3 + s] ?? 0) + d * (weights[at + 6 + s] ?? 0);
      for (let x = 0; x < size; x++)
        for (const [y, [a = 0, b = 0, d = 0]] of filter.entries())
          result[((x * size + y) * channels + c) * made + k] =
            a * (half[x * 3] ?? 0) + b * (half[x * 3 + 1] ?? 0) + d * (half[x * 3 + 2] ?? 0);
    }
  return result;
}
