/** @file A product of a matrix with its own transpose reads one tensor twice, and copies it for each operand. */

import { expect, it } from "vitest";
import type { Schedule } from "../../abstraction/candidate.ts";
import { defineComputation } from "../../abstraction/computation.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { pick, seededRandom } from "../../abstraction/random.ts";
import { lowerSchedule } from "../../mapper/lower/scheduled.ts";
import { mappings } from "../../mapper/match/enumerate.ts";
import { randomSchedule, scheduleProblem } from "../../mapper/schedule/mapped.ts";

import { rowNamed, smallIntegers } from "../support/subjects.ts";

/** Schedules that copy both operands, as they are under a placement. */
function drawn(
  valid: readonly Mapping[],
  wanted: number,
): { readonly mapping: Mapping; readonly schedule: Schedule }[] {
  const random = seededRandom(3);
  const found: { readonly mapping: Mapping; readonly schedule: Schedule }[] = [];
  for (let tries = 0; found.length < wanted && tries < 200 * wanted; tries++) {
    const mapping = pick(random, valid);
    const any = randomSchedule(mapping, random);
    const schedule = { ...any, placement: { a: "padded", b: "padded" } as const };
    if (scheduleProblem(mapping, schedule) === undefined) found.push({ mapping, schedule });
  }
  return found;
}

it.each(["avx512.fma.f32.broadcast", "avx512.fma.f64.broadcast"])("on %s x * x^T equals its equation", (name) => {
  const intrinsic = rowNamed(name);
  const [sum, , b] = intrinsic.operands;
  const computation = defineComputation({
    equation: `z[i,j] += ${sum?.dtype}(x[i,k]) * ${sum?.dtype}(x[j,k])`,
    extents: { i: 7, j: 7, k: 5 },
    tensors: { x: b?.dtype ?? "f32" },
  });
  const subjects = drawn(mappings(computation, intrinsic).valid, 12);
  const inputs = smallIntegers(computation);
  for (const { mapping, schedule } of subjects) {
    const nest = lowerSchedule(mapping, schedule);
    expect([...interpretNest(nest, computation, inputs)], printNest(nest)).toEqual([...interpret(computation, inputs)]);
  }
  expect(subjects.length).toBeGreaterThan(0);
});
