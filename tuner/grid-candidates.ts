/**
 * @file The space of a computation on a machine of blocks and warps: every instruction of a warp, every mapping worth a schedule, every
 * value of each decision.
 *
 *     matmul f16 on an H100
 *       mma.m16n8k16.f32.f16     m <- m   n <- n   k <- k         expected 284 us    kept
 *       wmma.m32n8k16.f32.f16    m <- n   n <- m   k <- k         expected 1.9 ms    left out: beyond 3 times the least
 */

import { candidateKey, type GridCandidate, type GridSchedule } from "../abstraction/candidate.ts";
import type { Computation } from "../abstraction/computation.ts";
import { printExpr } from "../abstraction/expression.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import { type Mapping, printMatching, type Refusal } from "../abstraction/mapping.ts";
import { type Random, seededRandom } from "../abstraction/random.ts";
import { mappings } from "../mapper/match/enumerate.ts";
import {
  allGridSchedules,
  crossGridSchedules,
  mutateGridSchedule,
  randomGridSchedule,
} from "../mapper/schedule/grid.ts";
import { type GridContext, type GridLimits, gridContext } from "../mapper/schedule/grid-context.ts";
import type { SearchSpace } from "./space.ts";

/** Mappings expected to take more than this many times the least are left out. */
const SPREAD = 3;
/** Schedules drawn to judge a mapping by. */
const DRAWN = 16;
/** Mappings kept at most: more would leave no trials for schedules. */
const MAPPINGS_KEPT = 24;
/** How often a mutation moves to another mapping. */
const MAPPING_MUTATION = 0.12;
/** How far apart another mapping makes two candidates, in decisions. */
const MAPPING_APART = 4;

export interface RankedContext {
  readonly context: GridContext;
  readonly expectedSeconds: number;
}

export interface GridSpace extends SearchSpace<GridCandidate> {
  /** The shortest expected first. */
  readonly ranked: readonly RankedContext[];
  /** @throws Error for a candidate of another space */
  contextOf(candidate: GridCandidate): GridContext;
}

/**
 * The space over all instructions of a warp; or, when none maps, the reasons, most hopeful first.
 * @param predict seconds a schedule is expected to take; undefined when the model cannot say
 */
export function gridSpace(
  computation: Computation,
  intrinsics: readonly Intrinsic[],
  limits: GridLimits,
  predict: (context: GridContext, schedule: GridSchedule) => number | undefined,
  seed: number,
): GridSpace | readonly Refusal[] {
  const refused: Refusal[] = [];
  const found: RankedContext[] = [];
  const random = seededRandom(seed);
  for (const intrinsic of intrinsics) {
    const set = mappings(computation, intrinsic);
    if (set.valid.length === 0) refused.push(...set.refused.slice(0, 3));
    for (const mapping of set.valid) {
      const context = gridContext(mapping, limits);
      if (typeof context === "string") {
        refused.push({ rule: "expression", because: context, matching: mapping.matching });
        continue;
      }
      const expected = Array.from({ length: DRAWN }, () => {
        const schedule = randomGridSchedule(context, random);
        return (schedule && predict(context, schedule)) ?? Number.POSITIVE_INFINITY;
      });
      const expectedSeconds = Math.min(...expected);
      if (Number.isFinite(expectedSeconds)) found.push({ context, expectedSeconds });
    }
  }
  if (found.length === 0)
    return refused.filter((r, i) => refused.findIndex((other) => other.because === r.because) === i);
  found.sort((a, b) => a.expectedSeconds - b.expectedSeconds);
  const least = found[0]?.expectedSeconds ?? 0;
  return new Space(found.filter((m) => m.expectedSeconds <= SPREAD * least).slice(0, MAPPINGS_KEPT));
}

class Space implements GridSpace {
  readonly size = undefined;
  readonly ranked: readonly RankedContext[];
  private readonly byKey: ReadonlyMap<string, GridContext>;

  constructor(ranked: readonly RankedContext[]) {
    this.ranked = ranked;
    this.byKey = new Map(ranked.map(({ context }) => [mappingText(withoutSchedule(context.mapping)), context]));
  }

  key(candidate: GridCandidate): string {
    return candidateKey(candidate);
  }

  contextOf(candidate: GridCandidate): GridContext {
    const context = this.byKey.get(mappingText(candidate));
    if (!context) throw new Error(`internal: ${printMatching(candidate.matching)} is no mapping of this space`);
    return context;
  }

  random(random: Random): GridCandidate {
    const context = this.pickContext(random);
    const schedule = randomGridSchedule(context, random);
    if (!schedule) throw new Error("internal: a mapping was kept that has no schedule");
    return { ...withoutSchedule(context.mapping), schedule };
  }

  mutate(candidate: GridCandidate, random: Random): GridCandidate {
    if (this.ranked.length > 1 && random() < MAPPING_MUTATION) return this.random(random);
    return { ...candidate, schedule: mutateGridSchedule(this.contextOf(candidate), candidate.schedule, random) };
  }

  crossover(a: GridCandidate, b: GridCandidate, random: Random): GridCandidate {
    if (mappingText(a) !== mappingText(b)) return random() < 0.5 ? a : b;
    return { ...a, schedule: crossGridSchedules(this.contextOf(a), a.schedule, b.schedule, random) };
  }

  *all(): Generator<GridCandidate> {
    for (const { context } of this.ranked)
      for (const schedule of allGridSchedules(context)) yield { ...withoutSchedule(context.mapping), schedule };
  }

  /** Decisions that differ. */
  distance(a: GridCandidate, b: GridCandidate): number {
    const [left, right]: Readonly<Record<string, unknown>>[] = [{ ...a.schedule }, { ...b.schedule }];
    const apart = Object.keys(a.schedule).filter((d) => JSON.stringify(left?.[d]) !== JSON.stringify(right?.[d]));
    return apart.length + (mappingText(a) === mappingText(b) ? 0 : MAPPING_APART);
  }

  /** The shorter expected, the more often: with the square of the ratio. */
  private pickContext(random: Random): GridContext {
    const least = this.ranked[0]?.expectedSeconds ?? 1;
    const weights = this.ranked.map((m) => (least / m.expectedSeconds) ** 2);
    let at = random() * weights.reduce((sum, w) => sum + w, 0);
    for (const [i, weight] of weights.entries()) {
      at -= weight;
      const chosen = this.ranked[i];
      if (at <= 0 && chosen) return chosen.context;
    }
    const last = this.ranked.at(-1);
    if (!last) throw new Error("internal: a space without mappings");
    return last.context;
  }
}

function withoutSchedule(mapping: Mapping): Omit<GridCandidate, "schedule"> {
  const operands = Object.fromEntries(Object.entries(mapping.binding).map(([o, bound]) => [o, printExpr(bound)]));
  return { kind: "grid", intrinsic: mapping.intrinsic.name, matching: mapping.matching, operands };
}

function mappingText({ intrinsic, matching, operands }: Omit<GridCandidate, "schedule">): string {
  return JSON.stringify([intrinsic, matching, operands]);
}
