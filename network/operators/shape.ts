/**
 * @file Operators that only reshape, make constants, or query sizes. None takes time when the network runs.
 *
 *     Reshape  f32[1,64,7,7] -> f32[1,3136]      the same memory
 */

import { product } from "../../abstraction/collections.ts";
import { isConstant } from "../graph.ts";
import type { Lowering } from "../lowering.ts";
import { bracketed, elementsOf, type Value } from "../value.ts";
import { NUMBERED_TYPES } from "./elementwise.ts";
import type { LowerNode, OperatorTable } from "./table.ts";

/** The given list as sizes. Refuses what is not a size. */
export function sizesOf(node: Lowering, given: ArrayLike<number>): number[] {
  const sizes = Array.from(given);
  const strange = sizes.find((size) => !Number.isSafeInteger(size) || size < 0);
  if (strange !== undefined) node.refuse(`${strange} is no size of a dimension`);
  return sizes;
}

/** 0 keeps the input's size, -1 stands for the rest: https://onnx.ai/onnx/operators/onnx__Reshape.html. */
function reshape(node: Lowering): Value {
  const x = node.input(0);
  const given = node.known(1, "the shape") ?? node.refuse("the shape is missing");
  const keepsZero = node.int("allowzero", 0) !== 0;
  const sizes = Array.from(given, (size, d) =>
    size === 0 && !keepsZero ? (x.shape[d] ?? node.refuse(`size ${d} is kept, and ${x.name} has none`)) : size,
  );
  const open = sizes.flatMap((size, d) => (size === -1 ? [d] : []));
  if (open.length > 1) node.refuse(`${bracketed(sizes)} leaves more than one size open`);
  const [place] = open;
  if (place !== undefined) {
    const others = elementsOf(sizesOf(node, sizes.toSpliced(place, 1)), node.subject);
    const all = elementsOf(x.shape, node.subject);
    if (others === 0 || all % others !== 0) node.refuse(`${all} elements do not fill ${bracketed(sizes)}`);
    sizes[place] = all / others;
  }
  return node.reshaped(x, sizesOf(node, sizes));
}

function flatten(node: Lowering): Value {
  const x = node.input(0);
  const rank = x.shape.length;
  const given = node.int("axis", 1);
  const axis = given === rank ? rank : node.axis(given, rank);
  return flattened(node, x, axis);
}

/** A matrix whose columns start at an axis. */
export const flattened = (node: Lowering, x: Value, axis: number): Value =>
  node.reshaped(x, [product(x.shape.slice(0, axis)), product(x.shape.slice(axis))]);

const listOf = (node: Lowering): ArrayLike<number> | undefined => node.numbersSince(13, "axes", 1, "the list of axes");

function squeeze(node: Lowering): Value {
  const x = node.input(0);
  const given = listOf(node);
  const axes = given ? node.axes(given, x.shape.length) : x.shape.flatMap((size, d) => (size === 1 ? [d] : []));
  const wide = axes.find((d) => x.shape[d] !== 1);
  if (wide !== undefined) node.refuse(`axis ${wide} has ${x.shape[wide]} elements and cannot be left out`);
  return node.reshaped(
    x,
    x.shape.filter((_, d) => !axes.includes(d)),
  );
}

function unsqueeze(node: Lowering): Value {
  const x = node.input(0);
  const given = listOf(node) ?? node.refuse("the list of axes is missing");
  const rank = x.shape.length + given.length;
  const axes = node.axes(given, rank);
  const rest = [...x.shape];
  return node.reshaped(
    x,
    Array.from({ length: rank }, (_, d) => (axes.includes(d) ? 1 : (rest.shift() ?? 1))),
  );
}

function dropout(node: Lowering): (Value | undefined)[] {
  // The ratio matters in training only.
  node.optional(1);
  if (node.opset >= 12 && node.known(2, "the training mode")?.[0] === 1) node.refuse("training is not supported");
  const x = node.input(0);
  if ((node.node.outputs[1] ?? "") === "") return [x];
  // Inference drops nothing.
  const kept = node.numbers("bool", elementsOf(x.shape, node.subject)).fill(1);
  return [x, node.constant({ type: "bool", shape: x.shape, values: kept })];
}

function constant(node: Lowering): Value {
  const value = node.attribute("value");
  const [value_int, value_ints] = [node.attribute("value_int"), node.attribute("value_ints")];
  const [value_float, value_floats] = [node.attribute("value_float"), node.attribute("value_floats")];
  if (isConstant(value)) return node.constant(value);
  const whole = value_int ?? value_ints;
  const given = whole ?? value_float ?? value_floats;
  const list = typeof given === "number" ? [given] : Array.isArray(given) ? given : undefined;
  if (!list?.every((x) => typeof x === "number"))
    return node.refuse("it holds neither a tensor of numbers nor numbers");
  const type = whole === undefined ? "f32" : "s64";
  return node.constant({
    type,
    shape: typeof given === "number" ? [] : [list.length],
    values: node.numbersFrom(type, list),
  });
}

function constantOfShape(node: Lowering): Value {
  const given = node.known(0, "the shape") ?? node.refuse("the shape is missing");
  const value = node.attribute("value");
  const filling = isConstant(value) ? value : undefined;
  if (filling && filling.values.length !== 1) node.refuse("value must hold one element");
  const type = filling?.type ?? "f32";
  const shape = sizesOf(node, given);
  const values = node.numbers(type, elementsOf(shape, node.subject)).fill(filling?.values[0] ?? 0);
  return node.constant({ type, shape, values });
}

function shapeOf(node: Lowering): Value {
  const { shape } = node.input(0);
  const clamp = (place: number): number =>
    Math.min(Math.max(place < 0 ? place + shape.length : place, 0), shape.length);
  const sizes = shape.slice(clamp(node.int("start", 0)), clamp(node.int("end", shape.length)));
  return node.constant({ type: "s64", shape: [sizes.length], values: node.numbersFrom("s64", sizes) });
}

function size(node: Lowering): Value {
  const all = elementsOf(node.input(0).shape, node.subject);
  return node.constant({ type: "s64", shape: [], values: node.numbersFrom("s64", [all]) });
}

function range(node: Lowering): Value {
  const [from, to, step] = [0, 1, 2].map((place) => node.known(place, "a bound")?.[0]);
  const { type } = node.input(0);
  if (from === undefined || to === undefined || step === undefined || step === 0)
    return node.refuse("it takes a start, a limit and a step that is not 0");
  const count = Math.max(Math.ceil((to - from) / step), 0);
  if (!Number.isSafeInteger(count)) node.refuse(`from ${from} to ${to} by ${step} is no range`);
  const values = node.numbers(type, elementsOf([count], node.subject));
  for (let i = 0; i < count; i++) values[i] = from + i * step;
  return node.constant({ type, shape: [count], values });
}

/**
 * A window of samples as a sum of cosines, of which the factor of each is given: 0.5 and -0.5 for Hann's.
 * https://onnx.ai/onnx/operators/onnx__HannWindow.html
 */
const windowOf =
  (factors: readonly number[]): LowerNode =>
  (node) => {
    const size = node.known(0, "the size")?.[0] ?? node.refuse("the size is missing");
    const number = node.int("output_datatype", 1);
    const type = NUMBERED_TYPES[number] ?? node.refuse(`elements of type ${number} are not supported`);
    const values = node.numbers(type, elementsOf(sizesOf(node, [size]), node.subject));
    const period = node.int("periodic", 1) === 0 ? size - 1 : size;
    for (let i = 0; i < size; i++) {
      const angle = (2 * Math.PI * i) / Math.max(period, 1);
      values[i] = factors.reduce((sum, factor, times) => sum + factor * Math.cos(times * angle), 0);
    }
    return node.constant({ type, shape: [size], values });
  };

/** Coordinates of the nonzero elements, one column each (ONNX NonZero). Their number must be known. */
function nonZero(node: Lowering): Value {
  const { shape } = node.input(0);
  const elements = node.known(0, "its input") ?? node.refuse("its input is missing");
  let count = 0;
  for (let i = 0; i < elements.length; i++) if (elements[i] !== 0) count++;
  const values = node.numbers("s64", shape.length * count);
  let found = 0;
  for (let place = 0; place < elements.length; place++) {
    if (elements[place] === 0) continue;
    let behind = 1;
    for (const [d, size] of [...shape.entries()].reverse()) {
      values[d * count + found] = Math.floor(place / behind) % size;
      behind *= size;
    }
    found++;
  }
  return node.constant({ type: "s64", shape: [shape.length, count], values });
}

export const SHAPES: OperatorTable = {
  BlackmanWindow: windowOf([0.42, -0.5, 0.08]),
  Constant: constant,
  ConstantOfShape: constantOfShape,
  Dropout: dropout,
  Flatten: flatten,
  HammingWindow: windowOf([25 / 46, -21 / 46]),
  HannWindow: windowOf([0.5, -0.5]),
  Identity: (node) => [node.input(0)],
  NonZero: nonZero,
  Range: range,
  Reshape: reshape,
  Shape: shapeOf,
  Size: size,
  Squeeze: squeeze,
  Unsqueeze: unsqueeze,
};
