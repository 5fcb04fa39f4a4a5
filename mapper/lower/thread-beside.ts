/**
 * @file Lowers the additional assignments of an epilogue to threads: one more kernel for each, whose lanes lie along its innermost axis.
 *
 *     z[b,i*(i-1)/2+j+8] = c[b,i,j] where j < i, z[b,k] = x[b,0,k]
 *
 *       for at block b_beside in 0..4
 *         for lanes lane in 0..32
 *           z[b_beside,lane] = x[b_beside,0,lane] where lane < 8
 */

import type { Axis, Computation } from "../../abstraction/computation.ts";
import { partsOf } from "../../abstraction/epilogue.ts";
import { axis, compare, type Expr, number, plus, substituteAxes, times } from "../../abstraction/expression.ts";
import { assign, type Statement } from "../../abstraction/loop-nest.ts";
import { loopsAt, type ThreadPlaces } from "./thread-places.ts";

/** Each kernel with the barrier before it; empty if there are no such assignments. */
export function besideThreads(computation: Computation, places: ThreadPlaces): readonly Statement[] {
  const { names, width, lane } = places;
  return partsOf(computation).beside.flatMap(({ equation, axes }) => {
    const name = (a: Axis): string => names.fresh(`${a.name}_beside`);
    const innermost = axes.at(-1);
    const outer = axes.slice(0, -1).filter((a) => a.extent > 1);
    const counters = new Map(axes.map((a) => [a.name, outer.includes(a) ? axis(name(a)) : number(0)]));
    const blocks = outer.map((a): [string, number] => [name(a), a.extent]);
    const where: Expr[] = innermost ? [] : [compare("==", axis(lane), 0)];
    if (innermost) {
      const chunks = Math.ceil(innermost.extent / width);
      if (chunks > 1) blocks.push([name(innermost), chunks]);
      const at = plus(times(width, chunks > 1 ? axis(name(innermost)) : 0), axis(lane));
      counters.set(innermost.name, at);
      if (chunks * width > innermost.extent) where.push(compare("<", at, innermost.extent));
    }
    const placed = substituteAxes(equation, counters);
    if (placed.where !== undefined) where.push(placed.where);
    const dealt = blocks.length > 0 ? blocks : [[names.fresh("only_beside"), 1] as const];
    return [
      { kind: "barrier" },
      ...loopsAt("block", dealt, [places.lanes([assign(placed.target, placed.value, where)])]),
    ];
  });
}
