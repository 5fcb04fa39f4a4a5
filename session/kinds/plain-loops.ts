/**
 * @file Plain loops in C++, on a processor's cores: what a search falls back on where no instruction maps, and the steps of a network other than its
 * products. Programs whose equations share their rows, such as a softmax, are computed row by row.
 *
 *     LOOP_KIND.kernelOf(computation, { kind: "loops", intrinsic: "loops.avx2", schedule: { threads: 1 } }, machine, {}).source
 *     CHAIN_KIND.kernelOf(softmax, { kind: "chain", intrinsic: "loops.avx2", schedule: { columns: 64, threads: 1 } }, machine, {}).source
 *
 * Candidates are one for each set of vectors that the compiler may use, and each schedule. A network takes the usual schedule without a search, on all
 * vectors of the machine.
 */

import { type Candidate, type ChainCandidate, candidateKey, type LoopCandidate } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { UsageError } from "../../abstraction/error.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { pick } from "../../abstraction/random.ts";
import { rowChainOf } from "../../abstraction/row-chain.ts";
import { generateLoops } from "../../codegen/cpp/cpp.ts";
import { loopsRefused, lowerLoops, type PlainLoops } from "../../mapper/lower/loops.ts";
import { lowerRowChain } from "../../mapper/lower/row-chain.ts";
import { CHAIN, type ChainContext } from "../../mapper/schedule/chain-decisions.ts";
import { threads } from "../../mapper/schedule/lane-decisions.ts";
import { allSchedules, problemIn, type ScheduleKind } from "../../mapper/schedule/schedules.ts";
import { loopSeconds } from "../../perfmodel/loops.ts";
import { rowSeconds } from "../../perfmodel/row-chains.ts";
import { type ModelTarget, modelTarget } from "../../perfmodel/target.ts";
import { scheduleText } from "../../report/describe-candidate.ts";
import { unboundedIn } from "../../runtime/reference/reference-of-parts.ts";
import { compilerFeatures } from "../../targets/features.ts";
import { isGpu } from "../../targets/index.ts";
import type { SearchSpace } from "../../tuner/space.ts";
import { declaredAs } from "../package/declared.ts";
import { learntFactor, predictionOf } from "../tune/learner.ts";
import { MADE_BY } from "../version.ts";
import type { SessionKind } from "./session-space.ts";

/** The equation in plain loops. */
export const LOOP_KIND = kindInLoops<LoopCandidate, { readonly computation: Computation; readonly threads: number }>({
  kind: "loops",
  about: (schedule) => [schedule === undefined ? "plain loops" : `schedule  plain loops, ${schedule}`],
  what: "plain loops",
  contextOf: (computation, threads) => loopsRefused(computation) ?? { computation, threads },
  schedules: { decisions: { threads }, tries: 1 },
  lower: ({ computation }) => lowerLoops(computation),
  secondsOf: ({ computation }, row, { threads }, target) => loopSeconds(computation, row, threads, target),
});

/** Programs whose equations share their rows, in the columns that usually are computed together, and in other numbers of them. */
export const CHAIN_KIND = kindInLoops<ChainCandidate, ChainContext>({
  kind: "chain",
  ofPrograms: true,
  about: (schedule) => ["plain loops, row by row", ...(schedule === undefined ? [] : [`schedule  ${schedule}`])],
  what: "rows",
  contextOf: (computation, threads) => {
    const chain = rowChainOf(computation);
    return "because" in chain ? chain.because : { chain, threads };
  },
  schedules: CHAIN,
  unverified: unboundedIn,
  lower: ({ chain }, schedule) => lowerRowChain(chain, schedule?.columns),
  secondsOf: ({ chain }, row, schedule, target) => rowSeconds(chain, row, schedule, target),
});

type InPlainLoops = LoopCandidate | ChainCandidate;

/** What one of these kinds computes, and how. */
interface InLoops<K extends InPlainLoops, C> {
  readonly kind: K["kind"];
  readonly ofPrograms?: true;
  /** Comments of a kernel. @param schedule as text; the usual one when left out */
  about(schedule?: string): readonly string[];
  /** What a computation has not, where it has no candidates. */
  readonly what: string;
  /** What schedules are of, or why there are none. */
  contextOf(computation: Computation, threads: number): C | string;
  /** The usual schedule is the first. */
  readonly schedules: ScheduleKind<K["schedule"], C>;
  /** Why no kernel of a computation can be verified. */
  unverified?(computation: Computation): string | undefined;
  /** The usual schedule when left out. */
  lower(context: C, schedule?: K["schedule"]): PlainLoops;
  secondsOf(context: C, row: Intrinsic, schedule: K["schedule"], target: ModelTarget): number;
}

function kindInLoops<K extends InPlainLoops, C extends object>(of: InLoops<K, C>): SessionKind<K> {
  const { kind, ofPrograms, about, what, contextOf, schedules, unverified, lower, secondsOf } = of;
  const kernelIn = (computation: Computation, features: readonly string[], candidate?: K): Kernel => {
    const schedule: K["schedule"] | undefined = candidate?.schedule;
    const context = contextOf(computation, schedule?.threads ?? 1);
    const because = typeof context === "string" ? context : schedule && problemIn(schedules, context, schedule);
    if (typeof context === "string" || because !== undefined)
      throw new UsageError(`${computation.name} has no ${what}: ${because}`);
    const lines = candidate ? [...about(scheduleText(candidate)), MADE_BY] : about();
    return generateLoops(computation, lower(context, schedule), compilerFeatures(features), { lines });
  };
  const kernelOf = (computation: Computation, candidate: K): Kernel =>
    kernelIn(computation, declaredAs(candidate.intrinsic).features, candidate);
  return {
    kind,
    family: "loops",
    ...(ofPrograms && { ofPrograms }),
    isFor: (_, machine) => !isGpu(machine),
    *spaceOf({ computation, loops, threads, machine, calibration }) {
      const context = contextOf(computation, threads);
      const because = typeof context === "string" ? context : unverified?.(computation);
      if (typeof context === "string" || because !== undefined)
        return [{ rule: ofPrograms ? "rows" : "loops", because: `no ${what}: ${because}` }];
      const target = modelTarget(machine, calibration);
      const each = [...allSchedules(schedules, context)];
      const all = each.flatMap(
        (schedule) => loops.map(({ name }) => ({ kind, intrinsic: name, schedule }) as K), // each with a schedule of its kind
      );
      return {
        kind,
        // What a network takes without a search is always measured: the first schedule, on the widest vectors.
        space: {
          ...listedSpaceOf(all),
          representatives: each.length > 1 ? all.slice(loops.length - 1, loops.length) : all,
        },
        intrinsics: loops,
        model: learntFactor((c) => secondsOf(context, declaredAs(c.intrinsic), c.schedule, target)),
        kernelOf: (c) => kernelOf(computation, c),
      };
    },
    kernelOf,
    usual: (computation, { isa }) => kernelIn(computation, isa),
    predict: (computation, { intrinsic, schedule }, { machine, calibration }) => {
      const context = contextOf(computation, schedule.threads);
      const target = modelTarget(machine, calibration);
      return typeof context === "string"
        ? undefined
        : predictionOf(secondsOf(context, declaredAs(intrinsic), schedule, target));
    },
  };
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
