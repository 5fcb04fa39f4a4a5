/** @file Null spaces and the transforms without collisions, against hashing every point. */

import { describe, expect, it } from "vitest";
import { accessesIn } from "../../abstraction/expression.ts";
import { parseExpr } from "../../abstraction/parse.ts";
import { reuseOf } from "../../mapper/space-time/problem.ts";
import { collision, refusalOf, timeSign } from "../../mapper/space-time/validity.ts";
import {
  choices,
  determinant,
  dot,
  hermiteForm,
  isZero,
  minorsOf,
  nullSpace,
  plus,
  primitive,
  scaled,
  type Vector,
} from "../../mapper/space-time/vector.ts";
import { conv1d, conv2d, gemm, inOrder, problemOf } from "../support/arrays.ts";
import fc from "../support/property.ts";

const vector = (length: number, most: number): fc.Arbitrary<number[]> =>
  fc.array(fc.integer({ min: -most, max: most }), { minLength: length, maxLength: length });
const matrix = (rows: number, length: number, most = 6): fc.Arbitrary<number[][]> =>
  fc.array(vector(length, most), { minLength: rows, maxLength: rows });
const shaped = fc.tuple(fc.integer({ min: 1, max: 4 }), fc.integer({ min: 1, max: 4 }));

describe("the null space of an access map", () => {
  it.each([
    ["x[c+q]", "c q", [[1, -1]]],
    ["x[c*3+q]", "c q", [[1, -3]]],
    ["x[c*2+q*4]", "c q", [[2, -1]]],
    ["w[q]", "c q", [[1, 0]]],
    ["a[i,k]", "i j k", [[0, 1, 0]]],
    [
      "x[r+p,c+q]",
      "c r p q",
      [
        [1, 0, 0, -1],
        [0, 1, -1, 0],
      ],
    ],
    [
      "z[c]",
      "c p q",
      [
        [0, 1, 0],
        [0, 0, 1],
      ],
    ],
    ["x[c/2+q]", "c q", []],
    ["x[c/2]", "c q", [[0, 1]]],
    [
      "x[5]",
      "c q",
      [
        [1, 0],
        [0, 1],
      ],
    ],
  ] as const)("of %s over loops %s is %j", (text, loops, expected) => {
    const [access] = accessesIn(parseExpr(text));
    if (!access) throw new Error(text);
    expect(reuseOf(access, loops.split(" "))).toEqual(expected);
  });

  it("holds every vector of a small box that the map takes to 0, and no other", () => {
    fc.assert(
      fc.property(
        shaped.chain(([rows, length]) => matrix(rows, length, 3)),
        (map) => {
          const length = map[0]?.length ?? 0;
          const basis = nullSpace(map, length);
          for (const d of basis) for (const row of map) expect(dot(row, d)).toBe(0);
          expect(basis.length).toBe(length - hermiteForm(map).length);
          // A vector lies in the lattice when adding it to the basis changes no Hermite form.
          const form = JSON.stringify(hermiteForm(basis));
          for (const z of boxOf(Array.from({ length }, () => 5))) {
            const d = z.map((x) => x - 2);
            const isNull = map.every((row) => dot(row, d) === 0);
            expect(JSON.stringify(hermiteForm([...basis, d])) === form).toBe(isNull);
          }
        },
      ),
      { numRuns: 60 },
    );
  });
});

describe("the Hermite form", () => {
  it("does not change with the basis of the lattice", () => {
    fc.assert(
      fc.property(
        shaped.chain(([rows, length]) =>
          fc.tuple(
            matrix(rows, length),
            fc.array(fc.tuple(fc.nat(3), fc.nat(3), fc.integer({ min: -3, max: 3 })), { maxLength: 8 }),
          ),
        ),
        ([rows, steps]) => {
          const moved = rows.map((r) => [...r]);
          for (const [i, j, times] of steps) {
            const a = i % rows.length;
            const b = j % rows.length;
            if (a === b) moved[a] = scaled(moved[a] ?? [], -1);
            else moved[a] = plus(moved[a] ?? [], scaled(moved[b] ?? [], times));
          }
          expect(hermiteForm(moved)).toEqual(hermiteForm(rows));
        },
      ),
    );
  });

  it("has the rank that minors give", () => {
    fc.assert(
      fc.property(matrix(3, 3, 3), (rows) => {
        const det = determinant(rows);
        expect(hermiteForm(rows).length === 3).toBe(det !== 0);
        if (det !== 0) expect(hermiteForm(rows).reduce((p, r, i) => p * (r[i] ?? 0), 1)).toBe(Math.abs(det));
        const pair = rows.slice(0, 2);
        expect(hermiteForm(pair).length === 2).toBe(!isZero(minorsOf(pair)));
      }),
    );
    expect(choices(4, 2)).toEqual([
      [0, 1],
      [0, 2],
      [0, 3],
      [1, 2],
      [1, 3],
      [2, 3],
    ]);
  });

  it("names a direction by its primitive vector", () => {
    fc.assert(
      fc.property(vector(3, 9), fc.integer({ min: -5, max: 5 }), (v, times) => {
        if (times === 0 || isZero(v)) return;
        expect(primitive(scaled(v, times))).toEqual(primitive(v));
      }),
    );
  });
});

function* boxOf(extents: Vector): Generator<number[]> {
  const [extent = 0, ...rest] = extents;
  if (extents.length === 0) yield [];
  else for (let x = 0; x < extent; x++) for (const z of boxOf(rest)) yield [x, ...z];
}

/** Whether two points of the box have the same image, by trying all. */
function meets(rows: readonly Vector[], extents: Vector): boolean {
  const seen = new Set<string>();
  for (const z of boxOf(extents)) {
    const image = rows.map((r) => dot(r, z)).join();
    if (seen.has(image)) return true;
    seen.add(image);
  }
  return false;
}

describe("processor availability", () => {
  it("agrees with hashing every point of the box, for any number of rows", () => {
    let meeting = 0;
    let apart = 0;
    fc.assert(
      fc.property(
        fc
          .tuple(fc.integer({ min: 1, max: 4 }), fc.integer({ min: 1, max: 4 }))
          .chain(([rows, loops]) =>
            fc.tuple(
              matrix(rows, loops, 6),
              fc.array(fc.integer({ min: 1, max: 5 }), { minLength: loops, maxLength: loops }),
            ),
          ),
        ([rows, extents]) => {
          const difference = collision(rows, extents);
          if (difference) meeting++;
          else apart++;
          expect(difference !== undefined).toBe(meets(rows, extents));
          if (!difference) return;
          expect(isZero(difference)).toBe(false);
          for (const row of rows) expect(dot(row, difference)).toBe(0);
          for (const [i, x] of difference.entries()) expect(Math.abs(x)).toBeLessThan(extents[i] ?? 0);
        },
      ),
      { numRuns: 1000 },
    );
    expect(Math.min(meeting, apart)).toBeGreaterThan(100);
  });

  it("accepts time of mixed radix, and names two points where the radix is too small", () => {
    const problem = problemOf(conv2d(5, 5));
    const allocation = [[1, 0, 1]];
    expect(refusalOf(problem, { allocation, schedule: [[0, 1, 5]] })).toBeUndefined();
    const refusal = refusalOf(problem, { allocation, schedule: [[0, 1, 4]] });
    expect(refusal?.rule).toBe("collision");
    expect(refusal?.because).toMatchInlineSnapshot(
      `"points (0,0,1) and (1,4,0) of (c,p,q) both run on PE 1 at step 4: T = [1 0 1; 0 1 4] takes their difference (1,4,-1) to 0"`,
    );
    const [first = [], second = []] = refusal?.vectors ?? [];
    const image = (z: Vector): number[] => [...allocation, [0, 1, 4]].map((r) => dot(r, z));
    expect(image(first)).toEqual(image(second));
    expect(first).not.toEqual(second);
  });

  it("requires more than a nonzero minor where T has fewer rows than loops", () => {
    expect(
      collision(
        [
          [1, 0, 0],
          [0, 1, 4],
        ],
        [16, 4, 5],
      ),
    ).toBeUndefined();
    expect(
      collision(
        [
          [1, 0, 0],
          [0, 1, 4],
        ],
        [16, 5, 5],
      ),
    ).toEqual([0, 4, -1]);
  });
});

describe("data availability", () => {
  it("refuses a dependence that runs backwards, or takes no time, and names it", () => {
    const problem = inOrder(problemOf(conv1d()));
    expect(refusalOf(problem, { allocation: [[1, 1]], schedule: [[0, 1]] })).toBeUndefined();
    expect(refusalOf(problem, { allocation: [[1, 1]], schedule: [[0, -1]] })).toMatchInlineSnapshot(`
      {
        "because": "the dependence (0,1) of z runs backwards in time: (0,-1).(0,1) = -1",
        "rule": "backwards",
        "vectors": [
          [
            0,
            1,
          ],
        ],
      }
    `);
    expect(refusalOf(problem, { allocation: [[0, 1]], schedule: [[1, 0]] })).toMatchInlineSnapshot(`
      {
        "because": "the dependence (0,1) of z takes no time, so its value would be used in the step that makes it: (1,0).(0,1) = 0",
        "rule": "backwards",
        "vectors": [
          [
            0,
            1,
          ],
        ],
      }
    `);
  });

  it("accepts a sum from either end where its order is free", () => {
    expect(refusalOf(problemOf(conv1d()), { allocation: [[1, 1]], schedule: [[0, -1]] })).toBeUndefined();
  });

  it("compares rows of time lexicographically", () => {
    expect(
      timeSign(
        [
          [1, 0],
          [0, 1],
        ],
        [1, -5],
      ),
    ).toBe(1);
    expect(
      timeSign(
        [
          [1, 0],
          [0, 1],
        ],
        [0, -5],
      ),
    ).toBe(-1);
    expect(timeSign([[1, 0]], [0, -5])).toBe(0);
  });
});

describe("a transform of the wrong shape", () => {
  it.each([
    [[[1, 1, 0]], [[0, 1]]],
    [[[1, 1]], [[1]]],
    [[], [[0, 1]]],
    [[[1, 1]], []],
    [[[0, 0]], [[0, 1]]],
  ])("is refused as such: %j %j", (allocation, schedule) => {
    const refusal = refusalOf(problemOf(conv1d()), { allocation, schedule });
    expect(refusal?.rule).toBe("shape");
    expect(refusal?.because).toMatch(/allocation|schedule/);
  });
});

describe("a matrix product", () => {
  it("is reused along one loop by each operand", () => {
    expect(problemOf(gemm()).operands.map((o) => [o.name, o.role, o.reuse])).toEqual([
      ["a", "input", [[0, 1, 0]]],
      ["b", "input", [[1, 0, 0]]],
      ["c", "output", [[0, 0, 1]]],
    ]);
  });
});
