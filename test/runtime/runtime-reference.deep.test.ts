/**
 * @file The compiled reference equals the interpreter; tolerances accept every honest order of summation and little
 * more.
 */

import pLimit from "p-limit";
import { describe, expect, it, vi } from "vitest";
import {
  type Computation,
  defineComputation,
  elementCount,
  inputsOf,
  targetOf,
} from "../../abstraction/computation.ts";
import { type DType, isInteger, rangeOf, wrap } from "../../abstraction/dtype.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { pick, type Random, randomInteger, seededRandom } from "../../abstraction/random.ts";
import { instantiate, OPERATORS, parseDataTypes } from "../../operators/index.ts";
import { decodeElements } from "../../runtime/bytes.ts";
import { cacheFolder } from "../../runtime/cache.ts";
import { interpretCompiled } from "../../runtime/reference/reference-program.ts";
import { fromMemory, type Reference, type ReferenceSet, referenceFor } from "../../runtime/reference/verify.ts";
import { compilerHere } from "../support/here.ts";
import { operation, stated } from "../support/subjects.ts";

const workdir = cacheFolder("runtime");
const compiler = await compilerHere();

/** Any value of the type: extremes, zeros of both signs and, of floats, infinities now and then. */
function anyValue(random: Random, dtype: DType): number {
  const [min, max] = rangeOf(dtype);
  if (isInteger(dtype)) return random() < 0.3 ? pick(random, [min, max, 0, 1]) : randomInteger(random, min, max);
  if (random() < 0.1) return pick(random, [0, -0, 1, -1, min, max, Number.POSITIVE_INFINITY]);
  return wrap(dtype, (2 * random() - 1) * 2 ** randomInteger(random, -20, 20));
}

function anyInputs(computation: Computation, seed: number): Record<string, Float64Array> {
  const random = seededRandom(seed);
  return Object.fromEntries(
    inputsOf(computation).map((t) => [
      t.name,
      Float64Array.from({ length: elementCount(t) }, () => anyValue(random, t.dtype)),
    ]),
  );
}

async function expectEqual(computation: Computation, seed: number): Promise<void> {
  const inputs = anyInputs(computation, seed);
  const compiled = await interpretCompiled(computation, inputs, { compiler, workdir });
  expect(compiled).toEqual(interpret(computation, inputs));
}

it("drawing a reference yields to the event loop, and ends at a signal", async () => {
  const copy = stated("y[i] = x[i] --i 4194304 --dtype s8");
  const controller = new AbortController();
  setTimeout(() => controller.abort(new Error("enough")), 1);
  const { signal } = controller;
  await expect(referenceFor(copy, 1, { compiler, workdir, signal })).rejects.toThrow("enough");
});

it("drawing one with an epilogue yields too, and ends at a signal in any turn", async () => {
  const computation = stated("s[i,j] += x[i,j,k] --i 520 --j 1024 --k 1 --epilogue y[i,j] = s[i,j] * w[i,j] + b[i,j]");
  // Looked at in each turn.
  const { signal } = new AbortController();
  let looks = 0;
  const ending = (at: number): Promise<unknown> => {
    looks = 0;
    vi.spyOn(signal, "throwIfAborted").mockImplementation(() => {
      if (++looks === at) throw new Error("enough");
    });
    return referenceFor(computation, 1, { compiler, workdir, signal });
  };
  await ending(0);
  // Of three sets: 2^19 elements of three inputs at once.
  expect(looks).toBe(3 * (1 + 1 + 1));
  await expect(ending(2)).rejects.toThrow("enough");
});

const SMALL = { n: 1, c: 4, k: 4, h: 5, w: 5, d: 3, m: 3, i: 4, j: 3, l: 5, b: 2, radius: 1 };

type Operator = (typeof OPERATORS)[number];

/** An operator with as many of its parameters small as its rules allow. */
function small(operator: Operator, types: string): Computation {
  let parameters: Readonly<Record<string, number>> = {};
  for (const [name, value] of Object.entries(SMALL)) {
    const smaller = { ...parameters, [name]: value };
    if (operator.parameters[name] !== undefined && isAllowed(operator, smaller)) parameters = smaller;
  }
  return instantiate(operator, { parameters, types: parseDataTypes(types) });
}

function isAllowed(operator: Operator, parameters: Readonly<Record<string, number>>): boolean {
  try {
    instantiate(operator, { parameters });
    return true;
  } catch {
    return false;
  }
}

/** Every combine, every function, every rounding; one equation a line. */
const EQUATIONS: readonly (readonly [equation: string, tensors: Readonly<Record<string, DType>>])[] = [
  ["out[i] += s32(a[i,k]) * s32(b[k])", { a: "u8", b: "s8" }],
  ["out[i] += a[i,k] * b[k]", { a: "s32", b: "s32" }],
  ["out[i] += a[i,k] * b[k]", { a: "u32", b: "u32" }],
  ["out[i] += a[i,k] * b[k]", { a: "s16", b: "s16" }],
  ["out[i] sat+= s16(a[i,k]) * s16(b[k])", { a: "u8", b: "s8" }],
  ["out[i] += a[i,k] * b[k]", { a: "f16", b: "f16" }],
  ["out[i] += a[i,k] * b[k]", { a: "bf16", b: "bf16" }],
  ["out[i] += a[i,k] * b[k]", { a: "tf32", b: "tf32" }],
  ["out[i] += f32(a[i,k]) * f32(b[k])", { a: "bf16", b: "f16" }],
  ["out[i] += a[i,k] / b[k]", { a: "f64", b: "f64" }],
  ["out[i] += a[i,k] / b[k] - a[i,k] % b[k]", { a: "s8", b: "s8" }],
  ["out[i] += a[i,k] % b[k]", { a: "f32", b: "f32" }],
  ["out[i] max= f32(a[i+k-1,k])", { a: "u8" }],
  ["out[i] max= -a[i+k-1,k] + 1", { a: "s8" }],
  ["out[i] min= abs(a[i+k-1,k]) * b[k-1]", { a: "f32", b: "f32" }],
  ["out[i] max= min(a[i,k-2], b[k])", { a: "f16", b: "f16" }],
  ["out[i] += square(a[i,k] - b[k]) * 0.1 where (i + k) % 2 == 0 or k < 2", { a: "f32", b: "f32" }],
  ["out[i/2,k] += a[i,k] where i != 3 and k >= 1", { a: "u16" }],
  ["out[i,k] = sat_u8(round(f32(a[i,k]) * 0.37) + 3)", { a: "s32" }],
  ["out[i,k] = sat_s8(a[i,k])", { a: "f32" }],
  ["out[i,k] = s8(a[i,k])", { a: "f64" }],
  ["out[i,k] = u32(a[i,k]) + 4294967295", { a: "f32" }],
  ["out[i,k] = select(i < k, f16(a[i,k]), 0.5) - f16(b[(i-1)/2])", { a: "f32", b: "f64" }],
  ["out[i,k] = s32(a[i,k]) + i*2 - k", { a: "u8" }],
  ["out[i] = out[i-1] * 0.5 + a[i,0]", { a: "f32", out: "f32" }],
  ["out[int] += double[int,register]", { double: "f32" }],
  ["out[] += a[i]", { a: "f32" }],
];

describe("the compiled reference", () => {
  it("equals the interpreter bit for bit in every kind of arithmetic", async () => {
    const limit = pLimit(2);
    const compare = async ([equation, tensors]: (typeof EQUATIONS)[number], i: number): Promise<void> => {
      const axes = new Set(equation.match(/\b(i|k|int|register)\b/g));
      const computation = defineComputation({
        name: equation,
        equation,
        extents: Object.fromEntries([...axes].map((axis) => [axis, axis === "i" ? 7 : 5])),
        tensors,
      });
      await expectEqual(computation, i);
    };
    await Promise.all(EQUATIONS.map((row, i) => limit(compare, row, i)));
  });

  it("sums more outputs than fit side by side, of one loop and of several, with threads", async () => {
    const sums = [
      "y[i] += a[i,k] * x[k] --i 67 --k 5",
      "c[i,j] += a[i,k] * b[k,j] --i 1 --j 70 --k 5",
      "c[i,j] max= a[i,k] - b[k,j] where k <= j --i 3 --j 33 --k 9",
      "c[p,q] += a[2*p+r-1,q+s-1] * b[r,s] --p 3 --q 40 --r 3 --s 3 --shape a=6x40",
    ];
    for (const [i, words] of sums.entries()) await expectEqual(stated(words), i);
  });

  it("equals the interpreter for every kind of operator", async () => {
    const few = OPERATORS.filter((_, i) => i % 4 === 0);
    const limit = pLimit(2);
    // An interaction stores its sums beside its inputs, whose type must hold them.
    const compare = (operator: Operator, i: number): Promise<void> =>
      expectEqual(small(operator, i % 2 === 0 || operator.name === "interaction" ? "f32" : "u8s8"), i);
    await Promise.all(few.map((operator, i) => limit(compare, operator, i)));
  });
});

// ------------------------------------------------------------------------------------------------- references

const conv = defineComputation({
  equation: "out[k,p,q] += f32(in[c,p+r-1,q+s-1]) * f32(w[k,c,r,s])",
  extents: { k: 5, p: 6, q: 6, c: 7, r: 3, s: 3 },
  tensors: { in: { dtype: "f32", dims: ["c", "h", "w"], shape: [7, 6, 6], layout: "HWC4c" }, w: "f32" },
});

function setOf(reference: Reference, name: string): ReferenceSet {
  const found = reference.sets.find((set) => set.name === name);
  if (!found) throw new Error(`no ${name} set`);
  return found;
}

/** The logical values of an input of a set. */
function inputValues(reference: Reference, set: ReferenceSet, name: string): Float64Array {
  const tensor = reference.computation.tensors[name];
  const bytes = set.inputs[name];
  if (!tensor || !bytes) throw new Error(`no input ${name}`);
  return fromMemory(tensor, decodeElements(tensor.dtype, bytes));
}

/** Sums in f32 from the last term to the first: another honest order. */
function backwards(x: ArrayLike<number>, y: ArrayLike<number>): number {
  let sum = 0;
  for (let i = x.length - 1; i >= 0; i--) sum = Math.fround(sum + Math.fround((x[i] ?? 0) * (y[i] ?? 0)));
  return sum;
}

const long = stated("out[m] += a[m,k] * b[k] --m 3 --k 4096");

describe("a reference", () => {
  it("is the same for the same seed and another for another seed", async () => {
    const [once, again, other] = await Promise.all(
      [1, 1, 2].map((seed) => referenceFor(conv, seed, { compiler, workdir })),
    );
    expect(again).toEqual(once);
    expect(other?.sets).not.toEqual(once?.sets);
  });

  it("lies in memory as the layouts say: its inputs read back give its output", async () => {
    const reference = await referenceFor(conv, 3, { compiler, workdir });
    for (const set of reference.sets) {
      const inputs = Object.fromEntries(inputsOf(conv).map(({ name }) => [name, inputValues(reference, set, name)]));
      expect(fromMemory(targetOf(conv), set.expected)).toEqual(interpret(conv, inputs));
    }
    expect(reference.sets[0]?.inputs["in"]?.length).toBe(4 * 6 * 6 * 8);
  });

  it("accepts another order of summation in every set, without a tolerance in the exact one", async () => {
    const reference = await referenceFor(long, 1, { compiler, workdir });
    for (const set of reference.sets) {
      const a = inputValues(reference, set, "a");
      const b = inputValues(reference, set, "b");
      for (const m of [0, 1, 2]) {
        const got = backwards(a.subarray(m * 4096, (m + 1) * 4096), b);
        expect(Math.abs(got - (set.expected[m] ?? Number.NaN))).toBeLessThanOrEqual(set.tolerance[m] ?? 0);
      }
    }
    expect([...setOf(reference, "exact").tolerance]).toEqual([0, 0, 0]);
    expect(Math.max(...setOf(reference, "extreme").expected.map(Math.abs))).toBeGreaterThan(1e30);
  });

  it("has no tolerance for integers and for floats that are only compared", async () => {
    const pool = stated("out[i] max= x[i*2+k] --i 5 --k 3 --dtype f16");
    const dot = stated("out[i] += s32(x[i,k]) * s32(y[k]) --i 5 --k 3 --dtype x=u8,y=s8");
    for (const computation of [pool, dot]) {
      const { sets } = await referenceFor(computation, 1, { compiler, workdir });
      for (const set of sets) expect(Math.max(...set.tolerance)).toBe(0);
    }
  });

  it("has sums within the range of every type, also for products of three and recurrences", async () => {
    const equations = [
      "out[i] += x[i,k] * y[k] * y[i]",
      "out[i,k] = out[i,k-1] * 0.5 + x[i,k] * y[k]",
      "out[i] += square(x[i,k] - y[k])",
    ];
    for (const equation of equations)
      for (const dtype of ["f16", "bf16", "f32", "f64"] as const) {
        const computation = stated(`${equation} --i 6 --k 6 --dtype out=${dtype},x=${dtype},y=${dtype}`);
        for (const set of (await referenceFor(computation, 1, { compiler, workdir })).sets) {
          expect(set.expected.every(Number.isFinite)).toBe(true);
          expect(set.tolerance.every(Number.isFinite)).toBe(true);
        }
      }
  });

  it("counts the terms where several points are added to one element", async () => {
    const scatter = stated("out[p+r] += x[p] * w[r] --p 64 --r 64");
    const { tolerance } = setOf(await referenceFor(scatter, 1, { compiler, workdir }), "random");
    expect((tolerance[63] ?? 0) / (tolerance[0] ?? 1)).toBeGreaterThan(64);
  });

  it("allows for rounding where an operator's own fractions sum to a whole number by chance", async () => {
    const star = operation("2d5pt h=16 w=16");
    const fixed = { w: Float64Array.of(0, 0.1, 0, 0.2, 0.4, 0.2, 0, 0.1, 0).map(Math.fround) };
    const { sets } = await referenceFor(star, 1, { compiler, workdir, fixed });
    const exact = sets.find((s) => s.name === "exact");
    expect(exact?.expected.some(Number.isInteger)).toBe(true);
    expect(exact?.tolerance.every((t) => t > 0)).toBe(true);
  });

  it.each([
    ["u[t,i,j] = u[t-1,i,j] + 0.125*(u[t-1,i-1,j] + u[t-1,i+1,j] + u[t-1,i,j-1] + u[t-1,i,j+1] - 4*u[t-1,i,j])", 2],
    ["u[t,i,j] = u[t-1,i,j] + c[i,j]*(u[t-1,i-1,j] + u[t-1,i,j+1] - 2*u[t-1,i,j])", 2],
    ["u[t,i,j] = max(0.75*u[t-1,i,j] - 0.25*u[t-1,i-1,j], 0.5*u[t-1,i,j] - 1)", 1],
  ])("tells time steps from zeros, however often rounding accumulates: %s", async (equation, least) => {
    const steps = stated(`${equation} --t 100 --i 24 --j 30`);
    const { sets, leftOut = [] } = await referenceFor(steps, 1, { compiler, workdir });
    expect(sets.length).toBeGreaterThanOrEqual(least);
    // Each set left out has its reason.
    expect([...sets, ...leftOut].map(({ name }) => name).sort()).toEqual(["exact", "extreme", "random"]);
    for (const { because } of leftOut) expect(because).toMatch(/^steps by fractions|^rounding of 100 steps/);
    for (const { expected, tolerance } of sets) {
      const outside = expected.filter((x, i) => Math.abs(x) > (tolerance[i] ?? 0));
      expect(outside.length).toBeGreaterThan(expected.length / 8);
    }
  });

  it("refuses time steps whose rounding may exceed the answers", async () => {
    const steps = stated("u[t,i] = 0.5*u[t-1,i]*u[t-1,i] - 3.5*abs(u[t-1,i-1]) + 3.25*abs(u[t-1,i-1]) --t 100 --i 40");
    await expect(referenceFor(steps, 1, { compiler, workdir })).rejects.toThrow(
      "kernels of 100 steps cannot be verified: rounding may differ by as much as the answers do",
    );
  });

  it("keeps the values that an operator fixes", async () => {
    const fixed = { b: new Float64Array(4096).fill(1 / 4096) };
    const reference = await referenceFor(long, 1, { compiler, workdir, fixed });
    for (const set of reference.sets) expect(new Set(inputValues(reference, set, "b"))).toEqual(new Set([1 / 4096]));
  });

  it("covers a layer too large to interpret", async () => {
    const layer = stated(
      "out[k,p,q] += s32(in[c,p+r-1,q+s-1]) * s32(w[k,c,r,s]) --k 32 --p 28 --q 28 --c 32 --r 3 --s 3 --dtype in=u8,w=s8 --shape in=32x28x28",
    );
    const { sets } = await referenceFor(layer, 1, { compiler, workdir });
    expect(sets.map(({ expected }) => new Set(expected).size > 1000)).toEqual([true, true]);
  });
});
