/**
 * @file Decision `taps` (implicit GEMM): whether the input of a convolution is staged once for all taps of its filter, or once for each tap.
 *
 *     taps shifted, 3x3 on 7 rows of 28, pad 1        staged: 9 rows of 29 pixels; two rows share the zero between them, and one more zero follows
 *       tap r, s                                      the same operand, beginning at staged row 29*r + s
 *       result p, q of the tile                       its row 29*p + q; results for the positions between rows are computed and not stored
 *
 * The window is flat: its dimensions have the tensor's order, except for the innermost. An instruction that reads
 * shared memory itself may begin at any row of 128 bytes. The window follows from the tensor's indices: kept loops must
 * have coefficient 1, and taps must shift the same dimensions.
 */

import { z } from "zod";
import { extentOf } from "../../abstraction/affine.ts";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { memoised, memoisedBy, namesOf, product, sumOf, upTo, volumeOf } from "../../abstraction/collections.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { internal } from "../../abstraction/error.ts";
import type { Access } from "../../abstraction/expression.ts";
import { readsShared } from "../../abstraction/intrinsic.ts";
import type { GridAxis, GridContext, GridDecision, GridInput } from "./grid-context.ts";
import { stepsInFlight } from "./stage.ts";
import { tilesAlong } from "./tile.ts";
import { type ViewedDim, viewedDims } from "./views.ts";

/** Bytes of a staged row. For the swizzle of this width, every first row was compared on an H100. */
const ROW_BYTES = 128;
/** Rows after which the swizzle pattern repeats. */
const ROWS = 8;
/** Windows in shared memory: one is read while the next is copied. */
const MOST_WINDOWS = 2;
/** The largest extent of a box that an engine copies. Source: CUDA driver API, cuTensorMapEncodeTiled. */
const MOST_PLACES = 256;

export const taps: GridDecision<"taps"> = {
  summary:
    "Whether the input of a convolution is staged once for all taps of the filter, which then read shifted windows of the staged rows. By default it is staged again for each tap.",
  example: "shifted",
  schema: z.enum(["shifted"]).optional(),
  values: (context) => (typeof windowForm(context) === "string" ? [undefined] : [undefined, "shifted"]),
  goesWith: "repack",
  traits: ({ taps: how }) => (how === undefined ? [] : [`taps ${how}`]),
  problem: tapsProblem,
};

/** A dimension of the tensor that the window covers. */
interface FormDim extends ViewedDim {
  /** The kept loop of the tile that indexes it. */
  readonly loop: string | undefined;
  readonly count: number;
  /** The farthest shift by a tap. */
  readonly reach: number;
  /** Whether its range is the same in every block, apart from that loop. */
  readonly fixed: boolean;
}

interface WindowForm {
  readonly input: GridInput;
  readonly access: Access;
  readonly column: ViewedDim;
  /** Innermost first, without the columns. */
  readonly dims: readonly FormDim[];
}

export interface WindowDim extends FormDim {
  /** Values of its loop in a tile, and tiles along it. */
  readonly tile: number;
  readonly tiles: number;
  /** Positions staged, and the distance in rows between two of them. */
  readonly staged: number;
  readonly weight: number;
}

/** The window of a schedule: the part of an input that is staged once for all taps. */
export interface TapWindow extends Omit<WindowForm, "dims"> {
  readonly dims: readonly WindowDim[];
  /** Tiles along the axis. */
  readonly tiles: number;
  /** Rows that the copy fills, and all rows; the remaining ones hold zeros. */
  readonly staged: number;
  readonly rows: number;
  /** Taps of the filter, and the slices of the sum that one block computes, each with a window. */
  readonly taps: number;
  readonly slices: number;
  /** Windows in shared memory. */
  readonly stages: number;
}

/** The window that could be staged for all taps, or one sentence on why none can. Cached by context. */
export const windowForm: (context: GridContext) => WindowForm | string = memoised(findForm);

function findForm(context: GridContext): WindowForm | string {
  if (context.outerSums.length === 0) return "no summed loops stand outside the instruction";
  if (context.outerSums.some((d) => d.loops.length > 1)) return "summed loops are fused";
  const taken = context.inputs.map((input) => formOf(context, input));
  const found = taken.find((f) => typeof f !== "string");
  return found ?? taken.join("; ");
}

function formOf({ mapping, sum, outer, outerSums }: GridContext, input: GridInput): WindowForm | string {
  const { operand, kept, contiguous } = input;
  const { name } = operand;
  if (!readsShared(operand)) return `${name} is read through registers`;
  if (contiguous !== "sum") return `${name} is not contiguous along the sum`;
  const viewed = viewedDims(mapping.computation, input);
  if (typeof viewed === "string") return viewed;
  const [column, ...others] = viewed.dims;
  const [channel, ...fused] = sum.dimension?.loops ?? [];
  const isColumn = channel && column?.form.terms.get(channel.name) === 1 && column.form.terms.size === 1;
  if (!column || !isColumn || fused.length > 0 || column.form.constant !== 0 || column.extent !== channel.extent)
    return `columns of ${name} are not one loop`;
  const loops = kept.dimension?.loops ?? [];
  const summed = outerSums.flatMap((d) => d.loops);
  const dims: FormDim[] = [];
  for (const d of others) {
    const [loop, ...more] = loops.filter((l) => d.form.terms.has(l.name));
    if (more.length > 0) return `several loops of a tile run along ${d.name}`;
    if (loop && d.form.terms.get(loop.name) !== 1) return `a tile runs along ${d.name} in steps of more than 1`;
    const steps = summed.map((l) => ({ ...l, by: d.form.terms.get(l.name) ?? 0 }));
    if (steps.some((s) => s.by < 0)) return `taps have a negative step along ${d.name}`;
    const reach = sumOf(steps, (s) => s.by * (s.extent - 1));
    const fixed = !outer.some((o) => o.loops.some((l) => d.form.terms.has(l.name)));
    dims.push({ ...d, loop: loop?.name, count: loop?.extent ?? 1, reach, fixed });
  }
  // The loops of a tile must have the order of the tensor's dimensions, and each must index one dimension. The same
  // holds for taps.
  const along = dims.flatMap((d) => d.loop ?? []);
  if (along.toReversed().join() !== namesOf(loops).join())
    return `the loops of a tile do not have the order of the dimensions of ${name}`;
  const still = summed.find((l) => dims.filter((d) => d.form.terms.has(l.name)).length !== 1);
  if (still) return `${still.name} is no tap: it does not shift ${name} along one dimension`;
  const isShared = dims.some((d) => d.loop !== undefined && d.reach > 0);
  return isShared ? { input, access: viewed.access, column, dims } : `no two results of a tile read the same ${name}`;
}

const windows = memoisedBy<GridContext, TapWindow>();

/** The window of a schedule; undefined if each tap is staged separately. */
export function windowOf(
  context: GridContext,
  schedule: Pick<GridSchedule, "taps" | "tile" | "split">,
): TapWindow | undefined {
  const form = schedule.taps === undefined ? undefined : windowForm(context);
  if (form === undefined || typeof form === "string") return undefined;
  const { input } = form;
  const kept = extentOf(input.kept.axis, schedule.tile);
  const sum = extentOf(context.sum.axis, schedule.tile);
  const parts = schedule.split?.parts ?? 1;
  return windows(context, `${kept} ${sum} ${parts}`, () => sized(context, form, { kept, columns: sum, parts }));
}

/** Fits whole inner dimensions into the tile first, then as many steps of the next one as fit. */
function sized(
  { sum, outerSums }: GridContext,
  form: WindowForm,
  { kept, columns, parts }: Readonly<Record<"kept" | "columns" | "parts", number>>,
): TapWindow {
  let room = kept - 1;
  let weight = 1;
  let isOpen = true;
  const dims = form.dims.map((d, i): WindowDim => {
    const tile = isOpen ? Math.min(d.count, Math.floor(room / weight) + 1) : 1;
    room -= (tile - 1) * weight;
    isOpen &&= tile === d.count;
    const all = tile + d.reach;
    // Where another row of positions follows, the zeros at the end of one row also serve as those at the start of the
    // next.
    const low = d.form.constant;
    const shared = Math.max(0, Math.min(-low, low + all - d.extent));
    const isFollowed = form.dims.slice(i + 1).some((above) => above.count + above.reach > 1);
    const staged = all - (tile === d.count && d.fixed && isFollowed ? shared : 0);
    const own = { ...d, tile, tiles: Math.ceil(d.count / tile), staged, weight };
    weight *= staged;
    return own;
  });
  const farthest = sumOf(dims, (d) => (d.tile + d.reach - 1) * d.weight);
  const shift = sumOf(dims, (d) => d.reach * d.weight);
  const slices = Math.ceil(sum.elements / columns) / parts;
  // The instruction reads all rows of its tile, even at the farthest tap.
  const rows = Math.ceil(Math.max(farthest + 1, weight, kept + shift) / ROWS) * ROWS;
  return {
    ...form,
    dims,
    tiles: product(dims.map((d) => d.tiles)),
    staged: weight,
    rows,
    taps: volumeOf(outerSums),
    slices,
    stages: Math.min(Math.ceil(slices), MOST_WINDOWS),
  };
}

/** Number of tiles along a kept axis. */
export function keptTiles(
  context: GridContext,
  axis: GridAxis,
  schedule: Pick<GridSchedule, "taps" | "tile" | "split">,
): number {
  const window = windowOf(context, schedule);
  return window?.input.kept.axis === axis.axis ? window.tiles : tilesAlong(axis, schedule.tile);
}

/** The share of computed results along a kept axis that are real; 1 if the tiles fit exactly. */
export function usedPart(
  context: GridContext,
  axis: GridAxis,
  schedule: Pick<GridSchedule, "taps" | "tile" | "split">,
): number {
  return axis.elements / (keptTiles(context, axis, schedule) * extentOf(axis.axis, schedule.tile));
}

/**
 * The largest share of real results among window tiles up to a size; 0 if no window is possible.
 * @param width the rows and columns of the instruction, whose extents may differ from the context's
 */
export function bestUsed(
  context: GridContext,
  mostKept: number,
  { rows, columns: across }: Pick<GridContext, "rows" | "columns">,
): number {
  const form = windowForm(context);
  if (typeof form === "string") return 0;
  const { kept, operand } = form.input;
  const columns = ROW_BYTES / bytesOf(operand.dtype);
  const { extent } = kept.axis === rows.axis ? rows : across;
  const sizes = upTo(Math.floor(mostKept / extent)).map((i) => (i + 1) * extent);
  const tiles = sizes.map((size) => ({ [kept.axis]: size, [context.sum.axis]: columns }));
  return Math.max(0, ...tiles.map((tile) => usedPart(context, kept, { taps: "shifted", tile })));
}

/** Why taps cannot read shifted windows; undefined when they can. */
function tapsProblem(context: GridContext, schedule: GridSchedule): string | undefined {
  if (schedule.taps === undefined) return undefined;
  const form = windowForm(context);
  if (typeof form === "string") return form;
  const window = windowOf(context, schedule) ?? internal("a schedule without a window");
  const bytes = extentOf(context.sum.axis, schedule.tile) * bytesOf(form.input.operand.dtype);
  if (bytes !== ROW_BYTES) return `rows of a window have ${ROW_BYTES} bytes, not ${bytes}`;
  if (schedule.transfer === "plain" || (schedule.transfer === "async" && form.input.asyncWidth === undefined))
    return "a window is copied asynchronously";
  if (schedule.stage < 2) return "windows need a second stage";
  if (!Number.isInteger(window.slices)) return `windows are not divided among ${schedule.split?.parts} blocks`;
  if (schedule.store === "quads" && form.input.kept === context.columns)
    return "results of a window are not contiguous along its columns";
  const most = window.dims.find((d) => d.staged > MOST_PLACES);
  if (schedule.transfer === "engine" && most)
    return `${most.staged} places along ${most.name} are more than an engine copies at once`;
  const inFlight = stepsInFlight(context, schedule);
  // The next window is requested once the last products of the previous one have ended, before the weights that arrive
  // with it.
  const late = window.slices > 1 && window.taps - inFlight < schedule.stage - 1 - inFlight;
  return late
    ? `a window of ${window.taps} taps would arrive later than ${schedule.stage} stages of weights`
    : undefined;
}
