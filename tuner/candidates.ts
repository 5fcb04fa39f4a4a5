/**
 * @file The space of one workload: every instruction of the target, every mapping worth a schedule, every schedule.
 *
 *     conv2d u8s8 on a CPU with VNNI
 *       avx512.vpdpbusd     n <- k   k <- c         expected 221 us    kept
 *       avx512.vpdpbusd     n <- k   k <- c,r,s     expected 640 us    kept
 *       avxvnni.vpdpbusd    n <- q   k <- r         expected 4.1 ms    left out: beyond 3 times the least
 */

import { affineForm } from "../abstraction/affine.ts";
import { candidateKey, type MappedCandidate, type Schedule } from "../abstraction/candidate.ts";
import { type Computation, targetOf, tensorOf } from "../abstraction/computation.ts";
import { printExpr } from "../abstraction/expression.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import { type Mapping, printMatching, type Refusal } from "../abstraction/mapping.ts";
import { type Random, seededRandom } from "../abstraction/random.ts";
import { mappings } from "../mapper/match/enumerate.ts";
import { defineProblem } from "../mapper/match/problem.ts";
import { validate } from "../mapper/match/validate.ts";
import { dimensionsOf } from "../mapper/schedule/dimensions.ts";
import { placementsOf, unschedulable } from "../mapper/schedule.ts";
import { crossSchedules, mutateSchedule, plainSchedule, randomSchedule } from "../mapper/schedule-space.ts";
import type { SearchSpace } from "./space.ts";

/** A mapping and what the model expects of the best of a few schedules. */
export interface RankedMapping {
  readonly mapping: Mapping;
  readonly expectedSeconds: number;
}

/** Mappings expected to take more than this many times the least are left out. */
const SPREAD = 3;

/** Schedules drawn to judge a mapping by. */
const DRAWN = 24;

/** Mappings kept at most: more would leave no trials for schedules. */
const MAPPINGS_KEPT = 48;

/** How often a mutation moves to another mapping. */
const MAPPING_MUTATION = 0.12;

/**
 * Summed steps unrolled at most, all loops together. Up to 8 made no difference (1694 random trials); in 27 of three searches for a
 * 512x7x7 layer in u8s8, 16 to 31 took 1.20, 32 to 63 took 1.08, more took 1.47 times what was expected of them (medians; a Xeon with
 * AMX that was also used for other work, 2026-11-21).
 */
const MOST_UNROLLED = 12;

/** How far apart another order of summed loops makes two candidates, and another unroll of any of them. */
const SUMMED_APART = 0.25;

export interface CandidateSpace extends SearchSpace<MappedCandidate> {
  readonly mappings: readonly RankedMapping[];
  /** The mapping of a candidate of this space. @throws Error for another's */
  mappingOf(candidate: MappedCandidate): Mapping;
}

/**
 * The space over all intrinsics; or, when nothing maps, the reasons, most hopeful first.
 * @param predict seconds a schedule is expected to take; undefined when the model cannot say
 * @param seed of the schedules drawn to judge mappings by
 * @param nearBytes size of the nearest cache: loops over tiles are tried for what does not fit in there, none when left out
 */
export function candidateSpace(
  computation: Computation,
  intrinsics: readonly Intrinsic[],
  predict: (mapping: Mapping, schedule: Schedule) => number | undefined,
  threads: number,
  seed: number,
  nearBytes?: number,
): CandidateSpace | readonly Refusal[] {
  const refused: Refusal[] = [];
  const found: RankedMapping[] = [];
  const random = seededRandom(seed);
  for (const intrinsic of intrinsics) {
    const set = mappings(computation, intrinsic);
    if (set.valid.length === 0) refused.push(...set.refused.slice(0, 3));
    for (const mapping of set.valid.flatMap((m) => [m, ...reordered(m)])) {
      const because = unschedulable(mapping);
      if (because !== undefined) {
        refused.push({ rule: "schedule", because, matching: mapping.matching });
        continue;
      }
      const plain = plainSchedule(mapping, threads);
      const drawn = Array.from({ length: DRAWN }, () => randomSchedule(mapping, random, threads, nearBytes));
      const expected = [plain, ...drawn].flatMap((schedule) => predict(mapping, schedule) ?? []);
      if (expected.length > 0) found.push({ mapping, expectedSeconds: Math.min(...expected) });
    }
  }
  if (found.length === 0)
    return refused.filter((r, i) => refused.findIndex((other) => other.because === r.because) === i);
  found.sort((a, b) => a.expectedSeconds - b.expectedSeconds);
  const least = found[0]?.expectedSeconds ?? 0;
  const kept = found.filter((m) => m.expectedSeconds <= SPREAD * least).slice(0, MAPPINGS_KEPT);
  return new Space(kept, threads, nearBytes);
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

class Space implements CandidateSpace {
  readonly size = undefined;
  readonly mappings: readonly RankedMapping[];
  private readonly byKey: ReadonlyMap<string, Mapping>;
  private readonly summed = new Map<Mapping, ReadonlySet<string>>();
  private readonly threads: number;
  private readonly nearBytes: number | undefined;

  constructor(kept: readonly RankedMapping[], threads: number, nearBytes: number | undefined) {
    this.mappings = kept;
    this.threads = threads;
    this.nearBytes = nearBytes;
    this.byKey = new Map(kept.map(({ mapping }) => [mappingText(toCandidate(mapping)), mapping]));
  }

  key(candidate: MappedCandidate): string {
    return candidateKey(candidate);
  }

  mappingOf(candidate: MappedCandidate): Mapping {
    const mapping = this.byKey.get(mappingText(candidate));
    if (!mapping) throw new Error(`internal: ${printMatching(candidate.matching)} is no mapping of this space`);
    return mapping;
  }

  random(random: Random): MappedCandidate {
    const mapping = this.pickMapping(random);
    return { ...toCandidate(mapping), schedule: randomSchedule(mapping, random, this.threads, this.nearBytes) };
  }

  mutate(candidate: MappedCandidate, random: Random): MappedCandidate {
    if (this.mappings.length > 1 && random() < MAPPING_MUTATION) return this.random(random);
    const mapping = this.mappingOf(candidate);
    return { ...candidate, schedule: mutateSchedule(mapping, candidate.schedule, random, this.nearBytes) };
  }

  crossover(a: MappedCandidate, b: MappedCandidate, random: Random): MappedCandidate {
    if (mappingText(a) !== mappingText(b)) return random() < 0.5 ? a : b;
    const mapping = this.mappingOf(a);
    const crossed = { ...a, schedule: crossSchedules(mapping, a.schedule, b.schedule, random) };
    return this.isShort(crossed, mapping) ? crossed : a;
  }

  /** The plainest schedule of every mapping: what an exhaustive search of so large a space can still visit. */
  *all(): Generator<MappedCandidate> {
    for (const { mapping } of this.mappings) {
      yield { ...toCandidate(mapping), schedule: plainSchedule(mapping, this.threads) };
    }
  }

  /** How summed loops are ordered and unrolled changes the time little, so all of that together counts for less than one block. */
  distance(a: MappedCandidate, b: MappedCandidate): number {
    let apart = mappingText(a) === mappingText(b) ? 0 : 4;
    const summed = this.summedIn(a);
    const [left, right] = [a.schedule, b.schedule];
    let unrolled = 0;
    for (const d of new Set([...left.order, ...right.order])) {
      if ((left.block[d] ?? 1) === (right.block[d] ?? 1)) continue;
      if (summed.has(d)) unrolled = SUMMED_APART;
      else apart++;
    }
    const kept = (order: readonly string[]): string => order.filter((d) => !summed.has(d)).join();
    if (kept(left.order) !== kept(right.order)) apart++;
    else if (left.order.join() !== right.order.join()) apart += SUMMED_APART;
    if (left.spread?.join() !== right.spread?.join()) apart++;
    for (const o of Object.keys(left.placement)) if (left.placement[o] !== right.placement[o]) apart++;
    return apart + unrolled;
  }

  private summedIn(candidate: MappedCandidate): ReadonlySet<string> {
    const mapping = this.mappingOf(candidate);
    const known =
      this.summed.get(mapping) ?? new Set(dimensionsOf(mapping).flatMap((d) => (d.kind === "reduce" ? [d.name] : [])));
    this.summed.set(mapping, known);
    return known;
  }

  /** Whether the steps that are written out behind one another are few. */
  private isShort({ schedule }: MappedCandidate, mapping: Mapping): boolean {
    let steps = 1;
    for (const d of dimensionsOf(mapping)) if (d.kind === "reduce") steps *= schedule.block[d.name] ?? 1;
    return steps <= MOST_UNROLLED;
  }

  /** The shorter expected, the more often: with the square of the ratio. */
  private pickMapping(random: Random): Mapping {
    const least = this.mappings[0]?.expectedSeconds ?? 1;
    const weights = this.mappings.map((m) => (least / m.expectedSeconds) ** 2);
    let at = random() * weights.reduce((sum, w) => sum + w, 0);
    for (const [i, weight] of weights.entries()) {
      at -= weight;
      const chosen = this.mappings[i];
      if (at <= 0 && chosen) return chosen.mapping;
    }
    const last = this.mappings.at(-1);
    if (!last) throw new Error("internal: a space without mappings");
    return last.mapping;
  }
}

/** A candidate without its schedule's decisions: which mapping it is. */
function toCandidate(mapping: Mapping): MappedCandidate {
  const operands = Object.fromEntries(Object.entries(mapping.binding).map(([o, bound]) => [o, printExpr(bound)]));
  return { intrinsic: mapping.intrinsic.name, matching: mapping.matching, operands, schedule: plainSchedule(mapping) };
}

function mappingText({ intrinsic, matching, operands }: MappedCandidate): string {
  return `${intrinsic}; ${printMatching(matching)}; ${Object.entries(operands)
    .map(([o, text]) => `${o}=${text}`)
    .join("; ")}`;
}
