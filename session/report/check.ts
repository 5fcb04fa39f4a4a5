/**
 * @file The gate: the best of each workload in one set of trials against the best in another.
 *
 *     before |--a--|                 allowed 3 %
 *     after      |--b--|             same: the intervals overlap
 *     after            |--c--|       slower: c begins above the end of a by more than 3 %
 *
 * A workload is a computation with its threads, cache state and CPU. Other fields of the environment may differ, as they do between
 * two versions of a compiler or of automap; which ones is told.
 *
 * What was measured here comes before what was imported, whatever that claims. A baseline is named by the user and may come from elsewhere. Of what
 * is checked, a workload that has imported records alone is missing, unless imported records are trusted in this call.
 */

import { unique } from "../../abstraction/collections.ts";
import { environmentDifferences, type TrialRecord, type WorkloadRecord } from "../../db/index.ts";

export interface CheckOptions {
  /** Allowed slowdown as a fraction: 0.03. */
  readonly maxRegression: number;
  /** Whether a workload of which nothing was measured here is judged by imported records. */
  readonly trustImported?: boolean;
}

export type Verdict = "slower" | "faster" | "same" | "failing" | "missing" | "new";

/** The verdict on one workload. */
export interface Finding {
  /** What is computed. */
  readonly workload: WorkloadRecord;
  /** Threads of the kernel. */
  readonly threads: number;
  /** Whether its data was in the caches. */
  readonly cache: "warm" | "flushed";
  /** The CPU on which both were measured. */
  readonly cpu: string;
  /** The verdict that the intervals support. */
  readonly verdict: Verdict;
  /** The best trial before, or the last one when all failed. */
  readonly before: TrialRecord | undefined;
  /** The best trial now; undefined when it is missing. */
  readonly after: TrialRecord | undefined;
  /** Time now divided by time before, and the range that both intervals allow; undefined unless both sides have a time. */
  readonly change: { readonly ratio: number; readonly interval: readonly [number, number] } | undefined;
  /** Fields of the environment that differ. */
  readonly changed: readonly string[];
}

/** What a comparison of two databases found. */
export interface Checked {
  /** The findings, worst first. */
  readonly findings: readonly Finding[];
  /** Workloads measured on both sides. */
  readonly compared: number;
}

const ORDER: readonly Verdict[] = ["slower", "failing", "missing", "faster", "same", "new"];

/**
 * Compares the best trials of `after` with those of `before`, workload by workload. Imported trials of `after` count with `trustImported` only;
 * `maxRegression` is the share by which a time may grow: 0.05 is 5 %.
 */
export function compareBest(
  before: readonly TrialRecord[],
  after: readonly TrialRecord[],
  { maxRegression, trustImported = false }: CheckOptions,
): Checked {
  const old = bestOf(before);
  const now = bestOf(trustImported ? after : after.filter(({ provenance }) => provenance === "here"));
  const keys = unique([...old.keys(), ...now.keys()]);
  const findings = keys.flatMap((key): Finding[] => {
    const a = old.get(key);
    const b = now.get(key);
    const one = a ?? b;
    if (!one) return [];
    const change = changeOf(a, b);
    return [
      {
        workload: one.workload,
        threads: one.conditions.threads,
        cache: one.conditions.cache,
        cpu: one.environment.cpu,
        verdict: verdictOf(a, b, change, maxRegression),
        before: a,
        after: b,
        change,
        changed: a && b ? environmentDifferences(a.environment, b.environment).map(({ field }) => field) : [],
      },
    ];
  });
  findings.sort(
    (x, y) => ORDER.indexOf(x.verdict) - ORDER.indexOf(y.verdict) || (y.change?.ratio ?? 0) - (x.change?.ratio ?? 0),
  );
  return { findings, compared: findings.filter((f) => f.before && f.after).length };
}

/** Whether a finding fails the build. */
export function verdictFails({ verdict }: Finding, { requireAll }: { readonly requireAll: boolean }): boolean {
  return verdict === "slower" || verdict === "failing" || (verdict === "missing" && requireAll);
}

/**
 * For each workload, the trial with the smallest median among the best of its environments, or the last trial when all failed: of those measured
 * here, or where there are none of those imported.
 */
function bestOf(trials: readonly TrialRecord[]): Map<string, TrialRecord> {
  const best = new Map<string, TrialRecord>();
  for (const trial of trials) {
    const { workload, conditions, environment } = trial;
    const key = JSON.stringify([workload.computation, conditions.threads, conditions.cache, environment.cpu]);
    const so = best.get(key);
    if (!so || isBetter(trial, so)) best.set(key, trial);
  }
  return best;
}

function isBetter(a: TrialRecord, b: TrialRecord): boolean {
  if (a.provenance !== b.provenance) return a.provenance === "here";
  if (a.measurement.status !== "ok") return b.measurement.status !== "ok" && a.at > b.at;
  return b.measurement.status !== "ok" || a.measurement.median < b.measurement.median;
}

function changeOf(a: TrialRecord | undefined, b: TrialRecord | undefined): Finding["change"] {
  if (a?.measurement.status !== "ok" || b?.measurement.status !== "ok") return undefined;
  const x = a.measurement;
  const y = b.measurement;
  return {
    ratio: y.median / x.median,
    interval: [y.interval[0] / x.interval[1], y.interval[1] / x.interval[0]],
  };
}

function verdictOf(
  a: TrialRecord | undefined,
  b: TrialRecord | undefined,
  change: Finding["change"],
  maxRegression: number,
): Verdict {
  if (!b) return "missing";
  if (!a) return "new";
  // A workload that never worked cannot regress; one that works now is new.
  if (a.measurement.status !== "ok") return b.measurement.status === "ok" ? "new" : "same";
  if (!change) return "failing";
  if (change.interval[0] > 1 + maxRegression) return "slower";
  return change.interval[1] < 1 ? "faster" : "same";
}
