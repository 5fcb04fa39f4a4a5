/** @file Plain-loop kernels for computations that no instruction maps: the steps of a network other than its products. */

import type { Computation } from "../abstraction/computation.ts";
import { UsageError } from "../abstraction/error.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import type { RowChain } from "../abstraction/row-chain.ts";
import { generateLoops } from "../codegen/cpp-loops.ts";
import { loopsRefused, lowerLoops } from "../mapper/lower/loops.ts";
import { lowerModeProducts, modeProductsOf } from "../mapper/lower/mode-products.ts";
import { lowerRowChain } from "../mapper/lower/row-chain.ts";
import { compilerFeatures } from "../targets/features.ts";

/**
 * @param isa the machine's features, by their names in targets; the compiler may use all of them @throws UsageError for computations that have
 * no loops
 */
export function loopsKernel(computation: Computation, isa: readonly string[]): Kernel {
  const because = loopsRefused(computation);
  if (because !== undefined) throw new UsageError(`${computation.name} has no plain loops: ${because}`);
  const loops = modeProductsOf(computation) ? lowerModeProducts(computation) : lowerLoops(computation);
  return generateLoops(computation, loops, compilerFeatures(isa), { lines: ["plain loops"] });
}

/** The kernel of equations that share their rows. @param isa as above */
export function chainKernel(chain: RowChain, isa: readonly string[]): Kernel {
  const { computation, loops, ...several } = lowerRowChain(chain);
  return generateLoops(computation, loops, compilerFeatures(isa), { lines: ["plain loops, row by row"], several });
}
