/**
 * @file Lowers `gather`: an input that a block stages once as a box in the tensor's own layout, and the addresses at which lanes gather their
 * fragments.
 *
 *     shared a_box: f16[h 7, wc 696]
 *     copy h_place 7, wc_place 696 by 8, async        a_box[h_place,wc_place] = in[n, wc%3, 2*p+h_place-3, wc/3], wc = 672*m_tile + wc_place - 16
 *     a{0} <- a_box[k/21, 7 + 6*m_in + k%21] where k < 147          beyond the end of the sum a fragment holds zeros
 */

import { namesOf, volumeOf } from "../../abstraction/collections.ts";
import { summedIn } from "../../abstraction/computation.ts";
import {
  access,
  and,
  axis,
  type Expr,
  minus,
  number,
  over,
  plus,
  remainder,
  substituteEach,
  times,
} from "../../abstraction/expression.ts";
import { assignment, type Copy, type Scratch, type TileAccess } from "../../abstraction/loop-nest.ts";
import { digitsOf } from "../schedule/dimensions.ts";
import { type BoxDim, boxIsAsync, type GatherBox } from "../schedule/gather.ts";
import type { GridPlaces } from "./grid-places.ts";

const boxName = (places: GridPlaces, { input }: GatherBox): string => places.fresh(`${input.operand.name}_box`);

/** The box in shared memory. One stage suffices, since all steps read the same box. */
export function boxScratch(places: GridPlaces, box: GatherBox): Scratch {
  const storage = box.dims.reduce<Expr>((sum, d) => plus(sum, times(d.weight, axis(d.name))), number(0));
  return {
    name: boxName(places, box),
    dtype: box.input.operand.dtype,
    elements: box.elements,
    scope: "shared",
    dims: box.dims.map((d) => ({ name: d.name, extent: d.staged })),
    storage,
  };
}

/** Copies the part of the tensor that a block's tile reads, with zeros outside the tensor. */
export function boxCopy(places: GridPlaces, box: GatherBox): Copy {
  const { context } = places;
  const { kept } = box.input;
  // 1. The origin of the box: loops of the tile at its first result, summed loops at 0.
  const first = times(places.extent(kept), places.tileAt(kept));
  const counters = places.outerCounters();
  for (const [l, digit] of kept.dimension ? digitsOf(kept.dimension, first) : [])
    counters.set(l, box.kept.some((k) => k.name === l && k.isWhole) ? number(0) : digit);
  for (const { name, kind } of places.computation.axes) if (kind === "reduce") counters.set(name, number(0));
  const begin = substituteEach(box.access.index, counters);

  // 2. The dimensions of the box, split into those of the tensor.
  const index = [...begin];
  const placed = box.dims.filter((d, i) => d.staged > 1 || i === box.dims.length - 1);
  const nameOf = (d: BoxDim): string => places.fresh(`${d.name}_place`);
  for (const d of placed) {
    const steps = minus(axis(nameOf(d)), d.ahead);
    const weights = d.own.map((_, i) => volumeOf(d.own.slice(i + 1)));
    const flat = d.own.reduce<Expr>(
      (sum, { position }, i) => plus(sum, times(weights[i] ?? 1, begin[position] ?? 0)),
      number(0),
    );
    const at = plus(flat, steps);
    for (const [i, { position, extent }] of d.own.entries()) {
      const quotient = over(at, weights[i] ?? 1);
      index[position] = i === 0 ? quotient : remainder(quotient, extent);
    }
  }
  return {
    kind: "copy",
    axes: placed.map((d) => ({ name: nameOf(d), extent: d.staged })),
    equation: assignment(
      access(
        boxName(places, box),
        box.dims.map((d) => (placed.includes(d) ? axis(nameOf(d)) : number(0))),
      ),
      { ...box.access, index },
    ),
    width: box.width,
    transfer: boxIsAsync(context, places.schedule) ? "async" : "plain",
    group: "block",
  };
}

/**
 * The address in the box of a fragment's element, given a result of the tile and a position in the step's part of the
 * sum.
 */
export function boxAccess(
  places: GridPlaces,
  box: GatherBox,
  step: Expr,
  inKept: Expr,
  inSum: Expr,
): Pick<TileAccess, "access" | "where"> {
  const { counters, fusedSum } = places.countersOf(step, inSum);
  for (const [i, { name, count, weight }] of box.kept.entries()) {
    const quotient = over(inKept, weight);
    counters.set(name, count === 1 ? number(0) : i === 0 ? quotient : remainder(quotient, count));
  }
  const reached = new Set([...namesOf(box.kept), ...namesOf(summedIn(places.computation.axes))]);
  const index = box.dims.map(({ form, ahead }) =>
    [...form.terms].reduce<Expr>(
      (sum, [l, by]) => (reached.has(l) ? plus(sum, times(by, counters.get(l) ?? 0)) : sum),
      number(ahead),
    ),
  );
  const [where, ...more] = places.beyond(places.context.sum, fusedSum);
  return { access: access(boxName(places, box), index), ...(where && { where: more.reduce(and, where) }) };
}
