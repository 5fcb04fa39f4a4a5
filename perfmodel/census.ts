/**
 * @file Counts the register blocks in which a condition leaves work, and those across its edge.
 *
 *     c[i,j] += a[i,k] * b[k,j] where j <= i, 512 x 512, block i 8, j 2 of 16      64 x 16 blocks: 576 with work, 64 of them masked
 *
 * Ranges of blocks are bisected until the condition decides a whole range, so the time is proportional to the length of the edge.
 */

import { hasName } from "../abstraction/collections.ts";
import { type Condition, conditionOf, type Outlook, outlook } from "../abstraction/condition.ts";
import { number } from "../abstraction/expression.ts";
import type { Mapping } from "../abstraction/mapping.ts";
import {
  carriedConditions,
  comparisons,
  loopsIn,
  scheduledParts,
  spanOf,
  storedCondition,
} from "../mapper/match/conditions.ts";
import { defineProblem } from "../mapper/match/problem.ts";
import { dependsOn, type LoopDimension } from "../mapper/schedule/dimensions.ts";
import { at, type DimensionState } from "./placed.ts";

/** A dimension that the condition depends on. */
interface Tied {
  readonly dimension: LoopDimension;
  readonly state: DimensionState;
}

/** Blocks of a dimension by number: the whole ones, or the smaller remainder. */
interface Blocks {
  readonly isLeft: boolean;
  readonly from: number;
  readonly to: number;
}

/** A weight for the steps of a block of a dimension; weights of dimensions are multiplied. */
type Weight = (state: DimensionState, count: number, isLeft: boolean) => number;

/** The blocks of a mapping that a condition leaves. */
export interface Census {
  /** Blocks with work to do, each with the blocks of summed dimensions that are visited. */
  readonly worked: Tally;
  /** Blocks stored without a mask: all of their elements take part, or none does. */
  readonly plain: Tally;
  /** For each input that enforces a condition, its blocks across the edge: some of their points take part, and some do not. */
  readonly edges: ReadonlyMap<string, Tally>;
}

/** Fraction of the steps of some dimensions that lie in the blocks of a tally. */
export function shareIn(blocks: Tally, dimensions: Iterable<DimensionState>): number {
  let all = 1;
  for (const d of dimensions) if (blocks.speaksOf(d)) all *= d.steps;
  return blocks.sum((_, count) => count) / all;
}

/** @returns undefined when no condition excludes anything */
export function censusOf(
  mapping: Mapping,
  dimensions: readonly LoopDimension[],
  states: readonly DimensionState[],
): Census | undefined {
  const { computation, intrinsic, binding } = mapping;
  const { where } = computation.equation;
  if (where === undefined) return undefined;
  const whole = conditionOf(where);
  const must: Condition = { kind: "and", parts: comparisons(whole) };
  const parts = scheduledParts(defineProblem(computation, intrinsic, binding));
  const stored = storedCondition(parts);
  const kept = stored && conditionOf(stored);
  const all = dimensions.map((dimension, i): Tied => ({ dimension, state: at(states, i) }));
  const speaksOf = (c: Condition, { dimension }: Tied): boolean =>
    dimension.loops.some((l) => loopsIn(c).includes(l.name));
  const keptTied = all.filter((t) => t.state.spatial && speaksOf(whole, t));
  // Among summed dimensions, those whose loop begins or ends where a comparison says (mapper/match/conditions.ts).
  const summedTied = all.filter((t) => !t.state.spatial && t.dimension.loops.length === 1 && speaksOf(must, t));
  const extents = new Map(computation.axes.map((a) => [a.name, a.extent]));
  return {
    worked: new Tally([...keptTied, ...summedTied], extents, (ranges, keptRanges, single) => {
      const ofBlock = outlook(whole, keptRanges);
      const ofSteps = outlook(must, ranges);
      if (ofBlock === "never" || ofSteps === "never") return false;
      return single || (ofBlock === "always" && ofSteps === "always") ? true : undefined;
    }),
    plain: new Tally(keptTied, extents, (ranges, _, single) => {
      const found: Outlook = kept ? outlook(kept, ranges) : "always";
      return found !== "sometimes" ? true : single ? false : undefined;
    }),
    edges: new Map(
      [...carriedConditions(parts)].map(([operand, carried]) => {
        const own = all.filter((t) => speaksOf(carried, t) && dependsOn(mapping, operand, t.dimension));
        const isAcross: Judge = (ranges, _, single) => {
          const found = outlook(carried, ranges);
          return found !== "sometimes" ? false : single ? true : undefined;
        };
        return [operand, new Tally(own, extents, isAcross, true)];
      }),
    ),
  };
}

type RangeOf = (loop: string) => readonly [low: number, high: number];

/** Whether a property holds for all blocks of some ranges, for none, or is not known yet. @param single there is one block */
type Judge = (ranges: RangeOf, keptRanges: RangeOf, single: boolean) => boolean | undefined;

/** Ranges examined for one count before half of the undecided ones is counted: some ten milliseconds. */
const MOST_RANGES = 50_000;

/** Counts the blocks that have a property. */
export class Tally {
  private readonly tied: readonly Tied[];
  private readonly extents: ReadonlyMap<string, number>;
  private readonly judge: Judge;
  /** The smaller remainder block is treated as a whole one. */
  private readonly asWhole: boolean;
  private readonly known = new Map<
    string,
    readonly { readonly isLeft: readonly boolean[]; readonly blocks: number }[]
  >();

  constructor(tied: readonly Tied[], extents: ReadonlyMap<string, number>, judge: Judge, asWhole = false) {
    this.tied = tied;
    this.asWhole = asWhole;
    this.extents = extents;
    this.judge = judge;
  }

  speaksOf(state: DimensionState): boolean {
    return this.tied.some((t) => t.state === state);
  }

  /** The sum over the blocks of their steps' weights, under the schedule read last. */
  sum(weight: Weight): number {
    const key = this.tied.map(({ state }) => state.block).join();
    const kinds = this.known.get(key) ?? this.count();
    this.known.set(key, kinds);
    let sum = 0;
    for (const { isLeft, blocks } of kinds) {
      let product = blocks;
      for (const [i, { state }] of this.tied.entries()) {
        const left = isLeft[i] ?? false;
        product *= weight(state, left ? state.left : state.block, left);
      }
      sum += product;
    }
    return sum;
  }

  /** Combines whole blocks of some dimensions with the remainder block of others, in every way. */
  private count(): { readonly isLeft: readonly boolean[]; readonly blocks: number }[] {
    let combinations: (readonly Blocks[])[] = [[]];
    for (const { state } of this.tied) {
      const whole: Blocks[] = state.whole > 0 ? [{ isLeft: false, from: 0, to: state.whole }] : [];
      const left: Blocks[] = state.left > 0 ? [{ isLeft: true, from: state.whole, to: state.whole + 1 }] : [];
      combinations = combinations.flatMap((before) => [...whole, ...left].map((own) => [...before, own]));
    }
    return combinations.map((blocks) => ({ isLeft: blocks.map((b) => b.isLeft), blocks: this.countIn(blocks) }));
  }

  private countIn(blocks: readonly Blocks[]): number {
    let ranges = 0;
    const visit = (here: readonly Blocks[]): number => {
      let all = 1;
      for (const { from, to } of here) all *= to - from;
      const found = this.judge(this.rangesOf(here, true), this.rangesOf(here, false), all === 1);
      if (found !== undefined) return found ? all : 0;
      if (++ranges > MOST_RANGES) return all / 2;
      const longest = here.reduce((a, b) => (b.to - b.from > a.to - a.from ? b : a));
      const middle = (longest.from + longest.to) >> 1;
      const half = (from: number, to: number): number =>
        visit(here.map((b) => (b === longest ? { ...b, from, to } : b)));
      return half(longest.from, middle) + half(middle, longest.to);
    };
    return visit(blocks);
  }

  /** @param summed whether blocks of summed dimensions are distinguished */
  private rangesOf(blocks: readonly Blocks[], summed: boolean): RangeOf {
    return (loop) => {
      const i = this.tied.findIndex(({ dimension }) => hasName(dimension.loops, loop));
      const own = this.tied[i];
      const range = blocks[i];
      if (own === undefined || range === undefined || !(own.state.spatial || summed))
        return [0, (this.extents.get(loop) ?? 1) - 1];
      return valuesOf(own, this.asWhole ? { ...range, isLeft: false } : range, loop);
    };
  }
}

/** Values that a loop of a dimension takes in some blocks; for a single block the same as in lowering. */
function valuesOf({ dimension, state }: Tied, { isLeft, from, to }: Blocks, loop: string): readonly [number, number] {
  const grain = state.block * dimension.step;
  const low = from * grain;
  const elements = isLeft ? state.left * dimension.step : (to - from) * grain;
  if (to - from === 1) {
    const span = spanOf(dimension, loop, { low: number(low), elements, grain });
    const first = span.low.kind === "number" ? span.low.value : 0;
    return [first, first + span.span - 1];
  }
  const position = dimension.loops.findIndex((l) => l.name === loop);
  const weight = dimension.weights[position] ?? 1;
  if (position > 0) return [0, (dimension.loops[position]?.extent ?? 1) - 1];
  return [Math.floor(low / weight), Math.floor((low + elements - 1) / weight)];
}
