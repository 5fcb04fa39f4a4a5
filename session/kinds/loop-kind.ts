/**
 * @file Plain-loop kernels for computations that no instruction maps: what a search falls back on, and the steps of a network other than its
 * products.
 *
 *     loopsKernel(computation, isa).source
 */

import { type Candidate, candidateKey, type LoopCandidate } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { UsageError } from "../../abstraction/error.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { pick } from "../../abstraction/random.ts";
import { generateLoops } from "../../codegen/cpp/cpp.ts";
import { loopsRefused, lowerLoops } from "../../mapper/lower/loops.ts";
import { lowerModeProducts, modeProductsOf } from "../../mapper/lower/mode-products.ts";
import { loopSeconds } from "../../perfmodel/loops.ts";
import { modelTarget } from "../../perfmodel/target.ts";
import { compilerFeatures } from "../../targets/features.ts";
import { isGpu } from "../../targets/index.ts";
import type { SearchSpace } from "../../tuner/space.ts";
import { declaredAs } from "../package/declared.ts";
import { learntFactor, predictionOf } from "../tune/learner.ts";
import { MADE_BY } from "../version.ts";
import type { SessionKind } from "./session-space.ts";

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

/** A few candidates. */
export function listedSpaceOf<K extends Candidate>(all: readonly K[]): SearchSpace<K> {
  return {
    size: all.length,
    key: candidateKey,
    random: (random) => pick(random, all),
    mutate: (_, random) => pick(random, all),
    crossover: (a, b, random) => (random() < 0.5 ? a : b),
    all: () => all,
  };
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
      space: { ...listedSpaceOf(all), representatives: all },
      intrinsics: loops,
      model: learntFactor((c) => loopSeconds(computation, declaredAs(c.intrinsic), c.schedule.threads, target)),
      kernelOf: (c) => loopCandidateKernel(computation, c),
    };
  },
  kernelOf: loopCandidateKernel,
  predict: (computation, { intrinsic, schedule }, { machine, calibration }) =>
    predictionOf(loopSeconds(computation, declaredAs(intrinsic), schedule.threads, modelTarget(machine, calibration))),
};
