/**
 * @file Rewrites a filter of one channel into a product of matrices: the image in overlapping rows, times a band of the weights.
 *
 *     out[p,q] += in[p+r-4,q+s-4] * w[r,s]                                p, q 0..8192, r, s 0..9
 *  ->
 *     out[p*16+p_in,q*128+q_run*16+q_in] +=                               p 0..512, q 0..64, p_in 0..16, q_run 0..8, q_in 0..16
 *         in[p*16+p_in+r-4,q*128+q_run*16+s-8] * w[r,s-q_in-4]            r 0..9, s 0..32
 *
 *     rows (p,q,p_in,q_run), columns q_in, sum (r,s)        column q_in of the band holds the weights from row q_in + 4 on, and zeros
 *
 * No loop of a filter of one channel indexes its weights alone, so an instruction would have a single column. A result's
 * position within a run of `wide` results becomes that column, and the taps count from the first element that the run
 * reads. Weights before the first or after the last tap lie outside their tensor and are zero. The products grow from
 * S to (S + wide - 1) a row of taps, rounded up to what an instruction sums. Runs begin at aligned elements, `s-8` above,
 * so that a fragment consists of rows of 16 bytes. Tensors stay as they are.
 *
 * A product with a zero of the band is 0 only for finite elements: where the image holds an infinity or no number, the whole run is affected.
 */

import { affineForm } from "../../abstraction/affine.ts";
import { namesOf, sumOf, volumeOf } from "../../abstraction/collections.ts";
import { type Axis, type Computation, keptIn, targetOf } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { type Access, accessesIn, axesIn, axis, type Expr, minus, plus, times } from "../../abstraction/expression.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { endsProblem, freshAxis, modulo, type Rewritten, replaced, resized } from "./other-loops.ts";

/** Results of a run, and the name of the rewriting. */
export const BANDS = { "bands-8": 8, "bands-16": 16, "bands-32": 32 } as const;
type BandName = keyof typeof BANDS;
export const BAND_NAMES = Object.keys(BANDS) as readonly BandName[];

export const isBand = (kind: string | undefined): kind is BandName => kind !== undefined && kind in BANDS;

/** Rows of results in a block whose fragments share rows of the image. */
const ROWS = 16;
/** Runs of one row in a fragment: the columns of `mma`. */
const RUNS = 8;
/** Bytes of a row of `ldmatrix`, and of what an instruction sums at once. */
const ROW_BYTES = 16;
const SUM_BYTES = 32;

/** A filter: what it reads, and the loops that slide along the innermost dimension and along the next. */
interface Filter {
  readonly image: Access;
  readonly along: Slide;
  readonly across: Slide | undefined;
}

interface Slide {
  readonly kept: Axis;
  readonly summed: Axis;
  /** Of the index `q+s-4`: -4. */
  readonly constant: number;
}

/** The computation in new loops and what became of each loop, or one sentence on why it has no such form. */
export function inBands(computation: Computation, wide: number): Rewritten | string {
  const filter = filterIn(computation);
  if (typeof filter === "string") return filter;
  const { image, along, across } = filter;
  if (along.kept.extent < wide) return `${along.kept.name} is shorter than a run of ${wide}`;
  const bytes = bytesOf(computation.tensors[image.tensor]?.dtype ?? "f32");
  const made = (loop: Axis, what: string, extent: number): Axis => ({
    name: freshAxis(computation, `${loop.name}_${what}`),
    extent,
    kind: "spatial",
  });
  const column = made(along.kept, "in", wide);

  // 1. Runs begin `before` elements ahead of their first tap, at an aligned element, and end where an instruction's sum does.
  const before = modulo(along.constant, ROW_BYTES / bytes);
  const grain = SUM_BYTES / bytes;
  const taps = Math.ceil((before + wide - 1 + along.summed.extent) / grain) * grain;
  const places = new Map([[along.summed.name, minus(minus(axis(along.summed.name), axis(column.name)), before)]]);
  const extents = new Map([[along.summed.name, taps]]);

  // 2. Runs of one row of the image fill a fragment, and rows below one another follow it.
  const split = (loop: Axis, into: readonly Axis[]): void => {
    const place = into.reduce<Expr>((e, a) => plus(times(e, a.extent), axis(a.name)), axis(loop.name));
    places.set(loop.name, place);
    extents.set(loop.name, Math.ceil(loop.extent / volumeOf(into)));
  };
  const isBlock = across !== undefined && across.kept.extent >= ROWS && along.kept.extent >= RUNS * wide;
  const inner = isBlock ? [made(across.kept, "in", ROWS), made(along.kept, "run", RUNS)] : [];
  split(along.kept, [...inner.slice(1), column]);
  if (isBlock) split(across.kept, inner.slice(0, 1));
  const { axes: old } = resized(computation, extents);
  const isKept = (a: Axis): boolean => a.kind === "spatial";
  const axes = [...old.filter(isKept), ...inner, column, ...old.filter((a) => !isKept(a))];
  return { computation: replaced({ ...computation, axes }, places), places };
}

/** Mappings of a band that leave no loop outside the instruction: a tile is then a box of the image, which a block stages once. */
export function bandsWhole(found: readonly Mapping[]): readonly Mapping[] {
  return found.filter(({ computation, matching }) => {
    if (!isBand(computation.rewriting?.kind)) return true;
    const fed = new Set(Object.values(matching).flat());
    return computation.axes.every((a) => a.extent === 1 || fed.has(a.name));
  });
}

/** The sum of products of an image and of weights that no kept loop indexes. */
function filterIn(computation: Computation): Filter | string {
  const { equation, axes, time } = computation;
  const { value, op, where } = equation;
  if (op !== "+=" || where !== undefined || time) return "it is no plain sum";
  if (value.kind !== "binary" || value.op !== "*") return "it does not sum products";
  const left = elementOf(value.left);
  const right = elementOf(value.right);
  if (!left || !right) return "a factor is no element of a tensor";
  const kept = new Set(namesOf(keptIn(axes)));
  const isWeights = (a: Access): boolean => a.index.every((e) => axesIn(e).every((name) => !kept.has(name)));
  const weights = [left, right].filter(isWeights);
  const [own] = weights;
  const image = own === left ? right : left;
  if (!own || weights.length > 1) return "no tensor holds the weights of one channel: indexed by no kept loop";
  const slides = image.index.map((e) => slideOf(computation, e, own));
  const along = slides.at(-1);
  if (typeof along !== "object") return along ?? `${image.tensor} has no dimensions`;
  const next = slides.at(-2);
  return { image, along, across: typeof next === "object" ? next : undefined };
}

/** The element that a factor is, perhaps of another type. */
function elementOf(e: Expr): Access | undefined {
  if (e.kind === "access") return accessesIn(e).length === 1 ? e : undefined;
  return e.kind === "cast" ? elementOf(e.value) : undefined;
}

/** `q+s-4`: one kept loop and one summed loop in steps of 1, that stand alone in the output and in the weights. */
function slideOf(computation: Computation, e: Expr, weights: Access): Slide | string {
  const form = affineForm(e);
  const loops = computation.axes.filter((a) => form?.terms.has(a.name));
  const [kept, summed, ...more] = loops;
  if (!form || !kept || !summed || more.length > 0 || kept.kind !== "spatial" || summed.kind === "spatial")
    return "its innermost index is no sum of a kept and a summed loop";
  if (form.terms.get(kept.name) !== 1 || form.terms.get(summed.name) !== 1)
    return `${kept.name} or ${summed.name} has a step other than 1`;
  const uses = (name: string): number =>
    sumOf(accessesIn(computation.equation.value), (a) => a.index.filter((i) => axesIn(i).includes(name)).length);
  const at = weights.index.findIndex((i) => i.kind === "axis" && i.name === summed.name);
  const dim = computation.tensors[weights.tensor]?.dims[at];
  // Taps beyond the ends must lie outside the tensor.
  if (dim?.extent !== summed.extent || uses(summed.name) !== 2 || uses(kept.name) !== 1)
    return `${summed.name} alone does not run from one end of ${weights.tensor} to the other`;
  const ends = endsProblem(computation, kept);
  if (ends !== undefined)
    return `${kept.name} alone does not run from one end of ${targetOf(computation).name} to the other`;
  return { kept, summed, constant: form.constant };
}
