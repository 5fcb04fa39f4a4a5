/**
 * @file Listing the designs of an array takes as long for loops of 2^32 steps as for short ones, and gives the same
 * figures.
 */

import { describe, expect, it } from "vitest";
import { arrayPass } from "../../mapper/space-time/derive.ts";
import { chainsOf, collapseSchedule, designOf } from "../../mapper/space-time/design.ts";
import { enumerateDesigns } from "../../mapper/space-time/enumerate.ts";
import { latticePointIn } from "../../mapper/space-time/lattice.ts";
import { polyphaseForm } from "../../mapper/space-time/polyphase.ts";
import { type ArrayProblem, occupiedExtent } from "../../mapper/space-time/problem.ts";
import {
  dot,
  isZero,
  leastOfRow,
  nullSpace,
  plus,
  scaled,
  type Vector,
  vectorsWithin,
} from "../../mapper/space-time/vector.ts";
import { conv1d, conv2d, gemm, problemOf } from "../support/arrays.ts";
import { commandLine } from "../support/command-line.ts";
import { processorWatch } from "../support/processor-time.ts";
import fc from "../support/property.ts";

const LONG = 2 ** 32;
const stretched = (problem: ArrayProblem, extent: number): ArrayProblem => ({
  ...problem,
  loops: problem.loops.map(({ name }) => ({ name, extent })),
});

/** The same by trying every coefficient that the first entries allow: `basis` in Hermite form. */
function exhaustive(
  basis: readonly Vector[],
  extents: Vector,
  from = 0,
  point: Vector = extents.map(() => 0),
): boolean {
  const row = basis[from];
  if (!row) return !isZero(point) && point.every((x, i) => Math.abs(x) < (extents[i] ?? 1));
  const column = row.findIndex((x) => x !== 0);
  const pivot = row[column] ?? 1;
  const held = point[column] ?? 0;
  const most = (extents[column] ?? 1) - 1;
  for (let times = Math.ceil((-most - held) / pivot); times <= Math.floor((most - held) / pivot); times++)
    if (exhaustive(basis, extents, from + 1, plus(point, scaled(row, times)))) return true;
  return false;
}

describe("a vector of a lattice within a box", () => {
  const rows = (count: number, length: number): fc.Arbitrary<number[][]> =>
    fc.array(fc.array(fc.integer({ min: -9, max: 9 }), { minLength: length, maxLength: length }), {
      minLength: count,
      maxLength: count,
    });
  // Boxes of every form: a loop of one step beside one of a hundred.
  const box = (length: number): fc.Arbitrary<number[]> =>
    fc.array(fc.oneof(fc.integer({ min: 1, max: 12 }), fc.integer({ min: 1, max: 100 })), {
      minLength: length,
      maxLength: length,
    });
  const shaped = fc
    .tuple(fc.integer({ min: 0, max: 3 }), fc.integer({ min: 1, max: 4 }))
    .chain(([count, length]) => fc.tuple(rows(count, length), box(length)));

  it("is found exactly where trying all finds one", () => {
    let found = 0;
    let none = 0;
    fc.assert(
      fc.property(shaped, ([matrix, extents]) => {
        const basis = nullSpace(matrix, extents.length);
        fc.pre(extents.reduce((product, n) => product * n, 1) < 200_000);
        const point = latticePointIn(basis, extents);
        expect(point !== undefined).toBe(exhaustive(basis, extents));
        if (!point) {
          none++;
          return;
        }
        found++;
        expect(isZero(point)).toBe(false);
        for (const [i, x] of point.entries()) expect(Math.abs(x)).toBeLessThan(extents[i] ?? 0);
        for (const row of matrix) expect(dot(row, point)).toBe(0);
      }),
      { numRuns: 1200 },
    );
    expect(Math.min(found, none)).toBeGreaterThan(200);
  });

  it.each([
    [[[1, -5]], [LONG, 5], undefined],
    [[[1, -5]], [LONG, 6], [1, -5]],
    [[[LONG - 1, 1]], [LONG, 2], [LONG - 1, 1]],
    [[[LONG, 1]], [LONG, LONG], undefined],
    // The third loop is the first two in units of 65,536 and of its square: one step of it is far along both.
    [
      [
        [1, 0, -65_536],
        [0, 1, -LONG],
      ],
      [LONG, LONG, 65_536],
      [65_536, -1, 0],
    ],
    [
      [
        [1, 0, -65_536],
        [0, 1, -LONG],
      ],
      [65_536, LONG, 65_536],
      undefined,
    ],
  ])("for the basis %j in a box of %j is %j", (basis, extents, expected) => {
    expect(latticePointIn(basis, extents)).toEqual(expected);
  });

  it("costs no more tries in long loops than in short ones", () => {
    /** Tries for the points that meet under every choice of so many rows with entries up to 1. */
    const tries = (loops: number, count: number, extents: Vector): number => {
      let tried = 0;
      const choose = (chosen: readonly Vector[]): void => {
        if (chosen.length === count) latticePointIn(nullSpace(chosen, loops), extents, () => tried++);
        else for (const row of vectorsWithin(loops, 1)) choose([...chosen, row]);
      };
      choose([]);
      return tried;
    };
    for (const [loops, count] of [
      [2, 1],
      [3, 1],
      [3, 2],
      [4, 1],
      [4, 2],
    ] as const) {
      const short = tries(
        loops,
        count,
        Array.from({ length: loops }, (_, i) => 5 + i),
      );
      for (const extent of [2 ** 16, LONG, 2 ** 45])
        expect(
          tries(
            loops,
            count,
            Array.from({ length: loops }, () => extent),
          ),
        ).toBeLessThanOrEqual(short);
      // One long loop among short ones is the case that was gone through step by step.
      for (let long = 0; long < loops; long++)
        expect(
          tries(
            loops,
            count,
            Array.from({ length: loops }, (_, i) => (i === long ? LONG : 2 + i)),
          ),
        ).toBeLessThanOrEqual(2 * short);
    }
  });

  it("costs a bounded number of tries for any lattice", () => {
    const extents = (length: number): fc.Arbitrary<number[]> =>
      fc.array(
        fc.integer({ min: 0, max: 45 }).map((bits) => 2 ** bits),
        { minLength: length, maxLength: length },
      );
    const big = (count: number, length: number): fc.Arbitrary<number[][]> =>
      fc.array(fc.array(fc.integer({ min: -999, max: 999 }), { minLength: length, maxLength: length }), {
        minLength: count,
        maxLength: count,
      });
    let most = 0;
    fc.assert(
      fc.property(
        fc
          .tuple(fc.integer({ min: 1, max: 3 }), fc.integer({ min: 2, max: 4 }))
          .chain(([count, length]) => fc.tuple(big(count, length), extents(length))),
        ([matrix, box]) => {
          let tried = 0;
          latticePointIn(nullSpace(matrix, box.length), box, () => tried++);
          most = Math.max(most, tried);
        },
      ),
      { numRuns: 1000 },
    );
    expect(most).toBeLessThan(300);
  });
});

describe("the designs of long loops", () => {
  it.each([
    ["conv1d", problemOf(conv1d()), 1, 2, 56],
    ["GEMM on a plane", problemOf(gemm()), 2, 1, 253],
    ["GEMM on lanes", problemOf(gemm()), 1, 1, 708],
    ["conv2d on lanes", problemOf(conv2d()), 1, 1, 708],
  ] as const)("of %s are the same as those of short loops", (_, problem, arrayRows, bound, designs) => {
    const [short, long] = [64, LONG].map((extent) =>
      enumerateDesigns(stretched(problem, extent), { bound, arrayRows }),
    );
    expect(long?.designs).toHaveLength(designs);
    const classes = (set: typeof short): string[] => (set?.designs ?? []).map((d) => d.flowClass).sort();
    expect(classes(long)).toEqual(classes(short));
    expect(long?.count).toEqual(short?.count);
    for (const d of long?.designs ?? []) {
      expect(d.utilisation).toBeGreaterThan(0);
      expect(d.utilisation).toBeLessThanOrEqual(1);
      expect(d.schedule.every(Number.isSafeInteger)).toBe(true);
    }
  });

  it("take no more time to list, with each loop long in turn and with all long", () => {
    const problem = problemOf(conv2d());
    const seconds = (loops: ArrayProblem["loops"]): number => {
      const watch = processorWatch();
      enumerateDesigns({ ...problem, loops }, { bound: 1, arrayRows: 1 });
      return watch();
    };
    const short = seconds(problem.loops);
    const all = problem.loops.map(({ name }) => ({ name, extent: LONG }));
    const each = problem.loops.map((_, long) => problem.loops.map((l, i) => (i === long ? { ...l, extent: LONG } : l)));
    // A walk over 2^32 steps takes minutes.
    for (const loops of [all, ...each]) expect(seconds(loops)).toBeLessThan(10 * short + 10);
  });

  it("are listed by automap systolic", async () => {
    const extents = `--c ${LONG} --p ${LONG} --q ${LONG} --lanes ${LONG}`;
    const { out, code } = await commandLine(`systolic "z[c] += x[c+p+q]*w[p,q]" ${extents}`);
    expect(code).toBe(0);
    expect(out).toContain("708 designs in 15 classes of dataflow");
    // A number above 2^53 is rounded, and printed as such.
    expect(out).toMatch(/FBS +\[1 0 0; 0 4294967296 1\] .* 4294967296 +1\.845e\+19 +2\.33e-10 +100\.0 %/);
    const mixed = await commandLine(`systolic "z[c] += x[c+p+q]*w[p,q]" --c 16 --q 5 --p 4294967 --show FBS`);
    expect(mixed.code).toBe(0);
    expect(mixed.out).toContain("not drawn: 343597360 points are too many to follow one by one");
  });
});

describe("figures of long loops", () => {
  const small = fc.integer({ min: 1, max: 9 });
  it("count the chains exactly", () => {
    expect(chainsOf([[1, 0, 0]], [LONG, LONG, 3])).toBe(3 * LONG);
    expect(
      chainsOf(
        [
          [1, 0, 0],
          [0, 1, 0],
        ],
        [LONG, LONG, LONG],
      ),
    ).toBe(LONG);
    expect(dot([LONG, 1], [LONG, -(LONG ** 2) + 1024 * 1024])).toBe(1024 * 1024);
  });

  it("give the end of a split loop as a walk over it does", () => {
    fc.assert(
      fc.property(
        small,
        small,
        fc.integer({ min: -5, max: 5 }),
        fc.integer({ min: -5, max: 5 }),
        (factor, extent, a, b) => {
          const split = { loop: "q", outer: "q_outer", phase: "q_phase", factor, extent };
          const loops = [
            { name: "q_outer", extent: Math.ceil(extent / factor) },
            { name: "q_phase", extent: factor },
          ];
          const problem: ArrayProblem = { name: "split", loops, operands: [], outputs: 1, split };
          const places = Array.from({ length: extent }, (_, i) => a * Math.floor(i / factor) + b * (i % factor));
          const least = leastOfRow(
            [a, b],
            loops.map((l) => l.extent),
          );
          expect(occupiedExtent([a, b], problem)).toBe(Math.max(...places) - least + 1);
        },
      ),
      { numRuns: 500 },
    );
  });

  it("hold for a polyphase form too", () => {
    const pass = arrayPass(conv1d(2, { c: 16, q: LONG }), { loops: ["c", "q"] });
    const spaceTime = { allocation: [[2, 1]], schedule: [[1, 0]] };
    const forms = enumerateDesigns(pass.problem, { bound: 2, arrayRows: 1 }).designs.flatMap(
      (d) => polyphaseForm(pass, d) ?? [],
    );
    expect(forms.length).toBeGreaterThan(0);
    for (const { design } of forms) expect(design.pes * design.steps * design.utilisation).toBeCloseTo(16 * LONG, -1);
    expect(designOf(pass.problem, spaceTime).pes).toBe(LONG + 30);
  });

  it("are refused where time is too large for an exact number", () => {
    expect(
      collapseSchedule(
        [
          [0, 1],
          [1, 0],
        ],
        [LONG, LONG],
      ),
    ).toEqual([1, LONG]);
    expect(() =>
      collapseSchedule(
        [
          [0, 4_194_304],
          [4_194_304, 1],
        ],
        [LONG, LONG],
      ),
    ).toThrow(/more than 2\^53 steps as one row of time/);
  });
});
