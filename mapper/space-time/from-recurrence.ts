/**
 * @file Turns a user's recurrence into a problem to map: an equivalent computation, or its dependences as written.
 *
 *     X[c,q] = select(q == 0 or c == 15, x[c+q], X[c+1,q-1])
 *     Z[c,q] = select(q == 0, 0, Z[c,q-1]) + X[c,q] * w[q]      ->     out[c] += x[c+q] * w[q]
 *     out[c] = Z[c,q] where q == 4
 *
 * Values that are only passed on may travel in either direction, and so may proven sums; an equation expresses both.
 * All other definitions keep their directions.
 */

import { type Computation, defineComputation } from "../../abstraction/computation.ts";
import {
  type Access,
  access,
  accessesIn,
  axesIn,
  axis,
  type Expr,
  number,
  rewrite,
  substitute,
} from "../../abstraction/expression.ts";
import { distanceOf } from "../../abstraction/parse-recurrence.ts";
import type { Recurrence } from "../../abstraction/recurrence.ts";
import { distanceIn, type Flow, type Flows, flowsOf } from "./flow.ts";
import { type ArrayOperand, type ArrayProblem, reuseOf } from "./problem.ts";
import { isZero } from "./vector.ts";

/** The equation of a system that forms a single sum of loaded values; undefined for any other system. */
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

/** The problem of a system with fixed dependences. */
export function problemOfRecurrence(recurrence: Recurrence): ArrayProblem {
  const { loops, definitions, results, variables } = recurrence;
  const names = loops.map((l) => l.name);
  const operands = definitions.map(({ target, value }): ArrayOperand => {
    const reads = accessesIn(value).filter((a) => Object.hasOwn(variables, a.tensor));
    const dependences = reads.map((a) => distanceOf(a, loops) ?? []).filter((d) => !isZero(d));
    const [load] = accessesIn(value).filter((a) => !Object.hasOwn(variables, a.tensor));
    // A definition without arithmetic only passes a load on.
    const passes = load !== undefined && reads.every((a) => a.tensor === target.tensor) && isCopy(value);
    if (passes) return { name: target.tensor, role: "input", reuse: reuseOf(load, names), order: "free" };
    return { name: target.tensor, role: "output", reuse: dependences, order: "fixed" };
  });
  const kept = new Set(results.flatMap((r) => axesIn(r.target)));
  const outputs = loops.reduce((count, l) => (kept.has(l.name) ? count * l.extent : count), 1);
  return { name: recurrence.name, loops, operands, outputs };
}

/** The problem of a specification's array, with the other loops fixed. */
export interface ArrangedProblem {
  readonly problem: ArrayProblem;
  /** The accesses of the operands, in order. */
  readonly accesses: readonly Access[];
}

export function problemOfFlows(flows: Flows, source: readonly string[]): ArrangedProblem {
  const still = new Map(flows.loops.filter((l) => !source.includes(l.name)).map((l) => [l.name, number(0)]));
  const columns = source.map((name) => flows.loops.findIndex((l) => l.name === name));
  const inside = (a: Access): Access => ({ ...a, index: a.index.map((e) => substitute(e, still, "index")) });
  const own = (e: Expr): number[][] =>
    accessesIn(e)
      .filter((a) => Object.hasOwn(flows.variables, a.tensor) && a.index.length > 0)
      .map((a) => columns.map((c) => distanceIn(a, flows.loops.length)[c] ?? 0));
  const pairs = [
    ...flows.flows.map((f): { operand: ArrayOperand; access: Access } => {
      const [load] = f.kind === "reuse" ? accessesIn(f.load) : [];
      if (load) {
        const access = inside(load);
        return { operand: { name: load.tensor, role: "input", reuse: reuseOf(access, source), order: "free" }, access };
      }
      const reuse = f.kind === "fixed" ? own(f.value) : [];
      const at = access(
        f.name,
        source.map((name) => axis(name)),
      );
      return { operand: { name: f.name, role: "output", reuse, order: "fixed" }, access: at };
    }),
    // Tensors that a term reads directly are loaded at each use.
    ...flows.outcomes
      .flatMap((o) => (o.kind === "sum" ? accessesIn(o.term) : []))
      .filter((a) => !Object.hasOwn(flows.variables, a.tensor))
      .map((load): { operand: ArrayOperand; access: Access } => {
        const access = inside(load);
        return { operand: { name: load.tensor, role: "input", reuse: reuseOf(access, source), order: "free" }, access };
      }),
    ...flows.outcomes
      .filter((o) => o.kind === "sum")
      .map((o): { operand: ArrayOperand; access: Access } => {
        const access = inside(o.target);
        return {
          operand: { name: o.target.tensor, role: "output", reuse: reuseOf(access, source), order: "free" },
          access,
        };
      }),
  ];
  const loops = source.flatMap((name) => flows.loops.find((l) => l.name === name) ?? []);
  const kept = new Set(flows.outcomes.flatMap((o) => axesIn(o.target)));
  const outputs = loops.reduce((count, l) => (kept.has(l.name) ? count * l.extent : count), 1);
  return {
    problem: { name: flows.name, loops, operands: pairs.map((p) => p.operand), outputs },
    accesses: pairs.map((p) => p.access),
  };
}

function isCopy(e: Expr): boolean {
  return e.kind === "access" || (e.kind === "select" && isCopy(e.whenTrue) && isCopy(e.whenFalse));
}
