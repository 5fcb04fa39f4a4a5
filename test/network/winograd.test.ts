/** @file Winograd's transforms: their numbers, and which convolutions have them. Their kernels stand in winograd.deep.test.ts. */

import { describe, expect, it } from "vitest";
import type { Computation } from "../../abstraction/computation.ts";
import type { Expr } from "../../abstraction/expression.ts";
import { TRANSFORM_NAMES, TRANSFORMS } from "../../abstraction/winograd.ts";
import { GraphBuilder } from "../../network/builder.ts";
import type { Step } from "../../network/network.ts";
import { winogradSteps } from "../../network/winograd.ts";
import { openGraph } from "../../session/network/network.ts";

const times = (matrix: readonly (readonly number[])[], vector: readonly number[]): number[] =>
  matrix.map((row) => row.reduce((sum, factor, i) => sum + factor * (vector[i] ?? 0), 0));

it.each(TRANSFORM_NAMES)("the numbers of %s give the sums of three products each", (name) => {
  const { outputs, input, filter, output } = TRANSFORMS[name];
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
  const net = new GraphBuilder("layer");
  const filters = Float32Array.from({ length: 16 * 16 * 9 }, (_, i) => i % 3);
  net.output(net.node("Conv", [net.input("x", [1, 16, 6, 6]), net.constant("w", [16, 16, 3, 3], filters)]));
  const plain = openGraph(net.graph).program.steps.find(({ computation }) => computation.equation.op === "+=");
  if (!plain) throw new Error("no convolution");
  const { equation } = plain.computation;
  const stepsOf = (step: Step) => winogradSteps(step, "winograd2")?.length;
  /** With the indices of the image in another order. */
  const reordered = (order: readonly number[]): Step => {
    if (equation.value.kind !== "binary" || equation.value.left.kind !== "access") throw new Error("no product");
    const { left } = equation.value;
    const index = order.map((d) => left.index[d] as Expr);
    const value = { ...equation.value, left: { ...left, index } };
    return { ...plain, computation: { ...plain.computation, equation: { ...equation, value } } };
  };

  it("is three steps", () => {
    expect(stepsOf(plain)).toBe(3);
    expect(stepsOf(reordered([0, 1, 2, 3]))).toBe(3);
  });

  it("has none where its image does not lie as images, channels, rows and columns", () => {
    expect(stepsOf(reordered([1, 1, 2, 3]))).toBeUndefined();
    expect(stepsOf(reordered([0, 0, 2, 3]))).toBeUndefined();
  });

  it("has none where the names of its steps are taken", () => {
    const [images] = plain.computation.axes;
    const named = JSON.stringify(plain.computation).replaceAll(`"${images?.name}"`, '"wx"');
    const other = JSON.stringify(plain.computation).replaceAll(`"${images?.name}"`, '"other"');
    expect(stepsOf({ ...plain, computation: JSON.parse(other) as Computation })).toBe(3);
    expect(stepsOf({ ...plain, computation: JSON.parse(named) as Computation })).toBeUndefined();
  });
});
