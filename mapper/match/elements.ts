/**
 * @file Output elements that no point of a computation writes, or that several points write. On a CPU the former hold
 * the identity of the combine.
 */

import { type Computation, outputOf, targetOf } from "../../abstraction/computation.ts";
import { writesAll, writesApart } from "../../abstraction/elements.ts";
import { identityOf } from "../../abstraction/equation.ts";
import { access, axis, number } from "../../abstraction/expression.ts";
import { loop, type Statement } from "../../abstraction/loop-nest.ts";
import type { FreshNames } from "../lower/names.ts";

/** Why a kernel in which each thread stores one sum cannot write this output; undefined when it can. */
export function outputProblem(computation: Computation): string | undefined {
  const { name } = targetOf(computation);
  if (!writesApart(computation)) return `several points of the kept loops join one element of ${name}`;
  return writesAll(computation) ? undefined : `no point writes some elements of ${name}`;
}

/**
 * Statements that set the output to the identity when some of its elements are written by no point; empty when all are
 * written.
 */
export function clearOutput(computation: Computation, names: FreshNames): readonly Statement[] {
  if (computation.epilogue || writesAll(computation)) return [];
  const { name, dtype, dims } = outputOf(computation);
  const counters = dims.map((d) => names.fresh(`${d.name}_clear`));
  const target = access(name, counters.map(axis));
  const cleared: Statement = {
    kind: "scalar",
    equation: { target, op: "=", value: number(identityOf(computation.equation.op, dtype)) },
  };
  return dims.reduceRight<Statement[]>(
    (body, d, i) => [loop(counters[i] ?? "", d.extent, body, i === 0 ? "parallel" : "serial")],
    [cleared],
  );
}
