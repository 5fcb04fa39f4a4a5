/** @file The size of the space of mappings. */

import { describe, expect, it } from "vitest";
import type { Computation } from "../../abstraction/computation.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import { printMatching } from "../../abstraction/mapping.ts";
import { finished } from "../../abstraction/steps.ts";
import { bindOperands } from "../../mapper/match/bind.ts";
import { mappings, validMappings } from "../../mapper/match/enumerate.ts";
import { defineProblem } from "../../mapper/match/problem.ts";
import { validate } from "../../mapper/match/validate.ts";
import { named } from "../support/refusals.ts";
import { stated } from "../support/subjects.ts";

describe("the space of mappings", () => {
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
    ["matmul", "matmul.f32"],
    ["conv1d", "matmul.f32"],
    ["conv2d", "broadcast.f32"],
    ["conv1d", "virtual.conv"],
    ["conv2d", "virtual.gemv"],
    ["matvec", "virtual.conv"],
    ["matvec", "matmul.f32"],
    ["c[k,p] += a[p] * b[k] --k 3 --p 4", "virtual.conv"],
  ])("of %s on %s has the size that is known before listing it", (line, intrinsic) => {
    const computation = stated(line);
    const set = mappings(computation, named(intrinsic), { binding: "fixed" });
    expect(set.total).toBe(exhaustiveCount(computation, named(intrinsic)));
    expect(set.valid).toHaveLength(set.total);
    expect(new Set(set.valid.map((m) => m.id)).size).toBe(set.total);
  });

  it("has, for a search, no mapping that loops of one iteration alone tell from another", () => {
    const searched = (line: string, intrinsic: string): string[] =>
      finished(validMappings(stated(line), named(intrinsic)))
        .map(({ matching }) => printMatching(matching))
        .sort();
    // The product that a 1 x 1 convolution of one image is. Alone, a loop of one iteration may feed an axis.
    const product = searched("out[k,p,q] += in[c,p,q] * w[k,c] --k 64 --c 32 --p 14 --q 14", "broadcast.f32");
    const idle = searched("conv2d --n 1 --c 32 --k 64 --h 14 --w 14 --r 1 --s 1 --pad 0", "broadcast.f32");
    expect(idle.filter((m) => !/<- [nrs]\b/.test(m))).toEqual(product);
    expect(idle.filter((m) => /,[nrs]\b|\b[nrs],/.test(m))).toEqual([]);
  });

  describe("larger than the limit", () => {
    const c3d = stated("conv3d");
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
