/** @file Bounds of sums of products of floats of one byte: sums with the bits of tensor cores are within them, and wrong sums of whole numbers are not. */

import { describe, expect, it } from "vitest";
import { defineComputation } from "../../abstraction/computation.ts";
import { BYTE_SUM_BITS, wrap } from "../../abstraction/dtype.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { instantiate, operatorNamed, parseDataTypes } from "../../operators/index.ts";
import { boundRule, toleranceOf } from "../../runtime/reference/error-bound.ts";

const TERMS = 512;
const STEP = 32;
const ruleOf = (types: string) => {
  const parameters = { m: 1, n: 1, k: TERMS };
  const rule = boundRule(instantiate(operatorNamed("matmul"), { parameters, types: parseDataTypes(types) }));
  if (!rule) throw new Error(`${types} has no bound`);
  return rule;
};

/** What a sum of terms whose sizes add up to 1000 may be off by. */
function boundOfSum(equation: string, y: "f32" | "f16" = "f32"): { tolerance: number; size: number } {
  const rule = boundRule(
    defineComputation({ equation, extents: { i: 1, k: TERMS }, tensors: { y, a: "f32", b: "f32" } }),
  );
  if (!rule) throw new Error(`${equation} has no bound`);
  const size = 1000;
  return { tolerance: toleranceOf(rule, TERMS, size, size), size };
}

/** A number cut off to multiples of a unit, towards zero. */
const cut = (x: number, unit: number): number => Math.trunc(x / unit) * unit;
const unitOf = (x: number): number => 2 ** (Math.floor(Math.log2(Math.abs(x))) - BYTE_SUM_BITS);

/** The sum as tensor cores make it: in each step, terms and the sum before are cut off at the bits of the largest, and so is the sum after. */
function summed(terms: readonly number[]): number {
  let sum = 0;
  for (let k = 0; k < terms.length; k += STEP) {
    const step = [sum, ...terms.slice(k, k + STEP)];
    const largest = Math.max(...step.map(Math.abs));
    if (largest === 0) continue;
    const whole = step.reduce((total, x) => total + cut(x, unitOf(largest)), 0);
    sum = whole === 0 ? 0 : cut(whole, unitOf(whole));
  }
  return sum;
}

const total = (terms: readonly number[]): number => terms.reduce((sum, x) => sum + x, 0);
const sizeOf = (terms: readonly number[]): number => total(terms.map(Math.abs));

describe("sums of products of floats of one byte", () => {
  const rule = ruleOf("e4m3e5m2");

  it("have the bound of their few bits, other sums that of their type", () => {
    expect(rule).toMatchObject({ epsilon: 3 * 2 ** -13, exactBelow: 2 ** 14 });
    expect(ruleOf("f16")).toMatchObject({ epsilon: 2 ** -23, exactBelow: 2 ** 24 });
    expect(ruleOf("e4m3->f16")).toMatchObject({ epsilon: 2 ** -10 });
  });

  it("are those of the sum's type for every term, where a term is rounded to a coarser one", () => {
    const { tolerance, size } = boundOfSum("y[i] += f32(f16(a[i,k] * b[i,k]))");
    expect(tolerance / size).toBeLessThan(2 ** -9);
    expect(tolerance / size).toBeGreaterThan(2 ** -10);
    const { tolerance: ofF16 } = boundOfSum("y[i] += f16(a[i,k] * b[i,k])", "f16");
    expect(ofF16 / size).toBeGreaterThan(TERMS * 2 ** -10);
  });

  it("are within it with the bits of tensor cores, and far from where f32 would be", () => {
    const random = seededRandom(3);
    const errors = Array.from({ length: 200 }, () => {
      const terms = Array.from(
        { length: TERMS },
        () => wrap("e4m3", 2 * random() - 1) * wrap("e5m2", (2 * random() - 1) * 2 ** Math.floor(12 * random() - 6)),
      );
      const error = Math.abs(summed(terms) - total(terms));
      expect(error).toBeLessThanOrEqual(toleranceOf(rule, TERMS, sizeOf(terms), total(terms)));
      return error / toleranceOf(ruleOf("f16"), TERMS, sizeOf(terms), total(terms));
    });
    expect(Math.max(...errors)).toBeGreaterThan(1);
  });

  it("of whole numbers are exact, so that a sum that leaves out one term is wrong", () => {
    const random = seededRandom(4);
    const terms = Array.from({ length: TERMS }, () => Math.floor(3 * random()) - 1);
    expect(summed(terms)).toBe(total(terms));
    expect(toleranceOf(rule, TERMS, sizeOf(terms), total(terms), true)).toBe(0);
  });
});
