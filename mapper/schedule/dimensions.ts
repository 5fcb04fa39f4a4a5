/**
 * @file The dimensions that a schedule orders and blocks: the loops around the instruction and the fused loops that
 * feed its axes.
 *
 *     conv2d, n <- k, k <- c on avx512.vpdpbusd:    k: 4 steps of 16    c: 16 steps of 4    p, q, r, s: steps of 1
 */

import type { Axis } from "../../abstraction/computation.ts";
import { type Expr, over, remainder } from "../../abstraction/expression.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { memoised } from "../../abstraction/memoised.ts";

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

function findDimensions(mapping: Mapping): LoopDimension[] {
  const { matching, intrinsic } = mapping;
  const loops = mapping.computation.axes;
  const fed = intrinsic.computation.axes.filter((a) => (matching[a.name]?.length ?? 0) > 0);
  const taken = new Set(loops.map((l) => l.name));
  const dimensions = loops.flatMap((loop): LoopDimension[] => {
    const feeding = fed.find((a) => matching[a.name]?.includes(loop.name));
    if (!feeding) {
      const { name, kind, extent } = loop;
      return [
        {
          name,
          kind,
          loops: [loop],
          weights: [1],
          axis: undefined,
          step: 1,
          extent,
          steps: extent,
          wholeSteps: extent,
        },
      ];
    }
    // A fused dimension stands where its first loop stands.
    const names = matching[feeding.name] ?? [];
    if (names[0] !== loop.name) return [];
    const own = names.flatMap((l) => loops.filter((x) => x.name === l));
    const extent = own.reduce((product, l) => product * l.extent, 1);
    let name = own.map((l) => l.name).join("_");
    while (own.length > 1 && taken.has(name)) name += "_";
    taken.add(name);
    return [
      {
        name,
        kind: feeding.kind,
        loops: own,
        weights: own.map((_, i) => own.slice(i + 1).reduce((inside, l) => inside * l.extent, 1)),
        axis: feeding.name,
        step: feeding.extent,
        extent,
        steps: Math.ceil(extent / feeding.extent),
        wholeSteps: Math.floor(extent / feeding.extent),
      },
    ];
  });
  return [...dimensions.filter((d) => d.kind === "spatial"), ...dimensions.filter((d) => d.kind === "reduce")];
}

/** Names of the summed dimensions. */
export const summedOf = memoised(
  (mapping: Mapping): ReadonlySet<string> =>
    new Set(dimensionsOf(mapping).flatMap((d) => (d.kind === "reduce" ? [d.name] : []))),
);

/** Loops whose index may exceed their extent: the gaps of a spread dimension. */
export function gapsOf(d: LoopDimension): readonly Axis[] {
  return d.loops.filter((l, i) => {
    const above = d.weights[i - 1];
    return above !== undefined && above / (d.weights[i] ?? 1) > l.extent;
  });
}

/** Splits the fused index into its loops: i = 6*x + y  ->  x = i/6, y = i%6. */
export function digitsOf(d: LoopDimension, fused: Expr): [string, Expr][] {
  return d.loops.map((l, position) => {
    const weight = d.weights[position] ?? 1;
    const quotient = over(fused, weight);
    const above = d.weights[position - 1];
    return [l.name, above === undefined ? quotient : remainder(quotient, above / weight)];
  });
}
