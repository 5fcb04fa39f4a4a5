/** @file Faults that are put into sources: which there are, and that each takes effect alone. */

import ts from "typescript";
import { describe, expect, it } from "vitest";
import { mutantsOf, mutated, switched } from "../support/drawn/source-mutations.ts";

const SOURCE = `
export function smallest(numbers: readonly number[], above: number): number {
  let least = 100;
  for (const x of numbers) {
    if (!(x > above && Number.isFinite(x))) continue;
    least = Math.min(least, x);
  }
  if (least === 100) throw new Error("internal: nothing is above");
  return numbers.some((x) => x < 0) ? least - 1 : least;
}
`;

/** The result of the function in a text of TypeScript; null where it throws. */
function resultOf(text: string): number | null {
  const js = ts.transpileModule(text, { compilerOptions: { module: ts.ModuleKind.CommonJS } }).outputText;
  const run: unknown = new Function("exports", `${js}; return exports.smallest([-3, 7, 2, 1, 50, Infinity], 1);`);
  try {
    return (run as (exports: object) => number)({}); // a function, since `new Function` makes one
  } catch {
    return null;
  }
}

describe("mutants of a source", () => {
  const mutants = mutantsOf("a.ts", SOURCE);

  it("are its comparisons, sums, conditions, small numbers, roundings and statements, and no check of an impossible state", () => {
    expect(
      mutants.map((m) => `${m.line} ${m.kind}: ${SOURCE.slice(m.start, m.end)} -> ${m.text}`),
    ).toMatchInlineSnapshot(`
      [
        "5 negation: !(x > above && Number.isFinite(x)) -> !(!(x > above && Number.isFinite(x)))",
        "5 logic: x > above && Number.isFinite(x) -> x > above || Number.isFinite(x)",
        "5 boundary: x > above -> x >= above",
        "5 dropped: continue; -> ",
        "6 dropped: least = Math.min(least, x); -> ",
        "6 function: Math.min -> Math.max",
        "9 negation: numbers.some((x) => x < 0) -> !(numbers.some((x) => x < 0))",
        "9 function: numbers.some((x) => x < 0) -> numbers.every((x) => x < 0)",
        "9 boundary: x < 0 -> x <= 0",
        "9 constant: 0 -> 1",
        "9 arithmetic: least - 1 -> least + 1",
        "9 constant: 1 -> 2",
      ]
    `);
  });

  it("are each the same behind a switch as in place, and nothing while all are off", () => {
    const all = switched(
      SOURCE,
      mutants.map((mutant, i) => [i, mutant]),
    );
    const results = mutants.map((mutant, i) => {
      Object.assign(globalThis, { mutant: (number: number) => number === i });
      const inPlace = resultOf(mutated(SOURCE, mutant));
      expect(resultOf(all)).toBe(inPlace);
      return inPlace;
    });
    Object.assign(globalThis, { mutant: undefined });
    expect(resultOf(all)).toBe(resultOf(SOURCE));
    expect(results.filter((result) => result !== resultOf(SOURCE)).length).toBeGreaterThan(5);
  });
});
