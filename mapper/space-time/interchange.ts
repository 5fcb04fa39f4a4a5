/**
 * @file Tiles and reorders the loops of a system, once its meaning is known.
 *
 *     tile c by 16      for c in 0..40   ->   for c_tile in 0..3
 *                         s(c)                  for c_in in 0..16: s(16*c_tile + c_in) where 16*c_tile + c_in < 40
 */

import { ascending, namesOf, present } from "../../abstraction/collections.ts";
import { suggestion, UsageError } from "../../abstraction/error.ts";
import {
  type Access,
  accessesIn,
  axis,
  type Expr,
  number,
  plus,
  rewrite,
  substitute,
  substituteAccess,
  times,
} from "../../abstraction/expression.ts";
import type { SourceLoop } from "../../abstraction/recurrence.ts";
import { distanceIn, type Flow, type Flows, isInvariant, type Outcome } from "./flow.ts";
import type { Vector } from "./vector.ts";

export interface Tile {
  readonly loop: string;
  readonly outer: string;
  readonly inner: string;
  readonly size: number;
}

/** Splits a loop in two, the outer one in its place and the inner one behind it. @throws UsageError */
export function tileFlows(flows: Flows, { loop, outer, inner, size }: Tile): Flows {
  const { name, loops } = flows;
  const at = indexOfLoop(flows, loop, "tile");
  const { extent = 1 } = loops[at] ?? {};
  if (!Number.isSafeInteger(size) || size < 1)
    throw new UsageError(`${name}: tile: the size of a tile of ${loop} must be a positive integer, got ${size}`);
  for (const fresh of [outer, inner])
    if (loops.some((l) => l.name === fresh && l.name !== loop) || outer === inner)
      throw new UsageError(`${name}: tile: there is a loop ${fresh} already`);
  if (
    flows.flows.some((f) => f.kind === "fixed" && readsApart(flows, f.value)) ||
    flows.outcomes.some((o) => o.kind === "fixed")
  )
    throw new UsageError(
      `${name}: tile: values of ${loop} depend on each other in the order written, so it cannot be split into tiles`,
      "what can be tiled are sums over loops and values that are passed on",
    );
  const index = plus(times(axis(outer), size), axis(inner));
  const replaced = new Map([[loop, index]]);
  const again = (e: Expr): Expr => substitute(e, replaced, "value");
  const split = loops.flatMap((l): SourceLoop[] =>
    l.name === loop
      ? [
          { name: outer, extent: Math.ceil(extent / size) },
          { name: inner, extent: size },
        ]
      : [l],
  );
  const turned = (load: Expr, directions: readonly Vector[]): Vector[] =>
    directions.flatMap((d) => {
      const x = d[at] ?? 0;
      const options = present([x % size === 0 && [x / size, 0], x !== 0 && Math.abs(x) < size && [0, x]]).map(
        ([o = 0, i = 0]) => [...d.slice(0, at), o, i, ...d.slice(at + 1)],
      );
      return options.filter((v) => isInvariant(load, v, split));
    });
  const target = (a: Access): Access => substituteAccess(a, replaced);
  return {
    ...flows,
    loops: split,
    tails: present([
      ...flows.tails.map((t) => ({ ...t, index: substitute(t.index, replaced, "index") })),
      extent % size !== 0 && { index, extent },
    ]),
    flows: flows.flows.map((f): Flow => {
      if (f.kind === "fixed") return { ...f, value: again(f.value) };
      const load = again(f.load);
      return { ...f, load, directions: turned(load, f.directions) };
    }),
    outcomes: flows.outcomes.map(
      (o): Outcome => (o.kind === "sum" ? { ...o, target: target(o.target), term: again(o.term), directions: [] } : o),
    ),
  };
}

/**
 * Puts the loops in another order, outermost first; loops that are not named keep their places around them. @throws
 * UsageError
 */
export function reorderFlows(flows: Flows, order: readonly string[]): Flows {
  const places = order.map((loop) => indexOfLoop(flows, loop, "reorder"));
  const twice = order.find((loop, i) => order.indexOf(loop) !== i);
  if (twice !== undefined) throw new UsageError(`${flows.name}: reorder: loop ${twice} is named twice`);
  const slots = ascending(places);
  const from = flows.loops.map((_, i) => (slots.includes(i) ? (places[slots.indexOf(i)] ?? i) : i));
  const permuted = (v: Vector): number[] => from.map((i) => v[i] ?? 0);
  return {
    ...flows,
    loops: from.flatMap((i) => flows.loops[i] ?? []),
    flows: flows.flows.map(
      (f): Flow =>
        f.kind === "reuse"
          ? { ...f, directions: f.directions.map(permuted) }
          : { ...f, value: permuteReads(flows, f.value, permuted) },
    ),
    outcomes: flows.outcomes.map(
      (o): Outcome =>
        o.kind === "sum"
          ? { ...o, term: permuteReads(flows, o.term, permuted), directions: o.directions.map(permuted) }
          : { ...o, value: permuteReads(flows, o.value, permuted) },
    ),
  };
}

function readsApart({ variables }: Flows, e: Expr): boolean {
  return accessesIn(e).some((a) => Object.hasOwn(variables, a.tensor) && a.index.length > 0);
}

function permuteReads({ variables }: Flows, e: Expr, permuted: (v: Vector) => number[]): Expr {
  return rewrite(
    e,
    (node) => {
      if (node.kind !== "access" || !Object.hasOwn(variables, node.tensor) || node.index.length === 0) return node;
      return { ...node, index: permuted(distanceIn(node, node.index.length)).map(number) };
    },
    "value",
  );
}

/** Place of a loop. @throws UsageError when there is none of that name */
function indexOfLoop({ name, loops }: Flows, loop: string, primitive: string): number {
  const names = namesOf(loops);
  const at = names.indexOf(loop);
  if (at < 0) throw new UsageError(`${name}: ${primitive}: no loop "${loop}"`, suggestion(loop, names));
  return at;
}
