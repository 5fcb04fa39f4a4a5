/**
 * @file What measured trials teach the model: a ridge regression of log time over the parts of the prediction.
 *
 *     log(measured / max) = scale + overlap * log(sum / max) + sum over parts of weight * sqrt(part / all parts) + traits' weights
 *
 * Without trials `overlap` is one half, the others 0, and to these the ridge draws them. A weight says that time spent in a part is longer
 * (above 0) or shorter than the model believes; `overlap` 1 says that nothing overlaps. Shares and ratios have no unit, so what
 * one operator teaches serves another; under the root a part need not be the longest to be noticed. Traits are the instruction and where
 * inputs lie: what the compiler makes of each. Pure: the same trials give the same correction.
 *
 * The fit is Huber's: a trial that is far off counts by its distance and not by its square, for while another process runs beside
 * it a kernel takes two or three times as long, from its first sample to its last.
 */

import { Matrix, solve } from "ml-matrix";

/** One part of the time of a call, were it alone. */
export interface CostTerm {
  /** `issue`, `chain`, `front end`, `load`, `store`, `scatter`, `blocks`, `read l2`, `write l2`, ..., `fill`, `pack`, `pack memory`, `barrier`. */
  readonly name: string;
  readonly seconds: number;
}

/** The parts of a prediction before any correction. */
export interface Costs {
  readonly terms: readonly CostTerm[];
  /** Everything overlaps; nothing does. */
  readonly bounds: readonly [max: number, sum: number];
  /** What a correction may tell apart besides: the instruction and where each input lies, `a padded`. */
  readonly traits: readonly string[];
}

/** One measured run and what the model said its parts are. */
export interface Observation {
  readonly costs: Costs;
  readonly measuredSeconds: number;
}

/** Plain data that survives JSON. */
export interface Correction {
  readonly scale: number;
  readonly overlap: number;
  /** By name of the part or the trait; what is not named weighs 0. */
  readonly weights: Readonly<Record<string, number>>;
  /** Strength of the ridge, chosen by leaving one out. */
  readonly ridge: number;
  readonly observations: number;
}

/**
 * What `overlap` is before trials say more: the geometric mean of the two ends. With 0, schedules that differ only in what the longest
 * part hides are expected to take the same, and which of them are tried first is chance. Pairs it ranks right, against 0: f32 86.1 for
 * 85.2 %, u8s8 81.8 for 81.1 %, bf16 80.7 for 80.8 % (1694 trials of 22 workloads, one Xeon with AMX, 2026-11-21).
 */
const UNLEARNT_OVERLAP = 0.5;

/** The correction before any trial. */
export const NO_CORRECTION: Correction = {
  scale: 0,
  overlap: UNLEARNT_OVERLAP,
  weights: {},
  ridge: Number.MAX_VALUE,
  observations: 0,
};

/**
 * Ridges tried, in units of squared coefficients: a coefficient of 1 costs as much as `ridge` trials that are e-fold wrong. Offered
 * weaker ones, leaving one trial out picks the weakest (0.03 of 837 trials in f32): trials of one workload resemble each other.
 */
const RIDGES = [1, 3, 10, 30, 100];
/** A common factor is believed sooner than a difference between parts. */
const SCALE_RIDGE = 0.1;
/** No correction goes beyond this factor either way. */
const MOST = Math.log(8);
/** Residuals beyond so many standard deviations count less: 95 % as efficient as least squares where nothing is disturbed (Huber 1981). */
const FAR = 1.345;
/** The standard deviation of a normal distribution over the median of its absolute values. */
const DEVIATION = 1.4826;
/** Fits, each weighing by the residuals of the one before; the first weighs all alike. */
const FITS = 4;

/**
 * Fits the correction. Trials without a positive finite time are left out; without any left the prior stands.
 * Few trials move it little: the ridge pulls every coefficient towards the prior's.
 * @param prior what trials of other computations on the machine have taught
 */
export function fit(trials: readonly Observation[], prior: Correction = NO_CORRECTION): Correction {
  const usable = trials.filter(
    ({ costs, measuredSeconds }) => measuredSeconds > 0 && Number.isFinite(measuredSeconds) && costs.bounds[0] > 0,
  );
  if (usable.length === 0) return prior;
  const names = [
    ...new Set(
      usable.flatMap(({ costs }) => [...costs.terms.filter((t) => t.seconds > 0).map((t) => t.name), ...costs.traits]),
    ),
  ];
  names.sort();
  const x = new Matrix(usable.map(({ costs }) => featuresOf(costs, names)));
  const y = Matrix.columnVector(
    usable.map(({ costs, measuredSeconds }) => Math.log(measuredSeconds / apply(prior, costs))),
  );
  let believed = usable.map(() => 1);
  let best: Fitted | undefined;
  for (let turn = 0; turn < FITS; turn++) {
    const solved = RIDGES.map((ridge) => ridgeFit(x, y, ridge, believed));
    best = solved.reduce((a, b) => (b.error < a.error ? b : a));
    believed = beliefs(best.residuals);
  }
  if (best === undefined) return prior;
  const [scale = 0, overlap = 0, ...weights] = best.coefficients;
  return {
    scale: prior.scale + scale,
    overlap: prior.overlap + overlap,
    weights: {
      ...prior.weights,
      ...Object.fromEntries(names.map((name, i) => [name, (prior.weights[name] ?? 0) + (weights[i] ?? 0)])),
    },
    ridge: best.ridge,
    observations: usable.length,
  };
}

/** Corrected seconds. */
export function apply({ scale, overlap, weights }: Correction, { terms, bounds, traits }: Costs): number {
  const [max, sum] = bounds;
  let all = 0;
  let weighted = 0;
  for (const { name, seconds } of terms) {
    all += seconds;
    weighted += Math.sqrt(seconds) * (weights[name] ?? 0);
  }
  let log = scale + overlap * Math.log(sum / max) + (all > 0 ? weighted / Math.sqrt(all) : 0);
  for (const trait of traits) log += weights[trait] ?? 0;
  return max * Math.exp(Math.min(MOST, Math.max(-MOST, log)));
}

/** 1, log(sum / max), and the root of each part's share or whether the trait is there. */
function featuresOf({ terms, bounds, traits }: Costs, names: readonly string[]): number[] {
  const all = terms.reduce((sum, t) => sum + t.seconds, 0);
  const [max, sum] = bounds;
  const feature = (name: string): number =>
    traits.includes(name) ? 1 : Math.sqrt((terms.find((t) => t.name === name)?.seconds ?? 0) / all);
  return [1, Math.log(sum / max), ...names.map(feature)];
}

interface Fitted {
  readonly ridge: number;
  readonly coefficients: readonly number[];
  readonly residuals: readonly number[];
  /** The mean squared error of each trial predicted from the others, as far as it is believed: e / (1 - h), h of the hat matrix. */
  readonly error: number;
}

function ridgeFit(x: Matrix, y: Matrix, ridge: number, believed: readonly number[]): Fitted {
  const weighted = x.transpose().mulRowVector([...believed]);
  const penalty = Matrix.diag(Array.from({ length: x.columns }, (_, i) => (i === 0 ? SCALE_RIDGE : ridge)));
  const normal = weighted.mmul(x).add(penalty);
  const projection = solve(normal, weighted);
  const coefficients = projection.mmul(y);
  const residuals = Matrix.sub(y, x.mmul(coefficients)).to1DArray();
  let error = 0;
  for (const [i, residual] of residuals.entries()) {
    let hat = 0;
    for (let j = 0; j < x.columns; j++) hat += x.get(i, j) * projection.get(j, i);
    error += ((believed[i] ?? 1) * (residual / (1 - hat)) ** 2) / x.rows;
  }
  return { ridge, coefficients: coefficients.to1DArray(), residuals, error };
}

/** How far each trial is believed, from 1 downwards: Huber's weights. */
function beliefs(residuals: readonly number[]): number[] {
  const sizes = residuals.map(Math.abs).sort((a, b) => a - b);
  const far = FAR * DEVIATION * (sizes[sizes.length >> 1] ?? 0);
  return residuals.map((residual) => (Math.abs(residual) <= far ? 1 : far / Math.abs(residual)));
}
