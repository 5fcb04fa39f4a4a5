/** @file References kept in files of computations with an epilogue: inputs, results, and how far off a result may be. */

import { describe, expect, it } from "vitest";
import { type Computation, outputOf, targetOf } from "../../abstraction/computation.ts";
import { isInteger, rangeOf } from "../../abstraction/dtype.ts";
import { partsOf } from "../../abstraction/epilogue.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { parseExpr } from "../../abstraction/parse.ts";
import { cacheFolder } from "../../runtime/cache.ts";
import { drawnReference } from "../../runtime/reference/drawn-reference.ts";
import { neverTurns } from "../../runtime/reference/value-facts.ts";
import { fromMemory, type Reference } from "../../runtime/reference/verify.ts";
import { valuesOf } from "../support/compiled-reference.ts";
import { compilerHere } from "../support/here.ts";
import { scratchFolder } from "../support/scratch.ts";
import { operation, stated } from "../support/subjects.ts";

const workdir = cacheFolder("runtime");
const compiler = await compilerHere();
const folder = scratchFolder();

const drawn = (computation: Computation): Promise<Reference | undefined> =>
  drawnReference(computation, 1, { compiler, workdir, folder, least: 0 });

const CONV = "conv2d n=2 c=5 k=6 h=9 w=11";
const PRODUCT = "matmul m=30 n=300 k=7";

describe("a reference with an epilogue that is kept in files", () => {
  it.each([
    [`${CONV} NHWC`, "u8s8", "requantize"],
    [`${CONV} NCHW`, "s8", "relu"],
    [PRODUCT, "s8", "res[m,n] = sat_s8(round(f32(out[m,n]) / scale[n]))"],
    [PRODUCT, "s8", "res[m,n] = out[m,n] * out[m,n] + more[m,n]"],
    [`${CONV} NHWC`, "f32", "bias-relu"],
    [`${CONV} NCHW`, "f32", "requantize"],
    [`${CONV} NHWC`, "bf16", "res[n,k,p,q] = bf16(max(out[n,k,p,q] + f32(more[n,k,p,q]), 0))"],
    [PRODUCT, "f16", "res[m,n] = f16(out[m,n] * scale[n] + bias[n])"],
  ])("equals the interpreter: %s of %s, %s", async (words, dtype, epilogue) => {
    const computation = operation(words, dtype, { epilogue });
    const { sum, epilogue: finish } = partsOf(computation);
    const [reference, ofSums] = await Promise.all([drawn(computation), drawn(sum)]);
    if (!reference || !ofSums || !finish) throw new Error("it is not drawn");
    const isExact = isInteger(targetOf(computation).dtype);
    expect(reference.sets.map(({ name }) => name)).toEqual(["exact", "random", "extreme"].slice(isExact ? 1 : 0));
    for (const [i, set] of reference.sets.entries()) {
      const inputs = valuesOf(computation, set);
      const output = outputOf(computation);
      const expected = interpret(computation, inputs);
      expect([...fromMemory(output, set.expected)]).toEqual([...expected]);
      expect(expected.every(Number.isFinite)).toBe(true);

      // The results for sums that are off by as much as they may be are within the tolerance.
      const [within = 0, slack = 0] = [set.tolerance[0], ofSums.sets[i]?.tolerance[0]];
      expect(within > 0).toBe(!isExact && set.name !== "exact");
      const sums = interpret(sum, inputs);
      const off = [-slack, slack].flatMap((by) => {
        const results = interpret(finish, { ...inputs, [targetOf(computation).name]: sums.map((x) => x + by) });
        return [...results].map((x, e) => Math.abs(x - (expected[e] ?? 0)));
      });
      if (set.name === "random") expect(Math.max(...off)).toBe(within);

      // Neither zeros nor one end of the type pass for most results.
      const apart = expected.filter((x) => Math.abs(x) > 2 * within).length / expected.length;
      expect(apart).toBeGreaterThan(set.name === "extreme" ? 0.05 : 0.25);
      const [, most] = rangeOf(output.dtype);
      expect(expected.filter((x) => x !== most).length / expected.length).toBeGreaterThan(0.3);
    }
  });

  it.each([
    ["f32", "res[m,n] = exp(out[m,n])", "a function known to a few units in the last place"],
    ["f32", "res[m,n] = out[m,n] * min(max(out[m,n] + 3, 0), 6)", "a value that turns"],
    ["f32", "res[m,n] = scale[n] / out[m,n]", "a quotient with a pole"],
    ["f32", "res[m,n] = s8(out[m,n])", "a cast that wraps"],
    ["f32", "res[m,n] = out[m,n] + a[m,n]", "an input of the sums"],
    ["s8", "res[m,n-4] = out[m,n] where n >= 4", "elements left out"],
  ])("is kept in memory instead: a product of %s, %s, %s", async (dtype, epilogue) => {
    expect(await drawn(operation("matmul m=16 n=16 k=16", dtype, { epilogue }))).toBeUndefined();
  });

  it("is kept in memory where results are too large for their type", async () => {
    const computation = stated(
      "c[i,j] += f32(a[i,k]) * f32(b[k,j]) --i 8 --j 8 --k 8 --epilogue res[i,j] = f16(c[i,j] * 1e9)",
    );
    expect(await drawn(computation)).toBeUndefined();
  });
});

describe("a value that never turns", () => {
  it.each([
    ["max(x[i] + b[i], 0)", true],
    ["x[i] * s[i] - b[i]", true],
    ["x[i] / s[i]", true],
    ["sat_u8(round(-x[i]))", true],
    ["s[i] / x[i]", false],
    ["x[i] * x[i]", false],
    ["abs(x[i])", false],
    ["s8(x[i])", false],
    ["sat_u8(x[i]) + u[i]", false],
    ["select(i < 3, x[i], 0)", false],
  ] as [string, boolean][])("%s: %s", (text, expected) => {
    const types = { x: "f32", s: "f32", b: "f32", u: "u8" } as const;
    expect(neverTurns(parseExpr(text), "x", types)).toBe(expected);
  });
});
