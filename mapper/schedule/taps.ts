/**
 * @file Decision `taps`: whether the input of a convolution is staged once for all taps of its filter, or once for each.
 *
 *     taps shifted, 3x3 on 7 rows of 28, pad 1        staged: 9 rows of 29 pixels, the zeros between two rows shared, and one zero more
 *       tap r, s                                      the same operand from row 29*r + s of the staged ones on
 *       result p, q of the tile                       its row 29*p + q; the places between rows are computed and not stored
 *
 * The window's dimensions lie flat, as the tensor's do but for its innermost. An instruction that reads shared memory by itself may begin at any row
 * of 128 bytes. Follows from how the loops index the tensor: kept loops in steps of 1, taps in the same dimensions.
 */

import { z } from "zod";
import { extentOf } from "../../abstraction/affine.ts";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import type { Access } from "../../abstraction/expression.ts";
import { readsShared } from "../../abstraction/intrinsic.ts";
import { memoised, memoisedBy } from "../../abstraction/memoised.ts";
import { stepsInFlight } from "./fragments.ts";
import type { GridAxis, GridContext, GridDecision, GridInput } from "./grid-context.ts";
import { tilesAlong } from "./tile.ts";
import { type ViewedDim, viewedDims } from "./views.ts";

/** Bytes of a staged row: the swizzle that was compared with every first row on an H100. */
const ROW_BYTES = 128;
/** Rows after which a swizzle begins anew. */
const ROWS = 8;
/** Windows in shared memory: one is used while the next arrives. */
const MOST_WINDOWS = 2;
/** Places of a box along each dimension, where an engine brings it. Source: CUDA driver API, cuTensorMapEncodeTiled. */
const MOST_PLACES = 256;

export const taps: GridDecision<"taps"> = {
  name: "taps",
  summary:
    "Whether the input of a convolution is staged again for each tap of the filter, or once: the taps are then shifted windows of the staged rows.",
  example: "shifted",
  schema: z.enum(["shifted"]).optional(),
  values: (context) => (typeof windowForm(context) === "string" ? [undefined] : [undefined, "shifted"]),
  print: (value) => value,
  goesWith: "repack",
  traits: ({ taps: how }) => (how === undefined ? [] : [`taps ${how}`]),
  problem: tapsProblem,
};

/** A dimension of the tensor that the window goes along. */
interface FormDim extends ViewedDim {
  /** The kept loop of the tile that runs along it. */
  readonly loop: string | undefined;
  readonly count: number;
  /** How far taps go. */
  readonly reach: number;
  /** Its places do not move from block to block but for the loop. */
  readonly fixed: boolean;
}

interface WindowForm {
  readonly input: GridInput;
  readonly access: Access;
  readonly column: ViewedDim;
  /** Innermost first, without the column. */
  readonly dims: readonly FormDim[];
}

export interface WindowDim extends FormDim {
  /** Values of its loop in a tile, and tiles along it. */
  readonly tile: number;
  readonly tiles: number;
  /** Places that are staged, and rows from one to the next. */
  readonly staged: number;
  readonly weight: number;
}

/** The window of a schedule: what is staged of an input for all taps. */
export interface TapWindow extends Omit<WindowForm, "dims"> {
  readonly dims: readonly WindowDim[];
  /** Tiles along the axis. */
  readonly tiles: number;
  /** Rows that the copy brings, and rows that there are: those behind them hold zeros. */
  readonly staged: number;
  readonly rows: number;
  /** Taps of the filter, and slices of the sum with a window each, of those that one block takes. */
  readonly taps: number;
  readonly slices: number;
  /** Windows in shared memory. */
  readonly stages: number;
}

/** What could be staged for all taps; or why nothing can, in one sentence. Worked out once a context. */
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
  if (contiguous !== "sum") return `rows of ${name} do not lie along the sum`;
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
    if (steps.some((s) => s.by < 0)) return `taps go back along ${d.name}`;
    const reach = steps.reduce((n, s) => n + s.by * (s.extent - 1), 0);
    const fixed = !outer.some((o) => o.loops.some((l) => d.form.terms.has(l.name)));
    dims.push({ ...d, loop: loop?.name, count: loop?.extent ?? 1, reach, fixed });
  }
  // Loops of a tile follow one another as the tensor lies, and each runs along one dimension; so does each tap.
  const along = dims.flatMap((d) => d.loop ?? []);
  if (along.toReversed().join() !== loops.map((l) => l.name).join())
    return `a tile's loops do not run along ${name} in the order it lies in`;
  const still = summed.find((l) => dims.filter((d) => d.form.terms.has(l.name)).length !== 1);
  if (still) return `${still.name} is no tap: it does not shift ${name} along one dimension`;
  const isShared = dims.some((d) => d.loop !== undefined && d.reach > 0);
  return isShared ? { input, access: viewed.access, column, dims } : `no two results of a tile read the same ${name}`;
}

const windows = memoisedBy<GridContext, TapWindow>();

/** The window of a schedule whose taps are shifted; undefined where each is staged by itself. */
export function windowOf(
  context: GridContext,
  schedule: Pick<GridSchedule, "taps" | "tile" | "split">,
): TapWindow | undefined {
  const form = schedule.taps === undefined ? undefined : windowForm(context);
  if (form === undefined || typeof form === "string") return undefined;
  const { input } = form;
  const [kept, sum] = [extentOf(input.kept.axis, schedule.tile), extentOf(context.sum.axis, schedule.tile)];
  const parts = schedule.split?.parts ?? 1;
  return windows(context, `${kept} ${sum} ${parts}`, () => sized(context, form, { kept, columns: sum, parts }));
}

/** Whole inner dimensions first, then as many steps of the next as have room. */
function sized(
  { sum, outerSums }: GridContext,
  form: WindowForm,
  { kept, columns, parts }: Readonly<Record<"kept" | "columns" | "parts", number>>,
): TapWindow {
  let [room, weight, isOpen] = [kept - 1, 1, true];
  const dims = form.dims.map((d, i): WindowDim => {
    const tile = isOpen ? Math.min(d.count, Math.floor(room / weight) + 1) : 1;
    room -= (tile - 1) * weight;
    isOpen &&= tile === d.count;
    const all = tile + d.reach;
    // Zeros on either side of a tensor are the same ones, where the next row of places follows.
    const low = d.form.constant;
    const shared = Math.max(0, Math.min(-low, low + all - d.extent));
    const isFollowed = form.dims.slice(i + 1).some((above) => above.count + above.reach > 1);
    const staged = all - (tile === d.count && d.fixed && isFollowed ? shared : 0);
    const own = { ...d, tile, tiles: Math.ceil(d.count / tile), staged, weight };
    weight *= staged;
    return own;
  });
  const farthest = dims.reduce((n, d) => n + (d.tile + d.reach - 1) * d.weight, 0);
  const shift = dims.reduce((n, d) => n + d.reach * d.weight, 0);
  const slices = Math.ceil(sum.elements / columns) / parts;
  // The instruction reads all rows of its tile, at the farthest tap too.
  const rows = Math.ceil(Math.max(farthest + 1, weight, kept + shift) / ROWS) * ROWS;
  return {
    ...form,
    dims,
    tiles: dims.reduce((n, d) => n * d.tiles, 1),
    staged: weight,
    rows,
    taps: outerSums.reduce((n, d) => n * d.extent, 1),
    slices,
    stages: Math.min(Math.ceil(slices), MOST_WINDOWS),
  };
}

/** Tiles of a block along a kept axis. */
export function keptTiles(
  context: GridContext,
  axis: GridAxis,
  schedule: Pick<GridSchedule, "taps" | "tile" | "split">,
): number {
  const window = windowOf(context, schedule);
  return window?.input.kept.axis === axis.axis ? window.tiles : tilesAlong(axis, schedule.tile);
}

/** Of the results that tiles of a kept axis compute, those that there are: 1 where nothing is left over. */
export function usedPart(
  context: GridContext,
  axis: GridAxis,
  schedule: Pick<GridSchedule, "taps" | "tile" | "split">,
): number {
  return axis.elements / (keptTiles(context, axis, schedule) * extentOf(axis.axis, schedule.tile));
}

/**
 * The best part of the results that a tile of windows uses, of all tiles up to a size; 0 where there are no windows.
 * @param width the rows and columns of the instruction, which may differ from the context's in their extents
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
  const sizes = Array.from({ length: Math.floor(mostKept / extent) }, (_, i) => (i + 1) * extent);
  const tiles = sizes.map((size) => ({ [kept.axis]: size, [context.sum.axis]: columns }));
  return Math.max(0, ...tiles.map((tile) => usedPart(context, kept, { taps: "shifted", tile })));
}

/** Why taps cannot be windows of what is staged once; undefined when they can. */
function tapsProblem(context: GridContext, schedule: GridSchedule): string | undefined {
  if (schedule.taps === undefined) return undefined;
  const form = windowForm(context);
  if (typeof form === "string") return form;
  const window = windowOf(context, schedule);
  if (!window) throw new Error("internal: a schedule without a window");
  const bytes = extentOf(context.sum.axis, schedule.tile) * bytesOf(form.input.operand.dtype);
  if (bytes !== ROW_BYTES) return `rows of a window have ${ROW_BYTES} bytes, not ${bytes}`;
  if (schedule.transfer === "plain" || (schedule.transfer === "async" && form.input.asyncWidth === undefined))
    return "a window is copied asynchronously";
  if (schedule.stage < 2) return "windows need a second stage";
  if (!Number.isInteger(window.slices)) return `windows are not divided among ${schedule.split?.parts} blocks`;
  if (schedule.store === "quads" && form.input.kept === context.columns)
    return "results of a window do not lie side by side along its columns";
  const most = window.dims.find((d) => d.staged > MOST_PLACES);
  if (schedule.transfer === "engine" && most)
    return `${most.staged} places along ${most.name} are more than an engine copies at once`;
  const inFlight = stepsInFlight(context, schedule);
  // The next window is sent for once the last products of the one before have ended, ahead of the weights that arrive with it.
  const late = window.slices > 1 && window.taps - inFlight < schedule.stage - 1 - inFlight;
  return late
    ? `a window of ${window.taps} taps would arrive later than ${schedule.stage} stages of weights`
    : undefined;
}
