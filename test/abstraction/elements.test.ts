/** @file Which elements of its target a computation writes: found from its indices, and held against its points. */

import { describe, expect, it } from "vitest";
import { evaluateIndex, pointsOf } from "../../abstraction/affine.ts";
import {
  type Computation,
  defineComputation,
  elementCount,
  extentsOf,
  targetOf,
} from "../../abstraction/computation.ts";
import type { DType } from "../../abstraction/dtype.ts";
import { writesAll, writesApart } from "../../abstraction/elements.ts";
import { printEquation } from "../../abstraction/expression.ts";

const of = (equation: string, extents: Record<string, number>, shape?: readonly number[]): Computation =>
  defineComputation({
    equation,
    extents,
    tensors: { a: "f32", ...(shape && { y: { dtype: "f32" as DType, shape } }) },
  });

/** One line a case: what is written, then what must be found. */
const CASES = [
  [of("y[i] += a[i,k]", { i: 4, k: 3 }), "each element once, all of them"],
  [of("y[i,j] += a[i,j]", { i: 1, j: 3 }), "each element once, all of them"],
  [of("y[g*4+k] += a[g,k]", { g: 3, k: 4 }), "each element once, all of them"],
  [of("y[i/2,i%2] += a[i]", { i: 6 }), "each element once, all of them"],
  [of("y[3-i] += a[i]", { i: 4 }), "each element once, all of them"],
  [of("y[g*5+k] += a[g,k]", { g: 3, k: 4 }), "each element once, some not"],
  [of("y[i+1] += a[i]", { i: 4 }), "each element once, some not"],
  [of("y[i+j,j] += a[i,j]", { i: 4, j: 3 }), "each element once, some not"],
  [of("y[i,i] += a[i]", { i: 4 }), "each element once, some not"],
  [of("y[i] += a[i]", { i: 4 }, [6]), "each element once, some not"],
  [of("y[i+1] += a[i]", { i: 4 }, [4]), "each element once, some not"],
  [of("y[g*3+k] += a[g,k]", { g: 3, k: 4 }), "several points an element"],
  [of("y[i/2] += a[i]", { i: 4 }), "several points an element"],
  [of("y[i+j,i+j] += a[i,j]", { i: 4, j: 3 }), "several points an element"],
] as const;

const dims = (computation: Computation): string =>
  targetOf(computation)
    .dims.map((d) => d.extent)
    .join(" x ");

/** The same, point by point. */
function counted(computation: Computation): { readonly apart: boolean; readonly all: boolean } {
  const kept = computation.axes.filter((a) => a.kind === "spatial").map((a) => a.name);
  const { index } = computation.equation.target;
  const { dims } = targetOf(computation);
  const places = [...pointsOf(kept, extentsOf(computation))].map((p) => index.map((e) => evaluateIndex(e, p)));
  const inside = places.filter((at) => at.every((x, d) => x >= 0 && x < (dims[d]?.extent ?? 0)));
  const distinct = (all: typeof places): number => new Set(all.map(String)).size;
  return { apart: distinct(places) === places.length, all: distinct(inside) === elementCount(targetOf(computation)) };
}

describe("the elements that a computation writes", () => {
  for (const [computation, found] of CASES)
    it(`${printEquation(computation.equation)} of ${dims(computation)}: ${found}`, () => {
      const apart = writesApart(computation);
      const all = writesAll(computation);
      expect(apart ? `each element once, ${all ? "all of them" : "some not"}` : "several points an element").toBe(
        found,
      );
      expect(apart).toBe(counted(computation).apart);
      expect(all && !apart).toBe(false);
      if (apart) expect(all).toBe(counted(computation).all);
    });

  // More points than are looked at one by one.
  it("are known from the indices alone: digits of one number, and skewed indices", () => {
    expect(writesApart(of("y[g*400+k] += a[g,k]", { g: 400, k: 400 }))).toBe(true);
    expect(writesApart(of("y[i+j,j] += a[i,j]", { i: 400, j: 400 }))).toBe(true);
    expect(writesApart(of("y[g*399+k] += a[g,k]", { g: 400, k: 400 }))).toBe(false);
  });

  it("are taken to be shared where an index divides too many points to look at", () => {
    const many = (i: number): Computation => of("y[i/2,i%2] += a[i]", { i });
    expect([writesApart(many(100_000)), writesApart(many(100_002))]).toEqual([true, false]);
  });
});
