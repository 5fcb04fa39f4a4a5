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
 *     settle; barrier warpgroup                               bulk: the engine has read what the warpgroup staged of the tile before
 *     for m_in, n_in of c{..} by stmatrix   results[..] = f16(sum)
 *     fence memory; barrier warpgroup
 *     copy m 64, n 256, engine    y[..] = results[..]          which goes on while the next tile is summed
 */

import { type Dimension, extentOf } from "../../abstraction/affine.ts";
import { outputOf } from "../../abstraction/computation.ts";
import { conjunctsOf } from "../../abstraction/condition.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { insideTarget } from "../../abstraction/elements.ts";
import { storingAt } from "../../abstraction/epilogue.ts";
import {
  type Access,
  access,
  accessesIn,
  axis,
  type Equation,
  type Expr,
  guarded,
  number,
  plus,
  substitute,
  times,
} from "../../abstraction/expression.ts";
import { assignment, type Scratch, type Statement } from "../../abstraction/loop-nest.ts";
import type { TensorView } from "../../abstraction/tensor-view.ts";
import { storedSum } from "../match/conditions.ts";
import { stagedElements, stagedLines } from "../schedule/grid.ts";
import type { GridAxis } from "../schedule/grid-context.ts";
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

/** The extent of a warpgroup's part of the tile along an axis. */
const teamExtent = ({ schedule }: GridPlaces, a: GridAxis): number => fragmentsAlong(a, schedule) * a.extent;

/** The shared memory from which the copy engine stores results: rows cut in spans, as its boxes lie. */
function bulkBuffer(places: GridPlaces): Scratch {
  const { context, schedule } = places;
  const { rows, columns } = context;
  const { dtype } = outputOf(places.computation);
  const dims: [Dimension, Dimension, Dimension] = [
    { name: "warpgroup", extent: extentOf(rows.axis, schedule.warps) * extentOf(columns.axis, schedule.warps) },
    { name: rows.axis, extent: teamExtent(places, rows) },
    { name: columns.axis, extent: teamExtent(places, columns) },
  ];
  return { name: stagedName(places), dtype, scope: "shared", dims, ...sharedStorage("spans", dims, bytesOf(dtype)) };
}

/** Hands the tile of each warpgroup to the copy engine, through the warpgroup's own part of shared memory. */
function drainBulk(places: GridPlaces): readonly Statement[] {
  const { context } = places;
  const { intrinsic, rows, columns, team } = context;
  const barrier: Statement = { kind: "barrier", group: team };
  const within = (a: GridAxis): Expr => plus(times(a.extent, places.counter(a, "fragment")), places.counter(a, "in"));
  const staged = (row: Expr, column: Expr): Access => access(stagedName(places), [warpOf(places), row, column]);
  const drained = places.drained((sum): Equation => {
    const { value, where } = resultOf(places, places.elementAt(rows), places.elementAt(columns), sum);
    // What is computed from sums alone may be staged where no result is: the engine leaves it out.
    const guards = accessesIn(value).some(({ tensor }) => tensor !== sum.tensor) ? conjunctsOf(where) : [];
    return guarded(assignment(staged(within(rows), within(columns)), value), guards);
  });
  const into = places.eachSum([drained.equation.where ? drained : { ...drained, by: "stmatrix" }]);
  const row = places.counter(rows, "in");
  const column = places.counter(columns, "in");
  const out: Statement = {
    kind: "copy",
    axes: [rows, columns].map((a) => ({ name: places.name(a, "in"), extent: teamExtent(places, a) })),
    equation: {
      ...resultOf(places, plus(places.warpAt(rows), row), plus(places.warpAt(columns), column), number(0)),
      value: staged(row, column),
    },
    width: 1,
    transfer: "engine",
    group: team,
    view: resultView(places),
  };
  return [
    ...(places.turns > 1 ? [READ, barrier] : []),
    ...into,
    { kind: "fence", on: "memory", of: intrinsic },
    barrier,
    out,
  ];
}

const READ: Statement = { kind: "settle" };

/** A warpgroup waits, behind all of its tiles, until the engine has read the last one: then its shared memory may go. */
export const storedLast = ({ schedule }: GridPlaces): readonly Statement[] => (schedule.store === "bulk" ? [READ] : []);

/** A warpgroup's results as the copy engine stores them. */
function resultView(places: GridPlaces): TensorView {
  const { context } = places;
  const form = resultForm(context);
  if (typeof form === "string" || form.rows.kind !== "box")
    throw new Error("internal: the engine cannot store results");
  const { along } = form.rows;
  const { counters } = places.countersOf(number(0), number(0));
  for (const a of [context.rows, context.columns]) places.place(a, places.warpAt(a), counters);
  return {
    dims: form.dims.map(({ form: _, read: __, ...dim }) => dim),
    at: form.dims.map(({ form: { constant, terms } }) => {
      const sum = [...terms].reduce<Expr>((e, [name, by]) => plus(e, times(by, axis(name))), number(constant));
      return substitute(sum, counters, "index");
    }),
    rows: {
      kind: "box",
      extents: form.dims.map((_, i) =>
        i === 0 ? teamExtent(places, context.columns) : i === along ? teamExtent(places, context.rows) : 1,
      ),
    },
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
    ...insideTarget(places.computation).map((c) => substitute(c, counters, "index")),
  ];
  const index = places.computation.equation.target.index.map((e) => substitute(e, counters, "index"));
  const sum = storedSum(places.computation, places.context.stored, counters, held);
  return guarded(storingAt(places.computation, index, sum), guards);
}

function stagedName(places: GridPlaces): string {
  return places.fresh("results");
}
