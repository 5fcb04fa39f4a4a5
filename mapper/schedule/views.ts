/**
 * @file The part of a tensor that an input's tile covers, in the terms of a copy engine: a box, or pixels that the
 * engine walks.
 *
 *     w[k,c,r,s], KRSC            rows k, columns c: a box of c 64, s 1, r 1, k 128
 *     in[n,c,p*2+r-1,q*2+s-1]     rows n,p,q, columns c: pixels, w from -1 in steps of 2, then h, then n; offsets s, r
 *
 * It follows from the tensor's indices alone. Filters of any rank, strides and dilations need no special case.
 */

import { type AffineForm, affineForm, type Extents } from "../../abstraction/affine.ts";
import { memoisedPair, sumOf } from "../../abstraction/collections.ts";
import {
  type Axis,
  type Computation,
  extentsOf,
  keptIn,
  outputOf,
  summedIn,
  type Tensor,
  tensorOf,
} from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { type Access, accessesIn, type Expr, number } from "../../abstraction/expression.ts";
import { storingEquation } from "../../abstraction/row-chain.ts";
import { BEGINNING_BYTES, type PixelRows, type ViewedDimension } from "../../abstraction/tensor-view.ts";
import { placeAlong } from "./dense-runs.ts";
import type { GridAxis, GridContext, GridInput } from "./grid-context.ts";

/** A tensor's dimension as a copy engine counts it, and its index as a form of the loops. */
export interface ViewedDim extends ViewedDimension {
  readonly form: AffineForm;
  /** Stands for an index that is read from a tensor; the form is then 0. */
  readonly read?: Expr;
}

/** Innermost first. */
interface ViewForm {
  readonly access: Access;
  readonly dims: readonly ViewedDim[];
  /** Whether the tensor ends where the sum does, so that an engine fills what lies beyond with zeros. */
  readonly ends: boolean;
  /** The dimension that rows run along, or the walk of their pixels. */
  readonly rows:
    | { readonly kind: "box"; readonly along: number }
    | { readonly kind: "pixels"; readonly walks: PixelRows["walks"] };
}

/** Every pitch but the innermost must be a multiple of this. Source: CUDA driver API, cuTensorMapEncodeTiled. */
const PITCH_BYTES = 16;
const MOST_DIMENSIONS = 5;
/** Largest step of a walk. Source: CUDA driver API, cuTensorMapEncodeIm2col, elementStrides. */
const MOST_STEP = 8;
/**
 * Bounds of corners to either side, and of offsets, by the number of walked dimensions. Source: the same; PTX ISA,
 * im2col mode.
 */
const MOST_CORNER = [0, 2 ** 15, 2 ** 7, 2 ** 4] as const;
const MOST_OFFSET = [0, 2 ** 16, 2 ** 8, 2 ** 5] as const;

/** An input's tiles as views for a copy engine, or one sentence on why an engine cannot fetch them. */
export const viewForm = memoisedPair(({ mapping, sum }: GridContext, input: GridInput): ViewForm | string => {
  const { computation } = mapping;
  const { operand, kept, contiguous } = input;
  const read = readDims(computation, input);
  if (typeof read === "string") return read;
  const { access: value } = read;
  const bytes = bytesOf(operand.dtype);
  const [rowAxis, columnAxis] = contiguous === "sum" ? [kept, sum] : [sum, kept];
  const extents = extentsOf(computation);
  const dims = joined(joined(read.dims, columnAxis, extents), rowAxis, extents);
  const uneven = pitchProblem(value.tensor, dims, bytes);
  if (uneven !== undefined) return uneven;

  // 1. Columns run along the innermost dimension, and nothing else does.
  const inner = columnsIn(value.tensor, dims, columnAxis);
  if (typeof inner === "string") return inner;
  const ofColumns = new Set(columnAxis.dimension?.loops.map((l) => l.name));

  // Tiles along that dimension begin at aligned positions, so borders and the shifts of other loops must be aligned
  // too.
  const added = [...inner.form.terms].filter(([name]) => !ofColumns.has(name) && extents[name] !== 1);
  const off = [inner.form.constant, ...added.map(([, by]) => by)].map((n) => Math.abs(n) * bytes);
  const odd = off.find((n) => n % BEGINNING_BYTES !== 0);
  if (odd !== undefined)
    return `tiles of ${value.tensor} begin at an offset of ${odd} bytes along ${inner.name}, and a copy engine begins at multiples of ${BEGINNING_BYTES} bytes`;

  // 2. Beyond the end of the summed axis, elements must be 0. So the tensor must end there too, or tiles of the sum there.
  const along = dims.find((d) => liesAlong(d, sum));
  if (!along) return endsElsewhere(sum, value);
  const ends =
    along.extent === sum.elements && along.form.constant === 0 && along.form.terms.size === sum.dimension?.loops.length;

  // 3. Rows run along one dimension with coefficient 1, or their loops walk the tensor in its own order.
  const rows = rowAxis.dimension?.loops.map((l) => l.name) ?? [];
  if (rows.length === 0) return `no loop feeds the rows of ${value.tensor}`;
  const places = dims.flatMap((d, i) => (rows.some((row) => d.form.terms.has(row)) ? [i] : []));
  const [place = 0, ...others] = places;
  const ofRows = dims[place];
  if (ofRows && others.length === 0 && liesAlong(ofRows, rowAxis))
    return { access: value, dims, ends, rows: { kind: "box", along: place } };
  if (contiguous !== "sum") return `rows of ${value.tensor} are several loops of the sum`;
  const apart = pitchProblem(value.tensor, read.dims, bytes);
  if (apart !== undefined) return apart;
  const walks = walksOf(computation.axes, read.dims, rows.toReversed());
  return typeof walks === "string" ? walks : { access: value, dims: read.dims, ends, rows: { kind: "pixels", walks } };
});

/** Why zeros would be missing beyond the end of a sum. */
export const endsElsewhere = ({ axis }: GridAxis, { tensor }: Access): string =>
  `the sum over ${axis} does not end at the end of ${tensor}`;

/** The innermost dimension, along which columns run and nothing else does, or one sentence on why they do not. */
function columnsIn(tensor: string, dims: readonly ViewedDim[], { axis, dimension }: GridAxis): ViewedDim | string {
  const [inner] = dims;
  if (!inner || !liesAlong(inner, { dimension }))
    return `the columns of ${tensor} are neither one loop nor several loops that are contiguous in memory`;
  const own = new Set(dimension?.loops.map((l) => l.name));
  return dims.some((d) => d !== inner && [...d.form.terms.keys()].some((name) => own.has(name)))
    ? `${axis} does not run along ${inner.name} alone, the contiguous dimension of ${tensor}`
    : inner;
}

/**
 * The results of a tile as a box for a copy engine, or one sentence on why an engine cannot store them. A tile ends where
 * the tensor does, since that is all that the engine leaves out.
 */
export function resultForm({ mapping, rows, columns }: GridContext): ViewForm | string {
  const { computation } = mapping;
  const { target } = storingEquation(computation);
  const output = outputOf(computation);
  const bytes = bytesOf(output.dtype);
  const own = dimsOf(output, target, bytes);
  if (typeof own === "string") return own;
  const extents = extentsOf(computation);
  const dims = joined(joined(own, columns, extents), rows, extents);
  const uneven = pitchProblem(output.name, dims, bytes);
  if (uneven !== undefined) return uneven;
  const inner = columnsIn(output.name, dims, columns);
  if (typeof inner === "string") return inner;
  const loops = rows.dimension?.loops.map((l) => l.name) ?? [];
  const along = dims.findIndex((d) => loops.length > 0 && liesAlong(d, rows));
  const isWhole = (d: ViewedDim | undefined, { dimension, elements }: GridAxis): boolean =>
    d !== undefined && d.extent === elements && d.form.constant === 0 && d.form.terms.size === dimension?.loops.length;
  if (dims.some((d) => d.read)) return `elements decide where ${output.name} is stored`;
  if (along < 1 || dims.some((d, i) => i !== along && loops.some((name) => d.form.terms.has(name))))
    return `the rows of ${output.name} do not run along one dimension`;
  return isWhole(dims[along], rows) && isWhole(inner, columns)
    ? { access: target, dims, ends: true, rows: { kind: "box", along } }
    : `the results do not end where ${output.name} does`;
}

/** Whether the fused loops of an axis run along a dimension with coefficient 1. */
const liesAlong = ({ form }: ViewedDim, { dimension }: Pick<GridAxis, "dimension">): boolean =>
  dimension?.loops.every((l, i) => form.terms.get(l.name) === dimension.weights[i]) ?? false;

/**
 * Merges contiguous dimensions that the fused loops of an axis run along. Dimensions that such loops walk in another
 * way stay separate.
 *
 *     w[k,u,r,s,c], rows k,u of 512 x 8       c, s, r, u 8, k 512  ->  c, s, r, ku 4096
 *     in[n,h,w,c] read at n,p,q,c             c, w, h, n           ->  c, nhw
 */
function joined(dims: readonly ViewedDim[], { dimension }: GridAxis, extents: Extents): readonly ViewedDim[] {
  // A loop of extent 1 is always 0.
  const moving = ({ constant, terms }: AffineForm): AffineForm => ({
    constant,
    terms: new Map([...terms].filter(([name]) => extents[name] !== 1)),
  });
  const isOf = (d: ViewedDim, l: Axis): boolean =>
    d.extent === l.extent && isAlone(l.extent === 1 ? d.form : moving(d.form), l.name);
  const own = dimension?.loops.map((l) => dims.find((d) => isOf(d, l))) ?? [];
  const [fastest, ...slower] = own.toReversed();
  if (!dimension || !fastest || slower.length === 0) return dims;
  const whole = slower.reduce<ViewedDim | undefined>((inner, outer) => {
    if (!inner || !outer || (outer.extent > 1 && outer.pitch !== inner.pitch * inner.extent)) return undefined;
    const terms = new Map([
      ...inner.form.terms,
      ...[...outer.form.terms].map(([l, by]) => [l, by * inner.extent] as const),
    ]);
    return {
      name: outer.name + inner.name,
      own: [...inner.own, ...outer.own],
      form: { constant: 0, terms },
      extent: inner.extent * outer.extent,
      pitch: inner.pitch,
    };
  }, fastest);
  return whole ? dims.flatMap((d) => (d === fastest ? [whole] : own.includes(d) ? [] : [d])) : dims;
}

/**
 * The dimensions of the tensor that an input reads, innermost first, or one sentence on why an engine cannot address
 * them.
 */
export function viewedDims(
  computation: Computation,
  input: GridInput,
): { readonly access: Access; readonly dims: readonly ViewedDim[] } | string {
  const read = readDims(computation, input);
  if (typeof read === "string") return read;
  return pitchProblem(read.access.tensor, read.dims, bytesOf(input.operand.dtype)) ?? read;
}

function readDims(
  computation: Computation,
  { operand, value, conditions }: GridInput,
): { readonly access: Access; readonly dims: readonly ViewedDim[] } | string {
  if (value.kind !== "access" || conditions.length > 0)
    return `${operand.name} is computed from its tensors, and a copy engine only copies`;
  const dims = dimsOf(tensorOf(computation, value.tensor), value, bytesOf(operand.dtype));
  return typeof dims === "string" ? dims : { access: value, dims };
}

/** Why an engine cannot address these dimensions: there are too many, or a pitch is not a multiple of 16 bytes. */
function pitchProblem(tensor: string, dims: readonly ViewedDim[], bytes: number): string | undefined {
  if (dims.length < 2 || dims.length > MOST_DIMENSIONS) return `${tensor} has ${dims.length} dimensions`;
  if (dims[0]?.pitch !== 1) return `${tensor} has no contiguous dimension`;
  const odd = dims.slice(1).find((d) => (d.pitch * bytes) % PITCH_BYTES !== 0);
  return odd
    ? `${tensor} has ${odd.pitch * bytes} bytes from one ${odd.name} to the next, which is not a multiple of ${PITCH_BYTES}`
    : undefined;
}

const isAlone = ({ constant, terms }: AffineForm, loop: string): boolean =>
  constant === 0 && terms.size === 1 && terms.get(loop) === 1;

/** Dimensions of a tensor, innermost first. A dimension of extent 1 for which any pitch would do comes outermost. */
function dimsOf(tensor: Tensor, access: Access, bytes: number): ViewedDim[] | string {
  const whole = PITCH_BYTES / bytes;
  const all = tensor.dims.reduce((product, d) => product * d.extent, whole);
  const even = affineForm(tensor.storage);
  const dims: ViewedDim[] = [];
  for (const [position, { name, extent }] of tensor.dims.entries()) {
    const index = access.index[position] ?? access;
    const isRead = accessesIn(index).length > 0;
    const form = affineForm(isRead ? number(0) : index);
    if (!form) return `${tensor.name} is not indexed by a linear sum of loops along ${name}`;
    const pitch = extent === 1 ? all : placeAlong(tensor, name, 1) - placeAlong(tensor, name, 0);
    for (let i = 1; i < extent && !even; i++)
      if (placeAlong(tensor, name, i) - placeAlong(tensor, name, i - 1) !== pitch)
        return `${tensor.name} has no constant stride along ${name}`;
    dims.push({ name, own: [{ position, extent }], extent, pitch, form, ...(isRead && { read: index }) });
  }
  if (placeAlong(tensor, "", 0) !== 0) return `the first element of ${tensor.name} is not at the start of its memory`;
  return dims.sort((a, b) => a.pitch - b.pitch);
}

/**
 * How the loops of the rows walk the dimensions between the innermost and the outermost one.
 * @param rows the loops, fastest first
 */
function walksOf(
  axes: readonly Axis[],
  dims: readonly ViewedDim[],
  rows: readonly string[],
): PixelRows["walks"] | string {
  const between = dims.slice(1, -1);
  const [outermost] = dims.slice(-1);
  if (between.length === 0 || !outermost || rows.length > dims.length - 1)
    return "a copy engine needs at least one dimension between the innermost and the outermost one to walk along";
  const walks: PixelRows["walks"][number][] = [];
  for (const [i, { name, form, extent }] of between.entries()) {
    const kept = keptIn(axes).filter((a) => form.terms.has(a.name));
    const [loop, ...others] = kept;
    if (!loop || others.length > 0) return `positions along ${name} do not follow a single spatial loop`;
    if (i < rows.length && loop.name !== rows[i]) return `rows do not walk along ${name} in memory order`;
    const step = form.terms.get(loop.name) ?? 0;
    if (step < 1 || step > MOST_STEP) return `a copy engine cannot walk along ${name} in steps of ${step}`;
    const offsets = summedIn(axes).map((a) => ({ ...a, by: form.terms.get(a.name) ?? 0 }));
    if (offsets.some((o) => o.by < 0)) return `a copy engine cannot walk backwards along ${name}`;
    const most = sumOf(offsets, (o) => o.by * (o.extent - 1));
    if (most >= (MOST_OFFSET[between.length] ?? 0))
      return `${name} is offset by up to ${most}, too far for a copy engine`;
    const walk = { low: form.constant, count: loop.extent, step };
    const corner = MOST_CORNER[between.length] ?? 0;
    if ([walk.low, highCorner(walk, extent)].some((c) => c < -corner || c >= corner))
      return `a walk along ${name} leaves the tensor too far for a copy engine`;
    walks.push(walk);
  }
  const last = rows[dims.length - 2];
  if (last !== undefined && !isAlone(outermost.form, last)) return `rows do not walk along ${outermost.name}`;
  return walks;
}

/** The last position of a walk, relative to the tensor's last. */
function highCorner({ low, count, step }: PixelRows["walks"][number], extent: number): number {
  return low + step * (count - 1) - (extent - 1);
}
