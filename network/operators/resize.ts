/**
 * @file Resizes images: along each axis an output is a weighted sum of a few neighbouring inputs.
 *
 *     Resize, nearest, twice    y[n,c,p,q] = x[n,c,p/2,q]                              then the same along q
 *     Resize, linear            y[n,c,p,q] += weights[p,t] * x[n,c,(p*3-1)/5+t,q]
 *
 * https://onnx.ai/onnx/operators/onnx__Resize.html. An axis' weights are computed when the network is read. The weight
 * of an element beyond the border is added to the border's, or dropped.
 */

import { sumOf } from "../../abstraction/collections.ts";
import { axesOfRank, type Lowering } from "../lowering.ts";
import type { NumberArray } from "../numbers.ts";
import { bracketed, type Value } from "../value.ts";
import { numberText } from "./broadcast.ts";
import { elementwise, wideInput } from "./elementwise.ts";
import { sizesOf } from "./shape.ts";
import type { OperatorTable } from "./table.ts";

const TRANSFORMS = [
  "half_pixel",
  "half_pixel_symmetric",
  "pytorch_half_pixel",
  "align_corners",
  "asymmetric",
  "tf_half_pixel_for_nn",
  "tf_crop_and_resize",
] as const;
/** How a place between two inputs is rounded to one. */
const ROUNDINGS: Readonly<Record<string, (x: number) => number>> = {
  round_prefer_floor: (x) => Math.ceil(x - 0.5),
  round_prefer_ceil: (x) => Math.floor(x + 0.5),
  floor: Math.floor,
  ceil: Math.ceil,
};

/** One axis of a resize. */
interface Resized {
  readonly from: number;
  readonly to: number;
  /** The given scale, or `to / from` if sizes are given. */
  readonly scale: number;
  /** Begin and end of the cropped part, as fractions of the axis. */
  readonly part: readonly [number, number];
}

interface Sampling {
  readonly transform: string;
  readonly mode: string;
  readonly rounding: string;
  /** The cubic's coefficient. */
  readonly a: number;
  readonly excludesOutside: boolean;
}

/** The input coordinate of an output. */
function coordinateOf(p: number, { from, to, scale, part }: Resized, transform: string): number {
  switch (transform) {
    case "align_corners":
      // ONNX's own test cases divide by the scaled length without rounding it down.
      return to === 1 ? 0 : (p * (from - 1)) / (from * scale - 1);
    case "asymmetric":
      // In f32 as ONNX computes it: 6 / 1.2 is 5 there. In f64 the rounded 1.2 would give less.
      return Math.fround(p / Math.fround(scale));
    case "pytorch_half_pixel":
      return to === 1 ? 0 : (p + 0.5) / scale - 0.5;
    case "tf_half_pixel_for_nn":
      return (p + 0.5) / scale;
    case "tf_crop_and_resize":
      return (from - 1) * (to === 1 ? 0.5 * (part[0] + part[1]) : part[0] + (p * (part[1] - part[0])) / (to - 1));
    case "half_pixel_symmetric":
      return (from / 2) * (1 - to / (from * scale)) + (p + 0.5) / scale - 0.5;
    default:
      return (p + 0.5) / scale - 0.5;
  }
}

/** Weights of four neighbours: Keys, Cubic Convolution Interpolation for Digital Image Processing (1981). */
function cubicWeights(r: number, a: number): number[] {
  const near = (x: number): number => (a + 2) * x ** 3 - (a + 3) * x ** 2 + 1;
  const far = (x: number): number => a * x ** 3 - 5 * a * x ** 2 + 8 * a * x - 4 * a;
  return [far(1 + r), near(r), near(1 - r), far(2 - r)];
}

/** The most inputs that contribute to an output, by mode. */
const NEIGHBOURS: Readonly<Record<string, number>> = { nearest: 1, linear: 2, cubic: 4 };

/** The inputs of an axis' outputs: `each` places for every output, with weights. A weight of 0 marks an unused one. */
interface Taps {
  readonly each: number;
  readonly places: NumberArray;
  readonly weights: NumberArray;
}

/** The neighbours of an output with their weights, including those beyond the border. */
function neighboursOf(
  p: number,
  axis: Resized,
  { transform, mode, rounding, a }: Sampling,
): readonly (readonly [place: number, weight: number])[] {
  const x = coordinateOf(p, axis, transform);
  if (mode === "nearest") return [[ROUNDINGS[rounding]?.(x) ?? x, 1]];
  const below = Math.floor(x);
  if (mode === "cubic") return cubicWeights(x - below, a).map((weight, i) => [below - 1 + i, weight] as const);
  return [
    [below, 1 - (x - below)],
    [below + 1, x - below],
  ];
}

/** `node.numbers` counts the memory before it allocates: a few bytes of a file can ask for any number of outputs. */
function tapsOf(node: Lowering, axis: Resized, sampling: Sampling): Taps {
  const each = NEIGHBOURS[sampling.mode] ?? 1;
  const places = node.numbers("s32", axis.to * each);
  const weights = node.numbers("f64", axis.to * each);
  for (let p = 0; p < axis.to; p++) {
    const given = neighboursOf(p, axis, sampling);
    const kept = sampling.excludesOutside ? given.filter(([place]) => place >= 0 && place < axis.from) : given;
    const sum = sampling.excludesOutside ? sumOf(kept, ([, weight]) => weight) : 1;
    let at = p * each;
    for (const [place, weight] of kept) {
      if (weight === 0) continue;
      const within = Math.max(0, Math.min(axis.from - 1, place));
      // Places ascend, so neighbours clamped to the border are adjacent.
      const isSame = at > p * each && places[at - 1] === within;
      if (!isSame) at++;
      places[at - 1] = within;
      weights[at - 1] = (isSame ? (weights[at - 1] ?? 0) : 0) + weight / sum;
    }
  }
  return { each, places, weights };
}

function forEachTap({ each, places, weights }: Taps, visit: (p: number, place: number, weight: number) => void): void {
  for (const [at, weight] of weights.entries()) if (weight !== 0) visit(Math.floor(at / each), places[at] ?? 0, weight);
}

const divisor = (a: number, b: number): number => (b === 0 ? a : divisor(b, a % b));

/** `(p*rise + start) / run`, at or below each output's first place, and the number of places needed from there. */
function windowsOf(taps: Taps, { from, to }: Resized) {
  const by = divisor(from, to);
  const rise = from / by;
  const run = to / by;
  // The largest start that is not above any first place.
  let start = run * from;
  forEachTap(taps, (p, place) => {
    start = Math.min(start, (place + 1) * run - 1 - p * rise);
  });
  let count = 1;
  forEachTap(taps, (p, place) => {
    count = Math.max(count, place - Math.floor((p * rise + start) / run) + 1);
  });
  return { rise, run, start, count };
}

function alongAxis(node: Lowering, x: Value, d: number, axis: Resized, sampling: Sampling): Value {
  const shape = x.shape.with(d, axis.to);
  node.elements(shape);
  const taps = tapsOf(node, axis, sampling);
  const { rise, run, start, count } = windowsOf(taps, axis);
  const axes = axesOfRank(x.shape.length);
  const own = axes[d] ?? "";
  const scaled = `${own}*${rise}${start < 0 ? start : `+${start}`}`;
  const first = run === 1 ? scaled : `(${scaled})/${run}`;
  const at = (place: string): string => `x${bracketed(axes.with(d, place))}`;
  const target = `y${bracketed(axes)}`;
  const values = node.numbers(x.type, axis.to * count);
  forEachTap(taps, (p, place, weight) => {
    values[p * count + place - Math.floor((p * rise + start) / run)] = weight;
  });
  if (count === 1 && values.every((weight) => weight === 1))
    return node.equation(`${target} = ${at(first)}`, { x }, { shape });
  const weights = node.constant({ type: x.type, shape: [axis.to, count], values }, `${x.name}.weights${d}`);
  const weight = `weights[${own},t]`;
  const read = at(`${first}+t`);
  // An output also reads places of weight 0, where an infinity or NaN must not reach it.
  const term = count > taps.each ? `select(${weight} == 0, 0, ${weight} * ${read})` : `${weight} * ${read}`;
  return node.equation(`${target} += ${term}`, { weights, x }, { shape });
}

/** What says how large the result is: either scales or sizes. */
interface Extent {
  readonly part?: ArrayLike<number> | undefined;
  readonly scales: ArrayLike<number> | undefined;
  readonly told?: ArrayLike<number> | undefined;
}

/** The axes of an input that change, from its scales or sizes. */
function axesOf(
  node: Lowering,
  x: Value,
  transform: string,
  { part, scales, told }: Extent,
): readonly (readonly [place: number, axis: Resized])[] {
  const rank = x.shape.length;
  const given = node.opset >= 18 ? node.ints("axes") : undefined;
  const places = given ? node.axes(given, rank) : x.shape.map((_, d) => d);
  const isTold = (told?.length ?? 0) > 0;
  if (isTold === (scales?.length ?? 0) > 0) node.refuse("it takes either scales or sizes");
  const list = Array.from((isTold ? told : scales) ?? []);
  if (list.length !== places.length) node.refuse(`${list.length} numbers for ${places.length} axes`);
  const crops = transform === "tf_crop_and_resize";
  if (crops && part?.length !== 2 * places.length) node.refuse("the part that is kept is missing");
  if (!isTold && !list.every((scale) => scale > 0 && Number.isFinite(scale))) node.refuse("scales must be positive");
  const sizes = sizesOf(
    node,
    // In f32 like ONNX (onnx/defs/tensor/utils.cc): 10 * 0.7 is 7 there. In f64 the rounded 0.7 would give less.
    isTold
      ? list
      : list.map((scale, i) => Math.floor(Math.fround(Math.fround(scale) * (x.shape[places[i] ?? 0] ?? 1)))),
  );
  return places.flatMap((d, i) => {
    const [from = 1, to = 1] = [x.shape[d], sizes[i]];
    if (to < 1) node.refuse(`size ${to} of dimension ${d} has no elements`);
    const kept = [crops ? (part?.[i] ?? 0) : 0, crops ? (part?.[i + places.length] ?? 1) : 1] as const;
    if (!kept.every(Number.isFinite)) node.refuse(`the part that is kept of dimension ${d} is not finite`);
    // ONNX scales the cropped part; other runtimes scale the whole image.
    if (!isTold && (kept[0] !== 0 || kept[1] !== 1))
      node.refuse(`scales of a part of dimension ${d} are not supported; sizes are`);
    const axis = { from, to, scale: isTold ? to / from : (list[i] ?? 1), part: kept };
    const isSame = from === to && axis.scale === 1 && kept[0] === 0 && kept[1] === 1;
    return isSame ? [] : [[d, axis] as const];
  });
}

/**
 * Upsample, and Resize in opset 10: coordinates are divided by the scale. The texts leave the rounding open; this one is ONNX Runtime's, and of
 * ONNX's test cases.
 */
function scaled(node: Lowering, scales: ArrayLike<number> | undefined): Value {
  const x = wideInput(node);
  const mode = node.text("mode", "nearest", ["nearest", "linear"]);
  const sampling = { transform: "asymmetric", mode, a: 0, excludesOutside: false };
  return axesOf(node, x, sampling.transform, { scales }).reduce(
    (value, [d, axis]) => alongAxis(node, value, d, axis, { ...sampling, rounding: axis.scale < 1 ? "ceil" : "floor" }),
    x,
  );
}

/** Gives all places outside the image one value. */
function filledOutside(
  node: Lowering,
  y: Value,
  axes: readonly (readonly [place: number, axis: Resized])[],
  outside: number,
): Value {
  const masks = axes.flatMap(([d, axis]) => {
    const shape = y.shape.map((size, i) => (i === d ? size : 1));
    const isInside = (p: number): number => {
      const x = coordinateOf(p, axis, "tf_crop_and_resize");
      return x >= 0 && x <= axis.from - 1 ? 1 : 0;
    };
    const mask = node.filled("bool", shape, isInside, `${y.name}.inside${d}`);
    return mask.constant?.every((flag) => flag === 1) ? [] : [mask];
  });
  if (masks.length === 0) return y;
  const given = outside < 0 ? `(${numberText(outside)})` : numberText(outside);
  const named = Object.fromEntries(masks.map((mask, i) => [`inside${i}`, mask]));
  const formula = Object.keys(named).reduce((kept, flag) => `select(${flag} != 0, ${kept}, ${given})`, "y");
  return elementwise(node, formula, { y, ...named });
}

export const RESIZING: OperatorTable = {
  Resize(node: Lowering) {
    if (node.opset < 11) return scaled(node, node.known(1, "the list of scales"));
    const x = wideInput(node);
    const transform = node.text("coordinate_transformation_mode", "half_pixel", TRANSFORMS);
    const sampling = {
      transform,
      mode: node.text("mode", "nearest", Object.keys(NEIGHBOURS)),
      rounding: node.text("nearest_mode", "round_prefer_floor", Object.keys(ROUNDINGS)),
      a: node.float("cubic_coeff_a", -0.75),
      excludesOutside: node.flag("exclude_outside"),
    };
    if (sampling.excludesOutside && sampling.mode !== "cubic")
      node.refuse(`exclude_outside is supported with cubic only, and its mode is ${sampling.mode}`);
    if (node.flag("antialias")) node.refuse("antialias is not supported");
    node.text("keep_aspect_ratio_policy", "stretch", ["stretch"]);
    const outside = node.float("extrapolation_value", 0);
    const axes = axesOf(node, x, transform, {
      part: node.known(1, "the part that is kept"),
      scales: node.known(2, "the list of scales"),
      told: node.known(3, "the list of sizes"),
    });
    const y = axes.reduce((value, [d, axis]) => alongAxis(node, value, d, axis, sampling), x);
    return transform === "tf_crop_and_resize" ? filledOutside(node, y, axes, outside) : y;
  },
  Upsample: (node) => scaled(node, node.numbersSince(9, "scales", 1, "the list of scales")),
};
