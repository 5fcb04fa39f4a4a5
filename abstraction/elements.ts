/**
 * @file Classifies how the points of a computation write its target: every element once, some several times, or some never.
 *
 *     c[i,j]      each once            y[i/2]    two points join an element: their sum would have to pass through memory
 *     y[g*16+k]   each once            c[i,j+1]  none writes c[i,0]: it holds the identity
 */

import { affineForm, boundsOf, type Extents, evaluateIndex, extentOf, pointsOf, pointsOver } from "./affine.ts";
import { memoised, namesOf, present, product } from "./collections.ts";
import { type Computation, elementCount, extentsOf, keptIn, type Tensor, targetOf } from "./computation.ts";
import { type Access, axesIn, compare, type Expr } from "./expression.ts";

/** Largest number of kept points that are examined one by one, where the target's index divides. */
const MOST_POINTS = 100_000;

/** Whether points that differ in a kept loop always write different elements; false also when this is not known. */
export const writesApart = memoised(findApart);

function findApart(computation: Computation): boolean {
  const extents = extentsOf(computation);
  const kept = namesOf(keptIn(computation.axes));
  const { index } = computation.equation.target;
  // A loop is determined by an index whose other loops are determined, or in which the loops are digits of one number.
  const known = new Set(kept.filter((l) => extents[l] === 1));
  for (let before = -1; before < known.size; ) {
    before = known.size;
    for (const e of index) {
      const open = [...(affineForm(e)?.terms ?? [])].filter(([name]) => !known.has(name));
      if (areDigits(open, extents)) for (const [name] of open) known.add(name);
    }
  }
  if (kept.every((l) => known.has(l))) return true;
  if (pointsOver(kept, extents) > MOST_POINTS) return false;
  const seen = new Set<string>();
  for (const point of pointsOf(kept, extents)) {
    const element = index.map((e) => evaluateIndex(e, point)).join();
    if (seen.has(element)) return false;
    seen.add(element);
  }
  return true;
}

/** Whether terms of an index are digits of one number: each exceeds what all smaller ones reach together. */
export function areDigits(terms: readonly (readonly [name: string, factor: number])[], extents: Extents): boolean {
  let reach = 0;
  return terms
    .toSorted(([, a], [, b]) => Math.abs(a) - Math.abs(b))
    .every(([name, factor]) => {
      const above = Math.abs(factor) > reach;
      reach += Math.abs(factor) * (extentOf(name, extents) - 1);
      return above;
    });
}

/** Conditions for an index to be inside its dimension; empty if bounds prove it. */
export function inside(e: Expr, extent: number, extents: Extents): Expr[] {
  const [least, most] = boundsOf(e, extents);
  return present([least < 0 && compare(">=", e, 0), most >= extent && compare("<", e, extent)]);
}

/** Dimensions in which an access may leave its tensor. */
export function leavesAlong({ index }: Pick<Access, "index">, { dims }: Tensor, extents: Extents): number[] {
  return index.flatMap((e, d) => (inside(e, dims[d]?.extent ?? 0, extents).length > 0 ? [d] : []));
}

/**
 * Conditions on the loops under which a point's element lies inside the target; empty when every index stays inside.
 */
export function insideTarget(computation: Computation): Expr[] {
  const extents = extentsOf(computation);
  const { dims } = targetOf(computation);
  return computation.equation.target.index.flatMap((e, i) => inside(e, dims[i]?.extent ?? 0, extents));
}

/** Whether every element is written exactly once; false also when this is not known. */
export const writesAll = memoised(findAll);

function findAll(computation: Computation): boolean {
  if (!writesApart(computation)) return false;
  const extents = extentsOf(computation);
  const target = targetOf(computation);
  const { index } = computation.equation.target;
  const kept = namesOf(keptIn(computation.axes));
  // Where each index has its own loops, the inside points are the product of those inside along each dimension.
  const loops = index.map((e) => axesIn(e));
  const shared = loops.flat().length !== new Set(loops.flat()).size;
  const inside = index.map((e, i): number => {
    const [[min, max], extent] = [boundsOf(e, extents), target.dims[i]?.extent ?? 0];
    const own = loops[i] ?? [];
    const points = pointsOver(own, extents);
    if (min >= 0 && max < extent) return points;
    if (shared || points > MOST_POINTS) return 0;
    const isInside = (at: number): boolean => at >= 0 && at < extent;
    return [...pointsOf(own, extents)].filter((point) => isInside(evaluateIndex(e, point))).length;
  });
  if (inside.includes(0)) return false;
  return (shared ? pointsOver(kept, extents) : product(inside)) === elementCount(target);
}
