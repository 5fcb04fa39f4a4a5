/**
 * @file Lowers the additional assignments of an epilogue on blocks and warps: the first warp of the first tile executes them, at each point of the
 * outer loops.
 *
 *     z[b,i*(i-1)/2+j+8] = c[b,i,j] where j < i, z[b,k] = x[b,0,k]
 *
 *       copy k_beside 8 by warp       z[b_block,k_beside] = x[b_block,0,k_beside]       where m_warp == 0 and n_warp == 0
 */

import { partsOf } from "../../abstraction/epilogue.ts";
import { axis, compare, guarded, substituteAxes } from "../../abstraction/expression.ts";
import type { Statement } from "../../abstraction/loop-nest.ts";
import { partsOfSum } from "../schedule/split.ts";
import { keptTiles } from "../schedule/taps.ts";
import type { GridPlaces } from "./grid-places.ts";

/** One copy by a warp for each such assignment; empty if there are none. */
export function besideResults(places: GridPlaces): readonly Statement[] {
  const { context, schedule, computation } = places;
  const { rows, columns, team } = context;
  const outer = places.outerCounters();
  const tiles = [
    { at: places.tileAt(rows), count: keptTiles(context, rows, schedule) },
    { at: places.tileAt(columns), count: keptTiles(context, columns, schedule) },
    { at: places.part, count: partsOfSum(schedule) },
    ...[rows, columns].map((a) => ({ at: places.counter(a, team), count: schedule.warps[a.axis] ?? 1 })),
  ];
  return partsOf(computation).beside.map(({ equation, axes }): Statement => {
    const inside = axes.filter((a) => !outer.has(a.name));
    const named = new Map(inside.map((a) => [a.name, places.fresh(`${a.name}_beside`)]));
    const counters = new Map([...outer, ...[...named].map(([name, counter]) => [name, axis(counter)] as const)]);
    // An outer loop that does not index the assignment contributes only its first step.
    const others = computation.axes.flatMap(({ name, extent }) => {
      const at = axes.some((a) => a.name === name) ? undefined : outer.get(name);
      return at === undefined ? [] : [{ at, count: extent }];
    });
    const first = [...others, ...tiles].flatMap(({ at, count }) => (count > 1 ? [compare("==", at, 0)] : []));
    return {
      kind: "copy",
      axes:
        inside.length === 0
          ? [{ name: places.fresh("beside"), extent: 1 }]
          : inside.map((a) => ({ name: named.get(a.name) ?? a.name, extent: a.extent })),
      equation: guarded(substituteAxes(equation, counters), first),
      width: 1,
      transfer: "plain",
      group: team,
    };
  });
}
