/**
 * @file Every mapping is right and every refusal is: random computations, every small instruction, both rules.
 *
 * A mapping is lowered, interpreted and compared with the computation, element by element. A failure prints the seed, the computation,
 * the instruction, the binding and the matching.
 */

import { isDeepStrictEqual } from "node:util";
import { describe, expect, it } from "vitest";
import {
  type Computation,
  computationKey,
  defineComputation,
  equationText,
  targetOf,
} from "../../abstraction/computation.ts";
import type { Values } from "../../abstraction/evaluate.ts";
import { and, axis, compare, type Expr, number, printExpr, rewrite, substitute } from "../../abstraction/expression.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import { boundLabel, type Mapping, printMatching, type Refusal, RULES } from "../../abstraction/mapping.ts";
import { pick, type Random, seededRandom } from "../../abstraction/random.ts";
import { lowerMapping } from "../../mapper/lower/plain.ts";
import { bindingText, bindOperands } from "../../mapper/match/bind.ts";
import { mappings } from "../../mapper/match/enumerate.ts";
import { fuseAxes, physicalMapping } from "../../mapper/match/physical.ts";
import { defineProblem, type Problem } from "../../mapper/match/problem.ts";
import { type Astray, astrayOperands, findWitness } from "../../mapper/match/witness.ts";
import { randomComputation, randomInputs, SMALL_INTRINSICS } from "../support/random-computation.ts";
import { inFull } from "../support/slow.ts";

/** Another seed looks elsewhere: `AUTOMAP_TEST_SEED=7 npx vitest run test/mapper/mapper-properties.deep.test.ts`. */
const SEED = Number(process.env["AUTOMAP_TEST_SEED"] ?? 1);
const CASES = Number(process.env["AUTOMAP_TEST_CASES"] ?? inFull(2400, 600));

interface Case {
  readonly seed: number;
  readonly random: Random;
  readonly computation: Computation;
  readonly intrinsic: Intrinsic;
}

/** The instructions in turn, each with a computation of its own. */
function* cases(): Generator<Case> {
  for (let i = 0; ; i++) {
    const seed = SEED * 1_000_003 + i;
    const random = seededRandom(seed);
    const intrinsic = SMALL_INTRINSICS[i % SMALL_INTRINSICS.length];
    if (intrinsic) yield { seed, random, computation: randomComputation(random, intrinsic), intrinsic };
  }
}

function describeCase({ seed, computation, intrinsic }: Case): string {
  const { compute, extents } = intrinsic.declaration;
  return `seed ${seed}\n  ${computationKey(computation)}\n  onto ${intrinsic.name}: ${compute} ${JSON.stringify(extents)}`;
}

/** The first element that differs, as text; undefined when the outputs are equal. -0 equals 0. */
function firstDifference(actual: Values, expected: Values): string | undefined {
  const i = expected.findIndex((x, at) => x !== actual[at] && !(Number.isNaN(x) && Number.isNaN(actual[at])));
  return i < 0 ? undefined : `element ${i}: ${actual[i]} in place of ${expected[i]}`;
}

function checkMapping(given: Case, mapping: Mapping): string | undefined {
  const inputs = randomInputs(given.random, mapping.computation);
  const expected = interpret(mapping.computation, inputs);
  const difference = firstDifference(interpretNest(lowerMapping(mapping), mapping.computation, inputs), expected);
  if (difference === undefined) return undefined;
  return `${describeCase(given)}\n  ${bindingText(mapping.binding)}\n  ${printMatching(mapping.matching)}\n  ${difference}`;
}

/** What makes a mapping hard, so that the cases can be seen to hold all of it. */
const FEATURES: Readonly<Record<string, (mapping: Mapping) => boolean>> = {
  "a stride or dilation": ({ computation }) => /\w\*[23]/.test(equationText(computation)),
  "a negative offset": ({ computation }) => /\[[^\]]*-\d/.test(equationText(computation)),
  "a flipped window": ({ computation }) => /\d-[a-z]/.test(equationText(computation)),
  "an extent of 1": ({ computation, matching }) =>
    computation.axes.some((a) => a.extent === 1 && Object.values(matching).flat().includes(a.name)),
  "a prime extent above the instruction's": ({ computation }) => computation.axes.some((a) => a.extent >= 5),
  "padding of a summed axis": (mapping) => fuseAxes(mapping).some((a) => a.kind === "reduce" && a.padded > a.fused),
  "several tiles of an axis": (mapping) => fuseAxes(mapping).some((a) => a.tiles > 1),
  "fused loops": ({ matching }) => Object.values(matching).some((loops) => loops.length > 1),
  "three summed loops": ({ computation }) => computation.axes.filter((a) => a.kind === "reduce").length >= 3,
  "summed loops outside the instruction": (mapping) =>
    physicalMapping(mapping).outer.some((a) => a.kind === "reduce" && a.extent > 1),
  "a condition": ({ computation }) => computation.equation.where !== undefined,
  "a computed operand": ({ binding }) => Object.values(binding).some((bound) => bound.kind !== "access"),
  "three factors": ({ computation }) => / \* .* \* /.test(equationText(computation)),
  "a literal operand": ({ binding }) => Object.values(binding).some((bound) => bound.kind === "number"),
  "an empty axis": ({ matching }) => Object.values(matching).some((loops) => loops.length === 0),
  "fewer loops than axes": ({ computation, matching }) => computation.axes.length < Object.keys(matching).length,
  "factors the other way round": ({ binding }) => printExpr(binding["a"] ?? number(0)).startsWith("y["),
};

describe("every mapping", () => {
  it(`lowers to a program that computes the same: ${CASES} mappings, both rules`, () => {
    const failures: string[] = [];
    const mapped = new Map(SMALL_INTRINSICS.map(({ name }) => [name, 0]));
    const met = new Map(Object.keys(FEATURES).map((feature) => [feature, 0]));
    const count = (counts: Map<string, number>, name: string): unknown => counts.set(name, (counts.get(name) ?? 0) + 1);
    for (const given of cases()) {
      const checked = [...mapped.values()].reduce((sum, n) => sum + n, 0);
      if (checked >= CASES || failures.length >= 5) break;
      for (const rule of ["gather", "amos"] as const) {
        const { valid } = mappings(given.computation, given.intrinsic, { rule, limit: 100 });
        for (let drawn = 0; drawn < 2 && valid.length > 0; drawn++) {
          const mapping = pick(given.random, valid);
          const failure = checkMapping(given, mapping);
          if (failure !== undefined) failures.push(failure);
          count(mapped, given.intrinsic.name);
          for (const [feature, has] of Object.entries(FEATURES)) if (has(mapping)) count(met, feature);
        }
      }
    }
    expect(failures.join("\n\n")).toBe("");
    // The cases are worth something only if they reach every instruction and every difficulty.
    const rare = [...mapped, ...met].filter(([, times]) => times < CASES / 300);
    expect(rare).toEqual([]);
  });
});

describe("every refusal", () => {
  // Not fewer in a short run: some rules are seldom the first to refuse.
  const REFUSALS = Number(process.env["AUTOMAP_TEST_CASES"] ?? 2400);

  /** Of a rule that refuses often only some of those behind them are judged in a short run. */
  const OF_A_RULE = 40;

  it("names a rule and a reason, and under access-matrix shows a result that is really wrong", () => {
    const problems: string[] = [];
    const rules = new Map<string, number>();
    let checked = 0;
    for (const given of cases()) {
      if (checked >= REFUSALS || problems.length >= 5) break;
      for (const rule of ["gather", "amos"] as const) {
        const { refused } = mappings(given.computation, given.intrinsic, { rule, strict: rule === "amos", limit: 100 });
        for (const refusal of refused.slice(0, 20)) {
          if (problems.length >= 5) break;
          checked++;
          const before = rules.get(refusal.rule) ?? 0;
          rules.set(refusal.rule, before + 1);
          if (before > OF_A_RULE && before % inFull(1, 8) > 0) continue;
          const problem = refusalProblem(given, refusal);
          if (problem !== undefined)
            problems.push(
              `${describeCase(given)}\n  ${printMatching(refusal.matching)}\n  ${JSON.stringify(refusal)}\n  ${problem}`,
            );
        }
      }
    }
    expect(problems.join("\n\n")).toBe("");
    const unmet = RULES.filter((name) => !rules.has(name));
    // Enumeration proposes no loop twice, leaves no axis without need and knows no schedules; a recurrence is no random computation.
    expect(unmet).toEqual(["unfed-axis", "schedule", "matched-twice", "recurrence"]);
  });
});

function refusalProblem(given: Case, refusal: Refusal): string | undefined {
  if (!RULES.includes(refusal.rule)) return `unknown rule ${refusal.rule}`;
  if (refusal.because.trim() === "" || refusal.because.includes("\n")) return "because is not one sentence";
  if (/undefined|NaN|internal/.test(refusal.because)) return "because shows an internal value";
  if (refusal.rule === "access-matrix" && !refusal.witness) return "no witness";
  if (refusal.rule === "access-matrix") return refutedWitness(given, refusal);
  if (refusal.rule === "idle-loop" || refusal.rule === "copies") return busyLoop(given, refusal);
  return undefined;
}

/** The equation the mapped program computes, were the match taken: operands that cannot follow a loop keep the element of its first step. */
function mistakenProgram({ computation, intrinsic, binding }: Problem, astray: readonly Astray[]): Computation {
  const given = (operand: string, e: Expr): Expr => {
    const loops = astray.find((a) => a.operand === operand)?.loops ?? [];
    return substitute(binding[operand] ?? e, new Map(loops.map((l) => [l, number(0)])), "value");
  };
  const value = rewrite(intrinsic.computation.equation.value, (e) => (e.kind === "access" ? given(e.tensor, e) : e));
  const { target, op, where } = computation.equation;
  // Every axis stays one, mentioned or not.
  const everywhere = computation.axes.map((a) => compare(">=", axis(a.name), number(0))).reduce(and);
  return defineComputation({
    equation: { target, op, value, where: where === undefined ? everywhere : and(where, everywhere) },
    extents: Object.fromEntries(computation.axes.map((a) => [a.name, a.extent])),
    tensors: Object.fromEntries(
      Object.values(computation.tensors).map((t) => [t.name, { dtype: t.dtype, shape: t.dims.map((d) => d.extent) }]),
    ),
  });
}

/** The problem a refusal came from: of the bindings, the one that gives its witness. */
function problemOf({ computation, intrinsic }: Case, refusal: Refusal): Problem | undefined {
  const { bindings } = bindOperands(computation, intrinsic, true);
  return bindings
    .map((binding) => defineProblem(computation, intrinsic, binding))
    .find(
      (problem) =>
        isDeepStrictEqual(findWitness(problem, refusal.matching).found, refusal.witness) &&
        refusal.place?.row.includes(boundLabel(problem.binding[rowOperand(refusal)] ?? number(0))),
    );
}

/** The operand of a row `w (b)`. */
function rowOperand({ place }: Refusal): string {
  return /\((\w+)\)$/.exec(place?.row ?? "")?.[1] ?? place?.row ?? "";
}

/** Several draws: a maximum need not show the element that was lost. */
const DRAWS = 100;

/** Why the witness is no witness: the mistaken program gives the same there, or the two reads are one. */
function refutedWitness(given: Case, refusal: Refusal): string | undefined {
  const { witness } = refusal;
  const problem = problemOf(given, refusal);
  if (!witness || !problem) return "no binding gives this witness";
  if (witness.expected === witness.actual) return "expected and actual name the same element";
  const mistaken = mistakenProgram(problem, astrayOperands(problem, refusal.matching));
  const { dims } = targetOf(given.computation);
  const at = witness.index.reduce((flat, i, d) => flat * (dims[d]?.extent ?? 1) + i, 0);
  if (witness.index.some((i, d) => i < 0 || i >= (dims[d]?.extent ?? 0))) return "the witness lies outside the output";
  for (let draw = 0; draw < DRAWS; draw++) {
    const inputs = randomInputs(given.random, given.computation);
    if (interpret(mistaken, inputs)[at] !== interpret(given.computation, inputs)[at]) return undefined;
  }
  return "the mistaken program gives the same result there";
}

/** Why an idle loop is not idle, or copies are no copies: taking the match would change the output. */
function busyLoop(given: Case, refusal: Refusal): string | undefined {
  for (const binding of bindOperands(given.computation, given.intrinsic, true).bindings) {
    const problem = defineProblem(given.computation, given.intrinsic, binding);
    if (findWitness(problem, refusal.matching).found) continue;
    const mistaken = mistakenProgram(problem, astrayOperands(problem, refusal.matching));
    for (let draw = 0; draw < 3; draw++) {
      const inputs = randomInputs(given.random, given.computation);
      const difference = firstDifference(interpret(mistaken, inputs), interpret(given.computation, inputs));
      if (difference !== undefined) return `taking the match matters: ${difference}`;
    }
  }
  return undefined;
}
