/** @file Refusals of a mapping, judged and printed for tests. */

import { type Computation, type ComputationSpec, defineComputation } from "../../abstraction/computation.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import { type Matching, printMatching, type Refusal, type Verdict } from "../../abstraction/mapping.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { bindOperands } from "../../mapper/match/bind.ts";
import { type MappingOptions, mappings } from "../../mapper/match/enumerate.ts";
import { defineProblem } from "../../mapper/match/problem.ts";
import { validate } from "../../mapper/match/validate.ts";
import { SMALL_INTRINSICS } from "./random-computation.ts";

export function named(name: string): Intrinsic {
  const found = SMALL_INTRINSICS.find((i) => i.name === name) ?? intrinsicsNamed(name)[0];
  if (!found) throw new Error(`no intrinsic ${name}`);
  return found;
}

export function compute(
  equation: string,
  extents: ComputationSpec["extents"],
  tensors: ComputationSpec["tensors"],
): Computation {
  return defineComputation({ equation, extents, tensors });
}

/** The verdict on one matching, with operands bound as written. */
export function judge(computation: Computation, intrinsic: Intrinsic, matching: Matching, strict = false): Verdict {
  const [binding] = bindOperands(computation, intrinsic, false).bindings;
  if (!binding) throw new Error("nothing binds");
  return validate(defineProblem(computation, intrinsic, binding), matching, { rule: "gather", strict });
}

export function refusalOf(verdict: Verdict): Refusal {
  if (verdict.ok) throw new Error(`maps: ${printMatching(verdict.mapping.matching)}`);
  return verdict.refusal;
}

/** One line a refusal, and the witness below it. */
export function printRefusals(refused: readonly Refusal[]): string {
  const lines = refused.flatMap(({ rule, because, hint, witness }) => [
    `${rule} | ${because} | ${hint ?? "-"}`,
    ...(witness ? [`    [${witness.index.join(",")}]: ${witness.expected}, not ${witness.actual}`] : []),
  ]);
  return `\n${lines.join("\n")}`;
}

export function refusals(computation: Computation, intrinsic: Intrinsic, options: MappingOptions = {}): string {
  return printRefusals(mappings(computation, intrinsic, options).refused);
}
