/**
 * @file The tiles of a step as requests to a copy engine: their origins, computed from the counters of the block and of
 * the step.
 *
 *     in[n,c,p*2+r-1,q*2+s-1]    at c 64*(step%2), w 2*q-1, h 2*p-1, n    offsets s, r        q, p, n of the tile's first row
 */

import { summedIn } from "../../abstraction/computation.ts";
import { axis, type Expr, number, plus, substitute, times } from "../../abstraction/expression.ts";
import type { TensorView } from "../../abstraction/tensor-view.ts";
import type { GridAxis, GridInput } from "../schedule/grid-context.ts";
import { sharersOf } from "../schedule/multicast.ts";
import { rowElements } from "../schedule/swizzle.ts";
import { viewForm } from "../schedule/views.ts";
import type { GridPlaces } from "./grid-places.ts";

/** The view that a copy engine fetches for one input's tile. @throws Error if an engine cannot fetch this input */
export function viewOf(places: GridPlaces, input: GridInput, step: Expr): TensorView {
  const { context, computation } = places;
  const form = viewForm(context, input);
  if (typeof form === "string") throw new Error(`internal: the schedule cannot be lowered: ${form}`);
  const { kept, contiguous } = input;
  const { there, inTile } = places.ofStep(step);
  const [rowAxis, columnAxis] = contiguous === "sum" ? [kept, context.sum] : [context.sum, kept];
  const across = places.extent(columnAxis);
  const sharers = sharersOf(context, places.schedule, input);
  const count = places.extent(rowAxis) / sharers;
  /** The first row of the tile, or of this block's share of it. */
  const firstOf = (a: GridAxis): Expr => (a === rowAxis && sharers > 1 ? times(count, places.member) : number(0));
  const { counters } = there.countersOf(inTile, firstOf(context.sum));
  there.place(kept, firstOf(kept), counters);
  const columns = columnAxis === kept ? rowElements(input, across) : across;

  const summed = new Set(summedIn(computation.axes).map((a) => a.name));
  /** The part of an index that depends on some of the loops. */
  const partOf = (d: (typeof form.dims)[number], constant: number, has: (loop: string) => boolean): Expr => {
    const terms = [...d.form.terms].filter(([name]) => has(name));
    const sum = terms.reduce<Expr>((e, [name, c]) => plus(e, times(c, axis(name))), number(constant));
    return substitute(sum, counters, "index");
  };
  const { rows } = form;
  const isWalked = (i: number): boolean => rows.kind === "pixels" && i > 0 && i < form.dims.length - 1;
  return {
    dims: form.dims.map(({ form: _, ...dim }) => dim),
    at: form.dims.map((d, i) => partOf(d, d.form.constant, (name) => !isWalked(i) || !summed.has(name))),
    rows:
      rows.kind === "box"
        ? {
            kind: "box",
            extents: form.dims.map((_, i) => (i === 0 ? columns : i === rows.along ? count : 1)),
          }
        : {
            kind: "pixels",
            columns,
            count,
            walks: rows.walks,
            offsets: form.dims.slice(1, -1).map((d) => partOf(d, 0, (name) => summed.has(name))),
          },
  };
}
