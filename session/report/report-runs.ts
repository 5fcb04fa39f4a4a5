/**
 * @file Compares runs of the same workload, of one database or of two: the best each found, how soon, and how far the machines agree on the
 * same kernels.
 *
 *     comparisonsOf({ db, trials }, ...)     [{ label: "conv2d c 64 ...", runs: [{ best: 62.3 us, shared: undefined }, { ..., shared: { count: 5, ratio: 1.01 } }] }]
 */

import { candidateKey } from "../../abstraction/candidate.ts";
import { groupsOf, present } from "../../abstraction/collections.ts";
import { best, type Database, type EnvironmentRecord, labelOf, showRun, type TrialRecord } from "../../db/index.ts";
import { decisionValues } from "../../report/describe-candidate.ts";
import type {
  Beside,
  ComparedDatabase,
  Comparison,
  Found,
  RunBest,
  RunSummary,
  SharedKernels,
  TrialPoint,
} from "../../report/report-data.ts";
import { inOrder, isTimed } from "../../tuner/trials.ts";
import { noiseOf } from "./noise.ts";
import { groupBy, isSearched } from "./report-trials.ts";

interface Known {
  /** The runs to compare, the reference run first; when left out, all runs by their start. */
  readonly runs: readonly string[] | undefined;
  readonly indexOf: (environment: EnvironmentRecord) => number;
  readonly pointOf: (trial: TrialRecord) => TrialPoint;
}

/** Trials of a database. */
export interface Recorded {
  readonly db: Database;
  readonly trials: readonly TrialRecord[];
}

/** Workloads with trials of two or more runs. */
export function comparisonsOf({ db, trials }: Recorded, known: Known): Comparison[] {
  return workloadsIn(trials)
    .flatMap(([, own]) => {
      const runs = inTheirOrder(runsOf(own), known.runs);
      return runs.length < 2
        ? []
        : comparisonOf(
            runs.map((trials) => ({ db, trials })),
            known,
          );
    })
    .sort((a, b) => inOrder(a.label, b.label));
}

/** Workloads that two databases have, each by the run whose winner is the fastest. */
export function databasesCompared(
  here: Recorded,
  there: Recorded,
  known: Known,
): { readonly comparisons: Comparison[]; readonly compared: ComparedDatabase } {
  const own = fastestRuns(here);
  const others = fastestRuns(there);
  const labelsWithout = (sides: ReadonlyMap<string, Recorded>, other: ReadonlyMap<string, Recorded>): string[] =>
    [...sides]
      .flatMap(([key, { trials }]) => (other.has(key) || !trials[0] ? [] : [labelOf(trials[0].workload)]))
      .sort();
  const comparisons = [...own].flatMap(([key, side]) => {
    const other = others.get(key);
    return other ? comparisonOf([side, other], known) : [];
  });
  return {
    comparisons: comparisons.sort((a, b) => inOrder(a.label, b.label)),
    compared: {
      source: there.db.path,
      onlyHere: labelsWithout(own, others),
      onlyThere: labelsWithout(others, own),
    },
  };
}

/** Of each workload with a time, the trials of the run whose winner is the fastest. */
function fastestRuns({ db, trials }: Recorded): ReadonlyMap<string, Recorded> {
  const fastest = workloadsIn(trials).flatMap(([key, group]) => {
    const [run] = runsOf(group)
      .flatMap((own) => {
        const found = bestOfRun(db, own);
        return found ? [{ own, seconds: found.seconds }] : [];
      })
      .sort((a, b) => a.seconds - b.seconds);
    return run ? [[key, { db, trials: run.own }] as const] : [];
  });
  return new Map(fastest);
}

/** Trials of runs by workload. The same computation with another number of threads is another workload. */
const workloadsIn = (trials: readonly TrialRecord[]): [key: string, trials: TrialRecord[]][] => [
  ...groupsOf(
    trials.filter(({ run }) => run !== undefined),
    ({ workload, conditions }) => JSON.stringify([workload.computation, conditions.threads, conditions.cache]),
  ),
];

const runsOf = (trials: readonly TrialRecord[]): TrialRecord[][] => groupBy(trials, ({ run = "" }) => run);

/** @param sides runs, the others described relative to the first */
function comparisonOf(sides: readonly Recorded[], known: Known): Comparison[] {
  const [first] = sides;
  const workload = first?.trials[0]?.workload;
  if (!first || !workload) return [];
  const summaries = sides.flatMap((side) => summaryOf(side, known) ?? []);
  const medians = mediansOf(first.trials);
  const runs = summaries.map((run, i): RunSummary => {
    const [reference] = summaries;
    if (i === 0 || !reference) return run;
    const shared = sharedWith(medians, mediansOf(sides[i]?.trials ?? []));
    return { ...run, shared, beside: besideOf(reference, { ...run, shared }) };
  });
  return [{ label: labelOf(workload), dtype: workload.dtype, runs }];
}

/** With fewer kernels in common nothing is said about the machine. */
const FEWEST_SHARED = 3;

/** The best of a run beside that of the reference run: how much, whether that is noise, and whether the machine explains it. */
export function besideOf(
  reference: Pick<RunSummary, "best" | "noise">,
  { best, noise, shared }: Pick<RunSummary, "best" | "noise" | "shared">,
): Beside | undefined {
  if (!best || !reference.best) return undefined;
  const low = reference.best.interval[0] / best.interval[1];
  const high = reference.best.interval[1] / best.interval[0];
  const verdict = low > 1 ? "faster" : high < 1 ? "slower" : "tie";
  const noisy = reference.noise === "noisy" || noise === "noisy";
  if (verdict === "tie")
    return {
      verdict,
      says: `no difference beyond noise: the intervals overlap${noisy ? ", and times are noisy" : ""}`,
      isSure: !noisy,
    };
  const size =
    verdict === "faster"
      ? `${low.toFixed(3)} to ${high.toFixed(3)} times as fast`
      : `${(1 / high).toFixed(3)} to ${(1 / low).toFixed(3)} times as slow`;
  const isMachine =
    shared !== undefined && shared.count >= FEWEST_SHARED && low * shared.ratio <= 1 && high * shared.ratio >= 1;
  const doubts = present([
    noisy &&
      `${reference.noise === noise ? "both runs are" : noise === "noisy" ? "this run is" : "the first run is"} noisy`,
    isMachine && "the same kernels differ as much, so the machine explains it",
  ]);
  return {
    verdict,
    says: doubts.length === 0 ? size : `${size}, but ${doubts.join(", and ")}`,
    isSure: doubts.length === 0,
  };
}

function inTheirOrder(runs: TrialRecord[][], asked: readonly string[] | undefined): TrialRecord[][] {
  if (asked === undefined) return runs;
  const placeOf = ([first]: readonly TrialRecord[]): number => asked.indexOf(first?.run ?? "");
  return runs.toSorted((a, b) => placeOf(a) - placeOf(b));
}

function summaryOf({ db, trials: group }: Recorded, { indexOf, pointOf }: Known): RunSummary | undefined {
  const [first] = group;
  if (first?.run === undefined) return undefined;
  const run = showRun(db, first.run);
  const strategy = run.options["strategy"];
  const trials = group.filter(isSearched).map(pointOf);
  return {
    id: run.id,
    source: db.path,
    environment: indexOf(first.environment),
    started: run.started,
    isImported: run.provenance === "imported",
    status: run.status,
    seed: run.seed,
    strategy: typeof strategy === "string" ? strategy : "",
    threads: first.conditions.threads,
    trials,
    failed: trials.filter(({ seconds }) => seconds === undefined).length,
    best: bestOfRun(db, group),
    found: foundIn(trials),
    noise: noiseOf(group).verdict,
    shared: undefined,
    beside: undefined,
  };
}

function foundIn(trials: readonly TrialPoint[]): Found | undefined {
  const least = Math.min(...trials.map(({ seconds = Number.POSITIVE_INFINITY }) => seconds));
  const place = trials.findIndex(({ seconds }) => seconds === least);
  return place < 0 ? undefined : { trial: place + 1, after: trials[place]?.after };
}

function bestOfRun(db: Database, group: readonly TrialRecord[]): RunBest | undefined {
  const run = group[0]?.run;
  const own = new Map(group.filter(isTimed).map((t) => [t.id, t]));
  const [winner] = (run === undefined ? [] : best(db, { run }, { imported: true })).flatMap(
    ({ id }) => own.get(id) ?? [],
  );
  return (
    winner && {
      id: winner.id,
      seconds: winner.measurement.median,
      interval: winner.measurement.interval,
      decisions: decisionValues(winner.candidate),
    }
  );
}

/** Seconds of each kernel, from its first measurement. */
function mediansOf(group: readonly TrialRecord[]): ReadonlyMap<string, number> {
  const timed = group.filter(isSearched).filter(isTimed);
  return new Map(timed.toReversed().map((t) => [candidateKey(t.candidate), t.measurement.median]));
}

function sharedWith(
  reference: ReadonlyMap<string, number>,
  own: ReadonlyMap<string, number>,
): SharedKernels | undefined {
  const ratios = [...own]
    .flatMap(([key, seconds]) => {
      const before = reference.get(key);
      return before === undefined ? [] : [seconds / before];
    })
    .sort((a, b) => a - b);
  const ratio = ratios[ratios.length >> 1];
  return ratio === undefined ? undefined : { count: ratios.length, ratio };
}
