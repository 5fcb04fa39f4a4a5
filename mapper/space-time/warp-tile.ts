/**
 * @file Tiles of a stencil in time on the lanes of warps: the columns that a warp holds, the rows that it streams, and
 * its registers.
 *
 *     32 lanes x 2 columns, 8 steps      64 columns are read, and 48 are complete after 8 steps; 8 on either side are halo
 *     sweeps of 512 rows                 528 rows are read one after another, and 512 written
 *     a ring of 3 rows a step            row q of step s is computed when rows q-1, q, q+1 of step s-1 are there
 *
 * In a grid of three dimensions a row is a plane. `rows` outputs along the middle axis are in registers together, with
 * a halo on either side for the following steps.
 */

import { leastCommonMultiple } from "../../abstraction/affine.ts";
import type { WarpStepSchedule } from "../../abstraction/candidate.ts";
import { sumOf, upTo } from "../../abstraction/collections.ts";
import { outputOf } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { internal } from "../../abstraction/error.ts";
import { operationsOfStep } from "../../abstraction/time.ts";
import { AT_ONCE, MOST_BYTES, MOST_WRITTEN } from "../schedule/lanes.ts";
import type { PlaneAxis, Steps } from "./plane.ts";

/** The part of the plane that a warp computes in a pass of `depth` steps. */
export interface WarpTile {
  readonly depth: number;
  /** Axes of the plane by their role. Lanes run along the last axis. */
  readonly swept: PlaneAxis | undefined;
  readonly tiled: PlaneAxis | undefined;
  readonly lane: PlaneAxis;
  /** Neighbouring columns of a lane, and how many of them one load or store moves. */
  readonly each: number;
  readonly together: number;
  /** Columns on either side that are read but not written (the halo), and columns that are written. */
  readonly halo: number;
  readonly width: number;
  /** Outputs along the middle axis. */
  readonly rows: number;
  /** Positions along the swept axis that are written, and that are read. */
  readonly length: number;
  readonly streamed: number;
  /** Rows of a step that are kept: as many as the next step reads. */
  readonly ring: number;
  /** Rows that are being loaded ahead. */
  readonly ahead: number;
  /** Rows of the stream that are unrolled, so that register numbers are constants. */
  readonly unrolled: number;
}

export function warpTile({ axes, computation }: Steps, s: WarpStepSchedule, depth = s.depth): WarpTile {
  const lane = axes.at(-1) ?? internal("a plane without axes");
  const [swept, tiled] = axes.slice(0, -1);
  const { each = 1, ahead = 1 } = s;
  const bytes = bytesOf(outputOf(computation).dtype);
  const together = Math.max(...AT_ONCE.filter((n) => each % n === 0 && n * bytes <= MOST_BYTES));
  // All columns of a lane are inside the plane, or none is.
  const halo = Math.ceil((depth * lane.reach) / each) * each;
  const length = Math.min(s.sweep ?? swept?.extent ?? 1, swept?.extent ?? 1);
  const ring = 2 * (swept?.reach ?? 0) + 1;
  return {
    depth,
    swept,
    tiled,
    lane,
    each,
    together,
    halo,
    length,
    ring,
    ahead,
    width: s.lanes * each - 2 * halo,
    rows: s.rows,
    streamed: length + 2 * depth * (swept?.reach ?? 0),
    unrolled: swept ? leastCommonMultiple(ring, ahead) : 1,
  };
}

/** Rows along the middle axis that step `step` computes; fewer at every step. */
export function rowsOfStep({ rows, depth, tiled }: WarpTile, step: number): number {
  return rows + 2 * (depth - step) * (tiled?.reach ?? 0);
}

/** 32-bit registers of the rings, of rows loaded ahead, and of results to be stored. */
export function warpRegisters(tile: WarpTile, bytes: number): number {
  const { depth, each, ring, ahead } = tile;
  const rings = sumOf(upTo(depth), (step) => ring * rowsOfStep(tile, step));
  return (rings + ahead * rowsOfStep(tile, 0) + tile.rows) * each * (bytes / 4);
}

/** Other registers of a thread: nvcc 13.0 takes up to 20 for addresses (2d5pt and 3d7pt, 2026-11-22). */
const OTHER_REGISTERS = 24;
/**
 * Registers of a quarter of a multiprocessor for each of 32 lanes, and its warps. CUDA C++ Programming Guide, Technical
 * Specifications.
 */
const QUARTER_REGISTERS = 512;
export const QUARTER_WARPS = 16;

/** Warps that fit into the registers of a quarter of a multiprocessor. @param held 32-bit registers of a thread for values */
export function warpsHolding(held: number): number {
  return Math.max(1, Math.min(QUARTER_WARPS, Math.floor(QUARTER_REGISTERS / (held + OTHER_REGISTERS))));
}

/** The same for a tile. */
export const residentWarps = (tile: WarpTile, bytes: number): number => warpsHolding(warpRegisters(tile, bytes));

/** Why warps cannot run the steps under a schedule; undefined when they can. */
export function warpProblem(steps: Steps, schedule: WarpStepSchedule): string | undefined {
  const { each, sweep, ahead, rows } = schedule;
  for (const [name, value] of Object.entries({ each, sweep, ahead, rows }))
    if (value !== undefined && (!Number.isSafeInteger(value) || value < 1))
      return `${name} must be a positive integer, got ${value}`;
  if (each !== undefined && !AT_ONCE.some((n) => n === each))
    return `a lane computes ${AT_ONCE.join(", ")} adjacent columns, got ${each}`;
  const tile = warpTile(steps, schedule);
  const { swept, tiled, lane, width, halo } = tile;
  if (!swept && (sweep !== undefined || (ahead ?? 1) !== 1))
    return "the plane has one axis, along which the lanes lie, so nothing is left to sweep";
  if (!tiled && rows > 1)
    return `${rows} rows at once, but a two-dimensional plane has no axis between its rows and its columns`;
  if (lane.extent % (each ?? 1) !== 0)
    return `${lane.extent} columns are not a multiple of the ${each} that a lane computes at once`;
  if (width < 1)
    return `${schedule.lanes} lanes of ${each ?? 1} columns have no complete column left after ${tile.depth} steps, which read ${halo} columns on either side`;
  const made = sumOf(upTo(tile.depth), (i) => rowsOfStep(tile, i + 1));
  const written = tile.unrolled * made * tile.each * Math.max(1, operationsOfStep(steps.time) + selectsOfStep(steps));
  if (written > MOST_WRITTEN) return `a pass would be written as ${written} operations, more than ${MOST_WRITTEN}`;
  return undefined;
}

/**
 * Selects that one element of the next plane takes. At clamped and mirrored borders, a read at distance d needs d of
 * them.
 */
function selectsOfStep({ axes, time }: Steps): number {
  const places = (distance: number, { border, extent }: PlaneAxis): number =>
    border === "zero" || border === "wrap" ? 1 : 1 + Math.min(Math.abs(distance), extent);
  return sumOf(
    time.dependences,
    ([, ...along]) => axes.reduce((product, axis, d) => product * places(along[d] ?? 0, axis), 1) - 1,
  );
}
