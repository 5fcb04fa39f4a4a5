/**
 * @file The decisions of a window on lanes besides its design, and which values are possible for a given sum of taps.
 *
 *     FBS-load, 16 lanes, 4 rows x 4 vectors, weights in registers, streaming stores, prefetch 2048 B
 */

import type { WarpWindowSchedule, WindowBlock, WindowSchedule } from "../../abstraction/candidate.ts";
import { unique, upTo, withName } from "../../abstraction/collections.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { type LaneRefusal, rollable, type TapSum } from "../space-time/taps.ts";
import { placeWindow, WINDOW_DESIGNS } from "../space-time/window.ts";
import { planeAxis, sweptAxis } from "../space-time/window-sweep.ts";

/** Largest number of multiply-adds in a block. Searches use up to 3000; beyond this limit a compiler takes minutes. */
export const MOST_WRITTEN = 16_384;

/**
 * Prefetch distance from which lines wait in the second-level cache. Over grids in memory, 8192 bytes into the second
 * level were 1.1 to 1.5 times as fast as 2048 to 16384 into the first (2d5pt, 3x3 and 3d7pt on a Zen 4, 2026-11-23).
 */
export const DISTANT_BYTES = 4096;

/** Most multiply-adds of a kernel in which blocks at the ends of rows are as wide as the others: compiling takes longer by them. */
const MOST_WITH_WIDE_ENDS = 800;

/**
 * Whether blocks at both ends of a row are as wide as the others. In caches 2-D stencils take 0.95 to 0.98 of the time, and
 * 3d7pt over rows of 128 as little as 0.8 (a busy Zen 4, 2026-11-23).
 */
export function hasWideEnds(sum: TapSum, schedule: WindowBlock & Pick<WindowSchedule, "planes">): boolean {
  return schedule.vectors > 1 && writtenWith(sum, schedule, 3 * schedule.vectors + 2) <= MOST_WITH_WIDE_ENDS;
}

/**
 * Largest number of multiply-adds written in a kernel of windows on vectors: whole blocks, those beside them, and one
 * row at each border.
 */
export function writtenInAll(sum: TapSum, schedule: WindowSchedule): number {
  const { vectors } = schedule;
  const single = vectors + (vectors > 1 ? 3 : 2);
  return writtenWith(sum, schedule, hasWideEnds(sum, schedule) ? 3 * vectors + 2 : single);
}

/** @param along vectors written for a row of blocks, its ends included */
function writtenWith(
  sum: TapSum,
  { rows, planes = 1 }: WindowBlock & Pick<WindowSchedule, "planes">,
  along: number,
): number {
  const { taps, computation, laneAxis, rowAxis, rowDimension, follows, shifts, input } = sum;
  const extentOf = (name: string | undefined): number => withName(computation.axes, name)?.extent ?? 1;
  // 1. One row, tested, on each side of an axis where neighbours lie outside.
  const sides = follows.reduce((n, name, d) => {
    if (name === undefined || name === laneAxis) return n;
    const [least, most] = shifts[d] ?? [0, 0];
    return n + (least < 0 ? 1 : 0) + (extentOf(name) + most > (input.dims[d]?.extent ?? 1) ? 1 : 0);
  }, 0);
  // 2. Blocks of rows, and of those left over: whole, of one vector, and tested at the left and at the right.
  const [least, most] = shifts[rowDimension ?? -1] ?? [0, 0];
  const places = input.dims[rowDimension ?? -1]?.extent ?? 1;
  const inside = rowAxis === undefined ? 1 : Math.min(extentOf(rowAxis), places - most) - Math.max(0, -least);
  const tall = (inside >= rows ? rows : 0) + (inside > 0 ? inside % rows : 0);
  // 3. Planes left over are blocks of one.
  const deep = planes === 1 ? 1 : planes + 1;
  return taps.length * (sides + deep * tall * along);
}

/** Multiply-adds written in a block. */
export function productsOf(
  { taps }: TapSum,
  {
    rows,
    planes = 1,
    vectors,
    each = 1,
    ahead = 1,
  }: WindowBlock & Pick<WindowSchedule, "planes"> & Pick<WarpWindowSchedule, "each" | "ahead">,
): number {
  return taps.length * rows * planes * vectors * each * ahead;
}

const refuse = (because: string): LaneRefusal => ({ rule: "form", because: `schedule: ${because}` });

/** Why a schedule does not fit the vectors of a CPU, or undefined. */
export function windowProblem(sum: TapSum, schedule: WindowSchedule): LaneRefusal | undefined {
  const refused = blockProblem(sum, schedule);
  if (refused) return refused;
  const because = linesProblem(sum, schedule) ?? planesProblem(sum, schedule);
  return because === undefined ? undefined : refuse(because);
}

/** Why a schedule does not fit the lanes of warps, or undefined. */
export function warpWindowProblem(sum: TapSum, schedule: WarpWindowSchedule): LaneRefusal | undefined {
  return blockProblem(sum, schedule) ?? sweepProblem(sum, schedule);
}

function blockProblem(
  sum: TapSum,
  schedule: WindowBlock & Partial<WindowSchedule & WarpWindowSchedule>,
): LaneRefusal | undefined {
  const design = WINDOW_DESIGNS[schedule.dataflow];
  const { columns, rowDimension } = sum;
  for (const name of ["lanes", "rows", "vectors"] as const)
    if (!Number.isSafeInteger(schedule[name]) || schedule[name] < 1)
      return refuse(`${name} must be a positive integer, got ${schedule[name]}`);
  const written = productsOf(sum, schedule);
  if (written > MOST_WRITTEN)
    return refuse(`a block would be written as ${written} multiply-adds, more than ${MOST_WRITTEN}`);
  const fixed = schedule.rolled.find((name) => !rollable(sum.computation).includes(name));
  if (fixed !== undefined) return refuse(`${fixed} is no summed axis that can stay a loop`);
  const placed = placeWindow(design, schedule.lanes, columns);
  if (!placed.ok) return placed.refusal;
  if (placed.placement.outputs < 1)
    return refuse(
      `a window of ${columns} columns leaves none of ${schedule.lanes} lanes whole; load the data instead (FBS-load)`,
    );
  if (schedule.rows > 1 && rowDimension === undefined)
    return refuse(`${schedule.rows} rows, but nothing moves along a row axis`);
  if (design.data === "held" && sum.rolled.length > 0)
    return refuse(
      `${sum.rolled.join(", ")} stays a loop, but ${schedule.dataflow} moves lanes from tap to tap; unroll it`,
    );
  return undefined;
}

/** Why data cannot come as lines in the way that a schedule says, or undefined. */
function linesProblem(
  sum: TapSum,
  { lines, dataflow, rolled }: Pick<WindowSchedule, "lines" | "dataflow" | "rolled">,
): string | undefined {
  if (lines === undefined) return undefined;
  if (dataflow !== "FBS-load") return `lines hold what lanes would load (FBS-load), not ${dataflow}`;
  if (rolled.length > 0) return `lines are shifted by constants, and ${rolled.join(", ")} stays a loop`;
  if (sum.columns === 1) return "a window of one column reads no other line";
  if (lines === "carried" && sum.output.dims.length === 1)
    return "blocks of the only axis are dealt to threads, so that none carries lines to the next";
  return undefined;
}

/** Why blocks cannot have several planes, or undefined. */
function planesProblem(
  sum: TapSum,
  { planes = 1, dataflow }: Pick<WindowSchedule, "planes" | "dataflow">,
): string | undefined {
  if (!Number.isSafeInteger(planes) || planes < 1) return `planes must be a positive integer, got ${planes}`;
  if (planes === 1) return undefined;
  if (planeAxis(sum) === undefined) return `${planes} planes, but nothing moves along an axis beside rows and columns`;
  if (WINDOW_DESIGNS[dataflow].data !== "loaded")
    return `${planes} planes share data that lanes load (FBS-load), not ${dataflow}`;
  return undefined;
}

/** Numbers of elements that a lane can move at once, of four bytes or more; and of fewer bytes. */
export const AT_ONCE = [1, 2, 4] as const;
const NARROW_AT_ONCE = [...AT_ONCE, 8] as const;
/** Most bytes that a lane moves at once. */
export const MOST_BYTES = 16;

/** Numbers of elements of the output that a lane can move at once. */
export function movedAtOnce({ output }: Pick<TapSum, "output">): readonly number[] {
  const bytes = bytesOf(output.dtype);
  return (bytes < 4 ? NARROW_AT_ONCE : AT_ONCE).filter((n) => n * bytes <= MOST_BYTES);
}

/** Why lanes cannot have several outputs each, or cannot sweep along an axis. */
function sweepProblem(
  { input, output, rowAxis, ...sum }: TapSum,
  { each, sweep, ahead, prefetchSteps, rows, vectors, rolled, dataflow }: WarpWindowSchedule,
): LaneRefusal | undefined {
  if (sweep === undefined && (ahead ?? 1) !== 1) return refuse(`${ahead} steps are written out, but nothing is swept`);
  if (prefetchSteps !== undefined && sweep === undefined)
    return refuse(`rows are fetched ${prefetchSteps} steps ahead, but nothing is swept`);
  if ((each ?? 1) === 1 && sweep === undefined) return undefined;
  for (const [name, value] of Object.entries({ each, sweep, ahead, prefetchSteps }))
    if (value !== undefined && (!Number.isSafeInteger(value) || value < 1))
      return refuse(`${name} must be a positive integer, got ${value}`);
  if (WINDOW_DESIGNS[dataflow].data !== "loaded")
    return refuse("lanes of several outputs, and lanes that sweep, load their data (FBS-load)");
  if (vectors > 1 || rolled.length > 0)
    return refuse("lanes of several outputs, and lanes that sweep, take one vector and keep no loop");
  const moved = movedAtOnce({ output });
  if (each !== undefined && !moved.includes(each))
    return refuse(
      `a lane moves ${moved.join(", ")} elements at once, ${MOST_BYTES} bytes at most; got ${each} of ${output.dtype}`,
    );
  const uneven = [input, output].find((t) => (t.dims.at(-1)?.extent ?? 1) % (each ?? 1) !== 0);
  if (uneven)
    return refuse(
      `${each} neighbours at once do not divide the ${uneven.dims.at(-1)?.extent} columns of ${uneven.name}`,
    );
  if (sweep === undefined) return undefined;
  const swept = sweptAxis({ input, output, rowAxis, ...sum });
  if (!swept) return refuse("nothing moves along an axis that could be swept");
  if (swept.name === rowAxis && rows > 1)
    return refuse(`${rows} rows at once of ${rowAxis}, which is swept row by row`);
  const begun = swept.reach * rows * (each ?? 1);
  if (begun > MOST_WRITTEN)
    return refuse(`${begun} sums would be begun and not yet whole along ${swept.name}, more than ${MOST_WRITTEN}`);
  return undefined;
}

/** Output rows of a strip to aim for: those whose planes fit a second-level cache, and three times as many. */
const STRIP_ROWS = [32, 96] as const;
/** With fewer output rows, the halo is read too often. */
const LEAST_STRIP_ROWS = 8;

/** Numbers of strips that divide the blocks of rows of a 3-D grid; a flat image is swept as a whole. */
export function stripsOf(sum: TapSum, tall: number): readonly number[] {
  const { rowAxis, rowDimension, shifts } = sum;
  const [least, most] = shifts[rowDimension ?? 0] ?? [0, 0];
  const planes = shifts.filter(([min, max], d) => d !== rowDimension && d < shifts.length - 1 && max > min).length;
  const extent = withName(sum.computation.axes, rowAxis)?.extent ?? 1;
  const places = sum.input.dims[rowDimension ?? 0]?.extent ?? 1;
  const blocks = Math.floor((Math.min(extent, places - most) - Math.max(0, -least)) / tall);
  if (rowAxis === undefined || planes === 0 || blocks < 2) return [0];
  const divisors = upTo(blocks - 1)
    .map((i) => i + 1)
    .filter((s) => blocks % s === 0 && s * tall >= LEAST_STRIP_ROWS);
  const nearest = (goal: number): number[] =>
    divisors.length === 0
      ? []
      : [divisors.reduce((a, b) => (Math.abs(b * tall - goal) < Math.abs(a * tall - goal) ? b : a))];
  return unique([0, ...STRIP_ROWS.flatMap(nearest)]);
}
