/** @file How many designs there are, which dataflows they have, and that each is counted once. */

import { describe, expect, it } from "vitest";
import type { Computation } from "../abstraction/computation.ts";
import { UsageError } from "../abstraction/error.ts";
import { countTransforms } from "../mapper/space-time/count.ts";
import { designSpace, enumerateDesigns, sameDesign, symmetriesOf } from "../mapper/space-time/enumerate.ts";
import { paretoSet } from "../mapper/space-time/pareto.ts";
import type { ArrayProblem } from "../mapper/space-time/problem.ts";
import { refusalOf } from "../mapper/space-time/validity.ts";
import { vectorsWithin } from "../mapper/space-time/vector.ts";
import { conv1d, conv2d, conv2dRows, gemm, inOrder, problemOf } from "./support/arrays.ts";

interface Row {
  readonly space: string;
  readonly problem: ArrayProblem;
  readonly arrayRows: number;
  readonly bound: number;
  readonly designs: number;
  readonly classes: number;
  /** Transforms of full rank and unimodular ones, before any are called equal. */
  readonly raw?: readonly [valid: number, unimodular: number];
  readonly orbits?: number;
}

const row = (
  space: string,
  from: Computation | ArrayProblem,
  arrayRows: number,
  bound: number,
  expected: Pick<Row, "designs" | "classes" | "raw" | "orbits">,
): Row => ({ space, problem: "equation" in from ? problemOf(from) : from, arrayRows, bound, ...expected });

const ROWS: readonly Row[] = [
  row("conv1d", conv1d(), 1, 1, { designs: 12, classes: 12, raw: [48, 40], orbits: 12 }),
  row("conv1d", conv1d(), 1, 2, { designs: 56, classes: 13, raw: [496, 104], orbits: 56 }),
  row("conv1d, sums in order", inOrder(problemOf(conv1d())), 1, 1, { designs: 9, classes: 9, raw: [18, 14] }),
  row("conv1d, sums in order", inOrder(problemOf(conv1d())), 1, 2, { designs: 49, classes: 10, raw: [208, 42] }),
  row("GEMM on a plane", gemm(), 2, 1, { designs: 253, classes: 19, raw: [11808, 6960], orbits: 42 }),
  row("GEMM on a plane", gemm(), 2, 2, { designs: 16129, classes: 19, raw: [1647744, 135408], orbits: 2064 }),
  row("GEMM on lanes", gemm(), 1, 1, { designs: 708, classes: 19, raw: [11808, 6960], orbits: 108 }),
  row("GEMM on lanes", gemm(), 1, 2, { designs: 44304, classes: 19, raw: [1647744, 135408], orbits: 5625 }),
  row("conv2d on a plane", conv2d(), 2, 1, { designs: 253, classes: 15, raw: [11808, 6960] }),
  row("conv2d on a plane", conv2d(), 2, 2, { designs: 16129, classes: 15, raw: [1647744, 135408] }),
  row("conv2d on lanes", conv2d(), 1, 1, { designs: 708, classes: 15, orbits: 368 }),
  row("conv2d on lanes", conv2d(), 1, 2, { designs: 44304, classes: 15, orbits: 22212 }),
];

describe("the designs with bounded entries", () => {
  it.each(ROWS)("of $space with entries up to $bound number $designs", (r) => {
    const space = designSpace(r.problem, r);
    expect(space.pairs).toHaveLength(r.designs);
    const flows = new Set(
      space.pairs.map(({ array, time }) =>
        r.problem.operands
          .map((_, v) => `${array.side().operands[v]?.stay} ${time.side().operands[v]?.broadcast}`)
          .join(),
      ),
    );
    expect(flows.size).toBe(r.classes);
    if (r.orbits !== undefined) expect(new Set(space.orbits()).size).toBe(r.orbits);
    if (r.raw) {
      const { candidates, valid, unimodular } = countTransforms(r.problem, r.bound, r.arrayRows);
      expect([candidates, valid, unimodular]).toEqual([(2 * r.bound + 1) ** (r.problem.loops.length ** 2), ...r.raw]);
    }
  });

  it("of conv2d with rows, on a plane with two rows of time, number 252,616 in 94 dataflows", () => {
    const problem = problemOf(conv2dRows());
    const space = designSpace(problem, { bound: 1, arrayRows: 2 });
    expect([space.arrays, space.times, space.pairs.length]).toEqual([362, 904, 252616]);
    const flows = new Set<string>();
    for (const { array, time } of space.pairs)
      flows.add(
        problem.operands
          .map((_, v) => `${array.side().operands[v]?.stay} ${time.side().operands[v]?.broadcast}`)
          .join(),
      );
    expect(flows.size).toBe(94);
  });

  const letters = (bound: number): string[] =>
    [...new Set(enumerateDesigns(problemOf(conv1d()), { bound, arrayRows: 1 }).designs.map((d) => d.dataflow))].sort();

  it("of conv1d have twelve dataflows at bound 1, and one more at bound 2", () => {
    const known = "BFM BFS BSM FBM FBS FFA FFS FSA FSM SBM SFA SFM".split(" ");
    expect(letters(1)).toEqual(known);
    expect(letters(2)).toEqual([...known, "FFM"].sort());
    const forwardAll = enumerateDesigns(problemOf(conv1d()), { bound: 2, arrayRows: 1 }).designs.filter(
      (d) => d.dataflow === "FFM",
    );
    expect(forwardAll).toHaveLength(20);
  });

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

  it("leave out the four transforms of conv1d under which points collide", () => {
    const problem = problemOf(conv1d());
    const { refused } = enumerateDesigns(problem, { bound: 1, arrayRows: 1 });
    expect(refused.map((t) => refusalOf(problem, t)?.rule)).toEqual([
      "collision",
      "collision",
      "collision",
      "collision",
    ]);
  });
});

describe("the symmetries of an operation", () => {
  it.each([
    ["conv1d", conv1d(), 2],
    ["conv2d", conv2d(), 4],
    ["GEMM", gemm(), 16],
  ] as const)("of %s are %i signed renamings", (_, computation, size) => {
    expect(symmetriesOf(problemOf(computation))).toHaveLength(size);
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
