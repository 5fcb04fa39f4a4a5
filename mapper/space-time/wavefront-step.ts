/**
 * @file One step of a wavefront on all its lanes: results of the lanes above are passed down, and each lane computes an
 * element of its row.
 *
 *     above_1[1,lane] = above_1[0,lane]
 *     above_1[0,lane] = select(lane == 0, edge[column], made[0,lane-1])             h[i-1,j]
 *     next[0,lane] = max(above_1[1,lane] + 2, above_1[0,lane] - g, made[0,lane] - g)
 *     made[0,lane] = next[0,lane]
 *     diagonals[16*step + lane] = made[0,lane]
 */

import { affineForm } from "../../abstraction/affine.ts";
import { upTo } from "../../abstraction/collections.ts";
import {
  type Access,
  access,
  accessesIn,
  axesIn,
  axis,
  between,
  changeParts,
  compare,
  comparesElements,
  type Expr,
  minus,
  number,
  plus,
  select,
  substitute,
  times,
} from "../../abstraction/expression.ts";
import { loop, type Statement } from "../../abstraction/loop-nest.ts";
import { typeOf } from "../../abstraction/typing.ts";
import { assign } from "../lower/assign.ts";
import type { WavefrontAhead } from "./wavefront-ahead.ts";
import type { WavefrontEdge } from "./wavefront-edge.ts";
import { aboveFile, type Reach, type WavefrontShape } from "./wavefront-shape.ts";

/** The parts that a step is written with. */
interface StepParts {
  readonly shape: WavefrontShape;
  readonly edge: WavefrontEdge;
  readonly ahead: WavefrontAhead;
}

/** The value that lanes compute at a step, and the position. */
interface StepPlace {
  /** Row of lane 0. */
  readonly base: Expr;
  /** Whether every lane is inside the matrix. */
  readonly isInside: boolean;
  readonly value: Expr;
  /** The step, counted from the first of the strip. */
  readonly at: Expr;
  /** The step within its block. */
  readonly step: Expr;
}

/** One step on all lanes. */
export function lanesAtStep(parts: StepParts, { base, isInside, value, at, step }: StepPlace): Statement {
  const { row, column, names, lanes, skew, lead, depth, reach } = parts.shape;
  const lane = names.fresh("lane");
  const [made, next] = [names.fresh("made"), names.fresh("next")];
  const place = minus(minus(at, lead), times(skew, axis(lane)));
  const places = new Map([
    [row.name, plus(base, axis(lane))],
    [column.name, place],
  ]);
  const computed = onLanes(value, { ...parts, places, lane: axis(lane), at });
  const kept = isInside ? computed : select(between(place, 0, column.extent), computed, number(0));
  const body = [
    ...reach.flatMap((r) => passed(parts, r, lane, at)),
    assign(register(next, 0, lane), kept),
    ...shifted(made, depth, lane),
    assign(register(made, 0, lane), register(next, 0, lane)),
    assign(access(names.fresh("diagonals"), [plus(times(lanes, step), axis(lane))]), register(made, 0, lane)),
  ];
  return loop(lane, lanes, body, "lanes");
}

/** A register of a file, on this lane or `above` lanes above. */
const register = (file: string, r: number, lane: string, above = 0): Access =>
  access(file, [number(r), minus(axis(lane), above)]);

/** Shifts a register file by one. */
const shifted = (file: string, count: number, lane: string): Statement[] =>
  upTo(count - 1)
    .map((i) => count - 1 - i)
    .map((r) => assign(register(file, r, lane), register(file, r - 1, lane)));

/** Passes results of a row above to the lane below. */
function passed({ shape, edge }: StepParts, { rows, least, depth }: Reach, lane: string, at: Expr): Statement[] {
  const { names, skew, lead, most } = shape;
  const file = aboveFile(shape, rows);
  // The lanes just below the edge read its rows one by one.
  const value = upTo(rows).reduceRight<Expr>(
    (whenFalse, l) => {
      const enters = edge.at(number(l + most - rows), minus(minus(at, lead + skew * l), least));
      return select(compare("==", axis(lane), l), enters, whenFalse);
    },
    register(names.fresh("made"), skew * rows + least - 1, lane, rows),
  );
  return [...shifted(file, depth, lane), assign(register(file, 0, lane), value)];
}

// ---- values --------------------------------------------------------------------------------------------------------------------------

/** The position at which a value is computed. */
interface OnLanes extends Pick<StepParts, "shape" | "ahead"> {
  /** Row and column of a lane. */
  readonly places: ReadonlyMap<string, Expr>;
  readonly lane: Expr;
  readonly at: Expr;
}

/** Rewrites a value for the lanes of a step. */
function onLanes(e: Expr, on: OnLanes): Expr {
  const { recurrent, row, column } = on.shape;
  const { target } = recurrent.computation.equation;
  const isOwn = accessesIn(e).some((a) => a.tensor === target.tensor);
  const names = axesIn(e);
  const byRow = names.includes(row.name);
  const byColumn = names.includes(column.name);
  if (!isOwn && byRow !== byColumn) return on.ahead.read(e, byRow ? "row" : "column", on.lane, on.at);
  if (e.kind === "access") return e.tensor === target.tensor ? madeBefore(e, on) : substitute(e, on.places, "index");
  const parts = changeParts(e, (part) => onLanes(part, on));
  return parts.kind === "select" ? { ...parts, condition: conditionOnLanes(parts.condition, on) } : parts;
}

function conditionOnLanes(e: Expr, on: OnLanes): Expr {
  if (e.kind === "logic") return { ...e, left: conditionOnLanes(e.left, on), right: conditionOnLanes(e.right, on) };
  if (e.kind !== "compare" || !comparesElements(e)) return substitute(e, on.places, "index");
  const { dtype, computation } = on.shape.recurrent;
  const dtypes = Object.fromEntries(Object.values(computation.tensors).map((t) => [t.name, t.dtype]));
  const side = (part: Expr): Expr => {
    const own = typeOf(part, dtypes);
    const held: Expr =
      own === undefined || own === dtype ? part : { kind: "cast", dtype, saturate: false, value: part };
    return onLanes(held, on);
  };
  return { ...e, left: side(e.left), right: side(e.right) };
}

/** An earlier result, in a register of this lane or of one above. */
function madeBefore({ index }: Access, { shape, lane }: OnLanes): Access {
  const outer = shape.recurrent.outer.length;
  const back = (d: number): number => {
    const constant = affineForm(index[outer + d] ?? number(0))?.constant ?? 0;
    return constant === 0 ? 0 : -constant;
  };
  const rows = back(0);
  const columns = back(1);
  if (rows === 0) return access(shape.names.fresh("made"), [number(columns - 1), lane]);
  const found = shape.reach.find((r) => r.rows === rows);
  if (!found) throw new Error(`internal: no lane ${rows} above`);
  return access(aboveFile(shape, rows), [number(columns - found.least), lane]);
}
