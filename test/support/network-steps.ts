/**
 * @file Computations as networks have them beside their products: windows, sums, functions of floats, moves,
 * comparisons.
 */

import type { Computation } from "../../abstraction/computation.ts";
import { stated } from "./subjects.ts";

/** Steps with an index that is read, of any number: what they read lies inside. */
export const INDEXED_STEPS: readonly Computation[] = [
  stated(
    "y[i,h] = table[wrap(ids[i]),h] + b[i,h] --i 11 --h 72 --dtype ids=s32,table=f32,b=f32 --shape table=9x72 --name indexed rows",
  ),
  stated("y[i,j] = x[clamp(ids[i,j]),j] --i 6 --j 70 --dtype ids=s16,x=s8 --shape x=5x70 --name indexed elements"),
  stated(
    "y[i] += x[i,reflect(ids[j])] * f32(ids[j]) --i 7 --j 90 --dtype ids=u8,x=f32 --shape x=7x12 --name indexed sums",
  ),
];

/** What networks compute beside their products. */
export const NETWORK_STEPS: readonly Computation[] = [
  stated(
    "y[n,c,p,q] max= x[n,c,p*2+r-1,q*2+s-1] --n 2 --c 3 --p 7 --q 9 --r 3 --s 3 --shape x=2x3x13x17 --name largest of windows",
  ),
  stated(
    "t[c,p,q] += x[c,p+r-1,q+s-1]; y[c,p,q] = t[c,p,q] / 9 --c 5 --p 6 --q 150 --r 3 --s 3 --shape x=5x6x150 --name mean of windows",
  ),
  stated("t[n,c] += x[n,c,h,w]; y[n,c] = t[n,c] / 49 --n 2 --c 37 --h 7 --w 7 --name mean of images"),
  stated("m[i] max= x[i,j] --i 9 --j 1001 --name largest of rows"),
  stated("s[i] += exp(x[i,j] - m[i]) --i 9 --j 1001 --name sums of powers"),
  stated("y[i,j] = 0.5 * x[i,j] * (1 + erf(x[i,j] * 0.70710678)) --i 13 --j 97 --name gelu"),
  stated("y[i] = tanh(x[i]) / (1 + exp(0 - x[i])) --i 5000 --name sigmoid and tanh"),
  stated("y[i] = log(1.5 + x[i] * x[i]) + sqrt(x[i] * x[i]) --i 777 --name logarithm"),
  stated("y[n,c,p,q] = max(x[n,c,p,q] + b[c], 0) --n 2 --c 7 --p 14 --q 14 --name bias"),
  stated("y[i,j,k] = x[k,i,j] --i 17 --j 33 --k 5 --name transposed"),
  stated("y[c,p] = select(c < 3, x[c,p], b[c-3,p]) --c 5 --p 90 --name joined"),
  stated("y[c,p] = select(p < 33, x[c,p], b[c,p-33]) --c 5 --p 90 --name joined along rows"),
  stated("y[i,j] = select(x[i,j] > 0, x[i,j], b[j] * x[i,j]) --i 9 --j 130 --name positive alone"),
  stated("y[i,j] = select(x[i,j] >= m[i] and j < 100, exp(b[j]), 0) --i 9 --j 130 --name compared and placed"),
  stated(
    "y[i] min= select(x[i,j] == m[i], j, 2147483647) --i 40 --j 70 --dtype y=s32,x=s8,m=s8 --name place of the largest",
  ),
  stated(
    "y[i,h] += select(ids[i] == v, table[v,h], 0) --i 11 --h 70 --v 9 --dtype ids=s32,table=f32 --name rows of a table",
  ),
  ...INDEXED_STEPS,
  stated("y[c,p] = x[c-1,p-1] + b[c,p+1] --c 5 --p 90 --name shifted twice"),
  stated("y[i,j] = x[i-2,j-3] --i 20 --j 40 --shape x=16x35 --name padded"),
  stated("y[i,j] = sat_u8(round(f32(x[i,j]) * 0.0625)) --i 31 --j 70 --dtype x=s32 --name requantised"),
  stated("y[i] = x[i] * x[i] + 1 --i 999 --dtype x=f16 --name halves"),
  stated("m[c] max= x[c,p] --c 6 --p 300 --dtype x=s8 --name bytes"),
];
