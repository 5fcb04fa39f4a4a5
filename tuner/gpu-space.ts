/**
 * @file The space of a computation on a GPU under one kind of schedule: the mappings that schedules drawn at random promise most of.
 *
 *     gpuSpace(BLOCKS, conv2d, intrinsics, limits, predict, seed)      or why nothing maps
 */

import type { Computation } from "../abstraction/computation.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import type { Mapping, Refusal } from "../abstraction/mapping.ts";
import { seededRandom } from "../abstraction/random.ts";
import type { Steps } from "../abstraction/steps.ts";
import type { GridLimits } from "../mapper/schedule/grid-context.ts";
import { drawSchedule } from "../mapper/schedule/schedules.ts";
import { isRanked, MappingSpace, rankMappings, type ScheduledCandidate, type Scheduling } from "./mapping-space.ts";

/** What the spaces of a GPU differ in. */
export interface GpuKind<K extends ScheduledCandidate, C> extends Omit<Scheduling<K, C>, "random"> {
  /** What schedules need to know of a mapping; or why it has none. */
  contextOf(mapping: Mapping, limits: GridLimits): C | string;
  /** Those worth asking the model about. */
  fitting(contexts: readonly C[]): readonly C[];
  /** Schedules drawn to judge a mapping by. */
  readonly drawn: number;
  /** Mappings kept at most. */
  readonly most: number;
}

/**
 * The space over the instructions; or, when none maps, the reasons, most hopeful first.
 * @param predict seconds a schedule is expected to take; undefined when the model cannot say
 * @param keeps of the mappings those to search; all by default
 */
export function* gpuSpace<K extends ScheduledCandidate, C extends { readonly mapping: Mapping }>(
  kind: GpuKind<K, C>,
  computation: Computation,
  intrinsics: readonly Intrinsic[],
  limits: GridLimits,
  predict: (context: C, schedule: K["schedule"]) => number | undefined,
  seed: number,
  keeps: (mapping: Mapping) => boolean = () => true,
): Steps<MappingSpace<K, C> | readonly Refusal[]> {
  const random = seededRandom(seed);
  const promising = new Map<C, K["schedule"]>();
  const ranked = yield* rankMappings<C>(
    computation,
    intrinsics,
    (mapping) => (keeps(mapping) ? [mapping] : []),
    (mapping) => {
      const context = kind.contextOf(mapping, limits);
      return typeof context === "string"
        ? { rule: "expression", because: context, matching: mapping.matching }
        : context;
    },
    (context) => {
      let least: number | undefined;
      for (let i = 0; i < kind.drawn; i++) {
        const schedule = drawSchedule(kind.schedules, context, random);
        // Where none was found in so many tries, the next is not either.
        if (!schedule) break;
        const seconds = predict(context, schedule);
        if (seconds === undefined || (least !== undefined && seconds >= least)) continue;
        least = seconds;
        promising.set(context, schedule);
      }
      return least;
    },
    kind.most,
    kind.fitting,
  );
  if (!isRanked(ranked)) return ranked;
  const drawn = (context: C, by: typeof random): K["schedule"] => {
    const schedule = drawSchedule(kind.schedules, context, by);
    if (!schedule) throw new Error("internal: a mapping was kept that has no schedule");
    return schedule;
  };
  return new MappingSpace<K, C>({ ...kind, random: drawn }, ranked, promising);
}
