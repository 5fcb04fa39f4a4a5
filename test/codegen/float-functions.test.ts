/**
 * @file Functions of floats: the interpreter, the compiled reference and generated C++ agree, and integers are refused.
 */

import { afterAll, describe, expect, it } from "vitest";
import { type Computation, defineComputation } from "../../abstraction/computation.ts";
import { UsageError } from "../../abstraction/error.ts";
import { FLOAT_FUNCTIONS, type FloatFunction } from "../../abstraction/expression.ts";
import { erf, FLOAT_VALUES } from "../../abstraction/float-functions.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { cacheFolder } from "../../runtime/cache.ts";
import { interpretCompiled } from "../../runtime/reference/reference-program.ts";
import { tuneComputation } from "../../session/tune/tune.ts";
import { compilerHere, runnerHere } from "../support/here.ts";
import { stated } from "../support/subjects.ts";

const compiler = await compilerHere();
const runner = await runnerHere({ threads: 1 });
afterAll(() => runner.close());

const NAMES = Object.keys(FLOAT_FUNCTIONS) as FloatFunction[];
const callOf = (fn: FloatFunction): string =>
  FLOAT_FUNCTIONS[fn] === 2
    ? `${fn}(abs(x[i]), w[i])`
    : `${fn}(${fn === "log" || fn === "sqrt" ? "abs(x[i])" : "x[i]"})`;

describe("functions of floats", () => {
  it("know the error function: Abramowitz and Stegun, table 7.1", () => {
    const known = [
      [0.1, 0.112462916],
      [0.5, 0.5204998778],
      [1, 0.8427007929],
      [2, 0.995322265],
      [2.49, 0.9995707121],
      [2.51, 0.9996142945],
      [4, 0.9999999846],
    ] as const;
    for (const [x, value] of known) {
      expect(erf(x)).toBeCloseTo(value, 9);
      expect(erf(-x)).toBe(-erf(x));
    }
    expect([erf(0), erf(-0), erf(7), erf(Number.NEGATIVE_INFINITY), erf(Number.NaN)]).toEqual([
      0,
      -0,
      1,
      -1,
      Number.NaN,
    ]);
    // Both ways of computing it meet.
    expect(Math.abs(erf(2.5 - 1e-12) - erf(2.5))).toBeLessThan(1e-14);
  });

  it("know the powers of 1 as C does", () => {
    const { pow } = FLOAT_VALUES;
    expect([pow(1, Number.NaN), pow(1, Number.NEGATIVE_INFINITY), pow(-1, Number.POSITIVE_INFINITY)]).toEqual([
      1, 1, 1,
    ]);
    expect([pow(Number.NaN, 0), pow(-1, Number.NaN), pow(-2, 3), pow(-2, 0.5)]).toEqual([
      1,
      Number.NaN,
      -8,
      Number.NaN,
    ]);
  });

  it("are rounded to the type, whatever computes them", async () => {
    const random = seededRandom(3);
    const equation = `y[i] = ${NAMES.map((fn) => callOf(fn)).join(" + 0.25 * ")}`;
    for (const dtype of ["f32", "f64", "f16"] as const) {
      const computation = defineComputation({ equation, extents: { i: 50 }, tensors: { x: dtype, w: dtype } });
      const draw = () =>
        Float64Array.from({ length: 50 }, () => Math.fround(4 * random() - 2)).map((v) => Math.round(v * 64) / 64);
      const inputs = { x: draw(), w: draw() };
      const expected = interpret(computation, inputs);
      const compiled = await interpretCompiled(computation, inputs, { compiler, workdir: cacheFolder("runtime") });
      const room = { f32: 1e-5, f64: 1e-13, f16: 0.1 }[dtype];
      for (const [i, value] of expected.entries())
        expect(Math.abs((compiled[i] ?? Number.NaN) - value)).toBeLessThanOrEqual(room * (1 + Math.abs(value)));
    }
    expect(FLOAT_VALUES.pow(2, 10)).toBe(1024);
  });

  it("accept floats only", () => {
    const make = (): Computation =>
      defineComputation({ equation: "y[i] = exp(x[i])", extents: { i: 3 }, tensors: { x: "s32" } });
    expect(make).toThrow(UsageError);
    expect(make).toThrow("exp takes floats, not s32; cast, for example exp(f32(...))");
  });

  it("may stand in epilogues of tuned kernels", async () => {
    const computation = stated(
      "c[m,n] += a[m,k] * b[k,n]; y[m,n] = 0.5 * c[m,n] * (1 + erf(c[m,n] * 0.7071)) --m 8 --n 24 --k 16",
    );
    const outcome = await tuneComputation(
      { computation },
      { trials: 2, seconds: 20, database: ":memory:", kinds: "mappings" },
    );
    if (!("best" in outcome)) throw new Error(outcome.status);
    expect(outcome.failed).toEqual({});
    expect(outcome.best?.measurement.status ?? "none").toBe("ok");
  });

  it("are plain code or rows of lanes where they stand alone", async () => {
    const computation = stated("y[i] = tanh(x[i]) --i 64");
    const outcome = await tuneComputation({ computation }, { trials: 2, seconds: 20, database: ":memory:" });
    if (!("best" in outcome)) throw new Error(outcome.status);
    expect(outcome.failed).toEqual({});
    expect(outcome.best?.candidate.intrinsic).toMatch(/^(portable\.copy\.f32\.lanes|loops\b)/);
  });
});
