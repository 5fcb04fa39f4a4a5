/**
 * @file What measured trials teach the model: a ridge regression of log time over the parts of the prediction.
 *
 *     log(measured / max) = scale + overlap * log(sum / max) + sum over parts of weight * share        share = part / all parts
 *
 * Without trials `overlap` is one half, the others 0, and to these the ridge draws them. A weight says that time spent in a part is longer
 * (above 0) or shorter than the model believes; `overlap` 1 says that nothing overlaps. Shares and ratios have no unit, so what
 * one operator teaches serves another. Pure: the same trials give the same correction.
 */

import { Matrix, solve } from "ml-matrix";
import type { Costs } from "./model.ts";

/** One measured run and what the model said its parts are. */
export interface Observation {
  readonly costs: Costs;
  readonly measuredSeconds: number;
}

/** Plain data that survives JSON. */
export interface Correction {
  readonly scale: number;
  readonly overlap: number;
  /** By name of the part; parts that are not named weigh 0. */
  readonly weights: Readonly<Record<string, number>>;
  /** Strength of the ridge, chosen by leaving one out. */
  readonly ridge: number;
  readonly observations: number;
}

/**
 * What `overlap` is before trials say more: the geometric mean of the two ends. With 0, schedules that differ only in what the longest
 * part hides are expected to take the same, and which of them are tried first is chance. It ranks the first trials of a search better
 * for every type (bf16 77.4 to 77.7, f32 82.3 to 84.7, u8s8 75.3 to 76.8 % of pairs: 1694 trials of 22 workloads, one Xeon with AMX,
 * 2026-11-21); 0.75 is as good.
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

/** Ridges tried, in units of squared coefficients: a coefficient of 1 costs as much as `ridge` trials that are e-fold wrong. */
const RIDGES = [0.03, 0.1, 0.3, 1, 3, 10];
/** A common factor is believed sooner than a difference between parts. */
const SCALE_RIDGE = 0.1;
/** No correction goes beyond this factor either way. */
const MOST = Math.log(8);

/**
 * Fits the correction. Trials without a positive finite time are left out; without any left nothing is corrected.
 * Few trials move it little: the ridge pulls every coefficient towards what it is without any.
 */
export function fit(trials: readonly Observation[]): Correction {
  const usable = trials.filter(
    ({ costs, measuredSeconds }) => measuredSeconds > 0 && Number.isFinite(measuredSeconds) && costs.bounds[0] > 0,
  );
  if (usable.length === 0) return NO_CORRECTION;
  const names = [
    ...new Set(usable.flatMap(({ costs }) => costs.terms.filter((t) => t.seconds > 0).map((t) => t.name))),
  ];
  names.sort();
  const x = new Matrix(usable.map(({ costs }) => featuresOf(costs, names)));
  const y = Matrix.columnVector(
    usable.map(({ costs: { bounds }, measuredSeconds }) => {
      const [max, sum] = bounds;
      return Math.log(measuredSeconds / max) - UNLEARNT_OVERLAP * Math.log(sum / max);
    }),
  );
  let best: { ridge: number; error: number; coefficients: number[] } | undefined;
  for (const ridge of RIDGES) {
    const solved = ridgeFit(x, y, ridge);
    if (best === undefined || solved.error < best.error) best = { ridge, ...solved };
  }
  if (best === undefined) return NO_CORRECTION;
  const [scale = 0, overlap = 0, ...weights] = best.coefficients;
  return {
    scale,
    overlap: UNLEARNT_OVERLAP + overlap,
    weights: Object.fromEntries(names.map((name, i) => [name, weights[i] ?? 0])),
    ridge: best.ridge,
    observations: usable.length,
  };
}

/** Corrected seconds. */
export function apply({ scale, overlap, weights }: Correction, { terms, bounds }: Costs): number {
  const [max, sum] = bounds;
  let all = 0;
  let weighted = 0;
  for (const { name, seconds } of terms) {
    all += seconds;
    weighted += seconds * (weights[name] ?? 0);
  }
  const log = scale + overlap * Math.log(sum / max) + (all > 0 ? weighted / all : 0);
  return max * Math.exp(Math.min(MOST, Math.max(-MOST, log)));
}

/** 1, log(sum / max), and the share of each part. */
function featuresOf({ terms, bounds }: Costs, names: readonly string[]): number[] {
  const all = terms.reduce((sum, t) => sum + t.seconds, 0);
  const [max, sum] = bounds;
  const share = (name: string): number => (terms.find((t) => t.name === name)?.seconds ?? 0) / all;
  return [1, Math.log(sum / max), ...names.map(share)];
}

/** Coefficients, and the mean squared error of each trial predicted from the others: e / (1 - h), h of the hat matrix. */
function ridgeFit(x: Matrix, y: Matrix, ridge: number): { error: number; coefficients: number[] } {
  const transposed = x.transpose();
  const penalty = Matrix.diag(Array.from({ length: x.columns }, (_, i) => (i === 0 ? SCALE_RIDGE : ridge)));
  const normal = transposed.mmul(x).add(penalty);
  const projection = solve(normal, transposed);
  const coefficients = projection.mmul(y).to1DArray();
  const hat = x.mmul(projection);
  const residual = Matrix.sub(y, hat.mmul(y));
  let error = 0;
  for (let i = 0; i < x.rows; i++) error += (residual.get(i, 0) / (1 - hat.get(i, i))) ** 2 / x.rows;
  return { error, coefficients };
}
