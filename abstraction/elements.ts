/**
 * @file Which elements of its target the points of a computation write: each once, or some by several, or some by none.
 *
 *     c[i,j]      each once            y[i/2]    two points join an element: their sum would have to pass through memory
 *     y[g*16+k]   each once            c[i,j+1]  none writes c[i,0]: it holds the identity
 */

import { affineForm, boundsOf, evaluateIndex, extentOf, pointsOf } from "./affine.ts";
import { type Computation, elementCount, extentsOf, targetOf } from "./computation.ts";

/** Kept points that are looked at one by one where the target's index divides. */
const MOST_POINTS = 100_000;

/** Whether no two points that differ in a kept loop join one element; false where that is not found out. */
export function writesApart(computation: Computation): boolean {
  const extents = extentsOf(computation);
  const kept = computation.axes.filter((a) => a.kind === "spatial").map((a) => a.name);
  const { index } = computation.equation.target;
  // A loop is known from an index in which the other loops are known, or are digits of one number.
  const known = new Set(kept.filter((l) => extents[l] === 1));
  for (let before = -1; before < known.size; ) {
    before = known.size;
    for (const e of index) {
      const open = [...(affineForm(e)?.terms ?? [])].filter(([name]) => !known.has(name));
      let reach = 0;
      const areDigits = open
        .sort(([, a], [, b]) => Math.abs(a) - Math.abs(b))
        .every(([name, factor]) => {
          const above = Math.abs(factor) > reach;
          reach += Math.abs(factor) * (extentOf(name, extents) - 1);
          return above;
        });
      if (areDigits) for (const [name] of open) known.add(name);
    }
  }
  if (kept.every((l) => known.has(l))) return true;
  if (kept.reduce((points, l) => points * extentOf(l, extents), 1) > MOST_POINTS) return false;
  const seen = new Set<string>();
  for (const point of pointsOf(kept, extents)) {
    const element = index.map((e) => evaluateIndex(e, point)).join();
    if (seen.has(element)) return false;
    seen.add(element);
  }
  return true;
}

/** Whether every element is written, none of them twice; false where that is not found out. */
export function writesAll(computation: Computation): boolean {
  if (!writesApart(computation)) return false;
  const extents = extentsOf(computation);
  const target = targetOf(computation);
  const kept = computation.axes.filter((a) => a.kind === "spatial");
  const inside = computation.equation.target.index.every((e, i) => {
    const [min, max] = boundsOf(e, extents);
    return min >= 0 && max < (target.dims[i]?.extent ?? 0);
  });
  return inside && kept.reduce((points, a) => points * a.extent, 1) === elementCount(target);
}
