/**
 * @file Fusion over padding: fused loops run over the rows of a padded copy including the gaps between rows, so that small images fill the rows of a
 * tile.
 *
 *     m <- p,q of a 7x7 image, 9 elements a row in the copy
 *       q alone        7 tiles, 7 of 16 rows used
 *       p,q            i = 7*p + q: rows of 7 are 9 apart, so a tile is not one load
 *       p,q spread     i = 9*p + q, 61 values, 4 tiles of one load each; results for q = 7, 8 are not stored
 */

import type { Schedule } from "../../abstraction/candidate.ts";
import { memoised, memoisedBy } from "../../abstraction/collections.ts";
import { axesIn } from "../../abstraction/expression.ts";
import { operandOf } from "../../abstraction/intrinsic.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { dimensionsOf, type LoopDimension } from "./dimensions.ts";
import { copyOf, reachPadded } from "./reach.ts";

const known = memoisedBy<Mapping, readonly LoopDimension[]>();

/** The dimensions of a mapping under a schedule. The steps of spread dimensions run over the rows of the copy. */
export function dimensionsUnder(mapping: Mapping, { spread }: Pick<Schedule, "spread">): readonly LoopDimension[] {
  if (spread === undefined || spread.length === 0) return dimensionsOf(mapping);
  return known(mapping, spread.join(), () =>
    dimensionsOf(mapping).map((d) => (spread.includes(d.name) ? (spreadOf(mapping, d)?.dimension ?? d) : d)),
  );
}

/** Names of the dimensions that may be spread, each with the operand that must then be padded. */
export const spreadable = memoised((mapping: Mapping): ReadonlyMap<string, string> => {
  const found = dimensionsOf(mapping).flatMap((d): [string, string][] => {
    const spread = spreadOf(mapping, d);
    return spread ? [[d.name, spread.operand]] : [];
  });
  return new Map(found);
});

/**
 * A fused kept dimension, spread over the rows of the copy of the one input it indexes; undefined when the rows are not
 * evenly spaced or have no gaps.
 */
function spreadOf(mapping: Mapping, d: LoopDimension): { dimension: LoopDimension; operand: string } | undefined {
  const { intrinsic, binding } = mapping;
  const moving = d.loops.filter((l) => l.extent > 1);
  if (d.kind !== "spatial" || d.axis === undefined || moving.length < 2) return undefined;
  const target = intrinsic.computation.equation.target.tensor;
  const reading = Object.entries(binding).filter(
    ([name, bound]) => name !== target && d.loops.some((l) => axesIn(bound).includes(l.name)),
  );
  const [only, ...others] = reading;
  if (only === undefined || others.length > 0) return undefined;
  const [name, bound] = only;
  if (bound.kind !== "access") return undefined;
  const operand = operandOf(intrinsic, name);
  const loaded = { mapping, operand, access: bound, dimensions: dimensionsOf(mapping) };
  const copy = copyOf(loaded, false);
  if (typeof copy === "string") return undefined;
  const perStep = (loop: string): number => copy.place.terms.get(loop) ?? 0;
  // From the inside out: distance in the fused index between two values of a loop.
  const unit = perStep(moving.at(-1)?.name ?? "");
  const weights: number[] = [];
  let inside = 1;
  let gaps = false;
  for (const l of [...d.loops].reverse()) {
    const weight = l.extent > 1 ? perStep(l.name) / unit : inside;
    const before = weights[0] ?? 1;
    if (!Number.isInteger(weight) || weight < inside || weight % before !== 0) return undefined;
    gaps ||= weight > inside;
    inside = weight * l.extent;
    weights.unshift(weight);
  }
  if (!gaps) return undefined;
  const extent = d.loops.reduce((sum, l, i) => sum + (l.extent - 1) * (weights[i] ?? 0), 1);
  const steps = Math.ceil(extent / d.step);
  const dimension = { ...d, weights, extent, steps, wholeSteps: Math.floor(extent / d.step) };
  const dimensions = dimensionsOf(mapping).map((other) => (other === d ? dimension : other));
  const reached = reachPadded({ ...loaded, dimensions });
  return typeof reached === "string" ? undefined : { dimension, operand: name };
}
