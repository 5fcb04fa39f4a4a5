/**
 * @file Plain-loop kernels for computations that no instruction maps: what a search falls back on, and the steps of a network other than its
 * products.
 *
 *     loopSpace(computation, { rows: LOOPS, threads: 1 })       a candidate for each set of vectors that the compiler may use; or why there is none
 */

import { candidateKey, type LoopCandidate } from "../abstraction/candidate.ts";
import type { Computation } from "../abstraction/computation.ts";
import { UsageError } from "../abstraction/error.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import { pick } from "../abstraction/random.ts";
import type { RowChain } from "../abstraction/row-chain.ts";
import type { Prediction } from "../abstraction/trial.ts";
import { generateLoops } from "../codegen/cpp-loops.ts";
import { loopsRefused, lowerLoops } from "../mapper/lower/loops.ts";
import { lowerModeProducts, modeProductsOf } from "../mapper/lower/mode-products.ts";
import { lowerRowChain } from "../mapper/lower/row-chain.ts";
import { loopSeconds } from "../perfmodel/loops.ts";
import type { ModelTarget } from "../perfmodel/target.ts";
import { compilerFeatures } from "../targets/features.ts";
import type { SearchSpace } from "../tuner/space.ts";
import { declaredAs } from "./declared.ts";
import type { Reason } from "./session-space.ts";
import { VERSION } from "./version.ts";

/**
 * @param isa the machine's features, by their names in targets; the compiler may use all of them @throws UsageError for computations that have
 * no loops
 */
export function loopsKernel(
  computation: Computation,
  isa: readonly string[],
  lines: readonly string[] = ["plain loops"],
): Kernel {
  const because = loopsRefused(computation);
  if (because !== undefined) throw new UsageError(`${computation.name} has no plain loops: ${because}`);
  const loops = modeProductsOf(computation) ? lowerModeProducts(computation) : lowerLoops(computation);
  return generateLoops(computation, loops, compilerFeatures(isa), { lines });
}

/** The kernel of a candidate. @throws UsageError for computations that have no loops */
export function loopCandidateKernel(computation: Computation, { intrinsic, schedule }: LoopCandidate): Kernel {
  const { features } = declaredAs(intrinsic);
  return loopsKernel(computation, features, [
    `schedule  plain loops, threads ${schedule.threads}`,
    `made by   automap ${VERSION}`,
  ]);
}

/** The candidates of plain loops, one for each row; or why there are none. */
export function loopSpace(
  computation: Computation,
  { rows, threads }: { readonly rows: readonly Intrinsic[]; readonly threads: number },
): SearchSpace<LoopCandidate> | Reason {
  const because = loopsRefused(computation);
  if (because !== undefined) return { rule: "loops", because: `no plain loops: ${because}` };
  const all = rows.map(({ name }): LoopCandidate => ({ kind: "loops", intrinsic: name, schedule: { threads } }));
  return {
    size: all.length,
    representatives: all,
    key: candidateKey,
    random: (random) => pick(random, all),
    mutate: (_, random) => pick(random, all),
    crossover: (a, b, random) => (random() < 0.5 ? a : b),
    all: () => all,
  };
}

/** The model's prediction for plain loops. */
export function expectedOfLoops(computation: Computation, candidate: LoopCandidate, target: ModelTarget): Prediction {
  const { intrinsic, schedule } = candidate;
  const seconds = loopSeconds(computation, declaredAs(intrinsic), schedule.threads, target);
  return { seconds, uncorrectedSeconds: seconds, levels: [] };
}

/** The kernel of equations that share their rows. @param isa as above */
export function chainKernel(chain: RowChain, isa: readonly string[]): Kernel {
  const { computation, loops, ...several } = lowerRowChain(chain);
  return generateLoops(computation, loops, compilerFeatures(isa), { lines: ["plain loops, row by row"], several });
}
