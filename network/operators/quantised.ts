/**
 * @file Quantised operators: integers with a scale and a zero point.
 *
 *     QLinearConv         out[n,k,p,q] += s32(in[..]) * s32(w[..])
 *                         y = sat_u8(round(f32(out + c[k]) * scale[k]) + y_zero)
 *     DequantizeLinear    y[i0] = f32(s32(x[i0]) - zero) * scale        some readers take the integers (dequantised.ts)
 */

import { product } from "../../abstraction/collections.ts";
import { internal } from "../../abstraction/error.ts";
import type { Lowering } from "../lowering.ts";
import { NUMBERED_TYPES } from "../numbers.ts";
import { bracketed, type Quantised, type Value } from "../value.ts";
import { numberText } from "./broadcast.ts";
import { layerOf } from "./convolution.ts";
import { elementwise } from "./elementwise.ts";
import { along, convolvedIntegers, multipliedIntegers } from "./integer-sums.ts";
import { reduced } from "./reduction.ts";
import type { OperatorTable } from "./table.ts";

function axisOf(node: Lowering, x: Value): number {
  const rank = x.shape.length;
  const given = node.int("axis", rank > 1 ? 1 : 0);
  return rank === 0 ? 0 : node.axis(given, rank);
}

/** Whether both scales are the same known positive number, and the zero points are equal. */
export function isSameScale(a: Pick<Quantised, "scale" | "zero">, b: Pick<Quantised, "scale" | "zero">): boolean {
  const first = a.scale.constant;
  const second = b.scale.constant;
  if (first?.length !== 1 || second?.length !== 1 || !((first[0] ?? 0) > 0) || first[0] !== second[0]) return false;
  const zeroOf = (zero: Value | undefined): number | undefined =>
    zero === undefined ? 0 : zero.constant?.length === 1 ? zero.constant[0] : undefined;
  return zeroOf(a.zero) !== undefined && zeroOf(a.zero) === zeroOf(b.zero);
}

/** A zero point that is not known to be 0. */
export const shiftOf = (zero: Value | undefined): Value | undefined =>
  zero?.constant?.length === 1 && zero.constant[0] === 0 ? undefined : zero;

/** The quantised type: the zero point's, or since opset 21 an attribute's; default u8. */
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

/** Quantises f32: rounds to nearest even and clamps. */
function quantised(node: Lowering, x: Value, scale: Value, zero: Value | undefined): Value {
  const type = quantisedType(node, zero);
  const shift = shiftOf(zero);
  const shifted = shift ? " + f32(shift)" : "";
  return elementwise(node, `sat_${type}(round(x / scale)${shifted})`, { x, scale, ...(shift && { shift }) }, type);
}

/** The numbers behind the integers. Their readers may use the integers instead. */
export function dequantised(node: Lowering, shown: Quantised): Value {
  const { stored, scale, zero, axis = 0 } = shown;
  const factor = along(node, scale, stored, axis);
  const shift = shiftOf(zero && along(node, zero, stored, axis));
  const numbers =
    knownNumbers(node, shown) ??
    (shift
      ? elementwise(node, "f32(s32(stored) - s32(shift)) * factor", { stored, factor, shift }, "f32")
      : elementwise(node, "f32(stored) * factor", { stored, factor }, "f32"));
  return node.shows(numbers, shown);
}

/** Known weights are dequantised here: they are millions of numbers, too many for the interpreter. */
function knownNumbers(node: Lowering, { stored, scale, zero, axis = 0 }: Quantised): Value | undefined {
  const { constant, shape } = stored;
  const by = scale.constant;
  const from = zero ? zero.constant : [0];
  if (!constant || !by || !from) return undefined;
  const inner = product(shape.slice(axis + 1));
  const values = node.numbers("f32", constant.length);
  for (let i = 0; i < values.length; i++) {
    const place = Math.floor(i / inner);
    values[i] = ((constant[i] ?? 0) - (from[place % from.length] ?? 0)) * (by[place % by.length] ?? 0);
  }
  return node.constant({ type: "f32", shape, values });
}

/** A zero point: one number, or a list where the operator takes one. */
function zeroAt(node: Lowering, place: number, x: Value): Value | undefined {
  const zero = node.optional(place);
  if (zero && zero.type !== x.type) node.refuse(`${x.type} and a zero point of ${zero.type} do not go together`);
  return zero;
}

/** A factor for `x`: one number; with an axis also a list along it, or a tensor of `x`'s rank with 1 across it. */
function laid(node: Lowering, list: Value, x: Value, axis?: number): Value {
  if (list.shape.every((size) => size === 1)) return node.reshaped(list, []);
  const of = `${list.name} of ${bracketed(list.shape)}`;
  if (axis === undefined) return node.refuse(`${of} is not supported; one number is`);
  if (list.shape.length === 1) return along(node, list, x, axis);
  const rank = x.shape.length;
  const fits = list.shape.every((size, d) => size === x.shape[d] || (size === 1 && d !== axis));
  if (list.shape.length !== rank || !fits || list.shape.some((size, d) => d >= rank - 2 && d !== axis && size !== 1))
    node.refuse(`${of} is not laid along axis ${axis} of ${bracketed(x.shape)}`);
  return list;
}

/** Rescales s32 from units of two scales to integers in units of a third. All already spread over the sum. */
function rescaled(node: Lowering, sum: Value, scales: readonly [Value, Value, Value], zero: Value): Value {
  const [x, y, z] = scales;
  const factor = elementwise(node, "x * y / z", { x, y, z });
  const scaled = elementwise(node, "f32(sum) * factor", { sum, factor }, "f32");
  if (zero.type !== "u8" && zero.type !== "s8") return node.refuse(`${zero.type} is not supported; u8 and s8 are`);
  const offsets = node.known(7, "a zero point") ?? [];
  const [offset = 0] = offsets;
  const isList = offsets.length > 1;
  const shift = isList ? " + f32(zero)" : offset === 0 ? "" : ` + ${numberText(offset)}`;
  return elementwise(node, `sat_${zero.type}(round(scaled)${shift})`, { scaled, ...(isList && { zero }) }, zero.type);
}

export const QUANTISED: OperatorTable = {
  ConvInteger(node: Lowering) {
    const layer = layerOf(node, node.input(0), node.input(1));
    return convolvedIntegers(node, layer, { x: zeroAt(node, 2, layer.x), w: zeroAt(node, 3, layer.w) });
  },
  DequantizeLinear(node: Lowering) {
    const x = node.input(0);
    const scale = node.input(1);
    if (!["u8", "s8", "s32"].includes(x.type) || scale.type !== "f32")
      node.refuse(`${x.type} by ${scale.type} is not supported`);
    const zero = zeroAt(node, 2, x);
    if (node.flag("block_size")) node.refuse("block_size is not supported");
    const axis = axisOf(node, x);
    const isOne = along(node, scale, x, axis).shape.length === 0;
    const flat = (value: Value): Value => (isOne ? node.reshaped(value, []) : value);
    return dequantised(node, { stored: x, scale: flat(scale), zero: zero && flat(zero), ...(isOne ? {} : { axis }) });
  },
  /** Derives scale and zero point from the input's whole range, 0 included. Outputs y, scale, zero. */
  DynamicQuantizeLinear(node: Lowering) {
    const x = node.input(0);
    if (x.type !== "f32") node.refuse(`${x.type} is not supported; f32 is`);
    const all = x.shape.map((_, d) => d);
    const [most, least] = (["max=", "min="] as const).map((op) =>
      node.reshaped(reduced(node, x, all, { op, keepsAxes: false }), []),
    );
    if (!most || !least) internal("two reductions were asked for");
    const scale = elementwise(node, "(max(most, 0) - min(least, 0)) / 255", { most, least });
    const zero = elementwise(node, "sat_u8(round(0 - min(least, 0) / scale))", { least, scale }, "u8");
    return [quantised(node, x, scale, zero), scale, zero];
  },
  MatMulInteger(node: Lowering) {
    const a = node.input(0);
    const b = node.input(1);
    return multipliedIntegers(node, [a, b], { a: zeroAt(node, 2, a), b: zeroAt(node, 3, b) });
  },
  /** Inputs: x, scale, zero; w, scale, zero; the output's scale and zero; a bias in units of x scale * w scale. */
  QLinearConv(node: Lowering) {
    const layer = layerOf(node, node.input(0), node.input(3));
    const zeros = { x: zeroAt(node, 2, layer.x), w: zeroAt(node, 5, layer.w) };
    const sum = convolvedIntegers(node, layer, zeros, node.optional(8));
    const weightScale = along(node, node.input(4), sum, 1);
    const one = (place: number): Value => laid(node, node.input(place), sum);
    return rescaled(node, sum, [one(1), weightScale, one(6)], one(7));
  },
  QLinearMatMul(node: Lowering) {
    const a = node.input(0);
    const b = node.input(3);
    const sum = multipliedIntegers(node, [a, b], { a: zeroAt(node, 2, a), b: zeroAt(node, 5, b) });
    const rank = sum.shape.length;
    const columns = b.shape.length > 1 ? rank - 1 : undefined;
    const rows = a.shape.length > 1 ? (columns ?? rank) - 1 : undefined;
    const at = (place: number, axis: number | undefined): Value => laid(node, node.input(place), sum, axis);
    return rescaled(node, sum, [at(1, rows), at(4, columns), at(6, rows)], at(7, rows));
  },
  QuantizeLinear(node: Lowering) {
    const x = node.input(0);
    const scale = node.input(1);
    const zero = node.optional(2);
    if (x.type !== "f32" || scale.type !== "f32") node.refuse(`${x.type} over ${scale.type} is not supported; f32 is`);
    if (node.flag("block_size")) node.refuse("block_size is not supported");
    const axis = axisOf(node, x);
    const type = quantisedType(node, zero);
    const shown = node.quantised(x);
    // Dequantised and quantised again by the same scale: the integers return, since rounding removes the products' error.
    if (shown && shown.stored.type === type && isSameScale(shown, { scale, zero })) return shown.stored;
    return quantised(node, x, along(node, scale, x, axis), zero && along(node, zero, x, axis));
  },
};
