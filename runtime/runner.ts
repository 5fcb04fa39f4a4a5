/** @file What the runners of CPUs and of GPUs have in common. */

import { type Computation, inputsOf, memoryElements, outputOf } from "../abstraction/computation.ts";
import { internal } from "../abstraction/error.ts";
import type { Kernel, KernelArgument } from "../abstraction/kernel.ts";

/** A runner that can be used. */
export interface Ready<R> {
  readonly status: "ready";
  readonly runner: R;
}

/** What every kernel of a computation takes: its output, then its inputs. */
export function argumentsOf(
  computation: Computation,
): readonly Pick<KernelArgument, "tensor" | "dtype" | "elements">[] {
  return [outputOf(computation), ...inputsOf(computation)].map((t) => ({
    tensor: t.name,
    dtype: t.dtype,
    elements: memoryElements(t),
  }));
}

/** @throws Error when a kernel takes other tensors than the computation has */
export function checkArguments(kernel: Pick<Kernel, "arguments">, computation: Computation): void {
  const wanted = listOf(argumentsOf(computation));
  const given = listOf(kernel.arguments);
  if (given !== wanted) internal(`the kernel takes ${given} but ${computation.name} has ${wanted}`);
}

const listOf = (all: ReturnType<typeof argumentsOf>): string =>
  all.map((a) => `${a.tensor}: ${a.dtype}[${a.elements}]`).join(", ");
