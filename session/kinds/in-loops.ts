/**
 * @file What the kinds of plain loops in C++ have in common: their candidates are one for each set of vectors that the compiler may use, and each
 * schedule. A network takes the usual schedule without a search, on all vectors of the machine.
 *
 *     const LOOP_KIND = kindInLoops<LoopCandidate, Context>({ kind: "loops", contextOf, schedules: LOOPS, lower, secondsOf, ... })
 */

import {
  type Candidate,
  type ChainCandidate,
  candidateKey,
  type LoopCandidate,
  type ModeCandidate,
} from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { UsageError } from "../../abstraction/error.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { pick } from "../../abstraction/random.ts";
import { generateLoops } from "../../codegen/cpp/cpp.ts";
import type { PlainLoops } from "../../mapper/lower/loops.ts";
import { allSchedules, problemIn, type ScheduleKind } from "../../mapper/schedule/schedules.ts";
import { type ModelTarget, modelTarget } from "../../perfmodel/target.ts";
import { scheduleText } from "../../report/describe-candidate.ts";
import { compilerFeatures } from "../../targets/features.ts";
import { isGpu } from "../../targets/index.ts";
import type { SearchSpace } from "../../tuner/space.ts";
import { declaredAs } from "../package/declared.ts";
import { learntFactor, predictionOf } from "../tune/learner.ts";
import { MADE_BY } from "../version.ts";
import type { SessionKind } from "./session-space.ts";

/** What one of these kinds computes, and how. */
interface InLoops<K extends LoopCandidate | ModeCandidate | ChainCandidate, C> {
  readonly kind: K["kind"];
  readonly ofPrograms?: true;
  /** Comments of a kernel. @param schedule as text; the usual one when left out */
  about(schedule?: string): readonly string[];
  /** What a computation has not, where it has no candidates, and the rule that says so. */
  readonly what: string;
  readonly rule: string;
  /** Whether the kind computes it better than the others of these kinds. */
  isFor(computation: Computation): boolean;
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

export function kindInLoops<K extends LoopCandidate | ModeCandidate | ChainCandidate, C extends object>(
  of: InLoops<K, C>,
): SessionKind<K> {
  const { kind, ofPrograms, about, what, rule, contextOf, schedules, unverified, lower, secondsOf } = of;
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
    isFor: (computation, machine) => !isGpu(machine) && of.isFor(computation),
    *spaceOf({ computation, loops, threads, machine, calibration }) {
      const context = contextOf(computation, threads);
      const because = typeof context === "string" ? context : unverified?.(computation);
      if (typeof context === "string" || because !== undefined) return [{ rule, because: `no ${what}: ${because}` }];
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
