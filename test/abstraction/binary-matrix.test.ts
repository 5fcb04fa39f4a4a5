/** @file Named 0/1 matrices, on the example of AMOS (ISCA 2022), figure 4: a convolution onto a matrix product. */

import { describe, expect, it } from "vitest";
import {
  type BinaryMatrix,
  binaryMatrix,
  bitAt,
  booleanProduct,
  differences,
  printMatrix,
  transpose,
} from "../../abstraction/binary-matrix.ts";
import fc from "../support/property.ts";

/** `rowName: columns that are 1`. */
function matrix(rows: Readonly<Record<string, string>>, columns: string): BinaryMatrix {
  return binaryMatrix(
    Object.keys(rows),
    columns.split(" "),
    (row, column) => rows[row]?.split(" ").includes(column) ?? false,
  );
}

const LOOPS = "n k p q c r s";
const software = matrix({ image: "n p q c r s", weight: "k c r s", out: "n k p q" }, LOOPS);
const intrinsic = matrix({ src1: "i1 r1", src2: "i2 r1", dst: "i1 i2" }, "i1 i2 r1");
const matching = matrix({ i1: "n p q", i2: "k", r1: "c r s" }, LOOPS);

describe("the access matrices of a convolution", () => {
  it("are recomputed from the matching: X' = Z*Y and Z' = X*Y^T", () => {
    const x = booleanProduct(intrinsic, matching);
    const z = booleanProduct(software, transpose(matching));
    expect(printMatrix(x)).toMatchInlineSnapshot(`
      "      n k p q c r s
      src1  1 0 1 1 1 1 1
      src2  0 1 0 0 1 1 1
      dst   1 1 1 1 0 0 0"
    `);
    expect(printMatrix(z)).toMatchInlineSnapshot(`
      "        i1 i2 r1
      image    1  0  1
      weight   0  1  1
      out      1  1  0"
    `);
    expect(x.bits).toEqual(software.bits);
    expect(z.bits).toEqual(intrinsic.bits);
    expect(differences(software, x, LOOPS.split(" "))).toEqual([]);
  });

  it("differ where a matching is wrong, by row and column", () => {
    const wrong = matrix({ i1: "n p q c", i2: "k", r1: "r s" }, LOOPS);
    const x = booleanProduct(intrinsic, wrong);
    expect(differences(software, x, LOOPS.split(" "))).toEqual([
      { row: "weight", column: "c" },
      { row: "out", column: "c" },
    ]);
    expect(differences(software, x, ["n", "k"])).toEqual([]);
  });
});

describe("a binary matrix", () => {
  it("answers by name", () => {
    expect([bitAt(software, "weight", "k"), bitAt(software, "weight", "n")]).toEqual([1, 0]);
    expect(() => bitAt(software, "weight", "z")).toThrowErrorMatchingInlineSnapshot(
      "[Error: internal: no entry weight, z]",
    );
  });

  it("may be empty", () => {
    const none = binaryMatrix([], ["a"], () => true);
    expect(booleanProduct(transpose(none), none)).toEqual(binaryMatrix(["a"], ["a"], () => false));
    expect(printMatrix(none)).toBe("  a");
  });

  it("multiplies by or over ands", () => {
    const bits = (rows: number, columns: number): fc.Arbitrary<BinaryMatrix> =>
      fc.array(fc.boolean(), { minLength: rows * columns, maxLength: rows * columns }).map((all) =>
        binaryMatrix(
          Array.from({ length: rows }, (_, i) => `r${i}`),
          Array.from({ length: columns }, (_, j) => `c${j}`),
          (row, column) => all[Number(row.slice(1)) * columns + Number(column.slice(1))] ?? false,
        ),
      );
    fc.assert(
      fc.property(bits(3, 4), bits(4, 2), (a, b) => {
        const expected = a.bits.map((row) =>
          [0, 1].map((j) => (row.some((bit, i) => bit === 1 && b.bits[i]?.[j] === 1) ? 1 : 0)),
        );
        expect(booleanProduct(a, b).bits).toEqual(expected);
        expect(transpose(transpose(a))).toEqual(a);
      }),
    );
  });
});
