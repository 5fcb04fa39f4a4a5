/**
 * @file Shared by the tests of space-time designs: small convolutions and products, and inputs whose sums are exact.
 */

import { type Computation, defineComputation, elementCount, inputsOf } from "../../abstraction/computation.ts";
import { interpret } from "../../abstraction/interpret.ts";
import type { LoopNest } from "../../abstraction/loop-nest.ts";
import { generateLanes, type LaneLanguage } from "../../codegen/lanes.ts";
import type { LowerOptions } from "../../mapper/space-time/lower.ts";
import { runEmulated } from "../../runtime/emulated-kernel.ts";
import { stated } from "./subjects.ts";

/** Plain and coalesced registers, with idle PEs guarded and not. */
export const FORMS: readonly LowerOptions[] = [
  { coalesced: false, checkTime: false },
  { coalesced: false, checkTime: true },
  { coalesced: true, checkTime: false },
  { coalesced: true, checkTime: true },
];

export function convolution1d(results: number, taps: number, stride = 1): Computation {
  return defineComputation({
    name: "conv1d",
    equation: stride === 1 ? "out[c] += x[c+q] * w[q]" : `out[c] += x[${stride}*c+q] * w[q]`,
    extents: { c: results, q: taps },
    tensors: { x: "f32", w: "f32" },
  });
}

/** One row of outputs: rows of the filter are p, columns q. */
export function convolution2d(results: number, rows: number, columns: number): Computation {
  return stated(`out[c] += x[p,c+q] * w[p,q] --c ${results} --p ${rows} --q ${columns} --name conv2d`);
}

export function product(i: number, j: number, k: number): Computation {
  return stated(`c[i,j] += a[i,k] * b[k,j] --i ${i} --j ${j} --k ${k} --name matmul`);
}

/** Small integers, each different from its neighbours: held as floats their sums are exact in any order. */
export function integerInputs(computation: Computation): Record<string, number[]> {
  return Object.fromEntries(
    inputsOf(computation).map((t, i) => [
      t.name,
      Array.from({ length: elementCount(t) }, (_, at) => ((at * 7 + i * 3) % 11) - 4),
    ]),
  );
}

/** A program of lanes, and the computation that it is of. */
export interface LaneProgram {
  readonly label: string;
  readonly computation: Computation;
  readonly nest: LoopNest;
}

/** Those that do not give what their equations say when they are compiled and run under emulation. */
export async function wrongEmulated(language: LaneLanguage, programs: readonly LaneProgram[]): Promise<string[]> {
  const jobs = programs.map(({ label, computation, nest }) => ({
    kernel: generateLanes(language, computation, nest, { lines: [label] }),
    inputs: integerInputs(computation),
  }));
  const runs = await runEmulated(jobs);
  return programs.flatMap(({ label, computation }, i) => {
    const run = runs[i];
    if (run?.status !== "ok") return [`${label}: ${run?.log}`];
    const want = interpret(computation, integerInputs(computation));
    const at = want.findIndex((value, e) => value !== run.output[e]);
    return at < 0 ? [] : [`${label}: element ${at} is ${run.output[at]}, not ${want[at]}`];
  });
}
