/**
 * @file Schedules of blocks and warps: one value for each decision, and the resources of a block that they use
 * together.
 *
 *     tile m 128, n 256, k 64   warps m 2, n 4   stage 3   swizzle swizzled   transfer async   order 8   fragments 1   store direct   split 4 through cluster
 */

import { extentOf } from "../../abstraction/affine.ts";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { withName } from "../../abstraction/collections.ts";
import { outputOf } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { internal } from "../../abstraction/error.ts";
import { readsShared, registerElements } from "../../abstraction/intrinsic.ts";
import { VIEW_ALIGNMENT } from "../../abstraction/matrix-view.ts";
import { heldFragments } from "./fragments.ts";
import { boxOf } from "./gather.ts";
import { type GridContext, registersProblem } from "./grid-context.ts";
import { GRID_DECISIONS } from "./grid-decisions.ts";
import { madeInRegisters } from "./narrow.ts";
import { producingThreads } from "./producer.ts";
import { repackedContext } from "./repack.ts";
import { stagedReadBytes } from "./runs.ts";
import { printSchedule, problemIn, type ScheduleKind } from "./schedules.ts";
import { type PartialTile, pitchOf, receivedElements } from "./split.ts";
import { runsAlongRows } from "./store.ts";
import { rowElements, sharedElements, spanOf } from "./swizzle.ts";
import { windowOf } from "./taps.ts";
import { fragmentsAlong } from "./tile.ts";

/** Schedules of blocks and warps. */
export const GRID: ScheduleKind<GridSchedule, GridContext> = {
  decisions: GRID_DECISIONS,
  problem: limitsProblem,
  seen: repackedContext,
  tries: 2000,
};

export const printGridSchedule = (schedule: GridSchedule): string => printSchedule(GRID_DECISIONS, schedule);

/**
 * Registers of a thread other than sums and fragments: addresses, counters, and those the compiler needs. Beside products of shared memory ptxas 13.0
 * took 26 to 32 of them for 96 and 128 sums.
 */
const OTHER_REGISTERS = { synchronous: 40, asynchronous: 32 } as const;

/** Registers of a thread for what the sums of a step are multiplied by: two rows, and columns of a few blocks. */
const SCALE_REGISTERS = 4;

/** 32-bit registers of a thread that hold one tile of an operand. */
function tileRegisters(context: GridContext, name: string): number {
  const operand =
    withName(context.intrinsic.operands, name) ?? internal(`${context.intrinsic.name} has no operand ${name}`);
  const bytes = registerElements(context.intrinsic, operand) * bytesOf(operand.dtype);
  return Math.max(1, Math.ceil(bytes / 4 / context.teamThreads));
}

/** Number of threads of a block that multiply. */
export function threadsOf(context: GridContext, schedule: Pick<GridSchedule, "warps">): number {
  const { rows, columns, teamThreads } = context;
  return extentOf(rows.axis, schedule.warps) * extentOf(columns.axis, schedule.warps) * teamThreads;
}

/** Number of all threads of a block. Each has the same number of registers. */
export function launchedThreads(context: GridContext, schedule: Pick<GridSchedule, "warps" | "producer">): number {
  return threadsOf(context, schedule) + producingThreads(context, schedule);
}

/** Registers of a thread under a schedule: sums, fragments, and the others a thread needs. */
export function registersOf(context: GridContext, schedule: GridSchedule): number {
  const { rows, columns, target, inputs, intrinsic, scale } = context;
  const sums = fragmentsAlong(rows, schedule) * fragmentsAlong(columns, schedule) * tileRegisters(context, target.name);
  const held = inputs.reduce(
    (n, i) =>
      readsShared(i.operand) ? n : n + heldFragments(context, schedule, i) * tileRegisters(context, i.operand.name),
    0,
  );
  const scaled = scale ? sums + SCALE_REGISTERS : 0;
  return sums + scaled + held + OTHER_REGISTERS[intrinsic.asynchronous ? "asynchronous" : "synchronous"];
}

/** Bytes of shared memory that the rings and staged results of a block take. */
export function sharedBytesOf(context: GridContext, schedule: GridSchedule): number {
  const window = windowOf(context, schedule);
  const box = boxOf(context, schedule);
  const rings = context.inputs.reduce((bytes, input) => {
    if (input === box?.input) return bytes + box.elements * bytesOf(input.operand.dtype);
    const isWindow = window?.input === input;
    const kept = isWindow ? window.rows : extentOf(input.kept.axis, schedule.tile);
    const sum = extentOf(context.sum.axis, schedule.tile);
    const [row, column] = input.contiguous === "sum" ? [kept, sum] : [sum, rowElements(input, kept)];
    const elementBytes = bytesOf(input.operand.dtype);
    const stages = isWindow ? window.stages : schedule.stage;
    const tiles = sharedElements(schedule.swizzle, [stages, row, column], elementBytes) * elementBytes;
    const ring = madeInRegisters(context, schedule, input) ? 0 : tiles;
    return bytes + ring + stagedReadBytes(context, schedule, input);
  }, 0);
  // Barriers of a ring that an engine fills lie behind it.
  const arrivals = schedule.transfer === "engine" ? VIEW_ALIGNMENT : 0;
  const staged = schedule.store === "bulk" ? outputOf(context.mapping.computation) : context.target;
  const results =
    stagedElements(context, schedule) * bytesOf(staged.dtype) +
    receivedElements(context, schedule) * bytesOf(context.target.dtype);
  return rings + arrivals + results;
}

/** Elements that all warps of a block stage on their way to the output: a row of tiles each, or parts for the copy engine. */
export function stagedElements(context: GridContext, schedule: GridSchedule): number {
  const { store } = schedule;
  if (store !== "staged" && store !== "bulk") return 0;
  const teams = threadsOf(context, schedule) / context.teamThreads;
  if (store === "bulk") {
    const { columns, held } = bulkParts(context, schedule);
    return teams * held * context.rows.extent * columns;
  }
  const { lines, pitch } = stagedLines(context, schedule);
  return teams * lines * pitch;
}

/** Bytes of a row that a warpgroup holds for the copy engine: two spans. Four stages of tiles of 128 x 256 x 64 fit beside them. */
const HELD_BYTES = 256;

/**
 * How a warpgroup hands its sums to the copy engine: each row of fragments in parts of so many columns, which are a span.
 * Part i is staged where part i - held was.
 */
export function bulkParts(
  context: GridContext,
  schedule: GridSchedule,
): { readonly columns: number; readonly parts: number; readonly held: number } {
  const { rows, columns } = context;
  const bytes = bytesOf(outputOf(context.mapping.computation).dtype);
  const span = spanOf(columns.extent, bytes);
  const parts = (fragmentsAlong(rows, schedule) * fragmentsAlong(columns, schedule) * columns.extent) / span;
  return { columns: span, parts, held: Math.min(parts, HELD_BYTES / (span * bytes)) };
}

/**
 * How a row of a warp's tiles is staged: lines along the axis in which the output is contiguous, spaced so that writing
 * lanes use all banks.
 */
export function stagedLines(
  context: GridContext,
  schedule: GridSchedule,
): Pick<PartialTile, "line" | "across" | "lineExtent" | "lines"> & { readonly pitch: number } {
  const { rows, columns, target } = context;
  const columnsOfTeam = fragmentsAlong(columns, schedule) * columns.extent;
  // A tile that the instruction stores itself lies in the instruction's own rows.
  const own = target.storage === undefined;
  const alongRows = !own && runsAlongRows(context);
  const [line, across] = alongRows ? [rows, columns] : [columns, rows];
  const [lineExtent, lines] = alongRows ? [rows.extent, columnsOfTeam] : [columnsOfTeam, rows.extent];
  return { line, across, lineExtent, lines, pitch: own ? lineExtent : pitchOf(context, { line, lineExtent }) };
}

/** Why a schedule cannot be lowered, in one sentence; undefined when it can. */
export function gridProblem(context: GridContext, schedule: GridSchedule): string | undefined {
  return problemIn(GRID, context, schedule);
}

/** Why the resources used by all decisions together exceed those of a block. */
function limitsProblem(given: GridContext, schedule: GridSchedule): string | undefined {
  const context = repackedContext(given, schedule);
  const { limits } = context;
  const threads = launchedThreads(context, schedule);
  if (threads > limits.threads) return `${threads} threads, a block has at most ${limits.threads}`;
  const registers = registersProblem(limits, registersOf(context, schedule), threads);
  if (registers !== undefined) return registers;
  const bytes = sharedBytesOf(context, schedule);
  if (bytes > limits.sharedBytes) return `${bytes} bytes of shared memory, a block has ${limits.sharedBytes}`;
  return undefined;
}
