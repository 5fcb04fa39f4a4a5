/**
 * @file Lowers the stores from a scratch block to the output, element by element: for tiles whose layout in the output
 * is not the one the instruction stores, and for epilogues that change the results first.
 *
 *     c_results[0 .. 31] <- c{0..1}
 *     for q_block in 0..2
 *       for n_inner in 0..16                                                    the output is NHWC: k, fed to n, lies innermost
 *         res[0,16*k_outer+n_inner,p,2*q_outer+q_block] = max(c_results[16*q_block+n_inner], 0)
 *
 * Only the gaps of a spread dimension are tested inside; a partial last tile has loops of its own. The loop with the
 * smallest stride in the output is innermost, so that a language with vectors can print it as a row
 * (codegen/cpp/rows-avx512.ts). When it is too short for that, an epilogue is computed along the rows of the tiles.
 */

import { addressOf, type Dimension, evaluateIndex } from "../../abstraction/affine.ts";
import { combinations } from "../../abstraction/collections.ts";
import { type Computation, outputOf } from "../../abstraction/computation.ts";
import { storingAt } from "../../abstraction/epilogue.ts";
import {
  access,
  axesIn,
  axis,
  compare,
  type Expr,
  guarded,
  number,
  plus,
  substitute,
  times,
} from "../../abstraction/expression.ts";
import type { Operand } from "../../abstraction/intrinsic.ts";
import { loops, type Statement, scalar } from "../../abstraction/loop-nest.ts";
import { tileElements, tileOffset } from "../../abstraction/memory-tile.ts";
import { storedSum } from "../match/conditions.ts";
import { digitsOf, gapsOf, type LoopDimension } from "../schedule/dimensions.ts";

/** Tiles that lie side by side in a scratch buffer. */
export interface ResultBlock {
  readonly computation: Computation;
  /**
   * Condition for an element to differ from the identity; undefined if there is none or it holds for the whole block.
   */
  readonly condition: Expr | undefined;
  /** Set if an epilogue stores all elements, whatever its condition. */
  readonly isWhole?: true;
  /** The instruction's target. */
  readonly target: Operand;
  readonly buffer: string;
  /** The index of a tile in the buffer, in terms of the dimensions' steps. */
  readonly tile: Expr;
  /** Every dimension of the results. */
  readonly dimensions: readonly BlockDimension[];
  /** The name of the loop over an axis of the tile. */
  readonly innerName: (axis: string) => string;
}

interface BlockDimension {
  readonly dimension: LoopDimension;
  /** The number of the block's first step. */
  readonly first: Expr;
  readonly count: number;
  /** The name of the loop over the steps of the block. */
  readonly step: string;
  /** Whether the last step is incomplete. */
  readonly partial: boolean;
}

/** A run of steps with equally many elements: the whole steps, or the incomplete last one. */
interface Run {
  readonly from: number;
  readonly count: number;
  /** Elements in each step. */
  readonly elements: number;
}

/** The fewest elements of a loop that is worth vectorising as a row. */
const ROW_LANES = 8;

/** The loops that store a block of results. */
export function storeElements(block: ResultBlock): readonly Statement[] {
  return combinations(block.dimensions.map(runsOf)).flatMap((runs) => storeRuns(block, runs));
}

function runsOf({ dimension, count, partial }: BlockDimension): Run[] {
  const { step, extent, wholeSteps } = dimension;
  if (!partial) return [{ from: 0, count, elements: step }];
  const last = { from: count - 1, count: 1, elements: extent - wholeSteps * step };
  return count === 1 ? [last] : [{ from: 0, count: count - 1, elements: step }, last];
}

function storeRuns(block: ResultBlock, runs: readonly Run[]): readonly Statement[] {
  const { computation, target, buffer, dimensions, innerName } = block;
  const walk: Dimension[] = [];
  const counter = (name: string, extent: number, from = 0): Expr => {
    if (extent === 1) return number(from);
    walk.push({ name, extent });
    return axis(name);
  };
  // 1. The value of each loop of the computation, and its position in the tile. An axis that no loop feeds has one
  //    element.
  const steps = new Map<string, Expr>();
  const inner = new Map<string, Expr>(target.dims.map((o) => [o.name, number(0)]));
  const counters = new Map<string, Expr>();
  const guards: Expr[] = [];
  for (const [i, { dimension: d, first, step }] of dimensions.entries()) {
    const run = runs[i];
    if (!run) throw new Error(`internal: ${d.name} has no run of steps`);
    const at = counter(step, run.count, run.from);
    steps.set(step, at);
    const element = d.axis === undefined ? number(0) : counter(innerName(d.axis), run.elements);
    if (d.axis !== undefined) inner.set(d.axis, element);
    const fused = plus(times(plus(first, at), d.step), element);
    for (const [name, digit] of digitsOf(d, fused)) counters.set(name, digit);
    for (const l of gapsOf(d)) guards.push(compare("<", counters.get(l.name) ?? 0, l.extent));
  }

  // 2. The assignment of one element.
  const place = plus(
    times(substitute(block.tile, steps, "index"), tileElements(target)),
    substitute(tileOffset(target), inner, "index"),
  );
  const held = storedSum(computation, block.condition, counters, access(buffer, [place]));
  const index = computation.equation.target.index.map((e) => substitute(e, counters, "index"));
  const assigned = storingAt(computation, index, held);
  const { where: _, ...always } = assigned;
  const equation = guarded(block.isWhole ? always : assigned, guards);

  // 3. The loops. Innermost is the loop with the smallest output stride, or, if that is no row, the loop along the
  //    tiles' rows.
  const stride = stridesIn(addressOf(outputOf(computation), equation.target.index));
  const stored = walk.toSorted((a, b) => stride(b.name) - stride(a.name));
  const along = stridesIn(place);
  const row = stored.find((l) => along(l.name) === 1);
  const last = stored.at(-1);
  const turned = row && last && row.extent >= ROW_LANES && last.extent < ROW_LANES && computation.epilogue;
  const order = turned ? [...stored.filter((l) => l !== row), row] : stored;
  return loops(order, [scalar(equation)]);
}

/** Elements between two consecutive steps of a loop. */
function stridesIn(element: Expr): (name: string) => number {
  const origin = Object.fromEntries(axesIn(element).map((name) => [name, 0]));
  const start = evaluateIndex(element, origin);
  return (name) => Math.abs(evaluateIndex(element, { ...origin, [name]: 1 }) - start);
}
