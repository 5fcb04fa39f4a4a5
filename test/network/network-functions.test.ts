/** @file Functions of floats at the ends of their domains and far from them. */

import { describe, expect, it } from "vitest";
import { made, onnx } from "../support/networks.ts";

const { fround, sinh, cosh, tan, asin, acos, asinh, acosh, atanh } = Math;
const INFINITY = Number.POSITIVE_INFINITY;
const OF_ALL = [0, -0, 1e-20, -1e-6, 0.001, -0.3, 0.5, 1, -1.5, 3, 20, -80, 89, INFINITY, -INFINITY, Number.NaN];
const WITHIN_1 = [0, -0, 1e-20, -1e-6, 0.001, -0.3, 0.5, 0.999, -0.9999999, 1, -1, 1.5, -2, INFINITY, Number.NaN];
const FROM_1 = [1, 1.0000001, 1.001, 1.5, 20, 1e30, INFINITY, 0.999, 0, -2, -INFINITY, Number.NaN];

describe("a function that the notation lacks", () => {
  it.each([
    ["Sinh", sinh, OF_ALL],
    ["Cosh", cosh, OF_ALL],
    ["Tan", tan, OF_ALL],
    ["Asinh", asinh, OF_ALL],
    ["Asin", asin, WITHIN_1],
    ["Acos", acos, WITHIN_1],
    ["Atanh", atanh, WITHIN_1],
    ["Acosh", acosh, FROM_1],
  ] as const)("is as exact as f32 allows: %s", async (op, of, inputs) => {
    const given = inputs.map(fround);
    for (const [i, value] of (await made(onnx(`${op}(x[${given.length}])`), given)).entries()) {
      const expected = of(given[i] ?? 0);
      const isSame = Object.is(value, expected) || value === fround(expected);
      if (!isSame) expect(Math.abs(value / expected - 1), `${op}(${given[i]})`).toBeLessThan(8 * 2 ** -24);
    }
  });
});
