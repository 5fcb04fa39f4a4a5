/**
 * @file The verdict on how reliable a set of measurements is. The search, the report and the doctor all ask for it here.
 *
 *     noiseVerdict({ widths: [0.001], loads: [0.79] }).verdict      "noisy": steady times, beside programs that took most of the processor
 */

import { ascending } from "./collections.ts";

export const NOISE_VERDICTS = ["quiet", "usable", "noisy", "unknown"] as const;
export type NoiseVerdict = (typeof NOISE_VERDICTS)[number];

/** What was seen of a set of measurements. Each list may be empty but `widths`, which has one entry for each measurement. */
interface SignsOfNoise {
  /** Widths of the 95 % intervals, as shares of the medians. */
  readonly widths: readonly number[];
  /** How much the times drifted within a measurement, as shares. */
  readonly drifts?: readonly number[];
  /** How much the times of one kernel that was measured several times differ, as shares. */
  readonly repeats?: readonly number[];
  /** Shares of the processor that other programs took. */
  readonly loads?: readonly number[];
  /** How many measurements were made on a GPU whose clock was throttled. */
  readonly throttled?: number;
}

interface JudgedNoise {
  readonly verdict: NoiseVerdict;
  /** Half of the measurements are good to this share, by their times alone. */
  readonly half: number;
  /** Nine in ten are good to this share. */
  readonly most: number;
  /** The loads that are more than the operating system's own. */
  readonly disturbed: readonly number[];
}

/** Limits of the shares: for half of the measurements, and for nine in ten. */
interface Limits {
  readonly half: number;
  readonly most: number;
}

const QUIET: Limits = { half: 0.01, most: 0.05 };
const USABLE: Limits = { half: 0.05, most: 0.2 };
/** Below this share, the load of other programs is that of the operating system itself. */
const OWN_LOAD = 0.03;
/** Other programs that take a larger share disturb what is measured. */
export const DISTURBING_LOAD = 0.1;
const USABLE_LOAD: Limits = { half: DISTURBING_LOAD, most: 0.5 };

/** Judges by the times, and by what is known to disturb them: steady times beside other programs are no sign of a quiet machine. */
export function noiseVerdict(signs: SignsOfNoise): JudgedNoise {
  const { widths, drifts = [], repeats = [], loads = [], throttled = 0 } = signs;
  const times = [widths, drifts, repeats];
  const half = Math.max(...times.map((of) => quantile(of, 0.5)));
  const most = Math.max(...times.map((of) => quantile(of, 0.9)));
  const isWithin = (limits: Limits): boolean => half < limits.half && most < limits.most;
  const isLoadUsable = quantile(loads, 0.5) < USABLE_LOAD.half && quantile(loads, 0.9) < USABLE_LOAD.most;
  const isUndisturbed = quantile(loads, 0.5) <= OWN_LOAD && Math.max(0, ...loads) <= DISTURBING_LOAD && throttled === 0;
  const verdictOf = (): NoiseVerdict => {
    if (widths.length === 0) return "unknown";
    if (isWithin(QUIET) && isUndisturbed) return "quiet";
    return isWithin(USABLE) && isLoadUsable ? "usable" : "noisy";
  };
  return { verdict: verdictOf(), half, most, disturbed: loads.filter((load) => load > OWN_LOAD) };
}

/** The quantile at a share; 0 for an empty list. */
export function quantile(values: readonly number[], share: number): number {
  const sorted = ascending(values);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0;
}
