/**
 * @file The plane of a stencil in time as lanes use it: its axes, the reach of a step along each, and what lies beyond.
 *
 *     u[t,i,j] = a*u[t-1,i,j] + b*(u[t-1,i-1,j] + u[t-1,i+1,j])      i: reach 1, zero      j: reach 0
 */

import type { Computation } from "../../abstraction/computation.ts";
import type { Border } from "../../abstraction/expression.ts";
import type { Time } from "../../abstraction/time.ts";

export interface PlaneAxis {
  readonly name: string;
  readonly extent: number;
  /** Positions that a step reads on either side. */
  readonly reach: number;
  readonly border: Border | "zero";
}

export interface Steps {
  readonly computation: Computation;
  readonly time: Time;
  /** Axes of the plane, outermost first. Lanes run along the last. */
  readonly axes: readonly PlaneAxis[];
}
