/**
 * @file Decision `gather`: before all steps, a block stages the part of an input that its tile reads, in the tensor's
 * own layout. Lanes gather their fragments from it.
 *
 *     gather a, NHWC, 7x7 taps in steps of 2 on 3 channels, a tile of 112 pixels of a row
 *       box               7 rows h of 696 elements wc, 8 copied at once: 4,872 elements, instead of 112 x 147 for a tile at each step
 *       a[m,k]            box[r, 7 + 6*m + 3*s + c], where r, s, c are the digits of k
 *
 * Neighbouring results share most of their inputs, and the box holds each element once. Strides and channels need not
 * be multiples of 16 bytes. The box is the product of the index ranges over the loops of a tile and the whole sum. It
 * follows from the indices alone.
 */

import { type AffineForm, affineForm } from "../../abstraction/affine.ts";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { memoisedBy, namesOf, volumeOf, withName } from "../../abstraction/collections.ts";
import { type Computation, summedIn, type Tensor, tensorOf } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import type { Access } from "../../abstraction/expression.ts";
import { readsShared } from "../../abstraction/intrinsic.ts";
import { identifier } from "../../abstraction/schema.ts";
import { formsIn } from "./dense-runs.ts";
import type { LoopDimension } from "./dimensions.ts";
import { type GridContext, type GridDecision, type GridInput, MOST_BYTES } from "./grid-context.ts";

export const gather: GridDecision<"gather"> = {
  summary:
    "An input that is staged once for all steps, in its tensor's layout; lanes gather their fragments from it. By default each step stages its own tile.",
  example: "a",
  schema: identifier.optional(),
  values: (context) => [
    undefined,
    ...context.inputs.flatMap((i) => (isGatherable(context, i) ? [i.operand.name] : [])),
  ],
  suits: (context, { tile }, name) => name === undefined || typeof boxFor(context, { tile, gather: name }) !== "string",
  goesWith: "repack",
  traits: ({ gather: name }) => (name === undefined ? [] : ["gather"]),
  problem: gatherProblem,
};

/** A dimension of the tensor, or several contiguous ones of which all but the outermost are read completely. */
interface FormDim {
  readonly name: string;
  /** Outermost first. */
  readonly own: readonly { readonly position: number; readonly extent: number }[];
  /** Its index as a form of the loops, with its own dimensions counted as one. */
  readonly form: AffineForm;
  readonly extent: number;
  /** Distance between neighbouring positions in the tensor, in elements. */
  readonly pitch: number;
}

interface GatherForm {
  readonly input: GridInput;
  readonly access: Access;
  /** Outermost first. */
  readonly dims: readonly FormDim[];
}

/** A loop of the kept axis: the number of values a tile covers, and the distance between them in the tile's results. */
interface TileLoop {
  readonly name: string;
  readonly count: number;
  readonly weight: number;
  /** Whether a tile covers all of its values. */
  readonly isWhole: boolean;
}

export interface BoxDim extends FormDim {
  /** Number of positions staged. */
  readonly staged: number;
  /** Positions staged before the first one that is read, since copies begin at multiples of their width. */
  readonly ahead: number;
  /** Distance between neighbouring positions in shared memory, in elements. */
  readonly weight: number;
}

export interface GatherBox extends Omit<GatherForm, "dims"> {
  readonly dims: readonly BoxDim[];
  readonly kept: readonly TileLoop[];
  /** Size in shared memory, in elements. */
  readonly elements: number;
  /** Elements along the innermost dimension that one copy moves. */
  readonly width: number;
  /** Whether fragments consist of rows of 16 bytes, as `ldmatrix` reads them. */
  readonly inRows: boolean;
}

const forms = memoisedBy<GridContext, GatherForm | string>();

/** How an input could be staged in its own layout, or one sentence on why it cannot. */
const gatherForm = (context: GridContext, input: GridInput): GatherForm | string =>
  forms(context, input.operand.name, () => findForm(context, input));

function findForm(context: GridContext, input: GridInput): GatherForm | string {
  const { mapping, intrinsic, padding } = context;
  const { operand, value, conditions, kept } = input;
  const { name } = operand;
  if (intrinsic.asynchronous || readsShared(operand))
    return `${intrinsic.name} reads ${name} from shared memory itself, so lanes gather nothing`;
  if (operand.storage === undefined) return `the vendor does not publish which lane holds which element of ${name}`;
  if (value.kind !== "access" || conditions.length > 0)
    return `${name} is computed from its tensors, and a box is copied from one tensor`;
  if (padding.kind !== "number" || padding.value !== 0)
    return "a box holds zeros outside its tensor, and this operand needs another value there";
  const dims = dimsOf(tensorOf(mapping.computation, value.tensor), value);
  if (typeof dims === "string") return dims;
  const inTile = new Set(kept.dimension?.loops.map((l) => l.name));
  const summed = new Set(namesOf(summedIn(mapping.computation.axes)));
  const back = dims.find((d) => [...d.form.terms].some(([l, by]) => by < 0 && (inTile.has(l) || summed.has(l))));
  if (back) return `a loop runs backwards along ${back.name}`;
  const reads = ({ form }: FormDim, loops: ReadonlySet<string>): boolean =>
    [...form.terms.keys()].some((l) => loops.has(l));
  if (!dims.some((d) => reads(d, inTile) && reads(d, summed))) return `no two results of a tile read the same ${name}`;
  return { input, access: value, dims: joined(dims, mapping.computation) };
}

/** The dimensions of the part that is read, outermost first, or why they cannot be staged. */
function dimsOf(tensor: Tensor, access: Access): FormDim[] | string {
  const storage = affineForm(tensor.storage);
  const found: FormDim[] = [];
  for (const [position, { name, extent }] of tensor.dims.entries()) {
    const form = formsIn(access)[position];
    const pitch = storage?.terms.get(name);
    if (!form) return `${tensor.name} is not indexed by a linear sum of loops along ${name}`;
    if (pitch === undefined) return `${tensor.name} has no constant stride along ${name}`;
    found.push({ name, own: [{ position, extent }], form, extent, pitch });
  }
  return found.sort((a, b) => b.pitch - a.pitch);
}

/** Merges the innermost dimensions while all but the last of them are read completely. */
function joined(dims: readonly FormDim[], computation: Computation): readonly FormDim[] {
  const extents = new Map(summedIn(computation.axes).map((a) => [a.name, a.extent]));
  const inner = dims.at(-1);
  const outer = dims.at(-2);
  if (!inner || !outer || inner.form.constant !== 0 || inner.pitch * inner.extent !== outer.pitch) return dims;
  const reached = [...inner.form.terms].reduce(
    (n, [l, by]) => n + by * ((extents.get(l) ?? Number.POSITIVE_INFINITY) - 1),
    1,
  );
  if (reached !== inner.extent) return dims;
  const terms = new Map([...outer.form.terms].map(([l, by]) => [l, by * inner.extent]));
  for (const [l, by] of inner.form.terms) terms.set(l, by + (terms.get(l) ?? 0));
  const whole: FormDim = {
    name: outer.name + inner.name,
    own: [...outer.own, ...inner.own],
    pitch: inner.pitch,
    extent: outer.extent * inner.extent,
    form: { constant: outer.form.constant * inner.extent, terms },
  };
  return joined([...dims.slice(0, -2), whole], computation);
}

const boxes = memoisedBy<GridContext, GatherBox | string>();

/** The box of a schedule; undefined when no input is gathered. */
export function boxOf(context: GridContext, schedule: Pick<GridSchedule, "gather" | "tile">): GatherBox | undefined {
  const found = boxFor(context, schedule);
  return typeof found === "string" ? undefined : found;
}

/** Whether an input may be staged in its own layout for some tile. */
export const isGatherable = (context: GridContext, input: GridInput): boolean =>
  typeof gatherForm(context, input) !== "string";

/** Whether the box of a schedule is copied asynchronously; false when there is none. */
export function boxIsAsync(
  context: GridContext,
  schedule: Pick<GridSchedule, "gather" | "tile" | "transfer">,
): boolean {
  const box = boxOf(context, schedule);
  const bytes = box && box.width * bytesOf(box.input.operand.dtype);
  return schedule.transfer === "async" && bytes !== undefined && context.limits.asyncBytes.includes(bytes);
}

function boxFor(
  context: GridContext,
  { gather: name, tile }: Pick<GridSchedule, "gather" | "tile">,
): GatherBox | string | undefined {
  if (name === undefined) return undefined;
  const input = context.inputs.find((i) => i.operand.name === name);
  if (!input) return `${name} is no input of ${context.intrinsic.name}`;
  const form = gatherForm(context, input);
  if (typeof form === "string") return form;
  const kept = tile[input.kept.axis] ?? 1;
  const sum = tile[context.sum.axis] ?? 1;
  return boxes(context, `${name} ${kept} ${sum}`, () => sized(context, form, kept, sum));
}

/** Largest growth of a box for the sake of wider copies. */
const MOST_WIDENED = 1.5;

function sized(context: GridContext, form: GatherForm, keptTile: number, sumTile: number): GatherBox | string {
  const { input } = form;
  const { operand, kept } = input;
  const loops = tileLoops(kept.dimension, keptTile);
  if (!loops) return `a tile of ${keptTile} along ${kept.axis} is not a box of its loops`;
  const reach = new Map(summedIn(context.mapping.computation.axes).map((a) => [a.name, a.extent]));
  for (const l of loops) reach.set(l.name, l.count);
  const places = ({ terms }: AffineForm): number =>
    [...terms].reduce((n, [l, by]) => n + by * ((reach.get(l) ?? 1) - 1), 1);

  // 1. The innermost dimension: the widest copy to whose width all rows are aligned.
  const inner = form.dims.at(-1);
  if (!inner) return `${form.access.tensor} has no dimensions`;
  const pitches = form.dims.slice(0, -1).map((d) => d.pitch);
  const moves = [...inner.form.terms].flatMap(([l, by]) => {
    if (context.mapping.computation.axes.some((a) => a.name === l && a.kind === "reduce")) return [];
    const own = withName(loops, l);
    return own?.isWhole ? [] : [by * (own?.count ?? 1)];
  });
  const read = places(inner.form);
  const aheadOf = (width: number): number => ((inner.form.constant % width) + width) % width;
  const stagedBy = (width: number): number => Math.ceil((read + aheadOf(width)) / width) * width;
  const isWide = (width: number): boolean =>
    inner.pitch === 1 &&
    [inner.extent, ...pitches, ...moves].every((n) => n % width === 0) &&
    stagedBy(width) <= MOST_WIDENED * read;
  const most = MOST_BYTES / bytesOf(operand.dtype);
  const width = [most, most / 2, most / 4, most / 8].find((w) => w > 1 && isWide(w)) ?? 1;

  // 2. Rows of 16 bytes that are read completely. If they are an odd number of such rows apart, eight of them cover all
  //    banks.
  const isWhole = context.sum.elements % sumTile === 0;
  const inRows =
    isWhole && input.contiguous === "sum" && input.width === most && width === most && bytesOf(operand.dtype) >= 2;
  let weight = 1;
  const dims = form.dims.toReversed().map((d): BoxDim => {
    const own = {
      ...d,
      staged: d === inner ? stagedBy(width) : places(d.form),
      ahead: d === inner ? aheadOf(width) : 0,
      weight,
    };
    weight *= own.staged;
    if (d === inner && inRows && (weight / most) % 2 === 0) weight += most;
    return own;
  });
  return { ...form, dims: dims.toReversed(), kept: loops, elements: weight, width, inRows };
}

/**
 * The part of each loop of the axis that a tile covers, outermost first: whole inner loops, then a part of one.
 * Undefined if the tile is not a box.
 */
function tileLoops(dimension: LoopDimension | undefined, tile: number): TileLoop[] | undefined {
  let left = tile;
  let weight = 1;
  const loops: TileLoop[] = [];
  for (const [i, l] of (dimension?.loops ?? []).toReversed().entries()) {
    const isOutermost = i === (dimension?.loops.length ?? 0) - 1;
    const count = isOutermost ? left : left % l.extent === 0 ? l.extent : left;
    if (!isOutermost && l.extent % count !== 0) return undefined;
    loops.unshift({ name: l.name, count, weight, isWhole: count >= l.extent });
    weight *= count;
    left /= count;
  }
  return loops;
}

/** Why an input cannot be gathered; undefined when it can. */
function gatherProblem(context: GridContext, schedule: GridSchedule): string | undefined {
  const box = boxFor(context, schedule);
  if (box === undefined || typeof box === "string") return box;
  if (schedule.split) return "a box is staged for the whole sum, so the sum cannot be split among blocks";
  const { input, elements } = box;
  const copied = (schedule.tile[input.kept.axis] ?? 1) * context.sum.elements * volumeOf(context.outerSums);
  return elements < copied
    ? undefined
    : `a box of ${elements} elements is no smaller than the ${copied} elements of the tiles`;
}
