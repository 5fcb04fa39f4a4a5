/** @file References kept in files of computations with an epilogue: inputs, results, and how far off a result may be. */

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Computation, inputsOf, outputOf, targetOf } from "../../abstraction/computation.ts";
import { isInteger, rangeOf } from "../../abstraction/dtype.ts";
import { partsOf } from "../../abstraction/epilogue.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { parseExpr } from "../../abstraction/parse.ts";
import { decodeElements } from "../../runtime/bytes.ts";
import { cacheFolder } from "../../runtime/cache.ts";
import { type Compiler, findCompiler } from "../../runtime/compiler.ts";
import { drawnReference } from "../../runtime/reference/drawn-reference.ts";
import { neverTurns } from "../../runtime/reference/value-facts.ts";
import { fromMemory, type Reference, type ReferenceSet } from "../../runtime/reference/verify.ts";
import { computationOf } from "../support/packages.ts";
import { stated } from "../support/subjects.ts";

const workdir = cacheFolder("runtime");
let compiler: Compiler;
let folder: string;

beforeAll(async () => {
  const found = await findCompiler();
  if (found.status === "environment") throw new Error(`${found.what}; ${found.remedy}`);
  compiler = found;
  folder = await mkdtemp(join(tmpdir(), "automap-finished-"));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const drawn = (computation: Computation): Promise<Reference | undefined> =>
  drawnReference(computation, 1, { compiler, workdir, folder, least: 0 });

/** The numbers of a set's inputs, row-major. */
const valuesOf = (computation: Computation, set: ReferenceSet): Record<string, Float64Array> =>
  Object.fromEntries(
    inputsOf(computation).map((t) => [
      t.name,
      fromMemory(t, decodeElements(t.dtype, set.inputs[t.name] ?? new Uint8Array())),
    ]),
  );

const CONV = { n: 2, c: 5, k: 6, h: 9, w: 11 };

describe("a reference with an epilogue that is kept in files", () => {
  it.each([
    ["conv2d", "u8s8", "NHWC", "requantize", CONV],
    ["conv2d", "s8", "NCHW", "relu", CONV],
    ["matmul", "s8", undefined, "res[m,n] = sat_s8(round(f32(out[m,n]) / scale[n]))", { m: 30, n: 300, k: 7 }],
    ["matmul", "s8", undefined, "res[m,n] = out[m,n] * out[m,n] + more[m,n]", { m: 30, n: 300, k: 7 }],
    ["conv2d", "f32", "NHWC", "bias-relu", CONV],
    ["conv2d", "f32", "NCHW", "requantize", CONV],
    ["conv2d", "bf16", "NHWC", "res[n,k,p,q] = bf16(max(out[n,k,p,q] + f32(more[n,k,p,q]), 0))", CONV],
    ["matmul", "f16", undefined, "res[m,n] = f16(out[m,n] * scale[n] + bias[n])", { m: 30, n: 300, k: 7 }],
  ] as [string, string, string | undefined, string, Record<string, number>][])(
    "equals the interpreter: %s %s %s, %s",
    async (operator, dtype, layouts, epilogue, parameters) => {
      const computation = computationOf(operator, dtype, parameters, { ...(layouts && { layouts }), epilogue });
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
    },
  );

  it.each([
    ["matmul", "f32", "res[m,n] = exp(out[m,n])", "a function known to a few units in the last place"],
    ["matmul", "f32", "res[m,n] = out[m,n] * min(max(out[m,n] + 3, 0), 6)", "a value that turns"],
    ["matmul", "f32", "res[m,n] = scale[n] / out[m,n]", "a quotient with a pole"],
    ["matmul", "f32", "res[m,n] = s8(out[m,n])", "a cast that wraps"],
    ["matmul", "f32", "res[m,n] = out[m,n] + a[m,n]", "an input of the sums"],
    ["matmul", "s8", "res[m,n-4] = out[m,n] where n >= 4", "elements left out"],
  ] as [string, string, string, string][])(
    "is kept in memory instead: %s %s, %s, %s",
    async (operator, dtype, epilogue) => {
      const computation = computationOf(operator, dtype, { m: 16, n: 16, k: 16 }, { epilogue });
      expect(await drawn(computation)).toBeUndefined();
    },
  );

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
