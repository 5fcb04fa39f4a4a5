/**
 * @file Learns a correction of the model from measured trials: a ridge regression of log time over the parts of the prediction.
 *
 *     log(measured / max) = scale + overlap * log(sum / max) + sum over parts of weight * sqrt(part / all parts) + traits' weights
 *
 * Without trials `overlap` is one half and the others are 0; the ridge pulls towards these values. A weight above 0 means that time spent in a
 * part is longer than the model predicts, below 0 shorter; `overlap` 1 means that nothing overlaps. Shares and ratios have no unit, so that what
 * is learnt from one operator applies to another. The square root makes a part count before it is the longest. Traits are the instruction and
 * the places of inputs: they stand for what the compiler makes of each. The fit is pure: the same trials give the same correction.
 *
 * A correction that predicts its trials no better than the model alone, each trial left out of its own fit, is not used.
 *
 * The fit is Huber's: the loss of an outlier grows with its distance rather than its square, because a kernel that shares the machine with
 * another process takes two or three times as long, from its first sample to its last.
 */

import { Matrix, solve } from "ml-matrix";
import { ascending, namesOf, sumOf, unique, upTo, withName } from "../abstraction/collections.ts";
import type { Prediction } from "../abstraction/trial.ts";

/** One part of a call's time, as if it ran alone. */
export interface CostTerm {
  /**
   * `issue`, `chain`, `front end`, `load`, `store`, `scatter`, `blocks`, `read l2`, `write l2`, ..., `fill`, `pack`, `pack memory`, `ahead`,
   * `barrier`.
   */
  readonly name: string;
  readonly seconds: number;
}

/** Numbers by name, always in the same order. */
export type Features = Readonly<Record<string, number>>;

/** The parts of a prediction before any correction. */
export interface Costs {
  readonly terms: readonly CostTerm[];
  /** The time if everything overlaps, and if nothing does. */
  readonly bounds: readonly [max: number, sum: number];
  /** Other features that a correction may distinguish: the instruction and the place of each input, `a padded`. */
  readonly traits: readonly string[];
  /** What trees were taught by, see perfmodel/learnt.ts. */
  readonly features?: Features;
  /** What they multiply the time by; 1 when left out. The parts are without it. */
  readonly factor?: number;
}

/**
 * Costs whose `fixed` parts come first; then the longest of those that are `busy` at the same time and of the `latency`, and at most the sum of
 * those that are busy.
 */
export function overlappingCosts(
  fixed: Readonly<Record<string, number>>,
  busy: Readonly<Record<string, number>>,
  latency: number,
  traits: readonly string[],
): Costs {
  const always = sumOf(Object.values(fixed));
  const parts = Object.values(busy);
  return {
    terms: Object.entries({ ...fixed, ...busy, latency }).map(([name, seconds]) => ({ name, seconds })),
    bounds: [always + Math.max(latency, ...parts), always + Math.max(latency, sumOf(parts))],
    traits,
  };
}

/** The prediction of costs at a single level, whose parts compute, read and write. */
export function gridPrediction(
  costs: Costs,
  parts: Readonly<Record<"inner" | "read" | "write", readonly string[]>>,
  clock: number,
  correction: Correction = NO_CORRECTION,
): Prediction {
  const cyclesOf = (names: readonly string[]): number =>
    Math.max(0, ...costs.terms.filter((t) => names.includes(t.name)).map((t) => t.seconds)) * clock;
  const inner = cyclesOf(parts.inner);
  const read = cyclesOf(parts.read);
  const write = cyclesOf(parts.write);
  const bound = read > inner && read > write ? "read" : write > inner ? "write" : "inner";
  return {
    seconds: apply(correction, costs),
    uncorrectedSeconds: apply(NO_CORRECTION, { ...costs, factor: 1 }),
    levels: [{ level: "grid", trips: 1, inner, read, write, bound }],
  };
}

/** One measured run with the model's parts. */
export interface Observation {
  readonly costs: Costs;
  readonly measuredSeconds: number;
}

/** Plain data that survives JSON. */
export interface Correction {
  readonly scale: number;
  readonly overlap: number;
  /** Weights by the name of a part or trait. Names that are missing weigh 0. */
  readonly weights: Readonly<Record<string, number>>;
  /** Strength of the ridge, chosen by leave-one-out cross-validation. */
  readonly ridge: number;
  readonly observations: number;
}

/**
 * The value of `overlap` before trials say more: the geometric mean of both ends. With 0, schedules that differ only in what the longest part
 * hides would have equal predictions, and chance would decide which of them is tried first. Pairs ranked right, against 0: f32 86.1 for 85.2 %,
 * u8s8 81.8 for 81.1 %, bf16 80.7 for 80.8 % (1694 trials of 22 workloads, one Xeon with AMX, 2026-11-21).
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

/** The model alone, as if all parts overlapped. */
const MODEL_ALONE: Correction = { ...NO_CORRECTION, overlap: 0 };

/**
 * Ridges tried, in units of squared coefficients: a coefficient of 1 costs as much as `ridge` trials that are wrong by a factor of e. When
 * weaker ones are offered, leave-one-out picks the weakest (0.03 of 837 trials in f32), because trials of one workload resemble each other.
 */
const RIDGES = [1, 3, 10, 30, 100];
/** The ridge of the common factor, which is learnt sooner than differences between parts. */
const SCALE_RIDGE = 0.1;
/** Largest correction factor in either direction, as a logarithm. */
const MOST = Math.log(8);
/** Residuals beyond this many standard deviations count less. The fit is 95 % as efficient as least squares on undisturbed data (Huber 1981). */
const FAR = 1.345;
/** The standard deviation of a normal distribution over the median of its absolute values. */
const DEVIATION = 1.4826;
/** Number of fits. Each is weighted by the residuals of the one before; the first weighs all alike. */
const FITS = 4;

/**
 * Fits the correction. Trials without a positive finite time are left out; with none left the prior is returned. Few trials change it little,
 * since the ridge pulls every coefficient towards the prior's. Where it does not improve on the prior or on the model alone, the better of these is
 * returned. A single trial scales the prior: kinds of candidates are compared after the first trial of each.
 * @param prior the correction learnt from other computations on the machine
 */
export function fit(trials: readonly Observation[], prior: Correction = NO_CORRECTION): Correction {
  const usable = trials.filter(
    ({ costs, measuredSeconds }) => measuredSeconds > 0 && Number.isFinite(measuredSeconds) && costs.bounds[0] > 0,
  );
  if (usable.length === 0) return prior;
  const [only, ...others] = usable;
  if (only && others.length === 0) {
    const factor = commonFactor([only.measuredSeconds / apply(prior, only.costs)]);
    return { ...prior, scale: prior.scale + Math.log(factor) };
  }
  const names = unique(
    usable.flatMap(({ costs }) => [...namesOf(costs.terms.filter((t) => t.seconds > 0)), ...costs.traits]),
  );
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
  const ratiosTo = (correction: Correction): number[] =>
    usable.map(({ costs, measuredSeconds }) => Math.log(measuredSeconds / apply(correction, costs)));
  const known = errorOf(ratiosTo(MODEL_ALONE)) < errorOf(ratiosTo(prior)) ? MODEL_ALONE : prior;
  if (best === undefined || errorOf(best.leftOut) >= errorOf(ratiosTo(known))) return known;
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
export function apply({ scale, overlap, weights }: Correction, { terms, bounds, traits, factor = 1 }: Costs): number {
  const [max, sum] = bounds;
  let all = 0;
  let weighted = 0;
  for (const { name, seconds } of terms) {
    all += seconds;
    weighted += Math.sqrt(seconds) * (weights[name] ?? 0);
  }
  let log = scale + overlap * Math.log(sum / max) + (all > 0 ? weighted / Math.sqrt(all) : 0);
  for (const trait of traits) log += weights[trait] ?? 0;
  return factor * max * Math.exp(Math.min(MOST, Math.max(-MOST, log)));
}

/** The features: 1, log(sum / max), the square root of each part's share, and for each trait whether it is present. */
function featuresOf({ terms, bounds, traits }: Costs, names: readonly string[]): number[] {
  const all = sumOf(terms, (t) => t.seconds);
  const [max, sum] = bounds;
  const feature = (name: string): number =>
    traits.includes(name) ? 1 : Math.sqrt((withName(terms, name)?.seconds ?? 0) / all);
  return [1, Math.log(sum / max), ...names.map(feature)];
}

interface Fitted {
  readonly ridge: number;
  readonly coefficients: readonly number[];
  readonly residuals: readonly number[];
  /** The residual of each trial predicted from the others. */
  readonly leftOut: readonly number[];
  /** Mean squared error of each trial predicted from the others, weighted: e / (1 - h), h from the hat matrix. */
  readonly error: number;
}

function ridgeFit(x: Matrix, y: Matrix, ridge: number, believed: readonly number[]): Fitted {
  const weighted = x.transpose().mulRowVector([...believed]);
  const penalty = Matrix.diag(upTo(x.columns).map((i) => (i === 0 ? SCALE_RIDGE : ridge)));
  const normal = weighted.mmul(x).add(penalty);
  const projection = solve(normal, weighted);
  const coefficients = projection.mmul(y);
  const residuals = Matrix.sub(y, x.mmul(coefficients)).to1DArray();
  const leftOut = residuals.map((residual, i) => {
    let hat = 0;
    for (let j = 0; j < x.columns; j++) hat += x.get(i, j) * projection.get(j, i);
    return residual / (1 - hat);
  });
  const error = leftOut.reduce((sum, residual, i) => sum + ((believed[i] ?? 1) * residual ** 2) / x.rows, 0);
  return { ridge, coefficients: coefficients.to1DArray(), residuals, leftOut, error };
}

/** The weight of each trial, at most 1: Huber's weights. */
function beliefs(residuals: readonly number[]): number[] {
  const far = FAR * DEVIATION * errorOf(residuals);
  return residuals.map((residual) => (Math.abs(residual) <= far ? 1 : far / Math.abs(residual)));
}

/**
 * The median of measured over predicted times, by which predictions are multiplied; 1 where that improves nothing. It is judged by how well the
 * factor of all other trials predicts each; a single trial is believed.
 */
export function commonFactor(ratios: readonly number[]): number {
  const sorted = ascending(ratios);
  // The median of the others is the same one, or its neighbour; without others a trial predicts itself.
  const middle = (sorted.length - 1) >> 1;
  const leftOut = sorted.map((ratio, i) => Math.log(ratio / (sorted[i <= middle ? middle + 1 : middle] ?? ratio)));
  return errorOf(leftOut) < errorOf(sorted.map(Math.log)) ? (sorted[sorted.length >> 1] ?? 1) : 1;
}

/** How far predictions are off: the median of the absolute logarithms of measured over predicted times. */
function errorOf(logarithms: readonly number[]): number {
  const sizes = ascending(logarithms.map(Math.abs));
  return sizes[sizes.length >> 1] ?? 0;
}
