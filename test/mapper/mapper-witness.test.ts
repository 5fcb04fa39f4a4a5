/**
 * @file What is claimed of refused matches, held against the programs they would lower to: random operators on random instructions.
 *
 * Each refused match is lowered as if it were a mapping and interpreted. A counterexample must differ there. A match whose program is
 * right all the same is counted by the rule that refuses it: rules that ask for more than right results may, `access-matrix` may not.
 */

import { expect, it } from "vitest";
import { type Computation, computationKey, targetOf } from "../../abstraction/computation.ts";
import type { Values } from "../../abstraction/evaluate.ts";
import { type Inputs, interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import { type Matching, printMatching, type Refusal, RULES, type Rule } from "../../abstraction/mapping.ts";
import { type Random, seededRandom } from "../../abstraction/random.ts";
import { lowerMapping } from "../../mapper/lower/plain.ts";
import { bindingText, bindOperands } from "../../mapper/match/bind.ts";
import { mappings } from "../../mapper/match/enumerate.ts";
import { defineProblem, type Problem } from "../../mapper/match/problem.ts";
import { type EnumerationRule, validate } from "../../mapper/match/validate.ts";
import { randomComputation, randomInputs } from "../support/random-computation.ts";
import { randomIntrinsic } from "../support/random-intrinsic.ts";
import { inFull } from "../support/slow.ts";

const OPERATORS = inFull(3000, 40);
/** Inputs that must all give equal results before a match is called right. */
const DRAWS = 8;
/** Inputs that must all give equal results before a counterexample is called refuted: a product of small numbers is often zero. */
const MORE_DRAWS = 200;
/** Refused matches of one operator that are run. */
const RUN = 15;

/**
 * Rules that ask for more than right results: that an axis is filled and not left empty, that no loop is idle, that no element is held
 * twice, that a match is a union of match points, that what is summed stays in one element of a register.
 */
const ASK_FOR_MORE: readonly Rule[] = ["extent", "unfed-axis", "idle-loop", "copies", "match-point", "axis-kind"];
/** Rules whose reason is looked for in the computation and not at its points: where no point meets it the program may be right. */
const FORESEEN: readonly Rule[] = ["padding", "condition"];

/** One operator with inputs and what it makes of them. */
interface Subject {
  readonly computation: Computation;
  readonly random: Random;
  readonly inputs: readonly Inputs[];
  readonly outputs: readonly Values[];
}

class Tally {
  witnesses = 0;
  readonly refuted: string[] = [];
  readonly unseen: string[] = [];
  /** Refused matches that were run, and those of them whose programs were right, by rule. */
  readonly run = new Map<Rule, number>();
  readonly right = new Map<Rule, number>();
  /** Refusals before any match: the arithmetic, the types, the form of the instruction. */
  readonly unmatched = new Map<Rule, number>();

  add(counts: Map<Rule, number>, rule: Rule): void {
    counts.set(rule, (counts.get(rule) ?? 0) + 1);
  }

  report(): string {
    const rows = RULES.flatMap((rule) => {
      const ran = this.run.get(rule) ?? 0;
      const right = this.right.get(rule) ?? 0;
      const before = this.unmatched.get(rule) ?? 0;
      if (ran + before === 0) return [];
      return [before > 0 ? `${rule}: ${before} before any match` : `${rule}: ${ran} run, ${right} of them right`];
    });
    return [`${this.witnesses} counterexamples, ${this.refuted.length} refuted`, ...rows].join("\n");
  }
}

it(`every counterexample gives a wrong result when run: ${OPERATORS} operators on as many instructions`, () => {
  const tally = new Tally();
  for (let i = 0; i < OPERATORS; i++) {
    const random = seededRandom(7_000_003 + i);
    const intrinsic = randomIntrinsic(random, i);
    const computation = randomComputation(random, intrinsic);
    const inputs = Array.from({ length: DRAWS }, () => randomInputs(random, computation));
    const subject = { computation, random, inputs, outputs: inputs.map((drawn) => interpret(computation, drawn)) };
    const problems = bindOperands(computation, intrinsic, true).bindings.map((binding) =>
      defineProblem(computation, intrinsic, binding),
    );
    const seen = new Set<string>();
    for (const rule of ["gather", "amos"] as const)
      for (const { matching, rule: broken } of mappings(computation, intrinsic, { rule, limit: 60 }).refused) {
        if (problems.length === 0) tally.add(tally.unmatched, broken);
        for (const problem of problems) {
          const key = `${rule} ${bindingText(problem.binding)} ${printMatching(matching)}`;
          if (seen.size >= RUN || seen.has(key)) continue;
          seen.add(key);
          judge(tally, subject, problem, matching, rule);
        }
      }
  }
  if (inFull(true, false)) process.stdout.write(`${tally.report()}\n`);
  expect(tally.refuted.slice(0, 5).join("\n\n")).toBe("");
  expect(tally.unseen.slice(0, 5).join("\n\n")).toBe("");
  expect(tally.witnesses).toBeGreaterThan(OPERATORS);
  const unexplained = [...tally.right.keys()].filter((r) => !ASK_FOR_MORE.includes(r) && !FORESEEN.includes(r));
  expect(unexplained).toEqual([]);
});

/** The verdict on a match, and what its program gives. */
function judge(tally: Tally, subject: Subject, problem: Problem, matching: Matching, rule: EnumerationRule): void {
  const verdict = validate(problem, matching, { rule, strict: rule === "amos" });
  if (verdict.ok) return;
  const { refusal } = verdict;
  const { differs, differsThere } = run(subject, problem, refusal);
  tally.add(tally.run, refusal.rule);
  if (!differs) tally.add(tally.right, refusal.rule);
  if (refusal.witness) tally.witnesses++;
  if (refusal.witness && !differsThere) tally.refuted.push(describeRefusal(problem, refusal));
  if (refusal.rule === "access-matrix" && !refusal.witness) tally.unseen.push(describeRefusal(problem, refusal));
}

/** Whether the program of a refused match gives other results, anywhere and at its counterexample. */
function run(
  { computation, random, inputs, outputs }: Subject,
  { intrinsic, binding }: Problem,
  { matching, witness }: Refusal,
): { readonly differs: boolean; readonly differsThere: boolean } {
  const nest = lowerMapping({ id: "refused", computation, intrinsic, binding, matching, waste: 0 });
  const { dims } = targetOf(computation);
  const place = witness?.index.reduce((flat, i, d) => flat * (dims[d]?.extent ?? 1) + i, 0);
  let differs = false;
  for (let draw = 0; draw < (place === undefined ? DRAWS : MORE_DRAWS); draw++) {
    const drawn = inputs[draw] ?? randomInputs(random, computation);
    const right = outputs[draw] ?? interpret(computation, drawn);
    const given = interpretNest(nest, computation, drawn);
    const same = (at: number): boolean =>
      right[at] === given[at] || (Number.isNaN(right[at]) && Number.isNaN(given[at]));
    if (place !== undefined && !same(place)) return { differs: true, differsThere: true };
    differs ||= right.some((_, at) => !same(at));
    if (differs && place === undefined) break;
  }
  return { differs, differsThere: false };
}

function describeRefusal({ computation, intrinsic, binding }: Problem, refusal: Refusal): string {
  const { compute, extents } = intrinsic.declaration;
  return [
    computationKey(computation),
    `onto ${compute} ${JSON.stringify(extents)}`,
    `${bindingText(binding)}   ${printMatching(refusal.matching)}`,
    JSON.stringify(refusal),
  ].join("\n  ");
}
