/**
 * @file The position of a thread in the loops of a computation: the elements that its block, warp and lane take, and
 * their names.
 *
 *     q in 56: neighbours 2, lanes 4, warps 1, blocks 7        q of a neighbour = 2*(lane%4 + 4*q_block) + neighbour
 */

import { type Extents, pointsOf } from "../../abstraction/affine.ts";
import type { ThreadSchedule } from "../../abstraction/candidate.ts";
import { namesOf } from "../../abstraction/collections.ts";
import { summedIn } from "../../abstraction/computation.ts";
import { axis, compare, type Expr, number, over, plus, remainder, times } from "../../abstraction/expression.ts";
import { FreshNames, type LoopMode, loop, type Statement } from "../../abstraction/loop-nest.ts";
import { halvesOf } from "../schedule/chain-shape.ts";
import type { ThreadContext } from "../schedule/thread/context.ts";
import { type DealtLoop, dealtLoops, isKept, productOf } from "../schedule/thread/schedule.ts";

/** All combinations of so many steps of each loop. */
export const pointsOver = (loops: readonly DealtLoop[], of: (l: DealtLoop) => number): Extents[] => [
  ...pointsOf(namesOf(loops), Object.fromEntries(loops.map((l) => [l.name, of(l)]))),
];

export class ThreadPlaces {
  readonly names: FreshNames;
  readonly dealt: readonly DealtLoop[];
  readonly lane: string;
  /** Blocks that share each sum (split-K). */
  readonly split: number;
  protected readonly context: ThreadContext;

  constructor(context: ThreadContext, schedule: ThreadSchedule) {
    this.context = context;
    this.names = new FreshNames(context.mapping.computation);
    this.dealt = dealtLoops(context, schedule);
    this.split = productOf(this.dealt, (l) => l.split);
    this.lane = this.names.fresh("lane");
  }

  /** All combinations of a thread's neighbours along the kept or along the summed loops. */
  neighbours(kind: "spatial" | "reduce"): Extents[] {
    return pointsOver(
      this.dealt.filter((l) => l.kind === kind),
      (l) => l.each,
    );
  }

  get width(): number {
    return this.context.limits.lanes;
  }

  word({ name }: DealtLoop, what: "block" | "warp" | "step" | "part"): string {
    return this.names.fresh(`${name}_${what}`);
  }

  blocks(): readonly (readonly [string, number])[] {
    const kept = this.dealt.filter(isKept).map((l) => [this.word(l, "block"), l.blocks] as const);
    const parts = this.dealt.filter((l) => l.split > 1).map((l) => [this.word(l, "part"), l.split] as const);
    const all = [...kept, ...parts].filter(([, extent]) => extent > 1);
    return all.length > 0 ? all : [[this.names.fresh("only_block"), 1]];
  }

  lanes(body: readonly Statement[]): Statement {
    return loop(this.lane, this.width, body, "lanes");
  }

  /** The lane's index among the lanes along a loop. */
  laneOf(l: DealtLoop): Expr {
    if (l.lanes === 1) return number(0);
    const below = this.laneWeight(l);
    const quotient = below === 1 ? axis(this.lane) : over(axis(this.lane), below);
    return below * l.lanes === this.width ? quotient : remainder(quotient, l.lanes);
  }

  laneWeight(l: DealtLoop): number {
    return productOf(this.dealt.slice(this.dealt.indexOf(l) + 1), (other) => other.lanes);
  }

  warpOf(l: DealtLoop): Expr {
    return l.warps === 1 ? number(0) : axis(this.word(l, "warp"));
  }

  /** A thread's first element along a loop. */
  private firstOf(l: DealtLoop): Expr {
    const own = (extent: number, word: "block" | "step" | "part"): Expr =>
      extent === 1 ? number(0) : axis(this.word(l, word));
    const outer = isKept(l) ? own(l.blocks, "block") : plus(own(l.steps, "step"), times(l.steps, own(l.split, "part")));
    return times(l.each, plus(this.laneOf(l), times(l.lanes, plus(this.warpOf(l), times(l.warps, outer)))));
  }

  /** The counter of every loop at one of a thread's neighbours. */
  counters(point: Extents): ReadonlyMap<string, Expr> {
    return new Map(this.dealt.map((l) => [l.name, plus(this.firstOf(l), point[l.name] ?? 0)]));
  }

  beyond(kind: "spatial" | "reduce", counters: ReadonlyMap<string, Expr>): Expr[] {
    return this.dealt
      .filter((l) => l.kind === kind && l.beyond)
      .map((l) => compare("<", counters.get(l.name) ?? 0, l.extent));
  }

  /** The lane masks of a butterfly reduction along summed loops, farthest partner first. */
  flips(): number[] {
    return summedIn(this.dealt).flatMap((l) => halvesOf(l.lanes / 2).map((n) => n * this.laneWeight(l)));
  }
}

/** Loops around a body, outermost first. */
export function loopsAt(
  mode: LoopMode,
  axes: readonly (readonly [string, number])[],
  body: readonly Statement[],
): readonly Statement[] {
  return axes.reduceRight((inner, [name, extent]) => [loop(name, extent, inner, mode)], body);
}
