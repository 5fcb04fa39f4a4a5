/**
 * @file The space of a computation on a GPU under one kind of schedule: the mappings that schedules drawn at random promise most of.
 *
 *     gpuSpace(BLOCKS)(conv2d, intrinsics, limits, predict, seed)      or why nothing maps
 */

import type { Computation } from "../abstraction/computation.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import type { Mapping, Refusal } from "../abstraction/mapping.ts";
import { seededRandom } from "../abstraction/random.ts";
import type { Steps } from "../abstraction/steps.ts";
import type { GridLimits } from "../mapper/schedule/grid-context.ts";
import { drawSchedule } from "../mapper/schedule/schedules.ts";
import { isRanked, MappingSpace, rankMappings, type ScheduledCandidate, type Scheduling } from "./mapping-space.ts";

/** One mapping in so many gets the full number of schedules, and at least 2 * {@link GpuKind.most}. */
const HOPEFUL = 4;

/** What the spaces of a GPU differ in. */
export interface GpuKind<K extends ScheduledCandidate, C> extends Omit<Scheduling<K, C>, "random"> {
  /** Of a mapping that the enumeration found others that are worth a look; none when left out. */
  variants?(mapping: Mapping): readonly Mapping[];
  /** What schedules need to know of a mapping; or why it has none. */
  contextOf(mapping: Mapping, limits: GridLimits): C | string;
  /** Those worth asking the model about. */
  fitting(contexts: readonly C[]): readonly C[];
  /** Schedules drawn to judge every mapping by. */
  readonly glance: number;
  /** Schedules drawn in all of a mapping that those promise most of. */
  readonly drawn: number;
  /** Mappings kept at most. */
  readonly most: number;
}

type FindSpace<K extends ScheduledCandidate, C extends { readonly mapping: Mapping }> = (
  computation: Computation,
  intrinsics: readonly Intrinsic[],
  limits: GridLimits,
  predict: (context: C, schedule: K["schedule"]) => number | undefined,
  seed: number,
  keeps?: (mapping: Mapping) => boolean,
) => Steps<MappingSpace<K, C> | readonly Refusal[]>;

/**
 * How the space of a kind is found: over the instructions, or when none maps the reasons, most hopeful first. It is asked with
 * `predict`, the seconds a schedule is expected to take, undefined when the model cannot say; and with `keeps`, which of the mappings to
 * search, by default all.
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
  /** Seconds that those are expected to take. */
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
        // Where none was found in so many tries, the next is not either.
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
  const drawn = (context: C, by: typeof random): K["schedule"] => {
    const schedule = drawSchedule(kind.schedules, context, by);
    if (!schedule) throw new Error("internal: a mapping was kept that has no schedule");
    return schedule;
  };
  return new MappingSpace<K, C>({ ...kind, random: drawn }, ranked, promising);
}
