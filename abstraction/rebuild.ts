/**
 * @file Rebuilds computations from parts of others: other equations, or the declaration of a tensor when a step is fused or gets another layout.
 *
 *     rebuilt(conv, { epilogue, tensors: { bias } })      the same sums, and what is made of them
 */

import { type Extents, shapeOf } from "./affine.ts";
import { namesOf } from "./collections.ts";
import { type Computation, defineComputation, extentsOf, type Tensor, type TensorSpec } from "./computation.ts";
import { type Equation, printExpr, tensorsOf } from "./expression.ts";

/** The specification of an existing tensor, for `defineComputation`. */
export function specOf({ dtype, dims, storage, constant }: Tensor, layout = true): TensorSpec {
  return {
    dtype,
    dims: namesOf(dims),
    shape: shapeOf({ dims }),
    ...(constant && { constant }),
    ...(layout && dims.length > 0 && { storage: printExpr(storage, "formula") }),
  };
}

/** What changes of a computation; everything else stays. */
interface Rebuilding {
  readonly equation?: Equation;
  readonly epilogue?: Equation | undefined;
  readonly extents?: Extents;
  /** Tensors that are new, or described anew. */
  readonly tensors?: Readonly<Record<string, TensorSpec>>;
}

/** @throws UsageError when the parts do not fit together */
export function rebuilt(given: Computation, change: Rebuilding): Computation {
  const { equation, epilogue, extents, tensors } = {
    equation: given.equation,
    epilogue: given.epilogue?.equation,
    extents: extentsOf(given),
    ...change,
  };
  const read = [equation, ...(epilogue ? [epilogue] : [])].flatMap(tensorsOf);
  const held = [...Object.values(given.tensors), ...(given.epilogue ? [given.epilogue.sum] : [])];
  // Sums before an epilogue are not stored.
  const kept = held.flatMap((tensor) =>
    read.includes(tensor.name)
      ? [[tensor.name, specOf(tensor, !epilogue || tensor.name !== equation.target.tensor)] as const]
      : [],
  );
  return defineComputation({
    name: given.name,
    equation,
    ...(epilogue && { epilogue }),
    extents,
    tensors: { ...Object.fromEntries(kept), ...tensors },
  });
}
