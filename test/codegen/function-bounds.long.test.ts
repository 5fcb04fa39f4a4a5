/** @file How far results of float functions may be off: right kernels pass at every size, wrong ones pass nowhere. */

import { afterAll, describe, expect, it } from "vitest";
import { type Computation, defineComputation } from "../../abstraction/computation.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { cacheFolder } from "../../runtime/cache.ts";
import { expectedOn } from "../../runtime/reference/expected.ts";
import { usualKernel } from "../../session/kinds/kinds.ts";
import { nativeTarget } from "../../targets/index.ts";
import { compilerHere, runnerHere } from "../support/here.ts";
import { stated } from "../support/subjects.ts";

const compiler = await compilerHere();
/** This machine without its vectors. */
const PLAIN = { ...nativeTarget(), isa: [] };

const runner = await runnerHere({ threads: 1 });
afterAll(() => runner.close());

const make = (equation: string, extents: Readonly<Record<string, number>> = { i: 8, j: 64 }): Computation =>
  defineComputation({
    equation,
    extents,
    tensors: Object.fromEntries(["x", "m", "w"].filter((t) => equation.includes(`${t}[`)).map((t) => [t, "f32"])),
  });

/** Inputs between -2 and 2, and the largest of ten times each row in `m`. */
function drawn(): { x: Float64Array; m: Float64Array } {
  const random = seededRandom(7);
  const x = Float64Array.from({ length: 512 }, () => Math.fround(4 * random() - 2));
  const m = Float64Array.from({ length: 8 }, (_, i) => Math.fround(10 * Math.max(...x.subarray(i * 64, i * 64 + 64))));
  return { x, m };
}

const SMOOTH = [
  "y[i,j] = exp(10 * x[i,j] - m[i])",
  "y[i,j] = exp(20 * x[i,j]) / (1 + exp(20 * x[i,j]))",
  "y[i,j] = 1 / (1 + exp(0 - 10 * x[i,j]))",
  "y[i,j] = tanh(x[i,j] * 3) * 5",
  "y[i,j] = erf(x[i,j] * 0.7071) + 2",
  "y[i,j] = sin(x[i,j] * 1.1) + cos(x[i,j] * 0.7) + 3",
  "y[i,j] = atan(x[i,j] * 3) * 2 + 4",
  "y[i,j] = asinh(x[i,j] * 10) + 5",
  "y[i,j] = sqrt(square(x[i,j]) + 0.1)",
  "y[i,j] = log(1.5 + square(x[i,j]))",
  "y[i,j] = pow(abs(x[i,j]) + 0.5, 1.7)",
  "y[i] += exp(10 * x[i,j] - m[i])",
];

describe("the bound of float functions", () => {
  it.each(SMOOTH)("fails a constant, and an element that is off by a hundredth: %s", async (equation) => {
    const computation = make(equation);
    const { x, m } = drawn();
    const inputs = equation.includes("m[") ? { x, m } : { x };
    const { expected, tolerance } = await expectedOn(computation, inputs, {
      compiler,
      workdir: cacheFolder("runtime"),
    });
    const passes = (got: (right: number, i: number) => number): boolean[] =>
      [...expected].map((right, i) => Math.abs(got(right, i) - right) <= (tolerance[i] ?? 0));
    expect(passes((right) => right)).not.toContain(false);
    expect(passes(() => 0.5).filter((right) => right).length).toBeLessThan(3);
    // Results flushed to zero are within the smallest normal numbers.
    for (const [i, right] of passes((value) => value * 1.01).entries())
      if (Math.abs(expected[i] ?? 0) > 1e-30) expect(right).toBe(false);
  });

  it.each([
    ...SMOOTH,
    "y[i,j] = floor(exp(x[i,j]))",
    "y[i,j] = round(tanh(x[i,j]) * 100) * 0.01",
    "y[i,j] = log(x[i,j])",
  ])("accepts plain loops: %s", async (equation) => {
    const computation = make(equation);
    const reference = await runner.reference(computation, 3);
    const measured = await runner.measure(usualKernel(computation, PLAIN), reference, { budgetSeconds: 0.01 });
    expect(measured.status === "ok" ? "ok" : JSON.stringify(measured)).toBe("ok");
  });

  it.each(["sin", "cos"])("allows any value of %s where rounding moves the argument by whole waves", async (fn) => {
    const { x } = drawn();
    const options = { compiler, workdir: cacheFolder("runtime") };
    const { tolerance } = await expectedOn(make(`y[i,j] = ${fn}(1000000000 * x[i,j])`), { x }, options);
    for (const [i, room] of tolerance.entries()) if (Math.abs(x[i] ?? 0) > 0.1) expect(room).toBeGreaterThan(2);
  });

  it("allows a neighbouring integer only where floor may go either way", async () => {
    const computation = stated("y[i] = floor(exp(x[i])) --i 2");
    const x = Float64Array.of(Math.fround(Math.log(3)), 0.5);
    const { tolerance } = await expectedOn(computation, { x }, { compiler, workdir: cacheFolder("runtime") });
    expect(tolerance[0]).toBeGreaterThanOrEqual(1);
    expect(tolerance[1]).toBeLessThan(0.01);
  });

  it.each([
    "y[i,j] = sat_u8(round(1 / (1 + exp(0 - 4 * x[i,j])) / 0.0039) + 3)",
    "y[i,j] = sat_u8(255 * tanh(abs(x[i,j])))",
    "y[i,j] = s32(round(exp(2 * x[i,j])))",
    "y[i,j] = 0.0039 * f32(sat_u8(round(1 / (1 + exp(0 - 4 * x[i,j])) / 0.0039)))",
  ])(
    "allows a neighbouring integer only where a function lies on or next to a border of rounding: %s",
    async (equation) => {
      const computation = make(equation);
      const { x } = drawn();
      const { expected, tolerance } = await expectedOn(
        computation,
        { x },
        { compiler, workdir: cacheFolder("runtime") },
      );
      const step = equation.includes("f32(") ? 0.0039 : 1;
      expect(Math.max(...tolerance)).toBeLessThan(1.1 * step);
      expect(tolerance.filter((t) => t >= 0.9 * step).length).toBeLessThan(4);
      expect(tolerance.every((t) => t > 0)).toBe(true);
      expect(expected.filter((value, i) => Math.abs(128 * step - value) <= (tolerance[i] ?? 0)).length).toBeLessThan(8);
      const reference = await runner.reference(computation, 3);
      const measured = await runner.measure(usualKernel(computation, PLAIN), reference, { budgetSeconds: 0.01 });
      expect(measured.status === "ok" ? "ok" : JSON.stringify(measured)).toBe("ok");
    },
  );

  it("allows the other integer where exp lies on a border of rounding", async () => {
    const options = { compiler, workdir: cacheFolder("runtime") };
    const x = Float64Array.of(Math.fround(Math.log(2.5)), 0.5);
    const { tolerance } = await expectedOn(stated("y[i] = s32(round(exp(x[i]))) --i 2"), { x }, options);
    expect([...tolerance].map(Math.floor)).toEqual([1, 0]);
  });

  it.each(["1 / (1 + exp(0 - 0.01 * f32(c[m])))", "pow(0.01 * f32(c[m]), 2)"])(
    "allows functions of integer sums only a few units in the last place: %s",
    async (value) => {
      const computation = defineComputation({
        equation: `c[m] += s32(a[m,k]) * s32(b[k]); y[m] = ${value}`,
        extents: { m: 40, k: 8 },
        tensors: { a: "s8", b: "s8" },
      });
      const random = seededRandom(5);
      const draw = (length: number) => Float64Array.from({ length }, () => Math.floor(random() * 13) - 6);
      const inputs = { a: draw(320), b: draw(8) };
      const options = { compiler, workdir: cacheFolder("runtime") };
      const { expected, tolerance } = await expectedOn(computation, inputs, options);
      for (const [i, right] of expected.entries()) {
        if (right === 0) continue;
        expect(tolerance[i]).toBeGreaterThan(2 ** -24 * Math.abs(right));
        expect(tolerance[i]).toBeLessThan(1e-5 * Math.abs(right));
      }
    },
  );

  it("requires infinity and NaN where they are the result", async () => {
    const options = { compiler, workdir: cacheFolder("runtime") };
    for (const equation of ["y[i] = exp(x[i])", "y[i] = log(x[i])", "c[i] += x[i] * w[k]; y[i] = exp(c[i])"]) {
      const computation = make(equation, equation.includes("k") ? { i: 2, k: 2 } : { i: 2 });
      const inputs = { x: Float64Array.of(200, -1), ...(equation.includes("w[") && { w: Float64Array.of(1, 1) }) };
      const { expected, tolerance } = await expectedOn(computation, inputs, options);
      expect([...expected]).toEqual([...interpret(computation, inputs)]);
      for (const [i, value] of expected.entries()) if (!Number.isFinite(value)) expect(tolerance[i]).toBe(0);
    }
  });
});
