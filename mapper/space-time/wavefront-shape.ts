/**
 * @file The dimensions of a wavefront: its lanes and steps, how far it reaches back, and the numbers of strips and
 * blocks that cover the matrix.
 *
 *     h[i-1,j-1], h[i-1,j], h[i,j-1] on 16 lanes, s (1,1)        reach: 1 row above, 2 values of it        registers of a lane: 1
 */

import type { RecurrenceSchedule } from "../../abstraction/candidate.ts";
import { volumeOf } from "../../abstraction/collections.ts";
import type { Axis } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { axis, type Expr, number, plus, times } from "../../abstraction/expression.ts";
import { FreshNames, type Scratch } from "../../abstraction/loop-nest.ts";
import { ZMM } from "../../targets/x86.ts";
import { arrayDependences, type Recurrent } from "./recurrent.ts";

/** The reads from the row `rows` above: `depth` columns, beginning `least` before the element's own column. */
export interface Reach {
  readonly rows: number;
  readonly least: number;
  readonly depth: number;
}

export interface WavefrontShape {
  readonly recurrent: Recurrent;
  readonly names: FreshNames;
  readonly row: Axis;
  readonly column: Axis;
  readonly lanes: number;
  /** Steps of a block, and rows of the tile that is transposed at once. */
  readonly side: number;
  readonly skew: number;
  readonly reach: readonly Reach[];
  /** The farthest row above that is read. */
  readonly most: number;
  /** Registers for a lane's own earlier results. */
  readonly depth: number;
  /** The farthest column to the right that is read in a row above. Lane 0 begins this many columns before column 0. */
  readonly lead: number;
  readonly strips: number;
  readonly blocks: number;
}

/** @param recurrent of the form wavefront */
export function wavefrontShape(recurrent: Recurrent, { lanes, transform }: RecurrenceSchedule): WavefrontShape {
  const [row, column] = recurrent.inner;
  if (!row || !column) throw new Error("internal: a wavefront without rows and columns");
  const side = Math.min(lanes, ZMM.bytes / bytesOf(recurrent.dtype));
  const skew = transform.schedule[0]?.[0] ?? 1;
  const pairs = arrayDependences(recurrent).map(([di = 0, dj = 0]) => [Number(di), Number(dj)] as const);
  const rows = [...new Set(pairs.map(([di]) => di))].filter((di) => di > 0);
  const reach = rows.map((di): Reach => {
    const own = pairs.filter(([d]) => d === di).map(([, dj]) => dj);
    const least = Math.min(...own);
    return { rows: di, least, depth: Math.max(...own) - least + 1 };
  });
  const lead = Math.max(0, ...reach.map((r) => -r.least));
  return {
    recurrent,
    names: new FreshNames(recurrent.computation),
    row,
    column,
    lanes,
    side,
    skew,
    reach,
    lead,
    most: Math.max(0, ...rows),
    depth: Math.max(1, ...pairs.map(([di, dj]) => (di === 0 ? dj : 0)), ...reach.map((r) => skew * r.rows + r.least)),
    strips: Math.ceil(row.extent / lanes),
    blocks: Math.ceil((column.extent + lead + skew * (lanes - 1)) / side),
  };
}

/** The vector file of the values passed from `rows` rows above. */
export const aboveFile = ({ names }: WavefrontShape, rows: number): string => names.fresh(`above_${rows}`);

/** Workspace memory with `elements` for each step of the outer loops. */
export function workspaceOf({ recurrent: { dtype, outer } }: WavefrontShape, name: string, elements: number): Scratch {
  const steps = volumeOf(outer);
  return { name, dtype, elements: elements * steps, scope: "workspace" };
}

/** An address in the current outer step's part of such memory. */
export function placeInOwn({ recurrent }: WavefrontShape, elements: number, at: Expr): Expr {
  const step = recurrent.outer.reduce<Expr>((sum, a) => plus(times(sum, a.extent), axis(a.name)), number(0));
  return plus(times(step, elements), at);
}
