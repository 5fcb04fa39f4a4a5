/**
 * @file Where the tiles of an operand lie in flat memory: in place, in a padded copy, or not reachable by one load.
 *
 *     in[n,c,p+r-1,q+s-1] in NHWC, n <- k, k <- c      element = 3712*p + 64*q + 3712*r + 64*s + c  in the padded copy
 *     the same in NCHW                                 c lies 3136 elements apart: four of them are no one load
 */

import { affineForm, boundsOf, pointsOf } from "../abstraction/affine.ts";
import { type Computation, type Tensor, tensorOf } from "../abstraction/computation.ts";
import { isInteger } from "../abstraction/dtype.ts";
import { type Access, axis, binary, type Expr, number } from "../abstraction/expression.ts";
import { tilePlaces } from "../abstraction/interpret.ts";
import { type Intrinsic, type Operand, sizesOf, tileRowElements } from "../abstraction/intrinsic.ts";
import type { LoopDimension } from "./dimensions.ts";

/** An operand's tiles in flat memory: `base + sum over dimensions of perStep * step`, rows `stride` apart. */
export interface Reach {
  readonly base: number;
  /** Elements from one step of a dimension to the next. */
  readonly perStep: ReadonlyMap<string, number>;
  readonly stride: number;
}

/** A copy of a tensor with a border: its extents, strides and where its first element lies in the tensor's own indices. */
export interface PaddedCopy {
  readonly dims: readonly {
    readonly name: string;
    /** First index that is held; negative where padding begins before the tensor. */
    readonly low: number;
    readonly extent: number;
    readonly stride: number;
  }[];
  readonly elements: number;
}

export interface PaddedReach {
  readonly copy: PaddedCopy;
  readonly reach: Reach;
  /** The last step of fused summed loops reads elements that are not its own: the other operand must be zero there. */
  readonly runsPast: boolean;
}

/** The reach of an access in the tensor itself, or why it cannot be loaded in place. */
export function reachInPlace(
  computation: Computation,
  intrinsic: Intrinsic,
  operand: Operand,
  access: Access,
  dimensions: readonly LoopDimension[],
): Reach | string {
  const tensor = tensorOf(computation, access.tensor);
  const partial = dimensions.find((d) => d.steps !== d.wholeSteps && operand.dims.some((o) => o.name === d.axis));
  if (partial) return `${partial.name} is ${partial.extent}, no multiple of ${partial.step}`;
  const extents = Object.fromEntries(computation.axes.map((a) => [a.name, a.extent]));
  for (const [d, index] of access.index.entries()) {
    const [min, max] = boundsOf(index, extents);
    const extent = tensor.dims[d]?.extent ?? 0;
    if (min < 0 || max >= extent)
      return `index ${d} of ${tensor.name} runs from ${min} to ${max}, outside 0 .. ${extent - 1}`;
  }
  const storage = affineForm(tensor.storage);
  if (!storage) return `${tensor.name} is stored in blocks`;
  const strides = tensor.dims.map((d) => storage.terms.get(d.name) ?? 0);
  return reachOf(intrinsic, operand, access, dimensions, strides, storage.constant);
}

/** The copy that holds all an access reads, with the instruction's axes innermost, and the reach in it; or why there is none. */
export function reachPadded(
  computation: Computation,
  intrinsic: Intrinsic,
  operand: Operand,
  access: Access,
  dimensions: readonly LoopDimension[],
): PaddedReach | string {
  const tensor = tensorOf(computation, access.tensor);
  // 1. Loops run to the end of their last step, whole or not. Fused loops run past their end into what lies behind: where the other
  // operand is zero that is harmless for integers, and for floats only as long as they are finite, so floats are refused.
  const extents: Record<string, number> = {};
  const past: LoopDimension[] = [];
  for (const d of dimensions) {
    const fused = d.loops.length > 1;
    const partial = d.steps !== d.wholeSteps && operand.dims.some((o) => o.name === d.axis);
    if (fused && partial) {
      if (d.kind === "spatial" || !isInteger(tensor.dtype)) return `${d.name} is ${d.extent}, no multiple of ${d.step}`;
      past.push(d);
    }
    for (const l of d.loops) extents[l.name] = fused ? l.extent : d.steps * d.step;
  }
  // 2. Outer dimensions keep the tensor's own order; those the tile runs over lie innermost, in the operand's order.
  const storage = affineForm(tensor.storage);
  const order = tensor.dims.map((_, d) => d);
  const strideOf = (d: number): number => storage?.terms.get(tensor.dims[d]?.name ?? "") ?? -d;
  const rank = (d: number): number => {
    const loops = [...(affineForm(access.index[d] ?? number(0))?.terms.keys() ?? [])];
    const axes = dimensions.filter((x) => x.axis !== undefined && x.loops.some((l) => loops.includes(l.name)));
    return Math.max(-1, ...axes.map((x) => operand.dims.findIndex((o) => o.name === x.axis)));
  };
  order.sort((a, b) => rank(a) - rank(b) || strideOf(b) - strideOf(a));
  // 3. Extents from the bounds of each index.
  const ranges = access.index.map((index) => boundsOf(index, extents));
  const strides = new Array<number>(order.length).fill(0);
  let elements = 1;
  for (const d of [...order].reverse()) {
    const [low, high] = ranges[d] ?? [0, 0];
    strides[d] = elements;
    elements *= high - low + 1;
  }
  const dims = order.map((d) => {
    const [low, high] = ranges[d] ?? [0, 0];
    return { name: tensor.dims[d]?.name ?? "", low, extent: high - low + 1, stride: strides[d] ?? 0 };
  });
  const shift = ranges.reduce((sum, [low], d) => sum - low * (strides[d] ?? 0), 0);
  const reach = reachOf(intrinsic, operand, access, dimensions, strides, shift);
  if (typeof reach === "string") return reach;
  const slack = past.reduce(
    (sum, d) => sum + ((d.steps * d.step - d.extent) * (reach.perStep.get(d.name) ?? 0)) / d.step,
    0,
  );
  return { copy: { dims, elements: elements + slack }, reach, runsPast: past.length > 0 };
}

/** Coefficients of every dimension, when fused loops nest and the tile is one load. */
function reachOf(
  intrinsic: Intrinsic,
  operand: Operand,
  access: Access,
  dimensions: readonly LoopDimension[],
  strides: readonly number[],
  constant: number,
): Reach | string {
  const flat = affineForm(
    access.index.reduce<Expr>(
      (sum, e, d) => binary("+", sum, binary("*", e, number(strides[d] ?? 0))),
      number(constant),
    ),
  );
  if (!flat) return `an index of ${access.tensor} divides`;
  const perElement = new Map<string, number>();
  for (const d of dimensions) {
    // Fused loops must nest: one step of an outer loop is all steps of the loops inside it.
    const moving = d.loops.filter((l) => l.extent > 1);
    const inner = moving.at(-1);
    const unit =
      inner === undefined ? (flat.terms.get(d.loops.at(-1)?.name ?? "") ?? 0) : (flat.terms.get(inner.name) ?? 0);
    let expected = unit;
    for (const l of [...moving].reverse()) {
      if ((flat.terms.get(l.name) ?? 0) !== expected)
        return `${d.loops.map((x) => x.name).join(",")} do not lie one behind the other in ${access.tensor}`;
      expected *= l.extent;
    }
    perElement.set(d.name, unit);
  }
  const stride = tileStrideOf(intrinsic, operand, dimensions, perElement);
  if (typeof stride === "string") return stride;
  const perStep = new Map(dimensions.map((d) => [d.name, (perElement.get(d.name) ?? 0) * d.step]));
  return { base: flat.constant, perStep, stride };
}

/** Elements between the rows of a tile, when its elements lie as the load expects them. */
function tileStrideOf(
  intrinsic: Intrinsic,
  operand: Operand,
  dimensions: readonly LoopDimension[],
  perElement: ReadonlyMap<string, number>,
): number | string {
  const unfed = operand.dims.find((o) => o.extent > 1 && !dimensions.some((d) => d.axis === o.name));
  if (unfed) return `axis ${unfed.name} of ${intrinsic.name} is padded`;
  const places = tilePlaces(intrinsic, operand.name);
  const row = tileRowElements(operand);
  let stride: number | undefined;
  let i = 0;
  const names = operand.dims.map((d) => d.name);
  for (const point of pointsOf(names, sizesOf(operand))) {
    const at = names.reduce(
      (sum, name) =>
        sum + (point[name] ?? 0) * (perElement.get(dimensions.find((d) => d.axis === name)?.name ?? "") ?? 0),
      0,
    );
    const place = places[i++] ?? 0;
    const rowNumber = Math.floor(place / row);
    if (rowNumber > 0) stride ??= (at - (place % row)) / rowNumber;
    if (at !== rowNumber * (stride ?? 0) + (place % row))
      return `the elements of ${operand.name} do not lie as ${intrinsic.name} loads them`;
  }
  return stride ?? row;
}

/** `base + perStep * step` as an expression; steps are given per dimension. */
export function reachExpr(reach: Reach, stepOf: (dimension: string) => Expr): Expr {
  let sum: Expr = number(reach.base);
  for (const [name, perStep] of reach.perStep)
    if (perStep !== 0) sum = binary("+", sum, binary("*", stepOf(name), number(perStep)));
  return sum;
}

/** The tensor element an element of a padded copy holds. */
export function copiedIndex(tensor: Tensor, copy: PaddedCopy, counter: (name: string) => string): Expr[] {
  return tensor.dims.map((d) => {
    const dim = copy.dims.find((c) => c.name === d.name);
    return binary("+", axis(counter(d.name)), number(Math.max(0, dim?.low ?? 0)));
  });
}
