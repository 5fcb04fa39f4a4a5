/**
 * @file The functions of floats in double precision, as the interpreter computes them.
 *
 *     erf(0.5) = 0.5204998778130465
 *
 * JavaScript has all of them but the error function, and powers of 1 as C has them.
 */

import type { FloatFunction } from "./expression.ts";

export const FLOAT_VALUES: Readonly<Record<FloatFunction, (x: number, y: number) => number>> = {
  exp: Math.exp,
  log: Math.log,
  sqrt: Math.sqrt,
  tanh: Math.tanh,
  erf,
  sin: Math.sin,
  cos: Math.cos,
  atan: Math.atan,
  asinh: Math.asinh,
  pow: power,
  floor: Math.floor,
  ceil: Math.ceil,
};

/** As C has it, where a power of 1 and a power 0 are 1, whatever the other number is; of JavaScript, 1^NaN and 1^Infinity are NaN. */
function power(x: number, y: number): number {
  return x === 1 || (x === -1 && Math.abs(y) === Number.POSITIVE_INFINITY) ? 1 : x ** y;
}

/** Below this the power series is summed; above it the continued fraction of the complement converges faster. */
const SERIES_BELOW = 2.5;
/** From here on the complement is less than half the spacing of doubles at 1, so the result is 1. */
const ONE_ABOVE = 6;
const FRACTION_TERMS = 60;

/** The error function, to within a few units in the last place. Abramowitz and Stegun, 7.1.6 and 7.1.14. */
export function erf(x: number): number {
  const size = Math.abs(x);
  if (Number.isNaN(x) || size === 0) return x;
  if (size >= ONE_ABOVE) return Math.sign(x);
  if (size < SERIES_BELOW) {
    // 2/sqrt(pi) * exp(-x^2) * sum of 2^n x^(2n+1) / (1*3*...*(2n+1)): all terms have one sign.
    let term = size;
    let sum = size;
    for (let n = 1; term > sum * Number.EPSILON; n++) {
      term *= (2 * size * size) / (2 * n + 1);
      sum += term;
    }
    return (Math.sign(x) * 2 * Math.exp(-size * size) * sum) / Math.sqrt(Math.PI);
  }
  // x + (1/2)/(x + 1/(x + (3/2)/(x + ...))), from the inside out.
  let fraction = size;
  for (let k = FRACTION_TERMS; k >= 1; k--) fraction = size + k / 2 / fraction;
  return Math.sign(x) * (1 - Math.exp(-size * size) / (fraction * Math.sqrt(Math.PI)));
}
