/**
 * @file Transfer learning from records of similar computations on this machine. They correct the model before the first trial, and their fastest
 * schedules, carried over to other extents, are tried first.
 *
 *     conv2d c 64 h 56 k 64             block k 2, q 14; ...      968 us     recorded
 *     conv2d c 256 h 14 k 512           block k 2, q 14; ...                 measured first
 *     conv2d c 512 h 7 k 512            block k 2, q 7; ...                  measured first
 *
 * Where the computation itself has records with another number of threads, the schedules of those are tried first: the same loops in the same order,
 * divided among the threads. Imported records that the user trusts count like those made here. Those of the very computation come first, so that their
 * kernels are measured again before others. Only the model's own first choice precedes them, where it expects half as much
 * time again of them. On a GPU the model is corrected by a search's own trials only.
 */

import {
  candidateKey,
  canonicalJson,
  isMapped,
  isMappedOnGpu,
  type MappedCandidate,
} from "../../abstraction/candidate.ts";
import { ascending, sortedBy, sumOf, upTo } from "../../abstraction/collections.ts";
import { type Computation, computationKey, extentsOf, inputsOf } from "../../abstraction/computation.ts";
import { attempt } from "../../abstraction/error.ts";
import { printEquation } from "../../abstraction/expression.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import {
  type Conditions,
  computationOf,
  type Database,
  type Environment,
  queryTrials,
  type TrialRecord,
} from "../../db/index.ts";
import { apply, type Correction, type Costs, fit as fitCorrection } from "../../perfmodel/correct.ts";
import { createTerms } from "../../perfmodel/model.ts";
import type { ModelTarget } from "../../perfmodel/target.ts";
import type { ScheduledCandidate } from "../../tuner/mapping-space.ts";
import { distanceIn } from "../../tuner/space.ts";
import { secondsOf } from "../../tuner/trials.ts";
import type { SessionSpace } from "../kinds/session-space.ts";
import { mappingOf } from "../recorded.ts";
import { groupBy } from "../report/report-trials.ts";
import { byCandidate } from "./store.ts";

/** Transferred schedules to try. A choice rather than a tuned value: half of a round of eight. */
const MOST_TRANSFERRED = 4;
/** Schedules to try first on a GPU, where a round has 16, and how many of them may be of the computation's own imported records. */
const MOST_ON_GPU = 8;
const OWN_IMPORTED = 3;
/** Computations whose records are used, and records of each, the fastest first. Reading and modelling one takes about 2 ms. */
const COMPUTATIONS = 8;
const TOP = 24;
/** How much slower than the fastest of its computation a schedule to try may be. A short search may have found one good schedule only, or none. */
const SLOWER = 1.2;
/** Distance of another equation, such as one with a stride: that of sizes four times as large. */
const EQUATION_APART = 2;
/** Schedules to try are at least so many decisions apart, where there are enough of them. */
const APART = 1;

interface Sought {
  readonly computation: Computation;
  readonly environment: Environment;
  readonly threads: number;
  readonly cache: Conditions["cache"];
  readonly intrinsics: readonly Intrinsic[];
  /** Whether imported records count too. */
  readonly trustImported: boolean;
  /** Whether similar computations count, and not only records of the same one. */
  readonly similar: boolean;
}

/** A record of a similar computation that the model understands. */
interface NearTrial {
  readonly trial: TrialRecord;
  readonly conditions: Conditions;
  readonly candidate: MappedCandidate;
  /** Its mapping in its own computation. */
  readonly mapping: Mapping;
  readonly costs: Costs;
  readonly seconds: number;
  /** Key of its computation, and its threads. */
  readonly of: string;
  /** Whether it computes the same with another number of threads. */
  readonly isOwn: boolean;
}

/**
 * Trusted records: of the computation itself with other numbers of threads, or imported, and of the most similar other computations with as many
 * threads, the most similar and then the fastest first. Of either, those measured with caches in the same state, or all if there are none.
 */
export function nearTrials(db: Database, sought: Sought, target: ModelTarget): readonly NearTrial[] {
  const { computation, threads, cache } = sought;
  const own = trustedRecords(db, sought, { computation }).filter(
    (t) => t.conditions.threads !== threads || t.provenance === "imported",
  );
  const near = nearestOf(db, sought).flatMap((other) =>
    modelled(trustedRecords(db, sought, { threads, computation: other, top: TOP }), other, target),
  );
  return [
    ...modelled(alike(own, cache).slice(0, TOP), computation, target).map((one) => ({ ...one, isOwn: true })),
    ...alike(near, cache),
  ];
}

/** Records of this world that were made here or, if they are trusted, imported; the fastest first. */
function trustedRecords(
  db: Database,
  { environment, intrinsics, trustImported }: Sought,
  filter: Parameters<typeof queryTrials>[1],
): readonly TrialRecord[] {
  return queryTrials(db, {
    ...filter,
    trusted: { environment, intrinsics, policy: "exact" },
    status: "ok",
    provenance: trustImported ? undefined : "here",
  });
}

/** The most similar other computations that have records, the most similar first. */
function nearestOf(db: Database, sought: Sought): readonly Computation[] {
  const { computation, threads, similar } = sought;
  if (!similar) return [];
  const others = new Map<string, { readonly other: Computation; readonly distance: number }>();
  for (const { workload } of trustedRecords(db, sought, { threads, top: 1 })) {
    const other = computationOf(workload);
    const key = computationKey(other);
    const distance = distanceBetween(computation, other);
    if (key !== computationKey(computation) && distance !== undefined) others.set(key, { other, distance });
  }
  return sortedBy(others.values(), (a) => a.distance)
    .slice(0, COMPUTATIONS)
    .map(({ other }) => other);
}

/** Those measured with caches in this state; all if there are none. */
function alike<T extends Pick<TrialRecord, "conditions">>(all: readonly T[], cache: Conditions["cache"]): readonly T[] {
  const same = all.filter(({ conditions }) => conditions.cache === cache);
  return same.length > 0 ? same : all;
}

/** The trials of a computation that the model understands. */
function modelled(trials: readonly TrialRecord[], of: Computation, target: ModelTarget): readonly NearTrial[] {
  const model = modelOf(of, target);
  const key = computationKey(of);
  return trials.flatMap((trial): readonly NearTrial[] => {
    const { candidate, conditions } = trial;
    const seconds = secondsOf(trial);
    if (candidate.kind !== "mapping" || seconds === undefined) return [];
    const found = model(candidate);
    return found
      ? [{ trial, conditions, candidate, ...found, seconds, of: `${key} ${conditions.threads}`, isOwn: false }]
      : [];
  });
}

/** What a search on a GPU tries first: imported kernels of the computation itself, then the fastest of similar ones, each in turn. */
export function transferredOnGpu(db: Database, sought: Sought, space: SessionSpace): readonly Transferred[] {
  const { computation } = sought;
  const own = trustedRecords(db, sought, { computation, top: TOP }).filter((t) => t.provenance === "imported");
  const near = nearestOf(db, sought).map((other) => trustedRecords(db, sought, { computation: other, top: TOP }));
  // The fastest record of each candidate: one that was measured several times counts once.
  const [first, ...others] = [own, ...near].map((trials) => [
    ...byCandidate(trials.filter((t) => isMappedOnGpu(t.candidate))).values(),
  ]);
  const places = upTo(TOP).map((place) => others.flatMap((trials) => trials[place] ?? []));
  const chosen = new Map<string, Transferred>();
  for (const trial of [...(first ?? []).slice(0, OWN_IMPORTED), ...places.flat()]) {
    if (chosen.size === MOST_ON_GPU) break;
    const candidate = attempt(() => carriedFrom(trial, space));
    if (candidate && !chosen.has(candidateKey(candidate)))
      chosen.set(candidateKey(candidate), { id: trial.id, candidate });
  }
  return [...chosen.values()];
}

/** The mapping of each candidate of a computation with the model's parts of its time; undefined where either is no longer valid. */
function modelOf(
  computation: Computation,
  target: ModelTarget,
): (candidate: MappedCandidate) => Pick<NearTrial, "mapping" | "costs"> | undefined {
  const known = new Map<string, { mapping: Mapping; terms: ReturnType<typeof createTerms> } | undefined>();
  return (candidate) => {
    const { schedule, ...mapped } = candidate;
    const key = canonicalJson(mapped);
    if (!known.has(key)) {
      const mapping = attempt(() => mappingOf(computation, candidate));
      known.set(key, mapping && { mapping, terms: createTerms(mapping, target) });
    }
    const found = known.get(key);
    const costs = found?.terms(schedule);
    return found && costs && { mapping: found.mapping, costs };
  };
}

/** What similar computations teach the model; undefined when there are none. */
export function priorOf(near: readonly NearTrial[]): Correction | undefined {
  if (near.length === 0) return undefined;
  return fitCorrection(near.map(({ costs, seconds }) => ({ costs, measuredSeconds: seconds })));
}

/** A schedule to try, with the record it comes from. */
interface Transferred {
  readonly id: string;
  readonly candidate: ScheduledCandidate;
}

/**
 * The schedules to try first: of the computation itself where it has any. Each is expected to take what the model predicts for it here, times its
 * measured over its predicted time there; the latter relative to the median of its computation, since a computation may be slow as a whole.
 */
export function transferredTo(
  space: SessionSpace,
  near: readonly NearTrial[],
  prior: Correction,
): readonly Transferred[] {
  const expected = new Map<string, Transferred & { readonly seconds: number }>();
  // Its own records count for nothing where this space lacks their mappings.
  const own = near.filter((one) => one.isOwn && space.carried(one.candidate, one.mapping) !== undefined);
  for (const trials of groupBy(own.length > 0 ? own : near.filter(({ isOwn }) => !isOwn), ({ of }) => of)) {
    const least = Math.min(...trials.map(({ seconds }) => seconds));
    const ratioOf = ({ seconds, costs }: NearTrial): number => seconds / apply(prior, costs);
    const ratios = ascending(trials.map(ratioOf));
    const middle = ratios[ratios.length >> 1] ?? 1;
    for (const one of trials) {
      const candidate = one.seconds <= SLOWER * least ? space.carried(one.candidate, one.mapping) : undefined;
      const predicted = candidate && space.predict(candidate)?.seconds;
      if (!candidate || predicted === undefined) continue;
      const key = candidateKey(candidate);
      const seconds = (predicted * ratioOf(one)) / middle;
      // The nearest record of a schedule counts.
      if (!expected.has(key)) expected.set(key, { id: one.trial.id, candidate, seconds });
    }
  }
  const ranked = sortedBy(expected.values(), (a) => a.seconds);
  const chosen: Transferred[] = [];
  for (const one of ranked) {
    if (chosen.length === MOST_TRANSFERRED) break;
    if (chosen.every((other) => distanceIn(space, one.candidate, other.candidate) >= APART)) chosen.push(one);
  }
  return [...chosen, ...ranked.filter((one) => !chosen.includes(one))].slice(0, MOST_TRANSFERRED);
}

/**
 * The schedule of a record of another computation as a search in this space would try it first; undefined when it has none.
 * @throws UsageError when the record's mapping is no longer valid
 */
export function carriedFrom({ workload, candidate }: TrialRecord, space: SessionSpace): ScheduledCandidate | undefined {
  if (!isMapped(candidate)) return undefined;
  return space.carried(candidate, mappingOf(computationOf(workload), candidate));
}

/** The space with candidates that a guided strategy measures first, in turns with those that the model prefers. */
export function seededBy(space: SessionSpace, candidates: readonly ScheduledCandidate[]): SessionSpace {
  return { ...space, transferred: candidates };
}

/** Distance between sizes, in doublings summed over all axes; undefined when the axes or the types of inputs differ. */
function distanceBetween(a: Computation, b: Computation): number | undefined {
  const own = extentsOf(a);
  const other = extentsOf(b);
  const names = Object.keys(own);
  if (names.length !== Object.keys(other).length || !names.every((name) => Object.hasOwn(other, name)))
    return undefined;
  const typesOf = (of: Computation): Map<string, string> => new Map(inputsOf(of).map((t) => [t.name, t.dtype]));
  const types = typesOf(b);
  if ([...typesOf(a)].some(([name, dtype]) => (types.get(name) ?? dtype) !== dtype)) return undefined;
  const doublings = sumOf(names, (name) => Math.abs(Math.log2((own[name] ?? 1) / (other[name] ?? 1))));
  return doublings + (printEquation(a.equation) === printEquation(b.equation) ? 0 : EQUATION_APART);
}
