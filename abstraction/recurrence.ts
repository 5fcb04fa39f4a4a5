/**
 * @file Systems of uniform recurrence equations: every variable at a point reads variables at a constant distance, or a tensor.
 *
 *     loops c 16, q 5
 *     X[c,q] = select(q == 0 or c == 15, x[c+q], X[c+1,q-1])
 *     W[c,q] = select(c == 0, w[q], W[c-1,q])
 *     Z[c,q] = select(q == 0, 0, Z[c,q-1]) + X[c,q] * W[c,q]
 *     out[c] = Z[c,q] where q == 4
 */

import type { Tensor } from "./computation.ts";
import type { DType } from "./dtype.ts";
import type { Equation } from "./equation.ts";

export interface SourceLoop {
  readonly name: string;
  readonly extent: number;
}

/** A system of uniform recurrence equations over a box of points. */
export interface Recurrence {
  readonly name: string;
  /** Source loops, outermost first: the coordinates of a point. */
  readonly loops: readonly SourceLoop[];
  /**
   * The value of each variable at a point, in order of evaluation. The target is indexed by all loops in order. A variable read at distance d is `V[z
   * - d]`; every other access reads a tensor.
   */
  readonly definitions: readonly Equation[];
  /** The results, and the points where they leave the array: `out[c] = Z[c,q] where q == 4`. */
  readonly results: readonly Equation[];
  /** Types of the variables. */
  readonly variables: Readonly<Record<string, DType>>;
  /** Input and output tensors. */
  readonly tensors: Readonly<Record<string, Tensor>>;
}

/**
 * Where and when each point runs: on PE `allocation * z` at step `schedule * z`.
 *
 *     SBM of a 1-D convolution, loops (c, q):   allocation [[1, 1]]   schedule [[0, 1]]
 */
export interface SpaceTime {
  /** P: one row for each dimension of the array, a column for each source loop. */
  readonly allocation: readonly (readonly number[])[];
  /** s: rows of time, the first slowest (compared lexicographically); most designs have one. */
  readonly schedule: readonly (readonly number[])[];
}
