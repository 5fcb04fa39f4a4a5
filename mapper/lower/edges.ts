/**
 * @file Packs the blocks of an input that a condition cuts, with zeros where the condition fails. All other blocks are
 * loaded in place.
 *
 *     c[i,j] += a[i,k] * b[k,j] where k <= i          block i 2 of 16, k 1 of 64, a in place
 *
 *       for i_edge in 0..11
 *         for k_edge in 0..min(6, (32*i_edge + 95)/64)         blocks with at least one point inside
 *           when 32*i_edge < 64*k_edge + 63                    and at least one outside
 *             for i_step in 0..2, m_inner in 0..16, k_inner in 0..64
 *               a_edges[...] = select(64*k_edge + k_inner <= 32*i_edge + 16*i_step + m_inner, a[...], 0)
 *
 * Edge blocks have the addresses that they would have if all tiles were packed. The memory between them is never
 * touched.
 */

import type { Dimension } from "../../abstraction/affine.ts";
import { axis, type Expr, minus, number, plus, times } from "../../abstraction/expression.ts";
import type { Operand } from "../../abstraction/intrinsic.ts";
import { type FreshNames, loop, loops, type Statement } from "../../abstraction/loop-nest.ts";
import { type Conditions, type Stretch, when, wholeStretch } from "../match/conditions.ts";
import { blocksOf } from "../schedule/cache-tiles.ts";
import type { LoopDimension } from "../schedule/dimensions.ts";

interface PackedEdge {
  readonly operand: Operand;
  /** The dimensions that index the operand, kept ones first. */
  readonly own: readonly LoopDimension[];
  readonly conditions: Conditions;
  /** Loops over the elements of a tile. */
  readonly inner: readonly Dimension[];
  /** Steps in a block. */
  readonly blockOf: (d: LoopDimension) => number;
}

type ByDimension = (d: LoopDimension) => Expr;

/**
 * Loops over the edge blocks of an input, the outermost divided among threads.
 * @param packed assigns one element, given the step, the block, and the step within the block of each dimension
 */
export function edgeLoops(
  { operand, own, conditions, inner, blockOf }: PackedEdge,
  names: FreshNames,
  packed: (stepOf: ByDimension, outer: ByDimension, within: ByDimension) => Statement,
): readonly Statement[] {
  const count = (d: LoopDimension): number => blocksOf(d, blockOf(d));
  const counter = (d: LoopDimension, kind: string, extent: number): Expr =>
    extent === 1 ? number(0) : axis(names.fresh(`${d.name}_${kind}`));
  const outer = (d: LoopDimension): Expr => counter(d, "edge", count(d));
  const within = (d: LoopDimension): Expr => counter(d, "step", blockOf(d));
  const first = (d: LoopDimension): Expr => times(outer(d), blockOf(d));
  const stepOf = (d: LoopDimension): Expr => plus(first(d), within(d));

  // 1. One block: its steps (fewer in the last block), then the elements of a tile.
  const moving = own.filter((d) => blockOf(d) > 1);
  const steps = moving.reduceRight<readonly Statement[]>(
    (body, d) => {
      const all = loop(names.fresh(`${d.name}_step`), blockOf(d), body);
      const isEven = d.steps % blockOf(d) === 0;
      return [isEven ? all : { ...all, range: { from: [], to: [minus(d.steps, first(d))] } }];
    },
    loops(
      inner.filter((l) => l.extent > 1),
      [packed(stepOf, outer, within)],
    ),
  );

  // 2. The blocks. The range of each dimension depends on the dimensions before it.
  const stretchAfter =
    (known: number) =>
    (d: LoopDimension): Stretch => {
      const elements = blockOf(d) * d.step;
      if (own.indexOf(d) >= known || !own.includes(d)) return wholeStretch(d);
      return { low: times(outer(d), elements), elements, grain: elements };
    };
  const outermost = own.findIndex((d) => count(d) > 1);
  const blocks = own.reduceRight<readonly Statement[]>(
    (body, d, i) => {
      if (count(d) === 1) return body;
      const all = loop(names.fresh(`${d.name}_edge`), count(d), body, i === outermost ? "parallel" : "serial");
      const range = i > outermost && conditions.blocksOfInput(operand.name, d, stretchAfter(i), count(d));
      return [range ? { ...all, range } : all];
    },
    when(conditions.isAcross(operand.name, stretchAfter(own.length)), steps),
  );
  return outermost >= 0 || blocks.length === 0 ? blocks : [loop(names.fresh("once"), 1, blocks, "parallel")];
}
