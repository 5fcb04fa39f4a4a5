/**
 * @file Lowers the stores of sums from registers to the output. Either each lane writes the elements it holds, or a row
 * of tiles goes through shared memory.
 *
 *     for m_in, n_in of c{..}   y[.., p, q] = f16(sum)            direct: the lane that holds a sum applies the epilogue
 *
 *     for m_in, n_in of c{..}   results[warp, m_in, n_in] = sum   staged: the output is contiguous along the rows, or the
 *     barrier warp                                                vendor does not document which lane holds what
 *     copy n_in, m_in by warp   y[...] = f16(results[...])
 *     barrier warp
 *
 *     for unrolled n_part in 0..4                               bulk
 *       settle 1; barrier warpgroup                           the engine has read the part before the last one, which lay here
 *       for m_in, n_in in 64*n_part.. 64 of c{..} by stmatrix   results[n_part%2, ..] = f16(sum)
 *       fence memory; barrier warpgroup
 *       copy m 64, n 64, engine   y[..] = results[n_part%2, ..]   which goes on while the next part is staged, or the next tile summed
 */

import { type Dimension, extentOf } from "../../abstraction/affine.ts";
import { outputOf } from "../../abstraction/computation.ts";
import { conjunctsOf } from "../../abstraction/condition.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { insideTarget } from "../../abstraction/elements.ts";
import { storingAt } from "../../abstraction/epilogue.ts";
import { internal } from "../../abstraction/error.ts";
import {
  type Access,
  access,
  accessesIn,
  axis,
  type Equation,
  type Expr,
  guarded,
  minus,
  number,
  over,
  plus,
  remainder,
  substitute,
  substituteEach,
  times,
} from "../../abstraction/expression.ts";
import { assignment, type Scratch, type Statement } from "../../abstraction/loop-nest.ts";
import { substituteAxis } from "../../abstraction/rewrite-statement.ts";
import type { TensorView } from "../../abstraction/tensor-view.ts";
import { storedSum } from "../match/conditions.ts";
import { bulkParts, stagedElements, stagedLines, threadsOf } from "../schedule/grid.ts";
import type { PartialTile } from "../schedule/split.ts";
import { resultsAlong, runsAlongRows } from "../schedule/store.ts";
import { sharedStorage } from "../schedule/swizzle.ts";
import { fragmentsAlong } from "../schedule/tile.ts";
import { resultForm } from "../schedule/views.ts";
import { type GridPlaces, unrolled } from "./grid-places.ts";

export function storeResults(places: GridPlaces): readonly Statement[] {
  const { store } = places.schedule;
  if (store === "bulk") return drainBulk(places);
  return store === "staged" ? drainStaged(places) : drain(places);
}

/** The part of shared memory that each warp uses to stage results; empty if lanes write directly. */
export function stagedResults(places: GridPlaces): Scratch[] {
  const { context, schedule } = places;
  if (schedule.store === "bulk") return [bulkBuffer(places)];
  if (schedule.store !== "staged") return [];
  const { line, lineExtent, across, lines, pitch } = stagedLines(context, schedule);
  const elements = stagedElements(context, schedule);
  const dims: readonly Dimension[] = [
    { name: "warp", extent: elements / (lines * pitch) },
    { name: across.axis, extent: lines },
    { name: line.axis, extent: lineExtent },
  ];
  const row = plus(times(lines, axis("warp")), axis(across.axis));
  const storage = plus(times(pitch, row), axis(line.axis));
  return [{ name: stagedName(places), dtype: context.target.dtype, elements, scope: "shared", dims, storage }];
}

function drain(places: GridPlaces): readonly Statement[] {
  const { rows, columns } = places.context;
  const stored = (sum: Access): Equation => resultOf(places, places.elementAt(rows), places.elementAt(columns), sum);
  return places.eachSum([places.drained(stored, places.schedule.store === "quads" ? "quads" : undefined)]);
}

/** Stores one row of fragments after another: into the warp's own shared memory, and from there to the output. */
function drainStaged(places: GridPlaces): readonly Statement[] {
  const { context, schedule } = places;
  const { rows, columns, target, team } = context;
  const row = places.counter(rows, "in");
  const inColumns = places.counter(columns, "in");
  const columnWarp = places.counter(columns, team);
  const warp = warpOf(places);
  const lines = stagedLines(context, schedule);
  const staged = (column: Expr): Access =>
    access(stagedName(places), [warp, ...(lines.line === rows ? [column, row] : [row, column])]);
  const inWarp = plus(times(columns.extent, places.counter(columns, "fragment")), inColumns);
  const into = places.drained(
    (sum) => assignment(staged(inWarp), sum),
    target.storage === undefined ? "instruction" : undefined,
  );
  const across = fragmentsAlong(columns, schedule);
  const columnsOfTeam = across * columns.extent;
  const rowAxis = { name: places.name(rows, "in"), extent: rows.extent };
  const columnAxis = { name: places.name(columns, "in"), extent: columnsOfTeam };
  const column = plus(times(columnsOfTeam, columnWarp), inColumns);
  const out: Statement = {
    kind: "copy",
    equation: resultOf(places, places.elementAt(rows), column, staged(inColumns)),
    transfer: "plain",
    group: team,
    axes: runsAlongRows(context) ? [columnAxis, rowAxis] : [rowAxis, columnAxis],
    width: widthOf(places, lines),
  };
  const barrier: Statement = { kind: "barrier", group: team };
  return unrolled(places.name(rows, "fragment"), fragmentsAlong(rows, schedule), [
    ...unrolled(places.name(columns, "fragment"), across, [into]),
    barrier,
    out,
    barrier,
  ]);
}

/** The number of a warp or warpgroup in its block. */
function warpOf(places: GridPlaces): Expr {
  const { context, schedule } = places;
  const { rows, columns, team } = context;
  const across = extentOf(columns.axis, schedule.warps);
  return plus(times(across, places.counter(rows, team)), places.counter(columns, team));
}

/** The shared memory from which the copy engine stores results: parts of each warpgroup's tile, as its boxes lie. */
function bulkBuffer(places: GridPlaces): Scratch {
  const { context, schedule } = places;
  const { rows, columns, teamThreads } = context;
  const { dtype } = outputOf(places.computation);
  const part = bulkParts(context, schedule);
  const dims: [Dimension, Dimension, Dimension] = [
    { name: "part", extent: (threadsOf(context, schedule) / teamThreads) * part.held },
    { name: rows.axis, extent: rows.extent },
    { name: columns.axis, extent: part.columns },
  ];
  return { name: stagedName(places), dtype, scope: "shared", dims, ...sharedStorage("spans", dims, bytesOf(dtype)) };
}

/** Hands the tile of each warpgroup to the copy engine part by part, through the warpgroup's own shared memory. */
function drainBulk(places: GridPlaces): readonly Statement[] {
  const { context, schedule } = places;
  const { intrinsic, rows, columns, team } = context;
  const { columns: width, parts, held } = bulkParts(context, schedule);
  const row = places.counter(rows, "in");
  const column = places.counter(columns, "in");
  const ofFragment = columns.extent / width;
  const across = parts / fragmentsAlong(rows, schedule);
  // Parts are counted through all tiles of the block.
  const part = places.counter(columns, "part");
  const inTile = plus(times(across, places.counter(rows, "fragment")), part);
  const counted = parts % held === 0 ? inTile : plus(times(parts, places.turn), inTile);
  const slot = plus(times(held, warpOf(places)), remainder(counted, held));
  const from = times(width, remainder(part, ofFragment));
  const staged = (at: Expr): Access => access(stagedName(places), [slot, row, at]);
  const drained = places.drained((sum): Equation => {
    const { value, where } = resultOf(places, places.elementAt(rows), places.elementAt(columns), sum);
    // What is computed from sums alone may be staged where no result is: the engine leaves it out.
    const guards = accessesIn(value).some(({ tensor }) => tensor !== sum.tensor) ? conjunctsOf(where) : [];
    return guarded(assignment(staged(minus(column, from)), value), guards);
  });
  const firstRow = places.fragmentAt(rows);
  const firstColumn = plus(places.fragmentAt(columns), from);
  const out: Statement = {
    kind: "copy",
    axes: [
      { name: places.name(rows, "in"), extent: rows.extent },
      { name: places.name(columns, "in"), extent: width },
    ],
    equation: {
      ...resultOf(places, plus(firstRow, row), plus(firstColumn, column), number(0)),
      value: staged(column),
    },
    width: 1,
    transfer: "engine",
    group: team,
    view: resultView(places, [firstRow, rows.extent], [firstColumn, width]),
  };
  const barrier: Statement = { kind: "barrier", group: team };
  const isFree = places.turns === 1 && parts === held;
  const each: readonly Statement[] = [
    ...(isFree ? [] : [settled(held - 1), barrier]),
    { ...drained, part: { from, extent: width }, ...(!drained.equation.where && { by: "stmatrix" }) },
    { kind: "fence", on: "memory", of: intrinsic },
    barrier,
    out,
  ];
  const fragment = over(part, ofFragment);
  const inParts = each.map((s) => substituteAxis(s, places.name(columns, "fragment"), fragment));
  const ofRow = unrolled(places.name(columns, "part"), across, inParts);
  return unrolled(places.name(rows, "fragment"), fragmentsAlong(rows, schedule), ofRow);
}

const settled = (pending: number): Statement => ({ kind: "settle", pending });

/** A warpgroup waits, behind all of its tiles, until the engine has read the last part: then its shared memory may go. */
export const storedLast = ({ schedule }: GridPlaces): readonly Statement[] =>
  schedule.store === "bulk" ? [settled(0)] : [];

/** A part of a warpgroup's results as the copy engine stores it. */
function resultView(
  places: GridPlaces,
  [firstRow, rowExtent]: readonly [Expr, number],
  [firstColumn, columnExtent]: readonly [Expr, number],
): TensorView {
  const { context } = places;
  const form = resultForm(context);
  if (typeof form === "string" || form.rows.kind !== "box") internal("the engine cannot store results");
  const { along } = form.rows;
  const { counters } = places.countersOf(number(0), number(0));
  places.place(context.rows, firstRow, counters);
  places.place(context.columns, firstColumn, counters);
  return {
    dims: form.dims.map(({ form: _, read: __, ...dim }) => dim),
    at: form.dims.map(({ form: { constant, terms } }) => {
      const sum = [...terms].reduce<Expr>((e, [name, by]) => plus(e, times(by, axis(name))), number(constant));
      return substitute(sum, counters, "index");
    }),
    rows: { kind: "box", extents: form.dims.map((_, i) => (i === 0 ? columnExtent : i === along ? rowExtent : 1)) },
  };
}

/** The most output elements that one thread stores at once. */
const MOST_STORED = 4;

/** Contiguous output elements along a line that one thread stores at once. */
export function widthOf(
  { context, window }: Pick<GridPlaces, "context" | "window">,
  { line, lineExtent }: Pick<PartialTile, "line" | "lineExtent">,
): number {
  // The rows of a window have gaps between them.
  if (window?.input.kept === line) return 1;
  const run = resultsAlong(context, line, MOST_STORED);
  return run > 0 && lineExtent % run === 0 && context.stored === undefined ? run : 1;
}

/**
 * The assignment of one sum to the output at a position in the block's tile, with the conditions for it to be stored.
 */
export function resultOf(places: GridPlaces, rowInside: Expr, columnInside: Expr, held: Expr): Equation {
  const { rows, columns } = places.context;
  const { counters } = places.countersOf(number(0), number(0));
  const guards = [
    ...places.inOuter(),
    ...places.place(rows, rowInside, counters),
    ...places.place(columns, columnInside, counters),
    ...substituteEach(insideTarget(places.computation), counters),
  ];
  const index = substituteEach(places.computation.equation.target.index, counters);
  const sum = storedSum(places.computation, places.context.stored, counters, held);
  return guarded(storingAt(places.computation, index, sum), guards);
}

function stagedName(places: GridPlaces): string {
  return places.fresh("results");
}
