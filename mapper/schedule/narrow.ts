/**
 * @file What computed inputs are made of, staged in shared memory as it lies in the tensors: asynchronous copies bring bytes and scales of a step while
 * the steps before are multiplied, and threads make a tile of them.
 *
 *     w_ring: u8[stage 3, n 128, k 32]       w_ring[step%3,n,i] = w[n,32*step+i]
 *     b_ring: f16[stage 3, n 128, k 64]      b_ring[step%3,n,k] = (f16(select(k%2 == 0, w_ring[step%3,n,k/2] % 16, ...)) - 8) * s_ring[step%3,n,k/32]
 */

import { extentOf } from "../../abstraction/affine.ts";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { VIEW_ALIGNMENT } from "../../abstraction/matrix-view.ts";
import { stepsInFlight } from "./fragments.ts";
import type { GridContext, GridInput, NarrowRead } from "./grid-context.ts";

/** A read whose elements are staged. */
export interface StagedRead extends NarrowRead {
  /** Elements of a row of a tile. */
  readonly columns: number;
  /** Elements that one copy moves. */
  readonly width: number;
}

/**
 * Elements of the other factor's tile from which on threads load bytes and scales themselves: the products of a step take longer than these loads.
 * Measured on an H200, 8192 x 8192 weights of 4 bits: 64 rows took 40 us staged and 52 otherwise, 2048 rows in tiles of 256 took 553 and 510.
 */
const ENOUGH_PRODUCTS = 256;

/** The reads of an input that are staged: those of which a row of a tile is whole asynchronous copies. */
export function stagedReads(
  { rows, columns, sum, limits }: GridContext,
  schedule: GridSchedule,
  input: GridInput,
): StagedRead[] {
  const other = input.kept === rows ? columns : rows;
  const isShort = extentOf(other.axis, schedule.tile) < ENOUGH_PRODUCTS;
  if (schedule.transfer !== "async" || schedule.stage === 1 || !isShort) return [];
  return input.reads.flatMap((read): StagedRead[] => {
    const columns = extentOf(sum.axis, schedule.tile) / read.repeat;
    let width = read.run;
    while (width > 1 && columns % width !== 0) width /= 2;
    const isWhole = Number.isInteger(columns) && limits.asyncBytes.includes(width * bytesOf(read.dtype));
    return isWhole ? [{ ...read, columns, width }] : [];
  });
}

/** Stages of what is staged so: those that are being made into tiles, and one more. */
export const readStages = (context: GridContext, schedule: GridSchedule): number =>
  schedule.stage - stepsInFlight(context, schedule);

/** Bytes of shared memory of what an input is made of. */
export function stagedReadBytes(context: GridContext, schedule: GridSchedule, input: GridInput): number {
  const rows = extentOf(input.kept.axis, schedule.tile) * readStages(context, schedule);
  return stagedReads(context, schedule, input).reduce(
    (bytes, { columns, dtype }) =>
      bytes + Math.ceil((rows * columns * bytesOf(dtype)) / VIEW_ALIGNMENT) * VIEW_ALIGNMENT,
    0,
  );
}
