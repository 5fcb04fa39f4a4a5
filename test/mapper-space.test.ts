/** @file The size of the space of mappings. */

import { describe, expect, it } from "vitest";
import type { Computation } from "../abstraction/computation.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import { printMatching } from "../abstraction/mapping.ts";
import { bindOperands } from "../mapper/match/bind.ts";
import { mappings } from "../mapper/match/enumerate.ts";
import { defineProblem } from "../mapper/match/problem.ts";
import { validate } from "../mapper/match/validate.ts";
import { instantiate, operatorNamed, parseDataTypes } from "../operators/index.ts";
import { compute, named } from "./support/refusals.ts";

describe("the space of mappings", () => {
  const f32 = parseDataTypes("f32");
  const conv = named("virtual.conv");

  /** Every way to give each loop to one axis or to none that is a gather with no axis left out: counted one by one. */
  function exhaustiveCount(computation: Computation, intrinsic: Intrinsic): number {
    const [binding] = bindOperands(computation, intrinsic, false).bindings;
    if (!binding) return 0;
    const problem = defineProblem(computation, intrinsic, binding);
    const axes = intrinsic.computation.axes.map((a) => a.name);
    const loops = computation.axes.map((a) => a.name);
    let count = 0;
    for (let code = 0; code < (axes.length + 1) ** loops.length; code++) {
      const digit = (i: number): number => Math.floor(code / (axes.length + 1) ** i) % (axes.length + 1);
      const matching = Object.fromEntries(axes.map((axis, a) => [axis, loops.filter((_, i) => digit(i) === a)]));
      const isEmpty = Object.values(matching).every((fed) => fed.length === 0);
      if (!isEmpty && validate(problem, matching, { rule: "gather", strict: false }).ok) count++;
    }
    return count;
  }

  it.each([
    ["matmul", "matmul.f32", {}],
    ["conv1d", "matmul.f32", {}],
    ["conv2d", "broadcast.f32", {}],
    ["conv1d", "virtual.conv", {}],
    ["conv2d", "virtual.gemv", {}],
    ["matvec", "virtual.conv", {}],
    ["matvec", "matmul.f32", {}],
  ] as const)("of %s on %s has the size that is known before listing it", (operator, intrinsic, parameters) => {
    const computation = instantiate(operatorNamed(operator), { parameters, types: f32 });
    const set = mappings(computation, named(intrinsic), { binding: "fixed" });
    expect(set.total).toBe(exhaustiveCount(computation, named(intrinsic)));
    expect(set.valid).toHaveLength(set.total);
    expect(new Set(set.valid.map((m) => m.id)).size).toBe(set.total);
  });

  it("feeds as many axes as possible where a computation has fewer loops than axes", () => {
    const outer = compute("c[k,p] += a[p] * b[k]", { k: 3, p: 4 }, { a: "f32", b: "f32" });
    const set = mappings(outer, conv, { binding: "fixed" });
    expect(set.valid.map((m) => printMatching(m.matching))).toMatchInlineSnapshot(`
      [
        "k <- k   p <- p   q <- -   c <- -",
        "k <- k   p <- -   q <- p   c <- -",
      ]
    `);
    expect(set.total).toBe(exhaustiveCount(outer, conv));
  });

  it("is empty where nothing feeds an axis", () => {
    const lanes = compute("c[i] += a[i] * b[i]", { i: 4 }, { a: "f32", b: "f32" });
    const set = mappings(lanes, named("matmul.f32"));
    expect(set.total).toBe(0);
    expect(set.valid).toEqual([]);
    expect(set.refused.length).toBeGreaterThan(0);
  });

  describe("larger than the limit", () => {
    const c3d = instantiate(operatorNamed("conv3d"), { types: f32 });
    const matmulF32 = named("matmul.f32");
    const options = { limit: 200, seed: 3 };

    it("is sampled, and marked as such", () => {
      const whole = mappings(c3d, conv);
      const sampled = mappings(c3d, conv, options);
      expect([whole.sampled, sampled.sampled]).toEqual([false, true]);
      expect(sampled.total).toBe(whole.total);
      expect(whole.valid).toHaveLength(whole.total);
      expect(sampled.valid).toHaveLength(200);
      const ids = new Set(whole.valid.map((m) => m.id));
      expect(sampled.valid.filter((m) => !ids.has(m.id))).toEqual([]);
      expect(new Set(sampled.valid.map((m) => m.id)).size).toBe(200);
    });

    it("gives the same sample for the same seed and another for another seed", () => {
      const ids = (seed: number): string[] => mappings(c3d, conv, { limit: 200, seed }).valid.map((m) => m.id);
      expect(ids(3)).toEqual(ids(3));
      expect(ids(3)).not.toEqual(ids(4));
    });

    it("is listed whole where its size equals the limit", () => {
      const { total } = mappings(c3d, matmulF32);
      expect(mappings(c3d, matmulF32, { limit: total }).sampled).toBe(false);
      expect(mappings(c3d, matmulF32, { limit: total - 1 }).sampled).toBe(true);
    });
  });
});
