/** @file Prints a prediction level by level, so that a reader sees where the cycles go. */

import type { Prediction } from "../abstraction/trial.ts";
import type { Costs } from "./correct.ts";

/**
 * A prediction as text.
 *
 *     level            trips         inner        read       write   bound
 *     registers          720          11.2         6.6         0.2   inner
 *     l1                   2        8072.2       397.8       124.0   inner
 *     234 us
 *
 * @param costs the parts of the time, to be shown too
 */
export function explainPrediction(prediction: Prediction, costs?: Costs): string {
  const rows = prediction.levels.map(({ level, trips, inner, read, write, bound }) =>
    row(level, whole(trips), fixed(inner), fixed(read), fixed(write), bound),
  );
  const { seconds, uncorrectedSeconds } = prediction;
  const corrected = seconds === uncorrectedSeconds ? "" : ` (${duration(uncorrectedSeconds)} before correction)`;
  const parts = costs?.terms
    .filter((t) => t.seconds > 0)
    .map((t) => `  ${t.name.padEnd(12)} ${duration(t.seconds).padStart(12)}`);
  const bounds = costs
    ? [`  between ${duration(costs.bounds[0])} (all overlaps) and ${duration(costs.bounds[1])} (nothing does)`]
    : [];
  return [
    row("level", "trips", "inner", "read", "write", "bound"),
    ...rows,
    "cycles of a level = trips * max(inner, read, write), each trip a call of the level inside",
    duration(seconds) + corrected,
    ...(parts ?? []),
    ...bounds,
  ].join("\n");
}

function row(level: string, trips: string, inner: string, read: string, write: string, bound: string): string {
  return `${level.padEnd(10)}${trips.padStart(12)}${inner.padStart(14)}${read.padStart(12)}${write.padStart(12)}   ${bound}`;
}

function whole(n: number): string {
  return Number.isInteger(n) ? String(n) : n.toFixed(1);
}

function fixed(cycles: number): string {
  return cycles.toFixed(1);
}

function duration(seconds: number): string {
  if (seconds >= 1) return `${seconds.toPrecision(3)} s`;
  if (seconds >= 1e-3) return `${(seconds * 1e3).toPrecision(3)} ms`;
  return `${(seconds * 1e6).toPrecision(3)} us`;
}
