/**
 * @file Plain loops of a recurrence: elements are computed one after another, in the order of the axes.
 *
 *     y[b,i] = 0.75*y[b,i-1] + x[b,i]      ->    for parallel rest in 0..8                        the rows of b do not depend on one another
 *                                                  for i in 0..1000
 *                                                    y[rest,i] = 0.75*y[rest,i-1] + x[rest,i]
 *
 * Loops that no dependence crosses are dealt to threads; the others stay in order.
 */

import { volumeOf } from "../../abstraction/collections.ts";
import { type Computation, identityIn, summedIn, targetOf } from "../../abstraction/computation.ts";
import { selected } from "../../abstraction/condition.ts";
import { dependencesOf } from "../../abstraction/dependence.ts";
import { type Equation, substituteAxes } from "../../abstraction/equation.ts";
import { access, axesIn, axis, type Expr, number } from "../../abstraction/expression.ts";
import { splitRowMajor } from "../../abstraction/layout.ts";
import { type LoopNest, loop, loops, type Scratch, type Statement, scalar } from "../../abstraction/loop-nest.ts";
import { assignment } from "./assign.ts";
import { storedBefore } from "./beside.ts";
import { FreshNames } from "./names.ts";
import { combine } from "./partial-sums.ts";

/** The nest of a result that refers to itself. It may hold no epilogue. */
export function lowerInOrder(computation: Computation): LoopNest {
  const { equation, axes } = computation;
  const names = new FreshNames(computation);
  const { dtype } = targetOf(computation);
  const identity = number(identityIn(computation));
  const value = selected(equation.where ?? true, equation.value, identity);
  const summed = summedIn(axes);
  const sums: Scratch = { name: names.fresh("sums"), dtype, elements: 1, scope: "local" };
  const isSum = summed.length > 0 || equation.op !== "=";
  const sum = access(sums.name, [number(0)]);

  // 1. The loops that no dependence crosses are digits of one counter.
  const kept = equation.target.index.flatMap((index) => axes.filter((a) => axesIn(index).includes(a.name)));
  const dependences = dependencesOf(equation).map((d) => d.distance);
  // An index of the target is one axis and a constant, so its dimensions are those of dependences.
  const isFree = (d: number): boolean => dependences.every((distance) => distance[d] === 0);
  const free = kept.filter((_, d) => isFree(d));
  const inOrder = kept.filter((_, d) => !isFree(d));
  const rest = names.fresh("rest");
  const places = new Map(splitRowMajor(axis(rest), free).map(([a, digit]) => [a.name, digit]));

  // 2. One element.
  const stored = (what: Expr): Equation => assignment(equation.target, what);
  const placed = (one: Equation): Statement => scalar(substituteAxes(one, places));
  const element: readonly Statement[] = isSum
    ? [
        placed(assignment(sum, identity)),
        ...loops(summed, [placed(combine(equation.op, sum, value))]),
        placed(stored(sum)),
      ]
    : [placed(stored(value))];
  const all = loop(rest, volumeOf(free), loops(inOrder, element), "parallel");
  return {
    scratch: isSum ? [sums] : [],
    registers: [],
    prepare: [],
    body: [...storedBefore(computation, names), all],
  };
}
