/**
 * @file Statistics of run-time samples: the median, its confidence interval, and when two medians tie.
 *
 *     summarise([1.2e-5, 1.1e-5, 1.3e-5, ...], 1)      { median: 1.2e-5, interval: [1.15e-5, 1.25e-5] }
 *
 * The interval is the 95 % percentile bootstrap of the median (Efron 1979). **The tie rule:** two programs tie when
 * their intervals overlap; one is faster than the other only when its whole interval lies below.
 */

import { internal } from "../abstraction/error.ts";
import { type Random, randomInteger, seededRandom } from "../abstraction/random.ts";

type Interval = readonly [low: number, high: number];

export interface Summary {
  readonly median: number;
  readonly interval: Interval;
}

const RESAMPLES = 1000;
const CONFIDENCE = 0.95;

/** The middle sample; for an even count, the mean of the two in the middle. @throws Error if there is none */
export function median(samples: readonly number[]): number {
  return middleOf(sorted(samples));
}

/** Median and its 95 % bootstrap interval; the same seed gives the same interval. */
export function summarise(samples: readonly number[], seed: number): Summary {
  const order = sorted(samples);
  const random = seededRandom(seed);
  const medians = sorted(Array.from({ length: RESAMPLES }, () => resampledMedian(order, random)));
  return {
    median: middleOf(order),
    interval: [quantile(medians, (1 - CONFIDENCE) / 2), quantile(medians, (1 + CONFIDENCE) / 2)],
  };
}

/** Whether the intervals overlap, so that the difference may be chance. */
export function isTie(a: Summary, b: Summary): boolean {
  return a.interval[0] <= b.interval[1] && b.interval[0] <= a.interval[1];
}

/** `a` relative to `b`, by the tie rule. */
export function compareTimes(a: Summary, b: Summary): "faster" | "tie" | "slower" {
  if (isTie(a, b)) return "tie";
  return a.interval[1] < b.interval[0] ? "faster" : "slower";
}

/**
 * The ratio of `a` to `b`, from alternating samples (A B A B): the median of the ratios of neighbours, in which slow
 * drift of the machine cancels.
 */
export function summariseRatio(a: readonly number[], b: readonly number[], seed: number): Summary {
  const pairs = Math.min(a.length, b.length);
  return summarise(
    Array.from({ length: pairs }, (_, i) => (a[i] ?? 0) / (b[i] ?? 1)),
    seed,
  );
}

/**
 * The difference of `a` and `b`, from samples taken separately: the difference of their medians, each resampled
 * independently.
 */
export function summariseDifference(a: readonly number[], b: readonly number[], seed: number): Summary {
  const left = sorted(a);
  const right = sorted(b);
  const random = seededRandom(seed);
  const differences = sorted(
    Array.from({ length: RESAMPLES }, () => resampledMedian(left, random) - resampledMedian(right, random)),
  );
  return {
    median: middleOf(left) - middleOf(right),
    interval: [quantile(differences, (1 - CONFIDENCE) / 2), quantile(differences, (1 + CONFIDENCE) / 2)],
  };
}

/**
 * The median of a resample of equal size, drawn with replacement. Ranks are drawn instead of values, since sorted ranks
 * give sorted values.
 */
function resampledMedian(order: Float64Array, random: Random): number {
  const counts = new Uint32Array(order.length);
  order.forEach(() => {
    const place = randomInteger(random, 0, order.length - 1);
    counts[place] = (counts[place] ?? 0) + 1;
  });
  const lower = Math.floor((order.length - 1) / 2);
  const upper = Math.ceil((order.length - 1) / 2);
  let seen = 0;
  let low: number | undefined;
  for (const [place, count] of counts.entries()) {
    seen += count;
    if (low === undefined && seen > lower) low = order[place];
    if (low !== undefined && seen > upper) return (low + (order[place] ?? low)) / 2;
  }
  internal("a resample without a middle");
}

function sorted(samples: readonly number[]): Float64Array {
  return Float64Array.from(samples).sort();
}

function middleOf(order: Float64Array): number {
  return quantile(order, 0.5);
}

/** Interpolates linearly between the two nearest ranks. */
function quantile(order: Float64Array, fraction: number): number {
  const rank = fraction * (order.length - 1);
  const low = order[Math.floor(rank)];
  const high = order[Math.ceil(rank)];
  if (low === undefined || high === undefined) throw new Error("statistics: there are no samples");
  return low + (high - low) * (rank - Math.floor(rank));
}
