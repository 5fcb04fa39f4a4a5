/** @file Instructions by name, small ones too, and mappings and refusals as golden files tell them. */

import { printMatrix } from "../../abstraction/binary-matrix.ts";
import type { Computation } from "../../abstraction/computation.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import { type Matching, printMatching, type Refusal, type Verdict } from "../../abstraction/mapping.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { accessMatrices } from "../../mapper/match/access.ts";
import { bindingText, bindOperands } from "../../mapper/match/bind.ts";
import { type MappingOptions, mappings } from "../../mapper/match/enumerate.ts";
import { defineProblem } from "../../mapper/match/problem.ts";
import { validate } from "../../mapper/match/validate.ts";
import { SMALL_INTRINSICS } from "./random-computation.ts";

export function named(name: string): Intrinsic {
  const found = SMALL_INTRINSICS.find((i) => i.name === name) ?? intrinsicsNamed(name)[0];
  if (!found) throw new Error(`no intrinsic ${name}`);
  return found;
}

/** The verdict on one matching, with operands bound as written. */
export function judge(computation: Computation, intrinsic: Intrinsic, matching: Matching, strict = false): Verdict {
  const [binding] = bindOperands(computation, intrinsic, false).bindings;
  if (!binding) throw new Error("nothing binds");
  return validate(defineProblem(computation, intrinsic, binding), matching, { rule: "gather", strict });
}

/** One line a refusal, the cells of access matrices that disagree, and the witness with the point of its wrong read. */
export function printRefusal({ rule, because, hint, place, witness }: Refusal): string[] {
  const at = place ? ` | ${place.row}, ${place.column}` : "";
  if (!witness) return [`${rule} | ${because} | ${hint ?? "-"}${at}`];
  const { index, expected, actual, operand, point } = witness;
  const shown = `[${index.join(",")}]: ${expected}, not ${actual} | ${operand} at ${JSON.stringify(point)}`;
  return [`${rule} | ${because} | ${hint ?? "-"}${at}`, `    ${shown}`];
}

/** How many mappings there are, the first of them, the access matrices of the best, and the first refusals by each rule. */
export function printMappings(
  computation: Computation,
  intrinsic: Intrinsic,
  options: MappingOptions,
  most: number,
): string[] {
  const { valid, refused, total, sampled } = mappings(computation, intrinsic, options);
  const [best] = valid;
  const matrices = best && accessMatrices(computation, intrinsic, best.binding, best.matching);
  const rules = [...new Set(refused.map(({ rule }) => rule))];
  return [
    `${valid.length} of ${total}${sampled ? ", sampled" : ""}`,
    ...valid
      .slice(0, most)
      .map((m) => `${printMatching(m.matching)} | ${bindingText(m.binding)} | waste ${m.waste.toFixed(6)}`),
    ...(matrices ? [matrices.x, matrices.y, matrices.z].flatMap((matrix) => printMatrix(matrix).split("\n")) : []),
    ...rules.flatMap((rule) =>
      refused
        .filter((r) => r.rule === rule)
        .slice(0, most)
        .flatMap(printRefusal),
    ),
  ];
}
