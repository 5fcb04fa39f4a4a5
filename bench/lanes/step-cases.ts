/** @file Stencils in time for benches: stars of radius 1 and 2 on a square or cube, whose coefficients add up to 1. */

import { type Computation, defineComputation } from "../../abstraction/computation.ts";

export const STEP_CASES: Readonly<Record<string, string>> = {
  "2d5pt": "u[t,i,j] = 0.5*u[t-1,i,j] + 0.125*(u[t-1,i-1,j] + u[t-1,i+1,j] + u[t-1,i,j-1] + u[t-1,i,j+1])",
  "2d9pt":
    "u[t,i,j] = 0.4*u[t-1,i,j] + 0.1*(u[t-1,i-1,j] + u[t-1,i+1,j] + u[t-1,i,j-1] + u[t-1,i,j+1]) + 0.05*(u[t-1,i-2,j] + u[t-1,i+2,j] + u[t-1,i,j-2] + u[t-1,i,j+2])",
  "3d7pt":
    "u[t,i,j,k] = 0.4*u[t-1,i,j,k] + 0.1*(u[t-1,i-1,j,k] + u[t-1,i+1,j,k] + u[t-1,i,j-1,k] + u[t-1,i,j+1,k] + u[t-1,i,j,k-1] + u[t-1,i,j,k+1])",
};

export function stepCase(
  name: string,
  steps: number,
  plane: Readonly<Record<string, number>>,
  dtype: "f32" | "f64",
): Computation {
  return defineComputation({
    name,
    equation: STEP_CASES[name] ?? "",
    extents: { t: steps, ...plane },
    tensors: { u: dtype },
  });
}
