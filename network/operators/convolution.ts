/**
 * @file Convolutions of one to three dimensions, grouped and transposed.
 *
 *     Conv    out[n,k,p,q] += in[n,c,p*2+r-1,q*2+s-1] * w[k,c,r,s]        and, with a bias,  y[..] = out[..] + b[k]
 *
 * A layer that matches the table of operators (conv2d, depthwise-conv2d ...) becomes that operator, so that it shares
 * records with `automap tune`.
 */

import { shapeOf } from "../../abstraction/affine.ts";
import { tensorOf } from "../../abstraction/computation.ts";
import type { OperandTypes } from "../../operators/data-types.ts";
import { operatorNamed } from "../../operators/index.ts";
import { instantiate, type Operator } from "../../operators/operator.ts";
import type { Lowering } from "../lowering.ts";
import { bracketed, isWide, type Value } from "../value.ts";
import { overChannels } from "./broadcast.ts";
import { elementwise } from "./elementwise.ts";
import type { OperatorTable } from "./table.ts";

/** How a window slides along a spatial dimension. */
export interface Slide {
  /** Elements of the dimension, and of the window along it. */
  readonly size: number;
  readonly width: number;
  readonly stride: number;
  readonly dilation: number;
  /** Padding before the first element and after the last. */
  readonly begin: number;
  readonly end: number;
}

/** A window by its dimensions. */
export type Window = readonly Slide[];

/** Letters of papers: output, kernel and input positions of up to three spatial dimensions, innermost last. */
const LETTERS = { output: ["o", "p", "q"], kernel: ["t", "r", "s"], input: ["d", "h", "w"] } as const;
export const lettersOf = (kind: keyof typeof LETTERS, rank: number): string[] => LETTERS[kind].slice(3 - rank);

/** The axes of a window's positions and of its elements, with their extents, and the input's index along each dimension: `p*2+r-1`. */
export function slid(window: Window) {
  const times = (axis: string | undefined, by: number): string => (by === 1 ? `${axis}` : `${axis}*${by}`);
  const kernels = lettersOf("kernel", window.length);
  const outputs = lettersOf("output", window.length);
  const at = window.map(({ stride, dilation, begin }, d) => {
    const less = begin === 0 ? "" : `-${begin}`;
    return `${times(outputs[d], stride)}+${times(kernels[d], dilation)}${less}`;
  });
  const extents = Object.fromEntries(window.map(({ width }, d) => [kernels[d], width]));
  return { outputs, kernels, at, extents };
}

/** Limit on kernels, strides, dilations and padding: products of two are exact, and far below an offset's range. */
const MOST_STEP = 2 ** 24;

/** The kernel sizes, which a node may repeat as an attribute. */
function kernelOf(node: Lowering, filter: readonly number[]): readonly number[] {
  const kernel = node.ints("kernel_shape") ?? filter;
  if (kernel.length !== filter.length || kernel.some((size, d) => size !== filter[d]))
    node.refuse(`kernel_shape ${bracketed(kernel)} contradicts filters of ${bracketed(filter)}`);
  return kernel;
}

/** Reads the attributes that convolutions and poolings share. @throws UsageError when they contradict each other */
export function windowOf(node: Lowering, spatial: readonly number[], kernel: readonly number[], ceil = false): Window {
  const rank = spatial.length;
  if (rank < 1 || rank > 3) node.refuse(`${rank} spatial dimensions are not supported; 1 to 3 are`);
  const list = (name: string, length: number, otherwise: number, least: number): readonly number[] => {
    const given = node.ints(name) ?? Array.from({ length }, () => otherwise);
    if (given.length !== length || given.some((x) => x < least || x > MOST_STEP))
      node.refuse(`${name} must hold ${length} numbers from ${least} to ${MOST_STEP}, got ${bracketed(given)}`);
    return given;
  };
  if (kernel.length !== rank || kernel.some((x) => x < 1 || x > MOST_STEP))
    node.refuse(`its kernel ${bracketed(kernel)} must hold ${rank} numbers from 1 to ${MOST_STEP}`);
  const strides = list("strides", rank, 1, 1);
  const dilations = list("dilations", rank, 1, 1);
  const pads = list("pads", 2 * rank, 0, 0);
  const auto = node.text("auto_pad", "NOTSET", ["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]);
  const isSame = auto.startsWith("SAME");
  if (ceil && isSame) node.refuse(`auto_pad ${auto} and ceil_mode contradict each other`);
  return spatial.map((size, d): Slide => {
    const [width = 1, stride = 1, dilation = 1] = [kernel[d], strides[d], dilations[d]];
    const [first = 0, last = 0] = auto === "NOTSET" ? [pads[d], pads[d + rank]] : [];
    const total = Math.max(0, (Math.ceil(size / stride) - 1) * stride + (width - 1) * dilation + 1 - size);
    const less = Math.floor(total / 2);
    const [begin, end] = !isSame ? [first, last] : auto === "SAME_UPPER" ? [less, total - less] : [total - less, less];
    return { size, width, stride, dilation, begin, end };
  });
}

/** Number of window positions along each dimension. @throws UsageError when the window does not fit */
export function positionsOf(node: Lowering, window: Window, ceil = false): number[] {
  return window.map(({ size, width, stride, dilation, begin, end }) => {
    const steps = (size + begin + end - dilation * (width - 1) - 1) / stride;
    if (steps < 0) node.refuse(`a kernel of ${width} does not fit ${size} elements with ${begin} + ${end} of padding`);
    const count = (ceil ? Math.ceil(steps) : Math.floor(steps)) + 1;
    // A window that starts beyond the input and the padding before it sees no elements.
    return ceil && (count - 1) * stride >= size + begin ? count - 1 : count;
  });
}

/** Images by channel and position, and a filter for each output channel: the form of every convolution here. */
export interface Layer {
  readonly x: Value;
  readonly w: Value;
  readonly groups: number;
  readonly window: Window;
}

export function layerOf(node: Lowering, x: Value, w: Value): Layer {
  const [, channels = 0, ...spatial] = x.shape;
  const groups = node.int("group", 1);
  const [filters = 0, within = 0] = w.shape;
  if (x.shape.length < 3 || w.shape.length !== x.shape.length)
    node.refuse(
      `${x.name} has ${x.shape.length} dimensions and ${w.name} ${w.shape.length}; both need the same number, 3 at least`,
    );
  if (groups < 1 || channels !== within * groups || filters % groups !== 0)
    node.refuse(`${channels} channels and filters of ${bracketed(w.shape)} do not fall into ${groups} groups`);
  const kernel = kernelOf(node, w.shape.slice(2));
  return { x, w, groups, window: windowOf(node, spatial, kernel) };
}

/** The names of a layer's dimensions, for layouts. */
function layerDims(rank: number): { in: string[]; w: string[]; out: string[] } {
  return {
    in: ["n", "c", ...lettersOf("input", rank)],
    w: ["k", "c", ...lettersOf("kernel", rank)],
    out: ["n", "k", ...lettersOf("output", rank)],
  };
}

/**
 * The convolution without its bias, as an equation over `factor`, the product of an input and a weight.
 * @param factor text of the product of the two accesses
 */
export function convolved(
  node: Lowering,
  { x, w, groups, window }: Layer,
  factor: (a: string, b: string) => string,
  type: Value["type"],
): Value {
  const { outputs, kernels, at } = slid(window);
  const positions = positionsOf(node, window);
  const [images = 1, channels = 1] = x.shape;
  const [filters = 1] = w.shape;
  const dims = layerDims(window.length);
  const perGroup = filters / groups;
  const inGroup = channels / groups;
  const index = (parts: readonly string[]): string => parts.join(",");
  // A filter per channel and no group loop: channels are kept axes.
  if (groups === channels && perGroup === 1 && groups > 1) {
    const flat = node.reshaped(w, [filters, ...w.shape.slice(2)]);
    const product = factor(`in[n,k,${index(at)}]`, `w[k,${index(kernels)}]`);
    return node.equation(
      `out[n,k,${index(outputs)}] += ${product}`,
      { in: x, w: flat },
      {
        shape: [images, filters, ...positions],
        type,
        dims: { ...dims, w: ["k", ...kernels] },
      },
    );
  }
  const grouped = groups > 1;
  const filter = grouped ? `g*${perGroup}+k` : "k";
  const channel = grouped ? `g*${inGroup}+c` : "c";
  const product = factor(`in[n,${channel},${index(at)}]`, `w[${filter},c,${index(kernels)}]`);
  return node.equation(
    `out[n,${filter},${index(outputs)}] += ${product}`,
    { in: x, w },
    {
      shape: [images, filters, ...positions],
      type,
      ...(grouped && { extents: { g: groups, k: perGroup } }),
      dims,
    },
  );
}

/** The row of the table of operators that matches a layer, with its parameters; undefined when there is none. */
export function rowOf({
  x,
  w,
  groups,
  window,
}: Layer): { operator: Operator; parameters: Record<string, number> } | undefined {
  const [rows, columns, third] = window;
  if (!rows || !columns || third) return undefined;
  const { stride, dilation, begin: pad } = rows;
  if (columns.stride !== stride || columns.dilation !== dilation) return undefined;
  if ([rows.end, columns.begin, columns.end].some((size) => size !== pad)) return undefined;
  const [n = 1, c = 1] = x.shape;
  const [k = 1] = w.shape;
  const shared = { n, c, h: rows.size, w: columns.size, r: rows.width, s: columns.width, stride, pad, dilation };
  if (groups === c && groups > 1)
    return { operator: operatorNamed("depthwise-conv2d"), parameters: { ...shared, m: k / c } };
  return { operator: operatorNamed(groups > 1 ? "grouped-conv2d" : "conv2d"), parameters: { ...shared, k, groups } };
}

export function layerOfTable(
  node: Lowering,
  { x, w }: Layer,
  { operator, parameters }: NonNullable<ReturnType<typeof rowOf>>,
  types?: OperandTypes,
): Value {
  const computation = instantiate(operator, { parameters, ...(types && { types }) });
  const reads = { in: x, w: node.reshaped(w, shapeOf(tensorOf(computation, "w"))) };
  return node.computed(computation, reads, types ? "s32" : "f32", { operator: { name: operator.name, parameters } });
}

/** Adds a bias per channel, along dimension 1. */
function biased(node: Lowering, sum: Value, bias: Value | undefined): Value {
  if (!bias) return sum;
  return elementwise(node, "sum + spread", { sum, spread: overChannels(node, bias, sum, "a bias") });
}

/** https://onnx.ai/onnx/operators/onnx__ConvTranspose.html: along each dimension the size of the output, and elements cropped at its front. */
function upsampling(node: Lowering, spatial: readonly number[], filter: readonly number[]) {
  const kernel = kernelOf(node, filter);
  // Automatic padding depends on the sizes of the output, not of the input.
  const auto = node.text("auto_pad", "NOTSET", ["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]);
  const plain = auto === "NOTSET" ? windowOf(node, spatial, kernel) : undefined;
  if (auto !== "NOTSET" && node.ints("pads")?.some((size) => size !== 0))
    node.refuse(`auto_pad ${auto} and pads contradict each other`);
  const list = (name: string, otherwise: number): readonly number[] => {
    const given = node.ints(name) ?? spatial.map(() => otherwise);
    if (given.length !== spatial.length || given.some((value) => value < 0 || value > MOST_STEP))
      node.refuse(`${name} ${bracketed(given)} does not fit`);
    return given;
  };
  const [strides, dilations, more] = [list("strides", 1), list("dilations", 1), list("output_padding", 0)];
  if (strides.some((s) => s < 1) || dilations.some((s) => s < 1)) node.refuse("strides and dilations are at least 1");
  const told = node.ints("output_shape");
  if (told && told.length !== spatial.length && told.length !== spatial.length + 2)
    node.refuse(`output_shape ${bracketed(told)} does not fit ${spatial.length} spatial dimensions`);
  const sizes = told?.slice(-spatial.length);
  const all = spatial.map((size, d) => {
    const [stride = 1, dilation = 1, width = 1, behind = 0] = [strides[d], dilations[d], kernel[d], more[d]];
    const full = stride * (size - 1) + behind + (width - 1) * dilation + 1;
    const wanted = sizes ? sizes[d] : auto.startsWith("SAME") ? size * stride : undefined;
    const { begin: first, end: last } = plain?.[d] ?? { begin: 0, end: 0 };
    const total = wanted === undefined ? first + last : full - wanted;
    const half = auto === "SAME_UPPER" ? Math.floor(total / 2) : Math.ceil(total / 2);
    const begin = wanted === undefined ? first : half;
    return { stride, dilation, begin, total, position: full - total, isWanted: wanted !== undefined };
  });
  if (node.opset < 11 && all.some(({ isWanted, total }) => isWanted && total % 2 !== 0))
    node.refuse(
      `its padding of ${all.map(({ total }) => total).join(" and ")} is odd, and before opset 11 ONNX and ONNX Runtime put the odd element at different ends`,
      "give pads instead of auto_pad or output_shape",
    );
  if (all.some(({ position, begin }) => position < 1 || begin < 0))
    node.refuse(`its output would have sizes ${bracketed(all.map(({ position }) => position))}`);
  return all;
}

export const CONVOLUTIONS: OperatorTable = {
  Conv(node: Lowering) {
    const x = node.input(0);
    const w = node.input(1);
    if (x.type !== w.type || !isWide(x.type))
      node.refuse(`images of ${x.type} and filters of ${w.type} are not supported; f32 and f64 are`);
    const layer = layerOf(node, x, w);
    // Checked here, because messages of the table do not name the node.
    positionsOf(node, layer.window);
    const row = x.type === "f32" && w.constant ? rowOf(layer) : undefined;
    const sum = row ? layerOfTable(node, layer, row) : convolved(node, layer, (a, b) => `${a} * ${b}`, x.type);
    return biased(node, sum, node.optional(2));
  },
  ConvTranspose(node: Lowering) {
    const x = node.input(0);
    const w = node.input(1);
    if (x.type !== "f32" || w.type !== "f32")
      node.refuse(`images of ${x.type} and filters of ${w.type} are not supported; f32 is`);
    const spatial = x.shape.slice(2);
    const rank = spatial.length;
    const groups = node.int("group", 1);
    const [images = 1, channels = 1] = x.shape;
    const [inputs = 1, perGroup = 1] = w.shape;
    if (w.shape.length !== x.shape.length || rank < 1 || rank > 3)
      node.refuse(`images of ${x.shape.length} dimensions and filters of ${w.shape.length} are not supported`);
    if (channels !== inputs || groups < 1 || channels % groups !== 0)
      node.refuse(`${channels} channels and filters of ${bracketed(w.shape)} do not fall into ${groups} groups`);
    const steps = upsampling(node, spatial, w.shape.slice(2));
    const outputs = lettersOf("output", rank);
    const kernels = lettersOf("kernel", rank);
    const shifted = steps.map(({ begin, dilation }, d) => `(${outputs[d]}+${begin}-${kernels[d]}*${dilation})`);
    const at = steps.map(({ stride }, d) => `${shifted[d]}/${stride}`);
    const where = steps.flatMap(({ stride }, d) => (stride === 1 ? [] : [`${shifted[d]}%${stride} == 0`]));
    const grouped = groups > 1;
    const [filter, channel] = grouped ? [`g*${perGroup}+k`, `g*${channels / groups}+c`] : ["k", "c"];
    const sum = node.equation(
      `out[n,${filter},${outputs.join(",")}] += in[n,${channel},${at.join(",")}] * w[${channel},k,${kernels.join(",")}]${where.length > 0 ? ` where ${where.join(" and ")}` : ""}`,
      { in: x, w },
      {
        shape: [images, perGroup * groups, ...steps.map(({ position }) => position)],
        extents: { c: channels / groups, ...(grouped && { g: groups }) },
      },
    );
    return biased(node, sum, node.optional(2));
  },
};
