/** @file Each design is counted once, has a name of its own, and no valid transform is left out; how many there are is in golden-arrays.test.ts. */

import { describe, expect, it } from "vitest";
import { UsageError } from "../../abstraction/error.ts";
import { enumerateDesigns, sameDesign } from "../../mapper/space-time/enumerate.ts";
import { paretoSet } from "../../mapper/space-time/pareto.ts";
import { refusalOf } from "../../mapper/space-time/validity.ts";
import { vectorsWithin } from "../../mapper/space-time/vector.ts";
import { conv1d, conv2d, problemOf } from "../support/arrays.ts";

describe("the designs with bounded entries", () => {
  it.each([
    [2, 1, "2 loops on an array of 2 dimensions leave 0 rows of time"],
    [0, 1, "an array of 0 dimensions"],
    [1.5, 1, "an array of 1.5 dimensions"],
    [1, 0, "bounded by a positive integer, got 0"],
  ])("are refused for %s rows of the array and entries up to %s", (arrayRows, bound, because) => {
    const ask = () => enumerateDesigns(problemOf(conv1d()), { bound, arrayRows });
    expect(ask).toThrow(UsageError);
    expect(ask).toThrow(because);
  });

  it("have unique names, the best of a dataflow without a number", () => {
    const { designs } = enumerateDesigns(problemOf(conv1d()), { bound: 2, arrayRows: 1 });
    expect(new Set(designs.map((d) => d.name)).size).toBe(56);
    expect(designs.filter((d) => d.dataflow === "FFM").map((d) => d.name)).toEqual(
      Array.from({ length: 20 }, (_, i) => (i === 0 ? "FFM" : `FFM.${i + 1}`)),
    );
    expect(designs.map((d) => d.steps)).toEqual(designs.map((d) => d.steps).toSorted((a, b) => a - b));
  });

  // The same question asked the slow way: every matrix, one by one.
  it.each([
    ["conv1d", problemOf(conv1d()), 1, 2],
    ["conv2d", problemOf(conv2d()), 2, 1],
  ] as const)("of %s hold every valid matrix exactly once", (_, problem, arrayRows, bound) => {
    const { designs, count } = enumerateDesigns(problem, { bound, arrayRows });
    const loops = problem.loops.length;
    const rows = vectorsWithin(loops, bound);
    const matrices = (left: number): (readonly (readonly number[])[])[] =>
      left === 0 ? [[]] : matrices(left - 1).flatMap((m) => rows.map((r) => [...m, r]));
    let valid = 0;
    const found = new Set<string>();
    for (const matrix of matrices(loops)) {
      const spaceTime = { allocation: matrix.slice(0, arrayRows), schedule: matrix.slice(arrayRows) };
      if (refusalOf(problem, spaceTime)) continue;
      valid++;
      if (loops === 2) {
        const same = designs.filter((d) => sameDesign(d.spaceTime, spaceTime));
        expect(same).toHaveLength(1);
        found.add(same[0]?.name ?? "");
      }
    }
    expect(valid).toBe(count.valid);
    if (loops === 2) expect(found.size).toBe(designs.length);
    for (const d of designs) expect(refusalOf(problem, d.spaceTime)).toBeUndefined();
  });
});

describe("the Pareto set", () => {
  it("holds the designs that none beats, and one that beats each other design", () => {
    const { designs } = enumerateDesigns(problemOf(conv1d()), { bound: 2, arrayRows: 1 });
    const best = paretoSet(designs);
    const costs = (d: (typeof designs)[number]): number[] => [d.pes, d.steps, d.registers.coalesced, d.shuffleDistance];
    const beats = (a: readonly number[], b: readonly number[]): boolean =>
      a.every((x, i) => x <= (b[i] ?? 0)) && a.some((x, i) => x < (b[i] ?? 0));
    expect(best.map((d) => d.name)).toContain("FBS");
    expect(best.map((d) => d.name)).toContain("FSA");
    for (const d of designs) {
      const beaten = designs.some((other) => beats(costs(other), costs(d)));
      expect(best.includes(d), d.name).toBe(!beaten);
    }
  });
});
