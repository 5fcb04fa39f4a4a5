/** @file Lattices of integer vectors by their normal form, null spaces and determinants. */

import { expect, it } from "vitest";
import { choices, determinant, hermiteForm, minorsOf, nullSpace } from "../../mapper/space-time/vector.ts";

it.each([
  [[[-2, 1, 0]], [[2, -1, 0]]],
  [[[0, -1, 1]], [[0, 1, -1]]],
  [
    [
      [2, 4],
      [3, 1],
    ],
    [
      [1, 7],
      [0, 10],
    ],
  ],
  [
    [
      [1, 2, 3],
      [-2, -4, -6],
      [0, 0, -5],
    ],
    [
      [1, 2, 3],
      [0, 0, 5],
    ],
  ],
  [
    [
      [1, 9],
      [0, -4],
    ],
    [
      [1, 1],
      [0, 4],
    ],
  ],
  [[], []],
])("the lattice of %j has the form %j", (rows, form) => {
  expect(hermiteForm(rows)).toEqual(form);
});

it.each([
  [[[1, 1]], 2, [[1, -1]]],
  [[[2, -3]], 2, [[3, 2]]],
  [
    [
      [1, 0, 0, 1],
      [0, 1, 1, 0],
    ],
    4,
    [
      [1, 0, 0, -1],
      [0, 1, -1, 0],
    ],
  ],
  [
    [
      [1, 0],
      [0, 1],
    ],
    2,
    [],
  ],
])("%j maps to 0, of vectors of length %i, %j", (matrix, length, basis) => {
  expect(nullSpace(matrix, length)).toEqual(basis);
});

it("minors are the determinants of all choices of columns", () => {
  expect(choices(4, 2).map(String)).toEqual(["0,1", "0,2", "0,3", "1,2", "1,3", "2,3"]);
  expect(
    minorsOf([
      [1, 2, 3],
      [4, 5, 7],
    ]),
  ).toEqual([-3, -5, -1]);
  const square = [
    [2, 0, 1],
    [3, -1, 4],
    [0, 5, -2],
  ];
  expect([determinant(square), determinant([]), determinant([[7]])]).toEqual([2 * (2 - 20) + 15, 1, 7]);
});
