/**
 * @file Loads a tensor with a border in place: blocks at the border omit the issues that would read outside.
 *
 *     in[n,c,p+r-1,q+s-1], q in blocks of 4          q_outer 0: q 0 with s 0 is omitted       q_outer 1..14: nothing is tested
 *
 * A border arises where a kept and a summed dimension meet in an index that leaves the tensor. Blocks of the kept
 * dimension that contain such a step are edges. Their summed dimension is unrolled, without the issues that would read
 * outside. Blocks that leave the tensor at the same steps share one copy of the code. Where neither dimension is
 * blocked, the steps inside are a range of the summed loop, and nothing is unrolled:
 *
 *     in[n,c,p+r-1,q+s-1], p 0..14 one by one         for r in max(0, 1-p)..min(3, 15-p)
 */

import { affineForm, boundsOf } from "../../abstraction/affine.ts";
import { hasName, memoisedPair, sumOf, upTo } from "../../abstraction/collections.ts";
import { type Computation, extentsOf, tensorOf } from "../../abstraction/computation.ts";
import { type Access, type Expr, minus, over, plus, times } from "../../abstraction/expression.ts";
import type { StepRange } from "../../abstraction/loop-nest.ts";
import type { LoopDimension } from "./dimensions.ts";

/** `perSpatial * p + perReduce * r + constant` must lie in 0 .. extent-1. */
export interface Border {
  /** Names of the two dimensions. */
  readonly spatial: string;
  readonly reduce: string;
  readonly spatialSteps: number;
  readonly reduceSteps: number;
  readonly perSpatial: number;
  readonly perReduce: number;
  readonly constant: number;
  readonly extent: number;
}

/** The borders that an access crosses, empty if it stays inside; or why blocks cannot omit what is outside. */
export function bordersOf(
  computation: Computation,
  access: Access,
  dimensions: readonly LoopDimension[],
): readonly Border[] | string {
  const tensor = tensorOf(computation, access.tensor);
  const extents = extentsOf(computation);
  const borders: Border[] = [];
  for (const [position, index] of access.index.entries()) {
    const [min, max] = boundsOf(index, extents);
    const extent = tensor.dims[position]?.extent ?? 0;
    if (min >= 0 && max < extent) continue;
    const outside = `index ${position} of ${tensor.name} runs from ${min} to ${max}, outside 0 .. ${extent - 1}`;
    const form = affineForm(index);
    const met = [...(form?.terms ?? [])].flatMap(([loop, coefficient]) => {
      const dimension = dimensions.find((d) => hasName(d.loops, loop));
      return dimension && dimension.extent > 1 ? [{ dimension, coefficient }] : [];
    });
    const [spatial, ...others] = met.filter((m) => m.dimension.kind === "spatial");
    const [reduce, ...more] = met.filter((m) => m.dimension.kind === "reduce");
    if (!form || !spatial || !reduce || others.length + more.length > 0) return outside;
    const taken = borders.some((b) => b.spatial === spatial.dimension.name || b.reduce === reduce.dimension.name);
    const alone = [spatial, reduce].every((m) => m.dimension.axis === undefined && m.dimension.loops.length === 1);
    if (taken || !alone) return `${outside}, where the instruction's own axes run`;
    borders.push({
      spatial: spatial.dimension.name,
      reduce: reduce.dimension.name,
      spatialSteps: spatial.dimension.steps,
      reduceSteps: reduce.dimension.steps,
      perSpatial: spatial.coefficient,
      perReduce: reduce.coefficient,
      constant: form.constant,
      extent,
    });
  }
  return borders;
}

/** Whether the element read at these steps lies inside the tensor. */
export function isInside(border: Border, spatialStep: number, reduceStep: number): boolean {
  const at = border.perSpatial * spatialStep + border.perReduce * reduceStep + border.constant;
  return at >= 0 && at < border.extent;
}

/** Whether the steps inside are a range of the summed loop: both dimensions run step by step. */
export function isRange({ spatial, reduce }: Border, blockOf: (dimension: string) => number): boolean {
  return blockOf(spatial) === 1 && blockOf(reduce) === 1;
}

/** The steps of the summed dimension that lie inside at a step of the kept one. */
export function rangeInside({ perSpatial, perReduce, constant, extent }: Border, spatialStep: Expr): StepRange {
  const by = Math.abs(perReduce);
  const moved = times(spatialStep, perSpatial);
  // The first r with by*r >= limit - moved.
  const first = (limit: number): Expr => over(minus(limit + by - 1, moved), by);
  const firstBackwards = (limit: number): Expr => over(plus(moved, limit + by - 1), by);
  return perReduce > 0
    ? { from: [first(-constant)], to: [first(extent - constant)] }
    : { from: [firstBackwards(constant - extent + 1)], to: [firstBackwards(constant + 1)] };
}

/**
 * The effect of a border on blocks of `block` steps of the kept dimension. Whole blocks in the range stay inside; those
 * before and after it are edges.
 */
export interface BorderBlocks {
  readonly from: number;
  readonly to: number;
  /** Whether the smaller remainder block is an edge. */
  readonly leftIsEdge: boolean;
  readonly edges: number;
  /**
   * Blocks written where there are edges, as far as they are inside: one for each step of the summed dimension, and one
   * for a remainder that is no edge. Blocks that leave the tensor at the same steps share one.
   */
  readonly texts: number;
  /** Number of pairs of a step and a summed step that lie inside. */
  readonly insideSteps: number;
  /** Number of pairs of a block and a summed step with at least one step inside. */
  readonly insideBlocks: number;
}

export const borderBlocks = memoisedPair(countBlocks);

/**
 * Starts of the stretches of whole blocks that leave the tensor at the same steps; the first is 0. `[0, 1]` for s 0 of
 * a 3x3, `[0]` for s 1.
 * @param stepOf the step of a border's summed dimension; undefined for all of its steps
 */
export function stretches(
  borders: readonly Border[],
  block: number,
  stepOf: (border: Border) => number | undefined,
): readonly number[] {
  const whole = Math.min(...borders.map((b) => Math.floor(b.spatialSteps / block)));
  const begins = [0];
  let before: string | undefined;
  for (let at = 0; at < whole; at++) {
    let left = "";
    for (const border of borders) {
      const known = stepOf(border);
      const [first, last] = known === undefined ? [0, border.reduceSteps - 1] : [known, known];
      for (let r = first; r <= last; r++)
        for (let p = at * block; p < (at + 1) * block; p++) left += isInside(border, p, r) ? "." : "x";
    }
    if (before !== undefined && before !== left) begins.push(at);
    before = left;
  }
  return begins;
}

function countBlocks(border: Border, block: number): BorderBlocks {
  const { spatialSteps, reduceSteps } = border;
  const whole = Math.floor(spatialSteps / block);
  const inside: boolean[] = [];
  let insideSteps = 0;
  let insideBlocks = 0;
  for (let b = 0; b * block < spatialSteps; b++) {
    let all = true;
    for (let r = 0; r < reduceSteps; r++) {
      let met = 0;
      const end = Math.min(spatialSteps, (b + 1) * block);
      for (let p = b * block; p < end; p++) if (isInside(border, p, r)) met++;
      insideSteps += met;
      if (met > 0) insideBlocks++;
      if (met < end - b * block) all = false;
    }
    inside.push(all);
  }
  const first = inside.slice(0, whole).indexOf(true);
  const from = first < 0 ? whole : first;
  let to = from;
  while (to < whole && inside[to]) to++;
  const leftIsEdge = inside[whole] === false;
  const edges = whole - (to - from) + (leftIsEdge ? 1 : 0);
  const insideIn = (first: number, r: number): number =>
    upTo(Math.min(block, spatialSteps - first)).filter((p) => isInside(border, first + p, r)).length / block;
  let texts = 0;
  for (let r = 0; r < reduceSteps; r++) {
    texts += sumOf(
      stretches([border], block, () => r),
      (begin) => insideIn(begin * block, r),
    );
    if (leftIsEdge) texts += insideIn(whole * block, r);
  }
  if (!leftIsEdge) texts += (spatialSteps - whole * block) / block;
  return { from, to, leftIsEdge, edges, texts, insideSteps, insideBlocks };
}
