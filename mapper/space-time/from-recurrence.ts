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

import { extentsBy } from "../../abstraction/affine.ts";
import { namesOf, withName } from "../../abstraction/collections.ts";
import { type Computation, defineComputation } from "../../abstraction/computation.ts";
import {
  type Access,
  access,
  accessesIn,
  axis,
  type Expr,
  number,
  rewrite,
  substituteAccess,
} from "../../abstraction/expression.ts";
import { distanceOf, type Recurrence } from "../../abstraction/recurrence.ts";
import { distanceIn, type Flow, type Flows, flowsOf } from "./flow.ts";
import { type ArrayOperand, type ArrayProblem, resultsAlong, reuseOf, shapesOf } from "./problem.ts";
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
    extents: extentsBy(recurrence.loops),
    tensors: shapesOf(tensors),
  });
}

function loadOf(flows: readonly Flow[], name: string): Expr | undefined {
  const flow = withName(flows, name);
  return flow?.kind === "reuse" ? flow.load : undefined;
}

/** The problem of a system with fixed dependences. */
export function problemOfRecurrence(recurrence: Recurrence): ArrayProblem {
  const { loops, definitions, results, variables } = recurrence;
  const names = namesOf(loops);
  const operands = definitions.map(({ target, value }): ArrayOperand => {
    const reads = accessesIn(value).filter((a) => Object.hasOwn(variables, a.tensor));
    const dependences = reads.map((a) => distanceOf(a, loops) ?? []).filter((d) => !isZero(d));
    const [load] = accessesIn(value).filter((a) => !Object.hasOwn(variables, a.tensor));
    // A definition without arithmetic only passes a load on.
    const passes = load !== undefined && reads.every((a) => a.tensor === target.tensor) && isCopy(value);
    if (passes) return { name: target.tensor, role: "input", reuse: reuseOf(load, names), order: "free" };
    return { name: target.tensor, role: "output", reuse: dependences, order: "fixed" };
  });
  const targets = results.map((r) => r.target);
  return { name: recurrence.name, loops, operands, outputs: resultsAlong(loops, targets) };
}

/** The problem of a specification's array, with the other loops fixed. */
interface ArrangedProblem {
  readonly problem: ArrayProblem;
  /** The accesses of the operands, in order. */
  readonly accesses: readonly Access[];
}

export function problemOfFlows(flows: Flows, source: readonly string[]): ArrangedProblem {
  const still = new Map(flows.loops.filter((l) => !source.includes(l.name)).map((l) => [l.name, number(0)]));
  const columns = source.map((name) => flows.loops.findIndex((l) => l.name === name));
  const inside = (a: Access): Access => substituteAccess(a, still);
  const own = (e: Expr): number[][] =>
    accessesIn(e)
      .filter((a) => Object.hasOwn(flows.variables, a.tensor) && a.index.length > 0)
      .map((a) => columns.map((c) => distanceIn(a, flows.loops.length)[c] ?? 0));
  type Pair = { readonly operand: ArrayOperand; readonly access: Access };
  const free = (of: Access, role: ArrayOperand["role"]): Pair => {
    const access = inside(of);
    return { operand: { name: of.tensor, role, reuse: reuseOf(access, source), order: "free" }, access };
  };
  const pairs = [
    ...flows.flows.map((f): Pair => {
      const [load] = f.kind === "reuse" ? accessesIn(f.load) : [];
      if (load) return free(load, "input");
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
      .map((load) => free(load, "input")),
    ...flows.outcomes.filter((o) => o.kind === "sum").map((o) => free(o.target, "output")),
  ];
  const loops = source.flatMap((name) => withName(flows.loops, name) ?? []);
  const targets = flows.outcomes.map((o) => o.target);
  const outputs = resultsAlong(loops, targets);
  return {
    problem: { name: flows.name, loops, operands: pairs.map((p) => p.operand), outputs },
    accesses: pairs.map((p) => p.access),
  };
}

function isCopy(e: Expr): boolean {
  return e.kind === "access" || (e.kind === "select" && isCopy(e.whenTrue) && isCopy(e.whenFalse));
}
