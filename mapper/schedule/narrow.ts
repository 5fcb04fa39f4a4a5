/**
 * @file What computed inputs are made of, staged in shared memory as it lies in the tensors: asynchronous copies bring bytes and scales of a step while
 * the steps before are multiplied, and threads make a tile of them.
 *
 *     w_ring: u8[stage 3, n 128, k 32]       w_ring[step%3,n,i] = w[n,32*step+i]
 *     b_ring: f16[stage 3, n 128, k 64]      b_ring[step%3,n,k] = (f16(select(k%2 == 0, w_ring[step%3,n,k/2] % 16, ...)) - 8) * s_ring[step%3,n,k/32]
 *
 * Where a fragment belongs to one warp alone, the warp makes it in its registers, and there is no tile.
 */

import { extentOf } from "../../abstraction/affine.ts";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { readsShared } from "../../abstraction/intrinsic.ts";
import { type GridContext, type GridInput, heldInput, type NarrowRead } from "./grid-context.ts";
import { stepsInFlight } from "./stage.ts";

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
export function stagedReads(context: GridContext, schedule: GridSchedule, input: GridInput): StagedRead[] {
  const { rows, columns, sum, limits } = context;
  const other = input.kept === rows ? columns : rows;
  const isShort = input === heldInput(context) || extentOf(other.axis, schedule.tile) < ENOUGH_PRODUCTS;
  if (schedule.transfer !== "async" || schedule.stage === 1 || !isShort) return [];
  return input.reads.flatMap((read): StagedRead[] => {
    const columns = extentOf(sum.axis, schedule.tile) / read.repeat;
    let width = read.run;
    while (width > 1 && columns % width !== 0) width /= 2;
    const isWhole = Number.isInteger(columns) && limits.asyncBytes.includes(width * bytesOf(read.dtype));
    return isWhole ? [{ ...read, columns, width }] : [];
  });
}

/** Elements that share a register of a lane, and are made together. */
const PAIR = 2;

/** Whether warps make their fragments of an input in registers of what is staged: no two of them hold the same one. */
export function madeInRegisters(context: GridContext, schedule: GridSchedule, input: GridInput): boolean {
  const { operand, kept } = input;
  const other = kept === context.rows ? context.columns : context.rows;
  return (
    !readsShared(operand) &&
    operand.storage !== undefined &&
    bytesOf(operand.dtype) === PAIR &&
    extentOf(other.axis, schedule.warps) === 1 &&
    stagedReads(context, schedule, input).length > 0
  );
}

/** Stages of what is staged so: as many as tiles have, or those that are being made into tiles, and one more. */
export const readStages = (context: GridContext, schedule: GridSchedule): number =>
  schedule.stage - stepsInFlight(context, schedule);
