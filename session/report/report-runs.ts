/**
 * @file Compares runs of the same workload: the best each found, how soon, and how far the machines agree on the same kernels.
 *
 *     comparisonsOf(db, trials, ...)     [{ label: "conv2d c 64 ...", runs: [{ best: 62.3 us, shared: undefined }, { ..., shared: { count: 5, ratio: 1.01 } }] }]
 */

import { candidateKey } from "../../abstraction/candidate.ts";
import { best, type Database, type EnvironmentRecord, labelOf, showRun, type TrialRecord } from "../../db/index.ts";
import { decisionValues } from "../../report/describe-candidate.ts";
import type { Comparison, RunBest, RunSummary, SharedKernels, TrialPoint } from "../../report/report-data.ts";
import { inOrder, isTimed } from "../../tuner/trials.ts";
import { groupBy, isSearched } from "./report-trials.ts";

interface Known {
  /** The runs to compare, the reference run first; when left out, all runs by their start. */
  readonly runs: readonly string[] | undefined;
  readonly indexOf: (environment: EnvironmentRecord) => number;
  readonly pointOf: (trial: TrialRecord) => TrialPoint;
}

/** Workloads with trials of two or more runs. The same computation with another number of threads is another workload. */
export function comparisonsOf(db: Database, trials: readonly TrialRecord[], known: Known): Comparison[] {
  const ofRuns = trials.filter(({ run }) => run !== undefined);
  const workloads = groupBy(ofRuns, ({ workload, conditions }) =>
    JSON.stringify([workload.computation, conditions.threads, conditions.cache]),
  );
  return workloads
    .flatMap((own): Comparison[] => {
      const runs = groupBy(own, ({ run = "" }) => run);
      const [first] = inTheirOrder(runs, known.runs);
      const workload = first?.[0]?.workload;
      if (runs.length < 2 || !first || !workload) return [];
      const medians = mediansOf(first);
      const summaries = inTheirOrder(runs, known.runs).map((group, i) =>
        summaryOf(db, group, known, i === 0 ? undefined : medians),
      );
      return [{ label: labelOf(workload), dtype: workload.dtype, runs: summaries.flatMap((s) => s ?? []) }];
    })
    .sort((a, b) => inOrder(a.label, b.label));
}

function inTheirOrder(runs: TrialRecord[][], asked: readonly string[] | undefined): TrialRecord[][] {
  if (asked === undefined) return runs;
  const placeOf = ([first]: readonly TrialRecord[]): number => asked.indexOf(first?.run ?? "");
  return runs.toSorted((a, b) => placeOf(a) - placeOf(b));
}

function summaryOf(
  db: Database,
  group: readonly TrialRecord[],
  { indexOf, pointOf }: Known,
  reference: ReadonlyMap<string, number> | undefined,
): RunSummary | undefined {
  const [first] = group;
  if (first?.run === undefined) return undefined;
  const run = showRun(db, first.run);
  const strategy = run.options["strategy"];
  const searched = group.filter(isSearched);
  return {
    id: run.id,
    environment: indexOf(first.environment),
    started: run.started,
    isImported: run.provenance === "imported",
    status: run.status,
    seed: run.seed,
    strategy: typeof strategy === "string" ? strategy : "",
    threads: first.conditions.threads,
    trials: searched.map(pointOf),
    failed: searched.filter((t) => !isTimed(t)).length,
    best: bestOfRun(db, group),
    shared: reference && sharedWith(reference, mediansOf(group)),
  };
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
