/**
 * @file Splits a loop so that a transform of determinant D fills every position instead of one in D.
 *
 *     k = 2c+q, t = q                            35 PEs x 5 steps, 45.7 % used
 *     q = 2*q_outer + q_phase
 *     k = c+q_outer, t = (q_phase, q_outer)      18 PEs x 5 steps, 88.9 %; the sixth step would be q = 5, which does not exist, and is cut
 *
 * The loop must be summed. The phase becomes the slowest or the fastest row of time, whichever gives fewer steps.
 */

import { extentsBy } from "../../abstraction/affine.ts";
import { namesOf } from "../../abstraction/collections.ts";
import { type Computation, defineComputation } from "../../abstraction/computation.ts";
import { and, axesIn, axis, compare, type Expr, plus, substitute, times } from "../../abstraction/expression.ts";
import { freshName } from "../../abstraction/loop-nest.ts";
import type { SourceLoop, SpaceTime } from "../../abstraction/recurrence.ts";
import type { ArrayPass } from "./derive.ts";
import { type Design, designOf } from "./design.ts";
import { type ArraySpace, arrayProblem, type LoopSplit, onlyInside, shapesOf } from "./problem.ts";
import { combination, determinant, nullSpace, primitive, type Vector } from "./vector.ts";

/** A transform of the loops with one of them split: the outer part in its place, the phase as last column. */
export interface PhaseSplit {
  readonly split: LoopSplit;
  readonly spaceTime: SpaceTime;
}

/**
 * Every split of a loop that makes a square transform unimodular; none when it is unimodular already, or not square.
 */
function splitsOf(loops: readonly SourceLoop[], { allocation, schedule }: SpaceTime): PhaseSplit[] {
  const rows = [...allocation, ...schedule];
  if (rows.length !== loops.length) return [];
  const factor = Math.abs(determinant(rows));
  if (factor < 2) return [];
  const folded = (row: Vector, at: number): number[] =>
    row.every((x, i) => i === at || x % factor === 0)
      ? row.map((x, i) => (i === at ? x : x / factor + 0))
      : row.map((x, i) => (i === at ? x * factor : x));
  const names = new Set(namesOf(loops));
  return loops.flatMap(({ name, extent }, at): PhaseSplit[] => {
    const [p = [], s = []] = [allocation, schedule].map((side) => side.map((row) => folded(row, at)));
    if (Math.abs(determinant([...p, ...s])) !== 1) return [];
    const split = {
      loop: name,
      outer: freshName(`${name}_outer`, names),
      phase: freshName(`${name}_phase`, names),
      factor,
      extent,
    };
    const widen = (row: Vector): number[] => [...row, 0];
    const phase = [...loops.map(() => 0), 1];
    const times = s.map(widen);
    return [
      [phase, ...times],
      [...times, phase],
    ].map((order) => ({
      split,
      spaceTime: { allocation: p.map(widen), schedule: order },
    }));
  });
}

/** A design whose loop is split, with the pass in the loops it then has. */
interface PolyphaseForm {
  readonly design: Design;
  readonly pass: ArrayPass;
}

/**
 * The polyphase form of a design whose transform leaves positions without a point. Of all splits, it has the fewest
 * steps, then PEs, then registers. Undefined if no split uses the PEs better.
 * @param pass the pass that the design belongs to
 */
export function polyphaseForm(pass: ArrayPass, design: Design): PolyphaseForm | undefined {
  const { computation, problem } = pass;
  if (problem.operands.some((o) => o.order === "fixed")) return undefined;
  const indexing = new Set(axesIn(computation.equation.target));
  const forms = splitsOf(problem.loops, design.spaceTime)
    .filter(({ split }) => !indexing.has(split.loop))
    .flatMap(({ split, spaceTime }): PolyphaseForm[] => {
      const own = splitPass(pass, split);
      const form = designOf(own.problem, spaceTime, `${design.name}.polyphase`);
      // A single chain through time ends at its last point. Sums formed in levels or across PEs would not.
      const sums = form.flows.filter((f) => f.role === "output");
      const single = sums.every(
        (f) => f.variables.length === 1 && f.variables[0]?.dependences.every((d) => d.steps > 0),
      );
      return single && form.utilisation > design.utilisation ? [{ design: form, pass: own }] : [];
    });
  return forms.toSorted(
    (a, b) =>
      a.design.steps - b.design.steps ||
      a.design.pes - b.design.pes ||
      a.design.registers.coalesced - b.design.registers.coalesced,
  )[0];
}

/** One pass after a loop has been split. */
export function splitPass({ computation: plain, problem }: ArrayPass, split: LoopSplit): ArrayPass {
  const computation = splitComputation(plain, problem.loops, split);
  const space = onlyInside(splitLoops(problem.loops, split));
  const whole = arrayProblem(computation, space);
  const operands = whole.operands.map((o) => ({ ...o, reuse: withinPhases(o.reuse, split.factor) }));
  return { computation, space, problem: { ...whole, operands, split } };
}

/**
 * Restricts reuse to points of the same phase, if no two points of the box are far enough apart to cross all phases.
 */
function withinPhases(reuse: readonly Vector[], factor: number): readonly Vector[] {
  const phases = reuse.map((d) => d.at(-1) ?? 0);
  if (phases.every((x) => Math.abs(x) < factor)) return reuse;
  return nullSpace([phases], reuse.length).map((parts) => primitive(combination(reuse, parts)));
}

/** The same sum over the split loop. A phase beyond the loop's end adds nothing. */
function splitComputation(pass: Computation, loops: readonly SourceLoop[], split: LoopSplit): Computation {
  const { loop, outer, phase, factor, extent } = split;
  const index = plus(times(factor, axis(outer)), axis(phase));
  const replaced = new Map([[loop, index]]);
  const { equation, tensors } = pass;
  const inside = extent % factor === 0 ? undefined : compare("<", index, extent);
  const before = equation.where && substitute(equation.where, replaced, "index");
  const where: Expr | undefined = before && inside ? and(before, inside) : (before ?? inside);
  const { where: _, ...plain } = equation;
  return defineComputation({
    name: pass.name,
    equation: {
      ...plain,
      value: substitute(equation.value, replaced, "value"),
      ...(where === undefined ? {} : { where }),
    },
    extents: extentsBy(splitLoops(loops, split)),
    tensors: shapesOf(tensors),
  });
}

function splitLoops(loops: readonly SourceLoop[], { loop, outer, phase, factor, extent }: LoopSplit): SourceLoop[] {
  return [
    ...loops.map((l) => (l.name === loop ? { name: outer, extent: Math.ceil(extent / factor) } : l)),
    { name: phase, extent: factor },
  ];
}

/** The loops of an array with one of them split. */
export function splitSpace(space: ArraySpace, split: LoopSplit): ArraySpace {
  const { loop, outer, phase, factor } = split;
  return {
    ...space,
    inside: splitLoops(space.inside, split),
    tiled: [...space.tiled, { name: loop, size: factor, outer, inner: phase }],
  };
}
