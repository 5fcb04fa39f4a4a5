/** @file Winograd's transforms: their numbers, which convolutions have them, and the size of what cancels. */

import { describe, expect, it } from "vitest";
import type { Computation } from "../../abstraction/computation.ts";
import type { Expr } from "../../abstraction/expression.ts";
import { convolutionOf, largestInWindows, TRANSFORMS } from "../../abstraction/winograd.ts";
import { operation } from "../support/subjects.ts";

const times = (matrix: readonly (readonly number[])[], vector: readonly number[]): number[] =>
  matrix.map((row) => row.reduce((sum, factor, i) => sum + factor * (vector[i] ?? 0), 0));

it.each(Object.entries(TRANSFORMS))("the numbers of %s give the sums of three products each", (_, transform) => {
  const { outputs, input, filter, output } = transform;
  const image = input.map((_, i) => 1 + ((i * 7) % 5));
  const taps = [3, -1, 2];
  const transformed = times(filter, taps);
  const products = times(input, image).map((x, i) => x * (transformed[i] ?? 0));
  const sums = Array.from({ length: outputs }, (_, i) =>
    taps.reduce((sum, tap, r) => sum + tap * (image[i + r] ?? 0), 0),
  );
  for (const [i, sum] of times(output, products).entries()) expect(sum).toBeCloseTo(sums[i] ?? Number.NaN, 9);
  expect(products).toHaveLength(outputs + 2);
});

describe("a convolution by Winograd's transforms", () => {
  const plain = operation("conv2d n=1 c=16 k=16 h=6 w=6 r=3 s=3", "f32", { constants: ["w"] });
  const { equation } = plain;
  const isOne = (computation: Computation): boolean => convolutionOf(computation) !== undefined;
  /** With the indices of the image in another order. */
  const reordered = (order: readonly number[]): Computation => {
    if (equation.value.kind !== "binary" || equation.value.left.kind !== "access") throw new Error("no product");
    const { left } = equation.value;
    const index = order.map((d) => left.index[d] as Expr);
    return { ...plain, equation: { ...equation, value: { ...equation.value, left: { ...left, index } } } };
  };

  it("reads images, channels, rows and columns in this order", () => {
    expect(isOne(plain)).toBe(true);
    expect(isOne(reordered([0, 1, 2, 3]))).toBe(true);
    expect(isOne(reordered([1, 1, 2, 3]))).toBe(false);
    expect(isOne(reordered([0, 0, 2, 3]))).toBe(false);
  });

  it("has none of the names that its steps add", () => {
    const [images] = plain.axes;
    const named = (name: string): Computation =>
      JSON.parse(JSON.stringify(plain).replaceAll(`"${images?.name}"`, `"${name}"`)) as Computation;
    expect(isOne(named("other"))).toBe(true);
    expect(isOne(named("wx"))).toBe(false);
  });
});

it("the largest of a window's sums is of those in it and beside it, in the same image and channel", () => {
  const computation = operation("conv2d n=1 c=16 k=16 h=7 w=6 r=3 s=3 pad=1", "f32", { constants: ["w"] });
  const sums = new Float64Array(16 * 7 * 6);
  sums[42 + 4 * 6 + 1] = 9;
  const near = largestInWindows(computation, sums);
  const rows = Array.from({ length: 7 }, (_, p) => near.slice(42 + p * 6, 42 + p * 6 + 6).join(" "));
  expect(rows).toEqual([
    ...Array.from({ length: 4 }, () => "9 9 9 9 0 0"),
    ...Array.from({ length: 3 }, () => "9 9 9 9 0 0"),
  ]);
  expect([...near].filter((x) => x > 0)).toHaveLength(28);
});
