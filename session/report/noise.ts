/**
 * @file The noise of a set of trials, computed from their raw samples and the conditions they were measured under.
 *
 *     interval    how wide the 95 % interval of a median is, as a share of it
 *     drift       the median of the second half of a trial's batches over that of the first: a machine that heats, or is shared
 *     again       the same candidate measured again, in finals or in another run: what the samples of one measurement cannot see
 *     taken       the share of the processor that other programs took
 */

import { candidateKey } from "../../abstraction/candidate.ts";
import { unique } from "../../abstraction/collections.ts";
import { noiseVerdict, quantile } from "../../abstraction/noise.ts";
import type { TrialRecord } from "../../db/index.ts";
import type { Noise } from "../../report/report-data.ts";
import { counted, percent } from "../../report/text.ts";
import { isTimed } from "../../tuner/trials.ts";
import { groupBy, type TimedRecord } from "./report-trials.ts";

export function noiseOf(trials: readonly TrialRecord[]): Noise {
  const timed = trials.filter(isTimed);
  if (timed.length === 0) return { verdict: "unknown", meaning: "no trial was timed", facts: [] };
  const widths = timed.map(({ measurement: { interval, median } }) => (interval[1] - interval[0]) / median);
  const drifts = timed.flatMap(({ measurement: { samples } }) =>
    samples.length < 8 ? [] : [Math.abs(driftOf(samples))],
  );
  const repeats = repeatsOf(timed);
  const loads = timed.flatMap(({ conditions }) => conditions.load ?? []);
  const clocks = timed.flatMap(({ conditions }) => conditions.clock ?? []);
  const throttled = clocks.filter((clock) => clock.throttled.length > 0);
  const judged = noiseVerdict({ widths, drifts, repeats, loads, throttled: throttled.length });
  const row = (name: string, values: readonly number[], remark: string): readonly [string, string, string] => [
    name,
    values.length === 0
      ? "none"
      : `${percent(quantile(values, 0.5))}, nine in ten below ${percent(quantile(values, 0.9))}`,
    `${remark} (${values.length})`,
  ];
  return {
    verdict: judged.verdict,
    meaning: [
      `half of the trials are good to ${percent(judged.half)}, nine in ten to ${percent(judged.most)}`,
      "smaller differences are noise",
      ...loadText(judged.disturbed, loads.length),
      ...(throttled.length === 0
        ? []
        : [`the GPU's clock was throttled in ${throttled.length} of ${counted(clocks.length, "trial")}`]),
    ].join("; "),
    facts: [
      row("width of the 95 % interval", widths, "of the median, trials"),
      row("drift within a trial", drifts, "second half of its batches against the first, trials of 8 batches or more"),
      row(
        "measured again",
        repeats,
        "the same kernel in finals or in another run, slowest over fastest, less 1; kernels",
      ),
      row("taken by other programs", loads, "of the processors that a trial ran on, trials"),
    ],
  };
}

/** How much of the processor other programs took, where they took more than the operating system itself does. */
function loadText(disturbed: readonly number[], of: number): string[] {
  if (disturbed.length === 0) return [];
  const were = disturbed.length === 1 ? "was" : "were";
  return [
    `other programs took up to ${percent(Math.max(...disturbed))} of the processor while ${disturbed.length} of ${counted(of, "kernel")} ${were} timed: those times say less`,
  ];
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
  const why = unique(throttled.flatMap((c) => c.throttled)).join(", ");
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

function repeatsOf(trials: readonly TimedRecord[]): number[] {
  const same = groupBy(trials, ({ workload, environment, conditions: { threads, cache }, candidate }) =>
    JSON.stringify([workload.computation, environment.id, threads, cache, candidateKey(candidate)]),
  );
  return same.flatMap((trials) => {
    const all = trials.map(({ measurement }) => measurement.median);
    return all.length < 2 ? [] : [Math.max(...all) / Math.min(...all) - 1];
  });
}
