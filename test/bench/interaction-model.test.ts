/**
 * @file The bounds of DLRM's interaction on Arctic Sound are the figures of the talk that modelled it, and put its
 * kernels in the order it measured.
 */

import { describe, expect, it } from "vitest";
import { boundsOf, EFFICIENCY, PRODUCTS, SEQUENCES, type Variant } from "../../bench/layers/interaction-model.ts";
import { ATS } from "../../targets/index.ts";

const named = (name: string): Variant => {
  const found = PRODUCTS.find((v) => v.name === name);
  if (!found) throw new Error(`no ${name}`);
  return found;
};

describe("the product alone", () => {
  it.each([
    ["fp32", 0.5688, 1.431, 2.044, 2.613],
    ["fp16", 0.2844, 0.715, 1.022, 1.306],
    ["fp16, matrix engine", 0.0355, 0.715, 1.022, 1.057],
  ] as const)("in %s has the time bounds computed by hand", (name, compute, stated, used, most) => {
    const bounds = boundsOf(named(name), ATS, EFFICIENCY);
    expect(bounds.compute).toBeCloseTo(compute, 4);
    expect(boundsOf(named(name), ATS, 1).memory).toBeCloseTo(stated, 3);
    expect(bounds.memory).toBeCloseTo(used, 3);
    expect(bounds.least).toBeCloseTo(used, 3);
    expect(Math.abs(bounds.most - most)).toBeLessThan(0.001);
  });
});

describe.each([
  ["kernels of the product", PRODUCTS],
  ["sequences of kernels", SEQUENCES],
] as const)("%s", (_, variants) => {
  it("are predicted in the order in which the talk measured them, and none beats its bound", () => {
    const measured = variants.filter((v) => v.measured !== undefined);
    const slowestFirst = (of: (v: Variant) => number): string[] =>
      [...measured].sort((a, b) => of(b) - of(a)).map((v) => v.name);
    expect(slowestFirst((v) => boundsOf(v, ATS, EFFICIENCY).most)).toEqual(slowestFirst((v) => v.measured ?? 0));
    for (const v of measured) expect(v.measured).toBeGreaterThan(boundsOf(v, ATS, EFFICIENCY).least);
  });
});
