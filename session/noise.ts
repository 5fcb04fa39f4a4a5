/**
 * @file The noise of a set of trials, computed from their raw samples.
 *
 *     interval    how wide the 95 % interval of a median is, as a share of it
 *     drift       the median of the second half of a trial's batches over that of the first: a machine that heats, or is shared
 *     again       the same candidate measured again, in finals or in another run: what the samples of one measurement cannot see
 */

import { candidateKey } from "../abstraction/candidate.ts";
import type { TrialRecord } from "../db/index.ts";
import type { Noise } from "../report/report-data.ts";
import { percent } from "../report/text.ts";

/** Limits of a quiet set: widths, drifts and repeats must be below `half` for half of the trials, and below `most` for nine in ten. */
const QUIET = { half: 0.01, most: 0.05 };
const USABLE = { half: 0.05, most: 0.2 };

export function noiseOf(trials: readonly TrialRecord[]): Noise {
  const timed = trials.flatMap(({ measurement: m }) => (m.status === "ok" ? [m] : []));
  if (timed.length === 0) return { verdict: "unknown", meaning: "no trial was timed", facts: [] };
  const widths = timed.map(({ interval: [low, high], median }) => (high - low) / median);
  const drifts = timed.flatMap(({ samples }) => (samples.length < 8 ? [] : [Math.abs(driftOf(samples))]));
  const repeats = repeatsOf(trials);
  const worst = (share: number): number => Math.max(...[widths, drifts, repeats].map((of) => quantile(of, share)));
  const within = ({ half, most }: typeof QUIET): boolean => worst(0.5) < half && worst(0.9) < most;
  const verdict = within(QUIET) ? "quiet" : within(USABLE) ? "usable" : "noisy";
  const row = (name: string, values: readonly number[], remark: string): readonly [string, string, string] => [
    name,
    values.length === 0
      ? "none"
      : `${percent(quantile(values, 0.5))}, nine in ten below ${percent(quantile(values, 0.9))}`,
    `${remark} (${values.length})`,
  ];
  return {
    verdict,
    meaning: `half of the trials are good to ${percent(worst(0.5))}, nine in ten to ${percent(worst(0.9))}; smaller differences are noise`,
    facts: [
      row("width of the 95 % interval", widths, "of the median, trials"),
      row("drift within a trial", drifts, "second half of its batches against the first, trials of 8 batches or more"),
      row(
        "measured again",
        repeats,
        "the same kernel in finals or in another run, slowest over fastest, less 1; kernels",
      ),
    ],
  };
}

/** How a GPU's clock varied while trials were timed; empty when no clock was recorded. */
export function clockFacts(trials: readonly TrialRecord[]): Noise["facts"] {
  const clocks = trials.flatMap(({ conditions, measurement }) =>
    conditions.clock && measurement.status === "ok" ? [conditions.clock] : [],
  );
  if (clocks.length === 0) return [];
  const hertz = clocks.map((c) => c.hertz);
  const megahertz = (share: number): string => `${(quantile(hertz, share) / 1e6).toFixed(0)} MHz`;
  const throttled = clocks.filter((c) => c.throttled.length > 0);
  const why = [...new Set(throttled.flatMap((c) => c.throttled))].join(", ");
  return [
    ["clock of the GPU", `${megahertz(0.5)}, from ${megahertz(0)} to ${megahertz(1)}`, `trials (${clocks.length})`],
    [
      "throttled while timed",
      throttled.length === 0 ? "none" : `${percent(throttled.length / clocks.length)}: ${why}`,
      `trials (${clocks.length})`,
    ],
  ];
}

function driftOf(samples: readonly number[]): number {
  const half = samples.length >> 1;
  return quantile(samples.slice(half), 0.5) / quantile(samples.slice(0, half), 0.5) - 1;
}

function repeatsOf(trials: readonly TrialRecord[]): number[] {
  const medians = new Map<string, number[]>();
  for (const { workload, environment, conditions, candidate, measurement: m } of trials) {
    if (m.status !== "ok") continue;
    const { threads, cache } = conditions;
    const key = JSON.stringify([workload.computation, environment.id, threads, cache, candidateKey(candidate)]);
    medians.set(key, [...(medians.get(key) ?? []), m.median]);
  }
  return [...medians.values()].flatMap((all) => (all.length < 2 ? [] : [Math.max(...all) / Math.min(...all) - 1]));
}

/** The quantile at a share; 0 for an empty list. */
function quantile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0;
}
