/**
 * @file A user's own recurrence as something to map: the computation it stands for, or its dependences as they are written.
 *
 *     X[c,q] = select(q == 0 or c == 15, x[c+q], X[c+1,q-1])
 *     Z[c,q] = select(q == 0, 0, Z[c,q-1]) + X[c,q] * w[q]      ->     out[c] += x[c+q] * w[q]
 *     out[c] = Z[c,q] where q == 4
 *
 * Values that are only passed on and sums that are proved to be sums may go either way, so their equation says as much. Whatever else a
 * system computes keeps its directions.
 */

import { type Computation, defineComputation } from "../../abstraction/computation.ts";
import { accessesIn, axesIn, type Expr, rewrite } from "../../abstraction/expression.ts";
import { distanceOf } from "../../abstraction/parse-recurrence.ts";
import type { Recurrence } from "../../abstraction/recurrence.ts";
import { type Flow, flowsOf } from "./flow.ts";
import { type ArrayOperand, type ArrayProblem, reuseOf } from "./problem.ts";
import { isZero } from "./vector.ts";

/** The equation of a system that is one sum of what is loaded; undefined for any other. */
export function computationOf(recurrence: Recurrence): Computation | undefined {
  const { outcomes, flows } = flowsOf(recurrence);
  const [outcome, ...others] = outcomes;
  if (outcome?.kind !== "sum" || others.length > 0 || flows.some((f) => f.kind === "fixed")) return undefined;
  const value = rewrite(outcome.term, (e) => (e.kind === "access" ? (loadOf(flows, e.tensor) ?? e) : e), "value");
  const { tensors } = recurrence;
  return defineComputation({
    name: recurrence.name,
    equation: { target: outcome.target, op: outcome.op, value },
    extents: Object.fromEntries(recurrence.loops.map((l) => [l.name, l.extent])),
    tensors: Object.fromEntries(
      Object.values(tensors).map(({ name, dtype, dims }) => [name, { dtype, shape: dims.map((d) => d.extent) }]),
    ),
  });
}

function loadOf(flows: readonly Flow[], name: string): Expr | undefined {
  const flow = flows.find((f) => f.name === name);
  return flow?.kind === "reuse" ? flow.load : undefined;
}

/** The problem of a system with dependences of its own. */
export function problemOfRecurrence(recurrence: Recurrence): ArrayProblem {
  const { loops, definitions, results, variables } = recurrence;
  const names = loops.map((l) => l.name);
  const operands = definitions.map(({ target, value }): ArrayOperand => {
    const reads = accessesIn(value).filter((a) => Object.hasOwn(variables, a.tensor));
    const dependences = reads.map((a) => distanceOf(a, loops) ?? []).filter((d) => !isZero(d));
    const [load] = accessesIn(value).filter((a) => !Object.hasOwn(variables, a.tensor));
    // What has no arithmetic only passes a load on.
    const passes = load !== undefined && reads.every((a) => a.tensor === target.tensor) && isCopy(value);
    if (passes) return { name: target.tensor, role: "input", reuse: reuseOf(load, names), order: "free" };
    return { name: target.tensor, role: "output", reuse: dependences, order: "fixed" };
  });
  const kept = new Set(results.flatMap((r) => axesIn(r.target)));
  const outputs = loops.reduce((count, l) => (kept.has(l.name) ? count * l.extent : count), 1);
  return { name: recurrence.name, loops, operands, outputs };
}

function isCopy(e: Expr): boolean {
  return e.kind === "access" || (e.kind === "select" && isCopy(e.whenTrue) && isCopy(e.whenFalse));
}
