/**
 * @file Fused loops that are contiguous in memory: their elements lie side by side, and none is ever outside the
 * tensor.
 *
 *     w[k,c,r,s] along c,r,s fused, 64 x 3 x 3      one row of 576 elements: 8 at once, where s alone allows 1
 *     in[n,c,p,q] along p,q fused, 14 x 14          196 elements: 4 at once, where q alone allows 2
 */

import { type AffineForm, affineForm, boundsOf, type Extents, evaluateIndex } from "../../abstraction/affine.ts";
import { hasName, memoised, memoisedPair, upTo, volumeOf, withName } from "../../abstraction/collections.ts";
import { extentsOf, type Tensor } from "../../abstraction/computation.ts";
import { type Access, axesIn, number } from "../../abstraction/expression.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import type { LoopDimension } from "./dimensions.ts";

/** Loops of a mapping. */
export interface MappedLoops {
  /** Extents of all loops of the computation. */
  readonly extents: Extents;
  /** The loops that feed axes of the instruction. */
  readonly fed: ReadonlySet<string>;
  /** Loops among them that a tile may run past the end of: the outermost of each axis, whose value is a quotient. */
  readonly past: ReadonlySet<string>;
}

/** The loops of a mapping. */
export const mappedLoops = memoised(({ computation, matching }: Mapping): MappedLoops => {
  const axes = Object.values(matching);
  return {
    extents: extentsOf(computation),
    fed: new Set(axes.flat()),
    past: new Set(axes.flatMap((all) => all.slice(0, 1))),
  };
});

/** Offset of an element along one dimension of a tensor, with the others at 0. */
export const placeAlong = ({ dims, storage }: Tensor, name: string, at: number): number =>
  evaluateIndex(storage, { ...Object.fromEntries(dims.map((d) => [d.name, 0])), [name]: at });

/** Offset of each element along one dimension of a tensor. A storage formula is a sum over its dimensions. */
export const placesAlong = memoisedPair((tensor: Tensor, name: string): readonly number[] => {
  const extent = withName(tensor.dims, name)?.extent ?? 1;
  return upTo(extent).map((i) => placeAlong(tensor, name, i));
});

/** The affine form of each index. */
export const formsIn = memoised(({ index }: Access): readonly (AffineForm | undefined)[] => index.map(affineForm));

/**
 * Length, up to `most`, of contiguous runs along fused loops that start at a multiple of their length; 1 when that is
 * not certain.
 */
export function denseRun(
  access: Access,
  { loops, weights }: LoopDimension,
  tensor: Tensor,
  { extents, fed, past }: MappedLoops,
  most: number,
): number {
  const { index } = access;
  const forms = formsIn(access);
  const { origin, steps } = stepsIn(tensor);
  const strideOf = (loop: string): number | undefined => strideAlong(access, tensor, loop);

  // 1. The innermost loops whose memory offset advances with the fused index.
  let first = loops.length;
  while (first > 0 && strideOf(loops[first - 1]?.name ?? "") === weights[first - 1]) first--;
  const dense = loops.slice(first);
  if (dense.length < 2) return 1;
  const isDense = (name: string): boolean => hasName(dense, name);

  // 2. No index they move is ever outside, not even where a tile runs past the end of another loop.
  const inside = index.every((e, i) => {
    const moving = [...(forms[i]?.terms.keys() ?? [])];
    if (!moving.some(isDense)) return true;
    if (moving.some((name) => !isDense(name) && past.has(name))) return false;
    const [least, greatest] = boundsOf(e, extents);
    return least >= 0 && greatest < (tensor.dims[i]?.extent ?? 0);
  });
  if (!inside) return 1;

  // 3. All other loops move the offset by multiples of the run.
  const others = Object.keys(extents).filter((name) => !isDense(name) && ((extents[name] ?? 1) > 1 || fed.has(name)));
  const strides = others.map(strideOf);
  if (strides.some((s) => s === undefined)) return 1;
  const constant = forms.reduce((sum, form, i) => sum + (form?.constant ?? 0) * (steps[i] ?? 0), origin);
  // An index without an affine form is some number of steps of its dimension.
  const unknown = forms.flatMap((form, i) => (form === undefined ? [steps[i] ?? 1] : []));
  const run = volumeOf(dense);
  const whole = [run, constant, ...unknown, ...strides.map((s) => s ?? 0)];
  let width = most;
  while (width > 1 && !whole.every((n) => n % width === 0)) width /= 2;
  return width;
}

/** Elements that an access moves by when a loop advances; undefined when the distance varies. */
export function strideAlong(access: Access, tensor: Tensor, loop: string): number | undefined {
  const { steps } = stepsIn(tensor);
  return formsIn(access).reduce<number | undefined>((sum, form, i) => {
    const factor = form?.terms.get(loop) ?? 0;
    const step = steps[i];
    const varies = form === undefined && axesIn(access.index[i] ?? number(0)).includes(loop);
    if (sum === undefined || varies || (factor !== 0 && step === undefined)) return undefined;
    return factor === 0 ? sum : sum + factor * (step ?? 0);
  }, 0);
}

interface Steps {
  /** Offset of the first element. */
  readonly origin: number;
  /** Distance between neighbours along each dimension; undefined when it varies. */
  readonly steps: readonly (number | undefined)[];
}

const stepsIn = memoised((tensor: Tensor): Steps => {
  const origin = placeAlong(tensor, "", 0);
  // Where there is only one element, an instruction may still step beyond it.
  const beyond = (name: string): number => placeAlong(tensor, name, 1) - origin;
  const steps = tensor.dims.map(({ name, extent }) =>
    extent === 1 ? beyond(name) : evenStep(placesAlong(tensor, name)),
  );
  return { origin, steps };
});

function evenStep(places: readonly number[]): number | undefined {
  const [origin = 0, next = 0] = places;
  return places.every((at, i) => at === origin + i * (next - origin)) ? next - origin : undefined;
}
