/**
 * @file Operators that only reshape, make constants, or query sizes. None takes time when the network runs.
 *
 *     Reshape  f32[1,64,7,7] -> f32[1,3136]      the same memory
 */

import { product } from "../../abstraction/collections.ts";
import { isConstant } from "../graph.ts";
import type { Lowering } from "../lowering.ts";
import { NUMBERED_TYPES } from "../numbers.ts";
import { bracketed, elementsOf, type Value } from "../value.ts";
import type { LowerNode, OperatorTable } from "./table.ts";

/** The given list as sizes. Refuses what is not a size. */
export function sizesOf(node: Lowering, given: ArrayLike<number>): number[] {
  const sizes = Array.from(given);
  const strange = sizes.find((size) => !Number.isSafeInteger(size) || size < 0);
  if (strange !== undefined) node.refuse(`${strange} is no size of a dimension`);
  return sizes;
}

/** A matrix whose columns start at an axis. */
export const flattened = (node: Lowering, x: Value, axis: number): Value =>
  node.reshaped(x, [product(x.shape.slice(0, axis)), product(x.shape.slice(axis))]);

const listOf = (node: Lowering): ArrayLike<number> | undefined => node.numbersSince(13, "axes", 1, "the list of axes");

/**
 * A window of samples as a sum of cosines, of which the factor of each is given: 0.5 and -0.5 for Hann's.
 * https://onnx.ai/onnx/operators/onnx__HannWindow.html
 */
const windowOf =
  (factors: readonly number[]): LowerNode =>
  (node) => {
    const [size = Number.NaN] = node.required(0, "the size");
    const number = node.int("output_datatype", 1);
    const type = NUMBERED_TYPES[number] ?? node.refuse(`elements of type ${number} are not supported`);
    const period = !node.flag("periodic", true) ? size - 1 : size;
    return node.filled(type, sizesOf(node, [size]), (place) => {
      const angle = (2 * Math.PI * place) / Math.max(period, 1);
      return factors.reduce((sum, factor, times) => sum + factor * Math.cos(times * angle), 0);
    });
  };

export const SHAPES: OperatorTable = {
  BlackmanWindow: windowOf([0.42, -0.5, 0.08]),
  Constant(node: Lowering) {
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
    return node.constantFrom(type, list, typeof given === "number" ? [] : [list.length]);
  },
  ConstantOfShape(node: Lowering) {
    const given = node.required(0, "the shape");
    const value = node.attribute("value");
    const filling = isConstant(value) ? value : undefined;
    if (filling && filling.values.length !== 1) node.refuse("value must hold one element");
    const type = filling?.type ?? "f32";
    const shape = sizesOf(node, given);
    return node.filled(type, shape, filling?.values[0] ?? 0);
  },
  Dropout(node: Lowering) {
    // The ratio matters in training only.
    node.optional(1);
    if (node.opset >= 12 && node.known(2, "the training mode")?.[0] === 1) node.refuse("training is not supported");
    const x = node.input(0);
    if ((node.node.outputs[1] ?? "") === "") return [x];
    // Inference drops nothing.
    return [x, node.filled("bool", x.shape, 1)];
  },
  Flatten(node: Lowering) {
    const x = node.input(0);
    const rank = x.shape.length;
    const given = node.int("axis", 1);
    return flattened(node, x, given === rank ? rank : node.axis(given, rank));
  },
  HammingWindow: windowOf([25 / 46, -21 / 46]),
  HannWindow: windowOf([0.5, -0.5]),
  Identity: (node) => [node.input(0)],
  /** Coordinates of the nonzero elements, one column each (ONNX NonZero). Their number must be known. */
  NonZero(node: Lowering) {
    const { shape } = node.input(0);
    const elements = node.required(0, "its input");
    const places = [...elements.keys()].filter((place) => elements[place] !== 0);
    const coordinates = shape.flatMap((size, d) => {
      const behind = product(shape.slice(d + 1));
      return places.map((place) => Math.floor(place / behind) % size);
    });
    return node.constantFrom("s64", coordinates, [shape.length, places.length]);
  },
  Range(node: Lowering) {
    const [from, to, step] = [0, 1, 2].map((place) => node.known(place, "a bound")?.[0]);
    const { type } = node.input(0);
    if (from === undefined || to === undefined || step === undefined || step === 0)
      return node.refuse("it takes a start, a limit and a step that is not 0");
    const count = Math.max(Math.ceil((to - from) / step), 0);
    if (!Number.isSafeInteger(count)) node.refuse(`from ${from} to ${to} by ${step} is no range`);
    return node.filled(type, [count], (i) => from + i * step);
  },
  /** 0 keeps the input's size, -1 stands for the rest: https://onnx.ai/onnx/operators/onnx__Reshape.html. */
  Reshape(node: Lowering) {
    const x = node.input(0);
    const given = node.required(1, "the shape");
    const keepsZero = node.flag("allowzero");
    const sizes = Array.from(given, (size, d) =>
      size === 0 && !keepsZero ? (x.shape[d] ?? node.refuse(`size ${d} is kept, and ${x.name} has none`)) : size,
    );
    const open = sizes.flatMap((size, d) => (size === -1 ? [d] : []));
    if (open.length > 1) node.refuse(`${bracketed(sizes)} leaves more than one size open`);
    const [place] = open;
    if (place !== undefined) {
      const others = elementsOf(sizesOf(node, sizes.toSpliced(place, 1)), node.subject);
      const all = node.elements(x.shape);
      if (others === 0 || all % others !== 0) node.refuse(`${all} elements do not fill ${bracketed(sizes)}`);
      sizes[place] = all / others;
    }
    return node.reshaped(x, sizesOf(node, sizes));
  },
  Shape(node: Lowering) {
    const { shape } = node.input(0);
    const clamp = (place: number): number =>
      Math.min(Math.max(place < 0 ? place + shape.length : place, 0), shape.length);
    const sizes = shape.slice(clamp(node.int("start", 0)), clamp(node.int("end", shape.length)));
    return node.constantFrom("s64", sizes);
  },
  Size: (node) => node.constantFrom("s64", [node.elements(node.input(0).shape)], []),
  Squeeze(node: Lowering) {
    const x = node.input(0);
    const given = listOf(node);
    const axes = given ? node.axes(given, x.shape.length) : x.shape.flatMap((size, d) => (size === 1 ? [d] : []));
    const wide = axes.find((d) => x.shape[d] !== 1);
    if (wide !== undefined) node.refuse(`axis ${wide} has ${x.shape[wide]} elements and cannot be left out`);
    return node.reshaped(
      x,
      x.shape.filter((_, d) => !axes.includes(d)),
    );
  },
  Unsqueeze(node: Lowering) {
    const x = node.input(0);
    const given = listOf(node) ?? node.refuse("the list of axes is missing");
    const rank = x.shape.length + given.length;
    const axes = node.axes(given, rank);
    const rest = [...x.shape];
    return node.reshaped(
      x,
      Array.from({ length: rank }, (_, d) => (axes.includes(d) ? 1 : (rest.shift() ?? 1))),
    );
  },
};
