/**
 * @file Software prefetch for packing: the source of the tiles that the next step of a loop packs is fetched into the caches during the sums of the
 * current step.
 *
 *     b tiled within n      for n in 0..32768
 *                             b_tiles[..] <- e[n, ..]
 *                             for i in 0..2
 *                               for k in 0..64                     (fetch ahead e[6656*(n+1) + 32*(64*i + k)])
 *                                 c{..} <- ...
 *
 * Packing reads a few bytes of many rows at once, which prefetchers of processors follow badly: of a sample of 27 vectors of 128 bf16 it takes
 * 0.15 us where they are in a near cache and 0.6 us where they are in memory (Zen 4, 2026-11-23).
 */

import { addressOf, affineForm, boundsOf } from "../../abstraction/affine.ts";
import { upTo } from "../../abstraction/collections.ts";
import { extentsOf, tensorOf } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { accessesIn, axis, type Expr, number, over, plus, substitute, times } from "../../abstraction/expression.ts";
import type { Loop, Statement, TileAt } from "../../abstraction/loop-nest.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import type { LoopDimension } from "../schedule/dimensions.ts";
import type { WithinTiles } from "../schedule/within.ts";

/** Elements of a tensor that one step of a loop reads, one behind the other. */
export interface Region {
  readonly tensor: string;
  /** The name of the dimension whose blocks the loop runs over. */
  readonly dimension: string;
  /** Elements from one step to the next. */
  readonly elements: number;
  readonly perLine: number;
}

/** Of a processor's caches, in bytes. */
export const LINE_BYTES = 64;

/** Smaller tensors stay in the cache of a core, where its out-of-order window covers the delay: a quarter of 1 MiB (Zen 4, Sapphire Rapids: 2 MiB). */
export const FETCHED_BYTES = 1 << 18;

/** Lines that a step fetches at most: more of them wait for one another. */
const MOST_AT_ONCE = 6;

/** Lines of a region that each of some steps fetches ahead; undefined when they are too many. */
export function linesAtOnce({ elements, perLine }: Region, steps: number): number | undefined {
  const each = Math.ceil(elements / perLine / steps);
  return each > MOST_AT_ONCE ? undefined : each;
}

/** What tiles packed inside a loop read in one step of it; none for a tensor whose elements of a step lie among those of others. */
export function regionsOf({ computation, binding }: Mapping, operand: string, { around }: WithinTiles): Region[] {
  const [only, ...more] = around;
  const bound = binding[operand];
  const [axis, ...fused] = only?.dimension.loops.filter((l) => l.extent > 1) ?? [];
  if (!bound || !only || only.of !== "block" || more.length > 0 || !axis || fused.length > 0) return [];
  const extents = extentsOf(computation);
  const seen = new Set<string>();
  return accessesIn(bound).flatMap(({ tensor, index }): Region[] => {
    const read = tensorOf(computation, tensor);
    const place = addressOf(read, index);
    const elements = (affineForm(place)?.terms.get(axis.name) ?? 0) * only.dimension.step * only.steps;
    const inStep = substitute(place, new Map([[axis.name, number(0)]]), "index");
    const [from, to] = boundsOf(inStep, extents);
    const isDense = to - from < elements && 2 * (to - from + 1) > elements;
    if (seen.has(tensor) || !isDense) return [];
    seen.add(tensor);
    return [{ tensor, dimension: only.dimension.name, elements, perLine: LINE_BYTES / bytesOf(read.dtype) }];
  });
}

/**
 * The outermost loops of some statements, each step of which fetches lines of what the next step reads.
 * @param outer the step of the loop that the regions belong to
 * @param among the place of these statements among those that share the lines, and how many they are
 */
export function fetchingAhead(
  statements: readonly Statement[],
  regions: readonly Region[],
  outer: (dimension: string) => Expr,
  among: { readonly at: Expr; readonly of: number },
): readonly Statement[] {
  const of = (loop: Loop): TileAt[] =>
    regions.flatMap((region) => {
      const { tensor, dimension, elements, perLine } = region;
      const lines = elements / perLine;
      const steps = loop.extent * among.of;
      const each = linesAtOnce(region, steps);
      if (each === undefined) return [];
      // Where a line takes several steps, they name the same one: lines beyond belong to later steps of the outer loop.
      const perFetch = Math.max(1, Math.floor(steps / lines));
      const next = times(plus(outer(dimension), 1), elements);
      const step = over(plus(times(among.at, loop.extent), axis(loop.axis)), perFetch);
      return upTo(each).map((n) => ({
        buffer: tensor,
        base: plus(next, times(plus(times(step, each), n), perLine)),
      }));
    });
  return statements.map((s) => {
    if (s.kind === "when")
      return {
        ...s,
        body: fetchingAhead(s.body, regions, outer, among),
        otherwise: fetchingAhead(s.otherwise, regions, outer, among),
      };
    if (s.kind !== "loop" || s.mode !== "serial") return s;
    const ahead = of(s);
    return ahead.length === 0 ? s : { ...s, ahead };
  });
}

/**
 * The sums of one block with lines of the next step fetched in them: a share for each block of the first loop inside of that step's.
 * @param dimensions in the order of their loops
 */
export function shareFetched(
  sums: readonly Statement[],
  regions: readonly Region[],
  dimensions: readonly LoopDimension[],
  blocksIn: (d: LoopDimension) => number,
  parts: ReadonlyMap<string, { readonly outer: Expr }>,
): readonly Statement[] {
  const [region] = regions;
  if (region === undefined) return sums;
  const outer = (name: string): Expr => parts.get(name)?.outer ?? number(0);
  const inside = dimensions.slice(dimensions.findIndex((d) => d.name === region.dimension) + 1);
  const sharing = inside.find((d) => d.kind === "spatial" && blocksIn(d) > 1);
  const among = { at: sharing ? outer(sharing.name) : number(0), of: sharing ? blocksIn(sharing) : 1 };
  return fetchingAhead(sums, regions, outer, among);
}

/** A few lines, fetched while tiles are packed: the sums have many more steps than they. */
export function isFew({ elements, perLine }: Region): boolean {
  return elements / perLine <= 2 * MOST_AT_ONCE;
}
