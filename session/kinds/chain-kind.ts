/**
 * @file Programs whose equations share their rows, on a CPU: the kernel that a network uses without a search, and the candidates of a search.
 *
 *     chainKernel(chain, isa).source      a softmax row by row, in the columns that usually are computed together
 */

import type { ChainCandidate } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { UsageError } from "../../abstraction/error.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { type RowChain, rowChainOf } from "../../abstraction/row-chain.ts";
import { generateLoops } from "../../codegen/cpp/cpp.ts";
import { lowerRowChain } from "../../mapper/lower/row-chain.ts";
import { CHAIN } from "../../mapper/schedule/chain-decisions.ts";
import { allSchedules, problemIn } from "../../mapper/schedule/schedules.ts";
import { rowSeconds } from "../../perfmodel/row-chains.ts";
import { modelTarget } from "../../perfmodel/target.ts";
import { scheduleText } from "../../report/describe-candidate.ts";
import { unboundedIn } from "../../runtime/reference/reference-of-parts.ts";
import { compilerFeatures } from "../../targets/features.ts";
import { isGpu } from "../../targets/index.ts";
import { declaredAs } from "../package/declared.ts";
import { learntFactor, predictionOf } from "../tune/learner.ts";
import { MADE_BY } from "../version.ts";
import { listedSpaceOf } from "./loop-kind.ts";
import type { SessionKind } from "./session-space.ts";

/**
 * @param isa the machine's features, by their names in targets; the compiler may use all of them
 * @param columns that are computed together; the usual number when left out
 */
export function chainKernel(
  chain: RowChain,
  isa: readonly string[],
  lines: readonly string[] = [],
  columns?: number,
): Kernel {
  return generateLoops(chain.computation, lowerRowChain(chain, columns), compilerFeatures(isa), {
    lines: ["plain loops, row by row", ...lines],
  });
}

/** @throws UsageError for a program that is none of rows, or a schedule that is none of its */
function candidateKernel(computation: Computation, candidate: ChainCandidate): Kernel {
  const { intrinsic, schedule } = candidate;
  const chain = rowChainOf(computation);
  const because = "because" in chain ? chain.because : problemIn(CHAIN, { chain, threads: schedule.threads }, schedule);
  if ("because" in chain || because !== undefined) throw new UsageError(`${computation.name} has no rows: ${because}`);
  const lines = [`schedule  ${scheduleText(candidate)}`, MADE_BY];
  return chainKernel(chain, declaredAs(intrinsic).features, lines, schedule.columns);
}

/** Row by row: a candidate for each set of vectors that the compiler may use, and each number of columns. */
export const CHAIN_KIND: SessionKind<ChainCandidate> = {
  kind: "chain",
  family: "loops",
  ofPrograms: true,
  isFor: (_, machine) => !isGpu(machine),
  *spaceOf({ computation, loops, threads, machine, calibration }) {
    const chain = rowChainOf(computation);
    const because = "because" in chain ? chain.because : unboundedIn(computation);
    if ("because" in chain || because !== undefined) return [{ rule: "rows", because: `no rows: ${because}` }];
    const target = modelTarget(machine, calibration);
    const schedules = [...allSchedules(CHAIN, { chain, threads })];
    const all = schedules.flatMap((schedule) =>
      loops.toReversed().map(({ name }): ChainCandidate => ({ kind: "chain", intrinsic: name, schedule })),
    );
    return {
      kind: "chain",
      // What a network takes without a search is always measured.
      space: { ...listedSpaceOf(all), representatives: all.slice(0, 1) },
      intrinsics: loops,
      model: learntFactor((c) => rowSeconds(chain, declaredAs(c.intrinsic), c.schedule, target)),
      kernelOf: (c) => candidateKernel(computation, c),
    };
  },
  kernelOf: candidateKernel,
  predict: (computation, { intrinsic, schedule }, { machine, calibration }) => {
    const chain = rowChainOf(computation);
    const target = modelTarget(machine, calibration);
    return "because" in chain ? undefined : predictionOf(rowSeconds(chain, declaredAs(intrinsic), schedule, target));
  },
};
