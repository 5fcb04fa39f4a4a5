/**
 * @file Fused loops that lie in memory as one: their digits side by side, none of them ever outside the tensor.
 *
 *     w[k,c,r,s] along c,r,s fused, 64 x 3 x 3      one row of 576 elements: 8 at once, where s alone allows 1
 *     in[n,c,p,q] along p,q fused, 14 x 14          196 elements: 4 at once, where q alone allows 2
 */

import { affineForm, boundsOf, type Extents, evaluateIndex } from "../../abstraction/affine.ts";
import type { Tensor } from "../../abstraction/computation.ts";
import type { Access } from "../../abstraction/expression.ts";
import type { LoopDimension } from "./dimensions.ts";

const knownPlaces = new WeakMap<Tensor, Map<string, readonly number[]>>();

/** Place of each element along one dimension of a tensor, the others at 0: worked out once. A storage formula is a sum over its dimensions. */
export function placesAlong(tensor: Tensor, name: string): readonly number[] {
  const known = knownPlaces.get(tensor) ?? new Map<string, readonly number[]>();
  knownPlaces.set(tensor, known);
  const places = known.get(name) ?? findPlaces(tensor, name);
  known.set(name, places);
  return places;
}

function findPlaces(tensor: Tensor, name: string): readonly number[] {
  const origin = Object.fromEntries(tensor.dims.map((d) => [d.name, 0]));
  const extent = tensor.dims.find((d) => d.name === name)?.extent ?? 1;
  return Array.from({ length: extent }, (_, i) => evaluateIndex(tensor.storage, { ...origin, [name]: i }));
}

/**
 * Elements along fused loops, up to `most`, that lie side by side and begin at a multiple of their number; 1 where that is not certain.
 * @param extents of all loops of the computation
 */
export function denseRun(
  { index }: Access,
  { loops, weights }: LoopDimension,
  tensor: Tensor,
  extents: Extents,
  most: number,
): number {
  const forms = index.map(affineForm);
  const steps = tensor.dims.map(({ name }) => evenStep(placesAlong(tensor, name)));
  const strideOf = (loop: string): number | undefined =>
    forms.reduce<number | undefined>((sum, form, i) => {
      const [factor, step] = [form?.terms.get(loop) ?? 0, steps[i]];
      if (sum === undefined || form === undefined || (factor !== 0 && step === undefined)) return undefined;
      return factor === 0 ? sum : sum + factor * (step ?? 0);
    }, 0);

  // 1. The innermost loops that count places as they count the fused index.
  let first = loops.length;
  while (first > 0 && strideOf(loops[first - 1]?.name ?? "") === weights[first - 1]) first--;
  const dense = loops.slice(first);
  if (dense.length < 2) return 1;
  const isDense = (name: string): boolean => dense.some((l) => l.name === name);

  // 2. No index that they move is ever outside.
  const inside = index.every((e, i) => {
    if (![...(forms[i]?.terms.keys() ?? [])].some(isDense)) return true;
    const [least, greatest] = boundsOf(e, extents);
    return least >= 0 && greatest < (tensor.dims[i]?.extent ?? 0);
  });
  if (!inside) return 1;

  // 3. Everything else moves by multiples.
  const others = Object.keys(extents).filter((name) => !isDense(name));
  const strides = others.map(strideOf);
  if (strides.some((s) => s === undefined)) return 1;
  const constant = forms.reduce((sum, form, i) => sum + (form?.constant ?? 0) * (steps[i] ?? 0), 0);
  const whole = [dense.reduce((product, l) => product * l.extent, 1), constant, ...strides.map((s) => s ?? 0)];
  let width = most;
  while (width > 1 && !whole.every((n) => n % width === 0)) width /= 2;
  return width;
}

/** The distance between neighbours, where it is one. */
function evenStep(places: readonly number[]): number | undefined {
  const [origin = 0, next] = places;
  if (next === undefined) return 0;
  const step = next - origin;
  return places.every((at, i) => at === origin + i * step) ? step : undefined;
}
