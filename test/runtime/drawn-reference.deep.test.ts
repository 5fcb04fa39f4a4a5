/** @file References kept in files: the program's outputs equal the interpreter's on the same inputs. */

import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { defineComputation, elementCount, inputsOf, memoryElements, targetOf } from "../../abstraction/computation.ts";
import { type DType, rangeOf } from "../../abstraction/dtype.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { received } from "../../abstraction/source-text.ts";
import { PORTABLE } from "../../intrinsics/portable.ts";
import { decodeElements } from "../../runtime/bytes.ts";
import { cacheFolder } from "../../runtime/cache.ts";
import { runChild } from "../../runtime/child.ts";
import type { SetName } from "../../runtime/reference/draw-inputs.ts";
import { drawnReference } from "../../runtime/reference/drawn-reference.ts";
import { drawnSource } from "../../runtime/reference/drawn-source.ts";
import { compiledReference } from "../../runtime/reference/reference-program.ts";
import { fromMemory, type Reference, type ReferenceSet, referenceFor } from "../../runtime/reference/verify.ts";
import { generate } from "../../session/kinds/mapping-kind.ts";
import { valuesOf } from "../support/compiled-reference.ts";
import { compilerHere, runnerHere } from "../support/here.ts";
import { plainCandidate } from "../support/packages.ts";
import { scratchFolder } from "../support/scratch.ts";
import { operation, stated } from "../support/subjects.ts";

const workdir = cacheFolder("runtime");
const compiler = await compilerHere();
const folder = scratchFolder();

const drawn = (equation: string, extents: Record<string, number>, tensors: Record<string, DType>, least = 0) =>
  drawnReference(defineComputation({ equation, extents, tensors }), 1, { compiler, workdir, folder, least });

/** The numbers of a set's inputs. */
const inputValues = ({ computation }: Reference, set: ReferenceSet): Record<string, Float64Array> =>
  Object.fromEntries(
    inputsOf(computation).map((t) => [t.name, decodeElements(t.dtype, set.inputs[t.name] ?? new Uint8Array())]),
  );

const F32 = { in: "f32", w: "f32", out: "f32" } as const;
const F64 = { in: "f64", w: "f64", out: "f64" } as const;
const HEAT = "u[t,i,j] = 0.5*u[t-1,i,j] + 0.125*(u[t-1,i-1,j] + u[t-1,i+1,j] + u[t-1,i,j-1] + u[t-1,i,j+1])";

describe("a reference that is kept in files", () => {
  it.each([
    ["out[p,q] += f32(in[p+r,q+s]) * f32(w[r,s])", { p: 30, q: 300, r: 3, s: 3 }, F32],
    ["out[k,p,q] += in[c,p+r-1,2*q+s-1] * w[k,c,r,s]", { k: 2, p: 7, q: 9, c: 3, r: 3, s: 3 }, F64],
    ["out[p] += in[p+r-2] * w[r]", { p: 700, r: 5 }, F32],
    ["y[i,j] = 0.25*x[i,j] - 2", { i: 20, j: 31 }, { x: "f32", y: "f32" }],
    ["y[i] += f32(x[i,k])*w[k]", { i: 640, k: 30 }, { x: "s8", w: "f32", y: "f32" }],
    ["y[i] += f32(x[i,k])*f32(w[k])", { i: 640, k: 30 }, { x: "u8", w: "bf16", y: "f32" }],
    ["y[i] = f32(x[i])*2", { i: 640 }, { x: "tf32", y: "f32" }],
    [HEAT, { t: 5, i: 19, j: 40 }, { u: "f32" }],
    [HEAT.replaceAll(/i([-+])1/g, "clamp(i$11)"), { t: 4, i: 19, j: 40 }, { u: "f64" }],
    ["u[t,i] = u[t-1,wrap(i-1)] - 2*u[t-1,wrap(i+2)]", { t: 3, i: 50 }, { u: "f32" }],
  ] as [string, Record<string, number>, Record<string, DType>][])(
    "equals the interpreter: %s",
    async (equation, extents, tensors) => {
      const reference = await drawn(equation, extents, tensors);
      if (!reference) throw new Error("it is not drawn");
      expect(reference.sets.length + (reference.leftOut?.length ?? 0)).toBe(3);
      for (const set of reference.sets) {
        expect([...set.expected]).toEqual([...(await interpret(reference.computation, inputValues(reference, set)))]);
        // Zeros do not pass: a third of the elements of the set of unequal sizes, all but a few of the others.
        const outside = set.expected.filter((x, i) => Math.abs(x) > (set.tolerance[i] ?? 0)).length;
        expect(outside / set.expected.length).toBeGreaterThan(set.name === "extreme" ? 0.3 : 0.75);
      }
    },
  );

  it.each([
    ["conv2d n=2 c=5 k=6 h=9 w=11 NHWC", "u8s8"],
    ["conv2d c=5 k=6 h=9 w=11 stride=2 NCHW", "u8s8"],
    ["conv2d c=5 k=6 h=9 w=11 pad=0 NHWC", "s16"],
    ["conv2d c=8 k=8 h=9 w=11 NCHW4c", "s16"],
    ["conv2d c=5 k=6 h=9 w=11 NHWC", "f32"],
    ["conv2d c=5 k=6 h=9 w=11 NHWC", "bf16"],
    ["conv2d c=5 k=6 h=9 w=11 NCHW", "f16"],
    ["depthwise-conv2d c=5 h=9 w=11 NHWC", "u8s8"],
    ["matmul m=30 n=300 k=70", "s8"],
    ["matmul m=30 n=300 k=70", "tf32"],
    ["conv2d c=6 k=7 h=9 w=11 NCHW4c", "s16"],
    ["matmul-4bit m=4 n=100 k=64", "f32"],
    ["matmul-4bit m=1 n=600 k=64 group=64", "f16"],
    ["matmul-4bit-s8 m=5 n=100 k=64", undefined],
  ] as [string, string | undefined][])(
    "equals the interpreter in the order of its tensors: %s of %s",
    async (words, dtype) => {
      const computation = operation(words, dtype);
      const reference = await drawnReference(computation, 1, { compiler, workdir, folder, least: 0 });
      if (!reference) throw new Error("it is not drawn");
      const isExact = targetOf(computation).dtype === "s32";
      expect(reference.sets.map(({ name }) => name)).toEqual(["exact", "random", "extreme"].slice(isExact ? 1 : 0));
      const holes = memoryElements(targetOf(computation)) - elementCount(targetOf(computation));
      expect(reference.checked?.filter((x) => x === 0).length ?? 0).toBe(holes);
      for (const set of reference.sets) {
        const inputs = valuesOf(computation, set);
        const output = targetOf(computation);
        const expected = interpret(computation, inputs);
        expect([...fromMemory(output, set.expected)]).toEqual([...expected]);
        expect(set.expected.length).toBe(memoryElements(output));
        if (isExact) expect(set.tolerance.every((x) => x === 0)).toBe(true);
        // Zeros do not pass.
        else if (set.name !== "extreme")
          expect(set.expected.filter((x, i) => Math.abs(x) > (set.tolerance[i] ?? 0)).length).toBeGreaterThan(300);
        expect(set.expected.every(Number.isFinite)).toBe(true);
        for (const { name, dtype } of inputsOf(computation)) {
          const [min, max] = rangeOf(dtype);
          const ends = inputs[name]?.filter((x) => x === min || x === max).length ?? 0;
          if (isExact) expect(ends / (inputs[name]?.length ?? 1) > 0.5).toBe(set.name === "extreme");
        }
      }
    },
  );

  it("draws numbers of each set's kind, the same for the same seed", async () => {
    const all = await Promise.all(
      [1, 2].map(() => drawn("y[i,j] = 2*x[i,j]", { i: 80, j: 1000 }, { x: "f32", y: "f32" })),
    );
    const [one, again] = all.map((reference) =>
      reference?.sets.map((set) => reference && inputValues(reference, set)["x"]),
    );
    expect(one).toEqual(again);
    const [exact = [], random = [], extreme = []] = (one ?? []).map((x) => [...(x ?? [])]);
    expect(new Set(exact)).toEqual(new Set([-3, -2, -1, 0, 1, 2, 3]));
    const mean = (x: readonly number[]): number => x.reduce((a, b) => a + b, 0) / x.length;
    expect(Math.abs(mean(random))).toBeLessThan(0.02);
    expect(Math.abs(mean(random.map((x) => x * x)) - 1 / 3)).toBeLessThan(0.02);
    expect(random.every((x) => Math.abs(x) <= 1)).toBe(true);
    // No two blocks of the counter are alike.
    expect(random.slice(0, 1000)).not.toEqual(random.slice(65_536, 66_536));
    for (const [low, high] of [
      [0, 0],
      [2 ** -7, 2 ** -6],
      [0.5, 1],
      [1e15, Number.POSITIVE_INFINITY],
    ] as const)
      expect(extreme.filter((x) => Math.abs(x) >= low && Math.abs(x) <= high).length).toBeGreaterThan(8000);
  });

  it.each([
    ["y[i] = x[i]*x[i]", "small", { i: 64 }, { x: "f32", y: "f32" }, undefined],
    ["y[i] += x[i,k]/w[k]", "quotients of integers", { i: 64, k: 3 }, { x: "s8", w: "s8", y: "s8" }, 0],
    ["y[i] = exp(x[i])", "of functions", { i: 64 }, { x: "f32", y: "f32" }, 0],
    ["y[i] = 0.1*x[i]", "fractions that are not exact", { i: 64 }, { x: "f32", y: "f32" }, 0],
    ["y[i] += a[i,k]*b[k]", "sums that no exact set fits", { i: 2, k: 2 ** 25 }, { a: "f32", b: "f32", y: "f32" }, 0],
    ["y[i] = y[i-1] + x[i]", "recurrences", { i: 64 }, { x: "f32", y: "f32" }, 0],
  ] as [string, string, Record<string, number>, Record<string, DType>, number | undefined][])(
    "is kept in memory instead: %s, %s",
    async (equation, _, extents, tensors, least) => {
      const computation = defineComputation({ equation, extents, tensors });
      const options = { compiler, workdir, folder, ...(least !== undefined && { least }) };
      expect(await drawnReference(computation, 1, options)).toBeUndefined();
    },
  );

  it("draws the sets that are asked for, the same as among others, in files and in memory", async () => {
    const computation = stated("out[p] += in[p+r-2] * w[r] --p 90 --r 5");
    for (const draw of [
      (sets?: readonly SetName[]) =>
        drawnReference(computation, 1, { compiler, workdir, folder, least: 0, ...(sets && { sets }) }),
      (sets?: readonly SetName[]) => referenceFor(computation, 1, { compiler, workdir, ...(sets && { sets }) }),
    ]) {
      const all = await draw();
      const one = await draw(["random"]);
      expect(one?.sets.map(({ name }) => name)).toEqual(["random"]);
      expect(one?.sets[0]?.inputs).toEqual(all?.sets[1]?.inputs);
    }
  });

  it("is kept in memory instead where an index is read from a tensor whose elements are also summed", async () => {
    const computation = stated("y[i] = table[clamp(x[i])] + x[i] --i 64 --dtype s32 --shape table=9");
    expect(await drawnReference(computation, 1, { compiler, workdir, folder, least: 0 })).toBeUndefined();
  });

  it.each([
    ["y[i] = table[clamp(x[i])] --i 640 --dtype s32 --shape table=9", "x"],
    [
      "c[t,m,n] += f32(a[t,m,k]) * f32(w[clamp(g[t]),n,k]) where g[t] >= 0 --t 9 --m 4 --n 40 --k 7 --shape w=3x40x7 --dtype a=bf16,w=bf16,g=s32,c=f32",
      "g",
    ],
    [
      "c[g,m,n] += s32(a[g,m,k]) * s32(w[g,n,k]) where m < count[g] --g 5 --m 6 --n 40 --k 7 --dtype a=u8,w=s8,count=s32,c=s32",
      "count",
    ],
  ])("equals the interpreter where elements say which points are meant: %s", async (words, deciding) => {
    const computation = stated(words);
    const reference = await drawnReference(computation, 1, { compiler, workdir, folder, least: 0 });
    if (!reference) throw new Error("it is not drawn");
    for (const set of reference.sets) {
      const inputs = inputValues(reference, set);
      expect([...set.expected]).toEqual([...(await interpret(computation, inputs))]);
      expect(new Set(inputs[deciding]).size).toBeGreaterThan(2);
      expect(set.expected.some((x) => x !== 0)).toBe(true);
    }
  });

  it("keeps the values an operator fixes, which may be fractions", async () => {
    const computation = stated("out[p] += in[p+r] * w[r] --p 500 --r 3");
    const fixed = { w: Float64Array.of(0.25, 0.5, 0.25) };
    const reference = await drawnReference(computation, 1, { compiler, workdir, folder, fixed, least: 0 });
    expect(reference?.sets.map(({ name }) => name)).toEqual(["exact", "random", "extreme"]);
    for (const set of reference?.sets ?? []) {
      const inputs = reference ? inputValues(reference, set) : {};
      expect(inputs["w"]).toEqual(fixed.w);
      expect([...set.expected]).toEqual([...interpret(computation, inputs)]);
      expect(set.tolerance[0] === 0).toBe(set.name === "exact");
    }
  });

  it.each([
    ["long sums", "y[i] += a[i,k]*b[k]", { i: 2, k: 2 ** 21 }, 2],
    ["shorter ones", "y[i] += a[i,k]*b[k]", { i: 2, k: 2 ** 20 }, 3],
  ] as [string, string, Record<string, number>, number][])(
    "draws integers small enough that %s are compared bit by bit",
    async (_, equation, extents, largest) => {
      const reference = await drawn(equation, extents, { a: "f32", b: "f32", y: "f32" });
      const exact = reference?.sets.find(({ name }) => name === "exact");
      expect(exact?.tolerance[0]).toBe(0);
      const values = reference && exact ? inputValues(reference, exact)["b"] : undefined;
      expect(values?.reduce((most, x) => Math.max(most, x), 0)).toBe(largest);
    },
  );

  it.each([
    ["a sum that lacks its last terms", "matmul m=40 n=300 k=70", /k < sizes\[\d+\]/, "$& - 1"],
    ["the last columns", "matmul m=40 n=300 k=70", /(?= - group :)/, " - 1"],
    ["numbers made once of half bytes", "matmul-4bit m=4 n=100 k=64", /(?<=Int\(sizes\[\d+\])(?=\)\) :)/, " - 1"],
    ["a border", "conv2d c=3 k=4 h=9 w=11", "e2 + 1,", "e2 + 2,"],
    ["nothing", "matmul m=40 n=300 k=70", "int main", "int main"],
  ])("ends where its fast loops differ from plain ones: %s", async (fault, words, right, wrong) => {
    const differs = fault !== "nothing";
    const computation = operation(words);
    const { source, sizes } = drawnSource(computation, new Set());
    const planted = { source: received(source.replace(right, wrong)), sizes };
    expect(planted.source === source).toBe(!differs);
    const program = await compiledReference(computation, planted, { compiler, workdir });
    const files = [...inputsOf(computation), targetOf(computation)].map(({ name }) => join(folder, `fault-${name}`));
    const run = await runChild([...program, "2", "1", "4", "1", "1e-6", "0", ...files], { timeLimitMs: 900_000 });
    expect(run.status).toBe(differs ? "failed" : "ok");
    if (differs) expect(run.stderr).toMatch(/^sum \d+ is \S+, and \S+ by plain loops/);
  });

  it("tells a wrong kernel from a right one", async () => {
    const runner = await runnerHere();
    try {
      const extents = { p: 40, q: 3000, r: 3, s: 3 };
      const reference = await drawn("out[p,q] += in[p+r,q+s] * w[r,s]", extents, F32);
      if (!reference) throw new Error("it is not drawn");
      const kernelOf = (equation: string) => {
        const plain = plainCandidate(defineComputation({ equation, extents, tensors: F32 }), PORTABLE);
        if (!plain) throw new Error("nothing maps");
        return generate(plain.candidate, plain.mapping);
      };
      const right = await runner.measure(kernelOf("out[p,q] += in[p+r,q+s] * w[r,s]"), reference);
      expect(right.status).toBe("ok");
      const measured = await runner.measure(kernelOf("out[p,q] += in[p+r,q+s] * w[s,r]"), reference);
      expect(measured).toMatchObject({
        status: "wrong",
        log: expect.stringMatching(/^call 1 on exact inputs: \d+ of 120000 elements/),
      });
    } finally {
      await runner.close();
    }
  });
});
