/**
 * @file Rewrites an element-wise step over another shape of the same elements, so that it can be fused into the step that produces them.
 *
 *     y[i0,i1,i2] = x[i0,i1,i2] + b[i2]   1 x 128 x 768   ->   y[d0,d1] = x[d0,d1] + b[d1]   128 x 768
 */

import { shapeOf } from "../abstraction/affine.ts";
import { mapValues } from "../abstraction/collections.ts";
import { outputOf, type TensorSpec, tensorOf } from "../abstraction/computation.ts";
import {
  type Access,
  access,
  accessesIn,
  axis,
  type Expr,
  plainAxes,
  rewriteReads,
  walk,
} from "../abstraction/expression.ts";
import { rebuilt } from "../abstraction/rebuild.ts";
import { rootOf, type Step } from "./network.ts";
import { isSameShape, type Value } from "./value.ts";

/** The same elements in the same order under another shape. */
export function shownAs(value: Value, shape: readonly number[]): Value {
  if (isSameShape(value.shape, shape)) return value;
  if (value.constant) return { ...value, shape };
  const root = rootOf(value);
  return isSameShape(root.shape, shape) ? root : { name: value.name, type: value.type, shape, of: root };
}

/**
 * Dimensions that two shapes of the same elements share, as positions in both.
 *
 *     [16,128,768] and [2048,768]     2 -> 1
 */
function commonDimensions(from: readonly number[], to: readonly number[]): ReadonlyMap<number, number> {
  const common = new Map<number, number>();
  let i = 0;
  let j = 0;
  while (i < from.length && j < to.length) {
    const firstOf = i;
    const firstIn = j;
    let before = from[i++] ?? 1;
    let after = to[j++] ?? 1;
    while (before !== after) {
      if (before < after && i < from.length) before *= from[i++] ?? 1;
      else if (after < before && j < to.length) after *= to[j++] ?? 1;
      else return common;
    }
    const wide = (shape: readonly number[], begin: number, end: number): number[] =>
      shape.flatMap((size, d) => (d >= begin && d < end && size > 1 ? [d] : []));
    const a = wide(from, firstOf, i);
    const b = wide(to, firstIn, j);
    if (a.length === 1 && b.length === 1 && a[0] !== undefined && b[0] !== undefined) common.set(a[0], b[0]);
  }
  return common;
}

/**
 * @param step with one term per element, read at plain axes
 * @returns undefined when a tensor is read at part of a dimension that the other shape lacks
 */
export function underShape(step: Step, shape: readonly number[]): Step | undefined {
  const { computation, reads } = step;
  const { equation } = computation;
  const output = outputOf(computation);
  const own = plainAxes(equation.target);
  // New axis names, so that a remaining old one is detected.
  const letter = own.some((name) => /^d\d/.test(name)) ? "i" : "d";
  const axes = shape.map((_, d) => axis(`${letter}${d}`));
  const common = commonDimensions(shapeOf(output), shape);
  const isWhole = ({ tensor, index }: Access): boolean =>
    // A prefix of a longer tensor is also read at plain axes.
    isSameShape(shapeOf(computation.tensors[tensor] ?? output), shapeOf(output)) &&
    index.every((e, d) => e.kind === "axis" && e.name === own[d]);
  const whole = new Set(accessesIn(equation.value).flatMap((a) => (isWhole(a) ? [a.tensor] : [])));
  let fits = true;
  const moved = (e: Expr): Expr => {
    const at = e.kind === "axis" ? common.get(own.indexOf(e.name)) : undefined;
    const found = at === undefined ? undefined : axes[at];
    if (e.kind !== "number" && !found) fits = false;
    return found ?? e;
  };
  const value = rewriteReads(equation.value, (read) => {
    if (whole.has(read.tensor) !== isWhole(read)) fits = false;
    return { ...read, index: isWhole(read) ? axes : read.index.map(moved) };
  });
  const isLeft = (e: Expr): boolean => e.kind === "axis" && own.includes(e.name);
  if (!fits || [...walk(value)].some(isLeft)) return undefined;
  const shaped = [output.name, ...whole].map((name): [string, TensorSpec] => {
    const { dtype, constant } = tensorOf(computation, name);
    return [name, { dtype, shape, ...(constant && { constant }) }];
  });
  return {
    ...step,
    computation: rebuilt(computation, {
      equation: { target: access(output.name, axes), op: equation.op, value },
      extents: Object.fromEntries(shape.map((size, d) => [`${letter}${d}`, size])),
      tensors: Object.fromEntries(shaped),
    }),
    reads: mapValues(reads, (read, name) => (whole.has(name) ? shownAs(read, shape) : read)),
  };
}
