/**
 * @file The dimensions that a schedule orders and blocks: the loops around the instruction and the fused loops that
 * feed its axes.
 *
 *     conv2d, n <- k, k <- c on avx512.vpdpbusd:    k: 4 steps of 16    c: 16 steps of 4    p, q, r, s: steps of 1
 *
 * Also the operands of a mapping's instruction: what it writes, what it reads, and which loops move them.
 */

import type { Dimension } from "../../abstraction/affine.ts";
import { memoised, namesOf, volumeOf } from "../../abstraction/collections.ts";
import { type Axis, keptIn, summedIn } from "../../abstraction/computation.ts";
import { axesIn, type Expr, over, remainder } from "../../abstraction/expression.ts";
import { type Operand, operandOf } from "../../abstraction/intrinsic.ts";
import type { Mapping } from "../../abstraction/mapping.ts";

/** One index a loop of the lowered program runs over. */
export interface LoopDimension {
  /** The loop's name, or the names of fused loops joined: `p_q`. No other loop or dimension has this name. */
  readonly name: string;
  readonly kind: "spatial" | "reduce";
  /** Outermost first. */
  readonly loops: readonly Axis[];
  /** For each loop, the distance in the fused index between two of its values. */
  readonly weights: readonly number[];
  /** Axis of the instruction that the dimension feeds; undefined for an outer loop. */
  readonly axis: string | undefined;
  /** Elements that one step covers: the extent of the axis, or 1. */
  readonly step: number;
  /** Total number of elements. */
  readonly extent: number;
  /** Number of steps, the last one perhaps partial. */
  readonly steps: number;
  /** Number of whole steps. */
  readonly wholeSteps: number;
}

/**
 * Every dimension of a mapping, kept ones before summed ones, each in the order of the computation. An axis that
 * nothing feeds has none. Cached by mapping.
 */
export const dimensionsOf: (mapping: Mapping) => readonly LoopDimension[] = memoised(findDimensions);

/** For each of some fused loops, the distance between two of its values. */
const weightsOf = (loops: readonly { readonly extent: number }[]): number[] =>
  loops.map((_, i) => volumeOf(loops.slice(i + 1)));

/** The dimension of fused loops, outermost first, that feed an axis of an instruction or none. */
export function fusedDimension(loops: readonly Axis[], axis?: Axis): LoopDimension {
  const extent = volumeOf(loops);
  const step = axis?.extent ?? 1;
  return {
    name: namesOf(loops).join("_"),
    kind: loops[0]?.kind ?? "spatial",
    loops,
    weights: weightsOf(loops),
    axis: axis?.name,
    step,
    extent,
    steps: Math.ceil(extent / step),
    wholeSteps: Math.floor(extent / step),
  };
}

function findDimensions({ computation, matching, intrinsic }: Mapping): LoopDimension[] {
  const { axes: loops } = computation;
  const taken = new Set(namesOf(loops));
  const dimensions = loops.flatMap((loop): LoopDimension[] => {
    const feeding = intrinsic.computation.axes.find((a) => matching[a.name]?.includes(loop.name));
    const names = feeding ? (matching[feeding.name] ?? []) : [loop.name];
    // A fused dimension stands where its first loop stands.
    if (names[0] !== loop.name) return [];
    const own = names.flatMap((l) => loops.filter((x) => x.name === l));
    const fused = fusedDimension(own, feeding);
    let { name } = fused;
    while (own.length > 1 && taken.has(name)) name += "_";
    taken.add(name);
    return [{ ...fused, name }];
  });
  return [...keptIn(dimensions), ...summedIn(dimensions)];
}

/** The dimensions without the partial last step of kept ones. */
export const wholeStepsOf = (dimensions: readonly LoopDimension[]): LoopDimension[] =>
  dimensions.map((d) => (d.kind === "spatial" ? { ...d, steps: d.wholeSteps, extent: d.wholeSteps * d.step } : d));

/** Names of the summed dimensions. */
export const summedOf = memoised(
  (mapping: Mapping): ReadonlySet<string> => new Set(namesOf(summedIn(dimensionsOf(mapping)))),
);

/** Loops whose index may exceed their extent: the gaps of a spread dimension. */
export function gapsOf(d: LoopDimension): readonly Axis[] {
  return d.loops.filter((l, i) => {
    const above = d.weights[i - 1];
    return above !== undefined && above / (d.weights[i] ?? 1) > l.extent;
  });
}

/** Loops by the distance between two of their values in a fused index. */
interface Digits {
  readonly loops: readonly Dimension[];
  readonly weights: readonly number[];
}

/** Splits the fused index into its loops: i = 6*x + y  ->  x = i/6, y = i%6. */
export function digitsOf(d: Digits, fused: Expr): [string, Expr][] {
  return d.loops.map((l, position) => {
    const weight = d.weights[position] ?? 1;
    const quotient = over(fused, weight);
    const above = d.weights[position - 1];
    return [l.name, above === undefined ? quotient : remainder(quotient, above / weight)];
  });
}

/** The same for loops that follow one another without gaps. */
export const digitsAlong = (loops: readonly Dimension[], fused: Expr): [string, Expr][] =>
  digitsOf({ loops, weights: weightsOf(loops) }, fused);

// ---- operands --------------------------------------------------------------------------------------------------------------------

export function targetOperand({ intrinsic }: Mapping): Operand {
  return operandOf(intrinsic, intrinsic.computation.equation.target.tensor);
}

/** The factors of an instruction: a block holds tiles of one in registers while those of the other stream past. Further inputs are loaded at each issue. */
export const factorOperands = (mapping: Mapping): Operand[] => inputOperands(mapping).slice(0, 2);

export function inputOperands(mapping: Mapping): Operand[] {
  const target = targetOperand(mapping);
  return mapping.intrinsic.operands.filter((o) => o !== target);
}

/** The loops that index each operand. */
const loopsOf = memoised(
  ({ binding }: Mapping): ReadonlyMap<string, ReadonlySet<string>> =>
    new Map(Object.entries(binding).map(([operand, bound]) => [operand, new Set(axesIn(bound))])),
);

/** Whether an operand's element changes with a dimension. */
export function dependsOn(mapping: Mapping, operand: string, d: LoopDimension): boolean {
  const used = loopsOf(mapping).get(operand);
  return used !== undefined && d.loops.some((l) => used.has(l.name));
}
