/** @file Kernels of programs whose equations share their rows, on a processor's cores. */

import type { Kernel } from "../abstraction/kernel.ts";
import type { RowChain } from "../abstraction/row-chain.ts";
import { generateLoops } from "../codegen/cpp-loops.ts";
import { lowerRowChain } from "../mapper/lower/row-chain.ts";
import { compilerFeatures } from "../targets/features.ts";

/** @param isa the machine's features, by their names in targets; the compiler may use all of them */
export function chainKernel(chain: RowChain, isa: readonly string[]): Kernel {
  const lines = ["plain loops, row by row"];
  return generateLoops(chain.computation, lowerRowChain(chain), compilerFeatures(isa), { lines });
}
