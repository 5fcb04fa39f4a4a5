/**
 * @file The search space of a computation on a processor's cores: mappings, including those with summed loops fused in another order, and
 * schedules of loops.
 *
 *     matmul f32, b[k,n] read along n        i <- n    k <- k                conv2d NHWC, k <- c,s         also k <- s,c: a run of memory
 */

import type { MappedCandidate, Schedule } from "../abstraction/candidate.ts";
import type { Computation } from "../abstraction/computation.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import type { Mapping, Refusal } from "../abstraction/mapping.ts";
import { seededRandom } from "../abstraction/random.ts";
import type { Steps } from "../abstraction/steps.ts";
import { issuesWritten } from "../mapper/schedule/block.ts";
import { MAPPED, plainSchedule, randomSchedule, unschedulable } from "../mapper/schedule/mapped.ts";
import type { MappedContext } from "../mapper/schedule/mapped-context.ts";
import { placementsOf } from "../mapper/schedule/place.ts";
import { isRanked, MappingSpace, rankMappings, type Scheduling } from "./mapping-space.ts";
import { reordered } from "./reordered.ts";

/** Schedules drawn to judge a mapping. */
const DRAWN = 24;

/** Most mappings kept. */
const MAPPINGS_KEPT = 48;

export type CandidateSpace = MappingSpace<MappedCandidate, MappedContext>;

const ON_CORES: Scheduling<MappedCandidate, MappedContext> = {
  kind: "mapping",
  schedules: MAPPED,
  random: ({ mapping, threads, nearBytes }, random) => randomSchedule(mapping, random, threads, nearBytes),
  // The plainest schedule of every mapping: an exhaustive search of so large a space can still visit these.
  all: ({ mapping, threads }) => [plainSchedule(mapping, threads)],
  codeSize: ({ mapping }, schedule) => issuesWritten(mapping, schedule),
};

/**
 * The space over all instructions or, when nothing maps, the refusals, those closest to a mapping first.
 * @param predict predicted seconds of a schedule; undefined when the model cannot tell
 * @param seed seed of the schedules drawn to judge mappings
 * @param keeps selects the mappings to search; all by default
 * @param nearBytes size of the nearest cache. Tile loops are tried for data that does not fit in it; none when left out
 */
export function* candidateSpace(
  computation: Computation,
  intrinsics: readonly Intrinsic[],
  predict: (mapping: Mapping, schedule: Schedule) => number | undefined,
  threads: number,
  seed: number,
  nearBytes?: number,
  keeps: (mapping: Mapping) => boolean = () => true,
): Steps<CandidateSpace | readonly Refusal[]> {
  const random = seededRandom(seed);
  const promising = new Map<MappedContext, Schedule>();
  const ranked = yield* rankMappings(
    computation,
    intrinsics,
    (mapping) => [mapping, ...worthReordering(mapping)].filter(keeps),
    (mapping): MappedContext | Refusal => {
      const because = unschedulable(mapping);
      return because === undefined
        ? { mapping, threads, nearBytes }
        : { rule: "schedule", because, matching: mapping.matching };
    },
    (context) => {
      const { mapping } = context;
      const plain = plainSchedule(mapping, threads);
      const drawn = Array.from({ length: DRAWN }, () => randomSchedule(mapping, random, threads, nearBytes));
      let least: number | undefined;
      for (const schedule of [plain, ...drawn]) {
        const seconds = predict(mapping, schedule);
        if (seconds === undefined || (least !== undefined && seconds >= least)) continue;
        least = seconds;
        promising.set(context, schedule);
      }
      return least;
    },
    MAPPINGS_KEPT,
  );
  return isRanked(ranked) ? new MappingSpace(ON_CORES, ranked, promising) : ranked;
}

/**
 * The mapping with the loops of a summed axis fused in memory order, where that lets an input be loaded in place: for k <- c,s with channels
 * innermost, k <- s,c reads a contiguous run.
 */
function worthReordering(mapping: Mapping): Mapping[] {
  const others = reordered(mapping);
  if (others.length === 0) return [];
  const loadable = (m: Mapping): number => placementsOf(m).filter((c) => c.open.length > 1).length;
  const before = loadable(mapping);
  return others.flatMap((other) => {
    const found = other.mapping();
    return other.isInMemoryOrder || loadable(found) > before ? [found] : [];
  });
}
