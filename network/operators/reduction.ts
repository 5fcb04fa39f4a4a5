/**
 * @file Reductions over axes, and operators built from them: softmax and normalisations.
 *
 *     ReduceMean   sum[i0] += x[i0,i1],  y[i0] = sum[i0] / 64
 *     Softmax      m[i0] max= x[i0,i1],  e = exp(x - m),  s[i0] += e,  y = e / s
 */

import { defined, mapValues, product } from "../../abstraction/collections.ts";
import { isInteger } from "../../abstraction/dtype.ts";
import { axesOfRank, type Lowering } from "../lowering.ts";
import { bracketed, type ElementType, heldAs, type Value } from "../value.ts";
import { numberText, overChannels } from "./broadcast.ts";
import { elementwise, floatsAt, written } from "./elementwise.ts";
import type { OperatorTable } from "./table.ts";

type Combine = "+=" | "max=" | "min=";

/**
 * Reduces axes to one number for each place of the remaining ones.
 * @param term what is combined, a formula over the element `x`
 * @param keepsAxes keeps reduced axes with one element
 */
export function reduced(
  node: Lowering,
  x: Value,
  axes: readonly number[],
  {
    op,
    term = "x",
    keepsAxes = true,
    type = x.type,
  }: { op: Combine; term?: string; keepsAxes?: boolean; type?: ElementType },
): Value {
  const names = axesOfRank(x.shape.length);
  const kept = names.filter((_, d) => !axes.includes(d));
  const shape = x.shape.flatMap((size, d) => (axes.includes(d) ? (keepsAxes ? [1] : []) : [size]));
  if (axes.length === 0) return elementwise(node, term, { x });
  const value = node.equation(
    `y${bracketed(kept)} ${op} ${written(term, { x: `x${bracketed(names)}` })}`,
    { x },
    { type },
  );
  return node.reshaped(value, shape);
}

export const countOf = (x: Value, axes: readonly number[]): number => product(axes.map((d) => x.shape[d] ?? 1));

/** A result whose reduced axes have one element each: without these axes, unless `keepdims` asks for them. */
export function asKept(node: Lowering, x: Value, axes: readonly number[]): Value {
  if (node.flag("keepdims", true)) return x;
  return node.reshaped(
    x,
    x.shape.filter((_, d) => !axes.includes(d)),
  );
}

interface Reduction {
  readonly op: Combine;
  readonly term?: string;
  /** A formula over the `sum` and the `count` of its terms. */
  readonly finish?: string;
  /** First opset in which the axes are an input; 18 when left out. */
  readonly axesAsInput?: number;
  readonly integers?: true;
}

const REDUCTIONS: Readonly<Record<string, Reduction>> = {
  ReduceL1: { op: "+=", term: "abs(x)", integers: true },
  ReduceL2: { op: "+=", term: "square(x)", finish: "sqrt(sum)" },
  ReduceLogSum: { op: "+=", finish: "log(sum)" },
  ReduceMax: { op: "max=", integers: true },
  ReduceMean: { op: "+=", finish: "sum / count" },
  ReduceMin: { op: "min=", integers: true },
  ReduceSum: { op: "+=", axesAsInput: 13, integers: true },
  ReduceSumSquare: { op: "+=", term: "square(x)", integers: true },
};

/** The axes of a reduction. @param since opset in which they became an input. An empty list means all, or none with `noop_with_empty_axes`. */
export function axesOf(node: Lowering, x: Value, since = 18): number[] {
  const given = node.numbersSince(since, "axes", 1, "the list of axes");
  const isIdle = node.opset >= since && node.flag("noop_with_empty_axes");
  if (given && given.length > 0) return node.axes(given, x.shape.length);
  return !isIdle ? x.shape.map((_, d) => d) : [];
}

function reduction({ op, term, finish, axesAsInput = 18, integers }: Reduction) {
  return (node: Lowering): Value => {
    const x = node.input(0);
    if (x.type === "bool" || (!integers && isInteger(heldAs(x.type)))) node.refuse(`${x.type} is not supported`);
    const axes = axesOf(node, x, axesAsInput);
    const keepsAxes = node.flag("keepdims", true);
    const sum = reduced(node, x, axes, { op, keepsAxes, ...defined({ term }) });
    if (finish === undefined) return sum;
    return elementwise(node, written(finish, { count: String(countOf(x, axes)) }), { sum });
  };
}

/** The parts of a softmax over axes: the maximum, exp(x - maximum), and the sum of these. */
export function softened(
  node: Lowering,
  x: Value,
  axes: readonly number[],
): { most: Value; raised: Value; sum: Value } {
  const most = reduced(node, x, axes, { op: "max=" });
  const raised = elementwise(node, "exp(x - most)", { x, most });
  return { most, raised, sum: reduced(node, raised, axes, { op: "+=" }) };
}

/** Before opset 13 the input is seen as a matrix whose columns start at the axis. */
function softmax(node: Lowering): Value {
  const x = floatsAt(node, 0);
  const first = node.axisGiven(x, node.opset >= 13 ? -1 : 1);
  const { most, raised, sum } = softened(node, x, node.opset >= 13 ? [first] : from(first, x));
  if (node.node.op === "Softmax") return elementwise(node, "raised / sum", { raised, sum });
  return elementwise(node, "x - most - log(sum)", { x, most, sum });
}

/** The axes from a given one on. */
export const from = (first: number, { shape }: Value): number[] => shape.flatMap((_, d) => (d >= first ? [d] : []));

/** What remains of `x` without its mean over some axes, and the sum of the squares. */
export function centredOver(node: Lowering, x: Value, axes: readonly number[]) {
  const count = countOf(x, axes);
  const mean = elementwise(node, `sum / ${count}`, { sum: reduced(node, x, axes, { op: "+=" }) });
  const centred = elementwise(node, "x - mean", { x, mean });
  return { count, mean, centred, squares: reduced(node, centred, axes, { op: "+=", term: "square(x)" }) };
}

/** (x - mean) / deviation. */
function normalised(
  node: Lowering,
  x: Value,
  axes: readonly number[],
  epsilon: number,
): { value: Value; mean: Value; inverse: Value } {
  const { count, mean, centred, squares } = centredOver(node, x, axes);
  const inverse = elementwise(node, `1 / sqrt(squares / ${count} + ${numberText(epsilon)})`, { squares });
  const value = elementwise(node, "centred * inverse", { centred, inverse });
  return { value, mean, inverse };
}

function scaledByChannel(node: Lowering, x: Value, scale: Value, bias: Value): Value {
  const spread = (value: Value): Value => overChannels(node, value, x, value.name);
  return elementwise(node, "x * s + b", { x, s: spread(scale), b: spread(bias) });
}

/** Rows over the root of their mean square, times a scale. @returns also the inverse of the root */
function rootMeanSquare(node: Lowering, x: Value, scale: Value, axes: readonly number[]): [Value, Value] {
  if (node.int("stash_type", 1) !== 1) node.refuse("stash_type other than 1 is not supported");
  const epsilon = numberText(node.float("epsilon", node.node.op === "SkipSimplifiedLayerNormalization" ? 1e-12 : 1e-5));
  const squares = reduced(node, x, axes, { op: "+=", term: "square(x)" });
  const inverse = elementwise(node, `1 / sqrt(squares / ${countOf(x, axes)} + ${epsilon})`, { squares });
  return [elementwise(node, "x * inverse * scale", { x, inverse, scale }), inverse];
}

/** RMSNormalization of ONNX, and the name that ONNX Runtime had for it before. */
function rootMeanSquareNorm(node: Lowering): Value[] {
  const x = floatsAt(node, 0);
  return rootMeanSquare(node, x, node.input(1), from(node.axisGiven(x, -1), x));
}

export const REDUCTIONS_AND_NORMS: OperatorTable = {
  ...mapValues(REDUCTIONS, reduction),
  /** A scale and an offset for each channel, by given statistics, or in training by those of the batch. */
  BatchNormalization(node: Lowering) {
    const [x, scale, bias, mean, variance] = [0, 1, 2, 3, 4].map((place) => node.input(place));
    if (!x || !scale || !bias || !mean || !variance) return node.refuse("an input is missing");
    floatsAt(node, 0);
    const isTraining = node.opset >= 14 && node.flag("training_mode");
    if (node.opset < 9 && !node.flag("spatial", true)) node.refuse("statistics of each pixel are not supported");
    if (!isTraining && node.node.outputs.slice(1).some((name) => name !== "")) node.refuse("training is not supported");
    if (x.shape.length < 2) node.refuse(`an input of ${x.shape.length} dimensions has no channels`);
    const epsilon = numberText(node.float("epsilon", 1e-5));
    if (isTraining) {
      const axes = x.shape.flatMap((_, d) => (d === 1 ? [] : [d]));
      const { count, mean: now, centred, squares } = centredOver(node, x, axes);
      const spread = elementwise(node, `squares / ${count}`, { squares });
      const inverse = elementwise(node, `1 / sqrt(spread + ${epsilon})`, { spread });
      const value = elementwise(node, "centred * inverse", { centred, inverse });
      const momentum = node.float("momentum", 0.9);
      const old = numberText(momentum);
      const fresh = numberText(1 - momentum);
      const averaged = (before: Value, after: Value): Value =>
        elementwise(node, `before * ${old} + b * ${fresh}`, { before, b: node.reshaped(after, before.shape) });
      return [scaledByChannel(node, value, scale, bias), averaged(mean, now), averaged(variance, spread)];
    }
    const factor = elementwise(node, `scale / sqrt(variance + ${epsilon})`, { scale, variance });
    const offset = elementwise(node, "bias - mean * factor", { bias, mean, factor });
    return [scaledByChannel(node, x, factor, offset)];
  },
  /** Normalises each channel of each image by itself. */
  InstanceNormalization(node: Lowering) {
    const x = floatsAt(node, 0);
    const scale = node.input(1);
    const bias = node.input(2);
    const axes = from(2, x);
    if (axes.length === 0) node.refuse("its input has no spatial dimensions");
    const { value } = normalised(node, x, axes, node.float("epsilon", 1e-5));
    return scaledByChannel(node, value, scale, bias);
  },
  LayerNormalization(node: Lowering) {
    const x = floatsAt(node, 0);
    const scale = node.input(1);
    const bias = node.optional(2);
    if (node.int("stash_type", 1) !== 1) node.refuse("stash_type other than 1 is not supported");
    const axes = from(node.axisGiven(x, -1), x);
    const { value, mean, inverse } = normalised(node, x, axes, node.float("epsilon", 1e-5));
    const scaled = elementwise(node, "value * scale", { value, scale });
    const y = bias ? elementwise(node, "scaled + bias", { scaled, bias }) : scaled;
    return [y, mean, inverse];
  },
  LogSoftmax: softmax,
  /** Local response normalisation over neighbouring channels: https://onnx.ai/onnx/operators/onnx__LRN.html. */
  LRN(node: Lowering) {
    const x = floatsAt(node, 0);
    const size = node.int("size", 0);
    const rank = x.shape.length;
    if (size < 1 || rank < 2) node.refuse(`a window of ${size} channels over ${rank} dimensions`);
    const rest = axesOfRank(rank).slice(2).join(",");
    const tail = rest === "" ? "" : `,${rest}`;
    const before = Math.floor((size - 1) / 2);
    const sum = node.equation(
      `y[i0,i1${tail}] += square(x[i0,i1+r${before === 0 ? "" : `-${before}`}${tail}])`,
      { x },
      {
        shape: x.shape,
        extents: { r: size },
      },
    );
    const [alpha, beta, bias] = [node.float("alpha", 1e-4), node.float("beta", 0.75), node.float("bias", 1)];
    const base = `(${numberText(bias)} + ${numberText(alpha / size)} * sum)`;
    // Of the usual exponent, by the instruction for roots: a power takes longer than all else here.
    const power = beta === 0.75 ? `sqrt(${base}) * sqrt(sqrt(${base}))` : `pow(${base}, ${numberText(beta)})`;
    return elementwise(node, `x / (${power})`, { x, sum });
  },
  ReduceLogSumExp(node: Lowering) {
    const x = floatsAt(node, 0);
    const axes = axesOf(node, x);
    const { most, sum } = softened(node, x, axes);
    return asKept(node, elementwise(node, "log(sum) + most", { sum, most }), axes);
  },
  RMSNormalization: (node) => rootMeanSquareNorm(node).slice(0, 1),
  SimplifiedLayerNormalization: rootMeanSquareNorm,
  /** The norm of a sum, which is its last output: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md. */
  SkipSimplifiedLayerNormalization(node: Lowering) {
    const [x, skip, scale, bias] = [floatsAt(node, 0), node.input(1), node.input(2), node.optional(3)];
    const sum = bias
      ? elementwise(node, "x + skip + bias", { x, skip, bias })
      : elementwise(node, "x + skip", { x, skip });
    const [y, inverse] = rootMeanSquare(node, sum, scale, [sum.shape.length - 1]);
    return [y, undefined, inverse, sum];
  },
  Softmax: softmax,
};
