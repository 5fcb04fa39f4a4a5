/**
 * @file Estimates how long the expected results take to compute, so that a user is told beforehand.
 *
 *     secondsOfReference(conv3d, 2)      2.8: 5.5 G points, for three sets of inputs, on two processors
 *
 * The programs of reference-source.ts run at the rates below where their loops are products and sums. Conditions,
 * divisions and library functions take longer, so the estimate is a lower bound.
 */

import { type Computation, pointCount } from "../../abstraction/computation.ts";
import { partsOf } from "../../abstraction/epilogue.ts";
import type { Inputs } from "../../abstraction/interpret.ts";
import { isDrawnByProgram } from "./drawn-reference.ts";
import { boundRule } from "./error-bound.ts";

/**
 * Points a second of one processor: products of integers in 32-bit vectors; of floats as doubles, in the program that
 * draws, and where a bound is computed for each element. Of the last 0.24 G were measured beside other programs, of which
 * an idle machine is taken to compute twice as many (Zen 4, 2026-11-23).
 */
const INTEGER_POINTS = 4e9;
const DRAWN_FLOAT_POINTS = 3e9;
const FLOAT_POINTS = 0.5e9;

/** Sets of inputs: random and extreme ones, and for floats exact ones too. */
const INTEGER_SETS = 2;
const FLOAT_SETS = 3;

/**
 * The least time in seconds for a computation's expected results, without drawing and compilation; undefined for steps
 * in time and programs.
 * @param processors that compute them
 */
export function secondsOfReference(
  computation: Computation,
  processors: number,
  fixed: Inputs = {},
): number | undefined {
  if (computation.time || computation.program) return undefined;
  const { sum } = partsOf(computation);
  if (!boundRule(sum)) return (INTEGER_SETS * pointCount(sum)) / (INTEGER_POINTS * processors);
  if (isDrawnByProgram(computation, fixed)) return (FLOAT_SETS * pointCount(sum)) / (DRAWN_FLOAT_POINTS * processors);
  // The bound of each element is a sum as well.
  return (2 * FLOAT_SETS * pointCount(sum)) / (FLOAT_POINTS * processors);
}
