/**
 * @file Lowers recurrences to loop nests of lanes: wavefronts (lower-wavefront.ts), planes one after another, and
 * prefix sums.
 *
 *     for t in 0..100, block in 0..32                              v[t,j] max= v[t-1,i] + a[i,j]
 *       sums[0,lane] = -inf
 *       for i in 0..512
 *         sums[0,lane] max= v[t-1,i] + a[i,16*block+lane]
 *       v[t,16*block+lane] = sums[0,lane]
 *
 *     for block in 0..4096                                         y[i] = y[i-1] + x[i]
 *       sums[0,lane] = x[16*block+lane]
 *       sums[0,lane] = sums[0,lane] + select(lane >= 1, sums[0,lane-1], 0)       and from 2, 4, 8 lanes before
 *       y[16*block+lane] = carry[0,lane] + sums[0,lane]
 *       carry[0,lane] = carry[0,lane] + sums[0,15]
 */

import type { RecurrenceSchedule } from "../../abstraction/candidate.ts";
import { upTo } from "../../abstraction/collections.ts";
import {
  type Access,
  access,
  axis,
  compare,
  type Expr,
  identityOf,
  minus,
  number,
  plus,
  select,
  substitute,
  times,
} from "../../abstraction/expression.ts";
import { assign, FreshNames, type LoopNest, loop, loops, type Statement } from "../../abstraction/loop-nest.ts";
import { decided, undecided } from "./decided.ts";
import { joinedBy } from "./flow.ts";
import { laneNest } from "./lane-files.ts";
import { Wavefront } from "./lower-wavefront.ts";
import { joinedIn, type Recurrent } from "./recurrent.ts";

/** Lowers a recurrence. @param recurrent as judged by `recurrentUnder` for this schedule */
export function lowerRecurrent(recurrent: Recurrent, schedule: RecurrenceSchedule): LoopNest {
  switch (recurrent.form) {
    case "wavefront":
      return lowerWavefront(recurrent, schedule);
    case "planes":
      return lowerPlanes(recurrent, schedule);
    case "prefix":
      return lowerPrefix(recurrent, schedule);
    default:
      return recurrent.form satisfies never;
  }
}

/** Loops over the independent axes. Threads share the outermost. */
function around(
  { outer }: Recurrent,
  { threads }: RecurrenceSchedule,
  body: readonly Statement[],
): readonly Statement[] {
  return loops(outer, body, (_, d) => (d === 0 && threads > 1 ? "parallel" : "serial"));
}

/** Vectors along an axis: blocks of several vectors, then single vectors, then a partial one. */
function vectorsAlong(
  extent: number,
  block: string,
  widths: readonly { readonly lanes: number; readonly count: number }[],
  body: (first: Expr, lanes: number, count: number) => readonly Statement[],
): Statement[] {
  const made: Statement[] = [];
  let done = 0;
  for (const { lanes, count } of widths) {
    const blocks = Math.floor((extent - done) / (lanes * count));
    if (blocks === 0) continue;
    made.push(loop(block, blocks, body(plus(times(lanes * count, axis(block)), done), lanes, count)));
    done += blocks * lanes * count;
  }
  if (done < extent) made.push(...body(number(done), extent - done, 1));
  return made;
}

function lowerWavefront(recurrent: Recurrent, schedule: RecurrenceSchedule): LoopNest {
  const nest = new Wavefront(recurrent, schedule).nest();
  return { ...nest, body: around(recurrent, schedule, nest.body) };
}

function lowerPlanes(recurrent: Recurrent, schedule: RecurrenceSchedule): LoopNest {
  const { computation, inner, between, summed, dtype } = recurrent;
  const [time, last] = inner;
  if (!time || !last) throw new Error("internal: planes without time");
  const { op, target, value } = computation.equation;
  const names = new FreshNames(computation);
  const [sums, lane, block] = [names.fresh("sums"), names.fresh("lane"), names.fresh("block")];
  const several = schedule.beside[last.name] ?? 1;
  const plane = (from: number, to: number): Statement[] => {
    if (to <= from) return [];
    const known = decided(value, new Map([[time.name, [from, to - 1]]]));
    const at = plus(axis(time.name), from);
    const row = vectorsAlong(
      last.extent,
      block,
      [...(several > 1 ? [{ lanes: schedule.lanes, count: several }] : []), { lanes: schedule.lanes, count: 1 }],
      (first, lanes, count) => {
        const onLanes = (body: (place: (e: Expr) => Expr, v: number) => Statement): Statement[] =>
          upTo(count).map((v) => {
            const j = plus(plus(first, v * schedule.lanes), axis(lane));
            const places = new Map([
              [time.name, at],
              [last.name, j],
            ]);
            return loop(lane, lanes, [body((e) => substitute(e, places, e === known ? "value" : "index"), v)], "lanes");
          });
        const sum = (v: number): Access => access(sums, [number(v), axis(lane)]);
        const combine = (v: number, what: Expr): Statement => assign(sum(v), what, [], op);
        const stored = (what: (place: (e: Expr) => Expr, v: number) => Expr): Statement[] =>
          onLanes((place, v) => {
            const index = target.index.map(place);
            return assign(access(target.tensor, index), what(place, v));
          });
        if (summed.length === 0) return stored((place) => place(known));
        return [
          ...onLanes((_, v) => assign(sum(v), number(identityOf(op, dtype)))),
          ...loops(
            summed,
            onLanes((place, v) => combine(v, place(known))),
          ),
          ...stored((_, v) => sum(v)),
        ];
      },
    );
    return [loop(time.name, to - from, loops(between, row))];
  };
  // The first planes are peeled if that decides a condition.
  const leftFrom = (from: number): number =>
    undecided(decided(value, new Map([[time.name, [from, Math.max(from, time.extent - 1)]]])));
  const start = [0, 1, 2].reduce((best, from) => (leftFrom(from) < leftFrom(best) ? from : best), 0);
  const first = Math.min(start, time.extent);
  const body = around(recurrent, schedule, [...plane(0, first), ...plane(first, time.extent)]);
  const files = summed.length === 0 ? [] : [{ name: sums, dtype, lanes: schedule.lanes, count: several }];
  return laneNest(files, body);
}

function lowerPrefix(recurrent: Recurrent, schedule: RecurrenceSchedule): LoopNest {
  const { computation, inner, dtype } = recurrent;
  const [along] = inner;
  const joined = joinedIn(computation);
  if (!along || !joined) throw new Error("internal: a prefix without a join");
  const names = new FreshNames(computation);
  const [sums, carry, lane, block] = ["sums", "carry", "lane", "block"].map((wish) => names.fresh(wish)) as [
    ...[string, string, string, string], // as many as wished
  ];
  const { target } = computation.equation;
  const { op, term } = joined;
  const join = (left: Expr, right: Expr): Expr => joinedBy(op, left, right);
  const identity = number(identityOf(op, dtype));
  const own = (file: string): Access => access(file, [number(0), axis(lane)]);
  const vectors = vectorsAlong(along.extent, block, [{ lanes: schedule.lanes, count: 1 }], (first, lanes) => {
    const places = new Map([[along.name, plus(first, axis(lane))]]);
    const reaches: number[] = [];
    for (let reach = 1; reach < lanes; reach *= 2) reaches.push(reach);
    const body = [
      assign(own(sums), substitute(term, places, "value")),
      ...reaches.map((reach) => {
        const before = access(sums, [number(0), minus(axis(lane), reach)]);
        const inside = compare(">=", axis(lane), reach);
        return assign(own(sums), join(own(sums), select(inside, before, identity)));
      }),
      assign(
        access(
          target.tensor,
          target.index.map((e) => substitute(e, places, "index")),
        ),
        join(own(carry), own(sums)),
      ),
      assign(own(carry), join(own(carry), access(sums, [number(0), number(lanes - 1)]))),
    ];
    return [loop(lane, lanes, body, "lanes")];
  });
  // The carry before the first element is zero.
  const begin = loop(lane, schedule.lanes, [assign(own(carry), number(0))], "lanes");
  const files = [sums, carry].map((name) => ({ name, dtype, lanes: schedule.lanes, count: 1 }));
  return laneNest(files, around(recurrent, schedule, [begin, ...vectors]));
}
