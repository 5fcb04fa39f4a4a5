/**
 * @file Labels of workloads, and filters by types, layout, epilogue and the name that a user gave.
 *
 *     labelOf(trial.workload)                                    "conv2d c 64 h 56 ..., u8s8->u8, NHWC, requantize"
 *     workloadsWhere(db, { layout: "NHWC", epilogue: "relu" })   a condition on a row of workloads
 */

import { memoised } from "../abstraction/collections.ts";
import { outputOf } from "../abstraction/computation.ts";
import { attempt } from "../abstraction/error.ts";
import { printEquation } from "../abstraction/expression.ts";
import { parseEpilogue } from "../abstraction/parse.ts";
import { describeWorkload, layoutName, type WorkloadWords, workloadLabel } from "../operators/describe.ts";
import type { Database } from "./open.ts";
import { computationOf, type WorkloadRecord } from "./record.ts";
import { workloadOf } from "./rows.ts";
import type { Condition } from "./trust.ts";

/** The words of a workload; a damaged record is described as such. */
export const wordsOf = memoised((workload: WorkloadRecord): WorkloadWords => {
  const { operator, computation, parameters, dtype, sum } = workload;
  const damaged = { subject: operator, shape: "", types: `${dtype}->${sum}`, layout: "", epilogue: "" };
  return (
    attempt(() => describeWorkload({ computation: computationOf(workload), parameters })) ?? {
      ...damaged,
      besides: computation,
    }
  );
});

/** A line that no other workload has. */
export function labelOf(workload: WorkloadRecord): string {
  return workloadLabel(wordsOf(workload), workload.name);
}

export interface WordFilter {
  /** Types of the inputs, `u8s8`; after an arrow, `f16->f16`, also the type of the sum or output. */
  readonly dtype?: string;
  /** As for `--layout`: `NHWC` of input and output, or by tensor, `in=NHWC,w=KRSC`. A row-major tensor matches the corresponding layout name. */
  readonly layout?: string;
  /** A name of the table, `relu`, an equation, or `none`. */
  readonly epilogue?: string;
  /** The user's own name; matches every record of the same computation. */
  readonly name?: string;
}

/** Computes and compares the words of all workloads, because these are few. Undefined when no word is requested. */
export function workloadsWhere(db: Database, { dtype, layout, epilogue, name }: WordFilter): Condition | undefined {
  const [inputs, result] = dtype?.split("->") ?? [];
  if ([result, layout, epilogue, name].every((word) => word === undefined))
    return inputs === undefined ? undefined : { sql: "dtype = ?", values: [inputs] };
  const all = db.sqlite
    .prepare("SELECT * FROM workloads")
    .all()
    .map((row) => workloadOf(row, db.path));
  const named = new Set(all.filter((w) => w.name === name).map((w) => w.computation));
  const wanted = epilogue?.includes("=") ? printEquation(parseEpilogue(epilogue)) : epilogue;
  const found = all.filter(
    (w) =>
      (inputs === undefined || w.dtype === inputs) &&
      (result === undefined || w.sum === result || attempt(() => outputOf(computationOf(w)).dtype) === result) &&
      (name === undefined || named.has(w.computation)) &&
      (wanted === undefined || (wordsOf(w).epilogue || "none") === wanted) &&
      (layout === undefined || liesAs(w, layout)),
  );
  return { sql: "workloads.id IN (SELECT value FROM json_each(?))", values: [JSON.stringify(found.map((w) => w.id))] };
}

/** By tensor each one named; in one word the activations, as an operator lays them out for it. */
function liesAs(workload: WorkloadRecord, layout: string): boolean {
  const computation = attempt(() => computationOf(workload));
  if (!computation) return false;
  const lies = (name: string, as: string | undefined): boolean => {
    const tensor = computation.tensors[name];
    return tensor !== undefined && layoutName(tensor) === as;
  };
  if (layout.includes("="))
    return layout.split(",").every((pair) => {
      const [tensor = "", name] = pair.split("=");
      return lies(tensor, name);
    });
  const said = wordsOf(workload).layout;
  return said === layout || (said === "" && lies("in", layout));
}
