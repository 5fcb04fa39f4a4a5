/**
 * @file The edge between two strips of a wavefront: the last rows of one strip, which the top lanes of the next read as
 * the rows above.
 *
 *     edge[j] = h[16*strip + 15, j]                                          kept after each strip
 *     above_1[0,lane] = select(lane == 0, edge[column], made[0,lane-1])      read by lane 0 of the next
 */

import { outputOf } from "../../abstraction/computation.ts";
import { type Access, access, axis, type Expr, number, plus, times } from "../../abstraction/expression.ts";
import { assign, loop, type Scratch, type Statement } from "../../abstraction/loop-nest.ts";
import { placeInOwn, type WavefrontShape, workspaceOf } from "./wavefront-shape.ts";

export class WavefrontEdge {
  private readonly shape: WavefrontShape;
  private readonly name: string;
  /** Elements before column 0. */
  private readonly start: number;
  /** Elements of a row. */
  private readonly pitch: number;

  constructor(shape: WavefrontShape) {
    const { lead, skew, most, reach, side, blocks } = shape;
    this.shape = shape;
    this.name = shape.names.fresh("edge");
    this.start = lead + skew * most + Math.max(0, ...reach.map((r) => r.least + r.depth));
    this.pitch = this.start + side * blocks + Math.max(0, ...reach.map((r) => -r.least));
  }

  scratch(): Scratch[] {
    return this.shape.most > 0 ? [workspaceOf(this.shape, this.name, this.size)] : [];
  }

  /** Zeros, since the first strip has no rows above it. */
  clear(): Statement[] {
    if (this.shape.most === 0) return [];
    const column = this.shape.names.fresh("edge_column");
    const target = access(this.name, [placeInOwn(this.shape, this.size, axis(column))]);
    return [loop(column, this.size, [assign(target, number(0))])];
  }

  /** Stores the last rows of the strip whose lane 0 has row `base`, which the next strip reads. */
  keep(base: Expr): Statement[] {
    const { recurrent, names, lanes, most, column } = this.shape;
    if (most === 0) return [];
    const edgeRow = names.fresh("edge_row");
    const edgeColumn = names.fresh("edge_column");
    const from = plus(plus(base, axis(edgeRow)), lanes - most);
    const made = access(outputOf(recurrent.computation).name, [
      ...recurrent.outer.map((a) => axis(a.name)),
      from,
      axis(edgeColumn),
    ]);
    const kept = assign(this.at(axis(edgeRow), axis(edgeColumn)), made);
    return [loop(edgeRow, most, [loop(edgeColumn, column.extent, [kept])])];
  }

  /** The element of a row above the strip at a column. Rows are counted from the topmost one that is kept. */
  at(row: Expr, column: Expr): Access {
    const flat = plus(plus(times(this.pitch, row), column), this.start);
    return access(this.name, [placeInOwn(this.shape, this.size, flat)]);
  }

  private get size(): number {
    return this.shape.most * this.pitch;
  }
}
