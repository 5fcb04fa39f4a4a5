/**
 * @file Resizes images: along each axis an output is a weighted sum of a few neighbouring inputs.
 *
 *     Resize, nearest, twice    y[n,c,p,q] = x[n,c,p/2,q]                              then the same along q
 *     Resize, linear            y[n,c,p,q] += weights[p,t] * x[n,c,(p*3-1)/5+t,q]
 *
 * https://onnx.ai/onnx/operators/onnx__Resize.html. The weights of an axis are computed when the network is read, in every mode. The weight of
 * an element beyond the border is added to that of the border, or left out.
 */

import { axesOfRank, type Lowering } from "../lowering.ts";
import type { Value } from "../value.ts";
import { numberText } from "./broadcast.ts";
import { elementwise } from "./elementwise.ts";
import { sizesOf } from "./shape.ts";
import type { OperatorTable } from "./table.ts";

const TRANSFORMS = [
  ...["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"],
  ...["tf_half_pixel_for_nn", "tf_crop_and_resize"],
] as const;
const MODES = ["nearest", "linear", "cubic"] as const;
const ROUNDINGS = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"] as const;

/** One axis of a resize. */
interface Resized {
  readonly from: number;
  readonly to: number;
  /** As it is told; `to / from` where sizes are. */
  readonly scale: number;
  /** Where the part that is kept begins and ends, as shares of the axis. */
  readonly part: readonly [number, number];
}

interface Sampling {
  readonly transform: string;
  readonly mode: string;
  readonly rounding: string;
  /** The parameter of the cubic. */
  readonly a: number;
  readonly excludesOutside: boolean;
}

/** The input coordinate of an output. */
function coordinateOf(p: number, { from, to, scale, part }: Resized, transform: string): number {
  switch (transform) {
    case "align_corners":
      // ONNX's own cases divide by the length that the scale gives, not by the whole part of it.
      return to === 1 ? 0 : (p * (from - 1)) / (from * scale - 1);
    case "asymmetric":
      return p / scale;
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

function nearestTo(x: number, rounding: string): number {
  switch (rounding) {
    case "floor":
      return Math.floor(x);
    case "ceil":
      return Math.ceil(x);
    case "round_prefer_ceil":
      return Math.floor(x + 0.5);
    default:
      return Math.ceil(x - 0.5);
  }
}

/** Weights of the four neighbours of a place: Keys, Cubic Convolution Interpolation for Digital Image Processing (1981). */
function cubicWeights(r: number, a: number): number[] {
  const near = (x: number): number => (a + 2) * x ** 3 - (a + 3) * x ** 2 + 1;
  const far = (x: number): number => a * x ** 3 - 5 * a * x ** 2 + 8 * a * x - 4 * a;
  return [far(1 + r), near(r), near(1 - r), far(2 - r)];
}

/** What an output is made of: weights by the place of the input. */
function tapsOf(
  p: number,
  axis: Resized,
  { transform, mode, rounding, a, excludesOutside }: Sampling,
): Map<number, number> {
  const x = coordinateOf(p, axis, transform);
  const below = Math.floor(x);
  const given: readonly (readonly [place: number, weight: number])[] =
    mode === "nearest"
      ? [[nearestTo(x, rounding), 1]]
      : mode === "linear"
        ? [
            [below, 1 - (x - below)],
            [below + 1, x - below],
          ]
        : cubicWeights(x - below, a).map((weight, i) => [below - 1 + i, weight] as const);
  const isInside = ([place]: readonly [number, number]): boolean => place >= 0 && place < axis.from;
  const kept = excludesOutside ? given.filter(isInside) : given;
  const sum = excludesOutside ? kept.reduce((all, [, weight]) => all + weight, 0) : 1;
  const taps = new Map<number, number>();
  for (const [place, weight] of kept) {
    const within = Math.max(0, Math.min(axis.from - 1, place));
    if (weight !== 0) taps.set(within, (taps.get(within) ?? 0) + weight / sum);
  }
  return taps;
}

const divisor = (a: number, b: number): number => (b === 0 ? a : divisor(b, a % b));

/** A formula `(p*rise + start) / run` at or below the first place of every output, and how many places from it each needs. */
function windowsOf(taps: readonly ReadonlyMap<number, number>[], { from, to }: Resized) {
  const by = divisor(from, to);
  const [rise, run] = [from / by, to / by];
  const places = taps.map((each) => [...each.keys()]);
  const reach = (start: number): { readonly below: boolean; readonly count: number } => {
    let [below, count] = [true, 1];
    for (const [p, list] of places.entries()) {
      const first = Math.floor((p * rise + start) / run);
      for (const place of list) {
        below &&= place >= first;
        count = Math.max(count, place - first + 1);
      }
    }
    return { below, count };
  };
  // The latest start that lies below all.
  const least = Math.min(
    ...places.flatMap((list, p) => list.map((place) => (place + 1) * run - 1 - p * rise)),
    run * from,
  );
  return { rise, run, start: least, count: reach(least).count };
}

function alongAxis(node: Lowering, x: Value, d: number, axis: Resized, sampling: Sampling): Value {
  const taps = Array.from({ length: axis.to }, (_, p) => tapsOf(p, axis, sampling));
  const { rise, run, start, count } = windowsOf(taps, axis);
  const axes = axesOfRank(x.shape.length);
  const own = axes[d] ?? "";
  const scaled = `${own}*${rise}${start < 0 ? start : `+${start}`}`;
  const first = run === 1 ? scaled : `(${scaled})/${run}`;
  const shape = x.shape.map((size, i) => (i === d ? axis.to : size));
  const at = (place: string): string => `x[${axes.map((name, i) => (i === d ? place : name)).join(",")}]`;
  const target = `y[${axes.join(",")}]`;
  const isMove = count === 1 && taps.every((each) => each.size === 1 && [...each.values()][0] === 1);
  if (isMove) return node.equation(`${target} = ${at(first)}`, { reads: { x }, shape, type: x.type });
  const values = node.numbers(x.type, axis.to * count);
  for (const [p, each] of taps.entries()) {
    const base = Math.floor((p * rise + start) / run);
    for (const [place, weight] of each) values[p * count + place - base] = weight;
  }
  const weights = node.constant({ type: x.type, shape: [axis.to, count], values }, `${x.name}.weights${d}`);
  return node.equation(`${target} += weights[${own},t] * ${at(`${first}+t`)}`, {
    ...{ reads: { weights, x }, shape, type: x.type },
    extents: { t: count },
  });
}

/** The axes of an input that change, by its own list of scales or sizes. */
function axesOf(node: Lowering, x: Value, transform: string): readonly (readonly [place: number, axis: Resized])[] {
  const rank = x.shape.length;
  const given = node.opset >= 18 ? node.ints("axes") : undefined;
  const places = given ? node.axes(given, rank) : x.shape.map((_, d) => d);
  const [part, scales, told] = [
    node.known(1, "the part that is kept"),
    node.known(2, "the list of scales"),
    node.known(3, "the list of sizes"),
  ];
  const isTold = (told?.length ?? 0) > 0;
  if (isTold === (scales?.length ?? 0) > 0) node.refuse("it takes either scales or sizes");
  const list = Array.from((isTold ? told : scales) ?? []);
  if (list.length !== places.length) node.refuse(`${list.length} numbers for ${places.length} axes`);
  const crops = transform === "tf_crop_and_resize";
  if (crops && part?.length !== 2 * places.length) node.refuse("the part that is kept is missing");
  if (!isTold && !list.every((scale) => scale > 0 && Number.isFinite(scale))) node.refuse("scales must be positive");
  const sizes = sizesOf(
    node,
    isTold ? list : list.map((scale, i) => Math.floor(scale * (x.shape[places[i] ?? 0] ?? 1))),
  );
  return places.flatMap((d, i) => {
    const [from = 1, to = 1] = [x.shape[d], sizes[i]];
    if (to < 1) node.refuse(`size ${to} of dimension ${d} has no elements`);
    const kept = [crops ? (part?.[i] ?? 0) : 0, crops ? (part?.[i + places.length] ?? 1) : 1] as const;
    const axis = { from, to, scale: isTold ? to / from : (list[i] ?? 1), part: kept };
    const isSame = from === to && axis.scale === 1 && kept[0] === 0 && kept[1] === 1;
    return isSame ? [] : [[d, axis] as const];
  });
}

function resize(node: Lowering): Value[] {
  const x = node.input(0);
  if (x.type !== "f32" && x.type !== "f64") node.refuse(`${x.type} is not supported; f32 and f64 are`);
  const transform = node.text("coordinate_transformation_mode", "half_pixel", TRANSFORMS);
  const sampling = {
    transform,
    mode: node.text("mode", "nearest", MODES),
    rounding: node.text("nearest_mode", "round_prefer_floor", ROUNDINGS),
    a: node.float("cubic_coeff_a", -0.75),
    excludesOutside: node.int("exclude_outside", 0) !== 0,
  };
  if (node.int("antialias", 0) !== 0) node.refuse("antialias is not supported");
  node.text("keep_aspect_ratio_policy", "stretch", ["stretch"]);
  const outside = node.float("extrapolation_value", 0);
  const axes = axesOf(node, x, transform);
  const y = axes.reduce((value, [d, axis]) => alongAxis(node, value, d, axis, sampling), x);
  return [transform === "tf_crop_and_resize" ? filledOutside(node, y, axes, outside) : y];
}

/** What lies outside of the image has one value. */
function filledOutside(
  node: Lowering,
  y: Value,
  axes: readonly (readonly [place: number, axis: Resized])[],
  outside: number,
): Value {
  const shape = y.shape.map((size, d) => (axes.some(([place]) => place === d) ? size : 1));
  const inside = y.shape.map((size, d) => {
    const [, axis] = axes.find(([place]) => place === d) ?? [];
    if (!axis) return [1];
    const at = Array.from({ length: size }, (_, p) => coordinateOf(p, axis, "tf_crop_and_resize"));
    return at.map((x) => (x >= 0 && x <= axis.from - 1 ? 1 : 0));
  });
  const all = inside.reduce<number[]>((rows, flags) => rows.flatMap((row) => flags.map((flag) => row * flag)), [1]);
  if (all.every((flag) => flag === 1)) return y;
  const mask = node.constant({ type: "bool", shape, values: node.numbersFrom("bool", all) }, `${y.name}.inside`);
  const given = outside < 0 ? `(${numberText(outside)})` : numberText(outside);
  return elementwise(node, [y, mask], ([value = "", flag = ""]) => `select(${flag} != 0, ${value}, ${given})`);
}

export const RESIZING: OperatorTable = { Resize: { lower: resize } };
