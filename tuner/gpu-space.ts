/**
 * @file The search space of a computation on a GPU under one kind of schedule: the mappings for which randomly drawn schedules have the best
 * predictions.
 *
 *     gpuSpace(BLOCKS)(conv2d, intrinsics, limits, predict, seed)      or why nothing maps
 */

import type { Computation } from "../abstraction/computation.ts";
import { internal } from "../abstraction/error.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import type { Mapping, Refusal } from "../abstraction/mapping.ts";
import { seededRandom } from "../abstraction/random.ts";
import type { Steps } from "../abstraction/steps.ts";
import type { GridLimits } from "../mapper/schedule/grid-context.ts";
import { descendedSchedule, drawSchedule } from "../mapper/schedule/schedules.ts";
import { isRanked, MappingSpace, rankMappings, type ScheduledCandidate, type Scheduling } from "./mapping-space.ts";

/** One in this many mappings gets the full number of schedules, but at least 2 * {@link GpuKind.most} do. */
const HOPEFUL = 4;

/** The differences between the spaces of a GPU. */
export interface GpuKind<K extends ScheduledCandidate, C> extends Omit<Scheduling<K, C>, "random"> {
  /** Variants of an enumerated mapping that are worth trying; none when left out. */
  variants?(mapping: Mapping): readonly Mapping[];
  /** The context of a mapping that schedules need, or why there is none. */
  contextOf(mapping: Mapping, limits: GridLimits): C | string;
  /** The contexts worth asking the model about. */
  fitting(contexts: readonly C[]): readonly C[];
  /** Schedules drawn for every mapping at first. */
  readonly glance: number;
  /** Schedules drawn in total for the mappings that were best at first. */
  readonly drawn: number;
  /** Most mappings kept. */
  readonly most: number;
  /** Mappings, the best first, whose best schedule is improved until no decision by itself improves it. */
  readonly descended: number;
}

export type FindSpace<K extends ScheduledCandidate, C extends { readonly mapping: Mapping }> = (
  computation: Computation,
  intrinsics: readonly Intrinsic[],
  limits: GridLimits,
  predict: (context: C, schedule: K["schedule"]) => number | undefined,
  seed: number,
  keeps?: (mapping: Mapping) => boolean,
) => Steps<MappingSpace<K, C> | readonly Refusal[]>;

/**
 * A function that finds the space of a kind over the instructions, or when none maps the refusals, those closest to a mapping first. Its
 * `predict` gives the predicted seconds of a schedule, undefined when the model cannot tell; its `keeps` selects the mappings to search, all by
 * default.
 */
export function gpuSpace<K extends ScheduledCandidate, C extends { readonly mapping: Mapping }>(
  kind: GpuKind<K, C>,
): FindSpace<K, C> {
  return (...asked) => findSpace(kind, ...asked);
}

function* findSpace<K extends ScheduledCandidate, C extends { readonly mapping: Mapping }>(
  kind: GpuKind<K, C>,
  ...[computation, intrinsics, limits, predict, seed, keeps = () => true]: Parameters<FindSpace<K, C>>
): ReturnType<FindSpace<K, C>> {
  const random = seededRandom(seed);
  const promising = new Map<C, K["schedule"]>();
  /** Predicted seconds of the promising schedules. */
  const known = new Map<C, number>();
  const ranked = yield* rankMappings<C>(
    computation,
    intrinsics,
    (mapping) => [mapping, ...(kind.variants?.(mapping) ?? [])].filter(keeps),
    (mapping) => {
      const context = kind.contextOf(mapping, limits);
      return typeof context === "string"
        ? { rule: "expression", because: context, matching: mapping.matching }
        : context;
    },
    (context, isCloser) => {
      const count = isCloser ? kind.drawn - kind.glance : kind.glance;
      let least: number | undefined;
      for (let i = 0; i < count; i++) {
        const schedule = drawSchedule(kind.schedules, context, random);
        // When so many draws have found none, further ones will not either.
        if (!schedule) break;
        const seconds = predict(context, schedule);
        if (seconds === undefined || seconds >= (known.get(context) ?? Number.POSITIVE_INFINITY)) continue;
        least = seconds;
        known.set(context, seconds);
        promising.set(context, schedule);
      }
      return least;
    },
    kind.most,
    kind.fitting,
    (count) => (kind.drawn > kind.glance ? Math.max(2 * kind.most, Math.ceil(count / HOPEFUL)) : 0),
  );
  if (!isRanked(ranked)) return ranked;
  for (const { context } of ranked.slice(0, kind.descended)) {
    const from = promising.get(context);
    const cost = (schedule: K["schedule"]): number | undefined => predict(context, schedule);
    if (from) promising.set(context, descendedSchedule(kind.schedules, context, from, cost));
  }
  const drawn = (context: C, by: typeof random): K["schedule"] => {
    const schedule = drawSchedule(kind.schedules, context, by) ?? internal("a mapping was kept that has no schedule");
    return schedule;
  };
  return new MappingSpace<K, C>({ ...kind, random: drawn }, ranked, promising);
}
