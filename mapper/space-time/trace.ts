/**
 * @file Traces a design step by step: which PE computes which point when, and which elements of the operands it holds.
 *
 *     SBM   step 1, PE 3:  x[3]  w[1]  z[2]
 */

import { evaluateIndex, extentsBy, pointsOf } from "../../abstraction/affine.ts";
import { namesOf } from "../../abstraction/collections.ts";
import { type Access, axesIn } from "../../abstraction/expression.ts";
import type { Design } from "./design.ts";
import type { ArrayProblem } from "./problem.ts";
import { extentsOfLoops } from "./problem.ts";
import { dot, leastOfRow } from "./vector.ts";

export interface Trace {
  /** Extents of the array. */
  readonly shape: readonly number[];
  readonly steps: number;
  readonly operands: readonly string[];
  /** The element of each operand that a PE holds at a step, or undefined if it is idle. */
  readonly at: (pe: readonly number[], step: number) => readonly string[] | undefined;
}

/** Traces every point of the box. @param accesses those of the operands, in order */
export function trace(problem: ArrayProblem, design: Design, accesses: readonly Access[]): Trace {
  const extents = extentsOfLoops(problem);
  const names = namesOf(problem.loops);
  const { allocation } = design.spaceTime;
  const least = allocation.map((row) => leastOfRow(row, extents));
  const start = leastOfRow(design.schedule, extents);
  // Prints only indices that vary: the second one of w[0,s] with a single row.
  const moving = accesses.map((a) => a.index.filter((e) => axesIn(e).length > 0));
  const cells = new Map<string, string[]>();
  for (const point of pointsOf(names, extentsBy(problem.loops))) {
    const z = names.map((name) => point[name] ?? 0);
    const pe = allocation.map((row, i) => dot(row, z) - (least[i] ?? 0));
    const step = dot(design.schedule, z) - start;
    cells.set(
      `${pe.join()};${step}`,
      moving.map((index) => index.map((e) => evaluateIndex(e, point)).join() || "0"),
    );
  }
  return {
    shape: design.shape,
    steps: design.steps,
    operands: namesOf(design.flows),
    at: (pe, step) => cells.get(`${pe.join()};${step}`),
  };
}
