/**
 * @file A counterexample for every match the access matrices refuse: one output element the mapped program would get wrong.
 *
 *     n,k -> m on a matrix product:  w depends on k, b is not indexed by m
 *       out[0,1,0,0] would be given w[0,0,0,0] where the equation reads w[1,0,0,0]
 *
 * The mapped program keeps, for each operand, one element per index of the instruction. Where a tensor depends on a loop
 * the operand does not see, the element of the loop's first step stands for all; where the operand has an index the tensor lacks,
 * only its first step is filled.
 */

import { evaluateIndex, pointsOf } from "../abstraction/affine.ts";
import { bitAt } from "../abstraction/binary-matrix.ts";
import { extentsOf, tensorOf } from "../abstraction/computation.ts";
import { type Access, accessesIn, type Expr, number, substitute } from "../abstraction/expression.ts";
import type { Matching, Witness } from "../abstraction/mapping.ts";
import type { Problem } from "./problem.ts";

/** Points looked at before a loop is taken to have no effect. */
const SEARCH_LIMIT = 20_000;

/** What an operand is given at a point once `loop` feeds an axis it should not: another point's element, or padding. */
export function misread(
  problem: Problem,
  matching: Matching,
  operand: string,
  loop: string,
): "first step" | "padding" | undefined {
  const axis = Object.keys(matching).find((a) => matching[a]?.includes(loop));
  if (axis === undefined || operand === problem.x.rows.at(-1)) return undefined;
  const depends = bitAt(problem.x, operand, loop) === 1;
  const indexed = bitAt(problem.z, operand, axis) === 1;
  if (depends === indexed) return undefined;
  return depends ? "first step" : "padding";
}

/** A point where an operand reads inside its tensors and would be given something else; undefined when there is none. */
export function findWitness(problem: Problem, matching: Matching, loop: string): Witness | undefined {
  const { computation, binding } = problem;
  const extents = extentsOf(computation);
  const inputs = problem.x.rows.slice(0, -1);
  const wrong = inputs.filter((operand) => misread(problem, matching, operand, loop) !== undefined);
  const { where, target } = computation.equation;
  // The loop itself runs fastest: a witness has it beyond its first step and all else small.
  const axes = [...problem.loops.map((l) => l.name).filter((l) => l !== loop), loop];
  let looked = 0;
  for (const point of pointsOf(axes, extents)) {
    if (++looked > SEARCH_LIMIT) return undefined;
    if (point[loop] === 0) continue;
    if (where !== undefined && evaluateIndex(where, point) === 0) continue;
    if (!inputs.every((operand) => readsInside(problem, binding[operand], point))) continue;
    for (const operand of wrong) {
      const bound = binding[operand];
      if (bound === undefined) continue;
      const expected = printRead(bound, point);
      const actual =
        misread(problem, matching, operand, loop) === "padding"
          ? "nothing: that place is never filled"
          : printRead(substitute(bound, new Map([[loop, number(0)]])), point);
      if (expected === actual) continue;
      return {
        index: target.index.map((e) => evaluateIndex(e, point)),
        point: { ...point },
        operand,
        expected,
        actual,
      };
    }
  }
  return undefined;
}

function readsInside(problem: Problem, bound: Expr | undefined, point: Readonly<Record<string, number>>): boolean {
  if (bound === undefined) return false;
  return accessesIn(bound).every((a) => {
    const { dims } = tensorOf(problem.computation, a.tensor);
    return a.index.every((e, d) => {
      const at = evaluateIndex(e, point);
      return at >= 0 && at < (dims[d]?.extent ?? 0);
    });
  });
}

function printRead(bound: Expr, point: Readonly<Record<string, number>>): string {
  const element = (a: Access): string => `${a.tensor}[${a.index.map((e) => evaluateIndex(e, point)).join(",")}]`;
  return accessesIn(bound).map(element).join(", ");
}
