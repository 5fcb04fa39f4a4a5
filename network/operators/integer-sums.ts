/**
 * @file Sums of products of integers minus their zero points, as in quantised convolutions and matrix products.
 *
 *     sum (in - z) * w    =    sum in * w  -  z * sum w     out[n,k,p,q] += s32(in[..]) * s32(w[..]),  y = out + c[k]
 *
 * Instructions multiply u8 by s8. Weights that fit s8 after subtracting their zero points are stored that way. A left
 * s8 becomes u8 by adding 128 to it and to its zero point. Padding is 0 in the notation but the zero point in ONNX;
 * where these differ, a separate step pads the image.
 */

import { parseDataTypes } from "../../operators/data-types.ts";
import { axesOfRank, type Lowering } from "../lowering.ts";
import { bracketed, type Value } from "../value.ts";
import { convolved, type Layer, layerOfTable, rowOf } from "./convolution.ts";
import { elementwise } from "./elementwise.ts";
import { matmul } from "./product.ts";
import { reduced } from "./reduction.ts";

/** The offset from s8 to u8. */
const SHIFT = 128;

/** A list along one axis of `x`, or a single number. */
export function along(node: Lowering, list: Value, x: Value, axis: number): Value {
  if (list.shape.length === 0 || (list.shape.length === 1 && list.shape[0] === 1)) return node.reshaped(list, []);
  const size = x.shape[axis];
  if (list.shape.length !== 1 || list.shape[0] !== size)
    node.refuse(`${list.name} of ${bracketed(list.shape)} for ${size} elements of axis ${axis}`);
  return node.reshaped(
    list,
    x.shape.slice(axis).map((n, d) => (d === 0 ? n : 1)),
  );
}

function checkIntegers(node: Lowering, ...values: readonly Value[]): void {
  for (const { name, type } of values)
    if (type !== "u8" && type !== "s8") node.refuse(`${name} holds ${type}; u8 and s8 are supported`);
}

const isZero = (zero: Value | undefined): boolean => zero?.constant?.every((z) => z === 0) ?? zero === undefined;

const wide = (node: Lowering, x: Value): Value => (x.type === "s32" ? x : elementwise(node, "s32(x)", { x }, "s32"));

/** The value minus one zero point, or one for each place of an axis: in s8 if all is known and fits, else in s32. */
function lessZero(node: Lowering, x: Value, zero: Value | undefined, axis: number): Value {
  if (!zero || isZero(zero)) return x;
  const less = elementwise(node, "s32(x) - s32(z)", { x, z: along(node, zero, x, axis) }, "s32");
  const { constant, shape } = less;
  if (!constant?.every((value) => value >= -SHIFT && value < SHIFT)) return less;
  return node.constantFrom("s8", constant, shape, `${x.name}.less`);
}

interface Factor {
  readonly x: Value;
  readonly zero: Value | undefined;
}

/** An s8 factor beside another s8 factor becomes u8, with a zero point 128 larger. */
function unsigned(node: Lowering, { x, zero }: Factor, other: Value): Factor {
  if (x.type !== "s8" || other.type !== "s8" || x.constant || (zero && !zero.constant)) return { x, zero };
  const shifted = elementwise(node, `u8(s32(x) + ${SHIFT})`, { x }, "u8");
  const zeros = Array.from(zero?.constant ?? [0], (z) => z + SHIFT);
  return { x: shifted, zero: node.constantFrom("s32", zeros, [], `${x.name}.zero`) };
}

/** The sum without the zero point's share. @param sums of the other factor, broadcast over the product */
function corrected(node: Lowering, sum: Value, zero: Value | undefined, sums: () => Value, bias?: Value): Value {
  const taken = zero && !isZero(zero) ? elementwise(node, "0 - s32(zero) * s", { s: sums(), zero }, "s32") : undefined;
  const added = taken && bias ? elementwise(node, "taken + bias", { taken, bias }, "s32") : (taken ?? bias);
  return added ? elementwise(node, "sum + added", { sum, added }, "s32") : sum;
}

const product = (a: Value, b: Value) => (x: string, y: string) =>
  `${a.type === "s32" ? x : `s32(${x})`} * ${b.type === "s32" ? y : `s32(${y})`}`;

/**
 * A convolution in s32.
 * @param zeros one number for the images; one number, or one for each filter, for the weights
 * @param bias s32, one for each filter
 */
export function convolvedIntegers(
  node: Lowering,
  layer: Layer,
  zeros: { readonly x: Value | undefined; readonly w: Value | undefined },
  bias?: Value,
): Value {
  checkIntegers(node, layer.x, layer.w);
  if (zeros.x?.shape.some((size) => size !== 1)) node.refuse("a zero point for each image is not supported");
  const w = lessZero(node, layer.w, zeros.w, 0);
  const { x, zero } = unsigned(node, { x: layer.x, zero: zeros.x && node.reshaped(zeros.x, []) }, w);
  const inner = isZero(zero) || !zero ? { ...layer, x, w } : padded(node, { ...layer, x, w }, zero);
  const row = x.type === "u8" && w.type === "s8" && w.constant ? rowOf(inner) : undefined;
  const sum = row
    ? layerOfTable(node, inner, row, parseDataTypes("u8s8"))
    : convolved(node, inner, product(x, w), "s32");
  const [filters = 1, ...rest] = w.shape;
  const spread = rest.slice(1).map(() => 1);
  const sums = (): Value =>
    node.reshaped(
      reduced(
        node,
        wide(node, w),
        rest.map((_, d) => d + 1),
        { op: "+=" },
      ),
      [filters, ...spread],
    );
  return corrected(node, sum, zero, sums, bias && along(node, bias, sum, 1));
}

/** The layer on images that already contain their padding. */
function padded(node: Lowering, layer: Layer, zero: Value): Layer {
  const { x, window } = layer;
  if (window.every(({ begin, end }) => begin === 0 && end === 0)) return layer;
  const axes = axesOfRank(x.shape.length);
  const inside = window.flatMap(({ size, begin, end }, d) => {
    const name = axes[d + 2];
    return [...(begin > 0 ? [`${name} >= ${begin}`] : []), ...(end > 0 ? [`${name} < ${begin + size}`] : [])];
  });
  const at = axes.map((name, d) => ((window[d - 2]?.begin ?? 0) > 0 ? `${name}-${window[d - 2]?.begin}` : name));
  const whole = window.map((slide) => ({ ...slide, size: slide.begin + slide.size + slide.end, begin: 0, end: 0 }));
  const [known] = zero.constant ?? [];
  const image = node.equation(
    `y${bracketed(axes)} = select(${inside.join(" and ")}, x${bracketed(at)}, ${known ?? "z[]"})`,
    { x, ...(known === undefined && { z: zero }) },
    { shape: [...x.shape.slice(0, 2), ...whole.map(({ size }) => size)] },
  );
  return { ...layer, x: image, window: whole };
}

/**
 * A matrix product in s32. @param zeros left: one number, or one for each row; right: one, or one for each column
 * @param bias s32, one for each column
 */
export function multipliedIntegers(
  node: Lowering,
  [a, b]: readonly [Value, Value],
  zeros: { readonly a: Value | undefined; readonly b: Value | undefined },
  bias?: Value,
): Value {
  checkIntegers(node, a, b);
  const right = lessZero(node, b, zeros.b, b.shape.length - 1);
  const hasOneZero = zeros.a?.shape.every((size) => size === 1) ?? true;
  const matrix = right.constant !== undefined && right.shape.length === 2;
  if (!matrix || !hasOneZero) {
    const left = lessZero(node, a, zeros.a, Math.max(0, a.shape.length - 2));
    const sum = matmul(node, left, right, { factor: product(left, right), type: "s32" });
    return bias ? elementwise(node, "sum + bias", { sum, bias }) : sum;
  }
  const { x, zero } = unsigned(node, { x: a, zero: zeros.a && node.reshaped(zeros.a, []) }, right);
  const sum = matmul(node, x, right, { factor: product(x, right), type: "s32" });
  return corrected(node, sum, zero, () => reduced(node, wide(node, right), [0], { op: "+=", keepsAxes: false }), bias);
}
