/**
 * @file Kernels that were measured once and are kept to judge and to fit the model (bench/trials). A line is a case, or a kernel of the case before it:
 *
 *     {"case":"c2d-5@16 last","operator":"c2d","target":"h100","computation":{"name":"c2d","equation":"...","extents":{...},"tensors":{...}}}
 *     {"candidate":{...},"median":9.1e-6,"interval":[9.0e-6,9.2e-6],"again":9.3e-6}
 *
 * Only kernels that were right are kept. Times are seconds of a call.
 */

import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import type { Candidate, WarpStepSchedule, WarpWindowSchedule } from "../../abstraction/candidate.ts";
import { type Computation, defineComputation, equationText, extentsOf } from "../../abstraction/computation.ts";
import { printExpr } from "../../abstraction/expression.ts";

export interface RecordedTrial {
  readonly candidate: Candidate;
  readonly median: number;
  /** 95 % interval of the median. */
  readonly interval?: readonly [number, number];
  /** The median of a second measurement, by another process. */
  readonly again?: number;
}

export interface RecordedCase {
  readonly name: string;
  readonly operator: string;
  /** A GPU of the table, or `native` for the cores of the machine that judges. */
  readonly target: string;
  readonly computation: Computation;
  readonly trials: readonly RecordedTrial[];
}

/** The lines of a case. */
export function caseLines({ name, operator, target, computation, trials }: RecordedCase): string {
  const tensors = Object.values(computation.tensors).map(({ name, dtype, dims, storage, constant }) => {
    const shape = dims.map((d) => d.extent);
    return [name, { dtype, dims: dims.map((d) => d.name), shape, storage: printExpr(storage, "formula"), constant }];
  });
  const document = {
    name: computation.name,
    equation: equationText(computation),
    extents: extentsOf(computation),
    tensors: Object.fromEntries(tensors),
  };
  const lines = [{ case: name, operator, target, computation: document }, ...trials];
  return lines.map((line) => `${JSON.stringify(line)}\n`).join("");
}

type CaseLine = Pick<RecordedCase, "operator" | "target"> & {
  readonly case: string;
  readonly computation: Parameters<typeof defineComputation>[0];
};

/**
 * The cases of a file; what is said of a case in several places is joined.
 * @param file its name, compressed where that ends in .gz, or its text
 */
export function recordedCases(file: string | Buffer): readonly RecordedCase[] {
  const bytes = typeof file === "string" ? readFileSync(file) : file;
  const text = (String(file).endsWith(".gz") ? gunzipSync(bytes) : bytes).toString("utf8");
  const cases = new Map<string, RecordedCase & { readonly trials: RecordedTrial[] }>();
  let trials: RecordedTrial[] = [];
  for (const line of text.trim().split("\n")) {
    const said = JSON.parse(line) as CaseLine | RecordedTrial; // written by caseLines
    if ("candidate" in said) {
      trials.push(said);
      continue;
    }
    const { case: name, operator, target, computation } = said;
    const known = cases.get(name) ?? {
      name,
      operator,
      target,
      computation: defineComputation(computation),
      trials: [],
    };
    cases.set(name, known);
    trials = known.trials;
  }
  return [...cases.values()];
}

/** A kernel of one kind. */
export interface RecordedKernel<S> {
  readonly name: string;
  readonly computation: Computation;
  readonly schedule: S;
  readonly seconds: number;
}

interface Schedules {
  readonly "warp-window": WarpWindowSchedule;
  readonly "warp-steps": WarpStepSchedule;
}

export function recordedKernels<K extends keyof Schedules>(
  file: string,
  kind: K,
): readonly RecordedKernel<Schedules[K]>[] {
  return recordedCases(file).flatMap(({ name, computation, trials }) =>
    trials.flatMap(({ candidate, median }): RecordedKernel<Schedules[K]>[] => {
      if (candidate.kind !== kind) return [];
      const schedule = candidate.schedule as Schedules[K]; // of this kind
      return [{ name, computation, schedule, seconds: median }];
    }),
  );
}
