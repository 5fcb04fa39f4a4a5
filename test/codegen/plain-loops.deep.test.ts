/** Plain loops: kernels of computations without an instruction equal the equation. */

import { afterAll, describe, expect, it } from "vitest";
import { defineComputation } from "../../abstraction/computation.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { pick, seededRandom } from "../../abstraction/random.ts";
import { loopsRefused, lowerLoops } from "../../mapper/lower/loops.ts";
import { usualKernel } from "../../session/kinds/kinds.ts";
import { nativeTarget } from "../../targets/index.ts";
import { runnerHere } from "../support/here.ts";
import { compileOnce } from "../support/kept-compiler.ts";
import { NETWORK_STEPS } from "../support/network-steps.ts";
import { randomComputation, randomInputs, SMALL_INTRINSICS } from "../support/random-computation.ts";
import { inFull } from "../support/slow.ts";
import { stated } from "../support/subjects.ts";

compileOnce();

const runner = await runnerHere();
afterAll(async () => {
  await runner.close();
});

describe("plain loops", () => {
  it("equal the equation for random computations", () => {
    let lowered = 0;
    let hoisted = 0;
    let partial = 0;
    for (let seed = 0; seed < inFull(20_000, 300); seed++) {
      const random = seededRandom(seed);
      const computation = randomComputation(random, pick(random, SMALL_INTRINSICS));
      if (loopsRefused(computation) !== undefined) continue;
      const inputs = randomInputs(random, computation);
      const { nest } = lowerLoops(computation);
      const text = printNest(nest);
      const got = interpretNest(nest, computation, inputs).join();
      expect(got, `seed ${seed}\n${text}`).toBe(interpret(computation, inputs).join());
      lowered++;
      if (text.includes("when ")) hoisted++;
      if (text.includes(" = sums[0]")) partial++;
    }
    expect(lowered).toBeGreaterThan(200);
    expect(Math.min(hoisted, partial)).toBeGreaterThan(10);
  });

  it("test a window's borders once a row", () => {
    const [windows] = NETWORK_STEPS;
    if (!windows) throw new Error("the first step is gone");
    expect(printNest(lowerLoops(windows).nest).trim()).toBe(`local sums: f32[9]
for parallel rest in 0..42
  for q in 0..9
    sums[q] = -Infinity
  for r in 0..3
    for s in 0..3
      when rest%7*2+r-1 >= 0 and rest%7*2+r-1 < 13
        for q in max(0, (0 - (s - 1) + 1)/2)..min(9, (17 - (s - 1) + 1)/2)
          sums[q] = max(sums[q], x[rest/7/3,rest/7%3,rest%7*2+r-1,q*2+s-1])
  for q in 0..9
    y[rest/7/3,rest/7%3,rest%7,q] = sums[q]`);
  });

  it("sum squares beside an element without a test", () => {
    const squares = stated("y[i,j] += square(x[i,j+r-2]) --i 20 --j 40 --r 5 --shape x=20x40 --name squares");
    const { nest, inside } = lowerLoops(squares);
    expect(printNest(nest)).toContain("for j in max(0, 0 - (r - 2))..min(40, 40 - (r - 2))");
    expect(inside.size).toBe(2);
    const inputs = randomInputs(seededRandom(4), squares);
    expect(interpretNest(nest, squares, inputs)).toEqual(interpret(squares, inputs));
  });

  it("fill elements outside, and copy the rest without a test", () => {
    const padded = stated("y[i,j] = 2 * x[i-2,j-3] --i 20 --j 40 --shape x=16x35 --name padded");
    expect(printNest(lowerLoops(padded).nest).trim()).toBe(`for parallel rest in 0..20
  for j in 0..40
    y[rest,j] = 2 * 0
  when rest-2 >= 0 and rest-2 < 16
    for j in max(0, 3)..min(40, 38)
      y[rest,j] = 2 * x[rest-2,j-3]`);
  });

  it("go by pieces of a row where a choice ends along it", () => {
    const joined = stated(
      "y[n,c] = max(select(c < 3, a[n,c], select(c < 7, b[n,c-3], d[n,c-7])), 0) --n 4 --c 9 --name joined --shape a=4x3,b=4x4,d=4x2",
    );
    const { nest, inside } = lowerLoops(joined);
    expect(printNest(nest)).toMatchInlineSnapshot(`
      "for parallel rest in 0..4
        for c in 0..min(9, 3)
          y[rest,c] = max(a[rest,c], 0)
        for c in max(0, 3)..min(9, 7)
          y[rest,c] = max(b[rest,c-3], 0)
        for c in max(0, 3, 7)..9
          y[rest,c] = max(d[rest,c-7], 0)"
    `);
    // Three reads and three stores.
    expect(inside.size).toBe(6);
    const inputs = randomInputs(seededRandom(3), joined);
    expect(interpretNest(nest, joined, inputs)).toEqual(interpret(joined, inputs));
  });

  it("have few pieces of a row, however many choices it has", () => {
    const rowsOf = (limit: (term: number) => number): number => {
      const terms = Array.from({ length: 20 }, (_, i) => `select(c < ${limit(i)}, a[n,c], b[n,c])`);
      const equation = `y[n,c] = ${terms.join(" + ")}`;
      const tensors = { a: { dtype: "f32", shape: [2, 64] }, b: { dtype: "f32", shape: [2, 64] } } as const;
      const { nest } = lowerLoops(defineComputation({ equation, extents: { n: 2, c: 64 }, tensors }));
      return printNest(nest).match(/y\[/g)?.length ?? 0;
    };
    expect(rowsOf(() => 5)).toBe(2);
    expect(rowsOf((term) => 3 * term + 1)).toBeLessThanOrEqual(2 ** 8);
  });

  it("refuse computations that they would get wrong", () => {
    const refused = (equation: string): string | undefined =>
      loopsRefused(defineComputation({ equation, extents: { i: 4, j: 3 }, tensors: { x: "s16" } }));
    expect(refused("y[i] sat+= x[i,j]")).toBe("a sum of it saturates once, after all points");
    expect(refused("y[i/2] += x[i,j]")).toBe("several points of kept loops join one element");
    const spec = { extents: { i: 8 }, tensors: { x: "f32", y: "f32" } } as const;
    expect(() =>
      defineComputation({ ...spec, equation: "y[i] = y[i-1] + x[i]", epilogue: "z[i] = max(y[i], 0)" }),
    ).toThrow("an epilogue cannot take its place");
  });

  it.each(NETWORK_STEPS.map((step) => [step.name, step] as const))(
    "are right when compiled: %s",
    async (_, computation) => {
      const reference = await runner.reference(computation, 3);
      for (const isa of [nativeTarget().isa, []]) {
        const measured = await runner.measure(usualKernel(computation, { ...nativeTarget(), isa }), reference, {
          budgetSeconds: 0.01,
        });
        expect(measured.status === "ok" ? "ok" : JSON.stringify(measured)).toBe("ok");
      }
    },
  );
});
