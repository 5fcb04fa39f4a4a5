/** @file What the runners of CPUs and of GPUs have in common. */

import { type Computation, inputsOf, memoryElements, outputOf } from "../abstraction/computation.ts";
import { internal } from "../abstraction/error.ts";
import type { Kernel } from "../abstraction/kernel.ts";

/** A runner that can be used. */
export interface Ready<R> {
  readonly status: "ready";
  readonly runner: R;
}

/** @throws Error when a kernel takes other tensors than the computation has */
export function checkArguments(kernel: Pick<Kernel, "arguments">, computation: Computation): void {
  const tensors = [outputOf(computation), ...inputsOf(computation)];
  const wanted = tensors.map((t) => `${t.name}: ${t.dtype}[${memoryElements(t)}]`).join(", ");
  const given = kernel.arguments.map((a) => `${a.tensor}: ${a.dtype}[${a.elements}]`).join(", ");
  if (given !== wanted) internal(`the kernel takes ${given} but ${computation.name} has ${wanted}`);
}
