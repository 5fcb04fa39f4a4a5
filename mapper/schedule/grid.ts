/**
 * @file Schedules of blocks and warps: one value of each decision, and what makes them legal together.
 *
 *     tile m 128, n 256, k 64   warps m 2, n 4   stage 3   swizzle swizzled   transfer async   order 8   fragments 1   store direct   split 4 through cluster
 */

import { extentOf } from "../../abstraction/affine.ts";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { readsShared, registerElements } from "../../abstraction/intrinsic.ts";
import { VIEW_ALIGNMENT } from "../../abstraction/matrix-view.ts";
import { fragmentsProblem, setsOf } from "./fragments.ts";
import type { GridContext } from "./grid-context.ts";
import { GRID_DECISIONS } from "./grid-decisions.ts";
import { persistentProblem } from "./persistent.ts";
import { repackedContext, repackProblem } from "./repack.ts";
import { printSchedule, type ScheduleKind } from "./schedules.ts";
import { type PartialTile, pitchOf, receivedElements, splitProblem } from "./split.ts";
import { quadsProblem, runsAlongRows } from "./store.ts";
import { PIECE_BYTES, sharedStorage, spanOf } from "./swizzle.ts";
import { keptTiles, tapsProblem, windowOf } from "./taps.ts";
import { fragmentsAlong } from "./tile.ts";
import { engineProblem } from "./transfer.ts";

/** Schedules of blocks and warps. */
export const GRID: ScheduleKind<GridSchedule, GridContext> = {
  decisions: GRID_DECISIONS,
  problem: gridProblem,
  seen: repackedContext,
  tries: 2000,
};

export const printGridSchedule = (schedule: GridSchedule): string => printSchedule(GRID_DECISIONS, schedule);

/** Registers of a thread besides sums and fragments: addresses, counters, what the compiler keeps. */
const OTHER_REGISTERS = 40;

/** 32-bit registers a thread holds of one tile of an operand. */
export function tileRegisters(context: GridContext, name: string): number {
  const operand = context.intrinsic.operands.find((o) => o.name === name);
  if (!operand) throw new Error(`internal: ${context.intrinsic.name} has no operand ${name}`);
  const bytes = registerElements(context.intrinsic, operand) * bytesOf(operand.dtype);
  return Math.max(1, Math.ceil(bytes / 4 / context.teamThreads));
}

/** Threads of a block. */
export function threadsOf(context: GridContext, schedule: Pick<GridSchedule, "warps">): number {
  const { rows, columns, teamThreads } = context;
  return extentOf(rows.axis, schedule.warps) * extentOf(columns.axis, schedule.warps) * teamThreads;
}

/** Registers of a thread that the sums and fragments of a schedule take, with what else a thread needs. */
export function registersOf(context: GridContext, schedule: GridSchedule): number {
  const { rows, columns, target, inputs } = context;
  const sums = fragmentsAlong(rows, schedule) * fragmentsAlong(columns, schedule) * tileRegisters(context, target.name);
  const held = inputs.reduce(
    (n, i) =>
      readsShared(i.operand)
        ? n
        : n + fragmentsAlong(i.kept, schedule) * tileRegisters(context, i.operand.name) * setsOf(schedule),
    0,
  );
  return sums + held + OTHER_REGISTERS;
}

/** Bytes of shared memory that the rings and the staged results of a block take. */
export function sharedBytesOf(context: GridContext, schedule: GridSchedule): number {
  const window = windowOf(context, schedule);
  const rings = context.inputs.reduce((bytes, input) => {
    const isWindow = window?.input === input;
    const kept = isWindow ? window.rows : extentOf(input.kept.axis, schedule.tile);
    const sum = extentOf(context.sum.axis, schedule.tile);
    const [row, column] = input.contiguous === "sum" ? [kept, sum] : [sum, kept];
    const dims = [
      { name: "stage", extent: isWindow ? window.stages : schedule.stage },
      { name: "row", extent: row },
      { name: "column", extent: column },
    ] as const;
    const elementBytes = bytesOf(input.operand.dtype);
    return bytes + sharedStorage(schedule.swizzle, dims, elementBytes).elements * elementBytes;
  }, 0);
  // Arrivals of a ring that an engine fills lie behind it.
  const arrivals = schedule.transfer === "engine" ? VIEW_ALIGNMENT : 0;
  const results = stagedElements(context, schedule) + receivedElements(context, schedule);
  return rings + arrivals + results * bytesOf(context.target.dtype);
}

/** Elements that all warps of a block stage on the way to the output: a row of tiles each. */
export function stagedElements(context: GridContext, schedule: GridSchedule): number {
  if (schedule.store !== "staged") return 0;
  const { lines, pitch } = stagedLines(context, schedule);
  return (threadsOf(context, schedule) / context.teamThreads) * lines * pitch;
}

/** How a row of a warp's tiles is staged: lines along the axis that the output runs along, apart so that lanes that write meet all banks. */
export function stagedLines(
  context: GridContext,
  schedule: GridSchedule,
): Pick<PartialTile, "line" | "across" | "lineExtent" | "lines"> & { readonly pitch: number } {
  const { rows, columns, target } = context;
  const columnsOfTeam = fragmentsAlong(columns, schedule) * columns.extent;
  // What the instruction stores by itself lies in its rows.
  const own = target.storage === undefined;
  const alongRows = !own && runsAlongRows(context);
  const [line, across] = alongRows ? [rows, columns] : [columns, rows];
  const [lineExtent, lines] = alongRows ? [rows.extent, columnsOfTeam] : [columnsOfTeam, rows.extent];
  return { line, across, lineExtent, lines, pitch: own ? lineExtent : pitchOf(context, { line, lineExtent }) };
}

/** Where tiles begin that an instruction loads by itself (CUDA C++ Programming Guide, Warp Matrix Functions: 256 bits). */
const SECRET_TILE_BYTES = 32;

/** Why an instruction could not read its part of a tile by itself: it begins at a span, or has room within one. */
function spanProblem({ inputs, intrinsic }: GridContext, schedule: GridSchedule): string | undefined {
  for (const { operand, kept, contiguous } of inputs) {
    if (!readsShared(operand) || contiguous === "sum") continue;
    const whole = extentOf(kept.axis, schedule.tile);
    const span = spanOf(whole, bytesOf(operand.dtype));
    const within = span % kept.extent === 0 || kept.extent % span === 0 || whole === kept.extent;
    if (!within) return `${intrinsic.name} would read ${kept.extent} ${kept.axis} across spans of ${span}`;
  }
  return undefined;
}

/** Why a decision does not say what it must of each axis, and of no other. */
function namesProblem(
  decision: string,
  of: Readonly<Record<string, number>>,
  axes: readonly string[],
): string | undefined {
  const same = Object.keys(of).length === axes.length && axes.every((name) => Object.hasOwn(of, name));
  return same ? undefined : `${decision} is of ${Object.keys(of).join(", ") || "nothing"}, not of ${axes.join(", ")}`;
}

/** Why a schedule cannot be lowered, in one sentence; undefined when it can. */
export function gridProblem(given: GridContext, schedule: GridSchedule): string | undefined {
  const unpacked = repackProblem(given, schedule);
  if (unpacked !== undefined) return unpacked;
  const context = repackedContext(given, schedule);
  const { rows, columns, sum, limits, inputs, intrinsic } = context;
  const strange =
    namesProblem("tile", schedule.tile, [rows.axis, columns.axis, sum.axis]) ??
    namesProblem("warps", schedule.warps, [rows.axis, columns.axis]);
  if (strange !== undefined) return strange;
  for (const a of [rows, columns]) {
    const along = fragmentsAlong(a, schedule);
    if (!Number.isInteger(along) || along < 1)
      return `tile ${a.axis} ${schedule.tile[a.axis]} is no multiple of ${schedule.warps[a.axis]} warps of ${a.extent}`;
  }
  if (extentOf(sum.axis, schedule.tile) % sum.extent !== 0)
    return `tile ${sum.axis} ${schedule.tile[sum.axis]} is no multiple of ${sum.extent}`;
  const early = fragmentsProblem(context, schedule);
  if (early !== undefined) return early;
  const secret = intrinsic.operands.find((o) => o.storage === undefined);
  if (secret && schedule.swizzle === "swizzled")
    return `${intrinsic.name} loads ${secret.name} by itself, in rows that are not swizzled`;
  if (intrinsic.operands.some(readsShared) !== (schedule.swizzle === "spans"))
    return `${intrinsic.name} ${schedule.swizzle === "spans" ? "does not read" : "reads"} rows cut in spans`;
  const engine = schedule.transfer === "engine" ? engineProblem(context, schedule.tile) : undefined;
  if (engine !== undefined) return engine;
  const shifted = tapsProblem(context, schedule);
  if (shifted !== undefined) return shifted;
  const quads = schedule.store === "quads" ? quadsProblem(context) : undefined;
  if (quads !== undefined) return quads;
  const apart = splitProblem(context, schedule) ?? persistentProblem(context, schedule);
  if (apart !== undefined) return apart;
  const crossing = spanProblem(context, schedule);
  if (crossing !== undefined) return crossing;
  if (secret && schedule.store === "direct") return `which lane holds which element of ${secret.name} is not known`;
  for (const { operand, kept, contiguous } of inputs) {
    const column = extentOf(contiguous === "sum" ? sum.axis : kept.axis, schedule.tile) * bytesOf(operand.dtype);
    if (column % PIECE_BYTES !== 0)
      return `rows of ${operand.name} have ${column} bytes, no multiple of ${PIECE_BYTES}`;
  }
  const beside = inputs.find((input) => {
    const along = input.contiguous === "sum" ? sum : input.kept;
    const tiles = extentOf(along.axis, schedule.tile) / along.extent;
    const bytes = along.extent * bytesOf(input.operand.dtype);
    return input.operand.storage === undefined && tiles > 1 && bytes % SECRET_TILE_BYTES !== 0;
  });
  if (beside)
    return `tiles of ${beside.operand.name} would begin beside multiples of ${SECRET_TILE_BYTES} bytes, which ${intrinsic.name} asks for`;
  const rowTiles = keptTiles(context, rows, schedule);
  if (rowTiles % schedule.order !== 0) return `${rowTiles} row tiles are not taken ${schedule.order} at a time`;
  if (schedule.transfer === "async" && inputs.every((i) => i.asyncWidth === undefined))
    return "neither input can be copied asynchronously";
  const threads = threadsOf(context, schedule);
  if (threads > limits.threads) return `${threads} threads, a block has at most ${limits.threads}`;
  const registers = registersOf(context, schedule);
  if (registers > limits.threadRegisters) return `${registers} registers a thread, it has ${limits.threadRegisters}`;
  if (registers * threads > limits.blockRegisters)
    return `${registers * threads} registers a block, it has ${limits.blockRegisters}`;
  const bytes = sharedBytesOf(context, schedule);
  if (bytes > limits.sharedBytes) return `${bytes} bytes of shared memory, a block has ${limits.sharedBytes}`;
  return undefined;
}
