/**
 * @file Plain-loop kernels for computations that no instruction maps: what a search falls back on, and the steps of a network other than its
 * products.
 *
 *     loopsKernel(computation, isa).source
 */

import { candidateKey, type LoopCandidate } from "../abstraction/candidate.ts";
import type { Computation } from "../abstraction/computation.ts";
import { UsageError } from "../abstraction/error.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import { pick } from "../abstraction/random.ts";
import type { RowChain } from "../abstraction/row-chain.ts";
import { generateLoops } from "../codegen/cpp-loops.ts";
import { loopsRefused, lowerLoops } from "../mapper/lower/loops.ts";
import { lowerModeProducts, modeProductsOf } from "../mapper/lower/mode-products.ts";
import { lowerRowChain } from "../mapper/lower/row-chain.ts";
import { loopSeconds } from "../perfmodel/loops.ts";
import { modelTarget } from "../perfmodel/target.ts";
import { compilerFeatures } from "../targets/features.ts";
import { isGpu } from "../targets/index.ts";
import { declaredAs } from "./declared.ts";
import { learntFactor, predictionOf } from "./learner.ts";
import type { SessionKind } from "./session-space.ts";
import { MADE_BY } from "./version.ts";

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
function loopCandidateKernel(computation: Computation, { intrinsic, schedule }: LoopCandidate): Kernel {
  const { features } = declaredAs(intrinsic);
  return loopsKernel(computation, features, [`schedule  plain loops, threads ${schedule.threads}`, MADE_BY]);
}

/** The equation in plain loops: a candidate for each set of vectors that the compiler may use. */
export const LOOP_KIND: SessionKind<LoopCandidate> = {
  kind: "loops",
  family: "loops",
  isFor: (_, machine) => !isGpu(machine),
  *spaceOf({ computation, loops, threads, machine, calibration }) {
    const because = loopsRefused(computation);
    if (because !== undefined) return [{ rule: "loops", because: `no plain loops: ${because}` }];
    const target = modelTarget(machine, calibration);
    const all = loops.map(({ name }): LoopCandidate => ({ kind: "loops", intrinsic: name, schedule: { threads } }));
    return {
      kind: "loops",
      space: {
        size: all.length,
        representatives: all,
        key: candidateKey,
        random: (random) => pick(random, all),
        mutate: (_, random) => pick(random, all),
        crossover: (a, b, random) => (random() < 0.5 ? a : b),
        all: () => all,
      },
      intrinsics: loops,
      model: learntFactor((c) => loopSeconds(computation, declaredAs(c.intrinsic), c.schedule.threads, target)),
      kernelOf: (c) => loopCandidateKernel(computation, c),
    };
  },
  kernelOf: loopCandidateKernel,
  predict: (computation, { intrinsic, schedule }, { machine, calibration }) =>
    predictionOf(loopSeconds(computation, declaredAs(intrinsic), schedule.threads, modelTarget(machine, calibration))),
};

/** The kernel of equations that share their rows. @param isa as above */
export function chainKernel(chain: RowChain, isa: readonly string[]): Kernel {
  const lines = ["plain loops, row by row"];
  return generateLoops(chain.computation, lowerRowChain(chain), compilerFeatures(isa), { lines });
}
