/** @file What comparisons with peers need: weights known ahead of time, and the test data for Winograd. */

import { type Computation, tensorOf } from "../../abstraction/computation.ts";
import type { Reference } from "../../runtime/reference/verify.ts";

/** Makes one more tensor constant: the matrix of a product, like a layer's weights. */
export function withConstant(computation: Computation, name: string): Computation {
  const tensor = { ...tensorOf(computation, name), constant: true };
  return { ...computation, tensors: { ...computation.tensors, [name]: tensor } };
}

/**
 * Winograd's transforms mix neighbours: sums of small integers are no longer exact, and a small element beside a large
 * one has the large one's error. Only the set of values of similar size is left to compare, within the same bound.
 */
export function randomSetOnly(reference: Reference): Reference {
  return { ...reference, sets: reference.sets.filter(({ name }) => name === "random") };
}
