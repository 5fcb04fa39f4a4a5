/**
 * @file The addresses of an operand's tiles in flat memory: in place, in a padded copy, or not reachable by one load.
 *
 *     in[n,c,p+r-1,q+s-1] in NHWC, n <- k, k <- c      element = 3712*p + 64*q + 3712*r + 64*s + c  in the padded copy
 *     the same in NCHW                                 elements of c are 3136 apart: no load fetches four of them
 */

import { type AffineForm, addressOf, affineForm, boundsOf, pointsOf } from "../../abstraction/affine.ts";
import { hasName, memoisedBy, memoisedPair, namesOf, sumOf } from "../../abstraction/collections.ts";
import { tensorOf } from "../../abstraction/computation.ts";
import { isInteger } from "../../abstraction/dtype.ts";
import { type Access, axis, type Expr, minus, number, plus, times } from "../../abstraction/expression.ts";
import { type Intrinsic, type Operand, sizesOf } from "../../abstraction/intrinsic.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { tilePlaces, tileRowElements } from "../../abstraction/memory-tile.ts";
import { bordersOf } from "./borders.ts";
import { type LoopDimension, targetOperand } from "./dimensions.ts";

/** An operand's tiles in flat memory: `base + sum over dimensions of perStep * step`, rows `stride` apart. */
export interface Reach {
  readonly base: number;
  /** Distance between two steps of each dimension, in elements. */
  readonly perStep: ReadonlyMap<string, number>;
  readonly stride: number;
}

/**
 * A copy of a tensor with a border: its extents and strides, and the position of its first element in the tensor's own
 * indices.
 */
export interface PaddedCopy {
  readonly dims: readonly {
    readonly name: string;
    /** First index that the copy holds; negative when padding begins before the tensor. */
    readonly low: number;
    readonly extent: number;
    readonly stride: number;
  }[];
  /**
   * Loops laid out separately, so that windows that overlap in the tensor do not overlap in the copy. Their indices
   * have no entry in `dims`.
   */
  readonly apart: readonly { readonly name: string; readonly extent: number; readonly stride: number }[];
  readonly elements: number;
}

export interface PaddedReach {
  readonly copy: PaddedCopy;
  readonly reach: Reach;
  /**
   * Set when the last step of fused summed loops reads elements of other steps: the other operand must be zero there.
   */
  readonly runsPast: boolean;
}

/** An operand of an instruction, the element that it stands for, and the loops in which it is loaded. */
interface Loaded {
  readonly mapping: Pick<Mapping, "computation" | "intrinsic">;
  readonly operand: Operand;
  readonly access: Access;
  readonly dimensions: readonly LoopDimension[];
}

/** Whether the last step of a dimension of an operand is incomplete. */
const isPartial = ({ operand }: Loaded, d: LoopDimension): boolean =>
  d.steps !== d.wholeSteps && hasName(operand.dims, d.axis);

/**
 * The reach of an access in the tensor itself, or why it cannot be loaded in place. Steps that cross a border must be
 * omitted.
 */
export function reachInPlace(loaded: Loaded): Reach | string {
  const { mapping, access, dimensions } = loaded;
  const tensor = tensorOf(mapping.computation, access.tensor);
  const partial = dimensions.find((d) => isPartial(loaded, d));
  if (partial) return `${partial.name} is ${partial.extent}, no multiple of ${partial.step}`;
  const borders = bordersOf(mapping.computation, access, dimensions);
  if (typeof borders === "string") return borders;
  if (!affineForm(tensor.storage)) return `${tensor.name} is stored in blocks`;
  return reachOf(loaded, affineForm(addressOf(tensor, access.index)));
}

/** The same for the sums of an instruction, in the tensor that the equation names. */
export const reachOfTarget = (mapping: Mapping, dimensions: readonly LoopDimension[]): Reach | string =>
  reachInPlace({ mapping, operand: targetOperand(mapping), access: mapping.computation.equation.target, dimensions });

/**
 * The copy that holds everything an access reads, with the instruction's axes innermost, and the reach in it; or why
 * there is none.
 */
export function reachPadded(loaded: Loaded): PaddedReach | string {
  const { dtype } = tensorOf(loaded.mapping.computation, loaded.access.tensor);
  // Loops run to the end of their last step, whole or not. Fused loops run past their end into whatever follows. For
  // kept loops these results are not stored. For summed loops this is harmless for integers if the other operand is
  // zero there, but for floats only if the elements are finite, so floats are refused.
  const past = loaded.dimensions.filter((d) => d.loops.length > 1 && isPartial(loaded, d));
  const summed = past.find((d) => d.kind === "reduce");
  if (summed && !isInteger(dtype)) return `${summed.name} is ${summed.extent}, no multiple of ${summed.step}`;
  const found = copyOf(loaded, false);
  if (typeof found === "string") return found;
  const { place, ...copy } = found;
  const reach = reachOf(loaded, place);
  if (typeof reach === "string") return reach;
  const slack = sumOf(past, (d) => ((d.steps * d.step - d.extent) * (reach.perStep.get(d.name) ?? 0)) / d.step);
  return { copy: { ...copy, elements: copy.elements + slack }, reach, runsPast: summed !== undefined };
}

/**
 * The copy that lays out the fused loops of the instruction's axes separately, so that each run of them is contiguous
 * and followed by zeros; or why there is none.
 *
 *     in[n,c,p*2+r-3,q*2+s-3] in NHWC, c 3, s 7, k <- s,c on 32 elements      element = ...*h + 32*q + 3*s + c, 32 for 21
 */
export function reachWindowed(loaded: Loaded): PaddedReach | string {
  const found = copyOf(loaded, true);
  if (typeof found === "string") return found;
  const { place, ...copy } = found;
  if (copy.apart.length === 0) return "no fused loops meet in an index";
  const reach = reachOf(loaded, place);
  return typeof reach === "string" ? reach : { copy, reach, runsPast: false };
}

/** A part of a copy's layout: what one index of the tensor reaches, or one of its loops. */
interface Part {
  readonly index: number;
  readonly loop: string | undefined;
  readonly rank: number;
  readonly tensorStride: number;
}

/**
 * The layout of a copy, and the place in it of what an access reads; or why there is none.
 * @param windowed whether indices in which a fused loop meets another are laid out loop by loop
 */
export function copyOf(
  { mapping, operand, access, dimensions }: Loaded,
  windowed: boolean,
): (PaddedCopy & { readonly place: AffineForm }) | string {
  const tensor = tensorOf(mapping.computation, access.tensor);
  const storage = affineForm(tensor.storage);
  const extents = Object.fromEntries(dimensions.flatMap((d) => d.loops.map((l) => [l.name, l.extent])));
  const axisOf = (loop: string): LoopDimension | undefined =>
    dimensions.find((d) => hasName(operand.dims, d.axis) && hasName(d.loops, loop));
  const rankOf = (loop: string): number => operand.dims.findIndex((o) => o.name === axisOf(loop)?.axis);
  // 1. The other indices keep their range. Unfused loops run to the end of their last step.
  const whole: Record<string, number> = { ...extents };
  for (const d of dimensions) if (d.loops.length === 1) for (const l of d.loops) whole[l.name] = d.steps * d.step;
  const parts: Part[] = [];
  const seen = new Set<string>();
  for (const [index, e] of access.index.entries()) {
    const form = affineForm(e);
    if (!form) return `an index of ${tensor.name} divides`;
    const loops = [...form.terms.keys()];
    const again = loops.find((l) => seen.has(l));
    if (windowed && again !== undefined) return `${again} stands in two indices of ${tensor.name}`;
    for (const l of loops) seen.add(l);
    const tensorStride = storage?.terms.get(tensor.dims[index]?.name ?? "") ?? -index;
    const isApart = windowed && loops.some((l) => (axisOf(l)?.loops.length ?? 0) > 1);
    if (isApart) for (const loop of loops) parts.push({ index, loop, rank: rankOf(loop), tensorStride });
    else parts.push({ index, loop: undefined, rank: Math.max(-1, ...loops.map(rankOf)), tensorStride });
  }
  // 2. Dimensions that feed no axis are outermost, in the tensor's order; then axis by axis, in the order of fusion.
  const turn = ({ loop }: Part): number =>
    loop === undefined ? 0 : (axisOf(loop)?.loops.findIndex((l) => l.name === loop) ?? 0);
  parts.sort((a, b) => a.rank - b.rank || turn(a) - turn(b) || b.tensorStride - a.tensorStride);
  // 3. Strides from the inside out. An axis is padded to whole steps before the next begins.
  const dims: PaddedCopy["dims"][number][] = [];
  const apart: PaddedCopy["apart"][number][] = [];
  let flat: Expr = number(0);
  let elements = 1;
  let axisStart = 1;
  for (const [i, { index, loop, rank }] of [...parts].reverse().entries()) {
    const before = parts[parts.length - i];
    if (before === undefined || before.rank !== rank) axisStart = elements;
    const e = access.index[index] ?? number(0);
    const [low, high] = loop === undefined ? boundsOf(e, whole) : [0, (extents[loop] ?? 1) - 1];
    const extent = high - low + 1;
    if (loop === undefined) dims.unshift({ name: tensor.dims[index]?.name ?? "", low, extent, stride: elements });
    else apart.unshift({ name: loop, extent, stride: elements });
    const counted = loop === undefined ? minus(e, low) : axis(loop);
    flat = plus(flat, times(counted, elements));
    elements *= extent;
    const d = loop === undefined ? undefined : axisOf(loop);
    if (d && d.loops[0]?.name === loop) elements = axisStart * d.steps * d.step;
  }
  const place = affineForm(flat);
  return place ? { dims, apart, elements, place } : `an index of ${tensor.name} divides`;
}

/** Coefficients of every dimension, provided that fused loops nest and the tile is one load. */
function reachOf(loaded: Loaded, flat: AffineForm | undefined): Reach | string {
  const { access, dimensions } = loaded;
  if (!flat) return `an index of ${access.tensor} divides`;
  const perElement = new Map<string, number>();
  for (const d of dimensions) {
    // Fused loops must nest: one step of an outer loop is all steps of the loops inside it.
    const inner = d.loops.findLast((l) => l.extent > 1) ?? d.loops.at(-1);
    const unit = flat.terms.get(inner?.name ?? "") ?? 0;
    for (const [i, l] of d.loops.entries())
      if (l.extent > 1 && (flat.terms.get(l.name) ?? 0) !== unit * (d.weights[i] ?? 1))
        return `${namesOf(d.loops).join(",")} are not contiguous in ${access.tensor}`;
    perElement.set(d.name, unit);
  }
  const stride = tileStrideOf(loaded, perElement);
  if (typeof stride === "string") return stride;
  const perStep = new Map(dimensions.map((d) => [d.name, (perElement.get(d.name) ?? 0) * d.step]));
  return { base: flat.constant, perStep, stride };
}

interface TilePoints {
  /** For each element its index in every dimension, and its position in the tile. */
  readonly points: readonly (readonly number[])[];
  readonly places: ArrayLike<number>;
}

/** Cached, since hundreds of mappings request the same points. */
const tilePoints = memoisedPair((intrinsic: Intrinsic, operand: Operand): TilePoints => {
  const names = namesOf(operand.dims);
  return {
    points: Array.from(pointsOf(names, sizesOf(operand)), (point) => names.map((name) => point[name] ?? 0)),
    places: tilePlaces(intrinsic, operand.name),
  };
});

/** Distance between the rows of a tile, when its elements lie as the load expects them. */
function tileStrideOf(
  { mapping: { intrinsic }, operand, dimensions }: Loaded,
  perElement: ReadonlyMap<string, number>,
): number | string {
  const unfed = operand.dims.find((o) => o.extent > 1 && !dimensions.some((d) => d.axis === o.name));
  if (unfed) return `axis ${unfed.name} of ${intrinsic.name} is padded`;
  const units = operand.dims.map((o) => perElement.get(dimensions.find((d) => d.axis === o.name)?.name ?? "") ?? 0);
  const tile = tilePoints(intrinsic, operand);
  const row = tileRowElements(operand);
  const stride = knownStrides(tile, units.join(), () => strideOf(tile, row, units));
  // An instruction with an opaque layout moves rows itself: WMMA and joint matrices accept rows at any distance.
  if (stride !== undefined && stride < row && operand.storage === undefined)
    return `rows of ${operand.name} would overlap, which ${intrinsic.name} does not load`;
  return stride ?? `the elements of ${operand.name} do not have the layout that ${intrinsic.name} loads`;
}

const knownStrides = memoisedBy<TilePoints, number | undefined>();

/**
 * Row distance of a tile whose elements lie `units` apart along each dimension; undefined when they do not lie as the
 * load expects.
 */
function strideOf({ points, places }: TilePoints, row: number, units: readonly number[]): number | undefined {
  let stride: number | undefined;
  for (const [i, point] of points.entries()) {
    let at = 0;
    for (const [d, value] of point.entries()) at += value * (units[d] ?? 0);
    const place = places[i] ?? 0;
    const rowNumber = Math.floor(place / row);
    if (rowNumber > 0) stride ??= (at - (place % row)) / rowNumber;
    if (at !== rowNumber * (stride ?? 0) + (place % row)) return undefined;
  }
  return stride ?? row;
}

/** `base + perStep * step` as an expression; steps are given per dimension. */
export function reachExpr(reach: Reach, stepOf: (dimension: string) => Expr): Expr {
  let sum: Expr = number(reach.base);
  for (const [name, perStep] of reach.perStep) if (perStep !== 0) sum = plus(sum, times(stepOf(name), perStep));
  return sum;
}
