/**
 * @file The tasks of a network: equal steps form one task, and tasks that are sums of products are worth tuning.
 *
 *     tasksOf(program)      conv2d c 64 h 56 w 56 k 64 r 3 s 3 pad 1   4 times   115.6 M multiply-adds each
 */

import { groupsOf, sumOf } from "../abstraction/collections.ts";
import { type Computation, computationKey, pointCount } from "../abstraction/computation.ts";
import { accessesIn, type Expr } from "../abstraction/expression.ts";
import type { Graph } from "./graph.ts";
import type { Network, Step } from "./network.ts";

/** Steps with the same computation. */
export interface Task {
  readonly computation: Computation;
  readonly operator?: Step["operator"];
  /** In execution order. */
  readonly steps: readonly Step[];
  /** Multiply-adds of one step; 0 when it sums no products. */
  readonly multiplyAdds: number;
}

export function tasksOf({ steps }: Network): Task[] {
  return [...groupsOf(steps, ({ computation }) => computationKey(computation)).values()].flatMap((same) => {
    const [first] = same;
    if (!first) return [];
    const { computation, operator } = first;
    return [{ computation, ...(operator && { operator }), steps: same, multiplyAdds: multiplyAddsOf(computation) }];
  });
}

/** Multiply-adds of a computation: products of two elements that are summed; 0 otherwise. */
export function multiplyAddsOf(computation: Computation): number {
  const { op, value } = computation.equation;
  return op === "+=" && multiplies(value) ? pointCount(computation) : 0;
}

function multiplies(e: Expr): boolean {
  if (e.kind === "cast") return multiplies(e.value);
  return e.kind === "binary" && e.op === "*" && accessesIn(e.left).length > 0 && accessesIn(e.right).length > 0;
}

/** Whether mappings are searched for it; other tasks have candidates in plain loops. */
export const isTuned = ({ multiplyAdds }: Task): boolean => multiplyAdds > 0;

/** The counts that papers state for a network. */
interface Totals {
  readonly multiplyAdds: number;
  /** Weights, biases and scales; not the running statistics of batch norms. */
  readonly parameters: number;
}

export function totalsOf(graph: Graph, program: Network): Totals {
  const statistics = new Set(
    graph.nodes.flatMap(({ op, inputs }) => (op === "BatchNormalization" ? inputs.slice(3) : [])),
  );
  const read = new Set(graph.nodes.flatMap(({ inputs }) => inputs));
  return {
    multiplyAdds: sumOf(program.steps, ({ computation }) => multiplyAddsOf(computation)),
    parameters: sumOf(
      [...graph.constants].map(([name, { type, values }]) =>
        type === "s64" || statistics.has(name) || !read.has(name) ? 0 : values.length,
      ),
    ),
  };
}
