/**
 * @file Chooses which loops of a computation run inside the array, how these are tiled, and which run in sequence
 * outside.
 *
 *     conv1d, 16 lanes     inside p 16 (of 890), r 5     outside k 512, c 512, p_tile 56
 */

import { affineForm } from "../../abstraction/affine.ts";
import { type Axis, type Computation, extentsOf } from "../../abstraction/computation.ts";
import { suggestion, UsageError } from "../../abstraction/error.ts";
import { accessesIn } from "../../abstraction/expression.ts";
import type { SourceLoop } from "../../abstraction/recurrence.ts";
import { freshName } from "../lower/names.ts";

/** A loop that the array processes in tiles: its index is `size * outer + name`. */
export interface Tiled {
  readonly name: string;
  readonly size: number;
  readonly outer: string;
  /** Name of the inner loop. It keeps the loop's name unless the array contains both parts. */
  readonly inner?: string;
}

export interface ArraySpace {
  readonly inside: readonly SourceLoop[];
  /** Loops in sequence outside the array, outermost first; loops over tiles come last. */
  readonly outside: readonly SourceLoop[];
  readonly tiled: readonly Tiled[];
  /** Loops of one step: their index is 0. */
  readonly dropped: readonly string[];
}

/** The loops of an array, with nothing around it. */
export const onlyInside = (inside: readonly SourceLoop[]): ArraySpace => ({
  inside,
  outside: [],
  tiled: [],
  dropped: [],
});

/** Which loops an array runs. */
export interface ArrayLoopOptions {
  /** Loops of the array, outermost first; chosen when left out. */
  readonly loops?: readonly string[];
  /** Longer spatial loops of the array are tiled to this size. */
  readonly lanes?: number;
}

/** The most loops for which transforms are enumerated. */
const MOST_LOOPS = 4;

/**
 * Chooses and tiles the loops of the array. Up to three loops are all taken. Of more loops, a window (`p+r`) takes its
 * innermost spatial loop and the last two loops it sums over; without a window the array takes the last two spatial
 * loops and the last summed one. Loops of one step are dropped.
 * @throws UsageError for an unknown loop, or if fewer than two are left
 */
export function arraySpace(computation: Computation, options: ArrayLoopOptions = {}): ArraySpace {
  const long = computation.axes.filter((a) => a.extent > 1);
  const names = options.loops ?? chosenLoops(computation, long);
  const known = computation.axes.map((a) => a.name);
  for (const [i, name] of names.entries()) {
    if (!known.includes(name)) throw new UsageError(`${computation.name}: no loop "${name}"`, suggestion(name, known));
    if (names.indexOf(name) !== i) throw new UsageError(`${computation.name}: loop ${name} is named twice`);
  }
  const inside = names.flatMap((name) => long.find((a) => a.name === name) ?? []);
  if (inside.length < 2)
    throw new UsageError(
      `${computation.name}: an array needs two loops of more than one step, got ${inside.map((a) => `${a.name} ${a.extent}`).join(", ") || "none"}`,
      `the loops are ${computation.axes.map((a) => `${a.name} ${a.extent}`).join(", ")}`,
    );
  if (inside.length > MOST_LOOPS)
    throw new UsageError(
      `${computation.name}: an array has at most ${MOST_LOOPS} loops, got ${names.join(", ")}`,
      "the others stay in sequence outside",
    );
  const extents = extentsOf(computation);
  const tiled = inside
    .filter((a) => options.lanes !== undefined && a.extent > options.lanes && isTiled(computation, a))
    .map((a) => ({
      name: a.name,
      size: options.lanes ?? a.extent,
      outer: freshName(`${a.name}_tile`, new Set(known)),
    }));
  const tileOf = (name: string): Tiled | undefined => tiled.find((t) => t.name === name);
  return {
    inside: inside.map(({ name, extent }) => ({ name, extent: tileOf(name)?.size ?? extent })),
    outside: [
      ...long.filter((a) => !inside.includes(a)).map(({ name, extent }) => ({ name, extent })),
      ...tiled.map((t) => ({ name: t.outer, extent: Math.ceil((extents[t.name] ?? 1) / t.size) })),
    ],
    tiled,
    dropped: computation.axes.filter((a) => a.extent === 1).map((a) => a.name),
  };
}

function chosenLoops(computation: Computation, long: readonly Axis[]): string[] {
  if (long.length <= 3) return long.map((a) => a.name);
  const windows = windowsOf(computation).filter((pair) => pair.every((name) => long.some((a) => a.name === name)));
  const ofWindows = new Set(windows.flat());
  const from = windows.length > 0 ? long.filter((a) => ofWindows.has(a.name)) : long;
  const spatial = from.filter((a) => a.kind === "spatial").slice(windows.length > 0 ? -1 : -2);
  const reduce = from.filter((a) => a.kind === "reduce").slice(spatial.length - 3);
  return [...spatial, ...reduce].map((a) => a.name);
}

/** Pairs of a spatial and a summed loop in one index: p and r of in[p+r]. */
export function windowsOf({ equation, axes }: Computation): [spatial: string, reduce: string][] {
  const kindOf = (name: string): string | undefined => axes.find((a) => a.name === name)?.kind;
  return accessesIn(equation.value)
    .flatMap((a) => a.index)
    .flatMap((index) => {
      const names = [...(affineForm(index)?.terms.keys() ?? [])];
      const [spatial, reduce] = [
        names.filter((n) => kindOf(n) === "spatial"),
        names.filter((n) => kindOf(n) === "reduce"),
      ];
      return spatial.flatMap((s) => reduce.map((r): [string, string] => [s, r]));
    });
}

/** Whether a loop is tiled. Filter axes are short and stay whole. */
function isTiled(computation: Computation, { name, kind }: Axis): boolean {
  return kind === "spatial" || !windowsOf(computation).some(([, reduce]) => reduce === name);
}

/** Whether a window slides inside the array. Such designs run on a single row of lanes. */
export function hasWindow(computation: Computation, { inside }: ArraySpace): boolean {
  return windowsOf(computation).some((pair) => pair.every((name) => inside.some((l) => l.name === name)));
}

/** `p 16 (a tile of 890), r 5; outside, in sequence: k 512, c 512` */
export function printSpace(computation: Computation, { inside, outside, tiled }: ArraySpace): string {
  const extents = extentsOf(computation);
  const within = inside.map(({ name, extent }) => {
    const tile = tiled.some((t) => t.name === name) ? ` (a tile of ${extents[name]})` : "";
    return `${name} ${extent}${tile}`;
  });
  const others = outside.filter((l) => !tiled.some((t) => t.outer === l.name)).map((l) => `${l.name} ${l.extent}`);
  return `${within.join(", ")}${others.length > 0 ? `; outside, in sequence: ${others.join(", ")}` : ""}`;
}
