/**
 * @file The names that statements refer to: memory passed to a kernel, and registers that it declares.
 *
 *     for unrolled i in 0..2: c{2*i} <- tdpbusd(a{0}, b{i})          registers a: 0   b: 0, 1   c: 0, 2
 */

import { type Extents, evaluateIndex } from "../abstraction/affine.ts";
import { type Access, accessesIn, type Expr } from "../abstraction/expression.ts";
import type { ArrivalAt, LoopNest, RegisterAt, Statement } from "../abstraction/loop-nest.ts";
import { rewriteStatement } from "../abstraction/rewrite-statement.ts";

export interface Named {
  /** Tensors, buffers and arrivals. */
  readonly memory: ReadonlySet<string>;
  /** The numbers of the registers used of each file, in order. */
  readonly registers: ReadonlyMap<string, readonly number[]>;
}

export function namedIn(statements: readonly Statement[], { vectors = [] }: LoopNest): Named {
  const memory = new Set<string>();
  const registers = new Map<string, Set<number>>();
  /** @param at the counters of unrolled loops */
  const visit = (s: Statement, at: Extents): void => {
    const register = (r: RegisterAt): RegisterAt => {
      registers.set(r.file, (registers.get(r.file) ?? new Set()).add(evaluateIndex(r.index, at)));
      return r;
    };
    const element = (a: Access): Access => {
      const [index] = a.index;
      if (index && vectors.some((v) => v.name === a.tensor)) register({ file: a.tensor, index });
      else memory.add(a.tensor);
      return a;
    };
    const value = (e: Expr): Expr => {
      accessesIn(e).forEach(element);
      return e;
    };
    const arrival = (a: ArrivalAt): ArrivalAt => {
      memory.add(a.name);
      return a;
    };
    const inner = stepsIn(s);
    if (s.kind === "when") value(s.condition);
    if (inner) {
      for (let i = 0; i < inner.steps; i++) for (const one of inner.body) visit(one, { ...at, [inner.axis]: i });
      return;
    }
    // The host describes an engine's source tensors, so the kernel does not take them as parameters.
    const own = s.kind === "send" ? { ...s, copies: [] } : s;
    rewriteStatement(own, { index: value, value, element, register, arrival });
    if (s.kind === "send") for (const { equation } of s.copies) element(equation.target);
    if (s.kind === "load" || s.kind === "store") memory.add(s.memory.buffer);
    if (s.kind === "drain") memory.delete(s.element);
  };
  for (const s of statements) visit(s, {});
  const inOrder = [...registers].map(([file, numbers]) => [file, [...numbers].sort((a, b) => a - b)] as const);
  return { memory, registers: new Map(inOrder) };
}

/** The body of a statement, and the steps of the loop if it is unrolled. */
function stepsIn(s: Statement): { body: readonly Statement[]; axis: string; steps: number } | undefined {
  if (s.kind === "loop") return { body: s.body, axis: s.axis, steps: s.mode === "unrolled" ? s.extent : 1 };
  if (s.kind === "when") return { body: [...s.body, ...s.otherwise], axis: "", steps: 1 };
  if (s.kind !== "scalar" || !s.together) return undefined;
  const { together, ...one } = s;
  return { body: [one], axis: together.name, steps: together.extent };
}
