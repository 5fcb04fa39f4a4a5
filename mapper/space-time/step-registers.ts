/**
 * @file The rows of time steps in registers while warps stream them: which register of a lane holds which element, and
 * its position in the plane.
 *
 *     u2_[5,lane]           step 2, the third of three rows, the second of two columns
 *     next[1,lane]          on its way from memory
 */

import type { WarpStepSchedule } from "../../abstraction/candidate.ts";
import { present, upTo } from "../../abstraction/collections.ts";
import { outputOf } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { axis, border, type Expr, plus, times } from "../../abstraction/expression.ts";
import type { LoopNest, Scratch } from "../../abstraction/loop-nest.ts";
import { LaneFiles } from "./lane-files.ts";
import type { PlaneAxis } from "./plane.ts";
import { StepPasses } from "./step-passes.ts";
import { residentWarps, rowsOfStep, type WarpTile, warpTile } from "./warp-tile.ts";

/**
 * An element that a lane holds: its step, its row in the stream, its position along the middle axis, and its column.
 */
export interface Own {
  readonly step: number;
  /** The stream row that is read when the element is computed, counted within a block. */
  readonly k: number;
  /** Relative to the first output of the tile. */
  readonly y: number;
  readonly column: number;
}

export abstract class StepRegisters extends StepPasses<WarpStepSchedule> {
  protected override readonly shaped: Pick<Scratch, "dims" | "outside"> = {
    dims: outputOf(this.steps.computation).dims,
    outside: "identity",
  };
  protected readonly files = new LaneFiles(this.names, this.dtype, this.schedule.lanes);
  protected readonly block = this.names.fresh("row_block");

  /** Resident warps for which the registers leave room: without the limit, ptxas 13.0 held some kernels to fewer registers, and spilled a few bytes. */
  protected held(): Pick<LoopNest, "scratch" | "vectors" | "deal"> {
    const { steps, schedule, dtype } = this;
    return {
      scratch: [],
      vectors: this.files.vectors(),
      deal: { resident: residentWarps(warpTile(steps, schedule), bytesOf(dtype)) },
    };
  }

  // ---- places and registers ----------------------------------------------------------------------------------------------------------

  /** The position of an element in the plane, or beyond it. */
  protected place({ depth, swept, tiled, lane, ...tile }: WarpTile, { step, k, y, column }: Own, block: Expr): Expr[] {
    const from = (along: PlaneAxis, by: number): Expr => times(axis(this.tileOfAxis(along)), by);
    const streamed = times(block, tile.unrolled);
    return present([
      swept && plus(plus(from(swept, tile.length), streamed), k - (depth + step) * swept.reach),
      tiled && plus(from(tiled, tile.rows), y),
      plus(plus(from(lane, tile.width), times(axis(this.files.lane), tile.each)), column - tile.halo),
    ]);
  }

  /**
   * The index of a read at a position along an axis. Columns of a lane that move together are all inside, or all
   * outside.
   */
  protected continued(at: Expr, d: number, { lane, width, each, halo, together }: WarpTile, first: number): Expr {
    const along = this.steps.axes[d];
    if (along !== lane) return along?.border === "wrap" ? border("wrap", at, along.extent) : at;
    const next = (e: Expr): Expr => (together > 1 ? plus(e, axis(this.files.neighbour)) : e);
    if (lane.border !== "wrap") return next(at);
    const piece = plus(
      times(axis(this.tileOfAxis(lane)), width / together),
      times(axis(this.files.lane), each / together),
    );
    const kept = border("wrap", plus(piece, (first - halo) / together), lane.extent / together);
    return next(times(kept, together));
  }

  protected elements(tile: WarpTile, step: number): { readonly y: number; readonly column: number }[] {
    const rows = rowsOfStep(tile, step);
    const above = (tile.depth - step) * (tile.tiled?.reach ?? 0);
    return upTo(rows).flatMap((y) => upTo(tile.each).map((column) => ({ y: y - above, column })));
  }

  /** Elements that one load or store moves, by the first of them. */
  protected pieces(tile: WarpTile, step: number): { readonly y: number; readonly first: number }[] {
    const all = this.elements(tile, step).filter(({ column }) => column % tile.together === 0);
    return all.map(({ y, column }) => ({ y, first: column }));
  }

  /** The register slot of a row. The rows of a step rotate through its registers; the last step needs only one. */
  protected slotOf({ depth, ring, swept }: WarpTile, step: number, k: number): number {
    const row = k - step * (swept?.reach ?? 0);
    return step === depth ? 0 : ((row % ring) + ring) % ring;
  }

  protected numberOf(tile: WarpTile, { step, k, y, column }: Own, slot = this.slotOf(tile, step, k)): number {
    const above = (tile.depth - step) * (tile.tiled?.reach ?? 0);
    return (slot * rowsOfStep(tile, step) + y + above) * tile.each + column;
  }

  /** The register file of a step. */
  protected file(step: number): string {
    return `${outputOf(this.steps.computation).name}${step}_`;
  }

  protected tileOfAxis({ name }: PlaneAxis): string {
    return this.names.fresh(`${name}_tile`);
  }
}
