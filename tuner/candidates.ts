/**
 * @file The space of a computation on the cores of a processor: mappings, those with summed loops fused in another order among them, and
 * schedules of loops.
 *
 *     matmul f32, b[k,n] read along n        i <- n    k <- k                conv2d NHWC, k <- c,s         also k <- s,c: a run of memory
 */

import { affineForm } from "../abstraction/affine.ts";
import type { MappedCandidate, Schedule } from "../abstraction/candidate.ts";
import { type Computation, targetOf, tensorOf } from "../abstraction/computation.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import type { Mapping, Refusal } from "../abstraction/mapping.ts";
import { seededRandom } from "../abstraction/random.ts";
import type { Steps } from "../abstraction/steps.ts";
import { defineProblem } from "../mapper/match/problem.ts";
import { validate } from "../mapper/match/validate.ts";
import { MAPPED, plainSchedule, randomSchedule, unschedulable } from "../mapper/schedule/mapped.ts";
import type { MappedContext } from "../mapper/schedule/mapped-context.ts";
import { placementsOf } from "../mapper/schedule/place.ts";
import { isRanked, MappingSpace, rankMappings, type Scheduling } from "./mapping-space.ts";

/** Schedules drawn to judge a mapping by. */
const DRAWN = 24;

/** Mappings kept at most. */
const MAPPINGS_KEPT = 48;

export type CandidateSpace = MappingSpace<MappedCandidate, MappedContext>;

const ON_CORES: Scheduling<MappedCandidate, MappedContext> = {
  label: undefined,
  schedules: MAPPED,
  random: ({ mapping, threads, nearBytes }, random) => randomSchedule(mapping, random, threads, nearBytes),
  // The plainest of every mapping: what an exhaustive search of so large a space can still visit.
  all: ({ mapping, threads }) => [plainSchedule(mapping, threads)],
};

/**
 * The space over all intrinsics; or, when nothing maps, the reasons, most hopeful first.
 * @param predict seconds a schedule is expected to take; undefined when the model cannot say
 * @param seed of the schedules drawn to judge mappings by
 * @param keeps of the mappings those to search; all by default
 * @param nearBytes size of the nearest cache: loops over tiles are tried for what does not fit in there, none when left out
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
  const ranked = yield* rankMappings(
    computation,
    intrinsics,
    (mapping) => [mapping, ...reordered(mapping)].filter(keeps),
    (mapping): MappedContext | Refusal => {
      const because = unschedulable(mapping);
      return because === undefined
        ? { mapping, threads, nearBytes }
        : { rule: "schedule", because, matching: mapping.matching };
    },
    ({ mapping }) => {
      const plain = plainSchedule(mapping, threads);
      const drawn = Array.from({ length: DRAWN }, () => randomSchedule(mapping, random, threads, nearBytes));
      const expected = [plain, ...drawn].flatMap((schedule) => predict(mapping, schedule) ?? []);
      return expected.length === 0 ? undefined : Math.min(...expected);
    },
    MAPPINGS_KEPT,
  );
  return isRanked(ranked) ? new MappingSpace(ON_CORES, ranked) : ranked;
}

/**
 * The mapping with the loops of one summed axis fused in another order, where that lets an input be loaded from where it lies, and
 * in the order in which they lie in memory: of k <- c,s with channels innermost, k <- s,c reads a run of memory.
 */
function reordered(mapping: Mapping): Mapping[] {
  const { computation, intrinsic, binding, matching } = mapping;
  const problem = defineProblem(computation, intrinsic, binding);
  const loadable = (m: Mapping): number => placementsOf(m).filter((c) => c.open.length > 1).length;
  const before = loadable(mapping);
  return intrinsic.computation.axes
    .filter((a) => a.kind === "reduce" && (matching[a.name]?.length ?? 0) > 1)
    .flatMap((a) =>
      permutations(matching[a.name] ?? []).flatMap((order) => {
        if (order.join() === matching[a.name]?.join()) return [];
        const verdict = validate(problem, { ...matching, [a.name]: order }, { rule: "gather", strict: false });
        if (!verdict.ok) return [];
        return inMemoryOrder(mapping, order) || loadable(verdict.mapping) > before ? [verdict.mapping] : [];
      }),
    );
}

/** Whether every loop takes longer steps through what is not constant than the next. */
function inMemoryOrder({ computation, binding }: Mapping, order: readonly string[]): boolean {
  const steps = (loop: string): number[] =>
    Object.values(binding).flatMap((bound) => {
      if (bound.kind !== "access" || bound.tensor === targetOf(computation).name) return [];
      const { dims, storage, constant } = tensorOf(computation, bound.tensor);
      const form = affineForm(storage);
      if (constant || !form) return [];
      return bound.index.reduce(
        (sum, e, i) => sum + (affineForm(e)?.terms.get(loop) ?? 0) * (form.terms.get(dims[i]?.name ?? "") ?? 0),
        0,
      );
    });
  return order.every((loop, i) => {
    const next = order[i + 1];
    if (next === undefined) return true;
    const [own, after] = [steps(loop), steps(next)];
    return own.length > 0 && own.every((step, at) => Math.abs(step) > Math.abs(after[at] ?? 0));
  });
}

function permutations<T>(items: readonly T[]): T[][] {
  if (items.length > 4) return [[...items]];
  if (items.length === 0) return [[]];
  return items.flatMap((item, i) => permutations(items.filter((_, j) => j !== i)).map((rest) => [item, ...rest]));
}
