/**
 * @file Quantised operators: integers with a scale and a zero point.
 *
 *     QLinearConv    out[n,k,p,q] += s32(in[..]) * s32(w[..])
 *                    y = sat_u8(round(f32(out - zero * covered[k,p,q]) * scale[k]) + y_zero)
 *
 * The zero point of the input is taken out of the sums: what it would have added, `covered`, follows from the weights alone. Padding is 0
 * in the notation and the zero point in ONNX, so that only weights over elements of the input are counted.
 */

import type { Lowering } from "../lowering.ts";
import type { Value } from "../value.ts";
import { convolved, type Layer, layerOf, lettersOf, positionsOf, slidIndex } from "./convolution.ts";
import { elementwise, NUMBERED_TYPES } from "./elementwise.ts";
import { matmul } from "./product.ts";
import { reduced } from "./reduction.ts";
import type { OperatorTable } from "./table.ts";

/** A list along one axis of `x`, or a single number. */
function along(node: Lowering, list: Value, x: Value, axis: number): Value {
  if (list.shape.length === 0 || (list.shape.length === 1 && list.shape[0] === 1)) return node.reshaped(list, []);
  const size = x.shape[axis];
  if (list.shape.length !== 1 || list.shape[0] !== size)
    node.refuse(`${list.name} of [${list.shape.join(",")}] for ${size} elements of axis ${axis}`);
  return node.reshaped(
    list,
    x.shape.slice(axis).map((n, d) => (d === 0 ? n : 1)),
  );
}

function axisOf(node: Lowering, x: Value): number {
  const rank = x.shape.length;
  const given = node.int("axis", rank > 1 ? 1 : 0);
  return rank === 0 ? 0 : node.axis(given, rank);
}

function quantizeLinear(node: Lowering): Value[] {
  const [x, scale, zero] = [node.input(0), node.input(1), node.optional(2)];
  if (x.type !== "f32" || scale.type !== "f32") node.refuse(`${x.type} over ${scale.type} is not supported; f32 is`);
  if (node.int("block_size", 0) !== 0) node.refuse("block_size is not supported");
  const axis = axisOf(node, x);
  return [quantised(node, x, along(node, scale, x, axis), zero && along(node, zero, x, axis))];
}

/** The type that integers are brought to: the zero point's, or since opset 21 one that is told; u8 by default. */
function quantisedType(node: Lowering, zero: Value | undefined): "u8" | "s8" {
  const number = node.int("output_dtype", 0);
  const told =
    number === 0
      ? undefined
      : (NUMBERED_TYPES[number] ?? node.refuse(`output_dtype ${number} is not supported; u8 and s8 are`));
  if (told && zero && told !== zero.type)
    node.refuse(`output_dtype ${told} contradicts its zero point of ${zero.type}`);
  const type = zero?.type ?? told ?? "u8";
  return type === "u8" || type === "s8" ? type : node.refuse(`${type} is not supported; u8 and s8 are`);
}

/** f32 brought to integers: `round` is to nearest even, the range is clamped. */
function quantised(node: Lowering, x: Value, scale: Value, zero: Value | undefined): Value {
  const type = quantisedType(node, zero);
  return elementwise(
    node,
    zero ? [x, scale, zero] : [x, scale],
    ([a = "", s = "", z]) => `sat_${type}(round(${a} / ${s})${z === undefined ? "" : ` + f32(${z})`})`,
    type,
  );
}

function dequantizeLinear(node: Lowering): Value[] {
  const [x, scale, zero] = [node.input(0), node.input(1), node.optional(2)];
  if (!["u8", "s8", "s32"].includes(x.type) || scale.type !== "f32")
    node.refuse(`${x.type} by ${scale.type} is not supported`);
  if (node.int("block_size", 0) !== 0) node.refuse("block_size is not supported");
  const axis = axisOf(node, x);
  const operands = [x, along(node, scale, x, axis), ...(zero ? [along(node, zero, x, axis)] : [])];
  return [
    elementwise(
      node,
      operands,
      ([a = "", s = "", z]) => (z === undefined ? `f32(${a}) * ${s}` : `f32(s32(${a}) - s32(${z})) * ${s}`),
      "f32",
    ),
  ];
}

/** The single number that a zero point is; 0 where it is left out. */
function zeroOf(node: Lowering, place: number): number {
  const known = node.known(place, "a zero point");
  if (known && known.length !== 1) node.refuse("a zero point for each column or image is not supported");
  return known?.[0] ?? 0;
}

function checkIntegers(node: Lowering, ...values: readonly Value[]): void {
  for (const { name, type } of values)
    if (type !== "u8" && type !== "s8") node.refuse(`${name} holds ${type}; u8 and s8 are supported`);
}

/** Sums in s32 of integers less their zero points. @param weightZero of the weights: one number, or one for each filter */
function convolvedIntegers(node: Lowering, layer: Layer, zero: number, weightZero: Value | undefined): Value {
  const { x, w, window } = layer;
  checkIntegers(node, x, w);
  const zeros = weightZero?.constant;
  if (weightZero && !zeros) return node.refuse("zero points of weights must be known");
  const plain = zeros?.every((z) => z === 0) ?? true;
  if (plain && zero === 0) return convolved(node, layer, (a, b) => `s32(${a}) * s32(${b})`, "s32");
  // Weights less their zero points do not fit 8 bits.
  const wide =
    plain || !weightZero
      ? w
      : elementwise(node, [w, along(node, weightZero, w, 0)], ([a = "", z = ""]) => `s32(${a}) - s32(${z})`, "s32");
  const sum = convolved(
    node,
    { ...layer, w: wide },
    (a, b) => `s32(${a}) * ${wide.type === "s32" ? b : `s32(${b})`}`,
    "s32",
  );
  if (zero === 0) return sum;
  const isPadded = [...window.begins, ...window.ends].some((size) => size > 0);
  const covered = isPadded ? coveredWeights(node, layer, wide) : allWeights(node, wide);
  return elementwise(node, [sum, covered], ([a = "", b = ""]) => `${a} - ${zero} * ${b}`);
}

/** The sum of the weights of each filter. */
function allWeights(node: Lowering, w: Value): Value {
  const wide = w.type === "s32" ? w : elementwise(node, [w], ([a = ""]) => `s32(${a})`, "s32");
  const axes = w.shape.flatMap((_, d) => (d === 0 ? [] : [d]));
  const [filters = 1] = w.shape;
  return node.reshaped(reduced(node, wide, axes, { op: "+=" }), [filters, ...axes.slice(1).map(() => 1)]);
}

/** The sum of those weights of each filter that lie over the input, at each position. */
function coveredWeights(node: Lowering, { x, window, spatial }: Layer, w: Value): Value {
  const rank = spatial.length;
  const [outputs, kernels] = [lettersOf("output", rank), lettersOf("kernel", rank)];
  const wide = w.type === "s32" ? w : elementwise(node, [w], ([a = ""]) => `s32(${a})`, "s32");
  const byPlace = reduced(node, wide, [1], { op: "+=", keepsAxes: false });
  const ones = node
    .numbers(
      "u8",
      spatial.reduce((product, size) => product * size, 1),
    )
    .fill(1);
  const inside = node.constant({ type: "u8", shape: spatial, values: ones }, `${x.name}.inside`);
  const at = outputs.map((o, d) =>
    slidIndex(o, kernels[d] ?? "", window.strides[d] ?? 1, window.dilations[d] ?? 1, window.begins[d] ?? 0),
  );
  return node.equation(`y[k,${outputs.join(",")}] += s32(inside[${at.join(",")}]) * w[k,${kernels.join(",")}]`, {
    reads: { inside, w: byPlace },
    shape: [w.shape[0] ?? 1, ...positionsOf(node, spatial, window)],
    type: "s32",
    extents: Object.fromEntries(kernels.map((k, d) => [k, window.kernel[d] ?? 1])),
  });
}

function convInteger(node: Lowering): Value[] {
  const layer = layerOf(node, node.input(0), node.input(1));
  return [convolvedIntegers(node, layer, zeroOf(node, 2), node.optional(3))];
}

/** Inputs x, scale, zero, w, scale, zero, then scale and zero of the output, and a bias in units of both scales. */
function qLinearConv(node: Lowering): Value[] {
  const layer = layerOf(node, node.input(0), node.input(3));
  const sum = convolvedIntegers(node, layer, zeroOf(node, 2), node.optional(5));
  const bias = node.optional(8);
  const biased = bias ? elementwise(node, [sum, along(node, bias, sum, 1)], ([a = "", b = ""]) => `${a} + ${b}`) : sum;
  const weightScale = along(node, node.input(4), sum, 1);
  return [rescaled(node, biased, [node.input(1), weightScale, node.input(6)], node.input(7))];
}

/** s32 in units of two scales, brought to integers in units of a third. */
function rescaled(node: Lowering, sum: Value, [a, b, c]: readonly [Value, Value, Value], zero: Value): Value {
  const scales = [a, b, c].map((scale) => (scale.constant?.length === 1 ? node.reshaped(scale, []) : scale));
  const factor = elementwise(node, scales, ([x = "", y = "", z = ""]) => `${x} * ${y} / ${z}`);
  const scaled = elementwise(node, [sum, factor], ([s = "", f = ""]) => `f32(${s}) * ${f}`, "f32");
  if (zero.type !== "u8" && zero.type !== "s8") return node.refuse(`${zero.type} is not supported; u8 and s8 are`);
  const offset = node.known(7, "a zero point")?.[0] ?? 0;
  return elementwise(node, [scaled], ([x = ""]) => `sat_${zero.type}(round(${x}) + ${offset})`, zero.type);
}

/** Both sides less their zero points. */
function productOfIntegers(node: Lowering, a: Value, b: Value, zeros: readonly [number, number]): Value {
  checkIntegers(node, a, b);
  const less = (x: string, zero: number): string => (zero === 0 ? `s32(${x})` : `(s32(${x}) - ${zero})`);
  return matmul(node, a, b, { factor: (x, y) => `${less(x, zeros[0])} * ${less(y, zeros[1])}`, type: "s32" });
}

function matMulInteger(node: Lowering): Value[] {
  return [productOfIntegers(node, node.input(0), node.input(1), [zeroOf(node, 2), zeroOf(node, 3)])];
}

function qLinearMatMul(node: Lowering): Value[] {
  const sum = productOfIntegers(node, node.input(0), node.input(3), [zeroOf(node, 2), zeroOf(node, 5)]);
  return [rescaled(node, sum, [node.input(1), node.input(4), node.input(6)], node.input(7))];
}

export const QUANTISED: OperatorTable = {
  ConvInteger: { lower: convInteger },
  DequantizeLinear: { lower: dequantizeLinear },
  MatMulInteger: { lower: matMulInteger },
  QLinearConv: { lower: qLinearConv },
  QLinearMatMul: { lower: qLinearMatMul },
  // Saturation is of 8-bit floats, which are not supported.
  QuantizeLinear: { lower: quantizeLinear, harmless: ["saturate"] },
};
