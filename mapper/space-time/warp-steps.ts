/**
 * @file Lowers a stencil's time steps to the lanes of warps. Each warp streams rows through its registers and computes
 * all steps of a pass on the way.
 *
 *     for i_chunk in 0..16, j_tile in 0..171 (parallel)             8 steps a pass, 2 columns a lane, sweeps of 512 rows
 *       for row_block in 0..176                                     3 rows unrolled: register names rotate through rings of 3 rows
 *         for lanes lane in 0..32
 *           u0_[0,lane] = next[0,lane]; next[0,lane] = u_0[512*i_chunk + 3*row_block - 7, 48*j_tile + 2*lane - 8]       two columns at once
 *           side[0,lane] = u0_[5,lane-1]                            from a neighbour, by a shuffle
 *           u1_[4,lane] = f(u0_[0..5,lane], side)                   one row behind
 *           ...
 *           u[512*i_chunk + 3*row_block - 16, ...] = u8_[0,lane]    if the row belongs to the chunk and the lane's columns are complete
 *
 * The order is that of the wavefront on a CPU (lower-steps.ts): step s works r rows behind step s-1, and the newest
 * 2r+1 rows of each are kept. Here they are in registers, and the valid columns of a warp shrink by r on either side at
 * every step. So tiles overlap, and are independent of each other. Rows before a chunk are computed from undefined
 * registers, but nothing that is stored depends on them. Matsumura et al., AN5D, CGO'20; Chen et al., SSAM, SC'19.
 *
 * Beyond the plane, zeros are written in place; reads at clamped and mirrored borders go to other positions; a plane
 * that wraps is extended.
 *
 * The rows of time steps in registers while warps stream them: which register of a lane holds which element, and
 * its position in the plane.
 *
 *     u2_[5,lane]           step 2, the third of three rows, the second of two columns
 *     next[1,lane]          on its way from memory
 */

import type { WarpStepSchedule } from "../../abstraction/candidate.ts";
import { present, upTo } from "../../abstraction/collections.ts";
import { outputOf } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import {
  type Access,
  access,
  allOf,
  axis,
  between,
  border,
  borderOp,
  compare,
  type Expr,
  number,
  plus,
  select,
  times,
} from "../../abstraction/expression.ts";
import { assign, type LoopNest, loop, type Scratch, type Statement } from "../../abstraction/loop-nest.ts";
import { LaneFiles } from "./lane-files.ts";
import type { PlaneAxis } from "./plane.ts";
import { type Source, StepPasses } from "./step-passes.ts";
import { residentWarps, rowsOfStep, type WarpTile, warpTile } from "./warp-tile.ts";

/**
 * An element that a lane holds: its step, its row in the stream, its position along the middle axis, and its column.
 */
interface Own {
  readonly step: number;
  /** The stream row that is read when the element is computed, counted within a block. */
  readonly k: number;
  /** Relative to the first output of the tile. */
  readonly y: number;
  readonly column: number;
}

/** A pass: its tiles, and the planes that it reads and writes. */
interface Pass {
  readonly tile: WarpTile;
  readonly from: string;
  readonly to: string;
}

export class WarpSteps extends StepPasses<WarpStepSchedule> {
  protected override readonly shaped: Pick<Scratch, "dims" | "outside"> = {
    dims: outputOf(this.steps.computation).dims,
    outside: "identity",
  };
  private readonly files = new LaneFiles(this.names, this.dtype, this.schedule.lanes);
  private readonly block = this.names.fresh("row_block");
  protected override readonly between: readonly Statement[] = [{ kind: "barrier" }];

  protected pass(from: Source, to: Source, depth: number): readonly Statement[] {
    const tile = warpTile(this.steps, this.schedule, depth);
    const { swept, tiled, lane, streamed, unrolled, ahead } = tile;
    const pass: Pass = { tile, from: from.name, to: to.name };
    const rows = upTo(unrolled).flatMap((k) => this.row(pass, k));
    const body: Statement[] = [loop(this.block, Math.ceil(streamed / unrolled), [this.files.onLanes(rows)])];
    if (swept) body.unshift(this.files.onLanes(upTo(ahead).flatMap((k) => this.loads(pass, k, number(0)))));
    const tiles: readonly [PlaneAxis | undefined, number][] = [
      [swept, tile.length],
      [tiled, tile.rows],
      [lane, tile.width],
    ];
    return tiles.reduceRight<readonly Statement[]>(
      (inner, [along, by]) =>
        along ? [loop(this.tileOfAxis(along), Math.ceil(along.extent / by), inner, "parallel")] : inner,
      body,
    );
  }

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
  private place({ depth, swept, tiled, lane, ...tile }: WarpTile, { step, k, y, column }: Own, block: Expr): Expr[] {
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
  private continued(at: Expr, d: number, { lane, width, each, halo, together }: WarpTile, first: number): Expr {
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

  private elements(tile: WarpTile, step: number): { readonly y: number; readonly column: number }[] {
    const rows = rowsOfStep(tile, step);
    const above = (tile.depth - step) * (tile.tiled?.reach ?? 0);
    return upTo(rows).flatMap((y) => upTo(tile.each).map((column) => ({ y: y - above, column })));
  }

  /** Elements that one load or store moves, by the first of them. */
  private pieces(tile: WarpTile, step: number): { readonly y: number; readonly first: number }[] {
    const all = this.elements(tile, step).filter(({ column }) => column % tile.together === 0);
    return all.map(({ y, column }) => ({ y, first: column }));
  }

  /** The register slot of a row. The rows of a step rotate through its registers; the last step needs only one. */
  private slotOf({ depth, ring, swept }: WarpTile, step: number, k: number): number {
    const row = k - step * (swept?.reach ?? 0);
    return step === depth ? 0 : ((row % ring) + ring) % ring;
  }

  private numberOf(tile: WarpTile, { step, k, y, column }: Own, slot = this.slotOf(tile, step, k)): number {
    const above = (tile.depth - step) * (tile.tiled?.reach ?? 0);
    return (slot * rowsOfStep(tile, step) + y + above) * tile.each + column;
  }

  /** The register file of a step. */
  private file(step: number): string {
    return `${outputOf(this.steps.computation).name}${step}_`;
  }

  private tileOfAxis({ name }: PlaneAxis): string {
    return this.names.fresh(`${name}_tile`);
  }

  // ---- a row of the stream ---------------------------------------------------------------------------------------------------------

  /** Loads a row, computes one row of every step, and stores a row. */
  private row(pass: Pass, k: number): readonly Statement[] {
    const { tile } = pass;
    const { depth, swept, ahead } = tile;
    const arrived = swept
      ? [...this.arrivals(pass, k), ...this.loads(pass, k + ahead, axis(this.block))]
      : this.loads(pass, k, number(0));
    return [...arrived, ...upTo(depth).flatMap((s) => this.step(pass, k, s + 1)), ...this.stores(pass, k)];
  }

  /** Loads of a row of the plane, some rows ahead of their use. Without a swept axis, all at once. */
  private loads(pass: Pass, k: number, block: Expr): Statement[] {
    const { tile, from } = pass;
    const { swept, ahead } = tile;
    return this.pieces(tile, 0).map(({ y, first }) => {
      const of = { step: 0, k, y, column: first };
      const index = this.place(tile, of, block).map((at, d) => this.continued(at, d, tile, first));
      const [file, to] = swept ? ["next", this.numberOf(tile, of, k % ahead)] : [this.file(0), this.numberOf(tile, of)];
      return this.files.atOnce(tile.together, this.files.several(file, to, tile.together), access(from, index));
    });
  }

  /** Moves loaded elements to the registers of the rows that are kept. */
  private arrivals({ tile }: Pass, k: number): Statement[] {
    return this.elements(tile, 0).map(({ y, column }) => {
      const of = { step: 0, k, y, column };
      const value = this.files.register("next", this.numberOf(tile, of, k % tile.ahead));
      return assign(this.files.register(this.file(0), this.numberOf(tile, of)), value);
    });
  }

  /** A row of a step, computed from rows of the step before. */
  private step(pass: Pass, k: number, step: number): Statement[] {
    const { tile } = pass;
    const sides = new Map<string, Access>();
    const made = this.elements(tile, step).map(({ y, column }) => {
      const of = { step, k, y, column };
      return { of, to: this.files.register(this.file(step), this.numberOf(tile, of)) };
    });
    const values = made.map(({ of, to }) => assign(to, this.value(tile, of, sides)));
    // A separate statement, so that compilers do not turn it into a branch around the value.
    const zeros = made.flatMap(({ of, to }) => {
      const test = step < tile.depth ? this.inside(tile, of) : undefined;
      return test ? [assign(to, select(test, to, number(0)))] : [];
    });
    const passed = [...sides.values()].map((from, n) => assign(this.files.register("side", n), from));
    return [...passed, ...values, ...zeros];
  }

  /** Stores the last step's rows that belong to the tile, in the columns that are complete. */
  private stores({ tile, to }: Pass, k: number): Statement[] {
    const { depth, swept, each, halo, length, unrolled } = tile;
    const row = plus(times(axis(this.block), unrolled), k - 2 * depth * (swept?.reach ?? 0));
    return this.pieces(tile, depth).map(({ y, first }) => {
      const of = { step: depth, k, y, column: first };
      const index = this.place(tile, of, axis(this.block)).map((at, d, all) =>
        d === all.length - 1 && tile.together > 1 ? plus(at, axis(this.files.neighbour)) : at,
      );
      const own = plus(times(axis(this.files.lane), each), first);
      const where = allOf([
        swept && between(row, 0, length),
        halo > 0 && between(own, halo, this.schedule.lanes * each - halo),
      ]);
      const value = this.files.several(this.file(depth), this.numberOf(tile, of), tile.together);
      return this.files.atOnce(tile.together, access(to, index), value, where);
    });
  }

  // ---- one element -------------------------------------------------------------------------------------------------------------------

  private value(tile: WarpTile, of: Own, sides: Map<string, Access>): Expr {
    const places = this.place(tile, of, axis(this.block));
    const coordinates = this.steps.axes.map(({ extent, border: how }, d) => {
      const at = places[d] ?? number(0);
      return how === "wrap" ? border(how, at, extent) : at;
    });
    return this.valueAt(coordinates, (shifts) => this.read(tile, of, shifts, places, sides));
  }

  /** An element of the step before. Across the border of the plane, some lanes read another element. */
  private read(
    tile: WarpTile,
    of: Own,
    shifts: readonly number[],
    places: readonly Expr[],
    sides: Map<string, Access>,
    d = 0,
  ): Expr {
    const along = this.steps.axes[d];
    if (!along) return this.before(tile, of, shifts, sides);
    const by = (shift: number): Expr => this.read(tile, of, shifts.with(d, shift), places, sides, d + 1);
    return redirected(along, shifts[d] ?? 0).reduce<Expr>(
      (other, { at, shift }) => select(compare("==", places[d] ?? number(0), at), by(shift), other),
      by(shifts[d] ?? 0),
    );
  }

  /** An element of the step before, from this lane or a neighbour. */
  private before(tile: WarpTile, of: Own, shifts: readonly number[], sides: Map<string, Access>): Access {
    const { swept, tiled, each } = tile;
    // The newest row of the step before is `reach` below the row being computed.
    const row = swept ? (shifts[0] ?? 0) - swept.reach : 0;
    const y = of.y + (tiled ? (shifts[1] ?? 0) : 0);
    const at = of.column + (shifts.at(-1) ?? 0);
    const lanes = Math.floor(at / each);
    const step = of.step - 1;
    const column = at - lanes * each;
    const from = this.numberOf(tile, { step, k: of.k, y, column }, this.slotOf(tile, step, of.k + row));
    if (lanes === 0) return this.files.register(this.file(step), from);
    const key = `${from} ${lanes}`;
    const known = [...sides.keys()].indexOf(key);
    if (known >= 0) return this.files.register("side", known);
    const own = this.files.register(this.file(step), from);
    sides.set(key, { ...own, index: [number(from), plus(axis(this.files.lane), lanes)] });
    return this.files.register("side", sides.size - 1);
  }

  /**
   * The condition that an element is inside the plane along axes with zeros beyond their ends; undefined if no end is
   * reached.
   */
  private inside(tile: WarpTile, of: Own): Expr | undefined {
    // All columns of a lane are inside, or none is.
    const places = this.place(tile, { ...of, column: 0 }, axis(this.block));
    const tests = this.steps.axes.flatMap(({ border: how, reach, extent }, d) =>
      how === "zero" && reach > 0 ? [between(places[d] ?? number(0), 0, extent)] : [],
    );
    return allOf(tests);
  }
}

/**
 * Positions from which a shift leaves a clamped or mirrored plane, and the shift to the element that is read instead.
 */
function redirected(
  { border: how, extent }: PlaneAxis,
  by: number,
): readonly { readonly at: number; readonly shift: number }[] {
  if (how === "zero" || how === "wrap") return [];
  const leaving = upTo(Math.min(Math.abs(by), extent)).map((i) => (by < 0 ? i : extent - 1 - i));
  return leaving.map((at) => ({
    at,
    shift: borderOp({ kind: "border", how, index: number(at + by), extent }, at + by) - at,
  }));
}
