/**
 * @file Rebuilds computations from parts of others: the declaration of a tensor when a step is fused or gets another layout.
 *
 *     computationWith(conv, { epilogue, tensors: { bias } })      the same sums, and what is made of them
 */

import {
  type Computation,
  type ComputationSpec,
  defineComputation,
  extentsOf,
  type Tensor,
  type TensorSpec,
} from "../abstraction/computation.ts";
import type { Equation } from "../abstraction/equation.ts";
import { printExpr } from "../abstraction/expression.ts";

/** The specification of an existing tensor, for `defineComputation`. */
export function specOf({ dtype, dims, storage, constant }: Tensor, layout = true): TensorSpec {
  return {
    dtype,
    dims: dims.map((d) => d.name),
    shape: dims.map((d) => d.extent),
    ...(constant && { constant }),
    ...(layout && dims.length > 0 && { storage: printExpr(storage, "formula") }),
  };
}

/** A computation over the same axes. @throws UsageError when the parts do not fit together */
export function computationWith(
  given: Computation,
  {
    epilogue,
    tensors,
  }: { readonly epilogue: Equation | undefined; readonly tensors: Readonly<Record<string, TensorSpec>> },
): Computation {
  const spec: ComputationSpec = {
    name: given.name,
    equation: given.equation,
    ...(epilogue && { epilogue }),
    extents: extentsOf(given),
    tensors,
  };
  return defineComputation(spec);
}
